"""Messages to the user during a run: in the log if it is configured, else on standard error."""

from __future__ import annotations

import sys
from typing import Final

LOGGER: Final = "tidegate.spark"
"""The logger that a program may configure. Without a handler, messages go to stderr."""


def notify(text: str) -> None:
    """Log or print one line."""
    logging = sys.modules.get("logging")
    if logging is not None and (logger := logging.getLogger(LOGGER)).hasHandlers():
        logger.warning("%s", text)
        return
    print(f"tidegate: {text}", file=sys.stderr, flush=True)

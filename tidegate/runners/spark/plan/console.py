"""What the runner tells people while a run goes on: lines in the author's log, or on standard error."""

from __future__ import annotations

import sys
from typing import Final

LOGGER: Final = "tidegate.spark"
"""The logger that an author may configure. Without a handler, lines go to stderr."""


def say(text: str) -> None:
    """Tell people one line."""
    logging = sys.modules.get("logging")
    if logging is not None and (logger := logging.getLogger(LOGGER)).hasHandlers():
        logger.warning("%s", text)
        return
    print(f"tidegate: {text}", file=sys.stderr, flush=True)

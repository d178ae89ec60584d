"""How a process ends that was forked from another."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def leave_process(code: int) -> NoReturn:
    """End a forked process: what was printed is written, and nothing of the parent's is unwound."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(code)

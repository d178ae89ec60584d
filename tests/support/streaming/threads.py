"""Threads that tests before have left in this process, such as those of a Spark session, and that end at any time."""

from __future__ import annotations

import threading
from collections.abc import Callable


def new_threads() -> Callable[[], list[threading.Thread]]:
    """A function that returns the threads which have been started since now and are still running."""
    before = {*threading.enumerate()}
    return lambda: [thread for thread in threading.enumerate() if thread not in before]

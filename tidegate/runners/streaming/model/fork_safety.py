"""Whether this process may be forked: only one with a single thread, since locks of other threads would stay locked."""

from __future__ import annotations

import os
import sys
import threading


def can_fork() -> bool:
    """Whether this process has one thread, also by the system's count, which knows those of libraries."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False

"""Fork safety: only a process with a single thread may fork, because locks held by other threads would stay locked."""

from __future__ import annotations

import os
import sys
import threading


def can_fork() -> bool:
    """Return whether this process has one thread. The system's count includes threads started by libraries."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False

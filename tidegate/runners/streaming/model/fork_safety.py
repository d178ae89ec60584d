"""Fork safety: only a process with a single thread may fork, because locks held by other threads would stay locked."""

from __future__ import annotations

import os
import sys
import threading

from tidegate.sdk.portable.model import Pipeline, Read, Write


def allows_forks(pipeline: Pipeline) -> bool:
    """Return whether no connector of a pipeline says that its client makes forking unsafe."""
    return all(node.forks_safely for node in pipeline.nodes if isinstance(node, (Read, Write)))


def can_fork() -> bool:
    """Return whether this process has one thread. The system's count includes threads started by libraries."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False

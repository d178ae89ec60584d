"""The streaming runner: one exactly-once runtime for bounded and unbounded pipelines.

`StreamingRunner` is imported on first access, because the job's process and its workers do not need it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["StreamingRunner"]


def __getattr__(name: str) -> Any:
    if name == "StreamingRunner":
        from tidegate.runners.streaming.runner import StreamingRunner

        return StreamingRunner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

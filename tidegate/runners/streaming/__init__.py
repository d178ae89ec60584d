"""The native engine: one runtime for stream and batch, exactly once.

`StreamingRunner` is imported when it is asked for: the job's process and its workers have no use for it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["StreamingRunner"]


def __getattr__(name: str) -> Any:
    if name == "StreamingRunner":
        from tidegate.runners.streaming.runner import StreamingRunner

        return StreamingRunner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The direct runner: one process, one thread, deterministic. Users' unit tests run on it."""

from tidegate.runners.direct.runner import DirectRunner

__all__ = ["DirectRunner"]

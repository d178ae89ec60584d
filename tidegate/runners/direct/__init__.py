"""The direct runner: one process, one thread, deterministic. It is where users' unit tests run."""

from tidegate.runners.direct.runner import DirectRunner

__all__ = ["DirectRunner"]

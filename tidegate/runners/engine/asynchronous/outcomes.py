"""What calls report: their outcomes, a failed setup, and the metrics that they have updated."""

from __future__ import annotations

from types import TracebackType
from typing import Any, NamedTuple, TypeAlias

from tidegate.sdk.metrics import MetricCells


class Outcome:
    """What a call has returned, or the error that it raised."""

    __slots__ = ("_traceback", "error", "value")

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error
        self._traceback: TracebackType | None = None if error is None else error.__traceback__

    def result(self) -> Any:
        """The value; raises the error. Several elements may share an outcome."""
        if self.error is not None:
            raise self.error.with_traceback(self._traceback)
        return self.value


class Completed(NamedTuple):
    """A call has ended."""

    id: int
    outcome: Outcome


class SetupFailed(NamedTuple):
    """The author's `setup` failed, so there will be no calls."""

    error: BaseException


Item: TypeAlias = Completed | SetupFailed | MetricCells
"""What the runner of calls reports."""

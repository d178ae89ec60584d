"""Work that a worker would do in the background, done in the test's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tidegate.runners.streaming.storage.background import Steps, outcome

T = TypeVar("T")


class DoneWork(Generic[T]):
    """Work that is done; the result can be seen once `arrived`."""

    def __init__(self, steps: Steps[T], arrived: Callable[[], bool]) -> None:
        self._arrived = arrived
        self._result: T | None = None
        self._error: Exception | None = None
        try:
            self._result = outcome(steps)
        except Exception as error:
            self._error = error

    def poll(self) -> T | None:
        if not self._arrived():
            return None
        if self._error is not None:
            raise self._error
        return self._result

    def abandon(self) -> None:
        return


class InlineWork:
    """Does all work at once."""

    def __init__(self, arrival: Callable[[], Callable[[], bool]] = lambda: lambda: True) -> None:
        self._arrival = arrival

    def begin(self, steps: Steps[T]) -> DoneWork[T]:
        return DoneWork(steps, self._arrival())

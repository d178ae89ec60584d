"""Settling rounds of a test stream: an event is handled when every task has passed the barrier behind it."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.runners.streaming.model.topology import TaskId


class QuiescenceRounds:
    """The rounds under way: who asked, and which tasks have passed."""

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}
        self._passed: dict[int, set[TaskId]] = {}

    def begin(self, worker: int, round: int) -> None:
        """A worker's test stream has given an event."""
        self._asked[round] = worker

    def passed(self, round: int, task: TaskId) -> None:
        """A task is through with a round; it may be heard of before the round is asked for."""
        self._passed.setdefault(round, set()).add(task)

    def over(self, round: int, tasks: Iterable[TaskId]) -> int | None:
        """The worker that asked for a round that is over; None for one that is not, or was before."""
        if round not in self._asked or not self._passed.get(round, set()).issuperset(tasks):
            return None
        del self._passed[round]
        return self._asked.pop(round)

    def clear(self) -> None:
        """The attempt is over."""
        self._asked.clear()
        self._passed.clear()

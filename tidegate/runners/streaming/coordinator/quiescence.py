"""Quiescence rounds of a test stream: an event has been processed once every task has passed the barrier behind it.

>>> rounds, tasks = QuiescenceRounds(), [TaskId(0, 0), TaskId(1, 0)]
>>> rounds.begin(worker=0, round=1)
>>> rounds.passed(1, tasks[0]), rounds.complete(1, tasks)
(None, None)
>>> rounds.passed(1, tasks[1]), rounds.complete(1, tasks)
(None, 0)
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.runners.streaming.model.topology import TaskId


class QuiescenceRounds:
    """The rounds in progress: the worker that requested each, and the tasks that have passed its barrier."""

    def __init__(self) -> None:
        self._requesters: dict[int, int] = {}
        self._passed: dict[int, set[TaskId]] = {}

    def begin(self, worker: int, round: int) -> None:
        """A worker's test stream has emitted an event."""
        self._requesters[round] = worker

    def passed(self, round: int, task: TaskId) -> None:
        """A task has passed a round's barrier. Its message may arrive before the request for the round."""
        self._passed.setdefault(round, set()).add(task)

    def complete(self, round: int, tasks: Iterable[TaskId]) -> int | None:
        """The worker to answer if all tasks have passed a round; None if they have not, or were reported before."""
        if round not in self._requesters or not self._passed.get(round, set()).issuperset(tasks):
            return None
        del self._passed[round]
        return self._requesters.pop(round)

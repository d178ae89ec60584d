"""Quiescence rounds of a test stream: an event has been processed once every task has passed the barrier behind it.

Where elements go round in feedback loops, that is not enough: once the loops have come to rest, all tasks pass another
barrier, behind what has left the loops. These barriers have numbers between those of the events.

>>> rounds, tasks = QuiescenceRounds(), [TaskId(0, 0), TaskId(1, 0)]
>>> rounds.begin(0, RequestQuiescence(round=1))
>>> rounds.passed(1, tasks[0], moved=False); rounds.all_passed(tasks)
False
>>> rounds.passed(1, tasks[1], moved=False); rounds.all_passed(tasks)
True
>>> rounds.complete()
(0, 1)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.streaming.protocol.stream_items import Barrier
from tidegate.runners.streaming.protocol.worker_messages import RequestQuiescence


@dataclass(slots=True)
class _Round:
    """The round of an event, and the last barrier behind the event."""

    worker: int
    number: int
    barrier: Barrier
    last: bool


class QuiescenceRounds:
    """The round in progress: the worker that requested it, and the tasks that have passed its last barrier."""

    def __init__(self) -> None:
        self._round: _Round | None = None
        self._passed: dict[int, set[TaskId]] = {}
        self._moved = False

    def begin(self, worker: int, request: RequestQuiescence) -> None:
        """A worker's test stream has emitted an event."""
        barrier = Barrier(request.round, "quiescence", clock=request.clock)
        self._round = _Round(worker, request.round, barrier, request.last)

    def passed(self, number: int, task: TaskId, *, moved: bool) -> None:
        """A task has passed a barrier. Its message may arrive before the request for the round. `moved`: a loop whose
        head it has was not at rest."""
        self._passed.setdefault(number, set()).add(task)
        self._moved |= moved

    def all_passed(self, tasks: Iterable[TaskId]) -> bool:
        """Whether a round is in progress whose last barrier all tasks have passed."""
        return self._round is not None and self._passed.get(self._round.barrier.checkpoint, set()).issuperset(tasks)

    @property
    def at_rest(self) -> bool:
        """Whether no loop moved between the last two barriers behind the event."""
        assert self._round is not None
        return not self._moved and self._round.barrier.checkpoint > self._round.number

    @property
    def last(self) -> bool:
        """Whether no event follows."""
        assert self._round is not None
        return self._round.last

    def again(self, clock: int | None = None) -> Barrier:
        """Another barrier behind the event, which may set the clock forward."""
        assert self._round is not None
        before = self._round.barrier
        del self._passed[before.checkpoint]
        self._moved = clock is not None
        clock = before.clock if clock is None else clock
        self._round.barrier = Barrier(before.checkpoint + 1, "quiescence", clock=clock)
        return self._round.barrier

    def complete(self) -> tuple[int, int]:
        """End the round; returns the worker to answer, and the number of the round."""
        assert self._round is not None
        ended, self._round, self._moved = self._round, None, False
        del self._passed[ended.barrier.checkpoint]
        return ended.worker, ended.number

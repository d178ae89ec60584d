"""Assigns the splits of a source to its tasks: pure bookkeeping of assignments and positions.

Bounded splits are assigned a few at a time, so that fast tasks read more of them; unbounded ones are assigned at once,
because each has to be read all the time. While further splits may be discovered, a task that requests splits when there
are none waits for them. A split that no task's progress names has not been read. A
split that was being read is assigned to the same task again, because the restored state of that task may hold in-flight
elements of the split. If that task no longer exists, another task is assigned the split at once: only the task that has
a split reports its position, so no checkpoint may find it unassigned.

>>> splits = [AssignedSplit(id, b"") for id in "abc"]
>>> progress = [SplitProgress("Read", finished=("a",), current=(("b", 7),))]
>>> assigner = SplitAssigner(splits, 1, bounded=True, progress=progress)
>>> [(split.id, split.position) for split in assigner.assign(0).splits]
[('b', 7)]
>>> [(split.id, split.position) for split in assigner.assign(0).splits]
[('c', None)]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidegate.runners.checkpoint.matching import remaining_splits
from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState, SplitProgress


@dataclass(frozen=True, slots=True)
class SplitAssignment:
    """The splits that a task reads next. `more`: it may request further splits when it has read these. `backlog`:
    further ones may be of the backlog. `readers`: at most how many tasks read at a time; None: any number."""

    splits: tuple[AssignedSplit, ...]
    more: bool
    backlog: bool = False
    readers: int | None = None


class SplitAssigner:
    """The splits of one source step in one attempt, read by `parallelism` tasks. `progress`: where reading resumes.

    `readers`: the task that was reading each split, by the split's id, if the parallelism is the same as before.
    `enumerator`: how far the splits have been discovered; None if `splits` are all there are.
    """

    def __init__(
        self,
        splits: Sequence[AssignedSplit],
        parallelism: int,
        *,
        bounded: bool,
        progress: Iterable[SplitProgress] = (),
        readers: Mapping[str, int] | None = None,
        enumerator: EnumeratorState | None = None,
    ) -> None:
        self._parallelism = parallelism
        self._bounded = bounded
        self._enumerator = enumerator or _ALL_LISTED
        self._unassigned: deque[AssignedSplit] = deque()
        self._unassigned_backlog = 0
        self._assigned: dict[int, list[AssignedSplit]] = {}
        """Splits to be assigned to a task at its next request, the first of which is made for it."""
        self._waiting: dict[int, None] = {}
        """The tasks that have requested splits, in order."""
        self._reported: dict[int, bool] = {}
        """By task, the `backlog` of its last assignment."""
        progress = tuple(progress)
        started = {id for part in progress for id, _ in part.current}
        at_once = [split.id for split in splits if not self._ends(split) or split.id in started]
        self._next_owner = len(at_once)
        owners = {id: at % parallelism for at, id in enumerate(at_once)} | dict(readers or {})
        for split in remaining_splits(splits, progress):
            owner = owners.get(split.id)
            if owner is None:
                self._append(split)
            else:
                self._assigned.setdefault(owner, []).append(split)
        reading = len(self._assigned) + len(self._unassigned)
        self._readers = max(1, min(parallelism, reading)) if self._enumerator.ended else None

    @property
    def unassigned(self) -> int:
        """How many splits wait for a task."""
        return len(self._unassigned)

    def assign(self, index: int) -> SplitAssignment:
        """The splits for task `index`: at the beginning, and whenever it requests more."""
        splits = tuple(self._assigned.pop(index, ())) or self._next_splits()
        backlog = self._enumerator.backlog or self._unassigned_backlog > 0
        self._reported[index] = backlog
        return SplitAssignment(splits, bool(self._unassigned) or not self._enumerator.ended, backlog, self._readers)

    def request(self, index: int) -> SplitAssignment | None:
        """The splits for task `index`, which has none to read; None if it has to wait for some to be discovered."""
        before = self._reported.get(index)
        assignment = self.assign(index)
        if assignment.splits or not assignment.more or assignment.backlog != before:
            return assignment
        self._waiting[index] = None
        return None

    def discovered(
        self, splits: Iterable[AssignedSplit], enumerator: EnumeratorState
    ) -> Iterator[tuple[int, SplitAssignment]]:
        """Add new splits; yields assignments for the tasks that wait, and of unbounded splits."""
        self._enumerator = enumerator
        for split in splits:
            if self._ends(split):
                self._append(split)
            else:
                self._assigned.setdefault(self._next_owner % self._parallelism, []).append(split)
                self._next_owner += 1
        for index in sorted(self._assigned):
            self._waiting.pop(index, None)
            yield index, self.assign(index)
        waiting, self._waiting = self._waiting, {}
        for index in waiting:
            assignment = self.request(index)
            if assignment is not None:
                yield index, assignment

    def _next_splits(self) -> tuple[AssignedSplit, ...]:
        count = max(1, len(self._unassigned) // (4 * self._parallelism))
        splits = tuple(self._unassigned.popleft() for _ in range(min(count, len(self._unassigned))))
        self._unassigned_backlog -= sum(not split.late for split in splits)
        return splits

    def _append(self, split: AssignedSplit) -> None:
        self._unassigned.append(split)
        self._unassigned_backlog += not split.late

    def _ends(self, split: AssignedSplit) -> bool:
        return self._bounded if split.bounded is None else split.bounded


_ALL_LISTED: Final = EnumeratorState(backlog=False, ended=True)

"""Assigns the splits of a source to its tasks: pure bookkeeping of assignments and positions.

Bounded splits are assigned a few at a time, so that fast tasks read more of them; the splits of a live source are all
assigned at once, because each has to be read all the time. A split that no task's progress names has not been read. A
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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.runners.streaming.checkpoint.recovery import remaining_splits
from tidegate.runners.streaming.protocol.worker_messages import AssignedSplit, SplitProgress


@dataclass(frozen=True, slots=True)
class SplitAssignment:
    """The splits that a task reads next. `more`: it may request further splits when it has read these."""

    splits: tuple[AssignedSplit, ...]
    more: bool


class SplitAssigner:
    """The splits of one source step in one attempt, read by `parallelism` tasks. `progress`: where reading resumes.

    `readers`: the task that was reading each split, by the split's id, if the parallelism is the same as before.
    """

    def __init__(
        self,
        splits: Sequence[AssignedSplit],
        parallelism: int,
        *,
        bounded: bool,
        progress: Iterable[SplitProgress] = (),
        readers: Mapping[str, int] | None = None,
    ) -> None:
        self._parallelism = parallelism
        self._bounded = bounded
        self._unassigned: deque[AssignedSplit] = deque()
        self._assigned: dict[int, list[AssignedSplit]] = {}
        progress = tuple(progress)
        started = {id for part in progress for id, _ in part.current}
        at_once = [split.id for split in splits if not bounded or split.id in started]
        owners = {id: at % parallelism for at, id in enumerate(at_once)} | dict(readers or {})
        for split in remaining_splits(splits, progress):
            owner = owners.get(split.id)
            if owner is None:
                self._unassigned.append(split)
            else:
                self._assigned.setdefault(owner, []).append(split)

    def assign(self, index: int) -> SplitAssignment:
        """The splits for task `index`: at the beginning, and whenever it requests more."""
        if not self._bounded or index in self._assigned:
            return SplitAssignment(tuple(self._assigned.pop(index, ())), more=bool(self._unassigned))
        count = max(1, len(self._unassigned) // (4 * self._parallelism))
        splits = tuple(self._unassigned.popleft() for _ in range(min(count, len(self._unassigned))))
        return SplitAssignment(splits, more=bool(self._unassigned))

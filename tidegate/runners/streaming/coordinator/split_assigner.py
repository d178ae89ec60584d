"""The splits of a source and who reads them: pure bookkeeping of dealing out and of positions.

Bounded splits are dealt out a few at a time, so that who is fast gets more; a live source's are dealt out all at once,
since each has to be read all the time. A split that no task's progress names has not been read by anybody. One that was
being read goes back to its reader: of what is restored there, elements that it gave before may still be under way.
Where its reader is no more, another has it at once: how far it is read is told by whoever has it, and by nobody else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.runners.streaming.checkpoint.recovery import remaining_splits
from tidegate.runners.streaming.protocol.worker_messages import AssignedSplit, SplitProgress


@dataclass(frozen=True, slots=True)
class SplitAssignment:
    """What a task is to read now; `more`: it may ask again when it is through."""

    splits: tuple[AssignedSplit, ...]
    more: bool


class SplitAssigner:
    """The splits of one source step in one attempt, to be read by `parallelism` tasks from where `progress` says.

    `readers`: the task whose each split was, by the split's id, where there are as many tasks as there were then.
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
        self._left: deque[AssignedSplit] = deque()
        self._shares: dict[int, list[AssignedSplit]] = {}
        progress = tuple(progress)
        begun = {id for part in progress for id, _ in part.current}
        at_once = [split.id for split in splits if not bounded or split.id in begun]
        owners = {id: at % parallelism for at, id in enumerate(at_once)} | dict(readers or {})
        for split in remaining_splits(splits, progress):
            owner = owners.get(split.id)
            if owner is None:
                self._left.append(split)
            else:
                self._shares.setdefault(owner, []).append(split)

    def assign(self, index: int) -> SplitAssignment:
        """What task `index` gets at the beginning, and each time it asks."""
        if not self._bounded or index in self._shares:
            return SplitAssignment(tuple(self._shares.pop(index, ())), more=bool(self._left))
        count = max(1, len(self._left) // (4 * self._parallelism))
        dealt = tuple(self._left.popleft() for _ in range(min(count, len(self._left))))
        return SplitAssignment(dealt, more=bool(self._left))

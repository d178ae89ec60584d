"""The parts of a checkpoint: splits and how far they are read, how far they are discovered, and files of state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.runners.checkpoint.task_ids import TaskId


@dataclass(frozen=True, slots=True)
class AssignedSplit:
    """A split assigned to a task. `payload`: the pickled `Split`; `position`: where to resume (None: at its start).

    `bounded`: whether it has an end (None: as its source). `late`: it was discovered after the backlog.
    """

    id: str
    payload: bytes
    size: int | None = None
    position: Any = None
    bounded: bool | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class EnumeratorState:
    """How far a source's splits have been discovered. `state`: the enumerator's own state, a value that survives JSON,
    or a PackedState.

    `backlog`: the enumerator has not returned all splits that were there at the start. `ended`: no split will follow.
    """

    state: Any = None
    backlog: bool = True
    ended: bool = False


@dataclass(frozen=True, slots=True)
class StateHandle:
    """The files of a task's state in one checkpoint, relative to the checkpoint directory.

    `files`: name, size in bytes and CRC-32 of each. The first one holds the task's own state; the others hold the
    operators' state, and may belong to earlier checkpoints.
    """

    files: tuple[tuple[str, int, int], ...]

    @property
    def size(self) -> int:
        """Total bytes."""
        return sum(size for _, size, _ in self.files)


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """How far a task had read a source when it took a snapshot."""

    step: str
    finished: tuple[str, ...] = ()
    current: tuple[tuple[str, Any], ...] = ()
    """The ids of the splits being read, each with the position at which reading resumes."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state that a task stored in the checkpoint to restore. `parallelism`: the number of tasks its stage had."""

    task: TaskId
    parallelism: int
    handle: StateHandle

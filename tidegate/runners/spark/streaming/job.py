"""The job: everything that the tasks of an unbounded pipeline need to know, sent to them as one pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState, StateHandle, StoredState
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.plan import Plan
from tidegate.runners.spark.streaming.levels import Levels
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.options.defaults import DEFAULTS
from tidegate.sdk.secrets.registry import SecretValue

MAX_PARALLELISM = 128
"""The number of key groups of a new job, unless the author gives another."""


@dataclass(frozen=True, slots=True)
class SourceStart:
    """Where a source goes on: the splits that are not finished, each with its position, how many are finished, and how
    far the splits are discovered (None: all were listed)."""

    splits: tuple[AssignedSplit, ...]
    finished: int
    enumerator: EnumeratorState | None


@dataclass(frozen=True, slots=True)
class Restored:
    """The savepoint at `url` that the first batch starts from.

    `parts`: the stored states that a task reads for its steps of a stage, by level, stage and index of the task.
    `sources`: by step; one that is missing is new. `ended`: the stages whose input had ended, without stored state.
    """

    url: str
    parts: Mapping[tuple[int, int, int], tuple[StoredState, ...]]
    sources: Mapping[int, SourceStart]
    ended: frozenset[int]


@dataclass(frozen=True, slots=True)
class SavepointTarget:
    """Where the tasks of a query write all their state, instead of running: a folder within the storage at `url`."""

    url: str
    folder: str


@dataclass(frozen=True, slots=True)
class SavedTask:
    """What a task has written to a savepoint: its files, by stage, and which stages had ended; and the splits that it
    was reading, with how many it had finished, or how far it has discovered splits, by step."""

    handles: Mapping[int, StateHandle]
    ended: frozenset[int]
    splits: Mapping[int, tuple[tuple[AssignedSplit, ...], int]]
    enumerators: Mapping[int, EnumeratorState]


@dataclass(frozen=True, slots=True)
class StreamJob:
    """A plan, divided into levels of `tasks` tasks each.

    `run`: the name of the run, under which sinks write. `splits`: those of each source step, pickled; a step that
    has none here discovers them while it is read. `batch_elements`:
    how many elements a task reads from a source in a batch, at most. `memory_budget` (bytes) is per task; None: an
    equal part of the worker's memory. `secrets` has the values that the author's code refers to by name. `keys`: the
    Spark key of each task. `query`: the name of one start of the Spark query. `drains`: sources end
    here, and all windows fire. `max_parallelism`: the number of key groups, which are divided among the tasks.
    `restored`: what a new job starts from, if anything. `savepoint`: tasks write their state there, and do no more.
    """

    plan: Plan
    levels: Levels
    tasks: int
    run: str
    splits: Mapping[int, tuple[bytes, ...]]
    batch_elements: int
    memory_budget: int | None = None
    temp_dir: Path | None = None
    runtime_types: bool = False
    max_end_timers: int = DEFAULTS.max_end_timers
    inline: Literal["on", "off", "always"] = DEFAULTS.inline
    secrets: Mapping[str, SecretValue] = field(default_factory=dict, repr=False)
    keys: tuple[int, ...] = ()
    query: str = ""
    drains: bool = False
    max_parallelism: int = MAX_PARALLELISM
    restored: Restored | None = None
    savepoint: SavepointTarget | None = None


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a task reports to the driver at the end of a batch: whether it has no more to do, the prepared output of
    each sink (by its step's number), its metrics since the last batch, the checksums of the rows that it has sent and
    received, when (µs) it has something to do again though it receives nothing (None: never), what it has written to a
    savepoint, how long (s) it has worked on the batch, and the status of all its inputs and sources together."""

    level: int
    index: int
    ended: bool
    committables: Mapping[int, tuple[Committable, ...]]
    metrics: MetricCells
    sent: int
    received: int
    due: int | None
    saved: SavedTask | None = None
    busy: float = 0.0
    status: CollectionStatus = field(default_factory=CollectionStatus)

"""Reading in a task: the sources' own splits, positions and watermarks, some elements a batch; finding new splits."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState
from tidegate.runners.engine.errors.attribution import close_all, located
from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.operator_graph import Graph
from tidegate.runners.engine.sources.discovery import Look, SplitDiscovery, split_discovery
from tidegate.runners.engine.sources.source_reader import SourceProgress, SourceReader
from tidegate.runners.engine.sources.source_step import source_step
from tidegate.runners.engine.sources.split_reader import WATERMARKED
from tidegate.runners.engine.time.clock import Clock
from tidegate.runners.plan import Step
from tidegate.runners.spark.streaming.job import SourceStart, StreamJob
from tidegate.runners.spark.streaming.rows import SPLITS, OutgoingRows
from tidegate.sdk import moved
from tidegate.sdk.data.block import BLOCK_SIZE
from tidegate.sdk.errors import UnsupportedError
from tidegate.sdk.time import SECOND
from tidegate.sdk.user_code.redefined_classes import dumps


@dataclass(frozen=True, slots=True)
class NewSplits:
    """Splits for a task, pickled, each with whether it was discovered after the backlog. `more`: others may follow;
    `backlog`: some of these may be of the backlog."""

    splits: tuple[tuple[bytes, bool], ...]
    more: bool
    backlog: bool


class Sources(Protocol):
    """The sources of a task. `progress` is part of the task's state; `resume` goes on from it."""

    @property
    def ended(self) -> bool: ...
    @property
    def due(self) -> int | None:
        """When (µs) to read again; None: never, or not before splits are assigned."""

    def assign(self, step: int, splits: NewSplits) -> None:
        """Add splits that another task has discovered."""

    def read(self, graph: Graph, context: Context, rows: OutgoingRows) -> None:
        """Push the elements of one batch into the graph, and then the status of the sources. New splits become rows."""

    def start(self) -> None:
        """Begin to read, unless `resume` is called."""

    def progress(self) -> Any: ...
    def resume(self, progress: Any) -> None: ...
    def splits(self) -> Mapping[int, tuple[tuple[AssignedSplit, ...], int]]:
        """By step, for a savepoint: the splits that are not finished, with their positions, and how many are."""

    def enumerators(self) -> Mapping[int, EnumeratorState]:
        """By step, for a savepoint: how far splits have been discovered here."""

    def close(self) -> None: ...


class SplitSources:
    """The sources of one task, each with the splits whose number the task has, counted in circles.

    The watermark of a source follows the last of its elements in a batch. So there is one for each producer and batch,
    and where the blocks of a batch end makes no difference.
    """

    def __init__(self, job: StreamJob, steps: Iterable[Step], index: int, clock: Clock) -> None:
        self._job = job
        self._clock = clock
        self._index = index
        self._steps = {step.id: step for step in steps}
        self._readers = {
            id: SourceReader(
                source_step(step.head, inline=job.inline != "off"), clock, tasks=job.levels.tasks(step, job.tasks)
            )
            for id, step in self._steps.items()
        }
        self._watermarked: set[int] = set()

    def start(self) -> None:
        """Begin to read, from a savepoint if there is one."""
        for id, step in self._steps.items():
            tasks = self._job.levels.tasks(step, self._job.tasks)
            if (start := start_of(self._job, step)) is not None:
                self._go_on(id, start, tasks)
                continue
            if id not in self._job.splits:
                self._readers[id].assign((), more=True, backlog=True)
                continue
            splits = [(moved.loads(split), None) for split in self._job.splits[id][self._index :: tasks]]
            self._readers[id].assign(splits, more=False)

    def _go_on(self, id: int, start: SourceStart, tasks: int) -> None:
        reader, splits = self._readers[id], start.splits[self._index :: tasks]
        discovery = start.enumerator or _ALL_LISTED
        reader.assign(
            [(moved.loads(split.payload), split.position) for split in splits],
            more=not discovery.ended,
            backlog=discovery.backlog,
            late=frozenset(split.id for split in splits if split.late),
        )
        if self._index == 0:
            reader.add_finished(start.finished)

    def assign(self, step: int, splits: NewSplits) -> None:
        loaded = [(moved.loads(data), late) for data, late in splits.splits]
        self._readers[step].assign(
            [(split, None) for split, _ in loaded],
            more=splits.more,
            backlog=splits.backlog,
            late=frozenset(split.id for split, late in loaded if late),
        )

    @property
    def ended(self) -> bool:
        return all(reader.status.ended for reader in self._readers.values())

    @property
    def due(self) -> int | None:
        return min((at for reader in self._readers.values() if (at := reader.next_poll) is not None), default=None)

    def read(self, graph: Graph, context: Context, rows: OutgoingRows) -> None:
        for id, reader in self._readers.items():
            step = self._steps[id]
            left = self._job.batch_elements
            while left > 0 and (due := reader.next_poll) is not None and due <= self._clock.monotonic():
                block = reader.poll(min(BLOCK_SIZE, left))
                if reader.is_async:
                    raise located(UnsupportedError(_ASYNC), step.label, step.head.where)
                if block is not None:
                    left -= len(block)
                    context.count(step.label, "elements_out", len(block))
                    graph.push(step.outputs[0], block)
            if reader.is_watermarked and id not in self._watermarked:
                self._watermarked.add(id)
                context.count(step.label, WATERMARKED)
            reader.forget_finished(len(reader.finished))
            graph.update(step.outputs[0], reader.status)

    def progress(self) -> Mapping[int, SourceProgress]:
        return {id: reader.progress() for id, reader in self._readers.items()}

    def splits(self) -> Mapping[int, tuple[tuple[AssignedSplit, ...], int]]:
        found = {}
        for id, progress in self.progress().items():
            splits = [(split, late, each.position) for split, late, each in progress.open_splits]
            assigned = (
                AssignedSplit(split.id, pickle.dumps(split, 5), split.size, position, split.bounded, late)
                for split, late, position in (*splits, *progress.unopened)
            )
            found[id] = tuple(assigned), progress.finished
        return found

    def enumerators(self) -> Mapping[int, EnumeratorState]:
        return {}

    def resume(self, progress: Mapping[int, SourceProgress]) -> None:
        for id, each in progress.items():
            self._readers[id].continue_from(each)
            if self._job.drains:
                self._readers[id].stop()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


@dataclass(frozen=True, slots=True)
class _Known:
    """How far the splits of a source have been discovered: the enumerator's state, whether there may be more of the
    backlog, whether no split will follow, how many there are, and when (µs) to look again."""

    state: Any = None
    backlog: bool = True
    ended: bool = False
    count: int = 0
    next_look: int = 0


class Discovery:
    """Looks for the splits of sources in each batch, and sends them to the tasks in turn. It runs in a single task."""

    def __init__(self, job: StreamJob, clock: Clock) -> None:
        self._job = job
        self._clock = clock
        self._known = {step.id: _Known() for step in job.plan.steps if step.is_source and step.id not in job.splits}
        self._discoveries: dict[int, SplitDiscovery] = {}

    def start(self) -> None:
        """The first batch looks, from where a savepoint left off if there is one."""
        for id in self._known:
            start = start_of(self._job, self._job.plan.steps[id])
            if start is not None:
                enumerator, count = start.enumerator or _ALL_LISTED, start.finished + len(start.splits)
                self._known[id] = _Known(enumerator.state, enumerator.backlog, enumerator.ended, count)

    def assign(self, step: int, splits: NewSplits) -> None:
        raise AssertionError("new splits go to the tasks that read")

    @property
    def ended(self) -> bool:
        return self._job.drains or all(known.ended for known in self._known.values())

    @property
    def due(self) -> int | None:
        return min((known.next_look for known in self._known.values() if not known.ended), default=None)

    def read(self, graph: Graph, context: Context, rows: OutgoingRows) -> None:
        for id, known in self._known.items():
            while not known.ended and known.next_look <= self._clock.monotonic():
                look = self._opened(id).look()
                self._send(id, known, look, rows)
                known = self._known[id] = _Known(
                    look.state,
                    known.backlog and look.full,
                    look.end,
                    known.count + len(look.splits),
                    self._clock.monotonic() + int(look.wait * SECOND),
                )
                if not look.full:
                    break

    def progress(self) -> Mapping[int, _Known]:
        return dict(self._known)

    def resume(self, progress: Mapping[int, _Known]) -> None:
        self._known = dict(progress)

    def splits(self) -> Mapping[int, tuple[tuple[AssignedSplit, ...], int]]:
        return {}

    def enumerators(self) -> Mapping[int, EnumeratorState]:
        return {id: EnumeratorState(each.state, each.backlog, each.ended) for id, each in self._known.items()}

    def close(self) -> None:
        close_all(discovery.close for discovery in self._discoveries.values())

    def _opened(self, id: int) -> SplitDiscovery:
        if id not in self._discoveries:
            discovery = split_discovery(source_step(self._job.plan.steps[id].head), self._known[id].state)
            assert discovery is not None
            self._discoveries[id] = discovery
        return self._discoveries[id]

    def _send(self, id: int, known: _Known, look: Look, rows: OutgoingRows) -> None:
        backlog = known.backlog and look.full
        tasks = self._job.levels.tasks(self._job.plan.steps[id], self._job.tasks)
        if not look.splits and (backlog, look.end) == (known.backlog, known.ended):
            return
        for index in range(tasks):
            mine = look.splits[(index - known.count) % tasks :: tasks]
            splits = tuple((pickle.dumps(split, 5), not known.backlog) for split in mine)
            rows.send(index, SPLITS, id, dumps(NewSplits(splits, not look.end, backlog)))


def start_of(job: StreamJob, step: Step) -> SourceStart | None:
    """Where a source goes on if the job starts from a savepoint that knows it."""
    return None if job.restored is None else job.restored.sources.get(step.id)


def make_sources(job: StreamJob, level: int, index: int, steps: list[Step], clock: Clock) -> Sources:
    """The sources of a task of a level; or what discovers splits, in the first task of a level before them."""
    if level < job.levels.sources and index == 0:
        return Discovery(job, clock)
    return SplitSources(job, steps, index, clock)


_ALL_LISTED: Final = EnumeratorState(backlog=False, ended=True)
_ASYNC = (
    "the spark runner does not run sources with an AsyncReader: a task reads only while a batch runs, and such a "
    "reader reads between batches, too. Use --runner streaming, or write a Reader"
)

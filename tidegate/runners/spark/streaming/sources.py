"""Reading in a task of the first level: the sources' own splits, positions and watermarks, some elements a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tidegate.runners.engine.errors.attribution import located
from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.operator_graph import Graph
from tidegate.runners.engine.sources.source_reader import SourceProgress, SourceReader
from tidegate.runners.engine.sources.source_step import source_step
from tidegate.runners.engine.sources.split_reader import WATERMARKED
from tidegate.runners.engine.time.clock import Clock
from tidegate.runners.plan import Step
from tidegate.runners.spark.streaming.job import StreamJob
from tidegate.sdk import moved
from tidegate.sdk.data.block import BLOCK_SIZE
from tidegate.sdk.errors import UnsupportedError


class Sources(Protocol):
    """The sources of a task. `progress` is part of the task's state; `resume` goes on from it."""

    @property
    def ended(self) -> bool: ...
    def read(self, graph: Graph, context: Context) -> None:
        """Push the elements of one batch into the graph, and then the status of the sources."""

    def start(self) -> None:
        """Begin to read, unless `resume` is called."""

    def progress(self) -> Any: ...
    def resume(self, progress: Any) -> None: ...
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
            id: SourceReader(source_step(step.head), clock, tasks=job.levels.tasks(step, job.tasks))
            for id, step in self._steps.items()
        }
        self._watermarked: set[int] = set()

    def start(self) -> None:
        """Begin to read."""
        for id, step in self._steps.items():
            tasks = self._job.levels.tasks(step, self._job.tasks)
            splits = [(moved.loads(split), None) for split in self._job.splits[id][self._index :: tasks]]
            self._readers[id].assign(splits, more=False)

    @property
    def ended(self) -> bool:
        return all(reader.status.ended for reader in self._readers.values())

    def read(self, graph: Graph, context: Context) -> None:
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
            graph.update(step.outputs[0], reader.status)

    def progress(self) -> Mapping[int, SourceProgress]:
        return {id: reader.progress() for id, reader in self._readers.items()}

    def resume(self, progress: Mapping[int, SourceProgress]) -> None:
        for id, each in progress.items():
            self._readers[id].continue_from(each)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


_ASYNC = (
    "the spark runner does not run sources with an AsyncReader: a task reads only while a batch runs, and such a "
    "reader reads between batches, too. Use --runner streaming, or write a Reader"
)

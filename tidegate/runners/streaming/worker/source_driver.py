"""The sources of a task: readers of splits, or the script of a test stream, and what they push into the operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidegate.runners.engine.errors.attribution import quietly
from tidegate.runners.engine.operator_graph import Graph
from tidegate.runners.engine.sources.split_reader import WATERMARKED
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.streaming.protocol.stream_items import Barrier
from tidegate.runners.streaming.protocol.worker_messages import (
    AssignSplits,
    RequestQuiescence,
    RequestSplit,
    SplitProgress,
)
from tidegate.runners.streaming.worker.source_reader import SourceReader
from tidegate.runners.streaming.worker.task_environment import TaskEnvironment
from tidegate.runners.streaming.worker.test_stream import StreamScript
from tidegate.runners.streaming.worker.watermark_alignment import WatermarkAlignment
from tidegate.sdk.portable.model import TestStream


class SourceDriver:
    """Polls each source when it is due. `paused`: the job stops with a savepoint, and sources read nothing more.

    `trigger` starts the settling barrier that follows each event of a script.
    """

    def __init__(
        self, env: TaskEnvironment, trigger: Callable[[Barrier], None], watermark_alignment: WatermarkAlignment | None
    ) -> None:
        self._env = env
        self._trigger = trigger
        self.paused = False
        self._readers: dict[int, SourceReader] = {}
        self._script: StreamScript | None = None
        self._watermarked: set[str] = set()
        """The sources, by label, that are known to advance their watermark by themselves."""
        for step in env.plan.stage_steps(env.task.stage):
            if isinstance(step.head, TestStream):
                self._script, self._script_label = StreamScript(step.head), step.label
            elif step.is_source:
                self._readers[step.id] = SourceReader(
                    step,
                    env.services.clock,
                    env.settings.block_size,
                    timely=env.timely,
                    watermark_alignment=watermark_alignment,
                )

    # -- from the coordinator

    def assign(self, message: AssignSplits) -> None:
        """Splits to read."""
        self._readers[message.step].assign(message.splits, more=message.more)

    def stop(self, *, drain: bool) -> None:
        """Read nothing more. `drain`: the collections end here, and watermarks advance to the end of time."""
        self.paused = not drain
        if drain:
            for reader in self._readers.values():
                reader.stop()
            if self._script is not None:
                self._script.stop()

    def settled(self, settling: int) -> None:
        """All tasks have handled the event of the script that has this number."""
        if self._script is not None:
            self._script.settled(settling)

    # -- work

    def next(self, graph: Graph) -> Iterator[None] | None:
        """The next thing to do, pushing into the graph; None if no source is due."""
        if not self.paused:
            for reader in self._readers.values():
                due = reader.next_poll
                if due is not None and due <= self._env.monotonic():
                    return self._poll(reader, graph)
        if self._script is not None and self._script.ready:
            return self._play(self._script, graph)
        return None

    def poll_times(self) -> list[int]:
        """When (µs of the monotonic clock) the sources are due."""
        if self.paused:
            return []
        return [due for reader in self._readers.values() if (due := reader.next_poll) is not None]

    @property
    def ended(self) -> bool:
        """Whether every source has given all it has."""
        return all(reader.mark.ended for reader in self._readers.values()) and (
            self._script is None or self._script.ended
        )

    @property
    def marks(self) -> list[CollectionStatus]:
        """The mark of each source."""
        return [reader.mark for reader in self._readers.values()]

    def progress(self) -> tuple[SplitProgress, ...]:
        """How far each source has been read, for a checkpoint."""
        return tuple(reader.progress() for reader in self._readers.values())

    def close(self) -> None:
        """Release the readers."""
        for reader in self._readers.values():
            reader.close()

    def abandon(self) -> None:
        """Release the readers after a failure, whatever that raises."""
        for reader in self._readers.values():
            quietly(reader.close)

    def _poll(self, reader: SourceReader, graph: Graph) -> Iterator[None]:
        env, label = self._env, reader.step.label
        block = reader.poll()
        if reader.take_request():
            env.services.tell(RequestSplit(env.task, reader.step.id))
        if block is not None:
            if env.ticks:
                yield from graph.ticking(env.services.clock.now())
            env.context.count(label, "elements_out", len(block))
            yield from graph.pushing(reader.collection, block)
        if reader.is_watermarked and label not in self._watermarked:
            self._watermarked.add(label)
            env.context.count(label, WATERMARKED)
        if env.timely or reader.mark.ended:
            yield from graph.updating(reader.collection, reader.mark)

    def _play(self, script: StreamScript, graph: Graph) -> Iterator[None]:
        """One event of a test stream. The next one waits until all tasks have handled this one."""
        event = script.next()
        if event.block is not None:
            self._env.context.count(self._script_label, "elements_out", len(event.block))
            yield from graph.pushing(event.collection, event.block)
        if event.mark is not None:
            yield from graph.updating(event.collection, event.mark)
        self._trigger(event.settling)
        self._env.services.tell(RequestQuiescence(event.settling.checkpoint, event.settling.clock))

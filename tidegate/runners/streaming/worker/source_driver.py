"""The sources of a task: readers of splits or the script of a test stream, whose elements go into the operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tidegate.runners.checkpoint.parts import SplitProgress
from tidegate.runners.engine.errors.attribution import quietly
from tidegate.runners.engine.operator_graph import Graph
from tidegate.runners.engine.sources.source_reader import SourceReader
from tidegate.runners.engine.sources.source_step import source_step
from tidegate.runners.engine.sources.split_reader import WATERMARKED
from tidegate.runners.engine.sources.test_stream import ScriptEvent, StreamScript
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.plan import Step
from tidegate.runners.streaming.protocol.stream_items import Barrier
from tidegate.runners.streaming.protocol.worker_messages import AssignSplits, RequestQuiescence, RequestSplit
from tidegate.runners.streaming.worker.task_environment import TaskEnvironment
from tidegate.runners.streaming.worker.watermark_alignment import WatermarkAlignment
from tidegate.sdk import moved
from tidegate.sdk.portable.model import TestStream


@dataclass(slots=True)
class _Source:
    step: Step
    reader: SourceReader
    is_watermarked: bool = False
    """True once the task has counted the reader in `WATERMARKED`."""


@dataclass(slots=True)
class _ScriptPlayer:
    """Emits the events of a test stream one at a time: the next one only when all tasks have handled the last.

    Processing time starts at 0 and advances only by these events.
    """

    step: Step
    script: StreamScript
    stride: int = 1
    """The difference between the numbers of two rounds."""
    _clock: int = 0
    _round: int = 0
    _waiting: bool = False

    @property
    def ready(self) -> bool:
        """Whether the next event may be emitted."""
        return not (self._waiting or self.script.ended)

    @property
    def ended(self) -> bool:
        """Whether all events have been emitted, and all tasks have handled them."""
        return self.script.ended and not self._waiting

    def next(self) -> tuple[ScriptEvent | None, Barrier]:
        """The next event, and the barrier that follows it. The first barrier has no event before it: it sets processing
        time in the operators."""
        event = None if self._round == 0 else self.script.next()
        self._waiting = True
        self._round += self.stride
        if event is not None:
            self._clock += event.elapsed
        return event, Barrier(self._round, "quiescence", clock=self._clock)

    def quiescence_reached(self, round: int) -> None:
        """All tasks have handled the event of this round."""
        if round == self._round:
            self._waiting = False


class SourceDriver:
    """Polls each source of a task at its next poll time, and pushes the blocks into the operators.

    `paused`: the job stops with a savepoint, and sources read nothing more. `trigger` starts the quiescence barrier
    that follows each event of a test stream.
    """

    def __init__(
        self, env: TaskEnvironment, trigger: Callable[[Barrier], None], watermark_alignment: WatermarkAlignment | None
    ) -> None:
        self._env = env
        self._trigger = trigger
        self.paused = False
        self.backpressured = False
        """Whether nothing is read for now, because too many commits are outstanding."""
        self._sources: dict[int, _Source] = {}
        self._recorded: tuple[int, dict[int, int]] = 0, {}
        """The last checkpoint, and how many splits of each source were finished in it."""
        self._script: _ScriptPlayer | None = None
        for step in env.plan.stage_steps(env.task.stage):
            if isinstance(step.head, TestStream):
                # Where there are loops, further barriers follow each event.
                self._script = _ScriptPlayer(step, StreamScript(step.head), _STRIDE if env.job.loops else 1)
            elif step.is_source:
                self._sources[step.id] = _Source(step, _reader(step, env, watermark_alignment))

    # -- from the coordinator

    def assign(self, message: AssignSplits) -> None:
        """Add splits to read."""
        splits = [(moved.loads(split.payload), split.position) for split in message.splits]
        late = frozenset(split.id for split in message.splits if split.late)
        self._sources[message.step].reader.assign(
            splits, more=message.more, backlog=message.backlog, late=late, tasks=message.readers
        )

    def stop(self, *, drain: bool) -> None:
        """Read nothing more. `drain`: the collections end here, and watermarks advance to the end of time."""
        self.paused = not drain
        if drain:
            for source in self._sources.values():
                source.reader.stop()
            if self._script is not None:
                self._script.script.stop()

    def pause(self, *, paused: bool) -> None:
        """Read nothing for now, or go on. A test stream goes on in any case."""
        self.backpressured = paused

    def quiescence_reached(self, round: int) -> None:
        """All tasks have handled the event of the test stream that began this round."""
        if self._script is not None:
            self._script.quiescence_reached(round)

    # -- work

    def next(self, graph: Graph) -> Iterator[None] | None:
        """The next poll or event, pushing into the graph as it is iterated; None if no source has anything to do."""
        if not (self.paused or self.backpressured):
            for source in self._sources.values():
                next_poll = source.reader.next_poll
                if next_poll is not None and next_poll <= self._env.monotonic():
                    return self._poll(source, graph)
        if self._script is not None and self._script.ready:
            return self._play(self._script, graph)
        return None

    def poll_times(self) -> list[int]:
        """When (µs of the monotonic clock) to poll each source next."""
        if self.paused or self.backpressured:
            return []
        return [at for source in self._sources.values() if (at := source.reader.next_poll) is not None]

    @property
    def ended(self) -> bool:
        """True once every source has ended."""
        return all(status.ended for status in self.statuses) and (self._script is None or self._script.ended)

    @property
    def statuses(self) -> list[CollectionStatus]:
        """The status of each source."""
        return [source.reader.status for source in self._sources.values()]

    def progress(self, checkpoint: int) -> tuple[SplitProgress, ...]:
        """How far the splits of each source have been read, for a checkpoint."""
        self._recorded = checkpoint, {id: len(source.reader.finished) for id, source in self._sources.items()}
        return tuple(
            SplitProgress(source.step.label, tuple(source.reader.finished), tuple(source.reader.positions()))
            for source in self._sources.values()
        )

    def completed(self, checkpoint: int) -> None:
        """A checkpoint is complete: forget the splits that are finished in it."""
        recorded, counts = self._recorded
        if recorded == checkpoint:
            for id, count in counts.items():
                self._sources[id].reader.forget_finished(count)
            self._recorded = 0, {}

    def close(self) -> None:
        """Release the readers."""
        for source in self._sources.values():
            source.reader.close()

    def abandon(self) -> None:
        """Release the readers after a failure; errors of that are ignored."""
        for source in self._sources.values():
            quietly(source.reader.close)

    def _poll(self, source: _Source, graph: Graph) -> Iterator[None]:
        env, step, reader = self._env, source.step, source.reader
        block = reader.poll(env.settings.block_size)
        if reader.take_request():
            env.services.report(RequestSplit(env.task, step.id))
        if block is not None:
            if env.ticks:
                yield from graph.ticking(env.services.clock.now())
            env.context.count(step.label, "elements_out", len(block))
            yield from graph.pushing(step.outputs[0], block)
        if reader.is_watermarked and not source.is_watermarked:
            source.is_watermarked = True
            env.context.count(step.label, WATERMARKED)
        if env.timely or reader.status.ended:
            yield from graph.updating(step.outputs[0], reader.status)

    def _play(self, script: _ScriptPlayer, graph: Graph) -> Iterator[None]:
        """Emit one event of a test stream, followed by a quiescence barrier."""
        event, barrier = script.next()
        if event is not None and event.block is not None:
            self._env.context.count(script.step.label, "elements_out", len(event.block))
            yield from graph.pushing(event.collection, event.block)
        if event is not None and event.status is not None:
            yield from graph.updating(event.collection, event.status)
        self._trigger(barrier)
        last = script.script.ended
        self._env.services.report(RequestQuiescence(barrier.checkpoint, barrier.clock, last))


_STRIDE: Final = 1 << 32


def _reader(step: Step, env: TaskEnvironment, alignment: WatermarkAlignment | None) -> SourceReader:
    source = source_step(step.head, inline=env.context.inline != "off")
    aligned = None if source.bounded else alignment
    reader = SourceReader(
        source,
        env.services.clock,
        timely=env.timely,
        max_watermark=None if aligned is None else lambda: aligned.max_watermark,
        tasks=env.parallelism,
        wake=env.services.wake,
    )
    if aligned is not None:
        aligned.add_source(lambda: reader.active_watermarks)
    return reader

"""One task: the steps of a stage at work on one share of the data, between its channels.

A task does one bounded thing at a time: it takes an item from a channel, polls a source, lets time pass, or takes its
part of a checkpoint. What it does hands back control after each block that leaves; while a channel is full, it stays
suspended there, and takes nothing more in: that is all of backpressure. A snapshot is taken only between these things.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

from tidegate.runners.engine.errors.attribution import located, quietly, rethrow
from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.operator_graph import Graph, Outlet
from tidegate.runners.engine.sinks.writer import Writing
from tidegate.runners.engine.sources.split_reader import WATERMARKED
from tidegate.runners.engine.time.watermarks import Least, Mark
from tidegate.runners.plan import Edge, Step
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.topology import ChannelId, TaskId
from tidegate.runners.streaming.network.blocking_exchange import RunReader, RunTarget, RunWriter
from tidegate.runners.streaming.network.channels import InputChannel, OutputChannel
from tidegate.runners.streaming.network.codec import copied
from tidegate.runners.streaming.network.partitioner import Router, Target
from tidegate.runners.streaming.protocol.stream_items import Barrier
from tidegate.runners.streaming.protocol.worker_messages import (
    Acknowledge,
    AckStats,
    AssignSplits,
    Decline,
    Passed,
    Prepared,
    RequestSettling,
    RequestSplit,
    StateHandle,
    TaskEnded,
    TaskStatus,
)
from tidegate.runners.streaming.state.backend import Capture, StateBackend
from tidegate.runners.streaming.state.files import UnpicklableState
from tidegate.runners.streaming.state.restore import Restoring
from tidegate.runners.streaming.state.task_state import TaskState
from tidegate.runners.streaming.state.writers import FailedCapture
from tidegate.runners.streaming.worker.barrier_handler import Barriers
from tidegate.runners.streaming.worker.environment import World
from tidegate.runners.streaming.worker.source_reader import Reading
from tidegate.runners.streaming.worker.task_snapshot import Share, blamed
from tidegate.runners.streaming.worker.test_stream import Script
from tidegate.runners.streaming.worker.time_accounting import Spent
from tidegate.runners.streaming.worker.watermark_alignment import Pace
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import PicklingError, unwritten
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey, collecting
from tidegate.sdk.portable.model import TestStream, Write
from tidegate.sdk.time import SECOND

Input: TypeAlias = InputChannel | RunReader


class Task:
    """Built from its place in the job; `open` before the first `step`."""

    def __init__(
        self,
        job: Job,
        id: TaskId,
        attempt: int,
        world: World,
        context: Context,
        *,
        scripted: bool,
        pace: Pace | None = None,
    ) -> None:
        self.job = job
        self.id = id
        self.world = world
        self._ticks = world.clock.monotonic
        self._backend: StateBackend | None = None
        """None where no checkpoints are taken."""
        if not job.settings.batch:
            self._backend = world.backend(id, attempt, lambda: self._graph.operators(), context.memory_budget)
            context = replace(context, paged=self._backend.paged)
        self.context = context = replace(context, pausing=self._pausing)
        self.ended = False
        self.spent = Spent(last=world.seconds())
        self._attempt = attempt
        self._timely = not job.settings.batch
        self._scripted = scripted
        self._pace = pace
        steps = list(job.plan.stage_steps(id.stage))
        self._sources = {step.id: step for step in steps if step.is_source}
        self._sinks = {step.id: self._writing(step) for step in steps if step.is_sink}
        self._inner = [step for step in steps if not (step.is_source or step.is_sink)]
        self.inputs: dict[ChannelId, Input] = {}
        self._channels: list[Input] = []
        self.outputs: dict[ChannelId, OutputChannel] = {}
        self._full_outputs: set[ChannelId] = set()
        self._runs: list[RunWriter] = []
        self._routers: dict[str, list[Router]] = {}
        self._readings: dict[int, Reading] = {}
        self._watermarked: set[str] = set()
        self._script: Script | None = None
        self._marks: dict[str, dict[ChannelId, Mark]] = {}
        self._least: dict[str, Least] = {}
        self._sides: list[ChannelId] = []
        self._current: Iterator[None] | None = None
        self._barriers = Barriers(job, world, {})
        self._share: Share | None = None
        self._paused = False
        self._turn = 0

    # -- set-up

    def connect(
        self, inputs: Callable[[ChannelId], InputChannel], outputs: Callable[[ChannelId], OutputChannel]
    ) -> None:
        """Take hold of its channels; blocking ones it makes by itself."""
        layout, plan, directory = self.job.layout, self.job.plan, self.world.directory
        for number, edge in layout.edges_out_of(self.id.stage):
            targets: list[Target] = []
            for channel in layout.channels_out_of(self.id, number):
                if edge.pipelined:
                    output = self.outputs[channel] = outputs(channel)
                    output.all_full = self._full_outputs
                    targets.append(output)
                else:
                    self._runs.append(RunWriter(directory(), channel, self._attempt))
                    targets.append(RunTarget(self._runs[-1]))
            router = Router(plan, edge, self.id.index, targets, self.job.settings.max_parallelism)
            self._routers.setdefault(edge.collection, []).append(router)
        for channel in layout.channels_into(self.id):
            edge = plan.edges[channel.edge]
            self.inputs[channel] = inputs(channel) if edge.pipelined else RunReader(directory(), channel)
            self._marks.setdefault(edge.collection, {})[channel] = Mark()
            if edge.side is not None and not edge.pipelined:
                self._sides.append(channel)
        for _, edge in layout.edges_into(self.id.stage):
            self._marks.setdefault(edge.collection, {})  # a forward exchange from fewer tasks gives it none
        self._least = {collection: Least() for collection in self._marks}
        self._channels = list(self.inputs.values())
        self._barriers = Barriers(self.job, self.world, self.inputs)

    def open(self, state: Restoring | None = None) -> None:
        """Build the operators and open them: the author's set-up runs here. `state`: go on from there."""
        settings, plan = self.job.settings, self.job.plan
        for step in self._sources.values():
            if isinstance(step.head, TestStream):
                self._script = Script(step.head)
            else:
                self._readings[step.id] = Reading(
                    step, self.world.clock, settings.block_size, timely=self._timely, pace=self._pace
                )
        outlets: dict[str, list[Outlet]] = {}
        inside: list[Edge] = []
        here = {step.id for step in self._inner}
        edges = chain.from_iterable(plan.outputs(step.id) for step in plan.stage_steps(self.id.stage))
        for edge in edges:
            if edge.exchange is not None:
                continue
            if edge.target in self._sinks:
                outlets.setdefault(edge.collection, []).append(self._sinks[edge.target].write)
            elif edge.target in here:
                inside.append(edge)
        for collection, routers in self._routers.items():
            outlets.setdefault(collection, []).extend(self._outlet(router) for router in routers)
        with collecting(self.context.metrics):
            self._graph = Graph(plan, self._inner, inside, self.context, outlets)
            self._graph.open()
            if state is not None:
                self._restore(state)
            for collection, marks in self._marks.items():
                if not marks:
                    self._graph.mark(collection, Mark(ended=True))
        self._tell_marks()

    def close(self) -> None:
        """After the end."""
        with collecting(self.context.metrics):
            self._graph.close()
        for reading in self._readings.values():
            reading.close()
        self._forget_state()

    def abandon(self) -> None:
        """After a failure, or when nothing more is to come of it."""
        if self._current is not None:
            quietly(self._current.close)  # type: ignore[attr-defined]
        for reading in self._readings.values():
            quietly(reading.close)
        for writing in self._sinks.values():
            writing.abandon()
        for run in self._runs:
            quietly(run.abandon)
        if hasattr(self, "_graph"):
            with collecting(self.context.metrics):
                self._graph.abandon()
        quietly(self._forget_state)

    def _forget_state(self) -> None:
        if self._share is not None:
            self._share.abandon()
        if self._backend is not None:
            self._backend.close()

    # -- from the coordinator

    def assign(self, message: AssignSplits) -> None:
        """Splits to read."""
        self._readings[message.step].assign(message.splits, more=message.more)

    def trigger(self, barrier: Barrier) -> None:
        """A checkpoint or a settling begins; a task with live input waits for its barriers."""
        self._barriers.trigger(barrier)

    def abort_checkpoint(self, checkpoint: int) -> None:
        """A checkpoint is given up."""
        if self._barriers.abort(checkpoint) and self._current is None:
            self._finish_if_ended()  # its input may have ended meanwhile: it was to take part before it ends
        if self._share is not None and self._share.checkpoint == checkpoint:
            self._give_up(self._share)

    def checkpoint_completed(self, checkpoint: int) -> None:
        """All tasks' shares are kept: later ones may build on this one's."""
        if self._backend is not None:
            self._backend.completed(checkpoint)

    def settled(self, settling: int) -> None:
        """Everything has handled the script's last event."""
        if self._script is not None:
            self._script.settled(settling)
            self._finish_if_ended()

    def stop_sources(self, *, drain: bool) -> None:
        """Sources give nothing more. `drain`: because they end here, as far as all that follows can tell."""
        self._paused = not drain
        if drain:
            for reading in self._readings.values():
                reading.stop()
            if self._script is not None:
                self._script.stop()

    # -- work

    def step(self) -> bool:
        """Do one bounded thing; False if there is nothing to do now."""
        urgent = self._barriers.overtakes()
        if self._full() and not urgent:
            self.spent.turn("backpressured", self.world.seconds())
            return False
        with collecting(self.context.metrics):
            if self._current is None:
                self._current = self._next()
            if self._current is None:
                self.spent.turn("idle", self.world.seconds())
                return False
            began = self.world.seconds()
            self.spent.turn("busy", began)
            for _ in self._current:
                if self._full() and not urgent:
                    self.spent.turn("backpressured", self.world.seconds())
                    return True
                if self.world.seconds() - began > _TURN:
                    self.spent.turn("idle", self.world.seconds())
                    return True
            self._current = None
            self._tell_marks()
            self._finish_if_ended()
        # What other tasks of this worker do now is no time of this one's.
        self.spent.turn("backpressured" if self._full() else "idle", self.world.seconds())
        return True

    def _pausing(self) -> bool:
        """Whether a step that has very much to do at the end of its input is to leave the rest for later."""
        return self._paused or self._barriers.aligned or self._barriers.overtakes()

    def _full(self) -> bool:
        return bool(self._full_outputs)

    def flush(self, now: int) -> None:
        """Let go of what has waited for the buffer timeout, unless there is no room for it anyway."""
        timeout = self.job.settings.buffer_timeout
        if timeout < 0:
            return
        for channel in self.outputs.values():
            if channel.since is not None and not channel.full and now - channel.since >= timeout * SECOND:
                channel.flush()

    def next_wake(self) -> int | None:
        """When (µs of the monotonic clock) there is something to do without any input. What can't be done before there
        is credit is nothing to do, whenever it is due."""
        now = self._ticks()
        if self._share is not None and not self._share.waiting:
            return now + _LOOK
        if self.ended:
            return None
        instants: list[int | None] = []
        timeout = self.job.settings.buffer_timeout
        if timeout >= 0:
            waiting = (each.since for each in self.outputs.values() if each.since is not None and not each.full)
            instants += [since + math.ceil(timeout * SECOND) for since in waiting]
        if (wait := self._barriers.patience) is not None:
            instants.append(now + math.ceil(wait * SECOND))
        if not self._full():
            if not self._paused:
                instants += [reading.due for reading in self._readings.values()]
            due = self._graph.next_clock() if self._timely and not self._scripted else None
            if due is not None:
                instants.append(now + max(0, due - self.world.clock.now()))
        return min((at for at in instants if at is not None), default=None)

    def status(self) -> TaskStatus:
        """How it is doing."""
        spent = self.spent
        spent.turn(spent.doing, self.world.seconds())
        stands = [(reading.mark.watermark, _is_quiescent(reading.mark)) for reading in self._readings.values()]
        for collection, least in self._least.items():
            stands.append((least.watermark, all(map(_is_quiescent, self._marks[collection].values()))))
        holding = [watermark for watermark, quiescent in stands if not quiescent]
        resting = max((watermark for watermark, _ in stands), default=Mark().watermark)
        return TaskStatus(
            self.id,
            spent.records_in,
            spent.records_out,
            spent.busy,
            spent.idle,
            spent.backpressured,
            min(holding, default=resting),
            "ended" if self.ended else "running",
            not holding,
        )

    def metrics(self) -> MetricCells:
        """What has been counted; the parts of a combine give what their merge gives."""
        parts = [step.label for step in self._inner if step.phase == "parts"]
        if not parts:
            return self.context.metrics
        metrics = MetricCells()
        metrics.merge(self.context.metrics)
        for label in parts:
            metrics.counters.pop(MetricKey(label, ENGINE, "elements_out"), None)
        return metrics

    def _next(self) -> Iterator[None] | None:
        """What to do next."""
        if self._barriers.aligned or self._barriers.overtakes():
            return self._take_part()
        if self.ended:
            return None
        if self._graph.paused and not self._paused:
            return self._graph.resuming()
        if (channel := self._next_input()) is not None:
            return self._handle(channel)
        for reading in () if self._paused else self._readings.values():
            due = reading.due
            if due is not None and due <= self._ticks():
                return self._poll(reading)
        if self._script is not None and self._script.ready:
            return self._play(self._script)
        if self._timely and not self._scripted:
            due = self._graph.next_clock()
            if due is not None and due <= self.world.clock.now():
                return self._graph.ticking(self.world.clock.now())
        return None

    def _next_input(self) -> Input | None:
        """The channel whose turn it is; kept side inputs come before everything."""
        for id in self._sides:
            if self.inputs[id].ready:
                return self.inputs[id]
        channels = self._channels
        for offset in range(len(channels)):
            at = (self._turn + offset) % len(channels)
            if channels[at].ready:
                self._turn = at + 1
                return channels[at]
        return None

    def _handle(self, channel: Input) -> Iterator[None]:
        item = channel.take()
        match item:
            case Block():
                yield from self._tick()
                yield from self._enter(channel.id, item)
            case Mark():
                yield from self._marked(channel.id, item)
            case Barrier():
                assert isinstance(channel, InputChannel)
                self._barriers.arrived(channel, item)

    def _enter(self, channel: ChannelId, block: Block) -> Iterator[None]:
        edge = self.job.plan.edges[channel.edge]
        self.spent.records_in += len(block)
        if edge.target in self._sinks:
            self._sinks[edge.target].write(block)
        else:
            yield from self._graph.delivering(edge, block)

    def _marked(self, channel: ChannelId, mark: Mark) -> Iterator[None]:
        collection = self.job.plan.edges[channel.edge].collection
        marks = self._marks[collection]
        marks[channel] = Mark(max(mark.watermark, marks[channel].watermark), mark.idle, mark.ended)
        if mark.ended:
            self._barriers.end(channel)
        yield from self._graph.marking(collection, self._least[collection].of(marks))

    def _tick(self) -> Iterator[None]:
        if self._timely and not self._scripted:
            yield from self._graph.ticking(self.world.clock.now())

    def _poll(self, reading: Reading) -> Iterator[None]:
        block = reading.poll()
        if reading.wants:
            reading.wants = False
            self.world.tell(RequestSplit(self.id, reading.step.id))
        if block is not None:
            yield from self._tick()
            self.context.count(reading.step.label, "elements_out", len(block))
            yield from self._graph.pushing(reading.collection, block)
        if reading.is_watermarked and reading.step.label not in self._watermarked:
            self._watermarked.add(reading.step.label)
            self.context.count(reading.step.label, WATERMARKED)
        if self._timely or reading.mark.ended:
            yield from self._source_mark(reading.collection, reading.mark)

    def _source_mark(self, collection: str, mark: Mark) -> Iterator[None]:
        yield from self._graph.marking(collection, mark)

    def _play(self, script: Script) -> Iterator[None]:
        """One event of a test stream; the next one waits until everything has handled this one."""
        event = script.next()
        if event.block is not None:
            self.context.count(next(iter(self._sources.values())).label, "elements_out", len(event.block))
            yield from self._graph.pushing(event.collection, event.block)
        if event.mark is not None:
            yield from self._source_mark(event.collection, event.mark)
        self._barriers.trigger(event.settling)
        self.world.tell(RequestSettling(event.settling.checkpoint, event.settling.clock))

    def _tell_marks(self) -> None:
        """Pass on how what leaves here stands now."""
        now = self._ticks()
        for collection, routers in self._routers.items():
            mark = self._graph.standing(collection)
            if mark.ended or self._timely:
                for router in routers:
                    router.mark(mark, now)

    def _finish_if_ended(self) -> None:
        if self.ended or self._barriers.aligned:
            return
        over = (
            all(mark.ended for marks in self._marks.values() for mark in marks.values())
            and all(reading.mark.ended for reading in self._readings.values())
            and (self._script is None or self._script.ended)
            and not self._graph.paused
        )
        if not over:
            return
        self.ended = True
        for run in self._runs:
            run.finish()
        prepared: tuple[Prepared, ...] = ()
        if self.job.settings.batch:
            prepared = self._prepare(last=True)
        self.world.tell(TaskEnded(self.id, prepared, self.metrics()))

    # -- checkpoints

    def _take_part(self) -> Iterator[None]:
        """The barrier has come wherever it comes from, or overtakes what it has not: snapshot, forward, acknowledge."""
        barrier = self._barriers.current
        assert barrier is not None
        started = self.world.seconds()
        yield from self._graph.ending_bundles()
        if barrier.clock is not None:
            yield from self._graph.ticking(barrier.clock)
        self._tell_marks()
        if self._barriers.current is not barrier:
            return  # given up while blocks of the bundle waited for room
        if barrier.kind == "settle":
            for output in self.outputs.values():
                if not output.ended:
                    output.barrier(barrier)
            self._barriers.done()
            self.world.tell(Passed(barrier.checkpoint, self.id))
            return
        if not self._barriers.aligned:
            barrier = replace(barrier, unaligned=True)
        since = self._barriers.since
        self._snapshot(barrier, 0.0 if since is None else started - since)

    def _snapshot(self, barrier: Barrier, waited: float) -> None:
        started = self.world.seconds()
        if self._share is not None:  # the word that it is given up has not come yet
            self._give_up(self._share)
        prepared = self._prepare(last=self.ended)
        splits = tuple(reading.progress() for reading in self._readings.values())
        missing = self._barriers.missing
        self._barriers.done()
        outgoing: dict[ChannelId, list[Block]] = {}
        incoming: dict[ChannelId, list[Block]] = {}
        name = f"chk-{barrier.checkpoint:06}/{self.id}.{self._attempt}"
        assert self._backend is not None
        try:
            whole = barrier.kind == "savepoint"
            capture: Capture = self._backend.capture(barrier.checkpoint, f"{name}.data", whole=whole)
        except UnpicklableState as error:
            rethrow(blamed(error, self._inner))
        except OSError as error:
            capture = FailedCapture(error)
        metrics = MetricCells()
        metrics.merge(self.context.metrics)
        state = TaskState(self._graph.standings(), outgoing, incoming, metrics, self.world.clock.now())
        ended = self.ended

        def acknowledge(handle: StateHandle) -> None:
            stats = AckStats(waited, paused, self.world.seconds() - started, state.in_flight)
            self.world.tell(Acknowledge(barrier.checkpoint, self.id, handle, splits, prepared, ended, stats))

        for output in self.outputs.values():
            if output.ended:
                continue
            if barrier.unaligned and self._barriers.overtakable(output.id):
                outgoing[output.id] = []
                for block in output.overtake(barrier):
                    self._keep(output.id, outgoing[output.id], block)
            else:
                output.barrier(barrier)
        paused = self.world.seconds() - started
        self._share = share = Share(
            barrier.checkpoint, f"{name}.state", state, capture, prepared, acknowledge, set(missing)
        )
        for id in missing:
            channel = self.inputs[id]
            assert isinstance(channel, InputChannel)
            incoming[id] = []
            note = partial(self._keep, id, incoming[id])
            channel.record(barrier.checkpoint, note, partial(share.missing.discard, id))
        self.advance_checkpoint()

    def _keep(self, channel: ChannelId, blocks: list[Block], block: Block) -> None:
        """A block under way belongs to a checkpoint: a merge may change its accumulators before that is written."""
        plan = self.job.plan
        merged = plan.steps[plan.edges[channel.edge].target].phase == "merge"
        blocks.append(copied(block) if merged else block)

    def advance_checkpoint(self) -> None:
        """Bring what has been captured a little further to where it is kept, without waiting."""
        share = self._share
        if share is None:
            return
        try:
            handle = share.stored(self.world.store)
        except OSError as error:
            self._share = None
            share.abandon()
            why = f"its state can't be kept: {unwritten(error, 'another --checkpoint_dir')}"
            self.world.tell(Decline(share.checkpoint, self.id, why, share.prepared))
        except UnpicklableState as error:
            rethrow(blamed(error, self._inner))
        else:
            if handle is not None:
                self._share = None
                share.acknowledge(handle)

    def _give_up(self, share: Share) -> None:
        """A checkpoint is over before its share is kept; what sinks prepared is handed on."""
        for id in share.missing:
            channel = self.inputs[id]
            assert isinstance(channel, InputChannel)
            channel.stop_recording()
        share.abandon()
        self.world.tell(Decline(share.checkpoint, self.id, "given up", share.prepared))
        self._share = None

    def _prepare(self, *, last: bool) -> tuple[Prepared, ...]:
        return tuple(Prepared(writing.step.label, writing.prepare(last=last)) for writing in self._sinks.values())

    def _restore(self, restoring: Restoring) -> None:
        state = restoring.state
        assert self._backend is not None
        assert self.world.storage is not None
        self.world.clock.reach(state.clock)
        self._backend.restore(restoring.parts, self.world.storage.read, restoring.keeps)
        self._graph.resume(state.standings)
        self.context.metrics.merge(state.metrics)
        for id, blocks in state.incoming.items():
            channel = self.inputs[id]
            assert isinstance(channel, InputChannel)
            channel.put_back(blocks)
        for id, blocks in state.outgoing.items():
            self._send_again(id, blocks)
        for reader in self.inputs.values():
            if isinstance(reader, RunReader):
                reader.skip()

    def _send_again(self, id: ChannelId, blocks: list[Block]) -> None:
        """Blocks that had not left when a snapshot was taken, perhaps for tasks of which there are others now."""
        edge = self.job.plan.edges[id.edge]
        (router,) = [each for each in self._routers[edge.collection] if each.edge is edge]
        for block in blocks:
            if id in self.outputs and edge.exchange is not None and edge.exchange.routing != "hash":
                self.outputs[id].add(block, self._ticks())
            else:
                router.write(block, self._ticks())

    # -- parts

    def _outlet(self, router: Router) -> Outlet:
        step = self.job.plan.steps[router.edge.source]

        def outlet(block: Block) -> None:
            self.spent.records_out += len(block)
            try:
                router.write(block, self._ticks())
            except PicklingError as error:  # of a blocking exchange: other channels name the step by themselves
                rethrow(located(error, step.label, step.tail.where))

        return outlet

    def _writing(self, step: Step) -> Writing:
        node = step.tail
        assert isinstance(node, Write)
        parallelism = self.job.layout.parallelism(self.id.stage)
        shards = list(range(self.id.index, node.shards, parallelism)) if node.shards else [self.id.index]
        return Writing(step, self.job.output_run, shards, always=bool(node.shards) or self.id.index == 0)


_TURN: Final = 0.05
"""After how long (s) a task that is busy with one thing lets its worker look at its messages, and others work."""

_LOOK: Final = 1_000
"""After how long (µs) it is looked again whether a share is kept."""


def _is_quiescent(mark: Mark) -> bool:
    return mark.idle or mark.ended

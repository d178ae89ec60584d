"""A worker: drives its task of every stage, one bounded step at a time, and sends heartbeats.

It uses no sockets, files or processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tidegate.runners.checkpoint.parts import StoredState
from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.engine.errors.attribution import is_final, located, quietly, rethrow, subject_of
from tidegate.runners.engine.errors.transport import packed
from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.sinks.writer import remove_output
from tidegate.runners.engine.time.clock import ManualClock
from tidegate.runners.streaming.checkpoint.committer import Committer
from tidegate.runners.streaming.feedback.channel import FeedbackChannel
from tidegate.runners.streaming.model.exit_status import one_line
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.network.channels import InputChannel, OutputChannel
from tidegate.runners.streaming.protocol.stream_items import Barrier, Item
from tidegate.runners.streaming.protocol.worker_messages import (
    AbortOutput,
    AssignSplits,
    BeginMark,
    Cancel,
    CheckpointAborted,
    CheckpointCompleted,
    Commit,
    Deploy,
    DiscoverSplits,
    DivideSplits,
    Heartbeat,
    ListSplits,
    LoopTime,
    OutputAborted,
    PauseSources,
    PeerWatermark,
    QuiescenceReached,
    SplitsListed,
    StopSources,
    TaskFailed,
    ToWorker,
    TriggerBarrier,
)
from tidegate.runners.streaming.rounds.worker_loop import WorkerLoop
from tidegate.runners.streaming.state.restore import task_restore
from tidegate.runners.streaming.worker.environment import WorkerServices
from tidegate.runners.streaming.worker.spill_directories import spill_directory
from tidegate.runners.streaming.worker.split_enumeration import (
    SplitEnumeration,
    divide_splits,
    list_splits,
)
from tidegate.runners.streaming.worker.task import Task
from tidegate.runners.streaming.worker.watermark_alignment import watermark_alignment_of
from tidegate.sdk.connectors.outage import is_outage
from tidegate.sdk.errors import PicklingError, TidegateError, UserCodeError
from tidegate.sdk.metrics import MetricCells, collecting
from tidegate.sdk.portable.model import Read, TestStream, Write
from tidegate.sdk.time import SECOND


class Worker:
    """One worker of an attempt. It reports every error of its tasks to the coordinator."""

    def __init__(self, job: Job, index: int, attempt: int, services: WorkerServices) -> None:
        self.job = job
        self.index = index
        self.attempt = attempt
        self.services = services
        self.closed = False
        self._tasks: dict[TaskId, Task] = {}
        self._order: list[Task] = []
        self._closed_metrics = MetricCells()
        """The metrics of closed tasks."""
        self._inputs: dict[ChannelId, InputChannel] = {}
        self._outputs: dict[ChannelId, OutputChannel] = {}
        self._enumerations: dict[int, SplitEnumeration] = {}
        """The enumerations of sources, by their steps."""
        self._loop = WorkerLoop(job, index, services.directory, self._spill_directory)
        self._failed = False
        self._last_heartbeat = 0
        self._watermark_alignment = watermark_alignment_of(job, index)
        self._committer = Committer(services.commits, services.staged.open, services.report)
        self._scripted = any(isinstance(node, TestStream) for node in job.plan.pipeline.nodes)
        if self._scripted:
            assert isinstance(services.clock, ManualClock)

    # -- messages

    def on_message(self, message: ToWorker) -> None:
        """Handle a message of the coordinator."""
        match message:
            case Deploy():
                self._guard(None, lambda: self._deploy(message))
            case ListSplits():
                self._guard(None, lambda: self._list_splits(message))
            case DiscoverSplits(step=step):
                if step in self._enumerations:
                    self._enumerations[step].discover()
            case DivideSplits(step=step):
                self._guard(None, lambda: self.services.report(divide_splits(self.job.plan.steps[step], message)))
            case AssignSplits(task=task) if task in self._tasks:  # else it has ended, and has been closed
                self._guard(task, lambda: self._tasks[task].assign(message))
            case TriggerBarrier(checkpoint=checkpoint, kind=kind, unaligned=unaligned, clock=clock):
                for each in self._order:
                    each.trigger(Barrier(checkpoint, kind, unaligned, clock))
            case CheckpointAborted(checkpoint=checkpoint):
                for each in self._order:
                    self._guard(each.id, partial(each.abort_checkpoint, checkpoint))
            case QuiescenceReached(round=round):
                for each in self._order:
                    self._guard(each.id, partial(each.quiescence_reached, round))
            case StopSources(drain=drain):
                for each in self._order:
                    self._guard(each.id, partial(each.stop_sources, drain=drain))
            case PauseSources(paused=paused):
                for each in self._order:
                    each.pause_sources(paused=paused)
            case BeginMark():
                for each in self._order:
                    each.loops.begin(message)
            case LoopTime():
                for each in self._order:
                    each.loops.receive_time(message)
            case Commit(step=step):
                self._guard(None, lambda: self._committer.begin(self._sink_node(step), message))
            case AbortOutput():
                self._abort_output(message)
            case CheckpointCompleted(checkpoint=checkpoint):
                for each in self._order:
                    self._guard(each.id, partial(each.checkpoint_completed, checkpoint))
            case PeerWatermark(watermark=watermark):
                if self._watermark_alignment is not None:
                    self._watermark_alignment.update_peers(watermark)
            case Cancel():
                self.close()

    def on_items(self, channel: ChannelId, items: Sequence[Item]) -> None:
        """Receive items that another worker has sent through a channel."""
        self._guard(None, lambda: self._input(channel).put(items))  # the disk for what is fed back may be full

    def on_credit(self, channel: ChannelId, credit: int) -> None:
        """Receive credit that another worker has granted to a channel."""
        self._guard(None, lambda: self._output(channel).grant(credit))

    # -- work

    def work(self) -> bool:
        """Let every task make one step, consumers before producers; return whether any of them did something."""
        now = self.services.clock.monotonic()
        worked = False
        self._committer.poll()
        if not self._failed:
            for task in self._order:
                if task.ended and self.job.settings.batch:
                    continue
                worked = self._guard(task.id, task.step) or worked
                self._guard(task.id, task.store_checkpoint)
                self._guard(task.id, partial(task.flush, now))
            for enumeration in self._enumerations.values():
                worked = self._guard(None, partial(self._poll_enumeration, enumeration)) or worked
        if now - self._last_heartbeat >= self.job.settings.heartbeat * SECOND:
            self._last_heartbeat = now
            self._report_progress()
        return worked

    def next_wake(self) -> int | None:
        """When (µs of the monotonic clock) to work again if nothing arrives before."""
        instants = [self._last_heartbeat + int(self.job.settings.heartbeat * SECOND)]
        if not self._failed:
            instants += [at for task in self._order if (at := task.next_wake()) is not None]
            instants += [at for each in self._enumerations.values() if (at := each.next_wake()) is not None]
        return min(instants)

    def close(self) -> None:
        """Close the tasks that have ended, and abandon the others."""
        if self.closed:
            return
        self.closed = True
        self._committer.close()
        for task in self._order:
            if task.ended and not self._failed:
                self._guard(task.id, task.close)
            else:
                task.abandon()
        self._order = []
        self._end_loop()
        for enumeration in self._enumerations.values():
            enumeration.close()
        self._report_progress()

    # -- parts

    def _deploy(self, message: Deploy) -> None:
        settings = self.job.settings
        if settings.batch:
            self._close_ended()
        built: list[Task] = []
        loop = self.job.plan.loop_of(message.tasks[0].stage)
        if loop is not self._loop.loop:
            self._end_loop()
            if loop is not None:
                self._loop.enter(loop)
        self._guard(None, partial(self._loop.begin, dict(message.rounds)))
        for id in message.tasks:
            if not self._failed:
                self._guard(id, partial(self._build, id, settings.memory_budget // len(message.tasks), message, built))
        self._order = [*reversed(built), *self._order]
        for task in built:
            if not self._failed:
                self._guard(task.id, partial(self._open, task, message.restore))

    def _end_loop(self) -> None:
        """Tear down the functions of a loop, and drop all that its tasks have kept."""
        for id, share in self._loop.leave().items():
            with collecting(self._closed_metrics):
                if self._failed:
                    quietly(share.life.end)
                else:
                    self._guard(id, share.life.end)

    def _build(self, id: TaskId, memory_budget: int, message: Deploy, built: list[Task]) -> None:
        settings = self.job.settings
        context = Context(
            memory_budget,
            partial(self._spill_directory, id),
            block_size=settings.block_size,
            runtime_types=settings.runtime_types,
            inline=settings.inline,
            max_end_timers=settings.max_end_timers,
            now=self.services.clock.now,
            wake=self.services.wake,
        )
        task = self._tasks[id] = Task(
            self.job,
            id,
            self.attempt,
            self.services,
            context,
            self._input,
            self._output,
            scripted=self._scripted,
            watermark_alignment=self._watermark_alignment,
            rounds=dict(message.rounds),
            cache=self._loop.cache(id),
            left=partial(self._loop.left, dict(message.rounds)),
        )
        built.append(task)

    def _close_ended(self) -> None:
        """Close the tasks that have ended, and retain only their metrics."""
        ended = [task for task in self._order if task.ended]
        self._order = [task for task in self._order if not task.ended]
        for task in ended:
            self._guard(task.id, task.close)
            self._closed_metrics.merge(task.metrics())
            del self._tasks[task.id]

    def _spill_directory(self, task: TaskId) -> Path:
        return spill_directory(self.services.directory(), task, self.attempt)

    def _open(self, task: Task, restore: Sequence[StoredState]) -> None:
        parts = [part for part in restore if part.task.stage == task.id.stage]
        task.open(task_restore(parts, task.id, self.job, self.services.storage) if parts else None)

    def _list_splits(self, message: ListSplits) -> None:
        """List splits at once; those of a source that may have an enumerator in the background."""
        step = self.job.plan.steps[message.step]
        if message.enumerator is not None or (isinstance(step.head, Read) and step.head.discovers):
            services = self.services
            self._enumerations[step.id] = SplitEnumeration(step, message, services.background(), services.clock)
        else:
            self.services.report(SplitsListed(step.id, list_splits(step, message.desired)))

    def _poll_enumeration(self, enumeration: SplitEnumeration) -> bool:
        found = enumeration.poll()
        if found is not None:
            self.services.report(found)
        return found is not None

    def _abort_output(self, message: AbortOutput) -> None:
        first = remove_output(self._sink_node(message.step), message.runs)
        error, text = (None, "") if first is None else (packed(first), one_line(first))
        outage = first is not None and is_outage(first)
        self.services.report(OutputAborted(message.step, error, text, outage))

    def _sink_node(self, step: int) -> Write:
        node = self.job.plan.steps[step].tail
        assert isinstance(node, Write)
        return node

    def _input(self, id: ChannelId) -> InputChannel:
        """The receiving end of a pipelined channel. It buffers items that arrive before its task is deployed."""
        channel = self._inputs.get(id)
        if channel is None:
            sender = id.source
            grant = self._output(id).grant if sender == self.index else partial(self.services.grant, sender, id)
            feeds_back = self.job.plan.feeds_back(self.job.plan.edges[id.edge])
            channel = self._inputs[id] = (FeedbackChannel if feeds_back else InputChannel)(
                id, self.job.settings.credit, grant
            )
        return channel

    def _output(self, id: ChannelId) -> OutputChannel:
        """The sending end of a pipelined channel."""
        channel = self._outputs.get(id)
        if channel is None:
            settings = self.job.settings
            send = self._send_here if id.target == self.index else self._send_away
            size = 1 if settings.buffer_timeout == 0 else settings.block_size
            channel = self._outputs[id] = OutputChannel(id, settings.credit, size, partial(send, id))
        return channel

    def _send_here(self, id: ChannelId, items: list[Item]) -> None:
        self._input(id).put(items)

    def _send_away(self, id: ChannelId, items: list[Item]) -> None:
        try:
            self.services.send(id.target, id, items, flush=True)
        except PicklingError as error:
            step = self.job.plan.steps[self.job.plan.edges[id.edge].source]
            rethrow(located(error, step.label, step.tail.where))

    def _report_progress(self) -> None:
        metrics = MetricCells()
        metrics.merge(self._closed_metrics)
        for task in self._tasks.values():
            metrics.merge(task.metrics())
        for enumeration in self._enumerations.values():
            metrics.merge(enumeration.metrics())
        min_watermark = None if self._watermark_alignment is None else self._watermark_alignment.min_watermark
        self.services.report(
            Heartbeat(tuple(task.status() for task in self._order), metrics, min_watermark=min_watermark)
        )

    def _guard(self, task: TaskId | None, call: Callable[[], object]) -> bool:
        """Call, and report any error; after a failure no task of this worker does anything more."""
        try:
            return bool(call())
        except Exception as error:
            self._failed = True
            user = isinstance(error, UserCodeError) or not isinstance(error, TidegateError)
            about = subject_of(error), one_line(error), is_outage(error), is_final(error)
            self.services.report(TaskFailed(task, packed(error), user, *about))
            return False

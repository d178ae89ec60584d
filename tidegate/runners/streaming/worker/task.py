"""One task: it runs the steps of a stage on one part of the data, between its input and output channels.

A task executes one action at a time: it processes an item of a channel, polls a source, advances processing time, or
snapshots its state. An action yields after every block that it emits. While an output channel has no credit, the task
stays suspended in the action and reads no more input; so backpressure propagates to the sources. Snapshots are taken
only between two actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tidegate.runners.checkpoint.restoring import TaskRestore
from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.engine.errors.attribution import quietly
from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.operator_graph import Graph, resume
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.plan import Edge
from tidegate.runners.streaming.feedback.task_loops import TaskLoops
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.network.channels import InputChannel, OutputChannel
from tidegate.runners.streaming.protocol.stream_items import Barrier, Hops, LoopMark
from tidegate.runners.streaming.protocol.worker_messages import AssignSplits, Prepared, TaskEnded, TaskStatus
from tidegate.runners.streaming.rounds.loop_cache import LoopCache
from tidegate.runners.streaming.state.backend import StateBackend
from tidegate.runners.streaming.worker.barrier_handler import BarrierHandler
from tidegate.runners.streaming.worker.environment import WorkerServices
from tidegate.runners.streaming.worker.source_driver import SourceDriver
from tidegate.runners.streaming.worker.task_checkpointer import TaskCheckpointer
from tidegate.runners.streaming.worker.task_environment import TaskEnvironment
from tidegate.runners.streaming.worker.task_inputs import Input, TaskInputs
from tidegate.runners.streaming.worker.task_outputs import TaskOutputs
from tidegate.runners.streaming.worker.time_accounting import TimeAccounting
from tidegate.runners.streaming.worker.watermark_alignment import WatermarkAlignment
from tidegate.sdk.data.block import Block
from tidegate.sdk.metrics import MetricCells, collecting
from tidegate.sdk.time import SECOND


class Task:
    """`open` it before the first `step`. `inputs` and `outputs` return this worker's ends of pipelined channels."""

    def __init__(
        self,
        job: Job,
        id: TaskId,
        attempt: int,
        services: WorkerServices,
        context: Context,
        inputs: Callable[[ChannelId], InputChannel],
        outputs: Callable[[ChannelId], OutputChannel],
        *,
        scripted: bool,
        watermark_alignment: WatermarkAlignment | None = None,
        rounds: Mapping[str, int] | None = None,
        cache: LoopCache | None = None,
        left: Callable[[ChannelId], Iterator[Block]] | None = None,
    ) -> None:
        self.id = id
        self.ended = False
        if cache is not None:
            context = cache.context_of_round(job, id, services.directory(), context)
        times = TimeAccounting(last=services.seconds())
        self._env = env = TaskEnvironment(
            job, id, attempt, services, context, times, scripted, rounds or {}, cache, left
        )
        self.inputs = TaskInputs(env, inputs)
        self.outputs = TaskOutputs(env, outputs)
        self._barriers = BarrierHandler(job, services, self.inputs.channels)
        self.sources = SourceDriver(env, self._barriers.trigger, watermark_alignment)
        self._current: Iterator[None] | None = None
        """The action that has begun and not finished."""
        self._backend: StateBackend | None = None
        """None in a batch job, which takes no checkpoints."""
        if not job.settings.batch:
            self._backend = services.backend(
                id, attempt, lambda: {**self.graph.operators(), **self.loops.operators()}, context.memory_budget
            )
        try:
            self.graph = self._build_graph()
        except BaseException:
            if self._backend is not None:
                quietly(self._backend.close)
            raise
        channels = self.inputs.channels, self.inputs.feedback, self.outputs.channels
        self.loops = TaskLoops(job, id, context, self.graph, *channels, services.report, self._barriers)
        self.outputs.before_write = self.loops.before_write if self.loops else None
        self._checkpointer = TaskCheckpointer(
            env, self._barriers, self.inputs, self.sources, self.graph, self.outputs, self.loops, self._backend
        )

    def _build_graph(self) -> Graph:
        env = self._env
        operators = {step.id for step in env.steps}
        edges: list[Edge] = [
            edge
            for step in env.plan.stage_steps(self.id.stage)
            for edge in env.plan.outputs(step.id)
            if edge.exchange is None and edge.target in operators
        ]
        paged = None if self._backend is None else self._backend.wrap_keyed
        context = replace(env.context, wrap_keyed=paged, should_pause=self._pausing, must_buffer=self._must_go_on)
        with collecting(context.metrics):
            return Graph(env.plan, env.steps, edges, context, self.outputs.outlets())

    # -- life

    def open(self, state: TaskRestore | None = None) -> None:
        """Open the operators, which runs the author's set-up; with `state`, restore it."""
        with collecting(self._env.context.metrics):
            self.graph.open()
            if state is not None:
                self._restore(state)
            for collection in self.inputs.unfed:
                self.graph.update(collection, CollectionStatus(ended=True))
            self.outputs.forward_statuses(self.graph)
            if not self.inputs.channels:  # nothing will come that could end it
                self._finish_if_ended()

    def _restore(self, restore: TaskRestore) -> None:
        state, services = restore.state, self._env.services
        assert self._backend is not None
        assert services.storage is not None
        services.clock.reach(state.clock)
        self._backend.restore(restore.parts, services.storage.read, restore.keeps)
        resume(self.graph, state.standings)
        self._env.context.metrics.merge(state.metrics)
        self.inputs.restore(state.incoming)
        self.outputs.restore(state.outgoing)
        self.loops.restore(state.fed_back, state.hops)

    def close(self) -> None:
        """Release everything after the task has ended."""
        with collecting(self._env.context.metrics):
            self.graph.close()
        self.loops.close()
        self.sources.close()
        self._checkpointer.close()

    def abandon(self) -> None:
        """Release everything after a failure or a cancellation; errors of that are ignored."""
        if self._current is not None:
            quietly(self._current.close)  # type: ignore[attr-defined]
        self.sources.abandon()
        self.outputs.abandon()
        with collecting(self._env.context.metrics):
            self.graph.abandon()
        quietly(self._checkpointer.close)

    # -- from the coordinator

    def assign(self, message: AssignSplits) -> None:
        """Add splits to read."""
        self.sources.assign(message)

    def trigger(self, barrier: Barrier) -> None:
        """Begin a checkpoint or a quiescence round; a task with live input waits for the barriers in its channels."""
        self._barriers.trigger(barrier)

    def abort_checkpoint(self, checkpoint: int) -> None:
        """Discard a checkpoint."""
        if self._checkpointer.abort(checkpoint) and self._current is None:
            self._finish_if_ended()  # a task can't end during a checkpoint, and its input may have ended since

    def checkpoint_completed(self, checkpoint: int) -> None:
        """All tasks have stored their snapshots."""
        self._checkpointer.completed(checkpoint)

    def quiescence_reached(self, round: int) -> None:
        """All tasks have handled the last event of the test stream."""
        self.sources.quiescence_reached(round)
        self._finish_if_ended()

    def stop_sources(self, *, drain: bool) -> None:
        """Read nothing more. `drain`: the sources end, and all windows fire."""
        self.sources.stop(drain=drain)

    def pause_sources(self, *, paused: bool) -> None:
        """Read nothing for now, or go on."""
        self.sources.pause(paused=paused)

    # -- work

    def step(self) -> bool:
        """Begin or continue an action; False if there is nothing to do now, or no credit."""
        env, outputs = self._env, self.outputs
        seconds = env.services.seconds
        urgent = self._barriers.overtakes()
        if (outputs.full and not urgent) or (self._current is not None and self._awaits_calls()):
            env.times.switch("backpressured", seconds())
            return False
        with collecting(env.context.metrics):
            if self._current is None:
                self._current = self._next_action()
            if self._current is None:
                is_held_back = self.graph.blocked or self.sources.backpressured
                env.times.switch("backpressured" if is_held_back else "idle", seconds())
                return False
            began = seconds()
            env.times.switch("busy", began)
            for _ in self._current:
                if (outputs.full and not urgent) or self._awaits_calls():
                    env.times.switch("backpressured", seconds())
                    return True
                if seconds() - began > _MAX_STEP:
                    env.times.switch("idle", seconds())
                    return True
            self._current = None
            outputs.forward_statuses(self.graph)
            self._finish_if_ended()
        env.times.switch("backpressured" if outputs.full else "idle", seconds())  # while other tasks run
        return True

    def store_checkpoint(self) -> None:
        """Store a little more of the last snapshot, without waiting."""
        self._checkpointer.store()

    def flush(self, now: int) -> None:
        """Send blocks that have waited for the buffer timeout."""
        self.outputs.flush(now)

    def next_wake(self) -> int | None:
        """When (µs of the monotonic clock) to step again if nothing arrives before. While an output channel
        lacks credit, or an action waits for calls, sources and timers don't count."""
        if (poll := self._checkpointer.next_poll()) is not None:
            return poll
        if self.ended:
            return None
        env = self._env
        now = env.monotonic()
        instants = self.outputs.flush_times()
        if (wait := self._barriers.timeout_left) is not None:
            instants.append(now + math.ceil(wait * SECOND))
        if not self.outputs.full and not (self._current is not None and self._awaits_calls()):
            instants += [] if self.graph.blocked else self.sources.poll_times()
            instants += [] if self.graph.paused else self.loops.next_wakes()
            timer = self.graph.next_clock() if env.ticks else None
            if timer is not None:
                instants.append(now + max(0, timer - env.services.clock.now()))
        return min(instants, default=None)

    def status(self) -> TaskStatus:
        """The counters, times and watermark of the task."""
        statuses = [*self.inputs.statuses, *self.sources.statuses]
        return self._env.times.status(self.id, statuses, self._env.services.seconds(), ended=self.ended)

    def metrics(self) -> MetricCells:
        """The metrics of the task."""
        return self._env.metrics

    def _pausing(self) -> bool:
        """Whether an operator that emits very much at the end of its input should pause, and resume later."""
        return self.sources.paused or self._barriers.aligned or self._barriers.overtakes()

    def _must_go_on(self) -> bool:
        """Whether the current action has to end, whatever it waits for, because a barrier is to be handled."""
        return self._pausing() or self.inputs.barrier_is_next

    def _awaits_calls(self) -> bool:
        """Whether the current action is suspended until calls outside the pipeline return.

        A quiescence barrier waits for all calls; nothing else that a barrier needs does.
        """
        if not self.graph.calls_out:
            return False
        barrier = self._barriers.current
        if barrier is not None and barrier.kind == "quiescence" and self._barriers.aligned:
            return self.graph.pending and not self.graph.has_results
        return self.graph.stuck and not self._must_go_on()

    def _next_action(self) -> Iterator[None] | None:
        """The next action; None if there is none. While calls take up all room, no block is read."""
        if self._barriers.aligned or self._barriers.overtakes():
            return self._checkpointer.handle_barrier(ended=self.ended)
        if self.ended:
            return None
        if self.graph.has_results:
            return self.graph.emitting_results()
        if self.graph.paused and not self.sources.paused:
            return self.graph.resuming()
        blocked, loops = self.graph.blocked, self.loops
        if loops and (action := loops.next(self._env.monotonic(), blocked=blocked)) is not None:
            return action
        if (channel := self.inputs.next(blocks=not blocked, held=loops.holds if loops else None)) is not None:
            loops.turn = True
            return self._handle(channel)
        if loops and not blocked and (emitting := loops.emitting()) is not None:
            return emitting
        if not blocked and (polling := self.sources.next(self.graph)) is not None:
            return loops.apart(polling)
        if self._env.ticks:
            timer, now = self.graph.next_clock(), self._env.services.clock.now()
            if timer is not None and timer <= now:
                return self.loops.apart(self.graph.ticking(now))
        return None

    def _handle(self, channel: Input) -> Iterator[None]:
        item = channel.take()
        match item:
            case Block():
                if self._env.ticks:
                    yield from self.loops.apart(self.graph.ticking(self._env.services.clock.now()))
                yield from self._enter(channel.id, item)
            case CollectionStatus():
                if item.ended:
                    self._barriers.end(channel.id)
                    self.loops.end(channel.id)
                yield from self.loops.updating(*self.inputs.update(channel.id, item))
            case Barrier():
                assert isinstance(channel, InputChannel)
                self._barriers.arrived(channel, item)
            case LoopMark() | Hops():
                self.loops.receive(channel.id, item)

    def _enter(self, channel: ChannelId, block: Block) -> Iterator[None]:
        edge = self._env.plan.edges[channel.edge]
        self._env.times.records_in += len(block)
        if edge.target in self.outputs.sinks:
            self.outputs.sinks[edge.target].write(block)
        elif self.loops:
            yield from self.loops.delivering(channel, block)
        else:
            yield from self.graph.delivering(edge, block)

    def _finish_if_ended(self) -> None:
        if self.ended or self._barriers.aligned:
            return
        ended = self.inputs.ended and self.sources.ended and self.loops.over
        if not ended or self.graph.paused or self.graph.pending:
            return
        self.ended = True
        self.outputs.finish()
        prepared: tuple[Prepared, ...] = ()
        if self._env.settings.batch:
            prepared = self.outputs.prepare_all()
        self._env.count_round(self.metrics())
        self._env.services.report(TaskEnded(self.id, prepared, self.metrics(), self.outputs.emitted))


_MAX_STEP: Final = 0.05
"""After how long (s) a task interrupts an action, so that its worker can read messages and run other tasks."""

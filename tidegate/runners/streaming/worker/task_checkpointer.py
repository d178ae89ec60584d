"""Takes part in checkpoints for a task: snapshots it at the barrier, forwards the barrier, and stores the snapshot.

A task stores at most one snapshot at a time: if the next checkpoint begins before that is done, the last was aborted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from tidegate.runners.checkpoint.state_files import UnpicklableState
from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.engine.errors.attribution import rethrow
from tidegate.runners.engine.operator_graph import Graph
from tidegate.runners.streaming.feedback.task_loops import TaskLoops
from tidegate.runners.streaming.network.codec import copied
from tidegate.runners.streaming.protocol.stream_items import Barrier
from tidegate.runners.streaming.protocol.worker_messages import Decline, QuiescencePassed
from tidegate.runners.streaming.state.backend import Capture, StateBackend
from tidegate.runners.streaming.state.writers import FailedCapture
from tidegate.runners.streaming.worker.barrier_handler import BarrierHandler
from tidegate.runners.streaming.worker.source_driver import SourceDriver
from tidegate.runners.streaming.worker.task_environment import TaskEnvironment
from tidegate.runners.streaming.worker.task_inputs import TaskInputs
from tidegate.runners.streaming.worker.task_outputs import TaskOutputs
from tidegate.runners.streaming.worker.task_snapshot import TaskSnapshot, unpicklable_state_error
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import write_failure
from tidegate.sdk.metrics import MetricCells


class TaskCheckpointer:
    """The checkpointer of one task. `backend` is None in a batch job, which has only the quiescence barriers of a test
    stream."""

    def __init__(
        self,
        env: TaskEnvironment,
        barriers: BarrierHandler,
        inputs: TaskInputs,
        sources: SourceDriver,
        graph: Graph,
        outputs: TaskOutputs,
        loops: TaskLoops,
        backend: StateBackend | None,
    ) -> None:
        self._env = env
        self._barriers = barriers
        self._inputs = inputs
        self._sources = sources
        self._graph = graph
        self._outputs = outputs
        self._loops = loops
        self._backend = backend
        self._snapshot: TaskSnapshot | None = None
        """The snapshot that is being stored."""

    # -- from the coordinator

    def abort(self, checkpoint: int) -> bool:
        """Discard a checkpoint; return whether its barrier was the current one."""
        was_current = self._barriers.abort(checkpoint)
        self._loops.pass_checkpoint(checkpoint)
        if self._snapshot is not None and self._snapshot.checkpoint == checkpoint:
            self._decline(self._snapshot)
        return was_current

    def completed(self, checkpoint: int) -> None:
        """All tasks have stored their snapshots: later ones may build on this one's files."""
        self._sources.completed(checkpoint)
        if self._backend is not None:
            self._backend.completed(checkpoint)

    # -- work

    def handle_barrier(self, *, ended: bool) -> Iterator[None]:
        """Handle the current barrier, which is aligned or overtakes the data: snapshot the task, except for a
        quiescence barrier, and forward the barrier. `ended`: the task has no more to do."""
        barrier = self._barriers.current
        assert barrier is not None
        started = self._env.services.seconds()
        yield from self._graph.ending_bundles()
        if barrier.clock is not None:
            yield from self._loops.apart(self._graph.ticking(barrier.clock))
        self._outputs.forward_statuses(self._graph)
        if self._barriers.current is not barrier:
            return  # aborted while blocks of the bundle waited for credit
        if barrier.kind == "quiescence":
            while self._graph.pending:
                yield from self._graph.emitting_results()
                if self._graph.pending:
                    yield  # the task is suspended until calls have returned
            self._outputs.forward_statuses(self._graph)
            self._outputs.forward(barrier, self._barriers.overtakable)
            self._barriers.done()
            moved = self._loops.passed_quiescence()
            self._env.services.report(QuiescencePassed(barrier.checkpoint, self._env.task, moved))
            return
        if not self._barriers.aligned:
            barrier = replace(barrier, unaligned=True)
        since = self._barriers.since
        self._snapshot_task(barrier, 0.0 if since is None else started - since, ended=ended)

    def store(self) -> None:
        """Store a little more of the snapshot without blocking, and acknowledge it when that is done."""
        snapshot, services = self._snapshot, self._env.services
        if snapshot is None:
            return
        try:
            handle = snapshot.poll(services.store)
        except OSError as error:
            self._snapshot = None
            snapshot.abandon()
            why = f"its state can't be stored: {write_failure(error, 'another --checkpoint_dir')}"
            services.report(Decline(snapshot.checkpoint, self._env.task, why, self._outputs.staged.take()))
        except UnpicklableState as error:
            rethrow(unpicklable_state_error(error, self._env.steps))
        else:
            if handle is not None:
                self._snapshot = None
                services.report(snapshot.acknowledge(handle, services.seconds()))

    def next_poll(self) -> int | None:
        """When (µs of the monotonic clock) to poll the snapshot again; None if no poll is needed."""
        if self._snapshot is None or self._snapshot.waiting:
            return None
        return self._env.monotonic() + _POLL_INTERVAL

    def close(self) -> None:
        """Discard a snapshot that is not stored yet, and release the state backend."""
        if self._snapshot is not None:
            self._snapshot.abandon()
        if self._backend is not None:
            self._backend.close()

    def _snapshot_task(self, barrier: Barrier, alignment: float, *, ended: bool) -> None:
        env = self._env
        started = env.services.seconds()
        if self._snapshot is not None:  # its checkpoint was aborted, and that message has not arrived yet
            self._decline(self._snapshot)
        self._loops.pass_checkpoint(barrier.checkpoint - 1)
        missing, recorded = self._barriers.missing, self._loops.recorded()
        name = f"chk-{barrier.checkpoint:06}/{env.task}.{env.attempt}"
        prepared = self._outputs.prepare(last=ended)
        splits = self._sources.progress(barrier.checkpoint)
        self._barriers.done()
        capture = self._capture(barrier, f"{name}.data")
        self._outputs.staged.add(prepared)  # after the capture, which can't fork while files are stored by a thread
        metrics = MetricCells()
        metrics.merge(env.context.metrics)
        self._snapshot = snapshot = TaskSnapshot(
            checkpoint=barrier.checkpoint,
            task=env.task,
            name=f"{name}.state",
            capture=capture,
            output=self._outputs.staged,
            splits=splits,
            statuses=self._graph.step_statuses(),
            metrics=metrics,
            clock=env.services.clock.now(),
            ended=ended,
            started=started,
            alignment=alignment,
            missing={*missing, *(channel.id for channel in recorded)},
            hops=self._loops.hops,
        )
        for channel, head in recorded.items():  # before the barrier can come round
            note = partial(snapshot.add_fed_back, head)
            channel.record_feedback(barrier.checkpoint, note, partial(snapshot.done, channel.id))
        self._loops.pass_checkpoint(barrier.checkpoint)
        for id, blocks in self._outputs.forward(barrier, self._barriers.overtakable).items():
            snapshot.outgoing[id] = [self._in_flight(id, block) for block in blocks]
        snapshot.paused = env.services.seconds() - started
        for id in missing:
            self._inputs.pipelined(id).record(
                barrier.checkpoint, partial(self._record, snapshot, id), partial(snapshot.done, id)
            )
        self.store()

    def _capture(self, barrier: Barrier, name: str) -> Capture:
        assert self._backend is not None
        try:
            return self._backend.capture(barrier.checkpoint, name, whole=barrier.kind == "savepoint")
        except UnpicklableState as error:
            rethrow(unpicklable_state_error(error, self._env.steps))
        except OSError as error:
            return FailedCapture(error)

    def _record(self, snapshot: TaskSnapshot, channel: ChannelId, block: Block) -> None:
        snapshot.add_in_flight(channel, self._in_flight(channel, block))

    def _in_flight(self, channel: ChannelId, block: Block) -> Block:
        """A block for a snapshot: copied if a merge may change its accumulators before the snapshot is written."""
        plan = self._env.plan
        merged = plan.steps[plan.edges[channel.edge].target].phase == "merge"
        return copied(block) if merged else block

    def _decline(self, snapshot: TaskSnapshot) -> None:
        """Discard a snapshot that is not stored yet, and return the committables of its sinks to the coordinator, if
        the files that they stage are stored. The others are part of the task's next snapshot."""
        for id in snapshot.missing:
            self._inputs.pipelined(id).stop_recording()
        snapshot.abandon()
        self._env.services.report(Decline(snapshot.checkpoint, self._env.task, "aborted", self._outputs.staged.take()))
        self._snapshot = None


_POLL_INTERVAL: Final = 1_000
"""How long (µs) a task waits before it polls the snapshot again that is being stored."""

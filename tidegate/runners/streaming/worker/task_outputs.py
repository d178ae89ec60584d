"""The output side of a task: its partitioners and channels, the results stored for later regions, and its sinks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.engine.errors.attribution import located, quietly, rethrow
from tidegate.runners.engine.operator_graph import Graph, Outlet
from tidegate.runners.engine.sinks.writer import SinkWriter
from tidegate.runners.exchange.stream_partitioner import Partitioner, Target
from tidegate.runners.plan import Edge, Step
from tidegate.runners.streaming.network.blocking_exchange import (
    SubpartitionTarget,
    SubpartitionWriter,
    stored_channel,
    subpartition_file,
)
from tidegate.runners.streaming.network.channels import OutputChannel
from tidegate.runners.streaming.protocol.stream_items import Barrier
from tidegate.runners.streaming.protocol.worker_messages import Prepared
from tidegate.runners.streaming.state.staged_output import StagedOutput
from tidegate.runners.streaming.worker.task_environment import TaskEnvironment
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import PicklingError, RunError, WriteError, write_failure
from tidegate.sdk.portable.model import Write
from tidegate.sdk.time import SECOND


class TaskOutputs:
    """The sending ends of all channels out of a task. `pipelined` returns the end of a channel between running tasks;
    the writers of blocking exchanges are made here."""

    def __init__(self, env: TaskEnvironment, pipelined: Callable[[ChannelId], OutputChannel]) -> None:
        self._env = env
        self.channels: dict[ChannelId, OutputChannel] = {}
        self.sinks = {step.id: _writer(env, step) for step in env.plan.stage_steps(env.task.stage) if step.is_sink}
        self.staged = StagedOutput(env.services.staged, env.attempt, env.task)
        self._full: set[ChannelId] = set()
        self._subpartitions: list[SubpartitionWriter] = []
        self._partitioners: dict[str, list[Partitioner]] = {}
        self.before_write: Callable[[Partitioner, Block], None] | None = None
        """Called before each block that is partitioned, if there are feedback loops."""
        self._emitted: dict[str, int] = {}
        """How many elements have been emitted of each collection that leaves the body of a loop."""
        for number, edge in env.job.topology.edges_out_of(env.task.stage):
            if edge.files is not None or (edge.turn == "solution" and env.loop is not None):
                continue
            targets: list[Target] = []
            for id in env.job.topology.channels_out_of(env.task, number):
                if edge.pipelined:
                    channel = self.channels[id] = pipelined(id)
                    channel.all_full = self._full
                    targets.append(channel)
                elif stored_channel(id, edge) == id:
                    self._subpartitions.append(_subpartition(env, id, edge))
                    targets.append(SubpartitionTarget(self._subpartitions[-1]))
            partitioner = Partitioner(env.plan, edge, env.task.index, targets, env.settings.max_parallelism)
            self._partitioners.setdefault(edge.collection, []).append(partitioner)

    @property
    def full(self) -> bool:
        """True while a channel has no credit left: the task should emit no more."""
        return bool(self._full)

    def outlets(self) -> dict[str, list[Outlet]]:
        """The receivers of each collection that leaves the operators of the task."""
        plan = self._env.plan
        outlets: dict[str, list[Outlet]] = {}
        for step in plan.stage_steps(self._env.task.stage):
            for edge in plan.outputs(step.id):
                if edge.exchange is None and edge.target in self.sinks:
                    outlets.setdefault(edge.collection, []).append(self.sinks[edge.target].write)
        for collection, partitioners in self._partitioners.items():
            outlets.setdefault(collection, []).extend(map(self._outlet, partitioners))
        if (loop := self._env.loop) is not None:
            results = {part for parts in loop.results.values() for part in parts}
            for step in plan.stage_steps(self._env.task.stage):
                for part in results.intersection(out.collection for out in step.tail.outputs):
                    if step.phase != "parts":
                        outlets.setdefault(part, []).append(partial(self._count, part))
        return outlets

    @property
    def emitted(self) -> tuple[tuple[str, int], ...]:
        """How many elements have been emitted of each collection that leaves the body of a loop."""
        return tuple(self._emitted.items())

    def _count(self, collection: str, block: Block) -> None:
        self._emitted[collection] = self._emitted.get(collection, 0) + len(block)

    def forward_statuses(self, graph: Graph) -> None:
        """Send the current status of every collection that leaves the task. A batch job forwards only the end."""
        now = self._env.monotonic()
        for collection, partitioners in self._partitioners.items():
            status = graph.status(collection)
            if status.ended or self._env.timely:
                for partitioner in partitioners:
                    partitioner.send_status(status, now)

    def forward(self, barrier: Barrier, overtakable: Callable[[ChannelId], bool]) -> dict[ChannelId, list[Block]]:
        """Send a barrier on every channel that has not ended; returns the blocks that it has overtaken, by channel. An
        unaligned barrier overtakes the blocks that wait for credit on `overtakable` channels."""
        overtaken: dict[ChannelId, list[Block]] = {}
        for id, channel in self.channels.items():
            if channel.ended:
                continue
            if barrier.unaligned and overtakable(id):
                overtaken[id] = channel.overtake(barrier)
            else:
                channel.event(barrier)
        return overtaken

    def flush(self, now: int) -> None:
        """Send blocks that have been buffered for the buffer timeout, unless the channel lacks credit."""
        timeout = self._env.settings.buffer_timeout
        if timeout < 0:
            return
        for channel in self.channels.values():
            if channel.since is not None and not channel.full and now - channel.since >= timeout * SECOND:
                channel.flush()

    def flush_times(self) -> list[int]:
        """When (µs of the monotonic clock) the buffer timeout of each channel with buffered blocks expires."""
        timeout = self._env.settings.buffer_timeout
        if timeout < 0:
            return []
        waiting = (each.since for each in self.channels.values() if each.since is not None and not each.full)
        return [since + math.ceil(timeout * SECOND) for since in waiting]

    def prepare(self, *, last: bool) -> tuple[Prepared, ...]:
        """Prepare the output of the sinks since the last call. `last`: they will write no more."""
        index = self._env.task.index
        return tuple(Prepared(sink.step.label, sink.prepare(last=last), index) for sink in self.sinks.values())

    def prepare_all(self) -> tuple[Prepared, ...]:
        """Prepare all the output of the sinks of a bounded job, and store the files that they stage."""
        try:
            self.staged.add(self.prepare(last=True))
            self.staged.poll()
        except OSError as error:
            steps = ", ".join(repr(sink.step.label) for sink in self.sinks.values())
            why = write_failure(error, "another --temp_dir")
            raise WriteError(f"the files that {steps} has staged can't be stored: {why}") from error
        return self.staged.take()

    def restore(self, in_flight: Mapping[ChannelId, Sequence[Block]]) -> None:
        """Send the blocks that were still buffered when a snapshot was taken, partitioned again: after a rescaling,
        keys belong to other tasks."""
        now = self._env.monotonic()
        for id, blocks in in_flight.items():
            edge = self._env.plan.edges[id.edge]
            (partitioner,) = [each for each in self._partitioners[edge.collection] if each.edge is edge]
            for block in blocks:
                if id in self.channels and edge.exchange is not None and edge.exchange.routing != "hash":
                    self.channels[id].add(block, now)
                else:
                    partitioner.write(block, now)

    def finish(self) -> None:
        """Complete the stored results. RunError if there is no room for them."""
        for subpartition in self._subpartitions:
            subpartition.finish()

    def abandon(self) -> None:
        """Discard the output that is not prepared yet, and the stored results."""
        for sink in self.sinks.values():
            sink.abandon()
        self.staged.abandon()
        for subpartition in self._subpartitions:
            quietly(subpartition.abandon)

    def _outlet(self, partitioner: Partitioner) -> Outlet:
        env = self._env
        step = env.plan.steps[partitioner.edge.source]

        def outlet(block: Block) -> None:
            env.times.records_out += len(block)
            if self.before_write is not None:
                self.before_write(partitioner, block)
            try:
                partitioner.write(block, env.monotonic())
            except (PicklingError, RunError) as error:  # of a blocking exchange; for others the worker names the step
                rethrow(located(error, step.label, step.tail.where))

        return outlet


def _subpartition(env: TaskEnvironment, id: ChannelId, edge: Edge) -> SubpartitionWriter:
    """The writer of a blocking channel. It removes what no round of a loop needs any more: a round reads what the one
    before has left, and may run again."""
    directory, round = env.services.directory(), env.round
    unneeded = {"back": round - 2, "last": round - 2, "all": 0}.get(edge.turn or "", round - 1)
    if unneeded > 0:
        (directory / subpartition_file(id, unneeded)).unlink(missing_ok=True)
    return SubpartitionWriter(directory, id, env.attempt, round)


def _writer(env: TaskEnvironment, step: Step) -> SinkWriter:
    node = step.tail
    assert isinstance(node, Write)
    index, parallelism = env.task.index, env.job.topology.parallelism(env.task.stage)
    shards = list(range(index, node.shards, parallelism)) if node.shards else [index]
    return SinkWriter(step, env.job.output_run, shards, always=bool(node.shards) or index == 0)

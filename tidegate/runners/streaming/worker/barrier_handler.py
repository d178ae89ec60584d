"""Handles the barriers of a task: blocks channels during alignment, and decides when a barrier overtakes the data.

`BarrierAlignment` records which channels have delivered the barrier; this module acts on it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.network.blocking_exchange import SubpartitionReader
from tidegate.runners.streaming.network.channels import InputChannel
from tidegate.runners.streaming.protocol.stream_items import Barrier
from tidegate.runners.streaming.worker.barrier_alignment import BarrierAlignment
from tidegate.runners.streaming.worker.environment import WorkerServices


class BarrierHandler:
    """Handles the barriers of one task, over all its `inputs`."""

    def __init__(
        self, job: Job, services: WorkerServices, inputs: Mapping[ChannelId, InputChannel | SubpartitionReader]
    ) -> None:
        self._job = job
        self._services = services
        self._inputs = inputs
        self._alignment = BarrierAlignment(inputs)
        self._since: float | None = None

    @property
    def current(self) -> Barrier | None:
        """The current barrier; None between checkpoints."""
        return self._alignment.barrier

    @property
    def aligned(self) -> bool:
        """True once the barrier has arrived on every live channel."""
        return self._alignment.aligned

    @property
    def missing(self) -> frozenset[ChannelId]:
        """The live channels that have not delivered the barrier yet."""
        return self._alignment.missing

    @property
    def since(self) -> float | None:
        """When (seconds) the alignment began; None between checkpoints."""
        return self._since

    @property
    def timeout_left(self) -> float | None:
        """Seconds until the current barrier becomes unaligned and overtakes the data; None if it never does, or is
        unaligned already."""
        barrier, timeout = self._alignment.barrier, self._job.settings.checkpoints.alignment_timeout
        if barrier is None or barrier.unaligned or timeout is None or self._since is None:
            return None
        if not self._may_overtake(barrier):
            return None
        return max(0.0, self._since + timeout - self._services.seconds())

    def arrived(self, channel: InputChannel, barrier: Barrier) -> None:
        """Record a barrier of a channel and block the channel, unless its checkpoint is complete or aborted."""
        before = self._alignment.barrier
        if self._alignment.arrive(channel.id, barrier):
            self._begin(before)
            channel.blocked = True

    def trigger(self, barrier: Barrier) -> None:
        """Begin a checkpoint or a quiescence round; a task with live input waits for the barriers in its channels."""
        before = self._alignment.barrier
        if self._alignment.trigger(barrier):
            self._begin(before)

    def end(self, channel: ChannelId) -> None:
        """Record the end of a channel: it delivers no more barriers."""
        self._alignment.end(channel)

    def done(self) -> None:
        """The task has handled the barrier: unblock its channels."""
        self._alignment.done()
        self._unblock()

    def abort(self, checkpoint: int) -> bool:
        """Abort a checkpoint; return whether its barrier was the current one."""
        if not self._alignment.abort(checkpoint):
            return False
        self._unblock()
        return True

    def overtakes(self) -> bool:
        """Whether the current barrier overtakes the data of the channels that are missing."""
        barrier = self._alignment.barrier
        if barrier is None or not self._may_overtake(barrier):
            return False
        return barrier.unaligned or self.timeout_left == 0.0

    def _may_overtake(self, barrier: Barrier) -> bool:
        """Whether a barrier has arrived on some channel, and may overtake the data of every missing one."""
        if barrier.kind != "checkpoint" or not self._alignment.started:
            return False
        return all(self.overtakable(id) for id in self._alignment.missing)

    def overtakable(self, channel: ChannelId) -> bool:
        """Whether a barrier may overtake the data in a channel: only data that can be partitioned again."""
        edge = self._job.plan.edges[channel.edge]
        if edge in self._job.counting:  # the events that count would be overtaken as well
            return False
        return edge.pipelined and edge.exchange is not None and edge.exchange.routing in ("hash", "rebalance")

    def _begin(self, before: Barrier | None) -> None:
        barrier = self._alignment.barrier
        assert barrier is not None
        if before is not None and before.checkpoint < barrier.checkpoint:
            self._unblock()  # the previous checkpoint was aborted, and that message has not arrived yet
        if self._since is None:
            self._since = self._services.seconds()

    def _unblock(self) -> None:
        self._since = None
        for channel in self._inputs.values():
            if isinstance(channel, InputChannel):
                channel.blocked = False

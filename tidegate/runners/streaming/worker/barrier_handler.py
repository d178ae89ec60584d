"""The barriers that come to a task: the channels they block meanwhile, and those that a barrier may overtake.

What has come where is for `alignment` to know; here is what follows from it for the task's inputs.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.topology import ChannelId
from tidegate.runners.streaming.network.blocking_exchange import RunReader
from tidegate.runners.streaming.network.channels import InputChannel
from tidegate.runners.streaming.protocol.stream_items import Barrier
from tidegate.runners.streaming.worker.barrier_alignment import Alignment
from tidegate.runners.streaming.worker.environment import World


class Barriers:
    """Those of one task, over all its `inputs`."""

    def __init__(self, job: Job, world: World, inputs: Mapping[ChannelId, InputChannel | RunReader]) -> None:
        self._job = job
        self._world = world
        self._inputs = inputs
        self._alignment = Alignment(inputs)
        self._since: float | None = None

    @property
    def current(self) -> Barrier | None:
        """The one under way; None between checkpoints."""
        return self._alignment.barrier

    @property
    def aligned(self) -> bool:
        """Whether it has come wherever it will come from."""
        return self._alignment.aligned

    @property
    def missing(self) -> frozenset[ChannelId]:
        """The channels on which it is still to come."""
        return self._alignment.missing

    @property
    def since(self) -> float | None:
        """When (seconds) the alignment began; None between checkpoints."""
        return self._since

    @property
    def patience(self) -> float | None:
        """After how many seconds the barrier under way waits no longer, neither for those that are missing nor for
        credit; None: it never did, or waits for as long as it takes."""
        barrier, timeout = self._alignment.barrier, self._job.settings.checkpoints.alignment_timeout
        if barrier is None or barrier.unaligned or timeout is None or self._since is None:
            return None
        if not self._may_overtake(barrier):
            return None
        return max(0.0, self._since + timeout - self._world.seconds())

    def arrived(self, channel: InputChannel, barrier: Barrier) -> None:
        """A barrier has come on a channel, which waits now, unless its checkpoint is over or given up."""
        before = self._alignment.barrier
        if self._alignment.arrive(channel.id, barrier):
            self._begin(before)
            channel.blocked = True

    def trigger(self, barrier: Barrier) -> None:
        """The coordinator begins a checkpoint or a settling; a task with live input waits for its barriers."""
        before = self._alignment.barrier
        if self._alignment.trigger(barrier):
            self._begin(before)

    def end(self, channel: ChannelId) -> None:
        """A channel has ended: no barrier will come from there."""
        self._alignment.end(channel)

    def done(self) -> None:
        """The task has taken its part: channels that waited go on."""
        self._alignment.done()
        self._unblock()

    def abort(self, checkpoint: int) -> bool:
        """A checkpoint is given up; whether it was under way here."""
        if not self._alignment.abort(checkpoint):
            return False
        self._unblock()
        return True

    def overtakes(self) -> bool:
        """Whether a barrier is here that need not wait for those that are missing."""
        barrier = self._alignment.barrier
        if barrier is None or not self._may_overtake(barrier):
            return False
        return barrier.unaligned or self.patience == 0.0

    def _may_overtake(self, barrier: Barrier) -> bool:
        """Whether it is one that may, and is here."""
        if barrier.kind != "checkpoint" or not self._alignment.started:
            return False
        return all(self.overtakable(id) for id in self._alignment.missing)

    def overtakable(self, channel: ChannelId) -> bool:
        """Whether a barrier may pass what waits in a channel: what was overtaken can be dealt out anew."""
        edge = self._job.plan.edges[channel.edge]
        return edge.pipelined and edge.exchange is not None and edge.exchange.routing in ("hash", "rebalance")

    def _begin(self, before: Barrier | None) -> None:
        barrier = self._alignment.barrier
        assert barrier is not None
        if before is not None and before.checkpoint < barrier.checkpoint:
            self._unblock()  # the one before is given up, of which the word has not come yet
        if self._since is None:
            self._since = self._world.seconds()

    def _unblock(self) -> None:
        self._since = None
        for channel in self._inputs.values():
            if isinstance(channel, InputChannel):
                channel.blocked = False

"""When a task takes its part of a checkpoint: pure bookkeeping of the barriers that have come on its channels.

After Carbone et al., "Lightweight Asynchronous Snapshots for Distributed Dataflows": a channel on which the barrier
has come is left alone until it has come on all; a channel that has ended counts as one on which it has. A task whose
input has ended, or that has none, begins when the coordinator says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.runners.streaming.model.topology import ChannelId
from tidegate.runners.streaming.protocol.stream_items import Barrier


class Alignment:
    """The barriers of one task. `barrier` is the one under way, None between checkpoints."""

    def __init__(self, channels: Iterable[ChannelId]) -> None:
        self._live = set(channels)
        self._arrived: set[ChannelId] = set()
        self._done = 0
        self._settled = 0
        self.barrier: Barrier | None = None

    @property
    def aligned(self) -> bool:
        """Whether the barrier under way has come wherever it will come from."""
        return self.barrier is not None and self._live <= self._arrived

    @property
    def started(self) -> bool:
        """Whether a barrier is here, or none is needed: with live input the coordinator's word alone is not enough."""
        return self.barrier is not None and (bool(self._arrived) or not self._live)

    @property
    def arrived(self) -> frozenset[ChannelId]:
        """The channels to be left alone until the barrier has come on all."""
        return frozenset(self._arrived)

    @property
    def missing(self) -> frozenset[ChannelId]:
        """The channels on which it is still to come."""
        return frozenset(self._live - self._arrived)

    def arrive(self, channel: ChannelId, barrier: Barrier) -> bool:
        """A barrier has come on a channel; False if it belongs to a checkpoint that is over or given up."""
        if not self._begin(barrier):
            return False
        self._arrived.add(channel)
        return True

    def trigger(self, barrier: Barrier) -> bool:
        """The coordinator begins a checkpoint; False if it is over."""
        return self._begin(barrier)

    def end(self, channel: ChannelId) -> None:
        """A channel has ended: no barrier will come from there."""
        self._live.discard(channel)
        self._arrived.discard(channel)

    def done(self) -> None:
        """The task has taken its part, or the checkpoint is given up: channels that waited go on."""
        assert self.barrier is not None
        if self.barrier.kind == "settle":
            self._settled = self.barrier.checkpoint
        else:
            self._done = self.barrier.checkpoint
        self.barrier = None
        self._arrived.clear()

    def abort(self, checkpoint: int) -> bool:
        """A checkpoint is given up; whether it was under way here. Its barriers mean nothing from now on."""
        if self.barrier is not None and self.barrier.kind != "settle" and self.barrier.checkpoint == checkpoint:
            self.done()
            return True
        self._done = max(self._done, checkpoint)
        return False

    def _begin(self, barrier: Barrier) -> bool:
        if barrier.checkpoint <= (self._settled if barrier.kind == "settle" else self._done):
            return False
        if self.barrier is None or self.barrier.checkpoint < barrier.checkpoint:
            if self.barrier is not None:  # given up, of which the word has not come yet
                self.done()
            self.barrier = barrier
        elif barrier.checkpoint < self.barrier.checkpoint:
            return False  # given up, of which the word has not come yet
        elif self.barrier.clock is None and barrier.clock is not None:
            self.barrier = barrier
        return True

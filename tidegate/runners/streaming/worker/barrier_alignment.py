"""Barrier alignment: which channels of a task have delivered the current barrier. Pure bookkeeping, no I/O.

After Carbone et al., "Lightweight Asynchronous Snapshots for Distributed Dataflows": a channel that has delivered the
barrier is not read until every other channel has delivered it, too; a channel that has ended counts as delivered. A
task without live input begins its snapshot when the coordinator triggers it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.streaming.protocol.stream_items import Barrier


class BarrierAlignment:
    """The alignment of one task. `barrier` is the current one, None between checkpoints.

    >>> left, right = ChannelId(0, 0, 0), ChannelId(0, 1, 0)
    >>> alignment = BarrierAlignment([left, right])
    >>> alignment.arrive(left, Barrier(1))
    True
    >>> alignment.aligned
    False
    >>> alignment.end(right)
    >>> alignment.aligned
    True
    """

    def __init__(self, channels: Iterable[ChannelId]) -> None:
        self._live = set(channels)
        self._arrived: set[ChannelId] = set()
        self._last_checkpoint = 0
        self._last_round = 0
        self.barrier: Barrier | None = None

    @property
    def aligned(self) -> bool:
        """True once the barrier has arrived on every live channel."""
        return self.barrier is not None and self._live <= self._arrived

    @property
    def started(self) -> bool:
        """True once the barrier has arrived on one channel, or was triggered and no channel is live."""
        return self.barrier is not None and (bool(self._arrived) or not self._live)

    @property
    def arrived(self) -> frozenset[ChannelId]:
        """The channels that have delivered the barrier, and are not read until all have."""
        return frozenset(self._arrived)

    @property
    def missing(self) -> frozenset[ChannelId]:
        """The live channels that have not delivered the barrier yet."""
        return frozenset(self._live - self._arrived)

    def arrive(self, channel: ChannelId, barrier: Barrier) -> bool:
        """Record a barrier of a channel; False if its checkpoint is complete or aborted."""
        if not self._begin(barrier):
            return False
        self._arrived.add(channel)
        return True

    def trigger(self, barrier: Barrier) -> bool:
        """Record a barrier triggered by the coordinator; False if its checkpoint is complete or aborted."""
        return self._begin(barrier)

    def end(self, channel: ChannelId) -> None:
        """Record the end of a channel: it delivers no more barriers."""
        self._live.discard(channel)
        self._arrived.discard(channel)

    def done(self) -> None:
        """Forget the current barrier: the task has handled it, or its checkpoint was aborted."""
        assert self.barrier is not None
        if self.barrier.kind == "quiescence":
            self._last_round = self.barrier.checkpoint
        else:
            self._last_checkpoint = self.barrier.checkpoint
        self.barrier = None
        self._arrived.clear()

    def abort(self, checkpoint: int) -> bool:
        """Abort a checkpoint, and ignore its barriers from now on; return whether its barrier was the current one."""
        if self.barrier is not None and self.barrier.kind != "quiescence" and self.barrier.checkpoint == checkpoint:
            self.done()
            return True
        self._last_checkpoint = max(self._last_checkpoint, checkpoint)
        return False

    def _begin(self, barrier: Barrier) -> bool:
        if barrier.checkpoint <= (self._last_round if barrier.kind == "quiescence" else self._last_checkpoint):
            return False
        if self.barrier is None or self.barrier.checkpoint < barrier.checkpoint:
            if self.barrier is not None:  # aborted, but that message has not arrived yet
                self.done()
            self.barrier = barrier
        elif barrier.checkpoint < self.barrier.checkpoint:
            return False  # aborted, but that message has not arrived yet
        elif self.barrier.clock is None and barrier.clock is not None:
            self.barrier = barrier
        return True

"""The input side of a task: its channels, which are read in turn, and the watermark of each input collection.

The watermark of a collection is the minimum over the channels that carry it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.engine.time.watermarks import CollectionStatus, MinWatermark
from tidegate.runners.plan import Edge
from tidegate.runners.streaming.feedback.channel import FeedbackChannel
from tidegate.runners.streaming.network.blocking_exchange import SubpartitionReader, stored_channel
from tidegate.runners.streaming.network.channels import InputChannel
from tidegate.runners.streaming.protocol.stream_items import Barrier
from tidegate.runners.streaming.worker.task_environment import TaskEnvironment
from tidegate.sdk.authoring.combine import PairwiseFn
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import CombinePerKey

Input: TypeAlias = InputChannel | SubpartitionReader


class TaskInputs:
    """The receiving ends of all channels into a task. `pipelined` returns the end of a channel between running tasks;
    the readers of blocking exchanges are made here."""

    def __init__(self, env: TaskEnvironment, pipelined: Callable[[ChannelId], InputChannel]) -> None:
        self.channels: dict[ChannelId, Input] = {}
        self.feedback: dict[ChannelId, FeedbackChannel] = {}
        """The channels that lead back to the heads of loops: they take what comes at once, and are not read in turn."""
        self._statuses: dict[str, dict[ChannelId, CollectionStatus]] = {}
        self._stored_sides: list[Input] = []
        self._plan = env.plan
        topology = env.job.topology
        for id in topology.channels_into(env.task):
            edge = self._plan.edges[id.edge]
            if self._plan.feeds_back(edge):
                back = pipelined(id)
                assert isinstance(back, FeedbackChannel)
                self.feedback[id] = back
                continue
            if not self._reads(env, edge):
                continue
            channel = pipelined(id) if edge.pipelined else _reader(env, id, edge)
            self.channels[id] = channel
            self._statuses.setdefault(edge.received, {})[id] = CollectionStatus()
            if edge.side is not None and not edge.pipelined:
                self._stored_sides.append(channel)
        for _, edge in topology.edges_into(env.task.stage):
            if not self._plan.feeds_back(edge):
                self._statuses.setdefault(edge.received, {})
        self._minima = {collection: MinWatermark() for collection in self._statuses}
        self._order = list(self.channels.values())
        self._turn = 0

    @property
    def unfed(self) -> list[str]:
        """The collections that no channel carries here: a forward exchange from fewer tasks leaves some tasks out, and
        of what is kept for all rounds of a loop nothing comes again."""
        return [collection for collection, statuses in self._statuses.items() if not statuses]

    @property
    def ended(self) -> bool:
        """True once every channel has ended."""
        return all(status.ended for statuses in self._statuses.values() for status in statuses.values())

    @property
    def statuses(self) -> list[CollectionStatus]:
        """The status of each input collection; idle if every channel that carries it is idle or has ended."""
        return [
            CollectionStatus(minimum.watermark, idle=all(each.idle or each.ended for each in channels.values()))
            for minimum, channels in zip(self._minima.values(), self._statuses.values(), strict=True)
        ]

    @property
    def barrier_is_next(self) -> bool:
        """Whether the next item of some channel is a barrier."""
        return any(channel.ready and channel.next_is(Barrier) for channel in self._order)

    def next(self, *, blocks: bool = True, held: Callable[[ChannelId], bool] | None = None) -> Input | None:
        """The next channel to read, in turn; side inputs from blocking exchanges come before all others. `blocks`:
        whether its next item may be a block; `held` are channels of which it may not."""

        def may_read(channel: Input) -> bool:
            if not channel.ready or not channel.next_is(Block):
                return channel.ready
            return blocks and not (held is not None and held(channel.id))

        for side in self._stored_sides:
            if may_read(side):
                return side
        order = self._order
        for offset in range(len(order)):
            at = (self._turn + offset) % len(order)
            if may_read(order[at]):
                self._turn = at + 1
                return order[at]
        return None

    def update(self, channel: ChannelId, status: CollectionStatus) -> tuple[str, CollectionStatus]:
        """Record the status of one channel; returns its collection, and the status of that over all its channels."""
        collection = self._plan.edges[channel.edge].received
        statuses = self._statuses[collection]
        watermark = max(status.watermark, statuses[channel].watermark)
        statuses[channel] = CollectionStatus(watermark, status.idle, status.ended)
        return collection, self._minima[collection].of(statuses)

    def pipelined(self, id: ChannelId) -> InputChannel:
        """A channel between running tasks."""
        channel = self.feedback.get(id) or self.channels[id]
        assert isinstance(channel, InputChannel)
        return channel

    def restore(self, in_flight: Mapping[ChannelId, Sequence[Block]]) -> None:
        """Put back blocks that were in flight when a snapshot was taken. The results of finished regions are skipped:
        the state includes them already."""
        for id, blocks in in_flight.items():
            self.pipelined(id).put_back(blocks)
        for channel in self.channels.values():
            if isinstance(channel, SubpartitionReader):
                channel.skip()

    def _reads(self, env: TaskEnvironment, edge: Edge) -> bool:
        """Whether anything comes through an edge: in this round of the loop, if the task is in its body."""
        if env.cache is not None and env.cache.keeps(self._plan.steps[edge.target], edge.received):
            return False
        return edge.pipelined or bool(env.stored_rounds(edge))


def _may_change_values(env: TaskEnvironment) -> bool:
    """Whether a step of the task combines by a function of two values, which may change the first of them."""
    tails = (step.tail for step in env.plan.stage_steps(env.task.stage))
    return any(isinstance(tail, CombinePerKey) and isinstance(tail.fn.load(), PairwiseFn) for tail in tails)


def _reader(env: TaskEnvironment, id: ChannelId, edge: Edge) -> SubpartitionReader:
    reader = SubpartitionReader(env.services.directory(), id, stored_channel(id, edge), env.stored_rounds(edge))
    if edge.turn == "solution":
        left = env.left
        assert left is not None
        reader.pass_through(lambda stored: left(id))
    if env.cache is not None and env.is_constant(edge) and not _may_change_values(env):
        channels = sum(env.is_constant(env.plan.edges[each.edge]) for each in env.job.topology.channels_into(env.task))
        budget = env.context.memory_budget // (4 * channels)
        reader.pass_through(partial(env.cache.kept_blocks, id, budget=budget))
    return reader

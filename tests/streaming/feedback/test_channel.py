"""A channel that leads back takes everything, records what a barrier follows, and keeps apart what follows one."""

from __future__ import annotations

from pathlib import Path

from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.engine.iteration.backlog import Backlog
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.streaming.feedback.channel import FeedbackChannel
from tidegate.runners.streaming.protocol.stream_items import Barrier, Hops, LoopMark
from tidegate.sdk.data.block import Block

ID = ChannelId(1, 0, 0)


class Head:
    """Receives what comes round."""

    def __init__(self) -> None:
        self.passed = 0
        self.events: list[object] = []

    def later(self) -> Backlog:
        return Backlog(1_000, Path)

    def add(self, block: Block, hops: int) -> None:
        self.events += [(value, hops) for value in block.values]

    def returned(self, channel: ChannelId, mark: LoopMark) -> None:
        self.events.append(mark.number)

    def channel_ended(self, channel: ChannelId) -> None:
        self.events.append("end")


def block(text: str) -> Block:
    return Block(list(text), 0)


def test_everything_is_taken_at_once_and_credit_is_granted() -> None:
    granted: list[int] = []
    channel, head = FeedbackChannel(ID, 2, granted.append), Head()
    channel.put([block("a"), LoopMark(0, 1, 0)])
    assert (head.events, granted) == ([], [])  # there is no head yet
    channel.attach(head)
    channel.put([block("bc"), Hops(3), block("d"), CollectionStatus(5), CollectionStatus(ended=True)])
    assert head.events == [("a", 1), 1, ("b", 1), ("c", 1), ("d", 4), "end"]
    assert (granted, channel.ended) == ([1, 2], True)


def test_what_comes_ahead_of_the_barrier_is_recorded() -> None:
    channel, head = FeedbackChannel(ID, 2, lambda credit: None), Head()
    channel.attach(head)
    recorded, done = [], []
    channel.put([block("a")])
    head.passed = 7
    channel.record_feedback(7, lambda b, hops: recorded.append((b.values, hops)), lambda: done.append(7))
    channel.put([block("b"), Barrier(6), Barrier(3, "quiescence"), block("c"), Barrier(7), block("d")])
    assert recorded == [(["b"], 1), (["c"], 1)]
    assert done == [7]
    assert [value for value, _ in head.events] == list("abcd")  # type: ignore[misc]


def test_what_follows_an_early_barrier_waits_for_the_snapshot() -> None:
    channel, head = FeedbackChannel(ID, 2, lambda credit: None), Head()
    channel.attach(head)
    channel.put([block("a"), Barrier(7, unaligned=True), block("b"), LoopMark(0, 1, 0)])
    assert head.events == [("a", 1)]
    recorded, done = [], []
    channel.record_feedback(7, lambda b, hops: recorded.append(b), lambda: done.append(7))
    assert (recorded, done) == ([], [7])
    head.passed = 7
    channel.release(7)
    assert head.events == [("a", 1), ("b", 1), 1]


def test_the_barrier_of_an_aborted_checkpoint_holds_nothing() -> None:
    channel, head = FeedbackChannel(ID, 2, lambda credit: None), Head()
    channel.attach(head)
    channel.put([Barrier(7), block("a"), Barrier(8), block("b")])
    assert head.events == [("a", 1)]  # it belongs to checkpoint 8
    head.passed = 8
    channel.release(8)
    channel.put([Barrier(8), block("c")])
    assert head.events == [("a", 1), ("b", 1), ("c", 1)]

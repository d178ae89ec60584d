"""Channels: order, credit, the buffer timeout's bookkeeping, and barriers that overtake."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.streaming.network.channels import InputChannel, OutputChannel
from tidegate.runners.streaming.protocol.stream_items import Barrier, Item
from tidegate.sdk.data.block import Block

ID = ChannelId(0, 0, 0)


class Wire:
    """Both ends of a channel; sent items arrive when the test delivers them."""

    def __init__(self, credit: int = 2, block_size: int = 4) -> None:
        self.in_flight: list[Item] = []
        self.max_waiting = 0
        self.output = OutputChannel(ID, credit, block_size, self._send)
        self.input = InputChannel(ID, credit, lambda n: self.output.grant(n))

    def _send(self, items: list[Item]) -> None:
        self.in_flight += items
        waiting = sum(isinstance(item, Block) for item in [*self.in_flight, *self.input._items])
        self.max_waiting = max(self.max_waiting, waiting)

    def deliver(self) -> None:
        items, self.in_flight = self.in_flight, []
        self.input.put(items)

    def drain(self) -> list[Item]:
        taken: list[Item] = []
        self.deliver()
        while self.input.ready:
            taken.append(self.input.take())
            self.deliver()
        return taken


def values(items: list[Item]) -> list[int]:
    return [value for item in items if isinstance(item, Block) for value in item.values]


def test_small_blocks_wait_until_they_add_up_to_a_full_one() -> None:
    wire = Wire(block_size=4)
    wire.output.add(Block([1, 2]), 100)
    assert wire.in_flight == []
    assert wire.output.since == 100
    wire.output.add(Block([3, 4]), 150)
    assert values(wire.in_flight) == [1, 2, 3, 4]
    assert len(wire.in_flight) == 1
    assert wire.output.since is None


def test_a_status_waits_with_the_elements_before_it_and_is_replaced_by_a_later_one() -> None:
    wire = Wire()
    wire.output.add(Block([1]), 0)
    wire.output.send_status(CollectionStatus(5), 0)
    wire.output.send_status(CollectionStatus(9), 0)
    wire.output.flush()
    assert [type(item) for item in wire.in_flight] == [Block, CollectionStatus]
    assert wire.in_flight[1] == CollectionStatus(9)


def test_the_end_of_a_collection_is_sent_at_once() -> None:
    wire = Wire()
    wire.output.add(Block([1]), 0)
    wire.output.send_status(CollectionStatus(ended=True), 0)
    assert [type(item) for item in wire.in_flight] == [Block, CollectionStatus]


def test_blocks_without_credit_and_events_behind_them_are_not_sent() -> None:
    wire = Wire(credit=1, block_size=1)
    wire.output.add(Block([1]), 0)
    wire.output.add(Block([2]), 0)
    wire.output.event(Barrier(1))
    assert values(wire.in_flight) == [1]
    assert wire.output.full
    assert wire.output.all_full == {wire.output.id}
    wire.output.grant(1)
    assert wire.in_flight[-1] == Barrier(1)
    assert not wire.output.full
    assert not wire.output.all_full


def test_an_event_needs_no_credit() -> None:
    wire = Wire(credit=1, block_size=1)
    wire.output.add(Block([1]), 0)
    wire.output.event(Barrier(1))
    assert wire.in_flight[-1] == Barrier(1)


def test_an_unaligned_barrier_overtakes_blocks_that_wait_for_credit_and_returns_them() -> None:
    wire = Wire(credit=1, block_size=1)
    for n in range(4):
        wire.output.add(Block([n]), 0)
    overtaken = wire.output.overtake(Barrier(1, unaligned=True))
    assert values(list(overtaken)) == [1, 2, 3]
    assert wire.in_flight[-1] == Barrier(1, unaligned=True)
    assert values(wire.drain()) == [0, 1, 2, 3]


def test_blocks_that_a_barrier_overtakes_at_the_receiver_are_recorded_until_it_arrives() -> None:
    wire = Wire(credit=8, block_size=1)
    wire.output.add(Block([1]), 0)
    wire.deliver()
    done: list[bool] = []
    recorded: list[Block] = []
    wire.input.record(7, recorded.append, lambda: done.append(True))
    wire.output.add(Block([2]), 0)
    wire.output.event(Barrier(7, unaligned=True))
    wire.output.add(Block([3]), 0)
    wire.deliver()
    assert values(list(recorded)) == [1, 2]
    assert done == [True]
    assert [type(item) for item in wire.drain()] == [Block, Block, Block], "the barrier itself is not taken"


def test_blocks_that_are_put_back_come_first_and_grant_no_credit() -> None:
    granted: list[int] = []
    channel = InputChannel(ID, 2, granted.append)
    channel.put([Block([3])])
    channel.put_back([Block([1]), Block([2])])
    taken: list[Item] = []
    while channel.ready:
        taken.append(channel.take())
    assert values(taken) == [1, 2, 3]
    assert granted == [1]


STEPS = st.lists(
    st.one_of(
        st.integers(1, 9).map(lambda n: ("add", n)),
        st.just(("status", 0)),
        st.just(("flush", 0)),
        st.just(("barrier", 0)),
        st.just(("take", 0)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 4), st.integers(1, 6))
def test_everything_arrives_in_order_within_credit(steps: list[tuple[str, int]], credit: int, size: int) -> None:
    wire = Wire(credit, size)
    written = watermark = barriers = 0
    before_barrier: dict[int, int] = {}
    statuses: list[tuple[int, int]] = []
    taken: list[Item] = []
    for kind, n in steps:
        match kind:
            case "add":
                wire.output.add(Block(list(range(written, written + n))), 0)
                written += n
            case "status":
                watermark += 1
                statuses.append((watermark, written))
                wire.output.send_status(CollectionStatus(watermark), 0)
            case "flush":
                wire.output.flush()
            case "barrier":
                barriers += 1
                before_barrier[barriers] = written
                wire.output.event(Barrier(barriers))
            case "take":
                wire.deliver()
                if wire.input.ready:
                    taken.append(wire.input.take())
    wire.output.flush()
    taken += wire.drain()
    assert values(taken) == list(range(written))
    assert wire.max_waiting <= credit
    seen = 0
    for item in taken:
        match item:
            case Block():
                seen += len(item)
            case Barrier(checkpoint=number):
                assert seen == before_barrier[number]
            case CollectionStatus(watermark=at):
                assert seen >= next(count for sent, count in statuses if sent == at), "a status arrived too early"
    watermarks = [item.watermark for item in taken if isinstance(item, CollectionStatus)]
    assert watermarks == sorted(watermarks)
    assert not watermarks or watermarks[-1] == watermark

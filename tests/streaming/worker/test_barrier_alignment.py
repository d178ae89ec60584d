"""When a task takes its part of a checkpoint."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.runners.streaming.model.topology import ChannelId
from tidegate.runners.streaming.protocol.stream_items import Barrier
from tidegate.runners.streaming.worker.barrier_alignment import BarrierAlignment

A, B = ChannelId(0, 0, 0), ChannelId(0, 1, 0)


def test_it_waits_until_the_barrier_has_come_on_every_channel() -> None:
    alignment = BarrierAlignment([A, B])
    assert alignment.arrive(A, Barrier(1))
    assert not alignment.aligned
    assert alignment.missing == {B}
    assert alignment.arrive(B, Barrier(1))
    assert alignment.aligned


def test_a_channel_that_has_ended_counts_as_one_on_which_it_has_come() -> None:
    alignment = BarrierAlignment([A, B])
    alignment.arrive(A, Barrier(1))
    alignment.end(B)
    assert alignment.aligned


def test_the_coordinators_word_is_enough_without_live_input() -> None:
    alignment = BarrierAlignment([A])
    alignment.trigger(Barrier(1))
    assert not alignment.aligned
    alignment.end(A)
    assert alignment.aligned


def test_the_coordinators_word_and_a_barrier_are_one_checkpoint() -> None:
    alignment = BarrierAlignment([A])
    alignment.trigger(Barrier(1))
    alignment.arrive(A, Barrier(1))
    assert alignment.aligned
    alignment.done()
    assert not alignment.trigger(Barrier(1)), "it is over"


def test_barriers_of_a_checkpoint_that_was_given_up_mean_nothing() -> None:
    alignment = BarrierAlignment([A, B])
    alignment.arrive(A, Barrier(1))
    assert alignment.abort(1)
    assert not alignment.arrive(B, Barrier(1))
    assert alignment.barrier is None
    alignment.arrive(A, Barrier(2))
    alignment.arrive(B, Barrier(2))
    assert alignment.aligned


def test_a_checkpoint_given_up_before_its_first_barrier_never_begins() -> None:
    alignment = BarrierAlignment([A])
    assert not alignment.abort(3)
    assert not alignment.arrive(A, Barrier(3))


def test_a_later_barrier_gives_up_an_earlier_checkpoint() -> None:
    alignment = BarrierAlignment([A, B])
    alignment.arrive(A, Barrier(1))
    alignment.arrive(B, Barrier(2))
    assert alignment.barrier == Barrier(2)
    assert alignment.missing == {A}


def test_settling_barriers_are_numbered_by_themselves_and_bring_their_clock() -> None:
    alignment = BarrierAlignment([A, B])
    alignment.arrive(A, Barrier(5))
    alignment.arrive(B, Barrier(5))
    alignment.done()
    alignment.arrive(A, Barrier(1, "quiescence"))
    alignment.arrive(B, Barrier(1, "quiescence", clock=9))
    assert alignment.aligned
    assert alignment.barrier is not None
    assert alignment.barrier.clock == 9


@given(st.permutations([(channel, number) for channel in (A, B, ChannelId(1, 0, 0)) for number in (1, 2, 3)]))
def test_whatever_the_order_between_channels_each_checkpoint_is_taken_at_most_once(
    arrivals: list[tuple[ChannelId, int]],
) -> None:
    in_order = sorted(range(len(arrivals)), key=lambda at: at)
    queues: dict[ChannelId, list[int]] = {}
    for at in in_order:
        queues.setdefault(arrivals[at][0], []).append(arrivals[at][1])
    for queue in queues.values():
        queue.sort()
    alignment = BarrierAlignment(queues)
    taken: list[int] = []
    for channel, _ in arrivals:
        if channel in alignment.arrived:
            continue
        alignment.arrive(channel, Barrier(queues[channel].pop(0)))
        if alignment.aligned:
            assert alignment.barrier is not None
            taken.append(alignment.barrier.checkpoint)
            alignment.done()
    assert taken == sorted(set(taken))


def test_a_barrier_of_a_checkpoint_before_the_one_under_way_means_nothing() -> None:
    """It was given up, of which the word has not come yet."""
    one, other = ChannelId(0, 0, 0), ChannelId(0, 1, 0)
    alignment = BarrierAlignment([one, other])
    assert alignment.arrive(other, Barrier(3))
    assert not alignment.arrive(one, Barrier(2, "savepoint"))
    assert alignment.missing == {one}
    assert alignment.arrive(one, Barrier(3))
    assert alignment.aligned

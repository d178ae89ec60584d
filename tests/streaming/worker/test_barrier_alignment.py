"""When a task takes its snapshot for a checkpoint."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.streaming.protocol.stream_items import Barrier
from tidegate.runners.streaming.worker.barrier_alignment import BarrierAlignment

A, B = ChannelId(0, 0, 0), ChannelId(0, 1, 0)


def test_a_checkpoint_is_aligned_once_the_barrier_has_arrived_on_every_channel() -> None:
    alignment = BarrierAlignment([A, B])
    assert alignment.arrive(A, Barrier(1))
    assert not alignment.aligned
    assert alignment.missing == {B}
    assert alignment.arrive(B, Barrier(1))
    assert alignment.aligned


def test_alignment_does_not_wait_for_channels_that_have_ended() -> None:
    alignment = BarrierAlignment([A, B])
    alignment.arrive(A, Barrier(1))
    alignment.end(B)
    assert alignment.aligned


def test_a_trigger_suffices_for_a_task_without_live_input() -> None:
    alignment = BarrierAlignment([A])
    alignment.trigger(Barrier(1))
    assert not alignment.aligned
    alignment.end(A)
    assert alignment.aligned


def test_a_trigger_and_a_barrier_of_the_same_number_are_one_checkpoint() -> None:
    alignment = BarrierAlignment([A])
    alignment.trigger(Barrier(1))
    alignment.arrive(A, Barrier(1))
    assert alignment.aligned
    alignment.done()
    assert not alignment.trigger(Barrier(1)), "the checkpoint is done"


def test_barriers_of_an_aborted_checkpoint_are_ignored() -> None:
    alignment = BarrierAlignment([A, B])
    alignment.arrive(A, Barrier(1))
    assert alignment.abort(1)
    assert not alignment.arrive(B, Barrier(1))
    assert alignment.barrier is None
    alignment.arrive(A, Barrier(2))
    alignment.arrive(B, Barrier(2))
    assert alignment.aligned


def test_a_checkpoint_aborted_before_its_first_barrier_never_begins() -> None:
    alignment = BarrierAlignment([A])
    assert not alignment.abort(3)
    assert not alignment.arrive(A, Barrier(3))


def test_a_later_barrier_supersedes_an_earlier_checkpoint() -> None:
    alignment = BarrierAlignment([A, B])
    alignment.arrive(A, Barrier(1))
    alignment.arrive(B, Barrier(2))
    assert alignment.barrier == Barrier(2)
    assert alignment.missing == {A}


def test_quiescence_barriers_have_their_own_numbers_and_carry_a_clock() -> None:
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
def test_each_checkpoint_is_taken_at_most_once_in_any_order_of_arrival(
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


def test_a_barrier_of_an_earlier_checkpoint_than_the_current_one_is_ignored() -> None:
    """That checkpoint was aborted; the message which says so has not arrived yet."""
    one, other = ChannelId(0, 0, 0), ChannelId(0, 1, 0)
    alignment = BarrierAlignment([one, other])
    assert alignment.arrive(other, Barrier(3))
    assert not alignment.arrive(one, Barrier(2, "savepoint"))
    assert alignment.missing == {one}
    assert alignment.arrive(one, Barrier(3))
    assert alignment.aligned

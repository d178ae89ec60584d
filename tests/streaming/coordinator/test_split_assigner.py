"""Dealing out splits: none is lost and none is read twice, whatever is asked, restored and lost in between."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.runners.streaming.checkpoint.recovery import remaining_splits
from tidegate.runners.streaming.coordinator.split_assigner import SplitAssigner
from tidegate.runners.streaming.protocol.worker_messages import AssignedSplit, SplitProgress


def splits(count: int) -> list[AssignedSplit]:
    return [AssignedSplit(f"s{n}", b"") for n in range(count)]


def ids(given: Sequence[AssignedSplit]) -> list[str]:
    return [split.id for split in given]


def test_bounded_splits_are_dealt_in_order_a_few_at_a_time() -> None:
    dealt = SplitAssigner(splits(16), 2, bounded=True)
    assert ids(dealt.assign(0).splits) == ["s0", "s1"]
    assert ids(dealt.assign(1).splits) == ["s2"]


def test_who_asks_when_there_are_none_left_is_told_that_there_will_be_none() -> None:
    dealt = SplitAssigner(splits(1), 2, bounded=True)
    first, second = dealt.assign(0), dealt.assign(1)
    assert (ids(first.splits), first.more) == (["s0"], False)
    assert (ids(second.splits), second.more) == ([], False)


def test_live_splits_are_dealt_all_at_once_by_number() -> None:
    dealt = SplitAssigner(splits(5), 2, bounded=False)
    deals = [dealt.assign(0), dealt.assign(1)]
    assert [ids(deal.splits) for deal in deals] == [["s0", "s2", "s4"], ["s1", "s3"]]
    assert [deal.more for deal in deals] == [False, False]
    assert ids(dealt.assign(0).splits) == []


def test_a_live_split_stays_with_the_task_of_its_number_when_others_are_finished() -> None:
    dealt = SplitAssigner(splits(4), 2, bounded=False, progress=[SplitProgress("read", ("s0",), (("s3", 9),))])
    assert ids(dealt.assign(0).splits) == ["s2"]
    assert [(split.id, split.position) for split in dealt.assign(1).splits] == [("s1", None), ("s3", 9)]


@pytest.mark.parametrize("bounded", [True, False])
def test_a_split_that_was_being_read_goes_back_to_its_reader(bounded: bool) -> None:
    progress = [SplitProgress("read", (), (("s0", 3),)), SplitProgress("read", (), (("s1", 4),))]
    dealt = SplitAssigner(splits(2), 2, bounded=bounded, progress=progress, readers={"s0": 1, "s1": 0})
    assert [ids(dealt.assign(index).splits) for index in (0, 1)] == [["s1"], ["s0"]]


def test_splits_that_were_being_read_are_all_dealt_at_once_to_fewer_tasks() -> None:
    progress = [SplitProgress("read", (), (("s0", 3),)), SplitProgress("read", (), (("s2", 4),))]
    dealt = SplitAssigner(splits(4), 1, bounded=True, progress=progress)
    first = dealt.assign(0)
    assert [(split.id, split.position) for split in first.splits] == [("s0", 3), ("s2", 4)]
    assert first.more
    assert ids(dealt.assign(0).splits) == ["s1"]


def test_a_split_that_no_progress_names_begins_at_its_start() -> None:
    left = remaining_splits(splits(3), [SplitProgress("read", ("s1",), (("s2", {"offset": 5}),))])
    assert [(split.id, split.position) for split in left] == [("s0", None), ("s2", {"offset": 5})]


@pytest.mark.parametrize(
    "progress",
    [
        [SplitProgress("read", ("s0",)), SplitProgress("read", (), (("s0", 1),))],
        [SplitProgress("read", ("s0", "s0"))],
        [SplitProgress("read", ("unheard of",))],
    ],
    ids=["finished and going on", "finished twice", "unknown"],
)
def test_progress_that_can_not_be_is_an_error(progress: list[SplitProgress]) -> None:
    with pytest.raises(ValueError, match="'read'"):
        remaining_splits(splits(2), progress)


@given(
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 4), st.booleans()))), min_size=1),
)
def test_every_split_is_read_once_through_any_restarts_and_rescales(
    count: int, attempts: list[tuple[int, list[tuple[int, bool]]]]
) -> None:
    """Each attempt has some tasks that ask and finish as they like; then it is lost, back to what it had said. The
    last one reads to the end. A position counts how often a split was taken up."""
    all_splits = splits(count)
    progress: list[SplitProgress] = []
    finished: list[str] = []
    for parallelism, asks in [*attempts, (2, [])]:
        dealt = SplitAssigner(all_splits, parallelism, bounded=True, progress=progress)
        held: dict[int, list[AssignedSplit]] = {index: [] for index in range(parallelism)}
        more = dict.fromkeys(range(parallelism), True)
        done: list[str] = []
        script = [(index % parallelism, ends) for index, ends in asks]
        if not asks:
            script = [(index, True) for _ in range(2 * count + 2) for index in range(parallelism)]
        for index, ends in script:
            if not held[index] and more[index]:
                deal = dealt.assign(index)
                held[index] += deal.splits
                more[index] = deal.more
            elif ends and held[index]:
                done.append(held[index].pop(0).id)
        current = [(split.id, (split.position or 0) + 1) for mine in held.values() for split in mine]
        assert len({id for id, _ in current} | set(done)) == len(current) + len(done)
        before = [id for part in progress for id in part.finished]
        progress = [SplitProgress("read", (*before, *done), tuple(current))]
        finished += done
    assert sorted(finished) == sorted(split.id for split in all_splits)

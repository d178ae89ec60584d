"""Split assignment: no split is lost or read twice, in any order of requests, restores and losses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.runners.checkpoint.matching import remaining_splits
from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState, SplitProgress
from tidegate.runners.streaming.coordinator.split_assigner import SplitAssigner, SplitAssignment


def splits(count: int) -> list[AssignedSplit]:
    return [AssignedSplit(f"s{n}", b"") for n in range(count)]


def ids(given: Sequence[AssignedSplit]) -> list[str]:
    return [split.id for split in given]


def test_bounded_splits_are_assigned_in_order_a_few_at_a_time() -> None:
    assigner = SplitAssigner(splits(16), 2, bounded=True)
    assert ids(assigner.assign(0).splits) == ["s0", "s1"]
    assert ids(assigner.assign(1).splits) == ["s2"]


def test_an_assignment_says_how_many_tasks_read_if_there_are_fewer_splits_than_tasks() -> None:
    assert [SplitAssigner(splits(count), 4, bounded=True).assign(0).readers for count in (0, 1, 3, 9)] == [1, 1, 3, 4]
    more_may_come = EnumeratorState()
    assert SplitAssigner(splits(1), 4, bounded=True, enumerator=more_may_come).assign(0).readers is None


def test_a_task_that_reads_several_splits_again_counts_once() -> None:
    progress = [SplitProgress("read", ("s0", "s2"), (("s1", 3), ("s3", 4)))]
    for bounded in (True, False):
        assigner = SplitAssigner(splits(4), 2, bounded=bounded, progress=progress, readers={"s1": 1, "s3": 1})
        assert (ids(assigner.assign(1).splits), assigner.assign(1).readers) == (["s1", "s3"], 1)


def test_a_task_that_requests_when_no_splits_are_left_is_informed_that_none_will_follow() -> None:
    assigner = SplitAssigner(splits(1), 2, bounded=True)
    first, second = assigner.assign(0), assigner.assign(1)
    assert (ids(first.splits), first.more) == (["s0"], False)
    assert (ids(second.splits), second.more) == ([], False)


def test_live_splits_are_assigned_all_at_once_by_number() -> None:
    assigner = SplitAssigner(splits(5), 2, bounded=False)
    deals = [assigner.assign(0), assigner.assign(1)]
    assert [ids(assignment.splits) for assignment in deals] == [["s0", "s2", "s4"], ["s1", "s3"]]
    assert [assignment.more for assignment in deals] == [False, False]
    assert ids(assigner.assign(0).splits) == []


def test_a_live_split_stays_with_the_task_of_its_number_when_others_are_finished() -> None:
    assigner = SplitAssigner(splits(4), 2, bounded=False, progress=[SplitProgress("read", ("s0",), (("s3", 9),))])
    assert ids(assigner.assign(0).splits) == ["s2"]
    assert [(split.id, split.position) for split in assigner.assign(1).splits] == [("s1", None), ("s3", 9)]


@pytest.mark.parametrize("bounded", [True, False])
def test_a_split_that_was_being_read_is_assigned_to_its_reader_again(bounded: bool) -> None:
    progress = [SplitProgress("read", (), (("s0", 3),)), SplitProgress("read", (), (("s1", 4),))]
    assigner = SplitAssigner(splits(2), 2, bounded=bounded, progress=progress, readers={"s0": 1, "s1": 0})
    assert [ids(assigner.assign(index).splits) for index in (0, 1)] == [["s1"], ["s0"]]


def test_splits_that_were_being_read_are_assigned_at_once_to_fewer_tasks() -> None:
    progress = [SplitProgress("read", (), (("s0", 3),)), SplitProgress("read", (), (("s2", 4),))]
    assigner = SplitAssigner(splits(4), 1, bounded=True, progress=progress)
    first = assigner.assign(0)
    assert [(split.id, split.position) for split in first.splits] == [("s0", 3), ("s2", 4)]
    assert first.more
    assert ids(assigner.assign(0).splits) == ["s1"]


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
def test_impossible_progress_is_an_error(progress: list[SplitProgress]) -> None:
    with pytest.raises(ValueError, match="'read'"):
        remaining_splits(splits(2), progress)


@given(
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 4), st.booleans()))), min_size=1),
)
def test_every_split_is_read_once_through_any_restarts_and_rescales(
    count: int, attempts: list[tuple[int, list[tuple[int, bool]]]]
) -> None:
    """The tasks of each attempt request and finish splits at random; then the attempt is lost, and the next restores
    the reported progress. The last attempt reads to the end. A position counts how often a split was assigned."""
    all_splits = splits(count)
    progress: list[SplitProgress] = []
    finished: list[str] = []
    for parallelism, asks in [*attempts, (2, [])]:
        assigner = SplitAssigner(all_splits, parallelism, bounded=True, progress=progress)
        assigned: dict[int, list[AssignedSplit]] = {index: [] for index in range(parallelism)}
        more = dict.fromkeys(range(parallelism), True)
        done: list[str] = []
        script = [(index % parallelism, ends) for index, ends in asks]
        if not asks:
            script = [(index, True) for _ in range(2 * count + 2) for index in range(parallelism)]
        for index, ends in script:
            if not assigned[index] and more[index]:
                assignment = assigner.assign(index)
                assigned[index] += assignment.splits
                more[index] = assignment.more
            elif ends and assigned[index]:
                done.append(assigned[index].pop(0).id)
        current = [(split.id, (split.position or 0) + 1) for mine in assigned.values() for split in mine]
        assert len({id for id, _ in current} | set(done)) == len(current) + len(done)
        before = [id for part in progress for id in part.finished]
        progress = [SplitProgress("read", (*before, *done), tuple(current))]
        finished += done
    assert sorted(finished) == sorted(split.id for split in all_splits)


MORE = EnumeratorState(backlog=False)
BACKLOG = EnumeratorState(backlog=True)
ALL = EnumeratorState(backlog=False, ended=True)


def named(*names: str, late: bool = True, bounded: bool | None = True) -> list[AssignedSplit]:
    return [AssignedSplit(name, b"", late=late, bounded=bounded) for name in names]


def test_a_task_that_requests_splits_before_they_are_discovered_waits_for_them() -> None:
    assigner = SplitAssigner([], 2, bounded=False, enumerator=MORE)
    first = assigner.assign(0)
    assert (first.splits, first.more, first.backlog) == ((), True, False)
    assigner.assign(1)
    assert (assigner.request(1), assigner.request(0)) == (None, None)
    given = dict(assigner.discovered(named("a", "b", "c"), MORE))
    assert {index: ids(assignment.splits) for index, assignment in given.items()} == {1: ["a"], 0: ["b"]}
    assert assigner.unassigned == 1
    again = assigner.request(0)
    assert again is not None
    assert (ids(again.splits), again.more) == (["c"], True)


def test_waiting_tasks_are_notified_when_the_backlog_is_complete_and_when_no_split_will_follow() -> None:
    assigner = SplitAssigner([], 1, bounded=True, enumerator=BACKLOG)
    assert assigner.assign(0).backlog
    assert assigner.request(0) is None
    ((_, complete),) = assigner.discovered([], MORE)
    assert (complete.splits, complete.more, complete.backlog) == ((), True, False)
    assert assigner.request(0) is None
    assert list(assigner.discovered([], MORE)) == []
    ((_, ended),) = assigner.discovered([], ALL)
    assert (ended.splits, ended.more) == ((), False)


def test_a_task_without_splits_is_notified_that_another_reads_the_last_of_the_backlog() -> None:
    assigner = SplitAssigner(named("a", "b", late=False), 2, bounded=True, enumerator=MORE)
    first, second = assigner.assign(0), assigner.assign(1)
    assert (first.backlog, second.backlog) == (True, False)
    answer = assigner.request(0)
    assert answer is not None
    assert (answer.splits, answer.more, answer.backlog) == ((), True, False)
    assert assigner.request(0) is None


def test_unbounded_splits_are_assigned_to_the_tasks_in_turn_as_they_are_discovered() -> None:
    assigner = SplitAssigner(named("a", "b", "c", late=False, bounded=None), 2, bounded=False, enumerator=MORE)
    assert [ids(assigner.assign(index).splits) for index in (0, 1)] == [["a", "c"], ["b"]]
    given = dict(assigner.discovered(named("d", "e", bounded=None), MORE))
    assert {index: ids(assignment.splits) for index, assignment in given.items()} == {1: ["d"], 0: ["e"]}


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(1, 4), st.data())
def test_every_discovered_split_is_assigned_once(looks: list[int], parallelism: int, data: st.DataObject) -> None:
    """Tasks request splits and discoveries find some in any order; at the end, each task knows that none follow."""
    assigner = SplitAssigner([], parallelism, bounded=False, enumerator=BACKLOG)
    received: list[str] = []
    more = dict.fromkeys(range(parallelism), True)
    waiting: set[int] = set()

    def receive(index: int, assignment: SplitAssignment | None) -> None:
        if assignment is None:
            waiting.add(index)
            return
        waiting.discard(index)
        received.extend(ids(assignment.splits))
        more[index] = assignment.more

    for index in range(parallelism):
        receive(index, assigner.assign(index))
    left = list(looks)
    found = 0
    while left or any(more.values()):
        asking = [index for index in more if more[index] and index not in waiting]
        if asking and (not left or data.draw(st.booleans())):
            index = data.draw(st.sampled_from(asking))
            receive(index, assigner.request(index))
            continue
        count = left.pop(0) if left else 0
        names = [f"s{found + n}" for n in range(count)]
        found += count
        assert left or asking or waiting
        state = MORE if left else ALL
        for index, assignment in assigner.discovered(named(*names), state):
            receive(index, assignment)
    assert sorted(received) == sorted(f"s{n}" for n in range(found))

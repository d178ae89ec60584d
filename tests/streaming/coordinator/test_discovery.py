"""The coordinator keeps the splits that enumerators discover, and has splits divided among more tasks."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.support.growing_folder import GrowingFolder
from tests.support.streaming.coordinator_harness import (
    CoordinatorHarness,
    actions_of_type,
    make_job,
    messages_sent,
    messages_sent_to,
)
from tidegate.runners.checkpoint.manifest_json import loads
from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState, SplitProgress
from tidegate.runners.engine.errors.transport import unpacked
from tidegate.runners.streaming.checkpoint.recovery import Resume, resumed
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.protocol.coordinator_io import Finish, Store, Stored, WorkersStarted
from tidegate.runners.streaming.protocol.worker_messages import (
    AssignSplits,
    CheckpointCompleted,
    Deploy,
    DiscoverSplits,
    DivideSplits,
    ListSplits,
    Ready,
    RequestSplit,
    SplitsDiscovered,
    SplitsDivided,
    TriggerBarrier,
)


class Divisible(GrowingFolder):
    def split_again(self, split: tg.io.Split, position: tg.io.Position, desired: int) -> list[tg.io.Split]:
        raise AssertionError("the workers are played by the test")


def job_of(workers: int, source: tg.io.Source[str]) -> Job:
    def write(p: tg.Pipeline) -> None:
        _ = p | "lines" >> tg.Read(source) | tg.Map(print)

    return make_job(write, workers=workers)


def started(job: Job, resume: Resume | None = None) -> CoordinatorHarness:
    harness = CoordinatorHarness(job, resume)
    harness.handle(WorkersStarted(harness.attempt))
    for worker in range(job.settings.workers):
        harness.from_worker(worker, Ready())
    return harness


def split(name: str, *, late: bool = False) -> AssignedSplit:
    return AssignedSplit(name, b"", late=late, bounded=True)


def checkpoint(harness: CoordinatorHarness, *progress: SplitProgress) -> Resume:
    """Take a checkpoint in which the first task reports this progress; how a job would resume from it."""
    ((number, *_),) = [{each.checkpoint for each in messages_sent(harness.wait(60), TriggerBarrier)}]
    ((store,),) = [actions_of_type(harness.acknowledge(number, splits=progress), Store)]
    assert messages_sent(harness.handle(Stored(number)), CheckpointCompleted)
    return resumed(harness.job, loads(store.data), "a checkpoint")


def test_discovered_splits_and_the_state_after_them_are_in_the_same_checkpoint() -> None:
    harness = started(job_of(2, GrowingFolder("in")))
    assert messages_sent_to(harness.new_actions(), 0) == [ListSplits(0, 2)]
    deployed = harness.from_worker(
        0, SplitsDiscovered(0, (split("a"), split("b")), EnumeratorState("b", backlog=False))
    )
    assert messages_sent(deployed, DiscoverSplits) == [DiscoverSplits(0)]
    assigned = messages_sent(deployed, AssignSplits)
    assert [[each.id for each in message.splits] for message in assigned] == [["a"], ["b"]]
    more = harness.from_worker(0, SplitsDiscovered(0, (split("c", late=True),), EnumeratorState("c", backlog=False)))
    assert (messages_sent(more, AssignSplits), messages_sent(more, DiscoverSplits)) == ([], [DiscoverSplits(0)])
    resume = checkpoint(harness, SplitProgress("lines", ("a",), (("b", 3),)))
    assert [each.id for each in resume.lists[0]] == ["b", "c"]
    assert resume.lists[0][1].late
    assert resume.enumerators == {0: EnumeratorState("c", backlog=False)}
    assert resume.finished == {0: 1}


def test_a_job_that_resumes_reads_on_and_discovers_from_the_state_of_the_checkpoint() -> None:
    harness = started(job_of(2, GrowingFolder("in")))
    harness.from_worker(
        0, SplitsDiscovered(0, (split("a"), split("b"), split("c")), EnumeratorState("c", backlog=False))
    )
    resume = checkpoint(harness, SplitProgress("lines", ("a",), (("b", 3),)))
    again = started(job_of(2, GrowingFolder("in")), resume)
    sent = again.new_actions()
    assert messages_sent(sent, ListSplits) == [ListSplits(0, 2, EnumeratorState("c", backlog=False))]
    assert messages_sent(sent, DiscoverSplits) == [DiscoverSplits(0)]
    read = {each.id: each.position for message in messages_sent(sent, AssignSplits) for each in message.splits}
    assert read == {"b": 3, "c": None}


def test_an_enumerator_is_asked_again_only_while_few_splits_wait() -> None:
    harness = started(job_of(1, GrowingFolder("in")))
    many = tuple(split(f"{n:04}") for n in range(500))
    full = harness.from_worker(0, SplitsDiscovered(0, many, EnumeratorState(1)))
    assert messages_sent(full, DiscoverSplits) == []
    (first,) = messages_sent(full, AssignSplits)
    assert first.backlog
    asked, read = 0, len(first.splits)
    while not asked:
        actions = harness.from_worker(0, RequestSplit(harness.tasks()[0], 0))
        (given,) = messages_sent(actions, AssignSplits)
        asked, read = len(messages_sent(actions, DiscoverSplits)), read + len(given.splits)
    assert 500 - read < 250


def test_a_split_that_is_discovered_twice_fails_the_job_by_name() -> None:
    harness = started(job_of(1, GrowingFolder("in")))
    harness.from_worker(0, SplitsDiscovered(0, (split("a"),), EnumeratorState("a", backlog=False)))
    harness.from_worker(0, SplitsDiscovered(0, (split("a"),), EnumeratorState("a", backlog=False)))
    said = [text for action in harness.actions if (text := getattr(action, "text", ""))]
    ended = [unpacked(action.error) for action in harness.actions if isinstance(action, Finish) and action.error]
    assert any("returned split 'a', which the source has already" in text for text in [*said, *map(str, ended)])


def test_splits_are_divided_when_a_job_resumes_with_more_tasks_than_splits_to_read() -> None:
    source = Divisible("in")
    harness = started(job_of(1, source))
    harness.from_worker(
        0, SplitsDiscovered(0, (split("a"), split("b")), EnumeratorState("b", backlog=False, ended=True))
    )
    resume = checkpoint(harness, SplitProgress("lines", ("a",), (("b", 3),)))
    again = started(job_of(3, source), resume)
    sent = again.new_actions()
    (asked,) = messages_sent(sent, DivideSplits)
    assert (asked.desired, [(each.id, each.position) for each in asked.splits]) == (3, [("b", 3)])
    assert messages_sent(sent, Deploy) == []
    divided = again.from_worker(0, SplitsDivided(0, (("b", tuple(split(f"b.{n}") for n in range(3))),)))
    read = [[(each.id, each.position) for each in message.splits] for message in messages_sent(divided, AssignSplits)]
    assert read == [[("b.0", None)], [("b.1", None)], [("b.2", None)]]


@pytest.mark.parametrize("workers", [1, 2])
def test_splits_are_left_as_they_are_when_there_are_enough_of_them(workers: int) -> None:
    source = Divisible("in")
    harness = started(job_of(1, source))
    harness.from_worker(
        0, SplitsDiscovered(0, (split("a"), split("b")), EnumeratorState("b", backlog=False, ended=True))
    )
    resume = checkpoint(harness, SplitProgress("lines", (), (("a", 3),)))
    again = started(job_of(workers, source), resume)
    assert messages_sent(again.new_actions(), DivideSplits) == []

"""Sequences of events, and the actions that the coordinator returns for them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tests.support.streaming.coordinator_harness import (
    CoordinatorHarness,
    actions_of_type,
    count_words_to_text,
    deployed_tasks,
    make_job,
    messages_sent,
)
from tests.support.streaming.counting_job import CountingSource
from tidegate.runners.engine.errors.transport import packed, unpacked
from tidegate.runners.streaming.checkpoint.manifest_json import loads
from tidegate.runners.streaming.checkpoint.recovery import resumed
from tidegate.runners.streaming.model.settings import CheckpointSettings, RestartSettings
from tidegate.runners.streaming.model.topology import TaskId
from tidegate.runners.streaming.protocol.coordinator_io import (
    CancelJob,
    CheckpointReport,
    Delete,
    Fenced,
    Finish,
    Progress,
    Report,
    StartWorkers,
    StopJob,
    StopWorkers,
    Store,
    Stored,
    TakeSavepoint,
    Tick,
    Unreachable,
    WorkerGone,
    WorkersStarted,
)
from tidegate.runners.streaming.protocol.worker_messages import (
    AbortOutput,
    Acknowledge,
    AssignedSplit,
    AssignSplits,
    Cancel,
    CheckpointAborted,
    CheckpointCompleted,
    Commit,
    Committed,
    Decline,
    Deploy,
    Heartbeat,
    ListSplits,
    OutputAborted,
    Prepared,
    QuiescencePassed,
    QuiescenceReached,
    Ready,
    RequestQuiescence,
    RequestSplit,
    SplitProgress,
    SplitsListed,
    StateHandle,
    StopSources,
    TaskEnded,
    TaskFailed,
    TriggerBarrier,
)
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.errors import RunError, UserCodeError
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey
from tidegate.sdk.time import SECOND
from tidegate.testing import TestStream

KEPT = CheckpointSettings(directory="/somewhere", interval=10.0)
USER_ERROR = packed(UserCodeError("it broke", step="Map", where="x.py:1", element="7"))


def running(**settings: Any) -> CoordinatorHarness:
    """A stream at work."""
    play = CoordinatorHarness(make_job(count_words_to_text(), **settings))
    play.ready()
    play.taken()
    return play


def completed(play: CoordinatorHarness, checkpoint: int, prepared: str = "") -> list[Any]:
    """A checkpoint is due, and all goes well with it, up to its commits."""
    play.wait(10)
    play.acknowledge(checkpoint, prepared=prepared)
    return play.tell(Stored(checkpoint))


def commit_all(play: CoordinatorHarness, actions: Iterable[Any]) -> list[Any]:
    told = []
    for commit in messages_sent(actions, Commit):
        told += play.say(0, Committed(commit.step, commit.checkpoint))
    return told


def gone(play: CoordinatorHarness) -> list[Any]:
    told = []
    for worker in range(play.job.settings.workers):
        told += play.tell(WorkerGone(worker, play.attempt, "its process ended with exit code 0"))
    return told


# -- the beginning


def test_nothing_is_deployed_before_all_workers_are_ready() -> None:
    play = CoordinatorHarness(make_job(count_words_to_text()))
    assert actions_of_type(play.taken(), StartWorkers) == [StartWorkers(1)]
    assert play.say(0, Ready()) == []
    assert messages_sent(play.say(1, Ready()), ListSplits)


def test_tasks_are_deployed_when_the_splits_are_known_and_each_worker_gets_its_own() -> None:
    play = CoordinatorHarness(make_job(count_words_to_text()))
    play.say(0, Ready())
    asked = play.say(1, Ready())
    assert deployed_tasks(asked) == []
    actions = play.list_splits(asked)
    assert deployed_tasks(actions) == sorted(play.tasks())
    for worker in range(2):
        mine = [
            message for message in messages_sent(actions, Deploy) if worker in {task.index for task in message.tasks}
        ]
        assert [{task.index for task in deploy.tasks} for deploy in mine] == [{worker}]
    deals = messages_sent(actions, AssignSplits)
    assert [(deal.task.index, [split.id for split in deal.splits], deal.more) for deal in deals] == [
        (0, ["split 0"], True),
        (1, ["split 1"], True),
    ]


def test_whoever_asks_for_splits_gets_more_until_there_are_none() -> None:
    play = running()
    source = TaskId(0, 1)
    dealt = [messages_sent(play.say(1, RequestSplit(source, 0)), AssignSplits)[0] for _ in range(3)]
    assert [([split.id for split in deal.splits], deal.more) for deal in dealt] == [
        (["split 2"], True),
        (["split 3"], False),
        ([], False),
    ]


# -- batch


def batch(**settings: Any) -> CoordinatorHarness:
    play = CoordinatorHarness(make_job(count_words_to_text(), batch=True, **settings))
    play.ready()
    return play


def regions(play: CoordinatorHarness) -> list[list[TaskId]]:
    return [list(play.job.topology.tasks(region)) for region in range(len(play.job.plan.regions))]


def test_a_bounded_job_deploys_a_region_when_the_one_before_it_is_done() -> None:
    play = batch()
    first, second = regions(play)
    assert deployed_tasks(play.taken()) == first
    assert deployed_tasks(play.end_all(first[:-1])) == []
    assert deployed_tasks(play.end_all(first[-1:])) == second


def test_a_bounded_job_commits_once_for_each_sink_when_all_is_done_and_then_ends() -> None:
    play = batch()
    first, second = regions(play)
    play.end_all(first)
    for task in second:
        play.say(task.index, TaskEnded(task, (Prepared("write/Write", (Committable((task.index, 0), "x"),)),)))
    (commit,) = messages_sent(play.taken(), Commit)
    assert commit.checkpoint is None
    assert [piece.order for piece in commit.committables] == [(0, 0), (1, 0)]
    told = play.say(0, Committed(commit.step, None))
    assert len(messages_sent(told, Cancel)) == 2
    assert actions_of_type(gone(play), Finish) == [Finish("finished")]


def test_a_lost_worker_makes_a_bounded_job_repeat_only_the_region_that_is_not_done() -> None:
    play = batch()
    first, second = regions(play)
    play.end_all(first)
    play.end_all(second[:1])
    told = play.tell(WorkerGone(1, 1, "killed by SIGKILL"))
    assert actions_of_type(told, StopWorkers) == [StopWorkers(0.0)]
    assert actions_of_type(play.wait(1), StartWorkers) == [StartWorkers(2)]
    play.attempt = 2
    play.taken()
    play.ready()
    (abort,) = messages_sent(play.taken(), AbortOutput)
    assert deployed_tasks(play.say(0, OutputAborted(abort.step))) == second


def test_what_is_done_counts_once_when_workers_are_lost() -> None:
    play = batch()
    first = regions(play)[0]
    key = MetricKey("words", ENGINE, "elements_out")
    for task in first:
        play.say(task.index, TaskEnded(task, metrics=MetricCells(counters={key: 10})))
    play.tell(WorkerGone(1, 1, "killed"))
    play.wait(1)
    play.attempt = 2
    play.ready()
    for step in {abort.step for abort in messages_sent(play.taken(), AbortOutput)}:
        play.say(0, OutputAborted(step))
    play.now += 1_000_000
    play.say(0, Heartbeat((), MetricCells(counters={key: 5})))
    progress = play.taken()[-1]
    assert progress.metrics.counters == {key: 25}  # type: ignore[union-attr]


def with_history(p: tg.Pipeline) -> None:
    """A live stream, each of whose elements is looked up in bounded history."""
    history = p | "history" >> tg.Create([1, 2, 3]) | "known" >> tg.Map(str)
    _ = p | "live" >> tg.Read(CountingSource()) | "look up" >> tg.Map(lambda n, known: n in known, tg.AsList(history))


def test_what_history_has_counted_is_still_known_to_the_jobs_next_process() -> None:
    """Its tasks are over before the first checkpoint of the attempt, which so has no files of theirs."""
    play = CoordinatorHarness(make_job(with_history, checkpoints=KEPT))
    play.ready()
    key = MetricKey("known", ENGINE, "elements_out")
    history, *live = regions(play)
    for task in history:
        play.list_splits(play.say(task.index, TaskEnded(task, metrics=MetricCells(counters={key: 2}))))
    play.tell(WorkerGone(0, 1, "killed by SIGKILL"))
    assert not set(deployed_tasks(restarted(play))) & set(history)
    play.taken()
    play.wait(10)
    tasks = [task for region in live for task in region]
    for task in tasks:
        handle = StateHandle(((f"chk-000001/{task}.state", 10, 1),))
        play.say(task.index, Acknowledge(1, task, handle))
    (store,) = actions_of_type(play.taken(), Store)
    resume = resumed(play.job, loads(store.data), "checkpoint 1")
    next = CoordinatorHarness(play.job, resume, epoch=2)
    next.ready()
    next.now += SECOND
    next.say(0, Heartbeat((), MetricCells()))
    assert actions_of_type(next.said, Progress)[-1].metrics.counters == {key: 2 * len(history)}


def test_a_bounded_job_does_not_retry_an_error_of_the_authors() -> None:
    play = batch()
    told = play.say(0, TaskFailed(TaskId(0, 0), USER_ERROR, user=True, element="7"))
    assert actions_of_type(told, StartWorkers) == []
    assert messages_sent(told, Cancel)
    gone(play)
    play.attempt += 1
    play.ready()
    for abort in messages_sent(play.taken(), AbortOutput):
        play.say(0, OutputAborted(abort.step))
    (finish,) = actions_of_type(play.taken(), Finish)
    assert finish.state == "failed"
    assert finish.error is not None
    assert str(unpacked(finish.error)) == "it broke"


def test_lost_workers_are_replaced_only_so_often_without_progress() -> None:
    play = batch(restart=RestartSettings(attempts=2, delay=0.0))
    for _ in range(2):
        play.tell(WorkerGone(0, play.attempt, "killed"))
        play.wait(0)
        play.attempt += 1
    assert actions_of_type(play.taken(), StartWorkers)[-1] == StartWorkers(3)
    play.tell(WorkerGone(0, play.attempt, "killed by SIGKILL"))
    play.tell(WorkerGone(1, play.attempt, "killed"))
    play.wait(60)
    (finish,) = actions_of_type(play.taken(), Finish)
    assert finish.error is not None
    assert "killed by SIGKILL" in str(unpacked(finish.error))


# -- checkpoints


def test_a_checkpoint_is_triggered_at_all_workers_when_its_time_has_come() -> None:
    play = running()
    assert messages_sent(play.wait(9.9), TriggerBarrier) == []
    assert messages_sent(play.wait(0.1), TriggerBarrier) == [TriggerBarrier(1, "checkpoint")] * 2
    assert messages_sent(play.wait(60), TriggerBarrier) == []  # one at a time


def test_commits_begin_only_when_the_manifest_is_stored() -> None:
    play = running()
    play.wait(10)
    acknowledged = play.acknowledge(1, prepared="x")
    (store,) = actions_of_type(acknowledged, Store)
    assert store.name == "chk-000001/manifest.json"
    assert [c.step for c in loads(store.data).commits] == ["write/Write"]
    assert messages_sent(acknowledged, Commit) == []
    told = play.tell(Stored(1))
    assert messages_sent(told, CheckpointCompleted) == [CheckpointCompleted(1)] * 2
    (commit,) = messages_sent(told, Commit)
    assert (commit.checkpoint, len(commit.committables)) == (1, 2)


def test_the_next_commits_wait_for_those_before_and_stand_in_the_manifest_until_then() -> None:
    play = running()
    first = messages_sent(completed(play, 1, "x"), Commit)[0]
    play.wait(10)
    (store,) = actions_of_type(play.acknowledge(2, prepared="y"), Store)
    assert [c.checkpoint for c in loads(store.data).commits] == [1, 2]
    assert messages_sent(play.tell(Stored(2)), Commit) == []
    assert [c.checkpoint for c in messages_sent(play.say(0, Committed(first.step, 1)), Commit)] == [2]


def test_a_checkpoint_of_which_a_task_says_nothing_is_given_up_in_time() -> None:
    play = running(checkpoints=CheckpointSettings(timeout=5.0, tolerated_failures=1))
    play.wait(10)
    told = play.wait(5)
    assert messages_sent(told, CheckpointAborted) == [CheckpointAborted(1)] * 2
    assert "5 s" in actions_of_type(told, CheckpointReport)[0].error
    assert actions_of_type(told, StopWorkers) == []
    again = play.wait(10)
    assert messages_sent(again, TriggerBarrier)[0] == TriggerBarrier(2, "checkpoint")
    play.wait(5)
    assert actions_of_type(play.taken(), StopWorkers) == [StopWorkers(0.0)]


def test_what_was_prepared_for_a_checkpoint_that_is_given_up_goes_with_the_next() -> None:
    play = running(checkpoints=CheckpointSettings(timeout=5.0, tolerated_failures=1))
    play.wait(10)
    writer = next(step for step in play.job.plan.steps if step.is_sink)
    early, late = (Prepared("write/Write", (Committable((n, 1), "x"),)) for n in (0, 1))
    play.say(0, Acknowledge(1, TaskId(writer.stage, 0), prepared=(early,)))
    play.wait(5)
    play.say(1, Acknowledge(1, TaskId(writer.stage, 1), prepared=(late,)))
    play.wait(5)
    play.taken()
    play.acknowledge(2, prepared="y")
    (commit,) = messages_sent(play.tell(Stored(2)), Commit)
    assert [piece.order for piece in commit.committables] == [(0, 1), (1, 1), (0, 2), (1, 2)]


def test_a_task_that_declines_ends_the_checkpoint_and_what_it_prepared_is_kept() -> None:
    play = running(checkpoints=CheckpointSettings(tolerated_failures=1))
    play.wait(10)
    prepared = (Prepared("write/Write", (Committable((1, 1), "x"),)),)
    told = play.say(1, Decline(1, TaskId(1, 1), "the disk is full", prepared))
    assert "the disk is full" in actions_of_type(told, CheckpointReport)[0].error
    play.wait(10)
    play.acknowledge(2)
    (commit,) = messages_sent(play.tell(Stored(2)), Commit)
    assert [piece.order for piece in commit.committables] == [(1, 1)]


@pytest.mark.parametrize("interval", [0.05, 10.0])
@pytest.mark.parametrize("ends", ["input", "stop"])
def test_a_last_checkpoint_that_fails_is_tried_again_after_longer_and_longer_pauses(
    ends: str, interval: float, tmp_path: Path
) -> None:
    play = running(checkpoints=CheckpointSettings(tolerated_failures=100, interval=interval, directory=str(tmp_path)))
    told = play.end_all() if ends == "input" else play.tell(StopJob())
    waited = []
    for number in range(1, 7):
        assert {trigger.checkpoint for trigger in messages_sent(told, TriggerBarrier)} == {number}
        told = play.say(1, Decline(number, TaskId(1, 1), "the disk is full"))
        assert not messages_sent(told, TriggerBarrier)
        wake = play.coordinator.next_wake()
        assert wake is not None, "nobody would begin it again"
        waited.append((wake - play.now) / SECOND)
        told = play.wait((wake - 1 - play.now) / SECOND)
        assert not told, "it was woken before its time, or began before its time"
        told = play.wait(1 / SECOND)
    assert waited == ([1, 2, 4, 8, 10, 10] if interval == 10 else [1] * 6)
    play.acknowledge(7, ended=ends == "input")
    play.tell(Stored(7))
    assert play.coordinator.next_wake() != play.now


def test_the_work_of_cleaning_up_does_not_grow_with_each_checkpoint_that_fails() -> None:
    play = running(checkpoints=CheckpointSettings(tolerated_failures=100))
    asked: list[set[str]] = []
    for number in range(1, 41):
        play.wait(10)
        (delete,) = actions_of_type(play.say(1, Decline(number, TaskId(1, 1), "the store refuses it")), Delete)
        assert f"chk-{number:06}" in {folder.rstrip("/") for folder in delete.folders}
        asked.append(set(delete.folders))
    assert max(map(len, asked)) == len(asked[-1]) <= 10
    play.wait(10)
    play.acknowledge(41)
    (delete,) = actions_of_type(play.tell(Stored(41)), Delete)
    assert set(delete.folders) == set().union(*asked), "what was written late is removed, too"


def test_a_restart_forgets_how_long_the_last_checkpoint_was_to_wait() -> None:
    play = running(checkpoints=CheckpointSettings(tolerated_failures=1))
    play.end_all()
    play.say(1, Decline(1, TaskId(1, 1), "the disk is full"))
    play.tell(WorkerGone(1, play.attempt, "killed"))
    play.wait(1)
    play.attempt += 1
    play.clear_away(play.ready())
    assert {trigger.checkpoint for trigger in messages_sent(play.end_all(), TriggerBarrier)} == {2}


def test_older_checkpoints_are_deleted_when_a_newer_one_is_complete_manifest_first() -> None:
    play = running()
    completed(play, 1)
    (delete,) = actions_of_type(completed(play, 2), Delete)
    assert delete.names[0] == "chk-000001/manifest.json"
    assert set(delete.names[1:]) == {f"chk-000001/{task}.state" for task in play.tasks()}


def test_a_manifest_that_can_not_be_stored_is_a_failed_checkpoint() -> None:
    play = running(checkpoints=CheckpointSettings(tolerated_failures=1))
    play.wait(10)
    play.acknowledge(1, prepared="x")
    told = play.tell(Stored(1, "OSError: disk full"))
    assert messages_sent(told, Commit) == []
    assert messages_sent(told, CheckpointAborted) == [CheckpointAborted(1)] * 2


def test_the_end_of_input_takes_a_last_checkpoint_and_ends_after_its_commits() -> None:
    play = running()
    assert messages_sent(play.end_all(), TriggerBarrier) == [TriggerBarrier(1, "checkpoint")] * 2
    play.acknowledge(1, ended=True, prepared="x")
    told = play.tell(Stored(1))
    assert messages_sent(told, Cancel) == []
    told = commit_all(play, told)
    assert messages_sent(told, Cancel) == []  # what its sinks leave is removed first
    assert len(messages_sent(play.clear_away(told), Cancel)) == 2
    assert actions_of_type(gone(play), Finish) == [Finish("finished")]


def test_a_checkpoint_whose_manifest_is_on_its_way_when_input_ends_is_not_the_last_one() -> None:
    play = running()
    play.wait(10)
    play.acknowledge(1)
    assert messages_sent(play.end_all(), TriggerBarrier) == []
    assert messages_sent(play.tell(Stored(1)), TriggerBarrier) == [TriggerBarrier(2, "checkpoint")] * 2


def test_a_checkpoint_that_tasks_still_store_when_all_input_has_ended_makes_way_for_the_last() -> None:
    play = running()
    play.wait(10)
    writer = next(step for step in play.job.plan.steps if step.is_sink)
    early, late = (Prepared("write/Write", (Committable((n, 1), "x"),)) for n in (0, 1))
    play.say(0, Acknowledge(1, TaskId(writer.stage, 0), prepared=(early,)))
    told = play.end_all()
    assert messages_sent(told, CheckpointAborted) == [CheckpointAborted(1)] * 2
    assert messages_sent(told, TriggerBarrier) == [TriggerBarrier(2, "checkpoint")] * 2
    assert actions_of_type(told, CheckpointReport) == []
    play.say(1, Decline(1, TaskId(writer.stage, 1), "given up", (late,)))
    play.acknowledge(2)
    (commit,) = messages_sent(play.tell(Stored(2)), Commit)
    assert [piece.order for piece in commit.committables] == [(0, 1), (1, 1)]
    assert actions_of_type(play.taken(), StopWorkers) == []


def test_a_finished_job_says_so_in_its_directory() -> None:
    play = running(checkpoints=KEPT)
    play.end_all()
    play.acknowledge(1, ended=True)
    (store,) = actions_of_type(play.clear_away(play.tell(Stored(1))), Store)
    assert store.name == "job.json"
    assert b'"finished"' in store.data
    play.tell(Stored(0))
    assert actions_of_type(gone(play), Finish) == [Finish("finished")]


# -- failures


def restarted(play: CoordinatorHarness) -> list[Any]:
    """The wait is over, and a fresh set of workers is up."""
    wake = play.coordinator.next_wake()
    assert wake is not None
    play.wait((wake - play.now) / SECOND)
    play.attempt += 1
    play.taken()
    return play.ready()


def test_a_stream_goes_on_from_its_last_checkpoint_with_positions_and_state() -> None:
    play = running()
    play.wait(10)
    progress = SplitProgress("words", ("split 0",), (("split 1", 17),))
    play.acknowledge(1, splits=[progress])
    play.tell(Stored(1))
    play.tell(WorkerGone(0, 1, "killed by SIGKILL"))
    restarted(play)
    (abort,) = messages_sent(play.taken(), AbortOutput)
    told = play.say(0, OutputAborted(abort.step))
    assert messages_sent(told, ListSplits) == []
    for deploy in messages_sent(told, Deploy):
        assert [part.task for part in deploy.restore] == list(deploy.tasks)
        assert all(part.handle.files[0][0].startswith("chk-000001/") for part in deploy.restore)
    deals = messages_sent(told, AssignSplits)
    assert [(s.id, s.position) for deal in deals for s in deal.splits] == [("split 1", 17), ("split 2", None)]
    assert messages_sent(play.say(0, RequestSplit(TaskId(0, 0), 0)), AssignSplits)[0].splits[0].id == "split 3"


def test_a_commit_that_was_under_way_is_made_again_before_output_is_removed_and_tasks_are_deployed() -> None:
    play = running()
    (commit,) = messages_sent(completed(play, 1, "x"), Commit)
    play.tell(WorkerGone(0, 1, "killed"))
    told = restarted(play)
    assert messages_sent(told, Commit) == [commit]
    assert messages_sent(told, AbortOutput) == []
    told = play.say(0, Committed(commit.step, 1))
    assert messages_sent(told, AbortOutput) == [AbortOutput(commit.step, ("run",))]
    assert deployed_tasks(told) == []
    assert deployed_tasks(play.say(0, OutputAborted(commit.step))) == play.tasks()


def test_a_manifest_that_is_in_place_counts_though_its_attempt_was_lost_before_that_was_heard() -> None:
    play = running(restart=RestartSettings(delay=0.0))
    play.wait(10)
    play.acknowledge(1, prepared="x")
    assert actions_of_type(play.tell(WorkerGone(0, 1, "killed")), StopWorkers)
    assert actions_of_type(play.wait(60), StartWorkers) == []  # where to go on from is not known yet
    assert actions_of_type(play.tell(Stored(1)), StartWorkers) == [StartWorkers(2)]
    play.attempt = 2
    assert [commit.checkpoint for commit in messages_sent(play.ready(), Commit)] == [1]


def test_output_of_a_manifest_that_is_on_its_way_is_not_removed_by_a_job_that_fails() -> None:
    play = running(checkpoints=KEPT, restart=RestartSettings("none"))
    play.wait(10)
    play.acknowledge(1, prepared="x")
    play.tell(WorkerGone(0, 1, "killed"))
    play.tell(WorkerGone(1, 1, "killed"))
    assert actions_of_type(play.taken(), StartWorkers) == []
    assert play.coordinator.next_wake() is None


def test_what_an_earlier_attempt_says_is_not_heard() -> None:
    play = running()
    play.wait(10)
    play.tell(WorkerGone(0, 1, "killed"))
    restarted(play)
    for abort in messages_sent(play.taken(), AbortOutput):
        play.say(0, OutputAborted(abort.step))
    assert play.say(1, TaskFailed(TaskId(0, 1), USER_ERROR, user=True), attempt=1) == []
    assert play.tell(WorkerGone(1, 1, "killed")) == []
    assert play.say(1, Acknowledge(1, TaskId(0, 1)), attempt=1) == []
    assert play.tell(Stored(1)) == []


def test_the_same_error_on_the_same_element_fails_at_once_and_another_does_not() -> None:
    play = running()
    seven = TaskFailed(TaskId(0, 0), USER_ERROR, user=True, element="7")
    eight = TaskFailed(TaskId(0, 0), packed(RunError("other")), user=True, element="8")
    for message in (seven, eight, seven):
        assert actions_of_type(play.say(0, message), Report)[-1].state == "restarting"
        restarted(play)
        for abort in messages_sent(play.taken(), AbortOutput):
            play.say(0, OutputAborted(abort.step))
    told = play.say(0, seven)
    assert actions_of_type(told, Report)[0].text.endswith("the same error was raised again on the same element")


def test_a_worker_that_dies_while_it_commits_lists_or_aborts_does_not_stop_the_job() -> None:
    play = CoordinatorHarness(make_job(count_words_to_text()))
    play.say(0, Ready())
    play.say(1, Ready())  # listing
    play.tell(WorkerGone(0, 1, "killed"))
    told = restarted(play)
    for abort in messages_sent(told, AbortOutput):
        play.tell(WorkerGone(0, 2, "killed"))  # aborting
        assert abort
    told = restarted(play)
    for abort in messages_sent(told, AbortOutput):
        told += play.list_splits(play.say(0, OutputAborted(abort.step)))
    assert deployed_tasks(told) == play.tasks()


def test_a_worker_that_is_silent_for_too_long_is_replaced() -> None:
    play = running(task_timeout=5.0)
    assert actions_of_type(play.wait(4), StopWorkers) == []
    for worker in range(2):
        play.say(worker, Heartbeat((), MetricCells()))
    assert actions_of_type(play.wait(4), StopWorkers) == []
    play.wait(0.5)
    play.say(1, Heartbeat((), MetricCells()))
    told = play.wait(1)
    assert actions_of_type(told, StopWorkers) == [StopWorkers(0.0)]
    assert "worker 0" in actions_of_type(told, Report)[0].text
    restarted(play)
    assert actions_of_type(play.wait(5), StopWorkers) == [StopWorkers(0.0)]


def test_a_worker_is_not_called_silent_before_it_has_been_started() -> None:
    """The store may be slow."""
    play = CoordinatorHarness(make_job(count_words_to_text(), task_timeout=5.0))
    assert actions_of_type(play.wait(60), StopWorkers) == []
    play.tell(WorkersStarted(1))
    assert actions_of_type(play.wait(4), StopWorkers) == []
    assert actions_of_type(play.wait(1), StopWorkers) == [StopWorkers(0.0)]


def test_no_worker_is_called_stuck_unless_a_timeout_is_asked_for() -> None:
    play = running(checkpoints=CheckpointSettings(interval=1e6))
    assert play.wait(100_000) == []


def test_a_directory_that_can_not_be_asked_whose_it_is_costs_an_attempt_and_not_the_job() -> None:
    play = running(restart=RestartSettings(attempts=1, delay=1.0))
    told = play.tell(Unreachable("OSError: no route to host"))
    assert actions_of_type(told, StopWorkers) == [StopWorkers(0.0)]
    assert "no route to host" in actions_of_type(told, Report)[0].text
    assert actions_of_type(play.wait(1), StartWorkers) == [StartWorkers(2)]
    told = play.tell(Unreachable("OSError: no route to host"))
    assert actions_of_type(told, StopWorkers) != []
    assert actions_of_type(told, Report)[0].state == "finishing"


def test_who_is_fenced_off_kills_its_workers_and_does_nothing_more() -> None:
    play = running()
    told = play.tell(Fenced("another run has taken over"))
    assert actions_of_type(told, StopWorkers) == [StopWorkers(0.0)]
    (finish,) = actions_of_type(told, Finish)
    assert finish.state == "failed"
    assert messages_sent(told, AbortOutput) == []
    assert play.say(0, TaskFailed(None, USER_ERROR, user=True)) == []
    assert play.coordinator.next_wake() is None


# -- stopping


def test_a_cancelled_job_commits_nothing_and_leaves_no_output() -> None:
    play = running()
    told = play.tell(CancelJob())
    assert len(messages_sent(told, Cancel)) == 2
    assert messages_sent(told, Commit) == []
    assert actions_of_type(gone(play), StartWorkers) == [StartWorkers(2)]
    play.attempt = 2
    play.taken()
    play.ready()
    for abort in messages_sent(play.taken(), AbortOutput):
        assert play.say(0, OutputAborted(abort.step))[-1] == Finish("cancelled")


def test_workers_that_do_not_end_when_they_are_told_do_not_hold_up_the_job() -> None:
    play = running()
    play.tell(CancelJob())
    play.wait(100)
    assert actions_of_type(play.taken(), Finish) == [Finish("cancelled")]


@pytest.mark.parametrize("before", ["new", "starting", "waiting"])
def test_a_job_can_be_cancelled_at_any_time(before: str) -> None:
    play = CoordinatorHarness(make_job(count_words_to_text()))
    if before == "waiting":
        play.ready()
        play.tell(WorkerGone(0, 1, "killed"))
    play.tell(CancelJob())
    play.wait(100)
    assert actions_of_type(play.taken(), Finish) == [Finish("cancelled")]


def test_stop_takes_a_checkpoint_after_which_sources_give_nothing_and_commits_it() -> None:
    play = running(checkpoints=KEPT)
    told = play.tell(StopJob())
    assert messages_sent(told, TriggerBarrier) == [TriggerBarrier(1, "savepoint")] * 2
    assert messages_sent(told, StopSources) == [StopSources(drain=False)] * 2
    play.acknowledge(1, prepared="x")
    told = play.tell(Stored(1))
    assert messages_sent(told, Cancel) == []
    cleared = play.clear_away(commit_all(play, told))  # nothing of it is left where it is written
    (store,) = actions_of_type(cleared, Store)
    assert loads(store.data).commits == ()  # whoever goes on from here owes nothing
    assert messages_sent(play.tell(Stored(0)), Cancel)
    assert actions_of_type(gone(play), Finish) == [Finish("stopped")]


def test_stop_into_a_savepoint_writes_it_there_and_ends_when_that_is_done() -> None:
    play = running()
    assert messages_sent(play.tell(StopJob(savepoint="/saved")), TriggerBarrier) == [TriggerBarrier(1, "savepoint")] * 2
    (own,) = actions_of_type(play.acknowledge(1, prepared="x"), Store)
    assert own.directory is None
    told = play.tell(Stored(1))
    assert actions_of_type(told, Store) == []  # its output is committed first
    (copy,) = actions_of_type(commit_all(play, told), Store)
    assert (copy.directory, copy.name, loads(copy.data).commits) == ("/saved", own.name, ())
    told = play.tell(Stored(1))
    assert actions_of_type(told, CheckpointReport)[0].savepoint == "/saved"
    assert messages_sent(told, Cancel) == []
    assert messages_sent(play.clear_away(told), Cancel)


def test_stop_without_a_place_to_keep_what_follows_drains() -> None:
    play = running()
    assert messages_sent(play.tell(StopJob()), StopSources) == [StopSources(drain=True)] * 2
    play.end_all()
    play.acknowledge(1, ended=True)
    play.clear_away(play.tell(Stored(1)))
    assert actions_of_type(gone(play), Finish) == [Finish("finished")]


def test_a_drain_takes_no_checkpoint_before_its_last() -> None:
    play = running(checkpoints=KEPT)
    play.tell(StopJob(drain=True))
    assert messages_sent(play.wait(100), TriggerBarrier) == []
    assert messages_sent(play.end_all(), TriggerBarrier) == [TriggerBarrier(1, "checkpoint")] * 2


def test_a_drain_goes_on_after_a_failure() -> None:
    play = running(checkpoints=KEPT)
    play.tell(StopJob(drain=True))
    play.tell(WorkerGone(0, 1, "killed"))
    told = restarted(play)
    for abort in messages_sent(told, AbortOutput):
        told += play.say(0, OutputAborted(abort.step))
    assert messages_sent(told, StopSources) == [StopSources(drain=True)] * 2


def test_a_job_that_runs_for_some_time_stops_by_itself() -> None:
    play = running(checkpoints=CheckpointSettings(directory="/somewhere", interval=1e6), run_for=30.0)
    assert play.wait(29) == []
    assert messages_sent(play.wait(1), TriggerBarrier) == [TriggerBarrier(1, "savepoint")] * 2


def test_a_savepoint_is_a_checkpoint_that_is_copied_away_and_the_job_goes_on() -> None:
    play = running()
    assert messages_sent(play.tell(TakeSavepoint("/saved")), TriggerBarrier) == [TriggerBarrier(1, "savepoint")] * 2
    play.acknowledge(1, prepared="x")
    told = commit_all(play, play.tell(Stored(1)))
    assert [store.directory for store in actions_of_type(told, Store)] == ["/saved"]
    assert messages_sent(play.wait(100), TriggerBarrier) == []  # none begins while it is copied
    told = play.tell(Stored(1, "OSError: no space"))
    assert actions_of_type(told, CheckpointReport)[-1].error == "OSError: no space"
    assert messages_sent(told, TriggerBarrier) == [TriggerBarrier(2, "checkpoint")] * 2


def test_whoever_waits_for_a_savepoint_hears_that_the_job_was_restarted_meanwhile() -> None:
    play = running()
    play.tell(TakeSavepoint("/saved"))
    told = [*play.tell(WorkerGone(0, 1, "killed")), *play.wait(1)]
    (report,) = actions_of_type(told, CheckpointReport)
    assert (report.savepoint, report.error) == ("/saved", "the job was restarted before it was complete")


def test_a_bounded_job_says_that_it_has_no_savepoints() -> None:
    play = batch()
    (report,) = actions_of_type(play.tell(TakeSavepoint("/saved")), CheckpointReport)
    assert "no savepoints" in report.error


# -- going on in another process


def test_another_process_commits_what_a_manifest_holds_before_it_deploys() -> None:
    play = running()
    play.wait(10)
    (store,) = actions_of_type(play.acknowledge(1, prepared="x"), Store)
    resume = resumed(play.job, loads(store.data), "checkpoint 1")
    later = CoordinatorHarness(play.job, resume, epoch=2)
    assert actions_of_type(later.taken(), StartWorkers) == [StartWorkers(1_000_001)]
    told = later.ready()
    (commit,) = messages_sent(told, Commit)
    assert commit.checkpoint == 1
    told = later.say(0, Committed(commit.step, 1))
    told += later.say(0, OutputAborted(commit.step))
    assert deployed_tasks(told) == later.tasks()
    assert messages_sent(later.wait(10), TriggerBarrier)[0].checkpoint == 2


def test_another_process_has_only_to_commit_when_all_input_had_ended() -> None:
    play = running()
    play.end_all()
    (store,) = actions_of_type(play.acknowledge(1, prepared="x", ended=True), Store)
    later = CoordinatorHarness(play.job, resumed(play.job, loads(store.data), "checkpoint 1"), epoch=2)
    told = later.ready()
    (commit,) = messages_sent(told, Commit)
    told = later.clear_away(later.say(0, Committed(commit.step, 1)))
    later.clear_away(told)
    assert deployed_tasks(told) == []
    assert actions_of_type(gone(later), Finish) == [Finish("finished")]


# -- a test stream


def scripted(p: tg.Pipeline) -> None:
    p | TestStream().add_elements([1, 2]).advance_watermark_to_infinity() | "double" >> tg.Map(lambda x: x)


def test_a_test_stream_goes_on_when_every_task_has_handled_its_event() -> None:
    play = CoordinatorHarness(make_job(scripted))
    play.ready()
    told = play.say(0, RequestQuiescence(1, 5))
    assert messages_sent(told, TriggerBarrier) == [TriggerBarrier(1, "quiescence", clock=5)] * 2
    tasks = play.tasks()
    for task in tasks[:-1]:
        assert messages_sent(play.say(task.index, QuiescencePassed(1, task)), QuiescenceReached) == []
    assert messages_sent(play.say(0, QuiescencePassed(1, tasks[-1])), QuiescenceReached) == [QuiescenceReached(1)]


def test_a_task_may_have_handled_an_event_before_the_test_stream_asks() -> None:
    play = CoordinatorHarness(make_job(scripted))
    play.ready()
    for task in play.tasks():
        play.say(task.index, QuiescencePassed(1, task))
    assert messages_sent(play.say(0, RequestQuiescence(1)), QuiescenceReached) == [QuiescenceReached(1)]


def test_a_test_stream_has_no_checkpoints_between_its_events() -> None:
    play = CoordinatorHarness(make_job(scripted))
    play.ready()
    assert messages_sent(play.wait(100), TriggerBarrier) == []


# -- what always holds


@pytest.mark.parametrize("write", [count_words_to_text(), scripted], ids=["text", "scripted"])
def test_actions_can_travel(write: Callable[[tg.Pipeline], Any]) -> None:
    play = CoordinatorHarness(make_job(write))
    play.ready()
    for action in play.taken():
        assert pickle.loads(pickle.dumps(action, 5)) == action


TASKS = [TaskId(stage, index) for stage in range(2) for index in range(2)]
NUMBERS = st.integers(0, 3)
MESSAGES = st.one_of(
    st.just(Ready()),
    st.just(Heartbeat((), MetricCells())),
    st.builds(TaskEnded, st.sampled_from(TASKS)),
    st.builds(TaskFailed, st.sampled_from([None, *TASKS]), st.just(USER_ERROR), st.booleans(), st.sampled_from("ab")),
    st.builds(lambda: SplitsListed(0, (AssignedSplit("all", b""),))),
    st.builds(Acknowledge, NUMBERS, st.sampled_from(TASKS), ended=st.booleans()),
    st.builds(Decline, NUMBERS, st.sampled_from(TASKS), st.just("no")),
    st.builds(Committed, st.just(2), NUMBERS),
    st.just(OutputAborted(2)),
    st.builds(QuiescencePassed, NUMBERS, st.sampled_from(TASKS)),
    st.builds(RequestQuiescence, NUMBERS),
)
HAPPENINGS = st.one_of(
    st.tuples(st.just("says"), st.integers(0, 1), MESSAGES),
    st.tuples(st.just("passes"), st.sampled_from([0.1, 1.0, 10.0, 100.0])),
    st.tuples(st.just("good"), st.sampled_from(["ready", "acknowledge", "end"])),
    st.tuples(
        st.just("tell"),
        st.one_of(
            st.builds(Stored, NUMBERS, st.sampled_from(["", "disk full"])),
            st.builds(StopJob, st.booleans(), st.sampled_from([None, "/saved"])),
            st.builds(TakeSavepoint, st.just("/saved")),
        ),
    ),
    st.tuples(st.just("gone"), st.integers(0, 1)),
)


@given(st.booleans(), st.lists(HAPPENINGS, max_size=40))
def test_whatever_happens_it_is_never_at_a_loss_and_a_cancelled_job_ends(
    batch: bool, happenings: list[tuple[Any, ...]]
) -> None:
    """Anything in any order, of workers that say what they should not: the coordinator raises nothing, does not ask
    to be woken for nothing, starts attempts in order, and ends when it is told to."""
    play = CoordinatorHarness(_JOBS[batch])
    for happening in happenings:
        play.attempt = max(start.attempt for start in actions_of_type(play.said, StartWorkers))
        match happening:
            case ("says", worker, message):
                play.say(worker, message)
            case ("passes", seconds):
                play.wait(seconds)
            case ("tell", event):
                play.tell(event)
            case ("gone", worker):
                play.tell(WorkerGone(worker, play.attempt, "killed"))
            case ("good", "ready"):
                play.ready()
            case ("good", "acknowledge"):
                for trigger in messages_sent(play.said, TriggerBarrier)[-1:]:
                    play.acknowledge(trigger.checkpoint)
            case ("good", "end"):
                play.end_all()
        wake = play.coordinator.next_wake()
        assert wake is None or wake > play.now or play.tell(Tick())
    play.tell(CancelJob())
    play.tell(Stored(0))
    for _ in range(4):
        play.wait(100)
        for number in range(20):
            play.tell(Stored(number))
    attempts = [start.attempt for start in actions_of_type(play.said, StartWorkers)]
    assert attempts == list(range(1, len(attempts) + 1))
    assert len(actions_of_type(play.said, Finish)) == 1
    assert play.said[-1] == actions_of_type(play.said, Finish)[0]
    assert play.coordinator.next_wake() is None


_JOBS = {batch: make_job(count_words_to_text(), batch=batch) for batch in (False, True)}

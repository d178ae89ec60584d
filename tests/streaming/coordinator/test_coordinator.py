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
from tidegate.runners.checkpoint.manifest_json import loads
from tidegate.runners.checkpoint.parts import AssignedSplit, SplitProgress, StateHandle
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.errors.transport import packed, unpacked
from tidegate.runners.streaming.checkpoint.recovery import resumed
from tidegate.runners.streaming.model.settings import CheckpointSettings, RestartSettings
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
    SplitsListed,
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
    """A running stream."""
    harness = CoordinatorHarness(make_job(count_words_to_text(), **settings))
    harness.ready()
    harness.new_actions()
    return harness


def completed(harness: CoordinatorHarness, checkpoint: int, prepared: str = "") -> list[Any]:
    """Trigger a checkpoint and complete it, up to its commits."""
    harness.wait(10)
    harness.acknowledge(checkpoint, prepared=prepared)
    return harness.handle(Stored(checkpoint))


def commit_all(harness: CoordinatorHarness, requests: Iterable[Any]) -> list[Any]:
    actions = []
    for commit in messages_sent(requests, Commit):
        actions += harness.from_worker(0, Committed(commit.step, commit.checkpoint))
    return actions


def gone(harness: CoordinatorHarness) -> list[Any]:
    actions = []
    for worker in range(harness.job.settings.workers):
        actions += harness.handle(WorkerGone(worker, harness.attempt, "its process ended with exit code 0"))
    return actions


# -- the beginning


def test_nothing_is_deployed_before_all_workers_are_ready() -> None:
    harness = CoordinatorHarness(make_job(count_words_to_text()))
    assert actions_of_type(harness.new_actions(), StartWorkers) == [StartWorkers(1)]
    assert harness.from_worker(0, Ready()) == []
    assert messages_sent(harness.from_worker(1, Ready()), ListSplits)


def test_tasks_are_deployed_when_the_splits_are_known_and_each_worker_receives_its_own() -> None:
    harness = CoordinatorHarness(make_job(count_words_to_text()))
    harness.from_worker(0, Ready())
    asked = harness.from_worker(1, Ready())
    assert deployed_tasks(asked) == []
    actions = harness.list_splits(asked)
    assert deployed_tasks(actions) == sorted(harness.tasks())
    for worker in range(2):
        mine = [
            message for message in messages_sent(actions, Deploy) if worker in {task.index for task in message.tasks}
        ]
        assert [{task.index for task in deploy.tasks} for deploy in mine] == [{worker}]
    assignments = messages_sent(actions, AssignSplits)
    assert [(deal.task.index, [split.id for split in deal.splits], deal.more) for deal in assignments] == [
        (0, ["split 0"], True),
        (1, ["split 1"], True),
    ]


def test_a_task_that_requests_splits_is_assigned_more_until_none_are_left() -> None:
    harness = running()
    source = TaskId(0, 1)
    dealt = [messages_sent(harness.from_worker(1, RequestSplit(source, 0)), AssignSplits)[0] for _ in range(3)]
    assert [([split.id for split in deal.splits], deal.more) for deal in dealt] == [
        (["split 2"], True),
        (["split 3"], False),
        ([], False),
    ]


# -- batch


def batch(**settings: Any) -> CoordinatorHarness:
    harness = CoordinatorHarness(make_job(count_words_to_text(), batch=True, **settings))
    harness.ready()
    return harness


def regions(harness: CoordinatorHarness) -> list[list[TaskId]]:
    return [list(harness.job.topology.tasks(region)) for region in range(len(harness.job.plan.regions))]


def test_a_bounded_job_deploys_a_region_when_the_one_before_it_is_done() -> None:
    harness = batch()
    first, second = regions(harness)
    assert deployed_tasks(harness.new_actions()) == first
    assert deployed_tasks(harness.end_all(first[:-1])) == []
    assert deployed_tasks(harness.end_all(first[-1:])) == second


def test_a_bounded_job_commits_once_per_sink_after_its_last_region_and_then_ends() -> None:
    harness = batch()
    first, second = regions(harness)
    harness.end_all(first)
    for task in second:
        harness.from_worker(
            task.index, TaskEnded(task, (Prepared("write/Write", (Committable((task.index, 0), "x"),)),))
        )
    (commit,) = messages_sent(harness.new_actions(), Commit)
    assert commit.checkpoint is None
    assert [piece.order for piece in commit.committables] == [(0, 0), (1, 0)]
    actions = harness.from_worker(0, Committed(commit.step, None))
    assert len(messages_sent(actions, Cancel)) == 2
    assert actions_of_type(gone(harness), Finish) == [Finish("finished")]


def test_a_lost_worker_makes_a_bounded_job_repeat_only_the_region_that_is_not_done() -> None:
    harness = batch()
    first, second = regions(harness)
    harness.end_all(first)
    harness.end_all(second[:1])
    actions = harness.handle(WorkerGone(1, 1, "killed by SIGKILL"))
    assert actions_of_type(actions, StopWorkers) == [StopWorkers(0.0)]
    assert actions_of_type(harness.wait(1), StartWorkers) == [StartWorkers(2)]
    harness.attempt = 2
    harness.new_actions()
    harness.ready()
    (abort,) = messages_sent(harness.new_actions(), AbortOutput)
    assert deployed_tasks(harness.from_worker(0, OutputAborted(abort.step))) == second


def test_metrics_of_finished_tasks_count_once_when_workers_are_lost() -> None:
    harness = batch()
    first = regions(harness)[0]
    key = MetricKey("words", ENGINE, "elements_out")
    for task in first:
        harness.from_worker(task.index, TaskEnded(task, metrics=MetricCells(counters={key: 10})))
    harness.handle(WorkerGone(1, 1, "killed"))
    harness.wait(1)
    harness.attempt = 2
    harness.ready()
    for step in {abort.step for abort in messages_sent(harness.new_actions(), AbortOutput)}:
        harness.from_worker(0, OutputAborted(step))
    harness.now += 1_000_000
    harness.from_worker(0, Heartbeat((), MetricCells(counters={key: 5})))
    progress = harness.new_actions()[-1]
    assert progress.metrics.counters == {key: 25}  # type: ignore[union-attr]


def with_history(p: tg.Pipeline) -> None:
    """A live stream, each of whose elements is looked up in bounded history."""
    history = p | "history" >> tg.Create([1, 2, 3]) | "known" >> tg.Map(str)
    _ = p | "live" >> tg.Read(CountingSource()) | "look up" >> tg.Map(lambda n, known: n in known, tg.AsList(history))


def test_metrics_of_a_finished_history_region_survive_in_the_jobs_next_process() -> None:
    """The region's tasks end before the first checkpoint of the attempt, which thus has no state files of theirs."""
    harness = CoordinatorHarness(make_job(with_history, checkpoints=KEPT))
    harness.ready()
    key = MetricKey("known", ENGINE, "elements_out")
    history, *live = regions(harness)
    for task in history:
        harness.list_splits(harness.from_worker(task.index, TaskEnded(task, metrics=MetricCells(counters={key: 2}))))
    harness.handle(WorkerGone(0, 1, "killed by SIGKILL"))
    assert not set(deployed_tasks(restarted(harness))) & set(history)
    harness.new_actions()
    harness.wait(10)
    tasks = [task for region in live for task in region]
    for task in tasks:
        handle = StateHandle(((f"chk-000001/{task}.state", 10, 1),))
        harness.from_worker(task.index, Acknowledge(1, task, handle))
    (store,) = actions_of_type(harness.new_actions(), Store)
    resume = resumed(harness.job, loads(store.data), "checkpoint 1")
    next = CoordinatorHarness(harness.job, resume, epoch=2)
    next.ready()
    next.now += SECOND
    next.from_worker(0, Heartbeat((), MetricCells()))
    assert actions_of_type(next.actions, Progress)[-1].metrics.counters == {key: 2 * len(history)}


def test_a_bounded_job_does_not_retry_an_error_in_user_code() -> None:
    harness = batch()
    actions = harness.from_worker(0, TaskFailed(TaskId(0, 0), USER_ERROR, user=True, element="7"))
    assert actions_of_type(actions, StartWorkers) == []
    assert messages_sent(actions, Cancel)
    gone(harness)
    harness.attempt += 1
    harness.ready()
    for abort in messages_sent(harness.new_actions(), AbortOutput):
        harness.from_worker(0, OutputAborted(abort.step))
    (finish,) = actions_of_type(harness.new_actions(), Finish)
    assert finish.state == "failed"
    assert finish.error is not None
    assert str(unpacked(finish.error)) == "it broke"


def test_lost_workers_are_replaced_a_limited_number_of_times_without_progress() -> None:
    harness = batch(restart=RestartSettings(attempts=2, delay=0.0))
    for _ in range(2):
        harness.handle(WorkerGone(0, harness.attempt, "killed"))
        harness.wait(0)
        harness.attempt += 1
    assert actions_of_type(harness.new_actions(), StartWorkers)[-1] == StartWorkers(3)
    harness.handle(WorkerGone(0, harness.attempt, "killed by SIGKILL"))
    harness.handle(WorkerGone(1, harness.attempt, "killed"))
    harness.wait(60)
    (finish,) = actions_of_type(harness.new_actions(), Finish)
    assert finish.error is not None
    assert "killed by SIGKILL" in str(unpacked(finish.error))


# -- checkpoints


def test_a_checkpoint_is_triggered_at_all_workers_when_its_interval_has_passed() -> None:
    harness = running()
    assert messages_sent(harness.wait(9.9), TriggerBarrier) == []
    assert messages_sent(harness.wait(0.1), TriggerBarrier) == [TriggerBarrier(1, "checkpoint")] * 2
    assert messages_sent(harness.wait(60), TriggerBarrier) == []  # one at a time


def test_commits_begin_only_when_the_manifest_is_stored() -> None:
    harness = running()
    harness.wait(10)
    acknowledged = harness.acknowledge(1, prepared="x")
    (store,) = actions_of_type(acknowledged, Store)
    assert store.name == "chk-000001/manifest.json"
    assert [c.step for c in loads(store.data).commits] == ["write/Write"]
    assert messages_sent(acknowledged, Commit) == []
    actions = harness.handle(Stored(1))
    assert messages_sent(actions, CheckpointCompleted) == [CheckpointCompleted(1)] * 2
    (commit,) = messages_sent(actions, Commit)
    assert (commit.checkpoint, len(commit.committables)) == (1, 2)


def test_commits_wait_for_earlier_ones_and_are_listed_in_the_manifest_until_then() -> None:
    harness = running()
    first = messages_sent(completed(harness, 1, "x"), Commit)[0]
    harness.wait(10)
    (store,) = actions_of_type(harness.acknowledge(2, prepared="y"), Store)
    assert [c.checkpoint for c in loads(store.data).commits] == [1, 2]
    assert messages_sent(harness.handle(Stored(2)), Commit) == []
    assert [c.checkpoint for c in messages_sent(harness.from_worker(0, Committed(first.step, 1)), Commit)] == [2]


def test_a_checkpoint_that_a_task_never_acknowledges_is_aborted_at_its_timeout() -> None:
    harness = running(checkpoints=CheckpointSettings(timeout=5.0, tolerated_failures=1))
    harness.wait(10)
    actions = harness.wait(5)
    assert messages_sent(actions, CheckpointAborted) == [CheckpointAborted(1)] * 2
    assert "5 s" in actions_of_type(actions, CheckpointReport)[0].error
    assert actions_of_type(actions, StopWorkers) == []
    again = harness.wait(10)
    assert messages_sent(again, TriggerBarrier)[0] == TriggerBarrier(2, "checkpoint")
    harness.wait(5)
    assert actions_of_type(harness.new_actions(), StopWorkers) == [StopWorkers(0.0)]


def test_output_prepared_for_an_aborted_checkpoint_is_committed_with_the_next() -> None:
    harness = running(checkpoints=CheckpointSettings(timeout=5.0, tolerated_failures=1))
    harness.wait(10)
    writer = next(step for step in harness.job.plan.steps if step.is_sink)
    early, late = (Prepared("write/Write", (Committable((n, 1), "x"),)) for n in (0, 1))
    harness.from_worker(0, Acknowledge(1, TaskId(writer.stage, 0), prepared=(early,)))
    harness.wait(5)
    harness.from_worker(1, Acknowledge(1, TaskId(writer.stage, 1), prepared=(late,)))
    harness.wait(5)
    harness.new_actions()
    harness.acknowledge(2, prepared="y")
    (commit,) = messages_sent(harness.handle(Stored(2)), Commit)
    assert [piece.order for piece in commit.committables] == [(0, 1), (1, 1), (0, 2), (1, 2)]


def test_a_task_that_declines_aborts_the_checkpoint_and_its_prepared_output_is_retained() -> None:
    harness = running(checkpoints=CheckpointSettings(tolerated_failures=1))
    harness.wait(10)
    prepared = (Prepared("write/Write", (Committable((1, 1), "x"),)),)
    actions = harness.from_worker(1, Decline(1, TaskId(1, 1), "the disk is full", prepared))
    assert "the disk is full" in actions_of_type(actions, CheckpointReport)[0].error
    harness.wait(10)
    harness.acknowledge(2)
    (commit,) = messages_sent(harness.handle(Stored(2)), Commit)
    assert [piece.order for piece in commit.committables] == [(1, 1)]


@pytest.mark.parametrize("interval", [0.05, 10.0])
@pytest.mark.parametrize("ends", ["input", "stop"])
def test_a_final_checkpoint_that_fails_is_retried_with_growing_backoff(
    ends: str, interval: float, tmp_path: Path
) -> None:
    harness = running(
        checkpoints=CheckpointSettings(tolerated_failures=100, interval=interval, directory=str(tmp_path))
    )
    actions = harness.end_all() if ends == "input" else harness.handle(StopJob())
    waited = []
    for number in range(1, 7):
        assert {trigger.checkpoint for trigger in messages_sent(actions, TriggerBarrier)} == {number}
        actions = harness.from_worker(1, Decline(number, TaskId(1, 1), "the disk is full"))
        assert not messages_sent(actions, TriggerBarrier)
        wake = harness.coordinator.next_wake()
        assert wake is not None, "nobody would begin it again"
        waited.append((wake - harness.now) / SECOND)
        actions = harness.wait((wake - 1 - harness.now) / SECOND)
        assert not actions, "it was woken before its time, or began before its time"
        actions = harness.wait(1 / SECOND)
    assert waited == ([1, 2, 4, 8, 10, 10] if interval == 10 else [1] * 6)
    harness.acknowledge(7, ended=ends == "input")
    harness.handle(Stored(7))
    assert harness.coordinator.next_wake() != harness.now


def test_the_work_of_cleaning_up_does_not_grow_with_each_checkpoint_that_fails() -> None:
    harness = running(checkpoints=CheckpointSettings(tolerated_failures=100))
    asked: list[set[str]] = []
    for number in range(1, 41):
        harness.wait(10)
        (delete,) = actions_of_type(
            harness.from_worker(1, Decline(number, TaskId(1, 1), "the store refuses it")), Delete
        )
        assert f"chk-{number:06}" in {folder.rstrip("/") for folder in delete.folders}
        asked.append(set(delete.folders))
    assert max(map(len, asked)) == len(asked[-1]) <= 10
    harness.wait(10)
    harness.acknowledge(41)
    (delete,) = actions_of_type(harness.handle(Stored(41)), Delete)
    assert set(delete.folders) == set().union(*asked), "what was written late is removed, too"


def test_a_restart_resets_the_backoff_of_the_final_checkpoint() -> None:
    harness = running(checkpoints=CheckpointSettings(tolerated_failures=1))
    harness.end_all()
    harness.from_worker(1, Decline(1, TaskId(1, 1), "the disk is full"))
    harness.handle(WorkerGone(1, harness.attempt, "killed"))
    harness.wait(1)
    harness.attempt += 1
    harness.abort_output(harness.ready())
    assert {trigger.checkpoint for trigger in messages_sent(harness.end_all(), TriggerBarrier)} == {2}


def test_older_checkpoints_are_deleted_when_a_newer_one_is_complete_manifest_first() -> None:
    harness = running()
    completed(harness, 1)
    (delete,) = actions_of_type(completed(harness, 2), Delete)
    assert delete.names[0] == "chk-000001/manifest.json"
    assert set(delete.names[1:]) == {f"chk-000001/{task}.state" for task in harness.tasks()}


def test_a_manifest_that_can_not_be_stored_is_a_failed_checkpoint() -> None:
    harness = running(checkpoints=CheckpointSettings(tolerated_failures=1))
    harness.wait(10)
    harness.acknowledge(1, prepared="x")
    actions = harness.handle(Stored(1, "OSError: disk full"))
    assert messages_sent(actions, Commit) == []
    assert messages_sent(actions, CheckpointAborted) == [CheckpointAborted(1)] * 2


def test_the_end_of_input_takes_a_last_checkpoint_and_ends_after_its_commits() -> None:
    harness = running()
    assert messages_sent(harness.end_all(), TriggerBarrier) == [TriggerBarrier(1, "checkpoint")] * 2
    harness.acknowledge(1, ended=True, prepared="x")
    actions = harness.handle(Stored(1))
    assert messages_sent(actions, Cancel) == []
    actions = commit_all(harness, actions)
    assert messages_sent(actions, Cancel) == []  # what its sinks leave is removed first
    assert len(messages_sent(harness.abort_output(actions), Cancel)) == 2
    assert actions_of_type(gone(harness), Finish) == [Finish("finished")]


def test_a_checkpoint_whose_manifest_is_being_stored_when_input_ends_is_not_the_final_one() -> None:
    harness = running()
    harness.wait(10)
    harness.acknowledge(1)
    assert messages_sent(harness.end_all(), TriggerBarrier) == []
    assert messages_sent(harness.handle(Stored(1)), TriggerBarrier) == [TriggerBarrier(2, "checkpoint")] * 2


def test_a_checkpoint_in_progress_when_all_input_has_ended_is_aborted_for_the_final_one() -> None:
    harness = running()
    harness.wait(10)
    writer = next(step for step in harness.job.plan.steps if step.is_sink)
    early, late = (Prepared("write/Write", (Committable((n, 1), "x"),)) for n in (0, 1))
    harness.from_worker(0, Acknowledge(1, TaskId(writer.stage, 0), prepared=(early,)))
    actions = harness.end_all()
    assert messages_sent(actions, CheckpointAborted) == [CheckpointAborted(1)] * 2
    assert messages_sent(actions, TriggerBarrier) == [TriggerBarrier(2, "checkpoint")] * 2
    assert actions_of_type(actions, CheckpointReport) == []
    harness.from_worker(1, Decline(1, TaskId(writer.stage, 1), "given up", (late,)))
    harness.acknowledge(2)
    (commit,) = messages_sent(harness.handle(Stored(2)), Commit)
    assert [piece.order for piece in commit.committables] == [(0, 1), (1, 1)]
    assert actions_of_type(harness.new_actions(), StopWorkers) == []


def test_a_finished_job_is_marked_as_finished_in_its_directory() -> None:
    harness = running(checkpoints=KEPT)
    harness.end_all()
    harness.acknowledge(1, ended=True)
    (store,) = actions_of_type(harness.abort_output(harness.handle(Stored(1))), Store)
    assert store.name == "job.json"
    assert b'"finished"' in store.data
    harness.handle(Stored(0))
    assert actions_of_type(gone(harness), Finish) == [Finish("finished")]


# -- failures


def restarted(harness: CoordinatorHarness) -> list[Any]:
    """Wait out the restart delay, and start new workers."""
    wake = harness.coordinator.next_wake()
    assert wake is not None
    harness.wait((wake - harness.now) / SECOND)
    harness.attempt += 1
    harness.new_actions()
    return harness.ready()


def test_a_stream_resumes_from_its_last_checkpoint_with_positions_and_state() -> None:
    harness = running()
    harness.wait(10)
    progress = SplitProgress("words", ("split 0",), (("split 1", 17),))
    harness.acknowledge(1, splits=[progress])
    harness.handle(Stored(1))
    harness.handle(WorkerGone(0, 1, "killed by SIGKILL"))
    restarted(harness)
    (abort,) = messages_sent(harness.new_actions(), AbortOutput)
    actions = harness.from_worker(0, OutputAborted(abort.step))
    assert messages_sent(actions, ListSplits) == []
    for deploy in messages_sent(actions, Deploy):
        assert [part.task for part in deploy.restore] == list(deploy.tasks)
        assert all(part.handle.files[0][0].startswith("chk-000001/") for part in deploy.restore)
    assignments = messages_sent(actions, AssignSplits)
    assert [(s.id, s.position) for deal in assignments for s in deal.splits] == [("split 1", 17), ("split 2", None)]
    assert (
        messages_sent(harness.from_worker(0, RequestSplit(TaskId(0, 0), 0)), AssignSplits)[0].splits[0].id == "split 3"
    )


def test_an_interrupted_commit_is_repeated_before_output_is_aborted_and_tasks_are_deployed() -> None:
    harness = running()
    (commit,) = messages_sent(completed(harness, 1, "x"), Commit)
    harness.handle(WorkerGone(0, 1, "killed"))
    actions = restarted(harness)
    assert messages_sent(actions, Commit) == [commit]
    assert messages_sent(actions, AbortOutput) == []
    actions = harness.from_worker(0, Committed(commit.step, 1))
    assert messages_sent(actions, AbortOutput) == [AbortOutput(commit.step, ("run",))]
    assert deployed_tasks(actions) == []
    assert deployed_tasks(harness.from_worker(0, OutputAborted(commit.step))) == harness.tasks()


def test_a_stored_manifest_counts_even_if_its_attempt_was_lost_before_the_confirmation() -> None:
    harness = running(restart=RestartSettings(delay=0.0))
    harness.wait(10)
    harness.acknowledge(1, prepared="x")
    assert actions_of_type(harness.handle(WorkerGone(0, 1, "killed")), StopWorkers)
    assert actions_of_type(harness.wait(60), StartWorkers) == []  # where to go on from is not known yet
    assert actions_of_type(harness.handle(Stored(1)), StartWorkers) == [StartWorkers(2)]
    harness.attempt = 2
    assert [commit.checkpoint for commit in messages_sent(harness.ready(), Commit)] == [1]


def test_a_failing_job_does_not_abort_output_of_a_manifest_that_is_being_stored() -> None:
    harness = running(checkpoints=KEPT, restart=RestartSettings("none"))
    harness.wait(10)
    harness.acknowledge(1, prepared="x")
    harness.handle(WorkerGone(0, 1, "killed"))
    harness.handle(WorkerGone(1, 1, "killed"))
    assert actions_of_type(harness.new_actions(), StartWorkers) == []
    assert harness.coordinator.next_wake() is None


def test_messages_of_an_earlier_attempt_are_ignored() -> None:
    harness = running()
    harness.wait(10)
    harness.handle(WorkerGone(0, 1, "killed"))
    restarted(harness)
    for abort in messages_sent(harness.new_actions(), AbortOutput):
        harness.from_worker(0, OutputAborted(abort.step))
    assert harness.from_worker(1, TaskFailed(TaskId(0, 1), USER_ERROR, user=True), attempt=1) == []
    assert harness.handle(WorkerGone(1, 1, "killed")) == []
    assert harness.from_worker(1, Acknowledge(1, TaskId(0, 1)), attempt=1) == []
    assert harness.handle(Stored(1)) == []


def test_the_same_error_on_the_same_element_fails_at_once_and_another_does_not() -> None:
    harness = running()
    seven = TaskFailed(TaskId(0, 0), USER_ERROR, user=True, element="7")
    eight = TaskFailed(TaskId(0, 0), packed(RunError("other")), user=True, element="8")
    for message in (seven, eight, seven):
        assert actions_of_type(harness.from_worker(0, message), Report)[-1].state == "restarting"
        restarted(harness)
        for abort in messages_sent(harness.new_actions(), AbortOutput):
            harness.from_worker(0, OutputAborted(abort.step))
    actions = harness.from_worker(0, seven)
    assert actions_of_type(actions, Report)[0].text.endswith("the same error was raised again on the same element")


def test_a_final_error_fails_at_once() -> None:
    actions = running().from_worker(0, TaskFailed(TaskId(0, 0), USER_ERROR, user=False, final=True))
    assert actions_of_type(actions, Report)[0].text.endswith("the job fails: a restart would end in the same way")


def test_a_worker_that_dies_while_it_commits_lists_or_aborts_does_not_stop_the_job() -> None:
    harness = CoordinatorHarness(make_job(count_words_to_text()))
    harness.from_worker(0, Ready())
    harness.from_worker(1, Ready())  # listing
    harness.handle(WorkerGone(0, 1, "killed"))
    actions = restarted(harness)
    for abort in messages_sent(actions, AbortOutput):
        harness.handle(WorkerGone(0, 2, "killed"))  # aborting
        assert abort
    actions = restarted(harness)
    for abort in messages_sent(actions, AbortOutput):
        actions += harness.list_splits(harness.from_worker(0, OutputAborted(abort.step)))
    assert deployed_tasks(actions) == harness.tasks()


def test_a_worker_without_heartbeats_is_replaced_after_the_timeout() -> None:
    harness = running(task_timeout=5.0)
    assert actions_of_type(harness.wait(4), StopWorkers) == []
    for worker in range(2):
        harness.from_worker(worker, Heartbeat((), MetricCells()))
    assert actions_of_type(harness.wait(4), StopWorkers) == []
    harness.wait(0.5)
    harness.from_worker(1, Heartbeat((), MetricCells()))
    actions = harness.wait(1)
    assert actions_of_type(actions, StopWorkers) == [StopWorkers(0.0)]
    assert "worker 0" in actions_of_type(actions, Report)[0].text
    restarted(harness)
    assert actions_of_type(harness.wait(5), StopWorkers) == [StopWorkers(0.0)]


def test_a_worker_does_not_time_out_before_it_has_been_started() -> None:
    """The storage may be slow."""
    harness = CoordinatorHarness(make_job(count_words_to_text(), task_timeout=5.0))
    assert actions_of_type(harness.wait(60), StopWorkers) == []
    harness.handle(WorkersStarted(1))
    assert actions_of_type(harness.wait(4), StopWorkers) == []
    assert actions_of_type(harness.wait(1), StopWorkers) == [StopWorkers(0.0)]


def test_no_worker_is_reported_as_stuck_unless_a_timeout_is_set() -> None:
    harness = running(checkpoints=CheckpointSettings(interval=1e6))
    assert harness.wait(100_000) == []


def test_a_job_waits_for_an_unreachable_checkpoint_directory_and_says_so() -> None:
    harness = running(restart=RestartSettings(attempts=1, delay=1.0))
    for attempt, delay in enumerate((1, 2, 4, 8, 10, 10), start=2):
        actions = harness.handle(Unreachable("OSError: no route to host"))
        assert actions_of_type(actions, StopWorkers) == [StopWorkers(0.0)]
        (report,) = actions_of_type(actions, Report)
        assert (report.state, report.text.endswith(f"in {delay} s")) == ("restarting", True)
        assert "no route to host" in report.text
        assert actions_of_type(harness.wait(delay), StartWorkers) == [StartWorkers(attempt)]


def test_a_fenced_coordinator_kills_its_workers_and_does_nothing_more() -> None:
    harness = running()
    actions = harness.handle(Fenced("another run has taken over"))
    assert actions_of_type(actions, StopWorkers) == [StopWorkers(0.0)]
    (finish,) = actions_of_type(actions, Finish)
    assert finish.state == "failed"
    assert messages_sent(actions, AbortOutput) == []
    assert harness.from_worker(0, TaskFailed(None, USER_ERROR, user=True)) == []
    assert harness.coordinator.next_wake() is None


# -- stopping


def test_a_cancelled_job_commits_nothing_and_leaves_no_output() -> None:
    harness = running()
    actions = harness.handle(CancelJob())
    assert len(messages_sent(actions, Cancel)) == 2
    assert messages_sent(actions, Commit) == []
    assert actions_of_type(gone(harness), StartWorkers) == [StartWorkers(2)]
    harness.attempt = 2
    harness.new_actions()
    harness.ready()
    for abort in messages_sent(harness.new_actions(), AbortOutput):
        assert harness.from_worker(0, OutputAborted(abort.step))[-1] == Finish("cancelled")


def test_workers_that_ignore_a_cancel_request_do_not_delay_the_end_of_the_job() -> None:
    harness = running()
    harness.handle(CancelJob())
    harness.wait(100)
    assert actions_of_type(harness.new_actions(), Finish) == [Finish("cancelled")]


@pytest.mark.parametrize("before", ["new", "starting", "waiting"])
def test_a_job_can_be_cancelled_at_any_time(before: str) -> None:
    harness = CoordinatorHarness(make_job(count_words_to_text()))
    if before == "waiting":
        harness.ready()
        harness.handle(WorkerGone(0, 1, "killed"))
    harness.handle(CancelJob())
    harness.wait(100)
    assert actions_of_type(harness.new_actions(), Finish) == [Finish("cancelled")]


def test_stop_takes_a_final_checkpoint_after_which_sources_emit_nothing_and_commits_it() -> None:
    harness = running(checkpoints=KEPT)
    actions = harness.handle(StopJob())
    assert messages_sent(actions, TriggerBarrier) == [TriggerBarrier(1, "savepoint")] * 2
    assert messages_sent(actions, StopSources) == [StopSources(drain=False)] * 2
    harness.acknowledge(1, prepared="x")
    actions = harness.handle(Stored(1))
    assert messages_sent(actions, Cancel) == []
    cleared = harness.abort_output(commit_all(harness, actions))  # nothing of it is left where it is written
    (store,) = actions_of_type(cleared, Store)
    assert loads(store.data).commits == ()  # whoever goes on from here owes nothing
    assert messages_sent(harness.handle(Stored(0)), Cancel)
    assert actions_of_type(gone(harness), Finish) == [Finish("stopped")]


def test_stop_with_a_savepoint_writes_it_and_then_ends_the_job() -> None:
    harness = running()
    assert (
        messages_sent(harness.handle(StopJob(savepoint="/saved")), TriggerBarrier)
        == [TriggerBarrier(1, "savepoint")] * 2
    )
    (own,) = actions_of_type(harness.acknowledge(1, prepared="x"), Store)
    assert own.directory is None
    actions = harness.handle(Stored(1))
    assert actions_of_type(actions, Store) == []  # its output is committed first
    (copy,) = actions_of_type(commit_all(harness, actions), Store)
    assert (copy.directory, copy.name, loads(copy.data).commits) == ("/saved", own.name, ())
    actions = harness.handle(Stored(1))
    assert actions_of_type(actions, CheckpointReport)[0].savepoint == "/saved"
    assert messages_sent(actions, Cancel) == []
    assert messages_sent(harness.abort_output(actions), Cancel)


def test_stop_without_a_checkpoint_directory_drains() -> None:
    harness = running()
    assert messages_sent(harness.handle(StopJob()), StopSources) == [StopSources(drain=True)] * 2
    harness.end_all()
    harness.acknowledge(1, ended=True)
    harness.abort_output(harness.handle(Stored(1)))
    assert actions_of_type(gone(harness), Finish) == [Finish("finished")]


def test_a_drain_takes_no_checkpoint_before_its_final_one() -> None:
    harness = running(checkpoints=KEPT)
    harness.handle(StopJob(drain=True))
    assert messages_sent(harness.wait(100), TriggerBarrier) == []
    assert messages_sent(harness.end_all(), TriggerBarrier) == [TriggerBarrier(1, "checkpoint")] * 2


def test_a_drain_continues_after_a_failure() -> None:
    harness = running(checkpoints=KEPT)
    harness.handle(StopJob(drain=True))
    harness.handle(WorkerGone(0, 1, "killed"))
    actions = restarted(harness)
    for abort in messages_sent(actions, AbortOutput):
        actions += harness.from_worker(0, OutputAborted(abort.step))
    assert messages_sent(actions, StopSources) == [StopSources(drain=True)] * 2


def test_a_job_with_a_run_time_limit_stops_by_itself() -> None:
    harness = running(checkpoints=CheckpointSettings(directory="/somewhere", interval=1e6), run_for=30.0)
    assert harness.wait(29) == []
    assert messages_sent(harness.wait(1), TriggerBarrier) == [TriggerBarrier(1, "savepoint")] * 2


def test_a_savepoint_is_a_copied_checkpoint_and_the_job_continues() -> None:
    harness = running()
    assert (
        messages_sent(harness.handle(TakeSavepoint("/saved")), TriggerBarrier) == [TriggerBarrier(1, "savepoint")] * 2
    )
    harness.acknowledge(1, prepared="x")
    actions = commit_all(harness, harness.handle(Stored(1)))
    assert [store.directory for store in actions_of_type(actions, Store)] == ["/saved"]
    assert messages_sent(harness.wait(100), TriggerBarrier) == []  # none begins while it is copied
    actions = harness.handle(Stored(1, "OSError: no space"))
    assert actions_of_type(actions, CheckpointReport)[-1].error == "OSError: no space"
    assert messages_sent(actions, TriggerBarrier) == [TriggerBarrier(2, "checkpoint")] * 2


def test_a_restart_fails_a_savepoint_request_that_is_in_progress() -> None:
    harness = running()
    harness.handle(TakeSavepoint("/saved"))
    actions = [*harness.handle(WorkerGone(0, 1, "killed")), *harness.wait(1)]
    (report,) = actions_of_type(actions, CheckpointReport)
    assert (report.savepoint, report.error) == ("/saved", "the job was restarted before it was complete")


def test_a_bounded_job_refuses_a_savepoint_request() -> None:
    harness = batch()
    (report,) = actions_of_type(harness.handle(TakeSavepoint("/saved")), CheckpointReport)
    assert "no savepoints" in report.error


# -- going on in another process


def test_a_resumed_job_commits_the_output_in_its_manifest_before_it_deploys() -> None:
    harness = running()
    harness.wait(10)
    (store,) = actions_of_type(harness.acknowledge(1, prepared="x"), Store)
    resume = resumed(harness.job, loads(store.data), "checkpoint 1")
    later = CoordinatorHarness(harness.job, resume, epoch=2)
    assert actions_of_type(later.new_actions(), StartWorkers) == [StartWorkers(1_000_001)]
    actions = later.ready()
    (commit,) = messages_sent(actions, Commit)
    assert commit.checkpoint == 1
    actions = later.from_worker(0, Committed(commit.step, 1))
    actions += later.from_worker(0, OutputAborted(commit.step))
    assert deployed_tasks(actions) == later.tasks()
    assert messages_sent(later.wait(10), TriggerBarrier)[0].checkpoint == 2


def test_a_resumed_job_only_commits_when_all_input_had_ended() -> None:
    harness = running()
    harness.end_all()
    (store,) = actions_of_type(harness.acknowledge(1, prepared="x", ended=True), Store)
    later = CoordinatorHarness(harness.job, resumed(harness.job, loads(store.data), "checkpoint 1"), epoch=2)
    actions = later.ready()
    (commit,) = messages_sent(actions, Commit)
    actions = later.abort_output(later.from_worker(0, Committed(commit.step, 1)))
    later.abort_output(actions)
    assert deployed_tasks(actions) == []
    assert actions_of_type(gone(later), Finish) == [Finish("finished")]


# -- a test stream


def scripted(p: tg.Pipeline) -> None:
    p | TestStream().add_elements([1, 2]).advance_watermark_to_infinity() | "double" >> tg.Map(lambda x: x)


def test_a_test_stream_sends_its_next_event_when_every_task_has_handled_the_last() -> None:
    harness = CoordinatorHarness(make_job(scripted))
    harness.ready()
    actions = harness.from_worker(0, RequestQuiescence(1, 5))
    assert messages_sent(actions, TriggerBarrier) == [TriggerBarrier(1, "quiescence", clock=5)] * 2
    tasks = harness.tasks()
    for task in tasks[:-1]:
        assert messages_sent(harness.from_worker(task.index, QuiescencePassed(1, task)), QuiescenceReached) == []
    assert messages_sent(harness.from_worker(0, QuiescencePassed(1, tasks[-1])), QuiescenceReached) == [
        QuiescenceReached(1)
    ]


def test_a_task_may_have_handled_an_event_before_the_test_stream_asks() -> None:
    harness = CoordinatorHarness(make_job(scripted))
    harness.ready()
    for task in harness.tasks():
        harness.from_worker(task.index, QuiescencePassed(1, task))
    assert messages_sent(harness.from_worker(0, RequestQuiescence(1)), QuiescenceReached) == [QuiescenceReached(1)]


def test_a_test_stream_has_no_checkpoints_between_its_events() -> None:
    harness = CoordinatorHarness(make_job(scripted))
    harness.ready()
    assert messages_sent(harness.wait(100), TriggerBarrier) == []


# -- what always holds


@pytest.mark.parametrize("write", [count_words_to_text(), scripted], ids=["text", "scripted"])
def test_actions_can_be_pickled(write: Callable[[tg.Pipeline], Any]) -> None:
    harness = CoordinatorHarness(make_job(write))
    harness.ready()
    for action in harness.new_actions():
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
        st.just("handle"),
        st.one_of(
            st.builds(Stored, NUMBERS, st.sampled_from(["", "disk full"])),
            st.builds(StopJob, st.booleans(), st.sampled_from([None, "/saved"])),
            st.builds(TakeSavepoint, st.just("/saved")),
        ),
    ),
    st.tuples(st.just("gone"), st.integers(0, 1)),
)


@given(st.booleans(), st.lists(HAPPENINGS, max_size=40))
def test_random_events_never_break_the_coordinator_and_a_cancelled_job_ends(
    batch: bool, happenings: list[tuple[Any, ...]]
) -> None:
    """Random events in random order, with messages that no correct worker sends: the coordinator raises nothing, asks
    for no needless wake-ups, starts attempts in order, and ends the job on request."""
    harness = CoordinatorHarness(_JOBS[batch])
    for happening in happenings:
        harness.attempt = max(start.attempt for start in actions_of_type(harness.actions, StartWorkers))
        match happening:
            case ("says", worker, message):
                harness.from_worker(worker, message)
            case ("passes", seconds):
                harness.wait(seconds)
            case ("handle", event):
                harness.handle(event)
            case ("gone", worker):
                harness.handle(WorkerGone(worker, harness.attempt, "killed"))
            case ("good", "ready"):
                harness.ready()
            case ("good", "acknowledge"):
                for trigger in messages_sent(harness.actions, TriggerBarrier)[-1:]:
                    harness.acknowledge(trigger.checkpoint)
            case ("good", "end"):
                harness.end_all()
        wake = harness.coordinator.next_wake()
        assert wake is None or wake > harness.now or harness.handle(Tick())
    harness.handle(CancelJob())
    harness.handle(Stored(0))
    for _ in range(4):
        harness.wait(100)
        for number in range(20):
            harness.handle(Stored(number))
    attempts = [start.attempt for start in actions_of_type(harness.actions, StartWorkers)]
    assert attempts == list(range(1, len(attempts) + 1))
    assert len(actions_of_type(harness.actions, Finish)) == 1
    assert harness.actions[-1] == actions_of_type(harness.actions, Finish)[0]
    assert harness.coordinator.next_wake() is None


_JOBS = {batch: make_job(count_words_to_text(), batch=batch) for batch in (False, True)}

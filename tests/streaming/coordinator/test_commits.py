"""Commits beside the stream: which worker performs them, what continues during a commit, and what waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tidegate as tg
from tests.support.streaming.coordinator_harness import (
    CoordinatorHarness,
    actions_of_type,
    count_words_to_text,
    make_job,
    messages_sent,
    messages_sent_to,
)
from tidegate.runners.checkpoint.manifest_json import loads
from tidegate.runners.checkpoint.parts import StateHandle
from tidegate.runners.engine.sinks.staged_files import stored_as
from tidegate.runners.streaming.model.settings import CheckpointSettings
from tidegate.runners.streaming.protocol.coordinator_io import (
    CheckpointReport,
    Delete,
    Progress,
    Report,
    StopJob,
    Store,
    Stored,
    TakeSavepoint,
    WorkerGone,
)
from tidegate.runners.streaming.protocol.worker_messages import (
    Acknowledge,
    Commit,
    Committed,
    Heartbeat,
    PauseSources,
    Prepared,
    TriggerBarrier,
)
from tidegate.sdk.connectors.sinks import Attempt, Committable, Sink, StagedFile
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey


@dataclass(frozen=True)
class ByTask(Sink[Any]):
    commit_by: Any = "task"

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        raise NotImplementedError


def to_a_sink_that_commits_by_task(p: tg.Pipeline) -> None:
    p | "words" >> tg.Create(["a"]) | "spread" >> tg.Reshuffle() | "sink" >> tg.Write(ByTask())


def running(write: Any = None, **checkpoints: Any) -> CoordinatorHarness:
    job = make_job(write or count_words_to_text(), workers=3, checkpoints=CheckpointSettings(**checkpoints))
    harness = CoordinatorHarness(job)
    harness.ready()
    harness.new_actions()
    return harness


def completed(harness: CoordinatorHarness, checkpoint: int, prepared: str = "x") -> list[Any]:
    """Trigger a checkpoint and complete it."""
    harness.wait(10)
    harness.acknowledge(checkpoint, prepared=prepared)
    return harness.handle(Stored(checkpoint))


def staged(name: str, task: int) -> Prepared:
    """Output of a task that has a staged file of that name."""
    committable = Committable((task, 1), "piece", (StagedFile.of_bytes("rows", b"12345"),))
    return Prepared("sink", (stored_as(committable, [(name, 5, 1)]),), task)


def acknowledged(harness: CoordinatorHarness, checkpoint: int, *prepared: Prepared, ended: bool = False) -> list[Any]:
    """Every task acknowledges the checkpoint, the first one with this output."""
    actions: list[Any] = []
    for number, task in enumerate(harness.tasks()):
        handle = StateHandle(((f"chk-{checkpoint:06}/{task}.state", 10, 1),))
        output = prepared if number == 0 else ()
        actions += harness.from_worker(task.index, Acknowledge(checkpoint, task, handle, prepared=output, ended=ended))
    return actions


def test_the_output_of_each_task_is_committed_by_its_own_worker_and_acknowledged_on_its_own() -> None:
    harness = running(to_a_sink_that_commits_by_task)
    harness.wait(10)
    acknowledged(harness, 1, staged("a", 0), staged("b", 2))
    actions = harness.handle(Stored(1))
    first, second = messages_sent(actions, Commit)
    assert [message for message in messages_sent_to(actions, 0) if isinstance(message, Commit)] == [first]
    assert [message for message in messages_sent_to(actions, 2) if isinstance(message, Commit)] == [second]
    assert (first.task, second.task) == (0, 2)
    harness.from_worker(2, Committed(second.step, 1, task=2))
    harness.wait(10)
    (store,) = actions_of_type(acknowledged(harness, 2), Store)
    assert [(commit.task, commit.checkpoint) for commit in loads(store.data).commits] == [(0, 1)]


def test_checkpoints_continue_during_a_commit_and_every_manifest_lists_it() -> None:
    harness = running()
    (commit,) = messages_sent(completed(harness, 1), Commit)
    for checkpoint in (2, 3):
        assert messages_sent(completed(harness, checkpoint), Commit) == []
    harness.wait(10)
    (store,) = actions_of_type(harness.acknowledge(4), Store)
    assert [each.checkpoint for each in loads(store.data).commits] == [1, 2, 3]
    (following,) = messages_sent(harness.from_worker(0, Committed(commit.step, 1)), Commit)
    assert following.checkpoint == 2


def test_sources_pause_while_a_sink_has_too_many_pending_commits_and_a_warning_is_reported() -> None:
    harness = running(max_pending_commits=1)
    (commit,) = messages_sent(completed(harness, 1), Commit)
    assert messages_sent(completed(harness, 2), PauseSources) == [PauseSources(True)] * 3
    harness.new_actions()
    harness.from_worker(0, Heartbeat((), MetricCells()))
    (progress, *_) = actions_of_type(harness.new_actions(), Progress)
    assert progress.metrics.gauges[MetricKey("write/Write", ENGINE, "pending_commits")] == 2
    assert progress.metrics.gauges[MetricKey("", ENGINE, "sources_paused")] == 1
    actions = [report.text for report in actions_of_type(harness.wait(9.9), Report)]
    assert actions == []
    (report,) = actions_of_type(harness.wait(0.2), Report)
    assert report.text.startswith("sources have been paused for 10 s because commits are slower than checkpoints")
    assert messages_sent(harness.from_worker(0, Committed(commit.step, 1)), PauseSources) == [PauseSources(False)] * 3


def test_a_job_that_stops_lets_its_paused_sources_end() -> None:
    harness = running(max_pending_commits=1)
    completed(harness, 1)
    completed(harness, 2)
    assert messages_sent(harness.handle(StopJob(drain=True)), PauseSources) == [PauseSources(False)] * 3


def test_the_sources_of_another_attempt_are_not_paused() -> None:
    harness = running(max_pending_commits=1)
    completed(harness, 1)
    completed(harness, 2)
    harness.handle(WorkerGone(0, 1, "killed"))
    harness.wait(2)
    harness.attempt = 2
    actions = harness.ready()
    (commit,) = messages_sent(actions, Commit)
    actions = harness.from_worker(0, Committed(commit.step, 1))
    (commit,) = messages_sent(actions, Commit)
    actions += harness.abort_output(harness.from_worker(0, Committed(commit.step, 2)))
    assert messages_sent(actions, PauseSources) == []


def test_checkpoints_continue_while_a_savepoint_waits_for_its_commits_and_its_files_stay() -> None:
    harness = running()
    harness.handle(TakeSavepoint("/saved"))
    harness.acknowledge(1, prepared="x")
    (commit,) = messages_sent(harness.handle(Stored(1)), Commit)
    for checkpoint in (2, 3):
        actions = completed(harness, checkpoint)
        (removed,) = actions_of_type(actions, Delete) or [Delete()]
        assert [name for name in removed.names if name.startswith("chk-000001/")] == []
    actions = harness.from_worker(0, Committed(commit.step, 1))
    (copy,) = [store for store in actions_of_type(actions, Store) if store.directory == "/saved"]
    assert loads(copy.data).commits == ()  # those of later checkpoints are still outstanding
    assert messages_sent(harness.wait(100), TriggerBarrier) == []  # none begins while it is copied
    actions = harness.handle(Stored(1))
    assert [report.savepoint for report in actions_of_type(actions, CheckpointReport)] == ["/saved"]
    assert messages_sent(actions, TriggerBarrier) == [TriggerBarrier(4, "checkpoint")] * 3
    harness.acknowledge(4)
    (removed,) = actions_of_type(harness.handle(Stored(4)), Delete)
    assert [name for name in removed.names if name.startswith("chk-000001/")]


def test_staged_files_stay_until_no_manifest_lists_their_commit_and_files_of_earlier_attempts_are_deleted() -> None:
    harness = running(to_a_sink_that_commits_by_task)
    harness.wait(10)
    (store,) = actions_of_type(acknowledged(harness, 1, staged("staged/1/0.0.1", 0)), Store)
    assert "staged/1/0.0.1" in store.new_files
    actions = harness.handle(Stored(1))
    assert [delete.staged_before for delete in actions_of_type(actions, Delete)] == [1]
    (commit,) = messages_sent(actions, Commit)
    actions = harness.from_worker(0, Committed(commit.step, 1, task=0))
    assert actions_of_type(actions, Delete) == []  # a crash now would restore a manifest that has the commit
    harness.wait(10)
    acknowledged(harness, 2)
    (delete,) = actions_of_type(harness.handle(Stored(2)), Delete)
    assert "staged/1/0.0.1" in delete.names
    assert delete.staged_before is None
    actions = [*harness.handle(WorkerGone(0, 1, "killed")), *harness.wait(2)]
    assert [delete.staged_before for delete in actions_of_type(actions, Delete)] == [2]

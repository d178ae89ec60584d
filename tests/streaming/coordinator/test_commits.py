"""Commits beside the stream: who makes them, what goes on meanwhile, and what waits for them."""

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
from tidegate.runners.engine.sinks.staged_files import stored_as
from tidegate.runners.streaming.checkpoint.manifest_json import loads
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
    StateHandle,
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
    play = CoordinatorHarness(job)
    play.ready()
    play.taken()
    return play


def completed(play: CoordinatorHarness, checkpoint: int, prepared: str = "x") -> list[Any]:
    """The checkpoint is due, and completes."""
    play.wait(10)
    play.acknowledge(checkpoint, prepared=prepared)
    return play.tell(Stored(checkpoint))


def staged(name: str, task: int) -> Prepared:
    """Output of a task that has a staged file of that name."""
    committable = Committable((task, 1), "piece", (StagedFile.of_bytes("rows", b"12345"),))
    return Prepared("sink", (stored_as(committable, [(name, 5, 1)]),), task)


def acknowledged(play: CoordinatorHarness, checkpoint: int, *prepared: Prepared, ended: bool = False) -> list[Any]:
    """Every task acknowledges the checkpoint, the first one with this output."""
    actions: list[Any] = []
    for number, task in enumerate(play.tasks()):
        handle = StateHandle(((f"chk-{checkpoint:06}/{task}.state", 10, 1),))
        output = prepared if number == 0 else ()
        actions += play.say(task.index, Acknowledge(checkpoint, task, handle, prepared=output, ended=ended))
    return actions


def test_the_output_of_each_task_is_committed_by_its_own_worker_and_acknowledged_on_its_own() -> None:
    play = running(to_a_sink_that_commits_by_task)
    play.wait(10)
    acknowledged(play, 1, staged("a", 0), staged("b", 2))
    told = play.tell(Stored(1))
    first, second = messages_sent(told, Commit)
    assert [message for message in messages_sent_to(told, 0) if isinstance(message, Commit)] == [first]
    assert [message for message in messages_sent_to(told, 2) if isinstance(message, Commit)] == [second]
    assert (first.task, second.task) == (0, 2)
    play.say(2, Committed(second.step, 1, task=2))
    play.wait(10)
    (store,) = actions_of_type(acknowledged(play, 2), Store)
    assert [(commit.task, commit.checkpoint) for commit in loads(store.data).commits] == [(0, 1)]


def test_checkpoints_go_on_while_a_commit_is_made_and_every_manifest_has_it() -> None:
    play = running()
    (commit,) = messages_sent(completed(play, 1), Commit)
    for checkpoint in (2, 3):
        assert messages_sent(completed(play, checkpoint), Commit) == []
    play.wait(10)
    (store,) = actions_of_type(play.acknowledge(4), Store)
    assert [each.checkpoint for each in loads(store.data).commits] == [1, 2, 3]
    (following,) = messages_sent(play.say(0, Committed(commit.step, 1)), Commit)
    assert following.checkpoint == 2


def test_sources_pause_while_a_sink_has_too_many_commits_and_people_are_told() -> None:
    play = running(max_pending_commits=1)
    (commit,) = messages_sent(completed(play, 1), Commit)
    assert messages_sent(completed(play, 2), PauseSources) == [PauseSources(True)] * 3
    play.taken()
    play.say(0, Heartbeat((), MetricCells()))
    (progress, *_) = actions_of_type(play.taken(), Progress)
    assert progress.metrics.gauges[MetricKey("write/Write", ENGINE, "pending_commits")] == 2
    assert progress.metrics.gauges[MetricKey("", ENGINE, "sources_paused")] == 1
    told = [report.text for report in actions_of_type(play.wait(9.9), Report)]
    assert told == []
    (report,) = actions_of_type(play.wait(0.2), Report)
    assert report.text.startswith("sources have been paused for 10 s because commits are slower than checkpoints")
    assert messages_sent(play.say(0, Committed(commit.step, 1)), PauseSources) == [PauseSources(False)] * 3


def test_a_job_that_stops_lets_its_paused_sources_end() -> None:
    play = running(max_pending_commits=1)
    completed(play, 1)
    completed(play, 2)
    assert messages_sent(play.tell(StopJob(drain=True)), PauseSources) == [PauseSources(False)] * 3


def test_the_sources_of_another_attempt_are_not_paused() -> None:
    play = running(max_pending_commits=1)
    completed(play, 1)
    completed(play, 2)
    play.tell(WorkerGone(0, 1, "killed"))
    play.wait(2)
    play.attempt = 2
    told = play.ready()
    (commit,) = messages_sent(told, Commit)
    told = play.say(0, Committed(commit.step, 1))
    (commit,) = messages_sent(told, Commit)
    told += play.clear_away(play.say(0, Committed(commit.step, 2)))
    assert messages_sent(told, PauseSources) == []


def test_checkpoints_go_on_while_a_savepoint_waits_for_its_commits_and_its_files_stay() -> None:
    play = running()
    play.tell(TakeSavepoint("/saved"))
    play.acknowledge(1, prepared="x")
    (commit,) = messages_sent(play.tell(Stored(1)), Commit)
    for checkpoint in (2, 3):
        told = completed(play, checkpoint)
        (removed,) = actions_of_type(told, Delete) or [Delete()]
        assert [name for name in removed.names if name.startswith("chk-000001/")] == []
    told = play.say(0, Committed(commit.step, 1))
    (copy,) = [store for store in actions_of_type(told, Store) if store.directory == "/saved"]
    assert loads(copy.data).commits == ()  # those of later checkpoints are still outstanding
    assert messages_sent(play.wait(100), TriggerBarrier) == []  # none begins while it is copied
    told = play.tell(Stored(1))
    assert [report.savepoint for report in actions_of_type(told, CheckpointReport)] == ["/saved"]
    assert messages_sent(told, TriggerBarrier) == [TriggerBarrier(4, "checkpoint")] * 3
    play.acknowledge(4)
    (removed,) = actions_of_type(play.tell(Stored(4)), Delete)
    assert [name for name in removed.names if name.startswith("chk-000001/")]


def test_staged_files_stay_until_no_manifest_has_their_commit_and_those_of_earlier_attempts_go() -> None:
    play = running(to_a_sink_that_commits_by_task)
    play.wait(10)
    (store,) = actions_of_type(acknowledged(play, 1, staged("staged/1/0.0.1", 0)), Store)
    assert "staged/1/0.0.1" in store.new_files
    told = play.tell(Stored(1))
    assert [delete.staged_before for delete in actions_of_type(told, Delete)] == [1]
    (commit,) = messages_sent(told, Commit)
    told = play.say(0, Committed(commit.step, 1, task=0))
    assert actions_of_type(told, Delete) == []  # a crash now would restore a manifest that has the commit
    play.wait(10)
    acknowledged(play, 2)
    (delete,) = actions_of_type(play.tell(Stored(2)), Delete)
    assert "staged/1/0.0.1" in delete.names
    assert delete.staged_before is None
    told = [*play.tell(WorkerGone(0, 1, "killed")), *play.wait(2)]
    assert [delete.staged_before for delete in actions_of_type(told, Delete)] == [2]

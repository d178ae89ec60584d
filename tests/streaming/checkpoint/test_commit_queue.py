"""The order in which commits are sent, and which of them are outstanding."""

from __future__ import annotations

from tidegate.runners.streaming.checkpoint.commit_backpressure import CommitBackpressure
from tidegate.runners.streaming.checkpoint.commit_queue import Backlog, CommitQueue
from tidegate.runners.streaming.model.settings import CheckpointSettings
from tidegate.runners.streaming.protocol.worker_messages import Commit
from tidegate.sdk.connectors.sinks import Committable, StagedFile
from tidegate.sdk.metrics import ENGINE, MetricKey
from tidegate.sdk.time import SECOND


def commit(step: int, checkpoint: int, task: int | None = None, size: int = 0) -> Commit:
    files = (StagedFile.of_bytes("rows", b"x" * size),) if size else ()
    return Commit(step, "run", (Committable((task or 0, checkpoint), "", files),), checkpoint, task)


def test_the_commits_of_a_sink_are_sent_one_checkpoint_after_another() -> None:
    queue = CommitQueue([commit(1, 7)])
    queue.add([commit(1, 8)])
    assert queue.to_send() == (commit(1, 7),)
    assert queue.to_send() == ()
    assert not queue.acknowledge(1, 8)
    assert queue.acknowledge(1, 7)
    assert queue.to_send() == (commit(1, 8),)
    assert queue.outstanding == (commit(1, 8),)


def test_a_slow_sink_does_not_delay_the_commits_of_another() -> None:
    queue = CommitQueue()
    queue.add([commit(1, 7), commit(2, 7)])
    queue.to_send()
    queue.add([commit(1, 8), commit(2, 8)])
    assert queue.acknowledge(2, 7)
    assert queue.to_send() == (commit(2, 8),)
    assert queue.outstanding == (commit(1, 7), commit(1, 8), commit(2, 8))


def test_a_checkpoint_is_committed_by_a_sink_when_all_of_its_tasks_have_committed() -> None:
    queue = CommitQueue()
    queue.add([commit(1, 7, 0), commit(1, 7, 2), commit(1, 8, 0)])
    assert queue.to_send() == (commit(1, 7, 0), commit(1, 7, 2))
    assert not queue.acknowledge(1, 7, 2)
    assert not queue.acknowledge(1, 7, 2)  # acknowledged before
    assert not queue.acknowledge(1, 7, 1)  # there is no such task
    assert queue.to_send() == ()
    assert queue.outstanding == (commit(1, 7, 0), commit(1, 8, 0))
    assert queue.acknowledge(1, 7, 0)
    assert queue.to_send() == (commit(1, 8, 0),)


def test_unacknowledged_commits_are_sent_again_after_a_failure() -> None:
    queue = CommitQueue([commit(1, 7, 0), commit(1, 7, 1), commit(2, 7)])
    queue.to_send()
    queue.acknowledge(1, 7, 0)
    queue.resend()
    assert queue.to_send() == (commit(1, 7, 1), commit(2, 7))


def test_a_savepoint_waits_for_no_later_commit() -> None:
    queue = CommitQueue([commit(1, 7), commit(1, 9)])
    queue.to_send()
    assert queue.outstanding_until(7)
    queue.acknowledge(1, 7)
    assert not queue.outstanding_until(8)
    assert queue.outstanding_until(9)


def test_the_backlog_counts_checkpoints_and_the_bytes_of_payloads_and_staged_files() -> None:
    queue = CommitQueue([commit(1, 7, 0, size=100), commit(1, 7, 1, size=10), commit(1, 8, 0)])
    payload = len('""')
    assert queue.backlogs == {1: Backlog(2, 110 + 3 * payload)}
    queue.to_send()
    queue.acknowledge(1, 7, 0)
    assert queue.backlogs == {1: Backlog(2, 10 + 2 * payload)}
    queue.acknowledge(1, 7, 1)
    assert queue.backlogs == {1: Backlog(1, payload)}


SETTINGS = CheckpointSettings(max_pending_commits=2, max_pending_commit_bytes=1000)


def test_sources_pause_beyond_either_bound_unless_the_job_is_stopping() -> None:
    backpressure = CommitBackpressure(SETTINGS, {1: "a", 2: "b"})
    assert not backpressure.update({1: Backlog(2, 500), 2: Backlog(2, 500)}, 0, stopping=False)
    assert backpressure.update({1: Backlog(3, 0)}, 0, stopping=False)
    assert backpressure.paused
    assert backpressure.update({1: Backlog(2, 0)}, 0, stopping=False)
    assert not backpressure.paused
    assert backpressure.update({1: Backlog(1, 500), 2: Backlog(1, 501)}, 0, stopping=False)
    assert backpressure.update({1: Backlog(1, 500), 2: Backlog(1, 501)}, 0, stopping=True)
    assert not backpressure.paused
    cells = backpressure.metrics({1: Backlog(1, 500)})
    assert cells.counters == {MetricKey("", ENGINE, "source_pauses"): 2}
    assert cells.gauges == {
        MetricKey("a", ENGINE, "pending_commits"): 1,
        MetricKey("a", ENGINE, "pending_commit_bytes"): 500,
        MetricKey("", ENGINE, "sources_paused"): 0,
    }


def test_a_pause_of_sources_is_reported_once_after_ten_seconds() -> None:
    backpressure = CommitBackpressure(SETTINGS, {1: "a", 2: "b"})
    backlogs = {1: Backlog(3, 12_345), 2: Backlog()}
    backpressure.update(backlogs, 5 * SECOND, stopping=False)
    assert backpressure.next_report() == 15 * SECOND
    assert backpressure.report(backlogs, 15 * SECOND - 1) == ""
    assert backpressure.report(backlogs, 15 * SECOND) == (
        "sources have been paused for 10 s because commits are slower than checkpoints: 'a' has 3 outstanding "
        "(12,345 bytes). They resume when fewer are outstanding (--max_pending_commits, --max_pending_commit_bytes)"
    )
    assert backpressure.next_report() is None
    assert backpressure.report(backlogs, 100 * SECOND) == ""
    backpressure.reset()
    assert not backpressure.paused

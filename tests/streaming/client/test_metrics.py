"""Metrics of tasks and checkpoints that a job's process reports."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

import tidegate as tg
from tests.support.streaming.coordinator_harness import count_words_to_text, make_job
from tests.support.streaming.counting_job import ReportLog, follow_until, start_job, windowed_counts
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.streaming.client.metrics import MetricsObserver
from tidegate.runners.streaming.protocol.coordinator_io import CheckpointReport, Progress, Report
from tidegate.runners.streaming.protocol.worker_messages import TaskStatus
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey, MetricResults
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, SECOND


def metrics_after(*messages: Any, now: float = 100.0) -> dict[tuple[str, str], Any]:
    """The metrics after these messages, by step and name."""
    observed = MetricsObserver(make_job(count_words_to_text()).plan)
    for message in messages:
        observed.update(message, now)
    cells = MetricCells()
    observed.add_to(cells)
    assert all(result.key.namespace == ENGINE for result in MetricResults(cells).all())
    return {(result.key.step, result.key.name): result.value for result in MetricResults(cells).all()}


def status(index: int, **facts: Any) -> TaskStatus:
    given = {"records_in": 0, "records_out": 0, "busy": 0.0, "idle": 0.0, "backpressured": 0.0, "watermark": MIN_MICROS}
    return TaskStatus(TaskId(0, index), **(given | facts), state="running")


def test_the_metrics_of_a_step_combine_those_of_its_tasks() -> None:
    one = status(0, records_in=3, records_out=5, busy=1.0, idle=1.0, watermark=90 * SECOND)
    other = status(1, records_in=4, records_out=6, backpressured=2.0, watermark=80 * SECOND)
    metrics = metrics_after(Progress((one, other), MetricCells()))
    for step in ("words", "pairs"):
        assert [metrics[step, name] for name in ("records_in", "records_out")] == [7, 11]
        assert [metrics[step, name] for name in ("busy", "idle", "backpressured")] == [0.25, 0.25, 0.5]
        assert metrics[step, "watermark"] == tg.Timestamp(80)
        assert metrics[step, "watermark_lag"] == 20.0


def test_no_watermark_is_reported_while_that_of_a_task_is_unknown() -> None:
    metrics = metrics_after(Progress((status(0, watermark=90 * SECOND), status(1)), MetricCells()))
    assert ("words", "busy") in metrics
    assert ("words", "watermark") not in metrics


def test_a_task_whose_inputs_are_idle_or_have_ended_does_not_hold_the_watermark_of_its_stage() -> None:
    behind = status(0, watermark=80 * SECOND)
    without_split = replace(status(1), quiescent=True)
    ended = replace(status(2, watermark=MAX_MICROS), quiescent=True)
    metrics = metrics_after(Progress((behind, without_split, ended), MetricCells()))
    assert metrics["words", "watermark"] == tg.Timestamp(80)
    idle = replace(behind, quiescent=True)
    metrics = metrics_after(Progress((idle, without_split), MetricCells()))
    assert metrics["words", "watermark"] == tg.Timestamp(80)  # the last one that is known
    metrics = metrics_after(Progress((idle, without_split, ended), MetricCells()))
    assert ("words", "watermark") not in metrics


def test_checkpoints_and_restarts_are_metrics_of_the_job() -> None:
    metrics = metrics_after(
        Report("running", "going on"),
        CheckpointReport(1, 0.5, 1000, 0.1, 0.2),
        CheckpointReport(2, 0.1, 0, 0.0, 0.0, "it took too long"),
        CheckpointReport(3, 0.3, 2000, 0.0, 0.0),
        CheckpointReport(3, 0.3, 2000, 0.0, 0.0, savepoint="there"),
        Report("restarting", "a worker has gone"),
    )
    assert metrics == {
        ("", "checkpoints"): 2,
        ("", "checkpoints_failed"): 1,
        ("", "restarts"): 1,
        ("", "checkpoint"): 3,
        ("", "checkpoint_size"): 2000,
        ("", "checkpoint_duration"): 0.3,
        ("", "checkpoint_alignment"): 0.0,
        ("", "checkpoint_pause"): 0.0,
    }


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_run_has_the_metrics_of_its_tasks_and_checkpoints() -> None:
    p = tg.Pipeline()
    windowed_counts(p)
    reports = ReportLog()
    job = start_job(p, "--checkpoint_interval=50ms", on_report=reports)
    key = MetricKey("count", ENGINE, "watermark")
    follow_until(job, lambda: len(reports.checkpoints) > 1 and key in job.metrics.gauges)
    metrics = MetricResults(job.metrics)
    job.close()
    assert metrics.counter("checkpoints") > 0
    (size,) = metrics.query("checkpoint_size")
    assert size.value > 0
    shares = [metrics.query(name, step="count")[0].value for name in ("busy", "idle", "backpressured")]
    assert sum(shares) == pytest.approx(1.0)

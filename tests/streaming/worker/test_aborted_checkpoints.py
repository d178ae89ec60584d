"""A worker whose messages the test sends: a checkpoint may be aborted at any time."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tests.support.streaming.coordinator_harness import make_job
from tests.support.streaming.isolated_worker import IsolatedWorker
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.streaming.protocol.stream_items import Barrier
from tidegate.runners.streaming.protocol.worker_messages import (
    Acknowledge,
    CheckpointAborted,
    Deploy,
    TaskEnded,
    TriggerBarrier,
)
from tidegate.runners.streaming.worker.worker import Worker
from tidegate.sdk.time import MAX_MICROS


def double(p: tg.Pipeline) -> None:
    _ = p | "read" >> tg.Create([1]) | "spread" >> tg.Reshuffle() | "double" >> tg.Map(lambda n: 2 * n)


@pytest.mark.parametrize("aborted", [False, True])
def test_a_task_ends_even_if_a_checkpoint_that_it_was_to_take_part_in_is_aborted(tmp_path: Path, aborted: bool) -> None:
    services, job, task = IsolatedWorker(tmp_path), make_job(double), TaskId(1, 0)
    worker = Worker(job, 0, 1, services)  # type: ignore[arg-type]
    worker.on_message(Deploy(0, (task,)))
    worker.on_message(TriggerBarrier(1, "savepoint"))
    for channel in job.topology.channels_into(task):
        worker.on_items(channel, [CollectionStatus(MAX_MICROS, ended=True)])
        worker.work()
    if aborted:
        worker.on_message(CheckpointAborted(1))
    while worker.work():
        pass
    assert [message.task for message in services.reported if isinstance(message, TaskEnded)] == [task]


@pytest.mark.parametrize("late", [False, True])
def test_a_channel_blocked_by_a_checkpoint_continues_when_the_next_one_supersedes_it(
    tmp_path: Path, late: bool
) -> None:
    services, job, task = IsolatedWorker(tmp_path), make_job(double), TaskId(1, 0)
    worker = Worker(job, 0, 1, services)  # type: ignore[arg-type]
    worker.on_message(Deploy(0, (task,)))
    one, other = job.topology.channels_into(task)
    worker.on_message(TriggerBarrier(2, "checkpoint"))
    worker.on_items(one, [Barrier(2)])
    worker.work()
    messages = [CheckpointAborted(2), TriggerBarrier(3, "checkpoint")]
    for message in () if late else messages:
        worker.on_message(message)
    worker.on_items(other, [Barrier(3)])
    worker.work()
    for message in messages if late else ():
        worker.on_message(message)
    worker.on_items(one, [Barrier(3)])
    for _ in range(10):
        worker.work()
    assert [message.checkpoint for message in services.reported if isinstance(message, Acknowledge)] == [3]

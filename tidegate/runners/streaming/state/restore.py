"""Restores the state of a task, and divides the blocks that were in flight anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tidegate.runners.checkpoint.parts import StoredState
from tidegate.runners.checkpoint.restoring import TaskRestore, restored_state
from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.exchange.stream_partitioner import elements_owned
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.sdk.data.block import Block


def task_restore(parts: Sequence[StoredState], task: TaskId, job: Job, storage: Storage | None) -> TaskRestore:
    """The state of a task, from the parts that the tasks of its steps have stored. RunError if one can't be read."""
    assert storage is not None
    parallelism = job.topology.parallelism(task.stage)
    redistributed = partial(_redistributed, task=task, job=job)
    return restored_state(
        parts, task.index, parallelism, job.settings.max_parallelism, storage.read, redistributed=redistributed
    )


def _redistributed(
    parts: Sequence[Mapping[ChannelId, list[Block]]], task: TaskId, job: Job
) -> dict[ChannelId, list[Block]]:
    """The blocks in flight to the former tasks that belong to `task`; the blocks of one producer stay in order."""
    plan, parallelism = job.plan, job.topology.parallelism(task.stage)
    blocks_by_channel: dict[ChannelId, list[Block]] = {}
    for part in parts:
        for id, blocks in part.items():
            edge = plan.edges[id.edge]
            assert edge.exchange is not None
            producers = job.topology.parallelism(plan.steps[edge.source].stage)
            channel = ChannelId(id.edge, min(id.source, producers - 1), task.index)
            if edge.exchange.routing == "hash":
                max_parallelism = job.settings.max_parallelism
                blocks = [
                    elements_owned(plan, edge, block, task.index, parallelism, max_parallelism) for block in blocks
                ]
            elif min(id.target, parallelism - 1) != task.index:
                continue
            blocks_by_channel.setdefault(channel, []).extend(block for block in blocks if len(block))
    return blocks_by_channel

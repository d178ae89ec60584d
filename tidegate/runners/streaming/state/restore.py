"""Selects the files that a task is restored from, out of a checkpoint by tasks of the same or another parallelism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.runners.checkpoint.parts import StoredState
from tidegate.runners.checkpoint.state_files import StateFile, checked
from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.checkpoint.task_state import TaskState, loads
from tidegate.runners.engine.rescale import KeyFilter
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.exchange.stream_partitioner import elements_owned, owner
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.keys import key_group
from tidegate.sdk.metrics import MetricCells


@dataclass(frozen=True, slots=True)
class TaskRestore:
    """The state that a task is restored from: its own, and in `parts` the state files of its operators.

    Each part has the files that one task stored. `keeps` selects the keys that this task owns; None: there is one part,
    and the task owns all its keys.
    """

    state: TaskState
    parts: tuple[tuple[StateFile, ...], ...]
    keeps: KeyFilter | None


def restored_state(parts: Sequence[StoredState], task: TaskId, job: Job, storage: Storage | None) -> TaskRestore:
    """The state of a task, from the parts that the tasks of its steps have stored. RunError if one can't be read."""
    assert storage is not None
    states = [(part, loads(checked(part.handle.files[0], storage.read))) for part in parts]
    parallelism = job.topology.parallelism(task.stage)
    assigned = [(part, state) for part, state in states if min(part.task.index, parallelism - 1) == task.index]
    metrics = MetricCells()
    for _, state in assigned:
        metrics.merge(state.metrics)
    clock = max(state.clock for _, state in states)
    fed_back = tuple(entry for _, state in assigned for entry in state.fed_back)
    hops = min((state.hops for _, state in assigned), default=0)
    if all(part.parallelism == parallelism for part in parts):
        standings = {name: status for _, state in assigned for name, status in state.standings.items()}
        outgoing = {id: blocks for _, state in assigned for id, blocks in state.outgoing.items()}
        incoming = {id: blocks for _, state in assigned for id, blocks in state.incoming.items()}
        return TaskRestore(
            TaskState(standings, outgoing, incoming, metrics, clock, fed_back, hops),
            tuple(part.handle.files[1:] for part, _ in assigned),
            None,
        )
    max_parallelism = job.settings.max_parallelism

    def keeps(key: Any) -> bool:
        return parallelism == 1 or owner(key_group(key, max_parallelism), parallelism, max_parallelism) == task.index

    standings = _merged([state.standings for _, state in states])
    outgoing = {id: blocks for _, state in assigned for id, blocks in state.outgoing.items()}
    incoming = _redistributed([state.incoming for _, state in states], task, job)
    files = tuple(part.handle.files[1:] for part, _ in states)
    return TaskRestore(TaskState(standings, outgoing, incoming, metrics, clock, fed_back, hops), files, keeps)


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


def _merged(standings: Sequence[Mapping[str, CollectionStatus]]) -> dict[str, CollectionStatus]:
    """The status of each step over all former tasks: the lowest watermark, idle if it had been in any, and ended only
    if it had ended in all."""
    names = dict.fromkeys(name for part in standings for name in part)
    merged = {}
    for name in names:
        statuses = [part[name] for part in standings if name in part]
        merged[name] = CollectionStatus(
            min(s.watermark for s in statuses), any(s.idle for s in statuses), all(s.ended for s in statuses)
        )
    return merged

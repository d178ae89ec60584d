"""From what tasks stored in a checkpoint to what one goes on from, also where there are more or fewer of them now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from tidegate.runners.engine.rescale import KeyFilter
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.topology import ChannelId, TaskId
from tidegate.runners.streaming.network.partitioner import elements_owned, owner
from tidegate.runners.streaming.protocol.worker_messages import StateHandle, StoredState
from tidegate.runners.streaming.state.files import StateFile
from tidegate.runners.streaming.state.task_state import TaskState, loads
from tidegate.runners.streaming.storage.base import Storage
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.keys import key_group
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import MetricCells


@dataclass(frozen=True, slots=True)
class TaskRestore:
    """What a task goes on from: its own state, and the files of what operators kept in each of `parts`.

    `keeps` says which keys are this task's; None: there is one part, and it is all this task's.
    """

    state: TaskState
    parts: tuple[tuple[StateFile, ...], ...]
    keeps: KeyFilter | None


def restored_state(parts: Sequence[StoredState], task: TaskId, job: Job, storage: Storage | None) -> TaskRestore:
    """What a task goes on from, of the parts that tasks of its steps stored. RunError when one can't be read."""
    assert storage is not None
    states = [(part, loads(read(storage, part.handle))) for part in parts]
    parallelism = job.topology.parallelism(task.stage)
    own = [(part, state) for part, state in states if min(part.task.index, parallelism - 1) == task.index]
    metrics = MetricCells()
    for _, state in own:
        metrics.merge(state.metrics)
    clock = max(state.clock for _, state in states)
    if all(part.parallelism == parallelism for part in parts):
        standings = {name: mark for _, state in own for name, mark in state.standings.items()}
        outgoing = {id: blocks for _, state in own for id, blocks in state.outgoing.items()}
        incoming = {id: blocks for _, state in own for id, blocks in state.incoming.items()}
        return TaskRestore(
            TaskState(standings, outgoing, incoming, metrics, clock),
            tuple(part.handle.files[1:] for part, _ in own),
            None,
        )
    most = job.settings.max_parallelism

    def keeps(key: Any) -> bool:
        return parallelism == 1 or owner(key_group(key, most), parallelism, most) == task.index

    together = _together([state.standings for _, state in states])
    outgoing = {id: blocks for _, state in own for id, blocks in state.outgoing.items()}
    incoming = _dealt_anew([state.incoming for _, state in states], task, job)
    files = tuple(part.handle.files[1:] for part, _ in states)
    return TaskRestore(TaskState(together, outgoing, incoming, metrics, clock), files, keeps)


def read(storage: Storage, handle: StateHandle) -> bytes:
    """A task's file of state, checked."""
    name, size, check = handle.files[0]
    try:
        data = storage.read(name)
    except OSError as error:
        raise RunError(f"the state in {name} can't be read: {error}") from error
    if len(data) != size or crc32(data) != check:
        raise RunError(f"the state in {name} is damaged: take an earlier checkpoint")
    return data


def _dealt_anew(
    parts: Sequence[Mapping[ChannelId, list[Block]]], task: TaskId, job: Job
) -> dict[ChannelId, list[Block]]:
    """Of what was under way to the tasks there were, what is this one's; from one producer in the order it sent it."""
    plan, parallelism = job.plan, job.topology.parallelism(task.stage)
    dealt: dict[ChannelId, list[Block]] = {}
    for part in parts:
        for id, blocks in part.items():
            edge = plan.edges[id.edge]
            assert edge.exchange is not None
            producers = job.topology.parallelism(plan.steps[edge.source].stage)
            channel = ChannelId(id.edge, min(id.source, producers - 1), task.index)
            if edge.exchange.routing == "hash":
                most = job.settings.max_parallelism
                blocks = [elements_owned(plan, edge, block, task.index, parallelism, most) for block in blocks]
            elif min(id.target, parallelism - 1) != task.index:
                continue
            dealt.setdefault(channel, []).extend(block for block in blocks if len(block))
    return dealt


def _together(standings: Sequence[Mapping[str, CollectionStatus]]) -> dict[str, CollectionStatus]:
    """Tasks that become one stand where the last of them stood."""
    names = dict.fromkeys(name for part in standings for name in part)
    together = {}
    for name in names:
        marks = [part[name] for part in standings if name in part]
        together[name] = CollectionStatus(min(m.watermark for m in marks), ended=all(m.ended for m in marks))
    return together

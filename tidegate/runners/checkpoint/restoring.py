"""What a task is restored from, out of a checkpoint by tasks of the same or of another parallelism."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidegate.runners.checkpoint.manifest import Manifest, TaskPart
from tidegate.runners.checkpoint.matching import needs_all_states, reads
from tidegate.runners.checkpoint.parts import StoredState
from tidegate.runners.checkpoint.state_files import Read, StateFile, checked, read_states
from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.checkpoint.task_state import TaskState, loads
from tidegate.runners.engine.operator_graph import state_name
from tidegate.runners.engine.rescale import FormerTask, KeyFilter, rescaled
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.exchange.stream_partitioner import owner
from tidegate.runners.plan import Step
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.keys import key_group
from tidegate.sdk.metrics import MetricCells

InFlight: TypeAlias = Mapping[ChannelId, list[Block]]
"""Blocks that were on their way when a snapshot was taken."""


@dataclass(frozen=True, slots=True)
class TaskRestore:
    """The state that a task is restored from: its own, and in `parts` the state files of its operators.

    Each part has the files that one task stored. `keeps` selects the keys that this task owns; None: there is one part,
    and the task owns all its keys.
    """

    state: TaskState
    parts: tuple[tuple[StateFile, ...], ...]
    keeps: KeyFilter | None


class StoredParts:
    """The parts of a checkpoint that have state, by the stage of their task."""

    def __init__(self, manifest: Manifest) -> None:
        self._max_parallelism = manifest.max_parallelism
        self._stage_of = {step.name: step.stage for step in manifest.steps}
        self._parts: dict[int, list[TaskPart]] = {}
        for part in manifest.tasks:
            if part.handle is not None:
                self._parts.setdefault(part.task.stage, []).append(part)

    def of(self, steps: Sequence[Step], task: TaskId, parallelism: int) -> tuple[StoredState, ...]:
        """The stored states that one of `parallelism` tasks with these steps reads: those that hold its keys, in every
        stage that had one of its steps.

        Key group `g` belongs to task `g * parallelism // max_parallelism`. State without a key, such as metrics, stays
        with the task of the same index, or goes to the last task; so do elements that have been fed back. Those
        that wait for a side input or a call may belong to any task. There, and in the head of a loop, whose input may
        have ended in some tasks alone, every task reads all states.
        """
        names = map(state_name, steps)
        stages = dict.fromkeys(self._stage_of[name] for name in names if name in self._stage_of)
        all_states = any(needs_all_states(node) for step in steps for node in step.nodes)
        return tuple(
            StoredState(TaskId(task.stage, part.task.index), part.parallelism, part.handle)
            for stage in stages
            for part in self._parts.get(stage, ())
            if part.handle is not None
            and (
                reads(task.index, parallelism, part.task.index, part.parallelism, self._max_parallelism)
                or (all_states and parallelism != part.parallelism)
            )
        )


def restored_state(
    parts: Sequence[StoredState],
    index: int,
    parallelism: int,
    max_parallelism: int,
    read: Read,
    *,
    redistributed: Callable[[Sequence[InFlight]], InFlight],
) -> TaskRestore:
    """The state of task `index` from `parts`, of which there is at least one. RunError if one can't be read.

    `redistributed`: the blocks in flight to the former tasks that belong to this one, if there were more or fewer.
    """
    states = [(part, loads(checked(part.handle.files[0], read))) for part in parts]

    def takes_over(former: int) -> bool:
        return min(former, parallelism - 1) == index

    assigned = [(part, state) for part, state in states if takes_over(part.task.index)]
    metrics = MetricCells()
    for _, state in assigned:
        metrics.merge(state.metrics)
    clock = max(state.clock for _, state in states)
    outgoing = {id: blocks for _, state in assigned for id, blocks in state.outgoing.items()}
    fed_back = tuple(entry for _, state in assigned for entry in state.fed_back)
    hops = min((state.hops for _, state in assigned), default=0)
    if all(part.parallelism == parallelism for part in parts):
        standings = {name: status for _, state in assigned for name, status in state.standings.items()}
        incoming: InFlight = {id: blocks for _, state in assigned for id, blocks in state.incoming.items()}
        return TaskRestore(
            TaskState(standings, outgoing, incoming, metrics, clock, fed_back, hops),
            tuple(part.handle.files[1:] for part, _ in assigned),
            None,
        )

    def keeps(key: Any) -> bool:
        if isinstance(key, FormerTask):  # its backlog stays together with what has been recorded behind it
            return takes_over(key.index)
        return parallelism == 1 or owner(key_group(key, max_parallelism), parallelism, max_parallelism) == index

    standings = merged_statuses([state.standings for _, state in states])
    incoming = redistributed([state.incoming for _, state in states])
    files = tuple(part.handle.files[1:] for part, _ in states)
    return TaskRestore(TaskState(standings, outgoing, incoming, metrics, clock, fed_back, hops), files, keeps)


def merged_statuses(standings: Sequence[Mapping[str, CollectionStatus]]) -> dict[str, CollectionStatus]:
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


def operator_states(
    parts: Sequence[Sequence[StateFile]], read: Read, keeps: KeyFilter | None, names: Iterable[str]
) -> dict[str, Any]:
    """The snapshots of a task's operators, by name, from the files of each part (see `TaskRestore`). Without those of
    which there is no state."""
    states = [read_states(files, read) for files in parts]
    snapshots = {}
    for name in names:
        found = [state[name] for state in states if name in state]
        snapshot = rescaled(found, keeps) if keeps is not None else next(iter(found), None)
        if snapshot is not None:
            snapshots[name] = snapshot
    return snapshots

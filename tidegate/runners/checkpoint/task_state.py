"""A task's own state in a checkpoint: watermarks, blocks in flight, metrics and clock, but not its operators' state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.sdk import moved
from tidegate.sdk.data.block import Block
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.time import MIN_MICROS
from tidegate.sdk.user_code import redefined_classes

FORMAT = 3
_WITHOUT_CLOCK = 2
"""The previous format, which has no `clock`."""


@dataclass(frozen=True, slots=True)
class TaskState:
    """The state of a task, except its operators' state, which the state backend stores.

    `standings`: the collection status of the input of each step. `outgoing`, `incoming`: the blocks that an unaligned
    barrier has overtaken. `clock`: the processing time of the snapshot (µs). `fed_back`: the blocks that came round
    ahead of the barrier, each with the head of the loop and how often it has gone round; `hops`: how often the elements
    have whose calls are in flight.
    """

    standings: Mapping[str, CollectionStatus]
    outgoing: Mapping[ChannelId, list[Block]] = field(default_factory=dict)
    incoming: Mapping[ChannelId, list[Block]] = field(default_factory=dict)
    metrics: MetricCells = field(default_factory=MetricCells)
    clock: int = MIN_MICROS
    fed_back: tuple[tuple[str, int, Block], ...] = ()
    hops: int = 0

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)

    @property
    def in_flight(self) -> int:
        """The number of blocks that were in flight."""
        in_channels = sum(len(blocks) for blocks in (*self.outgoing.values(), *self.incoming.values()))
        return in_channels + len(self.fed_back)


def dumps(state: TaskState) -> bytes:
    """Serialize the state."""
    return redefined_classes.dumps((FORMAT, state))


def loads(data: bytes) -> TaskState:
    """Deserialize a state, also of the previous format. ValueError if its format is another."""
    form, state = moved.loads(data)
    if form not in (FORMAT, _WITHOUT_CLOCK):
        raise ValueError(f"a task's state has format {form}, and this version reads {_WITHOUT_CLOCK} and {FORMAT}")
    assert isinstance(state, TaskState)
    if form == _WITHOUT_CLOCK:
        return TaskState(state.standings, state.outgoing, state.incoming, state.metrics)
    return state

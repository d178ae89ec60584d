"""What a task keeps of itself in a checkpoint, as bytes; what several tasks kept, as one, for those that go on."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.runners.engine.marks import Mark
from tidegate.runners.streaming.layout import ChannelId
from tidegate.sdk.block import Block
from tidegate.sdk.metrics import MetricCells

FORMAT = 2


@dataclass(frozen=True, slots=True)
class TaskState:
    """Beside what its operators keep, which the state backend stores. `standings`: how the input of each step stands;
    `outgoing` and `incoming`: blocks that an unaligned barrier has overtaken."""

    standings: Mapping[str, Mark]
    outgoing: Mapping[ChannelId, list[Block]] = field(default_factory=dict)
    incoming: Mapping[ChannelId, list[Block]] = field(default_factory=dict)
    metrics: MetricCells = field(default_factory=MetricCells)

    @property
    def in_flight(self) -> int:
        """How many blocks it holds that were under way."""
        return sum(len(blocks) for blocks in (*self.outgoing.values(), *self.incoming.values()))


def dumps(state: TaskState) -> bytes:
    """As bytes."""
    return pickle.dumps((FORMAT, state), 5)


def loads(data: bytes) -> TaskState:
    """The state back."""
    form, state = pickle.loads(data)
    if form != FORMAT:
        raise ValueError(f"a task's state has format {form}, and this version reads {FORMAT}")
    assert isinstance(state, TaskState)
    return state

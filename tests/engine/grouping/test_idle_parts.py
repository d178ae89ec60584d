"""Combining before the exchange, which depends on whether the task has ever been idle, also after a restore."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest

import tidegate as tg
from tests.support.operator_driver import context
from tidegate.runners.checkpoint.restoring import merged_statuses
from tidegate.runners.engine.operator_graph import Graph, resume
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import SECOND
from tidegate.testing import TestStream


class Parts:
    """The step before the exchange of a sum in sliding windows, of which each element is in two."""

    def __init__(self) -> None:
        pipeline = tg.Pipeline()
        source = pipeline | TestStream().advance_watermark_to_infinity()
        _ = source | tg.WindowInto(tg.SlidingWindows(10, 5)) | "sum" >> tg.CombinePerKey(sum)
        planned = plan(pipeline.sealed(values=True), Traits(parallel=True, streaming=True, drops_unread=False))
        self.input = source.id
        step = next(step for step in planned.steps if self.input in step.head.inputs)
        edges = [edge for edge in planned.edges if edge.target == step.id]
        self.rows: list[int] = []
        outlet = [lambda block: self.rows.append(len(block))]
        self.graph = Graph(planned, [step], edges, context(), dict.fromkeys(step.outputs, outlet))
        self.graph.open()

    def update(self, *, idle: bool = False) -> None:
        self.graph.update(self.input, CollectionStatus(7 * SECOND, idle))

    def results(self) -> int:
        """How many partial results leave for three elements of one key."""
        self.rows.clear()
        for _ in self.graph.pushing(self.input, Block([("k", 1)] * 3, 8 * SECOND)):
            pass
        self.graph.end_bundles()
        return sum(self.rows)

    def restored(self, *statuses: dict[str, CollectionStatus]) -> Parts:
        """A new instance, restored from a snapshot of this one and the statuses of some tasks."""
        other = Parts()
        other.graph.restore(pickle.loads(pickle.dumps(self.graph.snapshot())))
        resume(other.graph, merged_statuses(statuses))
        other.update()
        return other


BY_WINDOW, BY_ELEMENT = 2, 3


@pytest.mark.parametrize("idle", [(False,), (False, True), (True, False)])
def test_elements_are_combined_after_a_restore_unless_a_task_was_idle_before(idle: Sequence[bool]) -> None:
    tasks = [Parts() for _ in idle]
    for task, was_idle in zip(tasks, idle, strict=True):
        task.update()
        assert task.results() == BY_WINDOW
        if was_idle:
            task.update(idle=True)
            task.update()
            assert task.results() == BY_ELEMENT
    expected = BY_ELEMENT if any(idle) else BY_WINDOW
    restored = tasks[0].restored(*(task.graph.step_statuses() for task in tasks))
    assert restored.results() == expected
    assert restored.restored(restored.graph.step_statuses()).results() == expected


def test_elements_are_not_combined_by_a_task_without_a_status_to_restore() -> None:
    assert Parts().restored().results() == BY_ELEMENT

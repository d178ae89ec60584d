"""The topology of a job: the tasks of a plan, one for each stage and worker, and the channels between them."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.plan import Edge, Plan


class Topology:
    """A plan's tasks on a number of workers. A stage behind a gathering exchange has one task, in the first worker."""

    def __init__(self, plan: Plan, workers: int) -> None:
        self.plan = plan
        self.workers = workers
        self._gathered = _gathered(plan)
        self._into: dict[int, list[tuple[int, Edge]]] = {}
        self._out_of: dict[int, list[tuple[int, Edge]]] = {}
        for number, edge in enumerate(plan.edges):
            if edge.exchange is not None:
                self._into.setdefault(self._stage(edge.target), []).append((number, edge))
                self._out_of.setdefault(self._stage(edge.source), []).append((number, edge))

    def parallelism(self, stage: int) -> int:
        """How many tasks a stage has."""
        return 1 if stage in self._gathered else self.workers

    def tasks(self, region: int) -> Iterator[TaskId]:
        """The tasks of a region."""
        for stage in self.plan.regions[region]:
            for index in range(self.parallelism(stage)):
                yield TaskId(stage, index)

    def count_tasks(self, region: int) -> int:
        """How many tasks a region has."""
        return sum(map(self.parallelism, self.plan.regions[region]))

    def edges_into(self, stage: int) -> Iterator[tuple[int, Edge]]:
        """The exchanges that end in a stage, with their numbers."""
        return iter(self._into.get(stage, ()))

    def edges_out_of(self, stage: int) -> Iterator[tuple[int, Edge]]:
        """The exchanges that begin in a stage, with their numbers."""
        return iter(self._out_of.get(stage, ()))

    def channels_into(self, task: TaskId) -> Iterator[ChannelId]:
        """The channels that end in a task."""
        for number, edge in self.edges_into(task.stage):
            for source in range(self.parallelism(self._stage(edge.source))):
                if self._joins(edge, source, task.index):
                    yield ChannelId(number, source, task.index)

    def channels_out_of(self, task: TaskId, number: int) -> list[ChannelId]:
        """The channels of an edge that begin in a task, by target; a forward exchange has one."""
        edge = self.plan.edges[number]
        return [
            ChannelId(number, task.index, target)
            for target in range(self.parallelism(self._stage(edge.target)))
            if self._joins(edge, task.index, target)
        ]

    def region_of(self, task: TaskId) -> int:
        """The region a task belongs to."""
        return self.plan.region_of(task.stage)

    def _joins(self, edge: Edge, source: int, target: int) -> bool:
        assert edge.exchange is not None
        if edge.exchange.routing != "forward":
            return True
        return target == source % self.parallelism(self._stage(edge.target))

    def _stage(self, step: int) -> int:
        return self.plan.steps[step].stage


def _gathered(plan: Plan) -> frozenset[int]:
    """The stages that have one task: those fed by a gathering exchange, and those of test streams."""
    return frozenset(
        plan.steps[edge.target].stage
        for edge in plan.edges
        if edge.exchange is not None and edge.exchange.routing == "gather"
    ) | frozenset(step.stage for step in plan.steps if step.head.kind == "test_stream")

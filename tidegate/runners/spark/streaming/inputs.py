"""The input side of a task: the status of each collection that it receives, over all tasks that send it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidegate.runners.engine.time.watermarks import CollectionStatus, MinProgress, MinWatermark
from tidegate.runners.plan import Step
from tidegate.runners.spark.streaming.job import StreamJob


@dataclass(frozen=True, slots=True)
class InputProgress:
    """The status of a collection from each producer (an edge and a task), and the minimum over them."""

    statuses: Mapping[tuple[int, int], CollectionStatus]
    minimum: MinProgress


class TaskInputs:
    """The edges that end in the steps of task `index`, one channel for each task that sends on them."""

    def __init__(self, job: StreamJob, index: int, steps: list[Step]) -> None:
        plan, levels = job.plan, job.levels
        here = {step.id for step in steps}
        self._collections: dict[int, str] = {}
        self._statuses: dict[str, dict[tuple[int, int], CollectionStatus]] = {}
        produced = {collection for step in steps for collection in step.outputs}
        for number, edge in enumerate(plan.edges):
            if edge.target in here and levels.crosses(edge):
                self._collections[number] = edge.collection
                channels = self._statuses.setdefault(edge.collection, {})
                for source in levels.sources_of(plan, edge, index, job.tasks):
                    channels[number, source] = CollectionStatus()
            elif edge.target in here and edge.collection not in produced:
                self._statuses.setdefault(edge.collection, {})  # its producer runs in the first task only
        self._minima = {collection: MinWatermark() for collection in self._statuses}

    @property
    def unfed(self) -> list[str]:
        """The collections that no task sends here."""
        return [collection for collection, statuses in self._statuses.items() if not statuses]

    @property
    def ended(self) -> bool:
        """Whether every channel has ended."""
        return all(status.ended for status in self.statuses())

    def statuses(self) -> Iterator[CollectionStatus]:
        """The status of each channel."""
        for statuses in self._statuses.values():
            yield from statuses.values()

    def receives(self, edge: int) -> bool:
        """Whether rows on this edge are for the task; others pass through to a later level."""
        return edge in self._collections

    def update(self, edge: int, source: int, status: CollectionStatus) -> tuple[str, CollectionStatus]:
        """Record the status of one channel; returns its collection, and the status of that over all its channels."""
        collection = self._collections[edge]
        statuses = self._statuses[collection]
        watermark = max(status.watermark, statuses[edge, source].watermark)
        statuses[edge, source] = CollectionStatus(watermark, status.idle, status.ended)
        return collection, self._minima[collection].of(statuses)

    def progress(self) -> Mapping[str, InputProgress]:
        """What `resume` restores."""
        return {
            collection: InputProgress(dict(statuses), self._minima[collection].progress())
            for collection, statuses in self._statuses.items()
        }

    def resume(self, progress: Mapping[str, InputProgress]) -> None:
        """Go on from what `progress` returned."""
        for collection, each in progress.items():
            self._statuses[collection].update(each.statuses)
            self._minima[collection].continue_from(each.minimum)

"""Deploys the regions of a job in their order: each region's tasks, the state they restore, and their splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tidegate.runners.streaming.checkpoint.recovery import Resume
from tidegate.runners.streaming.coordinator.region_schedule import RegionSchedule
from tidegate.runners.streaming.coordinator.split_assigner import SplitAssigner
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.step_state import is_live, reads_splits
from tidegate.runners.streaming.model.topology import TaskId
from tidegate.runners.streaming.protocol.worker_messages import (
    AssignedSplit,
    AssignSplits,
    Deploy,
    ListSplits,
    ToWorker,
)

_SPLITS_PER_TASK: Final = 4
"""Splits per task of a bounded source, so that fast tasks can read more of them."""


class Deployment:
    """The regions, tasks and splits of a job through all its attempts. Its methods return messages, by worker."""

    def __init__(self, job: Job, resume: Resume | None) -> None:
        self._job = job
        self._resume = resume
        self._sources = {step.id: step for step in job.plan.steps if reads_splits(step)}
        self._sources_of: dict[int, list[int]] = {}
        """The sources of each region that has any."""
        for id, step in self._sources.items():
            self._sources_of.setdefault(job.plan.region_of(step.stage), []).append(id)
        self._lists: dict[int, tuple[AssignedSplit, ...]] = dict(resume.lists) if resume else {}
        self._splits: dict[int, SplitAssigner] = {}
        self._requested: set[int] = set()
        self.regions = RegionSchedule(job.topology, resume.done if resume else frozenset())

    @property
    def lists(self) -> Mapping[str, tuple[AssignedSplit, ...]]:
        """The splits of every source whose splits have been listed, by the source's label."""
        return {self._sources[step].label: splits for step, splits in self._lists.items()}

    def to_list(self, region: int) -> Iterator[ListSplits]:
        """Requests for the splits of a region's sources, one for each source in an attempt."""
        for id in self._unlisted(region):
            if id not in self._requested:
                self._requested.add(id)
                tasks = self._job.topology.parallelism(self._sources[id].stage)
                yield ListSplits(id, tasks * _SPLITS_PER_TASK if self._bounded(id) else tasks)

    def is_listed(self, region: int) -> bool:
        """Whether the splits of all sources of a region are known."""
        return not self._unlisted(region)

    def on_splits_listed(self, step: int, splits: tuple[AssignedSplit, ...]) -> None:
        """A source has listed its splits. They stay the same through all restarts."""
        self._lists.setdefault(step, splits)

    def deploy(self, region: int) -> Iterator[tuple[int, ToWorker]]:
        """Deploy a region's tasks, then assign the first splits."""
        job, resume = self._job, self._resume
        self.regions.deploy(region)
        tasks = list(job.topology.tasks(region))
        for worker in range(job.settings.workers):
            of_worker = tuple(task for task in tasks if task.index == worker)
            if of_worker:
                restore = tuple(part for task in of_worker for part in (resume.restore.get(task, ()) if resume else ()))
                yield worker, Deploy(region, of_worker, restore)
        for id in self._sources_of.get(region, ()):
            step = self._sources[id]
            progress = [part for part in resume.progress if part.step == step.label] if resume else []
            readers = resume.readers.get(id) if resume else None
            count = job.topology.parallelism(step.stage)
            self._splits[id] = SplitAssigner(
                self._lists[id], count, bounded=self._bounded(id), progress=progress, readers=readers
            )
            finished = {split for part in progress for split in part.finished}
            self._lists[id] = tuple(split for split in self._lists[id] if split.id not in finished)
            for index in range(count):
                yield index, self.assign(TaskId(step.stage, index), id)

    def assign(self, task: TaskId, step: int) -> AssignSplits:
        """More splits for a source task, if there are any."""
        assignment = self._splits[step].assign(task.index)
        return AssignSplits(task, step, assignment.splits, assignment.more)

    def reset(self, resume: Resume | None) -> None:
        """All workers are gone: unfinished regions restore from `resume`, or start over without one."""
        self._resume = resume
        if resume is not None:  # `deploy` has dropped splits that the checkpoint records as finished: list them again
            self._lists = dict(resume.lists)
        self._splits.clear()
        self._requested.clear()
        if resume is not None:
            self.regions.rewind(resume.done)
        elif self.exposed_sinks() != self._sinks() and not self._job.settings.batch:
            self.regions.rewind()  # only a checkpoint would have kept the output of finished regions
        else:
            self.regions.reset()

    def exposed_sinks(self) -> set[int]:
        """The sinks of regions that are not done."""
        steps, plan = self._job.plan.steps, self._job.plan
        return {id for id in self._sinks() if not self.regions.is_done(plan.region_of(steps[id].stage))}

    def _sinks(self) -> set[int]:
        return {step.id for step in self._job.plan.steps if step.is_sink}

    def _unlisted(self, region: int) -> list[int]:
        return [id for id in self._sources_of.get(region, ()) if id not in self._lists]

    def _bounded(self, step: int) -> bool:
        return not is_live(self._sources[step], self._job.plan)

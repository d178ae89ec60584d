"""Deploys the regions of a job in their order: each region's tasks, the state they restore, and their splits.

The coordinator alone knows which splits a job has: those that sources have listed, and those that their enumerators
have discovered. So it can store them with the enumerators' states at any moment: a split that no task reports as begun
or finished has not been read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tidegate.runners.checkpoint.matching import remaining_splits
from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState, SplitProgress
from tidegate.runners.checkpoint.step_state import is_live, reads_splits
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.sources.discovery import DISCOVERY_LIMIT
from tidegate.runners.streaming.checkpoint.recovery import Resume
from tidegate.runners.streaming.coordinator.loop_rounds import LoopRounds
from tidegate.runners.streaming.coordinator.region_schedule import RegionSchedule
from tidegate.runners.streaming.coordinator.split_assigner import SplitAssigner, SplitAssignment
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.protocol.worker_messages import (
    AssignSplits,
    Deploy,
    DiscoverSplits,
    DivideSplits,
    ListSplits,
    SplitsDiscovered,
    SplitsDivided,
    ToWorker,
)
from tidegate.sdk.portable.model import Read

_SPLITS_PER_TASK: Final = 4
"""Splits per task of a bounded source, so that fast tasks can read more of them."""
_FEW_SPLITS: Final = DISCOVERY_LIMIT // 2
"""An enumerator looks for more splits while fewer than this wait for a task."""
_ENUMERATING_WORKER: Final = 0


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
        self._lists: dict[int, tuple[AssignedSplit, ...]] = {}
        """The splits of each source that are not known to be finished."""
        self._enumerators: dict[int, EnumeratorState] = {}
        self._finished: Counter[int] = Counter()
        """How many splits of each source are finished and forgotten."""
        self._progress: dict[int, list[SplitProgress]] = {}
        """How far the splits of each source had been read in the state that the attempt restores."""
        self._splits: dict[int, SplitAssigner] = {}
        self._requested: set[int] = set()
        self._dividing: set[int] = set()
        """The sources that have been asked to divide their splits."""
        self._undivided: set[int] = set()
        """The sources that may have to divide their splits before their region is deployed."""
        self._discovering: set[int] = set()
        """The sources whose enumerators are looking for splits."""
        self.regions = RegionSchedule(job.topology, resume.done if resume else frozenset())
        self.loops = LoopRounds(job.plan)
        if resume is not None:
            self._restore(resume)

    @property
    def lists(self) -> Mapping[str, tuple[AssignedSplit, ...]]:
        """The splits of every source whose splits have been listed, by the source's label."""
        return {self._sources[step].label: splits for step, splits in self._lists.items()}

    @property
    def enumerators(self) -> Mapping[str, EnumeratorState]:
        """How far the splits of every source with an enumerator have been discovered, by the source's label."""
        return {self._sources[step].label: state for step, state in self._enumerators.items()}

    @property
    def finished(self) -> Mapping[str, int]:
        """How many splits of each source are finished and no longer in its list."""
        return {self._sources[step].label: count for step, count in self._finished.items()}

    # -- before the tasks of a region are deployed

    def prepare(self, region: int) -> Iterator[tuple[int, ToWorker]]:
        """Request what has to be known of a region's sources, once in an attempt."""
        for id in self._sources_of.get(region, ()):
            tasks = self._job.topology.parallelism(self._sources[id].stage)
            enumerator = self._enumerators.get(id)
            needed = id not in self._lists or self._discovers(id) or (enumerator is not None and not enumerator.ended)
            if needed and id not in self._requested:
                self._requested.add(id)
                desired = tasks * _SPLITS_PER_TASK if self._bounded(id) else tasks
                listed = enumerator is None and id in self._lists
                yield _ENUMERATING_WORKER, ListSplits(id, desired, enumerator, listed)
            if id in self._undivided and id not in self._dividing:
                splits = remaining_splits(self._lists[id], self._progress.get(id, ()))
                if 0 < len(splits) < tasks:
                    self._dividing.add(id)
                    yield _ENUMERATING_WORKER, DivideSplits(id, tuple(splits), -(-tasks // len(splits)))
                else:
                    self._undivided.discard(id)

    def is_prepared(self, region: int) -> bool:
        """Whether the splits of all sources of a region are known."""
        sources = self._sources_of.get(region, ())
        return all(id in self._lists and id not in self._undivided for id in sources)

    def on_splits_listed(self, step: int, splits: tuple[AssignedSplit, ...]) -> None:
        """A source has listed its splits. They stay the same through all restarts."""
        self._lists.setdefault(step, splits)

    def on_splits_divided(self, message: SplitsDivided) -> None:
        """A source has divided some of its splits, each of which is replaced by its parts."""
        step, parts = message.step, dict(message.parts)
        self._undivided.discard(step)
        self._lists[step] = tuple(part for split in self._lists[step] for part in parts.get(split.id, (split,)))
        self._progress[step] = [
            SplitProgress(
                progress.step, progress.finished, tuple(each for each in progress.current if each[0] not in parts)
            )
            for progress in self._progress.get(step, ())
        ]

    # -- the tasks and their splits

    def deploy(self, region: int) -> Iterator[tuple[int, ToWorker]]:
        """Deploy a region's tasks, then assign the first splits."""
        job, resume = self._job, self._resume
        self.regions.deploy(region)
        tasks = list(job.topology.tasks(region))
        for worker in range(job.settings.workers):
            of_worker = tuple(task for task in tasks if task.index == worker)
            if of_worker:
                restore = tuple(part for task in of_worker for part in (resume.restore.get(task, ()) if resume else ()))
                yield worker, Deploy(region, of_worker, restore, self.loops.rounds)
        for id in self._sources_of.get(region, ()):
            step = self._sources[id]
            progress = self._progress.get(id, [])
            readers = resume.readers.get(id) if resume else None
            count = job.topology.parallelism(step.stage)
            splits = {split.id for split in self._lists[id]}
            self._splits[id] = SplitAssigner(
                self._lists[id],
                count,
                bounded=self._bounded(id),
                progress=progress,
                readers={split: reader for split, reader in (readers or {}).items() if split in splits},
                enumerator=self._enumerators.get(id),
            )
            self._forget(id, {split for part in progress for split in part.finished})
            for index in range(count):
                yield self._assign(id, index, self._splits[id].assign(index))
            yield from self._discover(id)

    def request(self, task: TaskId, step: int) -> Iterator[tuple[int, ToWorker]]:
        """A source task has read all its splits: assign more of them, if there are any."""
        assignment = self._splits[step].request(task.index)
        if assignment is not None:
            yield self._assign(step, task.index, assignment)
        yield from self._discover(step)

    def on_splits_discovered(self, message: SplitsDiscovered) -> Iterator[tuple[int, ToWorker]]:
        """An enumerator has found splits. ValueError if one of them has the id of another split."""
        step = message.step
        known = {split.id for split in self._lists.get(step, ())}
        for split in message.splits:
            if split.id in known:
                raise ValueError(f"the enumerator returned split {split.id!r}, which the source has already")
        self._lists[step] = (*self._lists.get(step, ()), *message.splits)
        self._enumerators[step] = message.enumerator
        self._discovering.discard(step)
        if step in self._splits:
            for index, assignment in self._splits[step].discovered(message.splits, message.enumerator):
                yield self._assign(step, index, assignment)
            yield from self._discover(step)

    def forget_finished(self, progress: Iterable[SplitProgress]) -> None:
        """Forget the splits that are finished in a completed checkpoint."""
        ids = {step.label: id for id, step in self._sources.items()}
        finished: dict[int, set[str]] = {}
        for part in progress:
            if part.step in ids:
                finished.setdefault(ids[part.step], set()).update(part.finished)
        for step, splits in finished.items():
            self._forget(step, splits)

    # -- attempts

    def reset(self, resume: Resume | None) -> None:
        """All workers are gone: unfinished regions restore from `resume`, or start over without one."""
        self._resume = resume
        self._splits.clear()
        self._requested.clear()
        self._discovering.clear()
        self._dividing.clear()
        if resume is not None:
            self._restore(resume)
            self.regions.rewind(resume.done)
        elif self.exposed_sinks() != self._sinks() and not self._job.settings.batch:
            self.regions.rewind()  # only a checkpoint would have kept the output of finished regions
        else:
            self.regions.reset()

    def exposed_sinks(self) -> set[int]:
        """The sinks of regions that are not done."""
        steps, plan = self._job.plan.steps, self._job.plan
        return {id for id in self._sinks() if not self.regions.is_done(plan.region_of(steps[id].stage))}

    def _restore(self, resume: Resume) -> None:
        """Continue with the splits of a checkpoint: later ones are discovered again."""
        labels = {step.label: id for id, step in self._sources.items()}
        self._lists = dict(resume.lists)
        self._enumerators = dict(resume.enumerators)
        self._finished = Counter(resume.finished)
        self._undivided = {id for id in resume.lists if self._divides(id)}
        self._progress = {}
        for part in resume.progress:
            self._progress.setdefault(labels[part.step], []).append(part)

    def _sinks(self) -> set[int]:
        return {step.id for step in self._job.plan.steps if step.is_sink}

    def _bounded(self, step: int) -> bool:
        return not is_live(self._sources[step], self._job.plan)

    def _discovers(self, step: int) -> bool:
        node = self._sources[step].head
        return isinstance(node, Read) and node.discovers

    def _divides(self, step: int) -> bool:
        node = self._sources[step].head
        return isinstance(node, Read) and node.divides

    def _assign(self, step: int, index: int, assignment: SplitAssignment) -> tuple[int, AssignSplits]:
        task = TaskId(self._sources[step].stage, index)
        return index, AssignSplits(
            task, step, assignment.splits, assignment.more, assignment.backlog, assignment.readers
        )

    def _discover(self, step: int) -> Iterator[tuple[int, DiscoverSplits]]:
        """Let an enumerator look for splits while few are left."""
        enumerator = self._enumerators.get(step)
        if enumerator is None or enumerator.ended or step in self._discovering:
            return
        if self._splits[step].unassigned < _FEW_SPLITS:
            self._discovering.add(step)
            yield _ENUMERATING_WORKER, DiscoverSplits(step)

    def _forget(self, step: int, finished: set[str]) -> None:
        if finished:
            before = self._lists[step]
            self._lists[step] = tuple(split for split in before if split.id not in finished)
            self._finished[step] += len(before) - len(self._lists[step])

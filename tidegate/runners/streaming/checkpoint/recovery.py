"""Recovery: what the tasks of a job are restored from, as found in a checkpoint or savepoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.runners.checkpoint.manifest import Manifest, ManifestError, PendingCommit, RetainedCheckpoint
from tidegate.runners.checkpoint.matching import ResumeError, check_commits, check_steps, done_regions, remaining_splits
from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState, SplitProgress, StoredState
from tidegate.runners.checkpoint.restoring import StoredParts
from tidegate.runners.checkpoint.state_files import of_store
from tidegate.runners.checkpoint.step_state import (
    reads_splits,
)
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.plan import Plan
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.topology import Topology
from tidegate.runners.streaming.protocol.worker_messages import Commit
from tidegate.sdk.errors import counted
from tidegate.sdk.metrics import MetricCells


@dataclass(frozen=True, slots=True)
class Resume:
    """The state that a job is restored from. `origin` describes it for people.

    `restore`: the stored states that each task reads, of which it takes what its steps and key groups claim. `lists`:
    the splits of each source step; `enumerators`: how far they have been discovered; `finished`: how many finished ones
    are no longer listed; `progress`: how far they are read; `readers`: by step, the task that had each split,
    if the parallelism is the same as before. `commits`: output that is final but may not be committed yet. `done`: the
    regions that had ended, which have nothing to restore; `counted`: their metrics. `final`: all input had ended.
    `next`: the number of the next checkpoint; `retained`: the checkpoints in the directory. `since`: the job's first
    epoch; leftovers of earlier ones are removed already, except for what they may have written since.
    """

    origin: str
    restore: Mapping[TaskId, tuple[StoredState, ...]] = field(default_factory=dict)
    lists: Mapping[int, tuple[AssignedSplit, ...]] = field(default_factory=dict)
    progress: tuple[SplitProgress, ...] = ()
    readers: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    commits: tuple[Commit, ...] = ()
    done: frozenset[int] = frozenset()
    final: bool = False
    next: int = 1
    retained: tuple[RetainedCheckpoint, ...] = ()
    since: int = 1
    counted: MetricCells = field(default_factory=MetricCells)
    enumerators: Mapping[int, EnumeratorState] = field(default_factory=dict)
    finished: Mapping[int, int] = field(default_factory=dict)


def resumed(
    job: Job, manifest: Manifest, origin: str, *, retained: Iterable[RetainedCheckpoint] = (), next: int | None = None
) -> Resume:
    """Match a checkpoint or savepoint to a job; ResumeError says what does not fit, and what to do.

    `retained`: the checkpoints in the job's own directory; `next`: the number of its next one.
    """
    plan, settings = job.plan, job.settings
    if manifest.max_parallelism != settings.max_parallelism:
        raise ResumeError(
            f"{origin} has {counted(manifest.max_parallelism, 'key group')}, fixed by the first checkpoint, and the "
            f"run asks for {settings.max_parallelism}: give --max_parallelism {manifest.max_parallelism}"
        )
    if settings.state_backend == "memory" and any(map(of_store, manifest.files())):
        raise ResumeError(
            f"{origin} was taken with --state_backend rocksdb, and the run keeps its state in memory: resume with "
            "rocksdb, or from a savepoint, which every backend reads"
        )
    check_steps(plan, manifest.steps, origin, allow_dropped=settings.allow_dropped_state)
    labels = {step.label: step.id for step in plan.steps if reads_splits(step)}
    for label, splits in manifest.lists.items():
        try:
            remaining_splits(splits, (part for task in manifest.tasks for part in task.splits if part.step == label))
        except ValueError as error:
            raise ManifestError(f"{origin} is inconsistent: {error}") from None
    return Resume(
        origin,
        restore_lists(job.topology, manifest),
        {labels[label]: splits for label, splits in manifest.lists.items() if label in labels},
        tuple(part for task in manifest.tasks for part in task.splits if part.step in labels),
        readers_of(job.topology, manifest, labels),
        restored_commits(plan, manifest.commits, origin),
        done_regions(plan, manifest),
        manifest.final,
        manifest.checkpoint + 1 if next is None else next,
        tuple(retained),
        manifest.epoch,
        manifest.counted,
        {labels[label]: state for label, state in manifest.enumerators.items() if label in labels},
        {labels[label]: count for label, count in manifest.finished.items() if label in labels},
    )


def readers_of(topology: Topology, manifest: Manifest, labels: Mapping[str, int]) -> dict[int, dict[str, int]]:
    """By source step and split, the index of the task that was reading it; only for steps whose parallelism has not
    changed."""
    readers: dict[int, dict[str, int]] = {}
    for task in manifest.tasks:
        for part in task.splits:
            step = labels.get(part.step)
            if step is not None and topology.parallelism(topology.plan.steps[step].stage) == task.parallelism:
                readers.setdefault(step, {}).update((id, task.task.index) for id, _ in part.current)
    return readers


def restore_lists(topology: Topology, manifest: Manifest) -> dict[TaskId, tuple[StoredState, ...]]:
    """The stored states that each task reads."""
    stored = StoredParts(manifest)
    lists: dict[TaskId, tuple[StoredState, ...]] = {}
    for region in range(len(topology.plan.regions)):
        for task in topology.tasks(region):
            found = stored.of(list(topology.plan.stage_steps(task.stage)), task, topology.parallelism(task.stage))
            if found:
                lists[task] = found
    return lists


def restored_commits(plan: Plan, commits: Sequence[PendingCommit], origin: str) -> tuple[Commit, ...]:
    """The commits of a manifest, matched to the steps of a plan; see `check_commits`."""
    check_commits(plan, commits, origin)
    sinks = {step.label: step.id for step in plan.steps if step.is_sink}
    return tuple(
        Commit(sinks[commit.step], commit.run, commit.committables, commit.checkpoint, commit.task)
        for commit in commits
        if commit.step in sinks
    )

"""Recovery: what the tasks of a job are restored from, as found in a checkpoint or savepoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.runners.checkpoint.manifest import Manifest, ManifestError, PendingCommit, RetainedCheckpoint, TaskPart
from tidegate.runners.checkpoint.matching import ResumeError, check_steps, lets_elements_wait, reads, remaining_splits
from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState, SplitProgress, StoredState
from tidegate.runners.checkpoint.state_files import of_store
from tidegate.runners.checkpoint.step_state import (
    reads_splits,
    step_facts,
)
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.plan import Plan
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.topology import Topology
from tidegate.runners.streaming.protocol.worker_messages import Commit
from tidegate.sdk.errors import counted
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.model import Write


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
    check_steps(plan, manifest, origin, allow_dropped=settings.allow_dropped_state)
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
    """The stored states that each task reads: those that hold its keys, in every stage that had one of its steps.

    Key group `g` belongs to task `g * parallelism // max_parallelism`. State without a key, such as metrics, stays with
    the task of the same index, or goes to the last task. Elements that wait for a side input or a call, or have been
    fed back, may belong to any task, so there every task reads all states.
    """
    stage_of = {step.name: step.stage for step in manifest.steps}
    parts: dict[int, list[TaskPart]] = {}
    for part in manifest.tasks:
        if part.handle is not None:
            parts.setdefault(part.task.stage, []).append(part)
    lists: dict[TaskId, tuple[StoredState, ...]] = {}
    for region in range(len(topology.plan.regions)):
        for task in topology.tasks(region):
            names = [facts.name for facts in step_facts(topology.plan) if facts.stage == task.stage]
            stages = dict.fromkeys(stage_of[name] for name in names if name in stage_of)
            count = topology.parallelism(task.stage)
            steps = topology.plan.stage_steps(task.stage)
            waits = any(lets_elements_wait(node) for step in steps for node in step.nodes)
            found = [
                StoredState(TaskId(task.stage, part.task.index), part.parallelism, part.handle)
                for stage in stages
                for part in parts.get(stage, ())
                if part.handle is not None
                and (
                    reads(task.index, count, part.task.index, part.parallelism, manifest.max_parallelism)
                    or (waits and count != part.parallelism)
                )
            ]
            if found:
                lists[task] = tuple(found)
    return lists


def done_regions(plan: Plan, manifest: Manifest) -> frozenset[int]:
    """The regions whose tasks had all ended before the first checkpoint."""
    stage_of = {step.name: step.stage for step in manifest.steps}
    stored = {part.task.stage for part in manifest.tasks if part.handle is not None or not part.ended}
    facts = step_facts(plan)

    def done(stages: tuple[int, ...]) -> bool:
        before = [stage_of.get(step.name) for step in facts if step.stage in stages]
        return all(stage is not None and stage not in stored for stage in before)

    return frozenset(number for number, stages in enumerate(plan.regions) if done(stages))


def restored_commits(plan: Plan, commits: Sequence[PendingCommit], origin: str) -> tuple[Commit, ...]:
    """The commits of a manifest, matched to the steps of a plan. ResumeError if a step has another sink by now, such as
    one that writes to another folder, and therefore would not find the output."""
    sinks = {step.label: step.id for step in plan.steps if step.is_sink}
    names = {step.label: step.tail.name for step in plan.steps if isinstance(step.tail, Write)}
    lost = [commit.step for commit in commits if commit.step not in sinks and commit.committables]
    if lost:
        raise ResumeError(
            f"{origin} holds output of {', '.join(map(repr, dict.fromkeys(lost)))} that may not be committed yet, and "
            "the pipeline has no such step: run it once with that step"
        )
    for commit in commits:
        if commit.committables and commit.sink not in ("", names[commit.step]):
            raise ResumeError(
                f"{origin} holds output of {commit.step!r} that may not be committed yet. It was written for the sink "
                f"'{commit.sink}', and the step has the sink '{names[commit.step]}' now, which does not find it. "
                "Nothing is lost: resume the job with the former sink, stop it, and resume it with the new one then"
            )
    return tuple(
        Commit(sinks[commit.step], commit.run, commit.committables, commit.checkpoint, commit.task)
        for commit in commits
        if commit.step in sinks
    )

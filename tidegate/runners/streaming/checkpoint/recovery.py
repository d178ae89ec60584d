"""Recovery: matches the state in a checkpoint to the steps and tasks of a plan, which may have changed since.

State is matched by the step's label, its kind and the types of its state. The number of workers, and how steps are cut
into stages, may have changed. State that can't be matched is refused, rather than dropped or misread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.runners.plan import Plan
from tidegate.runners.streaming.checkpoint.manifest import Manifest, ManifestError, PendingCommit, TaskPart
from tidegate.runners.streaming.checkpoint.tracker import RetainedCheckpoint
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.step_state import (
    StepFacts,
    has_checkpointed_state,
    has_same_state,
    numbered,
    reads_splits,
    step_facts,
)
from tidegate.runners.streaming.model.topology import TaskId, Topology
from tidegate.runners.streaming.protocol.worker_messages import (
    AssignedSplit,
    Commit,
    EnumeratorState,
    SplitProgress,
    StoredState,
)
from tidegate.runners.streaming.state.files import of_store
from tidegate.sdk.errors import BuildError, counted
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.model import Feedback, Node, ParDo, Write, side_inputs


class ResumeError(BuildError):
    """The pipeline, as it is now, can't be resumed from the saved state."""


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


def check_names(plan: Plan) -> None:
    """ResumeError if state would be stored under a name that may change with the script."""
    for step, facts in zip(plan.steps, step_facts(plan), strict=True):
        if has_checkpointed_state(facts) and numbered(step):
            raise ResumeError(
                f"{step.label!r} at {step.tail.where} keeps state in checkpoints under a label that was numbered "
                "automatically, and may be another step's after the next change of the script: name it, as in "
                "'my name' >> ..."
            )


def check_steps(plan: Plan, manifest: Manifest, origin: str, *, allow_dropped: bool) -> None:
    """ResumeError if the types of a step's state have changed, or if no step claims some of the state."""
    current = {facts.name: facts for facts in step_facts(plan) if has_checkpointed_state(facts)}
    unclaimed: list[str] = []
    for saved in manifest.steps:
        if not has_checkpointed_state(saved):
            continue
        step = current.get(saved.name)
        if step is None:
            unclaimed.append(f"{saved.name!r} ({_describe(saved)})")
        elif not has_same_state(step, saved):
            raise ResumeError(
                f"the state of {saved.name!r} in {origin} is {_describe(saved)}, and the step is now "
                f"{_describe(step)}: give the step another name to begin with no state there"
            )
    if unclaimed and not allow_dropped:
        raise ResumeError(
            f"{origin} holds state that no step claims: {', '.join(unclaimed)}. Steps are found by their labels; "
            "--allow_dropped_state begins without it"
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
            waits = any(_lets_elements_wait(node) for step in steps for node in step.nodes)
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


def _lets_elements_wait(node: Node) -> bool:
    """Return whether the state of a node has elements that are not divided by key."""
    return bool(side_inputs(node)) or isinstance(node, Feedback) or (isinstance(node, ParDo) and node.calls is not None)


def done_regions(plan: Plan, manifest: Manifest) -> frozenset[int]:
    """The regions whose tasks had all ended before the first checkpoint."""
    stage_of = {step.name: step.stage for step in manifest.steps}
    stored = {part.task.stage for part in manifest.tasks if part.handle is not None or not part.ended}
    facts = step_facts(plan)

    def done(stages: tuple[int, ...]) -> bool:
        before = [stage_of.get(step.name) for step in facts if step.stage in stages]
        return all(stage is not None and stage not in stored for stage in before)

    return frozenset(number for number, stages in enumerate(plan.regions) if done(stages))


def reads(new: int, news: int, old: int, olds: int, groups: int) -> bool:
    """Return whether task `new` of `news` restores anything that task `old` of `olds` stored.

    >>> [old for old in range(4) if reads(0, 2, old, 4, groups=128)]
    [0, 1]
    """
    if news == olds:
        return new == old
    if min(old, news - 1) == new or min(new, olds - 1) == old:
        return True
    new_from, new_to = _range(new, news, groups)
    old_from, old_to = _range(old, olds, groups)
    return max(new_from, old_from) < min(new_to, old_to)


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


def _range(index: int, count: int, groups: int) -> tuple[int, int]:
    """The key groups of a task, as a half-open range."""
    return -(-index * groups // count), -(-(index + 1) * groups // count)


def _describe(facts: StepFacts) -> str:
    return f"{facts.role} {facts.kind}" + (f", {facts.state}" if facts.state else "")


def remaining_splits(splits: Sequence[AssignedSplit], progress: Iterable[SplitProgress]) -> list[AssignedSplit]:
    """The splits that are not finished, in their order, each with the position at which reading resumes.

    ValueError if `progress` reports a split twice, or one that does not belong to the source.
    """
    known = {split.id for split in splits}
    finished: set[str] = set()
    positions: dict[str, object] = {}
    for part in progress:
        for id in (*part.finished, *(id for id, _ in part.current)):
            if id not in known:
                raise ValueError(f"split {id!r} of {part.step!r} is reported twice or does not belong to this source")
            known.discard(id)
        finished.update(part.finished)
        positions.update(part.current)
    return [
        replace(split, position=positions[split.id]) if split.id in positions else split
        for split in splits
        if split.id not in finished
    ]

"""Matches the state in a checkpoint to the steps of a plan, which may have changed since.

State is matched by the step's label, its kind and the types of its state. The number of tasks, and how steps are cut
into stages, may have changed. State that can't be matched is refused, rather than dropped or misread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tidegate.runners.checkpoint.manifest import Manifest, PendingCommit
from tidegate.runners.checkpoint.parts import AssignedSplit, SplitProgress
from tidegate.runners.checkpoint.step_state import (
    StepFacts,
    has_checkpointed_state,
    has_same_state,
    numbered,
    step_facts,
)
from tidegate.runners.plan import Plan
from tidegate.sdk.errors import BuildError
from tidegate.sdk.portable.model import Feedback, Node, ParDo, Write, side_inputs


class ResumeError(BuildError):
    """The pipeline, as it is now, can't be resumed from the saved state."""


def check_names(plan: Plan) -> None:
    """ResumeError if state would be stored under a name that may change with the script."""
    for step, facts in zip(plan.steps, step_facts(plan), strict=True):
        if has_checkpointed_state(facts) and numbered(step):
            raise ResumeError(
                f"{step.label!r} at {step.tail.where} keeps state in checkpoints under a label that was numbered "
                "automatically, and may be another step's after the next change of the script: name it, as in "
                "'my name' >> ..."
            )


def check_steps(plan: Plan, steps: Iterable[StepFacts], origin: str, *, allow_dropped: bool) -> None:
    """ResumeError if the types of a step's state have changed, or if no step claims some of the state."""
    current = {facts.name: facts for facts in step_facts(plan) if has_checkpointed_state(facts)}
    unclaimed: list[str] = []
    for saved in steps:
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


def check_commits(plan: Plan, commits: Sequence[PendingCommit], origin: str) -> None:
    """ResumeError if output may not be committed yet, and its step is gone or has another sink by now, such as one that
    writes to another folder, and therefore would not find the output."""
    names = {step.label: step.tail.name for step in plan.steps if isinstance(step.tail, Write)}
    lost = [commit.step for commit in commits if commit.step not in names and commit.committables]
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


def _range(index: int, count: int, groups: int) -> tuple[int, int]:
    """The key groups of a task, as a half-open range."""
    return -(-index * groups // count), -(-(index + 1) * groups // count)


def needs_all_states(node: Node) -> bool:
    """Return whether each of another number of tasks needs the states of all: elements that wait may belong to any of
    them, and the input of a loop's head, which comes from one task, may have ended in some alone."""
    return bool(side_inputs(node)) or isinstance(node, Feedback) or (isinstance(node, ParDo) and node.calls is not None)


def _describe(facts: StepFacts) -> str:
    return f"{facts.role} {facts.kind}" + (f", {facts.state}" if facts.state else "")

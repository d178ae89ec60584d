"""Builds a checkpoint's manifest, and the commits that it makes final, from the acknowledgements of all tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tidegate.runners.checkpoint.manifest import Manifest, PendingCommit, TaskPart
from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState
from tidegate.runners.checkpoint.step_state import step_facts
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.plan import Step
from tidegate.runners.streaming.checkpoint.tracker import PendingCheckpoint
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.protocol.worker_messages import Commit, Prepared
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.model import Write


def commits_for(job: Job, prepared: Sequence[Prepared], checkpoint: int | None) -> list[Commit]:
    """One commit for each sink that prepared output, or for each of its tasks if it commits by task.

    A bounded run (`checkpoint` None) has one commit for every sink: one without output still has to be committed.
    """
    commits = []
    by_sink: dict[str, dict[int | None, list[Committable]]] = {}
    by_task = {step.label for step in job.plan.steps if _commits_by_task(step) and checkpoint is not None}
    for part in prepared:
        task = part.task if part.step in by_task else None
        by_sink.setdefault(part.step, {}).setdefault(task, []).extend(part.committables)
    for step in job.plan.steps:
        if step.is_sink:
            for task, committables in sorted(
                by_sink.get(step.label, {None: []}).items(), key=lambda each: each[0] or 0
            ):
                if committables or checkpoint is None:
                    commits.append(Commit(step.id, job.output_run, tuple(committables), checkpoint, task))
    return commits


def _commits_by_task(step: Step) -> bool:
    return isinstance(step.tail, Write) and step.tail.commit_by == "task"


def _pending(commit: Commit, step: Step) -> PendingCommit:
    assert isinstance(step.tail, Write)
    return PendingCommit(
        step.label, commit.run, commit.checkpoint, commit.committables, commit.task, sink=step.tail.name
    )


def build_manifest(
    job: Job,
    epoch: int,
    pending: PendingCheckpoint,
    *,
    done_before: Iterable[TaskId],
    counted: Iterable[MetricCells],
    lists: Mapping[str, tuple[AssignedSplit, ...]],
    enumerators: Mapping[str, EnumeratorState],
    finished: Mapping[str, int],
    commits: Iterable[Commit],
    now: int,
) -> Manifest:
    """Build the manifest of a checkpoint that all tasks have acknowledged.

    `done_before`: the tasks of regions that ended before the current attempt; they store nothing in the checkpoint.
    `counted`: the metrics of tasks that have ended. `lists`: the splits of each source; those that are finished now are
    only counted, in addition to the `finished` ones that its list does not have any more. `commits`: all commits that
    may still be outstanding.
    """
    topology, settings = job.topology, job.settings
    ended: dict[str, set[str]] = {}
    for part in (part for ack in pending.acks.values() for part in ack.splits):
        ended.setdefault(part.step, set()).update(part.finished)
    left = {label: tuple(s for s in splits if s.id not in ended.get(label, ())) for label, splits in lists.items()}
    counts = Counter(finished)
    counts.update({label: len(splits) - len(left[label]) for label, splits in lists.items()})
    tasks = [
        TaskPart(
            ack.task,
            topology.parallelism(ack.task.stage),
            ack.ended,
            ack.handle,
            tuple(replace(part, finished=()) for part in ack.splits),
        )
        for ack in pending.acks.values()
    ]
    tasks += [TaskPart(task, topology.parallelism(task.stage), True, None) for task in done_before]
    metrics = MetricCells()
    for cells in counted:
        metrics.merge(cells)
    return Manifest(
        job=job.id,
        run=job.run,
        epoch=epoch,
        checkpoint=pending.number,
        kind="checkpoint" if pending.directory is None else "savepoint",
        taken=now,
        max_parallelism=settings.max_parallelism,
        backend=settings.state_backend,
        final=pending.final,
        steps=step_facts(job.plan),
        tasks=tuple(sorted(tasks, key=lambda part: part.task)),
        lists=left,
        enumerators=enumerators,
        finished=dict(counts),
        commits=tuple(_pending(commit, job.plan.steps[commit.step]) for commit in commits),
        counted=metrics,
    )

"""What all tasks acknowledged of a checkpoint, put together: its manifest, and the commits that are final with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidegate.runners.streaming.checkpoint.manifest import Manifest, PendingCommit, TaskPart
from tidegate.runners.streaming.checkpoint.tracker import PendingCheckpoint
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.step_state import step_facts
from tidegate.runners.streaming.model.topology import TaskId
from tidegate.runners.streaming.protocol.worker_messages import AssignedSplit, Commit, Prepared
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.metrics import MetricCells


def commits_for(job: Job, prepared: Sequence[Prepared], checkpoint: int | None) -> list[Commit]:
    """A commit for each sink that has prepared something; of a bounded run (`checkpoint` None) for every sink."""
    commits = []
    by_sink: dict[str, list[Committable]] = {}
    for part in prepared:
        by_sink.setdefault(part.step, []).extend(part.committables)
    for step in job.plan.steps:
        if step.is_sink:
            pieces = tuple(by_sink.get(step.label, ()))
            if pieces or checkpoint is None:
                commits.append(Commit(step.id, job.output_run, pieces, checkpoint))
    return commits


def build_manifest(
    job: Job,
    epoch: int,
    pending: PendingCheckpoint,
    *,
    done_before: Iterable[TaskId],
    counted: Iterable[MetricCells],
    lists: Mapping[str, tuple[AssignedSplit, ...]],
    commits: Iterable[Commit],
    now: int,
) -> Manifest:
    """The manifest of a checkpoint that all tasks have acknowledged.

    `done_before`: tasks that had ended before there were checkpoints, `counted`: their metrics. `commits`: all that may
    not have been made.
    """
    topology, settings = job.topology, job.settings
    tasks = [
        TaskPart(ack.task, topology.parallelism(ack.task.stage), ack.ended, ack.handle, ack.splits)
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
        lists=lists,
        commits=tuple(
            PendingCommit(job.plan.steps[commit.step].label, commit.run, commit.checkpoint, commit.committables)
            for commit in commits
        ),
        counted=metrics,
    )

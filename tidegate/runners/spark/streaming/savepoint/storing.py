"""Completes a savepoint in the driver: from what the tasks have written, a manifest in the format of all runners."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence

from tidegate.runners.checkpoint.catalog import check_files, checkpoint_numbers
from tidegate.runners.checkpoint.manifest import Manifest, ManifestError, TaskPart, folder_of
from tidegate.runners.checkpoint.manifest_json import dumps
from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState, SplitProgress
from tidegate.runners.checkpoint.step_state import StepFacts, step_facts
from tidegate.runners.checkpoint.storage.factory import open_storage
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.plan import Plan
from tidegate.runners.spark.streaming.job import SavedTask, SavepointTarget, StreamJob, TaskReport
from tidegate.runners.spark.streaming.levels import Levels
from tidegate.sdk.errors import OptionsError, RunError, TidegateError, access_failure
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.time import SECOND


@contextlib.contextmanager
def storage_errors(url: str) -> Iterator[None]:
    """Turn an error of the storage into a RunError that names it."""
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:  # of a remote store, whatever its client raises
        raise RunError(f"the savepoint in {url} can't be written: {access_failure(error)}") from error


def refuse_unwritable(directory: str) -> None:
    """Raise OptionsError if no savepoint can be written to a folder or URL from here, before the stream begins."""
    storage = open_storage(directory)
    name = f".probe-{os.urandom(6).hex()}"
    try:
        storage.write(name, b"")
        storage.delete(name)
    except Exception as error:  # of a remote store, whatever its client raises
        raise OptionsError(f"--spark_savepoint_dir {directory} can't be written: {access_failure(error)}") from error


def new_target(directory: str) -> SavepointTarget:
    """A new folder in a folder or at a URL, which may have older savepoints."""
    url = directory if "://" in directory else os.path.abspath(directory)  # workers have other working directories
    numbers = checkpoint_numbers(set(open_storage(url).list("")))
    return SavepointTarget(url, folder_of(max(numbers, default=0) + 1))


def store_savepoint(job: StreamJob, reports: Sequence[TaskReport], metrics: MetricCells) -> None:
    """Write the manifest, which completes the savepoint. RunError if the workers have written their files elsewhere, or
    if bounded input is still being read that others would have to read to its end first."""
    assert job.savepoint is not None
    storage = open_storage(job.savepoint.url)
    manifest = _manifest(job, reports, metrics)
    names = set(storage.list(""))
    try:
        check_files(storage, manifest, names, thorough=False)
    except ManifestError as error:
        raise RunError(
            f"{error}: the workers see another folder than the driver. Give a folder that all machines share, or a URL"
        ) from None
    storage.write(manifest.name, dumps(manifest))
    needed = {name for name, _, _ in manifest.files()}
    for name in names - needed:
        if name.startswith(f"{job.savepoint.folder}/"):  # of an attempt that Spark has repeated
            storage.delete(name)


def _manifest(job: StreamJob, reports: Sequence[TaskReport], metrics: MetricCells) -> Manifest:
    plan, levels = job.plan, job.levels
    assert job.savepoint is not None
    units = _units(plan, levels)
    labels = {step.id: step.label for step in plan.steps}
    done = {stage for region in plan.regions[:-1] for stage in region}
    read = {stage for report in reports for stage in _saved(report).handles.keys() - _saved(report).ended} & done
    if read:
        labels_read = ", ".join(repr(step.label) for step in plan.steps if step.stage in read)
        raise RunError(f"the bounded input of {labels_read} is still being read: take the savepoint once it has ended")
    tasks, splits, finished = [], dict[str, list[AssignedSplit]](), dict[str, int]()
    enumerators: dict[str, EnumeratorState] = {}
    for report in reports:
        saved = _saved(report)
        progress: dict[int, list[SplitProgress]] = {}
        for id, (current, ended) in saved.splits.items():
            label = labels[id]
            splits.setdefault(label, []).extend(current)
            finished[label] = finished.get(label, 0) + ended
            part = SplitProgress(label, (), tuple((split.id, split.position) for split in current))
            progress.setdefault(plan.steps[id].stage, []).append(part)
        enumerators |= {labels[id]: state for id, state in saved.enumerators.items()}
        for stage, handle in saved.handles.items():
            parallelism = 1 if stage in levels.single else job.tasks
            kept = None if stage in done else handle
            task = TaskId(units[report.level, stage], report.index)
            tasks.append(TaskPart(task, parallelism, stage in saved.ended, kept, tuple(progress.get(stage, ()))))
    return Manifest(
        job=job.run,
        run=job.run,
        epoch=1,
        checkpoint=int(job.savepoint.folder.rpartition("-")[2]),
        kind="savepoint",
        taken=time.time_ns() * SECOND // 10**9,
        max_parallelism=job.max_parallelism,
        backend="memory",
        final=all(report.ended for report in reports),
        steps=_facts(plan, levels, units),
        tasks=tuple(sorted(tasks, key=lambda part: part.task)),
        lists={label: tuple(found) for label, found in splits.items()},
        counted=metrics,
        enumerators=enumerators,
        finished=finished,
    )


def _saved(report: TaskReport) -> SavedTask:
    assert report.saved is not None
    return report.saved


def _units(plan: Plan, levels: Levels) -> dict[tuple[int, int], int]:
    """The steps that are stored together, as stages of the manifest: those of a level and of a stage, by both."""
    found = dict.fromkeys((levels.of_step[step.id], step.stage) for step in plan.steps)
    return {unit: number for number, unit in enumerate(found)}


def _facts(plan: Plan, levels: Levels, units: dict[tuple[int, int], int]) -> tuple[StepFacts, ...]:
    return tuple(
        StepFacts(each.name, each.label, each.kind, each.role, each.state, units[levels.of_step[step.id], step.stage])
        for step, each in zip(plan.steps, step_facts(plan), strict=True)
    )

"""Opens a savepoint or checkpoint for a new job, whose tasks are then restored from it in their first batch."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.runners.checkpoint.catalog import latest
from tidegate.runners.checkpoint.manifest import Manifest, ManifestError
from tidegate.runners.checkpoint.matching import (
    ResumeError,
    check_commits,
    check_steps,
    done_regions,
    remaining_splits,
)
from tidegate.runners.checkpoint.restoring import StoredParts
from tidegate.runners.checkpoint.state_files import checked, of_store
from tidegate.runners.checkpoint.step_state import reads_splits
from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.runners.checkpoint.storage.factory import open_storage
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.checkpoint.task_state import loads
from tidegate.runners.engine.sinks.staged_files import openable
from tidegate.runners.engine.sinks.writer import commit_output, loaded_sink
from tidegate.runners.plan import Plan
from tidegate.runners.spark.streaming.job import Restored, SourceStart
from tidegate.runners.spark.streaming.levels import Levels
from tidegate.runners.spark.streaming.savepoint.task_files import by_stage
from tidegate.sdk.errors import RunError, TidegateError, access_failure, counted
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.model import Write


class Savepoint:
    """The newest savepoint in a folder or at a URL. ResumeError or ManifestError if there is none that can be used."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._origin = f"savepoint {url}"
        try:
            self._storage: Storage = open_storage(url)
            found, _ = latest(self._storage)
        except TidegateError:
            raise
        except Exception as error:  # of a remote store, whatever its client raises
            raise RunError(f"the savepoint in {url} can't be read: {access_failure(error)}") from error
        if found is None:
            raise ResumeError(f"there is no savepoint in {url}")
        self.manifest: Manifest = found

    def check(self, plan: Plan, *, max_parallelism: int, allow_dropped: bool) -> None:
        """ResumeError if the job can't start from it; says what does not fit, and what to do."""
        manifest, origin = self.manifest, self._origin
        if manifest.max_parallelism != max_parallelism:
            raise ResumeError(
                f"{origin} has {counted(manifest.max_parallelism, 'key group')}, fixed when its job began, and the run "
                f"asks for {max_parallelism}: give --max_parallelism {manifest.max_parallelism}"
            )
        if any(map(of_store, manifest.files())):
            raise ResumeError(
                f"{origin} is a checkpoint of a run with --state_backend rocksdb: take a savepoint, which every runner "
                "reads"
            )
        check_steps(plan, manifest.steps, origin, allow_dropped=allow_dropped)
        check_commits(plan, manifest.commits, origin)

    def restored(self, plan: Plan, levels: Levels, tasks: int) -> Restored:
        """What the tasks of a job read of it."""
        stored = StoredParts(self.manifest)
        parts = {}
        for level in range(levels.count):
            for index in range(tasks):
                for stage, steps in by_stage(levels.steps(plan, level, index)).items():
                    found = stored.of(steps, TaskId(stage, index), levels.tasks(steps[0], tasks))
                    if found:
                        parts[level, stage, index] = found
        done = done_regions(plan, self.manifest)
        ended = frozenset(stage for region in done for stage in plan.regions[region])
        return Restored(self.url, parts, dict(self._sources(plan)), ended)

    def _sources(self, plan: Plan) -> Iterator[tuple[int, SourceStart]]:
        manifest = self.manifest
        known = {step.label for step in manifest.steps if step.role == "source"}
        for step in plan.steps:
            label = step.label
            if not reads_splits(step) or label not in known:
                continue
            progress = [part for task in manifest.tasks for part in task.splits if part.step == label]
            try:
                splits = remaining_splits(manifest.lists.get(label, ()), progress)
            except ValueError as error:
                raise ManifestError(f"{self._origin} is inconsistent: {error}") from None
            finished = manifest.finished.get(label, 0) + len(manifest.lists.get(label, ())) - len(splits)
            yield step.id, SourceStart(tuple(splits), finished, manifest.enumerators.get(label))

    def metrics(self) -> MetricCells:
        """The metrics of its job. ResumeError if elements are in flight, which only the streaming runner restores."""
        metrics = self.manifest.counted.copy()
        for part in self.manifest.tasks:
            if part.handle is None:
                continue
            state = loads(checked(part.handle.files[0], self._storage.read))
            if state.in_flight:
                raise ResumeError(
                    f"{self._origin} is an unaligned checkpoint, with elements in flight: let --runner streaming "
                    "resume it and take a savepoint"
                )
            metrics.merge(state.metrics)
        return metrics

    def commit(self, plan: Plan) -> MetricCells:
        """Commit the output in it that may not be committed yet."""
        metrics = MetricCells()
        sinks = {step.label: step.tail for step in plan.steps if isinstance(step.tail, Write)}
        for commit in self.manifest.commits:
            node = sinks.get(commit.step)
            if node is not None and commit.committables:
                committables = openable(commit.committables, self._storage.open)
                metrics.merge(commit_output(node, loaded_sink(node), commit.run, committables, commit.checkpoint))
        return metrics

"""The checkpoint of a query: Spark's own folder, what identifies the job, and the output that waits for its commit.

Any Hadoop file system will do. The manifest of an epoch (a batch) has the committables of its sinks. Spark logs the
epoch after that, which makes it final; only then are the committables committed, and the manifest is removed. An epoch
that Spark has not logged is run again after a failure, and its manifest replaced.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from tidegate.runners.checkpoint.matching import ResumeError, check_steps
from tidegate.runners.checkpoint.step_state import StepFacts, step_facts
from tidegate.runners.plan import Plan
from tidegate.runners.spark.streaming.driver.shared_folder import SharedFolder
from tidegate.runners.spark.streaming.driver.stored_reports import FOLDER as REPORTS
from tidegate.runners.spark.streaming.job import MAX_PARALLELISM
from tidegate.runners.spark.streaming.levels import Levels, routing
from tidegate.sdk import moved
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.errors import OptionsError, RunError

_JOB: Final = "tidegate.json"
_FORMAT: Final = 2
"""Format 1 had no facts about steps, so that only a digest told a changed pipeline."""
_READABLE: Final = (1, _FORMAT)
_MOVE: Final = (
    "let the former run write a savepoint (--spark_savepoint_dir), and start this one --from_savepoint with another "
    "--spark_checkpoint_dir"
)


class HadoopFolder:
    """A folder of any file system that Spark's JVM can reach."""

    def __init__(self, spark: Any, path: str) -> None:
        self.path = path
        self._jvm = spark._jvm
        root = self._path()
        self._files = root.getFileSystem(spark._jsc.hadoopConfiguration())

    def names(self, folder: str) -> list[str]:
        """The names of the files in a subfolder; [] if there is none."""
        path = self._path(folder)
        if not self._files.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(path))

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return bool(self._files.exists(self._path(name)))

    def read(self, name: str) -> bytes:
        """The contents of a file."""
        stream = self._files.open(self._path(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        """Write a file, which appears complete under its name."""
        partial = self._path(f"{name}.part")
        stream = self._files.create(partial, True)
        try:
            stream.write(bytearray(data))
            stream.hsync()
        finally:
            stream.close()
        self.remove(name)
        if not self._files.rename(partial, self._path(name)):
            raise RunError(f"{self.path}/{name} can't be written: its file system refused to rename {name}.part")

    def remove(self, name: str) -> None:
        """Remove a file or folder, if it is there."""
        self._files.delete(self._path(name), True)

    def _path(self, name: str = "") -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.path}/{name}" if name else self.path)


class Checkpoint:
    """The checkpoint in a folder, at `folder`. `run`, `tasks` and `max_parallelism` are those of the job to which it
    belongs, from its first start. `savepoint`: where its first batch starts from, until that has run. `goes_on`: a
    batch has run.

    `asked`: the number of tasks that the author wants, if any; `default` is that of a new job otherwise. ResumeError if
    the steps of the plan can't go on from the state in the folder.
    """

    def __init__(
        self,
        folder: HadoopFolder | SharedFolder,
        plan: Plan,
        levels: Levels,
        *,
        run: str,
        asked: int | None,
        default: int,
        max_parallelism: int = MAX_PARALLELISM,
        savepoint: str | None = None,
    ) -> None:
        self._folder = folder
        self.folder = folder.path
        self.path = f"{folder.path}/spark"
        known = json.loads(folder.read(_JOB)) if folder.exists(_JOB) else None
        self.goes_on = known is not None and self._has_logged("commits")
        self._is_recorded = known is not None and self.goes_on and known["format"] == _FORMAT
        if known is None or (savepoint is not None and not self._has_logged("offsets")):
            self.run, self.tasks = run, asked or default
            self.max_parallelism, self.savepoint = max_parallelism, savepoint
            self._entry = _entry(self, plan, levels)
            return
        _check(known, plan, levels, f"--spark_checkpoint_dir {folder.path}")
        if asked is not None and asked != known["tasks"]:
            raise OptionsError(
                f"--spark_checkpoint_dir {folder.path} has the state of {known['tasks']} partitions, which Spark "
                f"can't divide anew: run with --spark_partitions {known['tasks']}, or {_MOVE}"
            )
        self.run, self.tasks = known["run"], known["tasks"]
        self.max_parallelism = known.get("max_parallelism", MAX_PARALLELISM)
        if max_parallelism not in (self.max_parallelism, MAX_PARALLELISM):
            raise OptionsError(
                f"--spark_checkpoint_dir {folder.path} has {self.max_parallelism} key groups, fixed when the job "
                f"began: give --max_parallelism {self.max_parallelism}"
            )
        self.savepoint = None if self.goes_on else savepoint or known.get("savepoint")
        self._entry = _entry(self, plan, levels)

    def record(self) -> None:
        """Store what identifies the job, before its first batch; and again if an earlier version has stored less."""
        if not self._is_recorded:
            self._folder.write(_JOB, json.dumps(self._entry).encode())

    def _has_logged(self, log: str) -> bool:
        """Whether Spark has logged that a batch has begun (`offsets`) or is final (`commits`)."""
        return any(name.isdigit() for name in self._folder.names(f"spark/{log}"))

    def store(self, epoch: int, committables: Mapping[int, list[Committable]]) -> None:
        """Store the committables of an epoch, by sink."""
        self._folder.write(f"manifests/{epoch}", pickle.dumps(dict(committables), 5))

    def discard(self, epoch: int) -> None:
        """The epoch has no output: what a failed attempt of it has stored is not to be committed."""
        self._folder.remove(f"manifests/{epoch}")

    def reported(self) -> list[int]:
        """The epochs whose reports a server has stored, and which `taken` has not removed."""
        return sorted(int(name) for name in self._folder.names(REPORTS) if name.isdigit())

    def reports(self, epoch: int) -> list[bytes]:
        """The reports of an epoch, pickled."""
        found: list[bytes] = pickle.loads(self._folder.read(f"{REPORTS}/{epoch}"))
        return found

    def taken(self, epoch: int) -> None:
        """What the reports of an epoch say is stored elsewhere."""
        self._folder.remove(f"{REPORTS}/{epoch}")

    def outstanding(self) -> list[int]:
        """The epochs that are final, and whose output is not known to be committed."""
        epochs = sorted(int(name) for name in self._folder.names("manifests") if name.isdigit())
        return [epoch for epoch in epochs if self.is_final(epoch)]

    def is_final(self, epoch: int) -> bool:
        """Whether Spark has logged an epoch, so that it is not run again."""
        return self._folder.exists(f"spark/commits/{epoch}")

    def committables(self, epoch: int) -> dict[int, list[Committable]]:
        """What `store` has stored."""
        found: dict[int, list[Committable]] = moved.loads(self._folder.read(f"manifests/{epoch}"))
        return found

    def committed(self, epoch: int) -> None:
        """The output of an epoch has been committed."""
        self._folder.remove(f"manifests/{epoch}")


def _entry(checkpoint: Checkpoint, plan: Plan, levels: Levels) -> dict[str, Any]:
    """The record of a job: how its steps are divided, and what state they keep."""
    return {
        "format": _FORMAT,
        "run": checkpoint.run,
        "tasks": checkpoint.tasks,
        "shape": _shape(plan, levels),
        "max_parallelism": checkpoint.max_parallelism,
        "savepoint": checkpoint.savepoint,
        "steps": [asdict(facts) for facts in step_facts(plan)],
        "levels": _levels(plan, levels),
    }


def _check(known: Mapping[str, Any], plan: Plan, levels: Levels, origin: str) -> None:
    """ResumeError if the steps or their state have changed since; OptionsError if it is another pipeline."""
    if known["format"] not in _READABLE:
        raise OptionsError(f"{origin} has format {known['format']}, which this version of Tidegate does not read")
    steps = [StepFacts(**facts) for facts in known.get("steps", ())]
    before, now = known.get("levels", {}), _levels(plan, levels)
    inner = {facts.name for facts in steps if facts.role in ("source", "stateful")}
    if known["shape"] != _shape(plan, levels) and (not steps or inner.isdisjoint(now)):
        raise OptionsError(
            f"{origin} belongs to another pipeline, or to another version of this one, whose steps differ: give "
            "another folder to begin anew"
        )
    check_steps(plan, steps, origin, allow_dropped=True)
    if known["shape"] == _shape(plan, levels):
        return
    changes = [f"{name!r} is new" for name in now if name not in before]
    changes += [f"{name!r} is gone" for name in before if name not in now]
    changes += [
        f"{name!r} was in level {before[name]} and is in level {level}"
        for name, level in now.items()
        if before.get(name, level) != level
    ]
    raise ResumeError(
        f"{origin} has the state of a pipeline that is divided otherwise: "
        f"{', '.join(changes) or 'elements go other ways between the same steps'}. Spark can't move the state: {_MOVE}"
    )


def _levels(plan: Plan, levels: Levels) -> dict[str, int]:
    return {facts.name: levels.of_step[step.id] for step, facts in zip(plan.steps, step_facts(plan), strict=True)}


def _shape(plan: Plan, levels: Levels) -> str:
    """A digest of what the state in a checkpoint depends on: the steps, and how elements get from one to another."""
    steps = [(step.label, step.phase, step.path, levels.of_step[step.id]) for step in plan.steps]
    edges = [(edge.collection, edge.source, edge.target, routing(edge), edge.side) for edge in plan.edges]
    return hashlib.sha256(repr((steps, edges)).encode()).hexdigest()

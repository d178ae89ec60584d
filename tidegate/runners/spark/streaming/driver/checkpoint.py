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
from typing import Any, Final

from tidegate.runners.plan import Plan
from tidegate.runners.spark.streaming.levels import Levels, routing
from tidegate.sdk import moved
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.errors import OptionsError, RunError

_JOB: Final = "tidegate.json"
_FORMAT: Final = 1


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
    """The checkpoint in a folder. `run` and `tasks` are those of the job that it belongs to, from its first start.

    `asked`: the number of tasks that the author wants, if any; `default` is that of a new job otherwise.
    """

    def __init__(
        self, folder: HadoopFolder, plan: Plan, levels: Levels, *, run: str, asked: int | None, default: int
    ) -> None:
        self._folder = folder
        self.path = f"{folder.path}/spark"
        known = json.loads(folder.read(_JOB)) if folder.exists(_JOB) else None
        shape = _shape(plan, levels)
        if known is None:
            self.run, self.tasks = run, asked or default
            entry = {"format": _FORMAT, "run": self.run, "tasks": self.tasks, "shape": shape}
            folder.write(_JOB, json.dumps(entry).encode())
            return
        if known["format"] != _FORMAT or known["shape"] != shape:
            raise OptionsError(
                f"--spark_checkpoint_dir {folder.path} belongs to another pipeline, or to another version of this one, "
                "whose steps differ: give another folder to begin anew"
            )
        if asked is not None and asked != known["tasks"]:
            raise OptionsError(
                f"--spark_checkpoint_dir {folder.path} has the state of {known['tasks']} partitions, which Spark "
                f"can't divide anew: run with --spark_partitions {known['tasks']}, or give another folder to begin anew"
            )
        self.run, self.tasks = known["run"], known["tasks"]

    def store(self, epoch: int, committables: Mapping[int, list[Committable]]) -> None:
        """Store the committables of an epoch, by sink."""
        self._folder.write(f"manifests/{epoch}", pickle.dumps(dict(committables), 5))

    def discard(self, epoch: int) -> None:
        """The epoch has no output: what a failed attempt of it has stored is not to be committed."""
        self._folder.remove(f"manifests/{epoch}")

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


def _shape(plan: Plan, levels: Levels) -> str:
    """A digest of what the state in a checkpoint depends on: the steps, and how elements get from one to another."""
    steps = [(step.label, step.phase, step.path, levels.of_step[step.id]) for step in plan.steps]
    edges = [(edge.collection, edge.source, edge.target, routing(edge), edge.side) for edge in plan.edges]
    return hashlib.sha256(repr((steps, edges)).encode()).hexdigest()

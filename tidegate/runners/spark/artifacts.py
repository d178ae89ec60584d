"""Files that go to the workers beside the code: what is too large for a closure, named by the hash of its content.

The driver writes a file once and gives it to the session, which hands it to each executor when a task there first runs.
Workers of a local master read the driver's own file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any, Final, TypeAlias

Artifact: TypeAlias = tuple[str, str]
"""A file's name, and its path if the workers are on the driver's machine (else ""). Plain data: it has to be read where
Tidegate is not yet known."""

CLOSURE_BYTES: Final = 1 << 20
"""What is larger travels as an artifact."""

_sent: Final[weakref.WeakKeyDictionary[Any, set[str]]] = weakref.WeakKeyDictionary()
"""What each session has been given already: one name can be given only once."""


class Artifacts:
    """The files of one run. `close` removes what the driver wrote; DataFrames that outlive the run keep them."""

    def __init__(self, spark: Any, *, local: bool) -> None:
        self._spark = spark
        self._local = local
        self._folder: Path | None = None

    def new(self) -> Path:
        """Where to write a file that `give` takes."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="tidegate-spark-"))
        return self._folder / f"new-{len(os.listdir(self._folder))}"

    def give(self, path: Path) -> Artifact:
        """Hand a file that has been written to the workers."""
        with path.open("rb") as file:
            name = f"tidegate-{hashlib.file_digest(file, 'sha256').hexdigest()[:32]}"
        named = path.rename(path.with_name(name))
        if self._local:
            return name, str(named)
        given = _sent.setdefault(self._spark, set())
        if name not in given:
            self._spark.addArtifacts(str(named), file=True)
            given.add(name)
        return name, ""

    def give_bytes(self, data: bytes) -> Artifact:
        """The same for what is in memory."""
        path = self.new()
        path.write_bytes(data)
        return self.give(path)

    def close(self) -> None:
        """The run is over."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def path_of(artifact: Artifact) -> str:
    """Where a worker finds an artifact."""
    name, path = artifact
    if path:
        return path
    from pyspark import SparkFiles

    return SparkFiles.get(name)


def content_of(what: bytes | Artifact) -> bytes:
    """What was given, in a worker."""
    return what if isinstance(what, bytes) else Path(path_of(what)).read_bytes()

"""Files sent to the workers: data too large for a closure, stored under the hash of its content.

An executor that joins a session fetches all files ever added to the session before it runs its first task. A file
therefore stays until the session ends, and a run that needs the same content reuses it. In a classic session the files
lie in the driver's `SparkFiles` folder, from which Spark serves them and which it removes with the session; a Connect
server has copies of its own. Workers of a local master read the driver's file directly: it is not added to Spark, and
is deleted when the run is over.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from tidegate.runners.spark.plan.console import notify
from tidegate.sdk.errors import RunError, UnsupportedError, counted

Artifact: TypeAlias = tuple[str, str]
"""A file's name, and its path if the workers are on the driver's machine (else ""). A plain tuple, because workers
unpickle it before Tidegate can be imported."""

CLOSURE_BYTES: Final = 1 << 20
"""Data larger than this is sent as an artifact."""

MANY_BYTES: Final = 10**9
"""A session with more bytes of artifacts than this gets one warning."""


@dataclass(slots=True)
class _SessionFiles:
    """The artifacts added to a session: their sizes by name, and how many active runs use the session."""

    sizes: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    warned: bool = False


_session_files: Final[weakref.WeakKeyDictionary[Any, _SessionFiles]] = weakref.WeakKeyDictionary()
"""The files by the object whose lifetime they share: a SparkContext, or a Connect session."""
_publishing: Final = threading.Lock()


class Artifacts:
    """The artifacts of one run. `close` ends the run's use of them."""

    def __init__(self, spark: Any, *, local: bool) -> None:
        self._spark = spark
        self._context = getattr(spark, "_sc", None)
        self._local = local
        self._folder: Path | None = None
        self._session_files = _SessionFiles() if local else _files_of_session(spark)
        self._session_files.runs += 1

    def new_file(self) -> Path:
        """The path of a new file: write it, then `publish` it."""
        if self._folder is None:
            self._folder = Path(
                tempfile.mkdtemp(prefix="tidegate-", dir=self._context and spark_files_folder(self._context))
            )
        return self._folder / f"new-{len(os.listdir(self._folder))}"

    def publish(self, path: Path) -> Artifact:
        """Make a file available to the workers."""
        with path.open("rb") as file:
            name = f"tidegate-{hashlib.file_digest(file, 'sha256').hexdigest()[:32]}"
        if self._local:
            return name, str(path.rename(path.with_name(name)))
        with _publishing:
            if name not in self._session_files.sizes:
                self._add_to_session(path, name)
            else:
                path.unlink()
        return name, ""

    def publish_bytes(self, data: bytes) -> Artifact:
        """Make bytes available to the workers as a file."""
        path = self.new_file()
        path.write_bytes(data)
        return self.publish(path)

    def discard(self, artifact: Artifact) -> None:
        """Remove a file that no task reads again. Those that were added to Spark stay."""
        if self._local:
            Path(artifact[1]).unlink(missing_ok=True)

    def close(self, *, keep_files: bool = False) -> None:
        """End the run. `keep_files`: its DataFrames remain in use, and Spark may have to recompute lost partitions."""
        self._session_files.runs -= 1
        if self._folder is not None and not (keep_files and self._local):
            shutil.rmtree(self._folder, ignore_errors=True)

    def _add_to_session(self, path: Path, name: str) -> None:
        files, size = self._session_files, path.stat().st_size
        if self._context is not None:
            path = path.rename(Path(spark_files_folder(self._context), name))
            self._context.addFile(str(path))
        else:
            path = path.rename(path.with_name(name))
            self._spark.addArtifacts(str(path), file=True)
            path.unlink()
        files.sizes[name] = size
        total = sum(files.sizes.values())
        if total > MANY_BYTES and not files.warned:
            files.warned = True
            remedy = (
                "end the session"
                if self._context is None
                else "call tidegate.runners.spark.clear_artifacts(spark) between runs"
            )
            notify(
                f"this Spark session holds {total / 1e6:,.0f} MB of large values and side inputs of its runs "
                f"({counted(len(files.sizes), 'file')}), which every executor that joins it fetches; to free them, "
                f"{remedy}"
            )


def clear_artifacts(spark: Any) -> int:
    """Remove the files that runs have added to a session, from Spark and from disk. Returns their size in bytes.

    Unpersist the DataFrames that `ToDataFrame` returned first: Spark needs the files to recompute lost partitions.
    Raises RunError while a run of this process uses the session, and UnsupportedError over Connect, where files stay
    until the session is stopped.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        raise UnsupportedError("over Spark Connect files stay with the server until their session ends: stop it")
    with _publishing:
        files = _session_files.get(context)
        if files is None:
            return 0
        if files.runs:
            raise RunError("the session's files can't be removed while a run uses it: wait until it is over")
        _unregister(context, files.sizes)
        freed = sum(files.sizes.values())
        files.sizes.clear()
        files.warned = False
    return freed


def _unregister(context: Any, names: dict[str, int]) -> None:
    """Remove files from a SparkContext, so that executors no longer fetch them. Spark has no public API for this."""
    sets = context._jsc.sc().addedFiles().valuesIterator()
    while sets.hasNext():
        added = sets.next()
        urls = added.keysIterator().toList()
        for url in map(urls.apply, range(urls.size())):
            if url.rpartition("/")[2] in names:
                added.remove(url)
    for name in names:
        Path(spark_files_folder(context), name).unlink(missing_ok=True)


def _files_of_session(spark: Any) -> _SessionFiles:
    key = getattr(spark, "_sc", None) or spark
    with _publishing:
        return _session_files.setdefault(key, _SessionFiles())


def spark_files_folder(context: Any) -> str:
    """The driver's folder of Spark's files, which is removed when the SparkContext stops."""
    from pyspark import SparkFiles

    assert context._jsc is not None
    return SparkFiles.getRootDirectory()


def artifact_path(artifact: Artifact) -> str:
    """An artifact's path on a worker."""
    name, path = artifact
    if path:
        return path
    from pyspark import SparkFiles

    return SparkFiles.get(name)


def read_payload(payload: bytes | Artifact) -> bytes:
    """The bytes of a payload, on a worker: those in the closure, or an artifact's."""
    return payload if isinstance(payload, bytes) else Path(artifact_path(payload)).read_bytes()

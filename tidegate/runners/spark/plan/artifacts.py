"""Files that go to the workers beside the code: what is too large for a closure, named by the hash of its content.

Spark has every executor that joins a session fetch all files the session was ever given, before it runs its first task
there. So a file that was given once stays until the session ends, and a run that needs the same content again adds
nothing. In a classic session the files are in the driver's folder of Spark's files, which Spark serves them from and
removes with the session; a Connect server keeps copies of its own. Workers of a local master read the driver's file,
which Spark never hears of: it goes when its run is over.
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

from tidegate.runners.spark.plan.console import say
from tidegate.sdk.errors import RunError, UnsupportedError

Artifact: TypeAlias = tuple[str, str]
"""A file's name, and its path if the workers are on the driver's machine (else ""). Plain data: it has to be read where
Tidegate is not yet known."""

CLOSURE_BYTES: Final = 1 << 20
"""What is larger travels as an artifact."""

MANY_BYTES: Final = 10**9
"""When a session holds more than this, its author is told, once."""


@dataclass(slots=True)
class _Given:
    """What a session has been given: sizes by name, and how many runs use it now."""

    sizes: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    told: bool = False


_given: Final[weakref.WeakKeyDictionary[Any, _Given]] = weakref.WeakKeyDictionary()
"""By what Spark keeps files for: a SparkContext, or a session of Connect."""
_giving: Final = threading.Lock()


class Artifacts:
    """The files of one run. `close` ends the run's use of them."""

    def __init__(self, spark: Any, *, local: bool) -> None:
        self._spark = spark
        self._context = getattr(spark, "_sc", None)
        self._local = local
        self._folder: Path | None = None
        self._given = _Given() if local else _of(spark)
        self._given.runs += 1

    def new(self) -> Path:
        """Where to write a file that `give` takes."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="tidegate-", dir=self._context and files_of(self._context)))
        return self._folder / f"new-{len(os.listdir(self._folder))}"

    def give(self, path: Path) -> Artifact:
        """Hand a file that has been written to the workers."""
        with path.open("rb") as file:
            name = f"tidegate-{hashlib.file_digest(file, 'sha256').hexdigest()[:32]}"
        if self._local:
            return name, str(path.rename(path.with_name(name)))
        with _giving:
            if name not in self._given.sizes:
                self._send(path, name)
            else:
                path.unlink()
        return name, ""

    def give_bytes(self, data: bytes) -> Artifact:
        """The same for what is in memory."""
        path = self.new()
        path.write_bytes(data)
        return self.give(path)

    def close(self, *, kept: bool = False) -> None:
        """The run is over. `kept`: DataFrames live on, of which Spark may make lost parts again from its files."""
        self._given.runs -= 1
        if self._folder is not None and not (kept and self._local):
            shutil.rmtree(self._folder, ignore_errors=True)

    def _send(self, path: Path, name: str) -> None:
        given, size = self._given, path.stat().st_size
        if self._context is not None:
            named = path.rename(Path(files_of(self._context), name))
            self._context.addFile(str(named))
        else:
            named = path.rename(path.with_name(name))
            self._spark.addArtifacts(str(named), file=True)
            named.unlink()
        given.sizes[name] = size
        total = sum(given.sizes.values())
        if total > MANY_BYTES and not given.told:
            given.told = True
            way = (
                "end the session"
                if self._context is None
                else "call tidegate.runners.spark.clear_artifacts(spark) between runs"
            )
            say(
                f"this Spark session holds {total / 1e6:,.0f} MB of large values and side inputs of its runs "
                f"({len(given.sizes)} files), which every executor that joins it fetches; to free them, {way}"
            )


def clear_artifacts(spark: Any) -> int:
    """Remove the files that runs have left with a session, from Spark and from disk; how many bytes they were.

    DataFrames that `ToDataFrame` made and that Spark may have to compute again need them: unpersist those first.
    RunError while a run of this process uses the session; UnsupportedError over Connect, where files stay until the
    session is stopped.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        raise UnsupportedError("over Spark Connect files stay with the server until their session ends: stop it")
    with _giving:
        given = _given.get(context)
        if given is None:
            return 0
        if given.runs:
            raise RunError("the session's files can't be removed while a run uses it: wait until it is over")
        _forget(context, given.sizes)
        freed = sum(given.sizes.values())
        given.sizes.clear()
        given.told = False
    return freed


def _forget(context: Any, names: dict[str, int]) -> None:
    """Have a SparkContext tell executors of these files no more. There is no public way to."""
    sets = context._jsc.sc().addedFiles().valuesIterator()
    while sets.hasNext():
        added = sets.next()
        urls = added.keysIterator().toList()
        for url in map(urls.apply, range(urls.size())):
            if url.rpartition("/")[2] in names:
                added.remove(url)
    for name in names:
        Path(files_of(context), name).unlink(missing_ok=True)


def _of(spark: Any) -> _Given:
    key = getattr(spark, "_sc", None) or spark
    with _giving:
        return _given.setdefault(key, _Given())


def files_of(context: Any) -> str:
    """The driver's folder of Spark's files, which is removed when the SparkContext stops."""
    from pyspark import SparkFiles

    assert context._jsc is not None
    return SparkFiles.getRootDirectory()


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

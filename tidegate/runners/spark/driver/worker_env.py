"""The Python workers of a cluster: what they have is asked once a session, and Tidegate is sent where it is missing.

Workers of a local master are this machine's, with this interpreter: there is nothing to ask.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
import weakref
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidegate._version import __version__
from tidegate.runners.spark.plan.artifacts import files_of
from tidegate.runners.spark.plan.failures import gist, text_of
from tidegate.sdk.errors import UnsupportedError

_SENT: Final = ("tidegate", "cloudpickle")
"""What is sent: pure Python, which loads from a zip file."""

ENVIRONMENT: Final = "environment"
"""The folder that a packed environment becomes on the workers."""

_ready: Final[weakref.WeakKeyDictionary[Any, set[str | None]]] = weakref.WeakKeyDictionary()
"""The sessions whose workers are known to fit, with the archives they were sent."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker has: versions by name, "" for a package it lacks."""

    python: str
    tidegate: str
    cloudpickle: str
    pandas: str
    interpreter: str


def prepare(spark: Any, archive: str | None = None) -> None:
    """Ask a worker what it has; UnsupportedError, by name, where that does not fit; send Tidegate if it is missing.

    `archive` is a packed environment: it is sent too, unless the session was made with it.
    """
    if archive in _ready.setdefault(spark, set()):
        return
    if archive and archive not in spark.conf.get("spark.archives", ""):
        spark.addArtifacts(f"{archive}#{ENVIRONMENT}", archive=True)
    report = ask(spark, packages_in(archive))
    problems = unfit(report)
    if problems:
        raise UnsupportedError(f"the workers' Python ({report.interpreter}) can't run this: " + "; ".join(problems))
    if report.tidegate != __version__ or not report.cloudpickle:
        send(spark)
    _ready[spark].add(archive)


def ask(spark: Any, paths: tuple[str, ...] = ()) -> Report:
    """What a worker of this session has, `paths` among the places where it looks.

    UnsupportedError for a worker that has no fit Python; else what Spark raises.
    """
    try:
        (row,) = spark.range(0, 1, 1, 1).mapInArrow(_probe(paths), "report string").collect()
    except Exception as error:
        said = text_of(error)
        for name in ("pyarrow", "pandas"):
            if f"No module named '{name}'" in said or f"{name} >=" in said.lower():
                raise UnsupportedError(
                    f"the workers' Python ({_interpreter(spark)}) lacks {name}, without which PySpark runs no Arrow "
                    "functions: install it there, name an interpreter that has it with --worker_python, or send an "
                    "environment (tidegate package; --spark_archive)"
                ) from error
        if "Cannot run program" in said:
            raise UnsupportedError(
                f"a worker can't start its Python: --worker_python names one that each of them has. {gist(said)}"
            ) from error
        raise
    return Report(*row[0].split("\n"))


def _interpreter(spark: Any) -> str:
    """How a session names its workers' Python."""
    configured = spark.conf.get("spark.sql.execution.pyspark.python", "")
    context = getattr(spark, "_sc", None)
    return str(configured or (context.pythonExec if context is not None else "the server's"))


def packages_in(archive: str | None) -> tuple[str, ...]:
    """Where the packages of a packed environment are, among the files that a worker was sent."""
    if not archive:
        return ()
    return (f"./{ENVIRONMENT}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages",)


def unfit(report: Report) -> list[str]:
    """What is wrong with a worker, in words; [] if nothing."""
    problems = []
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if report.python != here:
        problems.append(
            f"it is {report.python} and here it is {here}: code does not travel between minor versions, "
            "give --worker_python or --spark_archive with the same"
        )
    if report.pandas.split(".")[0].isdigit() and int(report.pandas.split(".")[0]) >= 3:
        problems.append(f"PySpark does not work with its pandas {report.pandas}: install 'pandas<3' there")
    return problems


def _probe(paths: tuple[str, ...]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A function that travels by value, to where there may be no Tidegate."""

    def tidegate_preflight(batches: Iterable[Any]) -> Iterator[Any]:
        import os
        import sys
        from importlib import import_module, metadata

        import pyarrow  # type: ignore[import-untyped]

        def version(name: str) -> str:
            try:
                return str(getattr(import_module(name), "__version__", "") or metadata.version(name))
            except Exception:
                return ""

        for path in paths:
            from pyspark import SparkFiles

            sys.path.append(os.path.join(SparkFiles.getRootDirectory(), path[2:]))
        for _ in batches:
            told = [f"{sys.version_info.major}.{sys.version_info.minor}"]
            told += [version("tidegate"), version("cloudpickle"), version("pandas"), sys.executable]
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array(["\n".join(told)])], names=["report"])

    return tidegate_preflight


def send(spark: Any) -> None:
    """Give the session's workers this Tidegate, as a zip file that comes before what they have."""
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        archive = _zipped(Path(folder))
        context = getattr(spark, "_sc", None)
        if context is None:
            spark.addArtifacts(str(archive), pyfile=True)
        else:  # Spark reads the file whenever an executor joins, so it has to be where it stays
            context.addPyFile(shutil.move(archive, files_of(context)))


def _zipped(folder: Path) -> Path:
    archive = folder / f"tidegate-{__version__}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in _SENT:
            spec = importlib.util.find_spec(name)
            assert spec is not None
            assert spec.origin is not None
            home = Path(spec.origin).parent
            for path in sorted(home.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    zipped.write(path, str(Path(name) / path.relative_to(home)))
    return archive

"""The environment of a cluster's Python workers: checked once per session. Tidegate is sent if they lack it.

Workers of a local master run on this machine with this interpreter, so they need no check.
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
from tidegate.runners.spark.plan.artifacts import spark_files_folder
from tidegate.runners.spark.plan.failures import message_of, without_trace
from tidegate.runners.spark.plan.import_paths import path_appender
from tidegate.sdk.errors import UnsupportedError

_SENT: Final = ("tidegate", "cloudpickle")
"""The packages that are sent: pure Python, importable from a zip file."""

ENVIRONMENT: Final = "environment"
"""The folder on the workers into which a packed environment is unpacked."""

_prepared: Final[weakref.WeakKeyDictionary[Any, set[str | None]]] = weakref.WeakKeyDictionary()
"""The sessions whose workers have been checked, with the archives for which they were."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The versions that a worker has; "" for a missing package."""

    python: str
    tidegate: str
    cloudpickle: str
    pandas: str
    interpreter: str


def prepare(spark: Any, archive: str | None = None) -> None:
    """Check a worker's environment, and send Tidegate if it is missing. Raises UnsupportedError, naming the problem, if
    the worker can't run pipelines.

    `archive` is a packed environment: it is sent too, unless the session was created with it.
    """
    if archive in _prepared.setdefault(spark, set()):
        return
    if archive and archive not in spark.conf.get("spark.archives", ""):
        spark.addArtifacts(f"{archive}#{ENVIRONMENT}", archive=True)
    report = query_worker(spark, packages_in(archive))
    problems = problems_with(report)
    if problems:
        raise UnsupportedError(f"the workers' Python ({report.interpreter}) can't run this: " + "; ".join(problems))
    if report.tidegate != __version__ or not report.cloudpickle:
        send_tidegate(spark)
    _prepared[spark].add(archive)


def query_worker(spark: Any, paths: tuple[str, ...] = ()) -> WorkerReport:
    """Ask a worker of this session for its versions; `paths` are added to its `sys.path`.

    Raises UnsupportedError if the worker's Python is missing or lacks PyArrow or pandas, else Spark's own errors.
    """
    try:
        (row,) = spark.range(0, 1, 1, 1).mapInArrow(_probe(paths), "report string").collect()
    except Exception as error:
        message = message_of(error)
        for name in ("pyarrow", "pandas"):
            if f"No module named '{name}'" in message or f"{name} >=" in message.lower():
                raise UnsupportedError(
                    f"the workers' Python ({_worker_interpreter(spark)}) lacks {name}, which PySpark needs for Arrow "
                    "functions: install it there, name an interpreter that has it with --worker_python, or send an "
                    "environment (tidegate package; --spark_archive)"
                ) from error
        if "Cannot run program" in message:
            raise UnsupportedError(
                "a worker can't start its Python: name an interpreter that every worker has with --worker_python. "
                f"{without_trace(message)}"
            ) from error
        raise
    return WorkerReport(*row[0].split("\n"))


def _worker_interpreter(spark: Any) -> str:
    """The workers' interpreter as the session configures it."""
    configured = spark.conf.get("spark.sql.execution.pyspark.python", "")
    context = getattr(spark, "_sc", None)
    return str(configured or (context.pythonExec if context is not None else "the server's"))


def packages_in(archive: str | None) -> tuple[str, ...]:
    """The site-packages folder of a packed environment, relative to the files that a worker was sent."""
    if not archive:
        return ()
    return (f"./{ENVIRONMENT}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages",)


def problems_with(report: WorkerReport) -> list[str]:
    """Describe why a worker can't run pipelines; [] if it can."""
    problems = []
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if report.python != here:
        problems.append(
            f"it is {report.python} and here it is {here}: pickled code needs the same minor version; "
            f"give a --worker_python or --spark_archive with Python {here}"
        )
    if report.pandas.split(".")[0].isdigit() and int(report.pandas.split(".")[0]) >= 3:
        problems.append(f"PySpark does not work with its pandas {report.pandas}: install 'pandas<3' there")
    return problems


def _probe(paths: tuple[str, ...]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that reports the versions. It is pickled by value: the worker may lack Tidegate."""

    append_paths = path_appender(paths)

    def tidegate_preflight(batches: Iterable[Any]) -> Iterator[Any]:
        import sys
        from importlib import import_module, metadata

        import pyarrow

        def version(name: str) -> str:
            try:
                return str(getattr(import_module(name), "__version__", "") or metadata.version(name))
            except Exception:
                return ""

        append_paths()
        for _ in batches:
            fields = [f"{sys.version_info.major}.{sys.version_info.minor}"]
            fields += [version("tidegate"), version("cloudpickle"), version("pandas"), sys.executable]
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array(["\n".join(fields)])], names=["report"])

    return tidegate_preflight


def send_tidegate(spark: Any) -> None:
    """Send this Tidegate to the session's workers, as a zip file that precedes their own packages."""
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        archive = _zipped(Path(folder))
        context = getattr(spark, "_sc", None)
        if context is None:
            spark.addArtifacts(str(archive), pyfile=True)
        else:  # Spark reads the file whenever an executor joins, so it must outlive this function
            context.addPyFile(shutil.move(archive, spark_files_folder(context)))


def _zipped(folder: Path) -> Path:
    archive = folder / f"tidegate-{__version__}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in _SENT:
            spec = importlib.util.find_spec(name)
            assert spec is not None
            assert spec.origin is not None
            package = Path(spec.origin).parent
            for path in sorted(package.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    zipped.write(path, str(Path(name) / path.relative_to(package)))
    return archive

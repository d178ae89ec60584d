"""Starts the query of an unbounded pipeline: its job with levels and splits, and what Spark can't do is refused."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.runners.checkpoint.matching import ResumeError
from tidegate.runners.engine.errors.attribution import located
from tidegate.runners.engine.run_warnings import log_warnings, warn
from tidegate.runners.engine.sources.discovery import all_splits, split_discovery
from tidegate.runners.engine.sources.source_step import source_step
from tidegate.runners.plan import Plan
from tidegate.runners.spark.driver.session import is_local, require_installed
from tidegate.runners.spark.driver.spark_settings import parallelism
from tidegate.runners.spark.driver.worker_env import prepare
from tidegate.runners.spark.plan.failures import translated_errors
from tidegate.runners.spark.streaming.driver.checkpoint import Checkpoint, HadoopFolder
from tidegate.runners.spark.streaming.driver.lease import Lease
from tidegate.runners.spark.streaming.driver.query import StreamQuery
from tidegate.runners.spark.streaming.driver.result import StreamResult
from tidegate.runners.spark.streaming.driver.shared_folder import SharedFolder
from tidegate.runners.spark.streaming.driver.ticks import DueFile, SharedDueFile
from tidegate.runners.spark.streaming.job import StreamJob
from tidegate.runners.spark.streaming.levels import assign_levels, discovers
from tidegate.runners.spark.streaming.savepoint.opening import Savepoint
from tidegate.sdk.errors import OptionsError
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.model import TestStream
from tidegate.sdk.portable.secrets import secrets_of

if TYPE_CHECKING:
    from tidegate.runners.spark.plan.options import SparkOptions


def start(spark: Any, plan: Plan, options: SparkOptions, paths: tuple[str, ...], *, local: bool) -> StreamResult:
    """Start the query of a plan; it runs in the background. `paths`: entries of the workers' `sys.path`."""
    over_connect = not hasattr(spark, "_jvm")
    require_installed(java=False, stream=True)
    if over_connect:
        refuse_repetition(spark.conf)
    refuse_speculation(spark.conf if over_connect else spark.sparkContext.getConf())
    given = options.spark_checkpoint_dir
    if given is None and not local:
        raise OptionsError("an unbounded pipeline on a cluster needs a --spark_checkpoint_dir that all machines reach")
    if not local:
        with translated_errors("the workers' Python can't run a first task"):
            prepare(spark, options.spark_archive)
    levels = assign_levels(plan)
    temporary = None if given is not None else tempfile.mkdtemp(prefix="tidegate-spark-", dir=options.temp_dir)
    lease = None
    try:
        path = temporary or _absolute(str(given))
        with _reaching(path):
            folder = SharedFolder(path) if over_connect else HadoopFolder(spark, path)
            lease = Lease(folder)
        wanted = options.spark_partitions or None
        checkpoint = Checkpoint(
            folder,
            plan,
            levels,
            run=os.urandom(6).hex(),
            asked=wanted,
            default=parallelism(spark),
            max_parallelism=options.max_parallelism,
            savepoint=None if options.from_savepoint is None else _absolute(options.from_savepoint),
        )
        if checkpoint.goes_on and options.from_savepoint is not None:
            warn(f"--from_savepoint is not used: {given} has later state of this job")
        job = StreamJob(
            plan,
            levels,
            checkpoint.tasks,
            checkpoint.run,
            listed_splits(plan, checkpoint.tasks),
            options.spark_batch_elements,
            options.memory_budget,
            options.temp_dir,
            options.type_check == "runtime",
            options.max_end_timers,
            options.inline,
            secrets_of(plan.pipeline),
            spark_keys(spark, checkpoint.tasks),
            max_parallelism=checkpoint.max_parallelism,
        )
        counted = MetricCells()
        if checkpoint.savepoint is not None:
            job, counted = from_savepoint(job, checkpoint.savepoint, allow_dropped=options.allow_dropped_state)
        checkpoint.record()
        due = (
            SharedDueFile(folder)
            if isinstance(folder, SharedFolder)
            else DueFile(Path(tempfile.mkdtemp(prefix="tidegate-due-", dir=options.temp_dir)))
        )
        query = StreamQuery(
            spark,
            job,
            checkpoint,
            paths,
            trigger=options.spark_trigger_interval.seconds(),
            due=due,
            check_owner=lease.check,
            savepoint_at_stop=options.spark_savepoint_dir,
        )
        query.metrics.merge(counted)
    except BaseException:
        if lease is not None:
            lease.release()
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        raise

    def close() -> None:
        log_warnings(query.metrics, options.max_end_timers, plan.pipeline)
        if temporary is not None or query.complete:
            query.remove_uncommitted()
        due.close()
        lease.release()
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)

    run_for = None if options.run_for is None else options.run_for.seconds()
    return StreamResult(query, run_for, close)


@contextlib.contextmanager
def _reaching(path: str) -> Iterator[None]:
    """Turn an error of Hadoop's file systems into an OptionsError: nothing can be kept in the folder at `path`."""
    try:
        yield
    except Exception as error:
        in_java = getattr(error, "java_exception", None)
        if in_java is None:
            raise
        raise OptionsError(f"--spark_checkpoint_dir {path} can't be read or written: {in_java.toString()}") from error


def from_savepoint(job: StreamJob, url: str, *, allow_dropped: bool) -> tuple[StreamJob, MetricCells]:
    """The job with what its tasks start from, and the metrics of the savepoint's job.

    Output that is final in the savepoint is committed. ResumeError if the job can't start from it.
    """
    savepoint = Savepoint(url)
    savepoint.check(job.plan, max_parallelism=job.max_parallelism, allow_dropped=allow_dropped)
    restored = savepoint.restored(job.plan, job.levels, job.tasks)
    for id, each in restored.sources.items():
        step = job.plan.steps[id]
        if (each.enumerator is None) != (id in job.splits) and step.stage not in restored.ended:
            why = _WITHOUT if each.enumerator is None else _WITH
            raise located(ResumeError(f"savepoint {url} {why}"), step.label, step.head.where)
    metrics = savepoint.metrics()
    metrics.merge(savepoint.commit(job.plan))
    return replace(job, restored=restored), metrics


_WITHOUT: Final = (
    "was taken when the source listed all its splits, and it has an enumerator now, which would return them again: "
    "give the step another name to begin anew, or read as before"
)
_WITH: Final = (
    "has the state of the source's enumerator, and the source has no enumerator now: give the step another name to "
    "begin anew, or read as before"
)


def refuse_speculation(conf: Any) -> None:
    """Refuse Spark's settings if it may run a task twice at a time: the two may read different elements."""
    if conf.get("spark.speculation", "false").lower() == "true":
        raise OptionsError(
            "an unbounded pipeline can't run with spark.speculation=true: two attempts of a task may read different "
            "elements, and Spark may keep the state of one and the output of the other. Set spark.speculation=false"
        )


def refuse_repetition(conf: Any) -> None:
    """Refuse a Connect server that may run a task of a batch again: Connect doesn't tell when it has, and a task may
    read other elements the second time."""
    lacking = [f"--conf {name}=1" for name in _ONLY_ONCE if conf.get(name, "") != "1"]
    if lacking and not is_local(conf.get("spark.master", "")):
        raise OptionsError(
            "an unbounded pipeline through Spark Connect needs a server that runs each task of a batch once, so that a "
            f"batch fails as a whole when an executor is lost, and runs again: start it with {' '.join(lacking)}"
        )


_ONLY_ONCE: Final = ("spark.stage.maxAttempts", "spark.task.maxFailures")


def listed_splits(plan: Plan, tasks: int) -> Mapping[int, tuple[bytes, ...]]:
    """The splits of each source step, pickled; none for a step that discovers them while it is read."""
    found = {}
    for step in plan.steps:
        if not step.is_source or isinstance(step.head, TestStream):
            continue
        source = source_step(step.head)
        if discovers(step) and (discovery := split_discovery(source)) is not None:
            discovery.close()
            continue
        found[step.id] = tuple(pickle.dumps(split, 5) for split in all_splits(source, tasks))
    return found


def spark_keys(spark: Any, tasks: int) -> tuple[int, ...]:
    """A key for each partition, which Spark's hash assigns to it."""
    with translated_errors():
        numbers = spark.range(40 * tasks).selectExpr("CAST(id AS int) AS number")
        rows = numbers.selectExpr("number", f"pmod(hash(number), {tasks})").collect()
    found: dict[int, int] = {}
    for number, partition in rows:
        found.setdefault(partition, number)
    return tuple(found[partition] for partition in range(tasks))


def _absolute(directory: str) -> str:
    return directory if "://" in directory else str(Path(directory).absolute())

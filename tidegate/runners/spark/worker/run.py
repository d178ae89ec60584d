"""Runs one task of a level in a Spark Python worker."""

from __future__ import annotations

import gc
import itertools
import pickle
from collections.abc import Iterable, Iterator
from typing import Any, Final

from tidegate.runners.spark.plan.artifacts import Artifact, read_payload
from tidegate.runners.spark.plan.failures import worker_failure
from tidegate.runners.spark.plan.task_spec import TaskSpec
from tidegate.runners.spark.task_io.frames import batches_by_step
from tidegate.runners.spark.worker.level_cache import drop_caches, level_cache, worker_name
from tidegate.runners.spark.worker.round_task import RoundTask
from tidegate.runners.spark.worker.task import LevelTask
from tidegate.sdk.metrics import MetricCells, collecting
from tidegate.sdk.secrets.registry import install_secrets
from tidegate.sdk.user_code.redefined_classes import dumps


def run_task(
    payload: bytes | Artifact,
    run_id: str,
    level: int,
    frame_steps: tuple[int, ...],
    batches: Iterable[Any],
    counts: Any = None,
    round: tuple[str, bytes] | None = None,
) -> Iterator[Any]:
    """Run the task of this Spark partition on Arrow batches: of rows, or of the DataFrames that `frame_steps` read.
    `round`: the label of the loop in whose body the level is, and the pickled `Round`."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    _exclude_from_collections()
    before = gc.get_threshold()
    # Millions of tuples form no cycles, but scanning them repeatedly takes a third of the time. With these thresholds
    # they are scanned once, while they are in the processor's cache, and survivors are hardly ever scanned again.
    gc.set_threshold(20_000, 100, 1_000)
    try:
        if round is not None:
            yield from _run_round(payload, run_id, level, batches, counts, *round)
            return
        drop_caches(run_id)
        spec: TaskSpec = pickle.loads(read_payload(payload))
        install_secrets(spec.secrets)
        for frame_step, part in batches_by_step(frame_steps, batches) if frame_steps else [(None, batches)]:
            task = LevelTask(spec, run_id, level, context.partitionId(), frame_step)
            yield from task.run(part)
            if counts is not None:
                counts.add({run_id: task.element_counts})
    except Exception as error:
        raise worker_failure(error) from None
    finally:
        gc.set_threshold(*before)


def _run_round(
    payload: bytes | Artifact,
    run_id: str,
    level: int,
    batches: Iterable[Any],
    counts: Any,
    loop: str,
    of_round: bytes,
) -> Iterator[Any]:
    """Run the task of this partition in a round of a loop."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    cache = level_cache(run_id, loop, level, payload)
    install_secrets(cache.spec.secrets)
    try:
        task = RoundTask(cache, run_id, level, context.partitionId(), pickle.loads(of_round))
        yield from task.run(batches)
    except BaseException:
        drop_caches(run_id, failed=True)
        raise
    if counts is not None:
        counts.add({run_id: task.element_counts})


def end_loop(run_id: str, batches: Iterable[Any]) -> Iterator[Any]:
    """End what this worker has kept of a run's loop; returns its name and the metrics of that in a batch."""
    import pyarrow as pa

    for _ in batches:
        pass
    metrics = MetricCells()
    try:
        with collecting(metrics):
            drop_caches(run_id)
    except Exception as error:
        raise worker_failure(error) from None
    yield pa.RecordBatch.from_pydict({"worker": [worker_name()], "metrics": [dumps(metrics)]})


_tasks: Final = itertools.count(1)
_COLLECT_EVERY: Final = 64


def _exclude_from_collections() -> None:
    """Exclude the objects that exist between tasks, mostly modules, from garbage collections.

    PySpark collects garbage after each task. Scanning the modules takes 50 ms, longer than a small task. Every 64th
    task they are included, so that cycles which have become garbage are freed.
    """
    if next(_tasks) % _COLLECT_EVERY:
        gc.freeze()
    else:
        gc.unfreeze()

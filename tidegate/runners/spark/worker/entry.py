"""The function that Spark calls in its Python workers, which it makes find Tidegate before it runs the task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def task_function(
    name: str,
    paths: tuple[str, ...],
    spec: bytes | tuple[str, str],
    run_id: str,
    level: int,
    frame_steps: tuple[int, ...] = (),
    counts: Any = None,
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function for the tasks of a level. It is a nested function, so that it is pickled by value: it runs before
    Tidegate can be imported.

    `name` appears in Spark's UI. `paths` are appended to `sys.path`; one that begins with `./` is relative to the files
    that Spark sent to the workers. `counts` is an accumulator for element counts.
    """

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import os
        import sys

        for path in paths:
            if path.startswith("./"):
                from pyspark import SparkFiles

                path = os.path.join(SparkFiles.getRootDirectory(), path[2:])
            if path not in sys.path:
                sys.path.append(path)
        from tidegate.runners.spark.worker.run import run_task

        return run_task(spec, run_id, level, frame_steps, batches, counts)

    run.__name__ = name
    return run

"""What Spark calls in its Python workers. It travels by value: a worker may know nothing of Tidegate before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def entry(
    name: str,
    paths: tuple[str, ...],
    spec: bytes | tuple[str, str],
    run_id: str,
    level: int,
    feeds: tuple[int, ...] = (),
    counts: Any = None,
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function of one level's tasks. `paths` is where Tidegate is found, if not installed.

    `name` is how Spark's UI calls it; `counts` an accumulator for what has been counted. A function inside a function
    can't be imported by name: it is pickled whole. A path that begins with `./` is in a file that was sent to the
    workers.
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
        from tidegate.runners.spark.worker.task import run_task

        return run_task(spec, run_id, level, feeds, batches, counts)

    run.__name__ = name
    return run

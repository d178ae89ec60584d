"""What Spark calls in its Python workers. It travels by value: a worker may know nothing of Tidegate before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def entry(name: str, paths: tuple[str, ...], work: bytes, level: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function of one level's tasks. `paths` is where Tidegate is found, if not installed.

    `name` is how Spark's UI calls it. A function inside a function can't be imported by name: it is pickled whole.
    """

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import sys

        for path in paths:
            if path not in sys.path:
                sys.path.append(path)
        from tidegate.runners.spark.task import run_task

        return run_task(work, level, batches)

    run.__name__ = name
    return run

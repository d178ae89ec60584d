"""The functions that Spark calls in its Python workers, which they make find Tidegate before they run the task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from tidegate.runners.spark.plan.import_paths import path_appender

TaskFunction: TypeAlias = Callable[[Iterable[Any]], Iterator[Any]]


def task_function(
    name: str,
    paths: tuple[str, ...],
    spec: bytes | tuple[str, str],
    run_id: str,
    level: int,
    frame_steps: tuple[int, ...] = (),
    counts: Any = None,
    round: tuple[str, bytes] | None = None,
) -> TaskFunction:
    """The function for the tasks of a level.

    `name` appears in Spark's UI. `counts` is an accumulator for element counts. `round`: the label of the loop in whose
    body the level is, and the pickled `Round`.
    """
    told = {"payload": spec, "level": level, "frame_steps": frame_steps, "counts": counts, "round": round}
    run = _function(paths, "run_task", {"run_id": run_id, **told})
    run.__name__ = name
    return run


def end_function(paths: tuple[str, ...], run_id: str) -> TaskFunction:
    """The function for tasks that end what their worker has kept of a run's loop. They return the names of workers, and
    the metrics of that."""
    return _function(paths, "end_loop", {"run_id": run_id})


def _function(paths: tuple[str, ...], function: str, arguments: dict[str, Any]) -> TaskFunction:
    """The function that calls one of `worker.run`. It is a nested function, so that it is pickled by value: it runs
    before Tidegate can be imported, and appends `paths` to `sys.path`.
    """
    append_paths = path_appender(paths)

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        append_paths()
        from tidegate.runners.spark.worker import run as functions

        found: Iterator[Any] = getattr(functions, function)(batches=batches, **arguments)
        return found

    return run

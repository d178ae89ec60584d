"""The stateful operator that Spark runs for a level: one Spark key is a task, its state a head and a log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegate.runners.spark.plan.import_paths import path_appender

HEAD = "token string, whole long, changes long, progress binary"
LOG = "last boolean, data binary"


def level_processor(name: str, paths: tuple[str, ...], job: bytes, level: int, succeeded: Any) -> Any:
    """The `StatefulProcessor` of a level. Its class is a nested one, so that it is pickled by value: it is unpickled
    before Tidegate can be imported.

    `name` appears in Spark's UI. `paths` are appended to the workers' `sys.path`. `job` is the pickled `StreamJob`.
    `succeeded` is Spark's counter of the tasks that have succeeded; None if there is none, so no task may run twice.
    """
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    head_schema, log_schema = HEAD, LOG
    append_paths = path_appender(paths)

    class Level(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._head = handle.getValueState("head", head_schema)
            self._log = handle.getListState("log", log_schema)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            from pyspark import TaskContext

            append_paths()
            from tidegate.runners.spark.streaming.worker import run_level

            if succeeded is not None:
                succeeded.add(1)  # Spark counts it when the task has succeeded
            elif (context := TaskContext.get()) is None or context.attemptNumber():
                raise RuntimeError("a task ran again, which may give indeterminate output: the batch is discarded")
            return run_level(job, level, key[0], self._head, self._log, rows)

        def close(self) -> None:
            """Spark calls this after each batch; what lives in the process stays."""

    Level.__name__ = Level.__qualname__ = name
    return Level()

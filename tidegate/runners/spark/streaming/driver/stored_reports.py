"""Over Connect, the end of a batch: its tasks' reports, which the server stores in the checkpoint for this process.

The server stores them before Spark logs the batch as final, so the reports of each final batch are there, also if this
process was not. They are complete, and no task has run twice, or the batch fails and runs again.
"""

from __future__ import annotations

from typing import Any, Final

from tidegate.runners.spark.plan.import_paths import path_appender

SINK: Final = "tidegate_reports"
FOLDER: Final = "reports"
"""The subfolder of the checkpoint in which the reports of each batch are, in a file that has its number as its name."""
NEVER: Final = (1 << 63) - 1
"""An instant (µs) at which nothing is due ever again."""


def register_reports(spark: Any, paths: tuple[str, ...]) -> None:
    """Make the sink known to a session. Its classes are nested ones, so that they are pickled by value: the server may
    have no Tidegate.

    `paths` are appended to the workers' `sys.path`. Options of the sink: `folder`, that of the checkpoint; `tasks`, the
    number of those of all levels together.
    """
    from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

    name_of_sink, subfolder, never = SINK, FOLDER, NEVER
    append_paths = path_appender(paths)

    class Writer(DataSourceStreamWriter):
        def __init__(self, folder: str, tasks: int) -> None:
            self._folder = folder
            self._tasks = tasks

        def write(self, iterator: Any) -> WriterCommitMessage:
            append_paths()
            from tidegate.runners.spark.streaming.reports import plain_reports

            message = WriterCommitMessage()
            message.reports = plain_reports(iterator)  # type: ignore[attr-defined]
            return message

        def commit(self, messages: Any, batchId: int) -> None:
            import pickle

            reports = [report for message in messages for report in message.reports]
            if len(reports) != self._tasks or sum(each[0] for each in reports) != sum(each[1] for each in reports):
                raise RuntimeError(f"batch {batchId} was discarded: it has indeterminate output, as tasks ran twice")
            self._store(f"{subfolder}/{batchId}", pickle.dumps([data for *_, data in reports], 5))
            instants = [due for _, _, due, _ in reports if due is not None]
            self._store("due", str(min(instants, default=never)).encode())

        def _store(self, name: str, data: bytes) -> None:
            """Write a file, which appears complete under its name."""
            import os

            if not self._folder.startswith("file://"):
                import fsspec

                with fsspec.open(f"{self._folder}/{name}", "wb") as stored:
                    stored.write(data)
                return
            path = os.path.join(self._folder.removeprefix("file://"), name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(f"{path}.part", "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{path}.part", path)

    class Reports(DataSource):
        @classmethod
        def name(cls) -> str:
            return name_of_sink

        def streamWriter(self, schema: Any, overwrite: bool) -> Writer:
            return Writer(self.options["folder"], int(self.options["tasks"]))

    spark.dataSource.register(Reports)

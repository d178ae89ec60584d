"""The source of a query's batches: one row for each task, with the instant of the batch. A batch runs when it is due.

When that is, the tasks have said in the batch before; the driver notes it in a file, which the source reads at each
trigger. Spark logs the instant as the offset of the batch, so a batch that is run again has the same.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any, Final

from tidegate.runners.spark.streaming.driver.shared_folder import SharedFolder
from tidegate.runners.spark.streaming.driver.stored_reports import NEVER

SOURCE: Final = "tidegate_ticks"
SCHEMA: Final = "number int, instant long"
"""The number of a task, and the instant (µs)."""


class DueFile:
    """Notes when (µs) the next batch is due: at once, until something else is noted. It is in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = str(folder / "due")
        self.begin()

    def begin(self) -> None:
        """A batch is due at once."""
        self.note(0)

    def note(self, due: int | None) -> None:
        """Note an instant; None: there is nothing to do ever again."""
        self._noted = NEVER if due is None else due
        partial = Path(f"{self.path}.part")
        partial.write_text(str(self._noted))
        partial.replace(self.path)

    @property
    def is_now(self) -> bool:
        """Whether a batch is due now."""
        return self._noted <= time.time_ns() // 1000

    def close(self) -> None:
        """Remove the file and its folder."""
        shutil.rmtree(self._folder, ignore_errors=True)


class SharedDueFile:
    """A DueFile in the checkpoint's folder, which a server and this process reach: the server notes what is due."""

    def __init__(self, folder: SharedFolder) -> None:
        self._folder = folder
        self.path = f"{folder.path}/due"
        self.begin()

    def begin(self) -> None:
        """A batch is due at once."""
        self._noted = 0
        self._folder.write("due", b"0")

    def note(self, due: int | None) -> None:
        """Take note of what the server has noted."""
        self._noted = NEVER if due is None else due

    @property
    def is_now(self) -> bool:
        """Whether a batch is due now."""
        return self._noted <= time.time_ns() // 1000

    def close(self) -> None:
        """Remove the file."""
        self._folder.remove("due")


def register_ticks(spark: Any) -> None:
    """Make the source known to a session. Its classes are nested ones, so that they are pickled by value."""
    from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

    source_name, schema_of_rows = SOURCE, SCHEMA

    class Reader(SimpleDataSourceStreamReader):
        def __init__(self, tasks: int, due: str) -> None:
            self._tasks = tasks
            self._due = due
            self._last = time.monotonic()
            """When the last batch began, by a clock that nobody sets."""

        def initialOffset(self) -> dict[str, int]:
            return {"instant": 0}

        def read(self, start: dict[str, int]) -> tuple[Any, dict[str, int]]:
            since = time.monotonic() - self._last
            # if the machine's clock has been set back, processing time goes on at half speed
            instant = max(time.time_ns() // 1000, start["instant"] + 1 + int(since * 500_000))
            if instant < self._noted():
                return iter(()), start
            self._last += since
            end = {"instant": instant}
            return self.readBetweenOffsets(start, end), end

        def _noted(self) -> int:
            if "://" in self._due and not self._due.startswith("file://"):
                import fsspec

                return int(fsspec.filesystem(self._due.partition("://")[0]).cat_file(self._due))
            try:
                with open(self._due.removeprefix("file://")) as file:
                    return int(file.read())
            except FileNotFoundError as error:
                raise RuntimeError(
                    "Spark's driver does not reach the folder of --spark_checkpoint_dir under the path that it has for "
                    f"the process that started the run ({self._due} is missing there)"
                ) from error

        def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Any:
            return iter([(number, end["instant"]) for number in range(self._tasks)])

    class Ticks(DataSource):
        @classmethod
        def name(cls) -> str:
            return source_name

        def schema(self) -> str:
            return schema_of_rows

        def simpleStreamReader(self, schema: Any) -> Reader:
            return Reader(int(self.options["tasks"]), self.options["due"])

    spark.dataSource.register(Ticks)

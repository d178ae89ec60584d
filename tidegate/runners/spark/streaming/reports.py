"""The tasks' reports at the end of a batch, with what a server needs to know of them that has no Tidegate."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any, TypeAlias

from tidegate.runners.spark.streaming.job import TaskReport
from tidegate.runners.spark.streaming.rows import Row, messages

PlainReport: TypeAlias = tuple[int, int, int | None, bytes]
"""The checksums of the rows that a task has sent and received, when something is due there, and its pickled report."""


def plain_reports(rows: Iterable[Any]) -> list[PlainReport]:
    """The reports in the rows that Spark hands to a writer."""
    found = []
    for _, data in messages([Row._make((*each[:6], bytes(each[6]))) for each in rows]):
        report: TaskReport = pickle.loads(data)
        found.append((report.sent, report.received, report.due, data))
    return found

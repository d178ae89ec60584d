"""What the tests of native steps share: no Python process may run in Spark's JVM."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def no_workers(spark_session: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python code in Spark's JVM is an error, and no process is started for it."""
    from pyspark.sql.classic.dataframe import DataFrame

    def refused(*arguments: Any) -> None:
        raise AssertionError("a worker is used")

    monkeypatch.setattr(DataFrame, "mapInArrow", refused)
    before = processes_below(spark_session)
    yield
    assert processes_below(spark_session) <= before


def processes_below(spark: Any) -> set[int]:
    """The processes that the JVM has started, and those that these have."""
    found: set[int] = set()
    waiting = [spark._jvm.java.lang.ProcessHandle.current().pid()]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*"):  # a process belongs to the thread that started it
            with contextlib.suppress(OSError):  # it has ended
                waiting += map(int, (task / "children").read_text().split())
                found.update(waiting)
    return found

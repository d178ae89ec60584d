"""An interactive session: cells that run repeatedly, two concurrent runs, an interrupted run."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tidegate as tg
import tidegate.io
from tests.support.run_and_collect import collect
from tidegate.runners.planner import Traits, plan
from tidegate.runners.spark.driver.spark_settings import settings_lock, spark_settings
from tidegate.runners.spark.plan.options import SparkOptions
from tidegate.runners.spark.side_inputs.broadcast import SideInputBroadcaster
from tidegate.runners.spark.streaming.driver.query import _settings_of_query
from tidegate.sdk.errors import RunError

CELL = """
from dataclasses import dataclass
import tidegate as tg

@dataclass(frozen=True)
class Point:
    x: int
    {field}

    def size(self):
        return {size}

def paired(point):
    return Point(point.x % 2), point

def told(pair):
    key, points = pair
    return key.x, sorted(point.size() for point in points), isinstance(key, Point)

def steps(p):
    return {{"": p | tg.Create([Point(n) for n in range(4)]) | tg.Map(paired) | tg.GroupByKey() | tg.Map(told)}}
"""


@pytest.fixture
def cells() -> Iterator[dict[str, Any]]:
    """The names of a module that workers cannot import: its code is pickled by value."""
    module = sys.modules["cells_of_a_notebook"] = ModuleType("cells_of_a_notebook")
    yield module.__dict__
    del sys.modules["cells_of_a_notebook"]


def test_a_redefined_class_replaces_the_old_one_in_the_workers(flags: list[str], cells: dict[str, Any]) -> None:
    for field, size, sizes in [("", "self.x", [0, 1, 2, 3]), ("y: int = 7", "self.x + self.y", [7, 8, 9, 10])]:
        exec(CELL.format(field=field, size=size), cells)
        found = collect(cells["steps"], options=flags).seen[""]
        assert sorted(element.value for element in found) == [(0, sizes[::2], True), (1, sizes[1::2], True)]


def test_the_sessions_settings_are_restored_when_its_last_run_ends(spark_session: Any) -> None:
    name = "spark.sql.adaptive.enabled"
    p = tg.Pipeline()
    _ = p | tg.Create([1]) | tg.Map(print)
    planned, options = plan(p.sealed(), Traits(parallel=True, blocking=True)), SparkOptions()
    before = spark_session.conf.get(name)
    spark_session.conf.set(name, "true")
    with contextlib.ExitStack() as first:
        first.enter_context(spark_settings(spark_session, planned, options))
        with contextlib.ExitStack() as second:
            second.enter_context(spark_settings(spark_session, planned, options))
            assert spark_session.conf.get(name) == "false"
            first.close()
            assert spark_session.conf.get(name) == "false"
    assert spark_session.conf.get(name) == "true"
    spark_session.conf.set(name, before)


def test_no_run_begins_or_ends_while_a_query_starts(spark_session: Any) -> None:
    """Else it would take the query's settings for the session's own, or change them."""
    name = "spark.sql.shuffle.partitions"
    before = spark_session.conf.get(name)
    with _settings_of_query(spark_session, 7):
        assert spark_session.conf.get(name) == "7"
        assert settings_lock.locked()
    assert spark_session.conf.get(name) == before
    assert not settings_lock.locked()


def test_runs_in_two_threads_share_a_session(flags: list[str]) -> None:
    found: dict[int, Any] = {}

    def run(n: int) -> None:
        def build(p: tg.Pipeline) -> dict[str, Any]:
            sums = p | tg.Create(range(300)) | tg.Map(lambda x: (x % 3, x * n)) | tg.CombinePerKey(sum)
            total = tg.AsSingleton(sums | tg.Values() | tg.CombineGlobally(sum))
            return {"": sums | tg.Map(lambda pair, total: (pair, total), total)}

        found[n] = sorted(element.value for element in collect(build, options=flags).seen[""])

    threads = [threading.Thread(target=run, args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sums = [14850, 14950, 15050]
    assert found == {n: [((k, n * s), n * sum(sums)) for k, s in enumerate(sums)] for n in (1, 2)}


def test_ctrl_c_cancels_the_spark_job_and_leaves_no_file(flags: list[str], spark_session: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "never")

    def interrupt(x: int, driver: int, folder: str) -> str:
        if x == 99:
            os.kill(driver, signal.SIGINT)
            Path(folder, "never").read_bytes()  # nothing is ever written to it
        return str(x)

    p = tg.Pipeline(options=flags)
    elements = p | tg.Create(range(100)) | tg.Map(interrupt, os.getpid(), str(tmp_path))
    _ = elements | tg.io.WriteToText(str(tmp_path / "written" / "out"))
    with pytest.raises(KeyboardInterrupt):
        p.run()
    tracker = spark_session.sparkContext.statusTracker()
    ended = threading.Event()
    for _ in range(300):
        if not tracker.getActiveJobsIds():
            break
        ended.wait(0.1)
    assert not tracker.getActiveJobsIds()
    assert not list(tmp_path.glob("written/**/*"))


def shares(p: tg.Pipeline, code: str) -> dict[str, Any]:
    """Divide numbers by their sum; the numbers are persisted for it."""
    numbers = p | tg.Create(range(300)) | tg.Map(eval(code))
    total = tg.AsSingleton(numbers | tg.CombineGlobally(sum))
    return {"": numbers | tg.Map(lambda x, total: x / total, total)}


@pytest.mark.parametrize(
    ("code", "deterministic"), [("lambda x: x", True), ("lambda x: x + __import__('os').urandom(1)[0]", False)]
)
def test_lost_persisted_elements_are_recomputed_and_must_be_equal(
    code: str, deterministic: bool, flags: list[str], spark_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    views_of = SideInputBroadcaster.views_of

    def after_a_loss(self: SideInputBroadcaster, steps: Any) -> Any:
        spark_session.catalog.clearCache()
        return views_of(self, steps)

    monkeypatch.setattr(SideInputBroadcaster, "views_of", after_a_loss)
    if deterministic:
        found = collect(lambda p: shares(p, code), options=flags).seen[""]
        assert sum(element.value for element in found) == pytest.approx(1)
    else:
        with pytest.raises(RunError, match="some code of the pipeline is not deterministic"):
            collect(lambda p: shares(p, code), options=flags)

"""What unbounded pipelines on Spark can't have is refused by name, and `explain` shows their levels; without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tidegate as tg
from tests.support.spark.live_numbers import LiveNumbers, keyed
from tidegate.runners.spark.driver import session
from tidegate.runners.spark.plan.options import SparkOptions
from tidegate.runners.spark.runner import SparkRunner
from tidegate.runners.spark.streaming.driver.start import start
from tidegate.runners.spark.streaming.savepoint.storing import refuse_unwritable
from tidegate.sdk.errors import OptionsError, UnsupportedError
from tidegate.sdk.time import Duration


@pytest.mark.parametrize(
    ("read", "why"),
    [
        (lambda p: p | "read" >> tg.io.ReadFromSocket("localhost", 7), "sources that can't be read a second time"),
        (lambda p: p | "read" >> tg.Read(LiveNumbers(9), rate_limit=5), "with a rate limit"),
    ],
    ids=["socket", "rate limit"],
)
def test_a_source_that_cannot_be_read_in_batches_is_refused(read: Callable[[tg.Pipeline], Any], why: str) -> None:
    pipeline = tg.Pipeline(SparkRunner())
    _ = read(pipeline) | tg.Map(print)
    with pytest.raises(UnsupportedError, match=f"(?s)the spark runner does not run .*{why}.*in step 'read"):
        pipeline.run()


def test_spark_tables_in_a_stream_are_refused() -> None:
    pipeline = tg.Pipeline(SparkRunner())
    table = pipeline | "table" >> tg.io.ReadFromSpark("sales") | "to int" >> tg.Map(int)
    _ = (table, pipeline | tg.Read(LiveNumbers(9))) | tg.Flatten() | tg.Map(print)
    with pytest.raises(UnsupportedError, match=r"(?s)DataFrames and RDDs in unbounded pipelines.*in step 'table'"):
        pipeline.run()


def test_a_loop_that_feeds_back_is_refused() -> None:
    pipeline = tg.Pipeline(SparkRunner())
    numbers = pipeline | "read" >> tg.Read(LiveNumbers(9))
    _ = numbers | "loop" >> tg.Feedback(lambda x: tg.Round(x, out=x)) | tg.Map(print)
    with pytest.raises(UnsupportedError, match=r"(?s)the spark runner does not run tg.Feedback: .*in step 'loop"):
        pipeline.run()


def test_a_savepoint_folder_that_can_not_be_written_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(session, "get_session", lambda _: pytest.fail("Spark was started"))
    pipeline = tg.Pipeline(options=["--runner", "spark", "--spark_savepoint_dir", str(tmp_path / "file/savepoints")])
    _ = pipeline | tg.Read(LiveNumbers(9)) | tg.Map(print)
    with pytest.raises(OptionsError, match=r"--spark_savepoint_dir .*/file/savepoints can't be written: "):
        pipeline.run()


def test_nothing_is_left_of_the_look_at_a_savepoint_folder(tmp_path: Path) -> None:
    refuse_unwritable(str(tmp_path / "savepoints"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_trigger_interval_may_be_0_but_not_negative() -> None:
    assert SparkOptions(spark_trigger_interval=Duration(0)).spark_trigger_interval == Duration(0)
    with pytest.raises(OptionsError, match="--spark_trigger_interval can't be '-1': must not be negative"):
        tg.Pipeline(options=["--runner", "spark", "--spark_trigger_interval", "-1"]).options.view_as(SparkOptions)


def test_a_stream_without_what_its_workers_need_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = session._version
    monkeypatch.setattr(session, "_version", lambda name: "" if name == "protobuf" else installed(name))
    pipeline = tg.Pipeline(options=["--runner", "spark"])
    _ = pipeline | tg.Read(LiveNumbers(9)) | tg.Map(print)
    runner = SparkRunner()
    options: Any = pipeline.options.view_as(SparkOptions)
    classic: Any = SimpleNamespace(_jvm=None)
    with pytest.raises(UnsupportedError, match=r"protobuf is not installed: pip install 'tidegate\[spark\]'"):
        start(classic, runner.plan(pipeline.sealed(), pipeline.options), options, (), local=True)


def test_a_look_at_a_stream_leaves_its_checkpoint_alone() -> None:
    flags = [
        "--runner",
        "spark",
        "--spark_checkpoint_dir",
        "state",
        "--from_savepoint",
        "saved",
        "--spark_partitions",
        "3",
    ]
    options: Any = SparkRunner().apart(tg.Pipeline(options=flags).options)
    assert (options.spark_checkpoint_dir, options.from_savepoint, options.spark_partitions) == (None, None, 3)


def test_explain_shows_the_levels_of_a_stream(tmp_path: Path) -> None:
    pipeline = tg.Pipeline(options=["--runner", "spark", "--spark_partitions", "3"])
    followed = pipeline | "follow" >> tg.io.ReadFromText(str(tmp_path / "*.txt"), follow=True) | tg.Map(int)
    numbers = pipeline | "numbers" >> tg.Read(LiveNumbers(9))
    sums = (
        (followed, numbers)
        | tg.Flatten()
        | tg.Map(keyed)
        | tg.WindowInto(tg.FixedWindows(10))
        | "sum" >> tg.CombinePerKey(sum)
    )
    _ = sums | "print" >> tg.Map(print)
    runner = SparkRunner()
    text = runner.explain(runner.plan(pipeline.sealed(), pipeline.options), pipeline.options)
    lines = text.splitlines()
    assert lines[0] == (
        "On Spark, a stream in batches: 3 levels of 3 partitions (--spark_partitions), a batch every 1s"
    )
    levels = [line for line in lines if not line.startswith("  [")]
    assert "  · discovers the splits of 'follow/Read', in one task" in levels
    assert lines[-1].endswith("] print")
    assert [line for line in lines if line.startswith("Level")] == [f"Level {n}, a stateful operator" for n in range(3)]

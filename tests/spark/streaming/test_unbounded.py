"""Unbounded pipelines on a real Spark: the results of the direct runner, exactly once, and the author's errors."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.spark.live_numbers import LiveNumbers, build, is_hidden, lines, lines_on_direct
from tests.support.spark.stream_runs import wait_for_end, wait_until
from tidegate.sdk.errors import OptionsError, UserCodeError
from tidegate.sdk.runner import PipelineState

STREAM = ["--runner", "spark", "--spark_partitions", "2", "--spark_trigger_interval", "100ms"]


def test_a_cancelled_stream_goes_on_from_its_checkpoint_exactly_once(spark_session: Any, tmp_path: Path) -> None:
    """Windows, state and timers, in batches that begin within a window, write what they write on the direct runner."""
    checkpoint = ["--spark_checkpoint_dir", str(tmp_path / "checkpoint")]
    flags = [*STREAM, *checkpoint, "--spark_batch_elements", "60"]
    complete = lines_on_direct(tmp_path / "direct", 400)

    first = tg.Pipeline(options=flags)
    build(first, str(tmp_path / "out"), 400)
    result = first.run()
    wait_until(result, lambda: bool(lines(tmp_path / "out")), "the first line of output")
    assert result.cancel() is PipelineState.CANCELLED
    jobs = spark_session._jsc.sc().statusStore().jobsList(None)
    shown = [job.description().get() for job in map(jobs.apply, range(jobs.size())) if job.description().isDefined()]
    assert any(re.search(r"^pipeline, batch \d+: read \+ .* → sum \+ .*track", each) for each in shown), shown
    reading, grouping = result.stages()
    assert {"read", "Map(keyed)"} <= set(reading.steps)
    assert {"sum", "track", "tracked/Write"} <= set(grouping.steps)
    assert all(stage.busy > 0 and stage.idle > 0 and stage.behind is not None for stage in (reading, grouping))
    part = lines(tmp_path / "out")
    assert 0 < len(part) < len(complete)
    assert not Counter(part) - Counter(complete)

    other = tg.Pipeline(options=flags)
    _ = other | tg.Read(LiveNumbers(9)) | tg.Map(print)
    with pytest.raises(OptionsError, match="belongs to another pipeline"):
        other.run()
    rescaled = tg.Pipeline(options=[*flags, "--spark_partitions", "3"])
    build(rescaled, str(tmp_path / "out"), 400)
    with pytest.raises(OptionsError, match="run with --spark_partitions 2"):
        rescaled.run()

    again = tg.Pipeline(options=flags)
    build(again, str(tmp_path / "out"), 400)
    assert wait_for_end(again.run()) is PipelineState.DONE
    assert lines(tmp_path / "out") == complete
    assert not [path for path in (tmp_path / "out").rglob("*") if is_hidden(path.relative_to(tmp_path))]


def fails_at_7(number: int) -> float:
    return 1 / (number - 7)


def test_an_error_of_the_author_names_step_and_element(spark_session: Any, tmp_path: Path) -> None:
    pipeline = tg.Pipeline(options=STREAM)
    inverse = pipeline | tg.Read(LiveNumbers(20)) | "inverse" >> tg.Map(fails_at_7) | tg.Map(str)
    _ = inverse | tg.io.WriteToText(str(tmp_path / "out"))
    result = pipeline.run()
    with pytest.raises(UserCodeError, match="division by zero") as caught:
        wait_for_end(result)
    assert caught.value.step == "inverse"
    assert "7" in str(caught.value)
    assert result.state is PipelineState.FAILED
    assert list(tmp_path.rglob("out*")) == []


def test_a_checkpoint_folder_that_can_not_be_made_is_refused_by_its_flag(spark_session: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    pipeline = tg.Pipeline(options=[*STREAM, "--spark_checkpoint_dir", str(tmp_path / "file/state")])
    _ = pipeline | tg.Read(LiveNumbers(20)) | tg.Map(print)
    with pytest.raises(
        OptionsError, match=r"--spark_checkpoint_dir .*/file/state can't be read or written: "
    ) as caught:
        pipeline.run()
    assert "is not a directory" in str(caught.value)
    assert "\n" not in str(caught.value)


CANCELLED_IN_A_BATCH = """
import sys, time
from pathlib import Path

from pyspark.sql import SparkSession

import tidegate as tg
from tests.support.spark.live_numbers import LiveNumbers
from tests.support.spark.stream_runs import wait_until

began = Path(sys.argv[1])

def stuck(number):
    began.touch()
    time.sleep(3600)  # a call that does not return: Spark has to kill its worker

pipeline = tg.Pipeline(options=["--runner", "spark", "--spark_master", "local[1]", "--spark_partitions", "1"])
_ = pipeline | tg.Read(LiveNumbers(20)) | tg.Map(stuck)
result = pipeline.run()
wait_until(result, began.exists, "the first element")
print(result.cancel().name)
executor, = SparkSession.getActiveSession()._jsc.sc().statusTracker().getExecutorInfos()
print(executor.numRunningTasks(), "tasks are running")
"""


def test_a_stream_that_is_cancelled_within_a_batch_ends_with_its_tasks_and_without_an_error_of_spark(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", CANCELLED_IN_A_BATCH, str(tmp_path / "began")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == ["CANCELLED", "0 tasks are running"], done.stderr
    assert not re.findall(r"\w+(?:Error|Exception)\b", done.stderr)

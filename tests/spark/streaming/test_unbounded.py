"""Unbounded pipelines on a real Spark: the results of the direct runner, exactly once, and the author's errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.spark.live_numbers import LiveNumbers, build, lines
from tidegate.sdk.errors import UserCodeError
from tidegate.sdk.runner import PipelineState

STREAM = ["--runner", "spark", "--spark_partitions", "2", "--spark_trigger_interval", "100ms"]


def test_a_stream_writes_what_it_writes_on_the_direct_runner(spark_session: Any, tmp_path: Path) -> None:
    """Windows, state and timers, in batches that begin within a window."""
    results, counts = [], []
    for flags in (["--runner", "direct"], [*STREAM, "--spark_batch_elements", "110"]):
        folder = tmp_path / flags[1]
        pipeline = tg.Pipeline(options=flags)
        build(pipeline, str(folder), 400)
        result = pipeline.run()
        assert result.wait_until_finish() is PipelineState.DONE
        results.append(lines(folder))
        counts.append({m.key.step: m.value for m in result.metrics().query("elements_out", namespace="tidegate")})
        assert not [path for path in folder.rglob(".*") if path.is_file()]
    assert results[0] == results[1]
    assert counts[0] == counts[1]


def fails_at_7(number: int) -> float:
    return 1 / (number - 7)


def test_an_error_of_the_author_names_step_and_element(spark_session: Any, tmp_path: Path) -> None:
    pipeline = tg.Pipeline(options=STREAM)
    inverse = pipeline | tg.Read(LiveNumbers(20)) | "inverse" >> tg.Map(fails_at_7) | tg.Map(str)
    _ = inverse | tg.io.WriteToText(str(tmp_path / "out"))
    result = pipeline.run()
    with pytest.raises(UserCodeError, match="division by zero") as caught:
        result.wait_until_finish()
    assert caught.value.step == "inverse"
    assert "7" in str(caught.value)
    assert result.state is PipelineState.FAILED
    assert list(tmp_path.rglob("out*")) == []

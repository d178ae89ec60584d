"""The progress of a stream on Spark, from the reports of its tasks, which run here."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.support.spark.live_numbers import LiveNumbers, keyed
from tests.support.spark.micro_batches import MicroBatches
from tidegate.runners.spark.streaming.driver.level_progress import LevelProgress
from tidegate.sdk.runner import StageProgress


def test_each_level_says_how_its_tasks_spend_their_time_and_how_far_behind_they_are() -> None:
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    pairs = pipeline | "read" >> tg.Read(LiveNumbers(1000, divided=3)) | "keyed" >> tg.Map(keyed)
    _ = pairs | tg.WindowInto(tg.FixedWindows(10)) | "sum" >> tg.CombinePerKey(sum) | "text" >> tg.Map(repr)
    batches = MicroBatches(2, elements=30).batches(pipeline.sealed(), pipeline.options)
    progress = LevelProgress(batches.job)
    assert [stage.behind for stage in progress.stages(0.0)] == [None, None]
    assert not batches.batch()
    progress.add(batches._reports, 5.0, 15.0)
    first = progress.stages(now=1000.0)
    assert not batches.batch()
    progress.add(batches._reports, 40.0, 45.0)
    second = progress.stages(now=2000.0)
    assert [{"read", "keyed"} <= set(stage.steps) for stage in second] == [True, False]
    assert [{"sum", "text"} <= set(stage.steps) for stage in second] == [False, True]
    for stages, passed in ((first, 10.0), (second, 40.0)):
        assert all(stage.busy > 0 and stage.held_back == 0 for stage in stages)
        assert [stage.busy + stage.idle for stage in stages] == pytest.approx([2 * passed] * 2)
    assert [a.busy < b.busy for a, b in zip(first, second)] == [True, True]
    # one task reads two of the three splits, a batch each
    assert [watermarks(first, 1000.0), watermarks(second, 2000.0)] == [(None, None), (90, 90)]
    batches.run()
    progress.add(batches._reports, 50.0, 55.0)
    assert [stage.behind for stage in progress.stages(0.0)] == [None, None]


def watermarks(stages: list[StageProgress], now: float) -> tuple[float | None, ...]:
    """The watermarks (s) of levels; None: there is none yet."""
    return tuple(None if stage.behind is None else now - stage.behind for stage in stages)

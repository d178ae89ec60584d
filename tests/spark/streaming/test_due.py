"""When the next batch is due: as soon as a source is to be read again, or a timer fires; without, no batch runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tidegate as tg
from tests.support.spark.live_numbers import LiveNumbers
from tests.support.spark.micro_batches import Batches, MicroBatches
from tidegate.runners.spark.streaming.driver import ticks
from tidegate.sdk.time import SECOND

BEGIN = 1_700_000_000 * SECOND
LATER = tg.ProcessingTimer("later")


class Remind(tg.DoFn):
    """Sets a timer for some seconds from now."""

    def process(
        self,
        pair: tuple[str, int],
        now: tg.Timestamp = tg.DoFn.ProcessingTimeParam,
        later: tg.Timer = tg.DoFn.TimerParam(LATER),
    ) -> Iterable[str]:
        later.set(now + 7)
        return ()

    @tg.on_timer(LATER)
    def on_later(self, key: str = tg.DoFn.KeyParam) -> Iterable[str]:
        yield key


def batches_of(pipeline: tg.Pipeline, tasks: int = 2) -> Batches:
    batches = MicroBatches(tasks, elements=10).batches(pipeline.sealed(), pipeline.options)
    batches.clock = BEGIN - SECOND  # of the batch before the first
    return batches


def test_a_source_that_waits_is_read_again_when_it_has_said() -> None:
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    _ = pipeline | tg.PeriodicImpulse(60) | tg.Map(str)
    batches = batches_of(pipeline)
    batches.batch()
    assert batches.due == BEGIN + 60 * SECOND


def test_a_source_that_has_more_is_read_at_once() -> None:
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    _ = pipeline | tg.Read(LiveNumbers(1000)) | tg.Map(str)
    batches = batches_of(pipeline)
    batches.batch()
    assert batches.due is not None
    assert batches.due <= BEGIN
    batches.run()
    assert batches.due is None


def test_a_timer_of_processing_time_is_due_before_its_source() -> None:
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    pairs = pipeline | tg.PeriodicImpulse(60) | tg.Map(lambda at: ("k", 1))
    _ = pairs | tg.ParDo(Remind()) | tg.Map(str)
    batches = batches_of(pipeline)
    batches.batch()
    assert batches.due == BEGIN + 7 * SECOND


def test_a_folder_is_looked_at_again_when_it_is_time(tmp_path: Path) -> None:
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    _ = pipeline | tg.io.ReadFromText(str(tmp_path / "*"), follow=True, poll_interval=5) | tg.Map(len)
    batches = batches_of(pipeline)
    batches.batch()
    assert batches.due is not None
    assert BEGIN < batches.due <= BEGIN + 5 * SECOND


def reader(due: str, tasks: int = 2) -> Any:
    """The reader of ticks, as Spark makes it."""
    pytest.importorskip("pyspark")
    found: list[Any] = []
    ticks.register_ticks(SimpleNamespace(dataSource=SimpleNamespace(register=found.append)))
    return found[0]({"tasks": str(tasks), "due": due}).simpleStreamReader(None)


def test_there_are_no_ticks_until_a_batch_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5_000_000
    monkeypatch.setattr(ticks.time, "time_ns", lambda: now * 1000)
    monkeypatch.setattr(ticks.time, "monotonic", lambda: 100.0)
    due = ticks.DueFile(tmp_path)
    source = reader(due.path)
    start = source.initialOffset()
    rows, first = source.read(start)
    assert list(rows) == [(0, now), (1, now)]
    due.note(now + 10)
    assert not due.is_now
    rows, end = source.read(first)
    assert (list(rows), end) == ([], first)
    now += 10
    assert due.is_now
    rows, second = source.read(first)
    assert list(rows) == list(source.readBetweenOffsets(first, second)) == [(0, now), (1, now)]
    due.note(None)
    assert source.read(second)[1] == second


def test_the_instants_of_batches_go_on_though_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, elapsed = 5_000_000, 100.0
    monkeypatch.setattr(ticks.time, "time_ns", lambda: now * 1000)
    monkeypatch.setattr(ticks.time, "monotonic", lambda: elapsed)
    source = reader(ticks.DueFile(tmp_path).path)
    _, first = source.read(source.initialOffset())
    now, elapsed = 1, 102.0
    _, second = source.read(first)
    assert second == {"instant": 6_000_001}  # at half speed
    now, elapsed = 9_000_000, 102.5
    assert source.read(second)[1] == {"instant": 9_000_000}

"""Reading a split: the watermark and the metrics of its reader."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.engine.sources.source_step import source_step
from tidegate.runners.engine.sources.split_reader import ReaderProgress, SplitReader
from tidegate.runners.engine.time.clock import ManualClock
from tidegate.sdk.metrics import MetricCells, MetricKey, collecting
from tidegate.sdk.time import MIN_MICROS


class RegressingSource(tg.io.Source[int]):
    """A source whose watermark goes to 20, back to 5, and on to 30."""

    bounded = False

    def splits(self, desired: int) -> list[tg.io.Split]:
        return [tg.io.Split("all")]

    def reader(self, split: tg.io.Split, position: Any = None) -> tg.io.Reader[int]:
        return RegressingReader()


class RegressingReader(tg.io.Reader[int]):
    def __init__(self) -> None:
        self.statuses = [20, None, 5, 30]

    def read(self, limit: int) -> tg.io.Batch:
        return tg.io.Batch(tg.io.Block.of([1]), watermark=self.statuses.pop(0))

    def position(self) -> Any:
        return None


def test_the_watermark_does_not_regress_when_the_readers_does() -> None:
    pipeline = tg.Pipeline()
    _ = pipeline | tg.Read(RegressingSource())
    (node,) = pipeline.portable().nodes
    reader = SplitReader(source_step(node), tg.io.Split("all"), ManualClock())
    watermarks = []
    for _ in range(4):
        reader.poll(1)
        watermarks.append(reader.watermark)
    assert watermarks == [20, 20, 20, 30]


class TwoFiles(RegressingSource):
    """A split of two files, whose elements are their event times (µs)."""

    def reader(self, split: tg.io.Split, position: Any = None) -> tg.io.Reader[int]:
        return TwoFilesReader()


class TwoFilesReader(RegressingReader):
    def __init__(self) -> None:
        block = tg.io.Block.of
        self.batches = [
            tg.io.Batch(block([30]), holds_watermark=True),
            tg.io.Batch(block([40]), holds_watermark=True),
            tg.io.Batch(block([10])),
            tg.io.Batch(block([20])),
            tg.io.Batch(block([]), end=True),
        ]

    def read(self, limit: int) -> tg.io.Batch:
        return self.batches.pop(0)


@pytest.mark.parametrize("stops", [(), (1, 2, 3, 4)])
def test_only_the_last_file_of_a_split_advances_the_watermark_before_the_end(stops: tuple[int, ...]) -> None:
    pipeline = tg.Pipeline()
    _ = pipeline | tg.Read(TwoFiles(), timestamp=tg.Timestamp.of_micros)
    (node,) = pipeline.portable().nodes
    reader = SplitReader(source_step(node), tg.io.Split("both"), ManualClock())
    watermarks = []
    for at in range(5):
        if at in stops:
            progress = pickle.loads(pickle.dumps(reader.progress()))
            batches = reader._reader.batches  # type: ignore[attr-defined]
            reader = SplitReader(source_step(node), tg.io.Split("both"), ManualClock(), progress.position)
            reader._reader.batches = batches  # type: ignore[attr-defined]
            reader.continue_from(progress)
        reader.poll(1)
        watermarks.append(reader.watermark)
    assert watermarks == [MIN_MICROS, MIN_MICROS, 10, 20, 40]


class CountingSource(RegressingSource):
    def reader(self, split: tg.io.Split, position: Any = None) -> tg.io.Reader[int]:
        return CountingReader()


class CountingReader(RegressingReader):
    def read(self, limit: int) -> tg.io.Batch:
        tg.Metrics.counter("author", "reads").inc()
        return super().read(limit)


def test_metrics_of_a_reader_belong_to_its_step() -> None:
    pipeline = tg.Pipeline()
    _ = pipeline | "counted" >> tg.Read(CountingSource())
    (node,) = pipeline.portable().nodes
    reader = SplitReader(source_step(node), tg.io.Split("all"), ManualClock())
    with collecting(MetricCells()) as cells:
        reader.poll(1)
    assert cells.counters == {MetricKey("counted", "author", "reads"): 1}


def test_progress_that_was_stored_without_held_times_is_read() -> None:
    progress = ReaderProgress([0, None, 2], 10, 20, False, True, 0, held=30)
    older = object.__new__(ReaderProgress)
    older.__setstate__([getattr(progress, name) for name in ReaderProgress.__slots__[:6]])
    assert older == replace(progress, held=MIN_MICROS)

"""Reading a split, as it bears on the watermark."""

from __future__ import annotations

from typing import Any

import tidegate as tg
from tidegate.runners.engine.sources.source_step import source_step
from tidegate.runners.engine.sources.split_reader import SplitReader
from tidegate.runners.engine.time.clock import ManualClock
from tidegate.sdk.metrics import MetricCells, MetricKey, collecting


class Wavering(tg.io.Source[int]):
    """Its watermark goes to 20, then back to 5, and on to 30."""

    bounded = False

    def splits(self, desired: int) -> list[tg.io.Split]:
        return [tg.io.Split("all")]

    def reader(self, split: tg.io.Split, position: Any = None) -> tg.io.Reader[int]:
        return Wavers()


class Wavers(tg.io.Reader[int]):
    def __init__(self) -> None:
        self.statuses = [20, None, 5, 30]

    def read(self, limit: int) -> tg.io.Batch:
        return tg.io.Batch(tg.io.Block.of([1]), watermark=self.statuses.pop(0))

    def position(self) -> Any:
        return None


def test_a_watermark_that_a_reader_takes_back_stays_where_it_was() -> None:
    pipeline = tg.Pipeline()
    _ = pipeline | tg.Read(Wavering())
    (node,) = pipeline.portable().nodes
    reader = SplitReader(source_step(node), tg.io.Split("all"), ManualClock())
    seen = []
    for _ in range(4):
        reader.poll(1)
        seen.append(reader.watermark)
    assert seen == [20, 20, 20, 30]


class Counted(Wavering):
    def reader(self, split: tg.io.Split, position: Any = None) -> tg.io.Reader[int]:
        return Counting()


class Counting(Wavers):
    def read(self, limit: int) -> tg.io.Batch:
        tg.Metrics.counter("author", "reads").inc()
        return super().read(limit)


def test_metrics_of_a_reader_are_those_of_its_step() -> None:
    pipeline = tg.Pipeline()
    _ = pipeline | "counted" >> tg.Read(Counted())
    (node,) = pipeline.portable().nodes
    reader = SplitReader(source_step(node), tg.io.Split("all"), ManualClock())
    with collecting(MetricCells()) as cells:
        reader.poll(1)
    assert cells.counters == {MetricKey("counted", "author", "reads"): 1}

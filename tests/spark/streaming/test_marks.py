"""Watermarks between the tasks of a batch: each producer sends one for each receiver, after its elements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

import tidegate as tg
from tests.support.spark.live_numbers import LiveNumbers, keyed
from tests.support.spark.micro_batches import MicroBatches
from tidegate.runners.spark.streaming.rows import BLOCKS, STATUS, Row
from tidegate.runners.spark.streaming.task import StreamTask


def test_each_producer_sends_one_watermark_in_a_batch_after_its_elements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    pairs = pipeline | tg.Read(LiveNumbers(600, divided=3)) | tg.Map(keyed)
    sums = pairs | tg.WindowInto(tg.FixedWindows(5)) | tg.CombinePerKey(sum)
    greatest = sums | "by parity" >> tg.MapTuple(lambda key, n: (n % 2, n)) | "greatest" >> tg.CombinePerKey(max)
    _ = greatest | tg.Map(str) | tg.io.WriteToText(str(tmp_path / "out"))
    kinds: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
    run = StreamTask.run

    def recorded(task: StreamTask, rows: Iterable[Row], now: int) -> list[Row]:
        found = run(task, rows, now)
        own = {row.src for row in found} - {row.src for row in rows}
        for row in found:
            if row.src in own and row.kind in (BLOCKS, STATUS):
                kinds[now, row.src, row.edge, row.target].append(row.kind)
        return found

    monkeypatch.setattr(StreamTask, "run", recorded)
    batches = MicroBatches(3, elements=40).batches(pipeline.sealed(), pipeline.options)
    batches.run()
    assert batches.epoch > 3
    assert any(sent == [BLOCKS, STATUS] for sent in kinds.values())
    assert all(sent in ([BLOCKS, STATUS], [STATUS], [BLOCKS]) for sent in kinds.values())

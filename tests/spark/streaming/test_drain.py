"""A stream that is drained: its sources end where they are, and every window fires."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tests.support.spark.live_numbers import LiveNumbers, keyed, lines
from tests.support.spark.micro_batches import MicroBatches

ENDLESS = 1_000_000


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_drained_stream_ends_with_all_that_it_has_read(tasks: int, tmp_path: Path) -> None:
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    pairs = pipeline | tg.Read(LiveNumbers(ENDLESS, divided=2)) | tg.Map(keyed)
    sums = pairs | tg.WindowInto(tg.FixedWindows(1000)) | tg.CombinePerKey(sum)
    _ = sums | tg.Values() | tg.Map(str) | tg.io.WriteToText(str(tmp_path / "sums"))
    runner = MicroBatches(tasks, elements=100)
    batches = runner.batches(pipeline.sealed(), pipeline.options)
    assert not batches.batch()
    assert not batches.batch()
    assert lines(tmp_path) == []
    batches.drain()
    batches.run()
    read = {1: range(200), 3: range(400)}[tasks]
    assert sum(int(line.split()[1]) for line in lines(tmp_path)) == sum(read)
    assert batches.epoch == 3

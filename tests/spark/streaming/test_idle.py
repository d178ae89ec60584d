"""Idle splits in tasks that are restored before each batch: only time in which they were read counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tidegate as tg
from tests.support.spark.live_numbers import lines
from tests.support.spark.micro_batches import Batches, MicroBatches
from tidegate.sdk.connectors.sources import Batch, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import SECOND


class ScriptedReader(Reader[int]):
    """Returns the elements of one read after another, with themselves as timestamps (s), and then none."""

    def __init__(self, reads: tuple[tuple[int, ...], ...], ends: bool, done: int) -> None:
        self._reads = reads
        self._ends = ends
        self._done = done

    def read(self, limit: int) -> Batch:
        if self._done == len(self._reads):
            return Batch(Block([], []), end=self._ends, wait=0.5)
        numbers = list(self._reads[self._done])
        self._done += 1
        return Batch(Block(numbers, [n * SECOND for n in numbers]), wait=0.5)

    def position(self) -> int:
        return self._done


@dataclass(frozen=True)
class Scripted(Source[int]):
    """A split for each script."""

    scripts: tuple[tuple[tuple[int, ...], ...], ...]
    ends: bool

    @property
    def bounded(self) -> bool:
        return False

    def splits(self, desired: int) -> Iterable[Split]:
        return [Split(str(n)) for n in range(len(self.scripts))]

    def reader(self, split: Split, position: Any = None) -> Reader[int]:
        return ScriptedReader(self.scripts[int(split.id)], self.ends, position or 0)


def batches_of(source: Scripted, idle_after: int, folder: Path) -> Batches:
    """A job that writes the sum of each window of ten seconds; each batch begins with restored tasks."""
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    read = pipeline | tg.Read(source, timestamp=float, out_of_orderness=0, idle_after=idle_after)
    sums = read | tg.Map(lambda n: ("k", n)) | tg.WindowInto(tg.FixedWindows(10)) | tg.CombinePerKey(sum)
    _ = sums | tg.Values() | tg.Map(str) | tg.io.WriteToText(str(folder / "sums"))
    batches = MicroBatches(1, restores=1.0).batches(pipeline.sealed(), pipeline.options)
    batches.clock = 1_700_000_000 * SECOND
    return batches


def test_a_split_is_not_idle_because_its_task_was_restored(tmp_path: Path) -> None:
    source = Scripted((((1,), (), (100,), (), (200,)), ((2,), (), (), (), (), (), (5,))), ends=True)
    batches = batches_of(source, 60, tmp_path)
    for _ in range(4):
        assert not batches.batch()
    batches.job = replace(batches.job, query="an hour later")
    batches.clock += 3600 * SECOND
    batches.run()
    assert lines(tmp_path) == ["sums 100", "sums 200", "sums 8"]


def test_a_split_becomes_idle_though_its_task_is_restored_in_each_batch(tmp_path: Path) -> None:
    source = Scripted((((1,), (), (100,), (), (200,)), ((2,),)), ends=False)
    batches = batches_of(source, 3, tmp_path)
    fired = []
    for _ in range(8):
        batches.batch()
        fired.append(lines(tmp_path))
    assert fired[1] == []
    assert fired[-1][-1] == "sums 3"

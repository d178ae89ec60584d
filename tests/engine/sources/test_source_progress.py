"""A source that is read by one reader after another, each of which goes on exactly where the one before has stopped."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from tidegate.runners.engine.sources.source_reader import SourceProgress, SourceReader
from tidegate.runners.engine.sources.source_step import SourceStep
from tidegate.runners.engine.time.clock import ManualClock
from tidegate.sdk.connectors.sources import Batch, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import SECOND
from tidegate.sdk.user_code.frames import Where


class OneByOne(Reader[int]):
    def __init__(self, last: int, position: Any) -> None:
        self._last = last
        self._at = position or 0

    def read(self, limit: int) -> Batch:
        if self._at == self._last:
            return Batch(Block([]), idle=True, wait=5.0)
        self._at += 1
        return Batch(Block([self._at], [self._at]), watermark=self._at)

    def position(self) -> int:
        return self._at


@dataclass(frozen=True)
class Counted(Source[int]):
    """The numbers up to 2 and up to 4, in two splits that are idle from then on."""

    @property
    def bounded(self) -> bool:
        return False

    def splits(self, desired: int) -> Iterable[Split]:
        return [Split("2"), Split("4")]

    def reader(self, split: Split, position: Any = None) -> Reader[int]:
        return OneByOne(int(split.id), position)


STEP = SourceStep("counted", Where("page.py", 1), Counted(), bounded=False)


def read(reader: SourceReader, clock: ManualClock) -> list[Any]:
    """What one reader reads until nothing is due, with the statuses that follow."""
    seen: list[Any] = []
    while (due := reader.next_poll) is not None and due <= clock.monotonic():
        block = reader.poll(10)
        seen.append((None if block is None else list(block.values), reader.status))
        clock.advance(SECOND // 10)
    return seen


def test_readers_that_follow_each_other_read_what_one_reads() -> None:
    clock = ManualClock()
    alone = SourceReader(STEP, clock)
    alone.assign([(split, None) for split in STEP.splits(2)], more=False)
    expected = read(alone, clock)
    assert expected[-1][1].idle
    assert expected[-1][1].watermark == 4

    clock = ManualClock()
    reader = SourceReader(STEP, clock)
    reader.assign([(split, None) for split in STEP.splits(2)], more=False)
    seen = []
    for _ in expected:
        block = reader.poll(10)
        seen.append((None if block is None else list(block.values), reader.status))
        clock.advance(SECOND // 10)
        progress = pickle.loads(pickle.dumps(reader.progress()))
        reader.close()
        reader = SourceReader(STEP, clock)
        reader.continue_from(progress)
        assert reader.status == seen[-1][1]
    assert [values for values, _ in seen if values] == [values for values, _ in expected if values]
    watermarks = [status.watermark for _, status in seen]
    assert watermarks == sorted(watermarks)
    assert watermarks[-1] == 4


def test_a_reader_without_splits_becomes_idle_after_its_progress_was_restored() -> None:
    assigned = SourceReader(STEP, ManualClock())
    assigned.assign((), more=True, backlog=False)
    reader = SourceReader(STEP, ManualClock())
    reader.continue_from(pickle.loads(pickle.dumps(assigned.progress())))
    assert reader.next_poll == 0
    reader.poll(10)
    assert reader.status.idle
    assert reader.next_poll is None


def test_progress_that_was_stored_without_what_is_due_polls_at_once() -> None:
    progress = SourceReader(STEP, ManualClock()).progress()
    older = object.__new__(SourceProgress)
    names = [each.name for each in fields(progress)]
    older.__setstate__([getattr(progress, name) for name in names[: names.index("is_new")]])
    assert older.is_new

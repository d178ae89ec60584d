"""An unbounded source that ends: numbers in several splits, with timestamps in order, some elements at a read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tidegate as tg
from tidegate.sdk.connectors.sources import Batch, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import SECOND


class NumbersReader(Reader[int]):
    """The numbers of one split, from a position on; one number a second of event time."""

    def __init__(self, source: LiveNumbers, split: int, position: Any) -> None:
        self.source = source
        self.next = split if position is None else position

    def read(self, limit: int) -> Batch:
        return self.read_until(min(self.source.opened, self.next + limit * self.source.divided))

    def read_until(self, stop: int) -> Batch:
        """The numbers before `stop`."""
        source = self.source
        numbers = list(range(self.next, min(source.count, stop), source.divided))
        self.next += len(numbers) * source.divided
        end = self.next >= source.count
        watermark = None if end else self.next * SECOND
        wait = 0.0 if numbers else 0.05
        return Batch(Block(numbers, [n * SECOND for n in numbers]), watermark=watermark, end=end, wait=wait)

    def position(self) -> int:
        return self.next


@dataclass(frozen=True)
class LiveNumbers(Source[int]):
    """The numbers below `count`, in `divided` splits. `gate`: a file with the number to which they are there now."""

    count: int
    divided: int = 2
    gate: str = ""

    @property
    def opened(self) -> int:
        """The number before which the numbers are there now."""
        return int(Path(self.gate).read_text()) if self.gate else self.count

    @property
    def bounded(self) -> bool:
        return False

    def splits(self, desired: int) -> Iterable[Split]:
        return [Split(str(n)) for n in range(self.divided)]

    def reader(self, split: Split, position: Any = None) -> Reader[int]:
        return NumbersReader(self, int(split.id), position)


def keyed(number: int) -> tuple[str, int]:
    """One of seven keys for each number."""
    return f"k{number % 7}", number


COUNT = tg.ValueStateSpec("count")
QUIET = tg.EventTimer("quiet")


class Track(tg.DoFn):
    """Counts the elements of each key, and says so once a key has been quiet for a minute."""

    def process(
        self,
        pair: tuple[str, int],
        at: tg.Timestamp = tg.DoFn.TimestampParam,
        count: Any = tg.DoFn.StateParam(COUNT),
        quiet: Any = tg.DoFn.TimerParam(QUIET),
    ) -> Iterable[str]:
        count.write((count.read() or 0) + 1)
        quiet.set(at + 60)
        if pair[1] % 50 == 0:
            yield f"{pair[0]} at {pair[1]}"

    @tg.on_timer(QUIET)
    def on_quiet(self, key: str = tg.DoFn.KeyParam, count: Any = tg.DoFn.StateParam(COUNT)) -> Iterable[str]:
        yield f"{key} is quiet after {count.read()}"


def build(pipeline: tg.Pipeline, folder: str, count: int, gate: str = "") -> None:
    """Windows with sums, and a stateful step with timers; written to files of text."""
    pairs = pipeline | "read" >> tg.Read(LiveNumbers(count, gate=gate)) | tg.Map(keyed)
    sums = pairs | tg.WindowInto(tg.FixedWindows(20)) | "sum" >> tg.CombinePerKey(sum)
    _ = sums | "sum line" >> tg.Map(repr) | "sums" >> tg.io.WriteToText(f"{folder}/sums")
    _ = pairs | "track" >> tg.ParDo(Track()) | "tracked" >> tg.io.WriteToText(f"{folder}/tracked")


def lines_on_direct(folder: Path, count: int) -> list[str]:
    """What the direct runner writes to a folder."""
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    build(pipeline, str(folder), count)
    pipeline.run().wait_until_finish()
    return lines(folder)


def lines(folder: Path) -> list[str]:
    """The lines of all files below a folder, sorted, each with the first part of its file's name."""
    files = (path for path in folder.rglob("*") if path.is_file() and not is_hidden(path.relative_to(folder)))
    return sorted(f"{path.name.split('-')[0]} {line}" for path in files for line in path.read_text().splitlines())


def is_hidden(path: Path) -> bool:
    """Whether a file is hidden, or in a hidden folder, as output is that has not been committed."""
    return any(part.startswith(".") for part in path.parts)

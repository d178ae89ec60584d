"""SEMANTICS, sources: discovered splits, the watermarks of those found later, columns, asyncio, rate limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.growing_folder import END, GrowingFolder, add_file
from tests.support.run_and_collect import collect
from tidegate.testing import TestPipeline, assert_that, equal_to

PATIENCE = 60.0


def filled(folder: Path, files: int = 7) -> list[str]:
    """Put files and the end into the folder; their lines."""
    names = [f"file-{n}" for n in range(files)]
    for name in names:
        add_file(folder, name, [f"{name} line {n}" for n in range(5)])
    add_file(folder, END, [])
    return [f"{name} line {n}" for name in names for n in range(5)]


def test_all_splits_that_an_enumerator_finds_are_read(runner: str, tmp_path: Path) -> None:
    expected = filled(tmp_path)
    with TestPipeline(runner) as pipeline:
        lines = pipeline | tg.Read(GrowingFolder(str(tmp_path), bounded=True))
        assert_that(lines, equal_to(expected))


@pytest.mark.live
def test_an_unbounded_source_ends_with_its_enumerator_and_its_splits(stream_runner: str, tmp_path: Path) -> None:
    expected = filled(tmp_path)
    with TestPipeline(stream_runner) as pipeline:
        lines = pipeline | tg.Read(GrowingFolder(str(tmp_path)))
        assert_that(lines, equal_to(expected))


def test_an_error_of_an_enumerator_names_the_step_and_its_line(runner: str, tmp_path: Path) -> None:
    pipeline = TestPipeline(runner)
    _ = pipeline | "follow" >> tg.Read(GrowingFolder(str(tmp_path / "nowhere"), bounded=True)) | tg.Map(str)
    with pytest.raises(tg.RunError, match=r"(?s)FileNotFoundError.*in step 'follow', applied at .*test_discovery.py"):
        pipeline.run().wait_until_finish()


# -- watermarks


@dataclass(frozen=True)
class Timed(tg.io.Source[int]):
    """Numbers that are their event times (s), a file of them a split, found in two looks.

    The second look waits until the file `seen` is there. The reader of a split in `held` waits for it, too.
    """

    first: tuple[tuple[int, ...], ...]
    second: tuple[tuple[int, ...], ...]
    seen: str
    held: tuple[int, ...] = ()

    bounded = False

    def splits(self, desired: int) -> list[tg.io.Split]:
        raise AssertionError

    def enumerator(self, state: tg.io.Position = None) -> tg.io.SplitEnumerator:
        return TwoLooks(self, state or 0)

    def reader(self, split: tg.io.Split, position: tg.io.Position = None) -> tg.io.Reader[int]:
        held = self.held and split.payload == self.held
        return TimedReader(split.payload, self.seen if held else "")


class TwoLooks(tg.io.SplitEnumerator):
    def __init__(self, source: Timed, looks: int) -> None:
        self.source = source
        self.looks = looks

    def discover(self, limit: int) -> tg.io.Discovery:
        if self.looks and not Path(self.source.seen).exists():
            return tg.io.Discovery(wait=0.01)
        found = (self.source.first, self.source.second)[self.looks]
        self.looks += 1
        return tg.io.Discovery([tg.io.Split(f"{numbers}", payload=numbers) for numbers in found], 0.01, self.looks == 2)

    def state(self) -> tg.io.Position:
        return self.looks


class TimedReader(tg.io.Reader[int]):
    def __init__(self, numbers: tuple[int, ...], waits_for: str) -> None:
        self.numbers = numbers
        self.waits_for = waits_for

    def read(self, limit: int) -> tg.io.Batch:
        if self.waits_for and not Path(self.waits_for).exists():
            return tg.io.Batch(tg.io.Block.of([]), wait=0.01)
        return tg.io.Batch(
            tg.io.Block.of(self.numbers, [n * 1_000_000 for n in self.numbers]),
            watermark=max(self.numbers) * 1_000_000,
            end=True,
        )

    def position(self) -> tg.io.Position:
        return None


def counts(source: Timed, touch: Callable[[Any], Any]) -> Callable[[tg.Pipeline], dict[str, Any]]:
    """Counts the numbers in windows of 10 s; each result passes through `touch`."""

    def build(p: tg.Pipeline) -> dict[str, Any]:
        return {
            "counts": p
            | "read" >> tg.Read(source)
            | tg.Map(lambda n: ("key", n))
            | tg.WindowInto(tg.FixedWindows(10))
            | "group" >> tg.GroupByKey()
            | "count" >> tg.Map(lambda group: (group[0], len(list(group[1]))))
            | "touch" >> tg.Map(touch)
        }

    return build


def touching(path: str) -> Callable[[Any], Any]:
    """Creates the file as soon as an element comes."""

    def touch(element: Any) -> Any:
        Path(path).touch()
        return element

    return touch


@pytest.mark.live
def test_older_data_of_a_split_that_is_discovered_later_is_late_and_counted(stream_runner: str, tmp_path: Path) -> None:
    """The second look returns its split once a window has been emitted, so the watermark is beyond that window."""
    seen = str(tmp_path / "seen")
    source = Timed(first=((1, 2, 30),), second=((3, 4, 41),), seen=seen)
    found = collect(counts(source, touching(seen)), stream_runner)
    windows = sorted((seen.window.start.micros // 1_000_000, seen.value[1]) for seen in found.seen["counts"])
    assert windows == [(0, 2), (30, 1), (40, 1)]
    metrics = found.result.metrics()
    assert sum(metrics.counter(name) or 0 for name in ("dropped_late", "dropped_closed")) == 2


@pytest.mark.live
def test_the_backlog_holds_the_watermark_until_all_of_it_is_read(stream_runner: str, tmp_path: Path) -> None:
    """The split with the older numbers is read long after the other one; both were found by the first look."""
    later = str(tmp_path / "later")
    source = Timed(first=((1, 2, 30), (3, 4, 35)), second=(), seen=later, held=(3, 4, 35))

    def build(p: tg.Pipeline) -> dict[str, Any]:
        numbers = p | "read" >> tg.Read(source) | "touch" >> tg.Map(touching(later))
        windowed = numbers | tg.Map(lambda n: ("key", n)) | tg.WindowInto(tg.FixedWindows(10))
        return {"counts": windowed | "count" >> tg.CombinePerKey(tg.combiners.CountFn())}

    found = collect(build, stream_runner)
    windows = sorted((seen.window.start.micros // 1_000_000, seen.value[1]) for seen in found.seen["counts"])
    assert windows == [(0, 4), (30, 2)]


# -- asyncio, columns, rates


@dataclass(frozen=True)
class Counted(tg.io.Source[int]):
    """The numbers up to `stop` in several splits, read by asyncio; `columns`: as columns of Arrow."""

    stop: int
    columns: bool = False
    bounded: bool = True

    def splits(self, desired: int) -> list[tg.io.Split]:
        return [tg.io.Split(f"{n}", payload=(n, self.stop)) for n in range(3)]

    def reader(self, split: tg.io.Split, position: tg.io.Position = None) -> tg.io.Reader[int] | tg.io.AsyncReader[int]:
        first, stop = split.payload
        start = first if position is None else position
        return ColumnReader(start, stop) if self.columns else NapReader(start, stop)


class NapReader(tg.io.AsyncReader[int]):
    def __init__(self, at: int, stop: int) -> None:
        self.at = at
        self.stop = stop

    async def read(self, limit: int) -> tg.io.Batch:
        await asyncio.sleep(0)
        numbers = list(range(self.at, self.stop, 3))[: min(limit, 4)]
        self.at += 3 * len(numbers)
        return tg.io.Batch(tg.io.Block.of(numbers), end=self.at >= self.stop)

    def position(self) -> tg.io.Position:
        return self.at


class ColumnReader(tg.io.Reader[int]):
    def __init__(self, at: int, stop: int) -> None:
        self.at = at
        self.stop = stop

    def read(self, limit: int) -> tg.io.Batch:
        import pyarrow as pa

        numbers = list(range(self.at, self.stop, 3))[: min(limit, 4)]
        self.at += 3 * len(numbers)
        batch = pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64())})
        return tg.io.Batch(tg.io.Columns(batch, first_column), end=self.at >= self.stop)

    def position(self) -> tg.io.Position:
        return self.at


def first_column(batch: Any) -> list[Any]:
    return batch.column(0).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("columns", [False, True], ids=["asyncio", "columns"])
def test_readers_may_use_asyncio_and_return_columns(runner: str, columns: bool) -> None:
    with TestPipeline(runner) as pipeline:
        numbers = pipeline | tg.Read(Counted(50, columns), timestamp=float)
        assert_that(numbers, equal_to(range(50)))


@pytest.mark.live(micro_batches=False)
def test_an_unbounded_source_of_asyncio_readers_is_read(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        numbers = pipeline | tg.Read(Counted(50, bounded=False))
        assert_that(numbers, equal_to(range(50)))


def test_a_step_reads_no_faster_than_its_rate_limit(runner: str) -> None:
    began = time.monotonic()
    with TestPipeline(runner) as pipeline:
        numbers = pipeline | tg.Read(Counted(60), rate_limit=200)
        assert_that(numbers, equal_to(range(60)))
    assert time.monotonic() - began > 0.15


def test_a_rate_limit_that_is_no_rate_is_refused() -> None:
    for rate in (0, -1, float("inf"), float("nan")):
        with pytest.raises(tg.BuildError, match="rate_limit must be a positive number of elements per second"):
            tg.Read(Counted(5), rate_limit=rate)


def test_a_lateness_without_timestamps_is_refused() -> None:
    for options in ({}, {"ingestion_time": True}):
        with pytest.raises(tg.BuildError, match="out_of_orderness=5 says how late the times of timestamp= may be"):
            tg.Read(Counted(5), out_of_orderness=5, **options)  # type: ignore[arg-type]

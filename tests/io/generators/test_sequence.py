"""`GenerateSequence`: its numbers, splits and timing, and the resuming of its readers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tests.support.run_and_collect import collect
from tidegate.io.generators.sequence import SequenceSource
from tidegate.runners.direct import DirectRunner
from tidegate.runners.engine.time.clock import ManualClock
from tidegate.sdk.connectors.schedule import Schedule
from tidegate.sdk.connectors.sources import Reader
from tidegate.testing import PaneRecorder, TestPipeline

SECOND = 1_000_000


class Clock:
    """A manual clock for readers."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def set_on(self, reader: Reader[Any]) -> Reader[Any]:
        reader.now = lambda: self.now
        return reader


@given(st.integers(-50, 50), st.integers(0, 10_000), st.integers(1, 7))
def test_the_splits_of_a_bounded_sequence_contain_each_number_once(start: int, count: int, desired: int) -> None:
    source = SequenceSource(start, start + count, None)
    found = []
    for split in source.splits(desired):
        reader, ended = source.reader(split), False
        while not ended:
            batch = reader.read(997)
            found += batch.block.values
            ended = batch.end
    assert found == list(range(start, start + count))


@given(st.integers(-5, 5), st.integers(1, 4), st.integers(1, 5), st.integers(1, 20))
def test_the_splits_of_an_unbounded_sequence_advance_together(start: int, desired: int, limit: int, reads: int) -> None:
    source = SequenceSource(start, None, None)
    found: list[int] = []
    for split in source.splits(desired):
        reader = source.reader(split)
        for _ in range(reads):
            batch = reader.read(limit)
            assert len(batch.block) == limit
            assert not batch.end
            found += batch.block.values
    assert sorted(found) == list(range(start, start + desired * limit * reads))


@pytest.mark.parametrize(("stop", "rate"), [(12, None), (None, None), (12, 4.0), (None, 4.0)])
@pytest.mark.parametrize("stopped_after", range(13))
def test_a_reader_resumes_with_the_next_number(stop: int | None, rate: float | None, stopped_after: int) -> None:
    source, clock = SequenceSource(0, stop, rate), Clock()
    [split] = source.splits(1)
    first = clock.set_on(source.reader(split))
    found: list[int] = list(first.read(1).block.values) if stopped_after else []
    clock.now = 20 * SECOND
    if stopped_after > 1:
        found += first.read(stopped_after - 1).block.values
    position = json.loads(json.dumps(first.position()))
    second = clock.set_on(source.reader(split, position))
    while len(found) < 12:
        found += second.read(12 - len(found)).block.values
        clock.now += SECOND
    assert found == list(range(12))


def test_with_a_rate_each_number_is_emitted_when_it_is_due_and_has_that_timestamp() -> None:
    source, clock = SequenceSource(10, 14, 2.0), Clock(100 * SECOND)
    [split] = source.splits(1)
    reader = clock.set_on(source.reader(split))
    batch = reader.read(10)
    assert (list(batch.block.values), batch.block.timestamps) == ([10], [100 * SECOND])
    assert (batch.watermark, batch.wait, batch.end) == (100_500_000, 0.5, False)
    clock.now += 499_999
    batch = reader.read(10)
    assert (len(batch.block), batch.wait) == (0, 1e-6)
    clock.now += 1
    assert list(reader.read(10).block.values) == [11]
    clock.now += 60 * SECOND
    batch = reader.read(10)
    assert (list(batch.block.values), batch.end) == ([12, 13], True)
    assert batch.block.timestamps == [101 * SECOND, 101_500_000]


def test_a_reader_that_resumes_keeps_to_the_schedule_and_catches_up() -> None:
    source, clock = SequenceSource(0, None, 1.0), Clock(5 * SECOND)
    [split] = source.splits(1)
    first = clock.set_on(source.reader(split))
    first.read(10)
    clock.now += 3_700_000
    second = clock.set_on(source.reader(split, first.position()))
    batch = second.read(10)
    assert (list(batch.block.values), batch.wait) == ([1, 2, 3], 0.3)


def test_the_splits_of_a_paced_sequence_share_the_rate() -> None:
    source, clock = SequenceSource(0, None, 10.0), Clock()
    readers = [clock.set_on(source.reader(split)) for split in source.splits(4)]
    first = [list(reader.read(100).block.values) for reader in readers]
    assert first == [[0], [], [], []]
    clock.now = SECOND
    found = [n for reader in readers for n in reader.read(100).block.values]
    assert sorted(found) == list(range(1, 11))


@given(st.floats(1e-3, 1e6), st.integers(0, 1000), st.integers(-5, 10**8))
def test_due_counts_the_instants_that_are_not_after_now(rate: float, n: int, now: int) -> None:
    schedule = Schedule.of_rate(rate, start=0)
    due = schedule.due(now)
    assert due == 0 or schedule.instant(due - 1) <= now
    assert schedule.instant(due) > now
    assert schedule.instants(range(n, n + 2)) == [schedule.instant(n), schedule.instant(n + 1)]


@pytest.mark.parametrize(
    "runner", ["direct", "streaming", pytest.param("spark", marks=pytest.mark.xdist_group("spark"))]
)
def test_a_bounded_sequence_is_read_on_every_runner(runner: str) -> None:
    found = collect(lambda p: {"numbers": p | tg.io.GenerateSequence(3, 10_003)}, runner)
    assert sorted(found.values("numbers")) == list(range(3, 10_003))


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_a_paced_sequence_closes_its_windows_as_it_advances(runner: str) -> None:
    def counts(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        numbers = p | tg.io.GenerateSequence(0, 40, rate=400)
        windows = numbers | tg.WindowInto(tg.FixedWindows(0.02)) | tg.combiners.Count.Globally()
        return {"numbers": numbers, "counts": windows}

    found = collect(counts, runner)
    times = sorted(seen.micros for seen in found.seen["numbers"])
    assert len(times) == 40
    assert times[-1] - times[0] < 39 * 2500 + SECOND  # a split starts when a task first reads it
    assert sum(found.values("counts")) == 40
    assert len(found.values("counts")) >= 4


def test_timestamps_given_by_the_author_advance_the_watermark() -> None:
    pipeline = TestPipeline(runner=DirectRunner(clock=ManualClock(0)), options=["--mode", "streaming"])
    recorder = PaneRecorder()
    numbers = pipeline | tg.io.GenerateSequence(0, 10, timestamp=lambda n: 60 * n)
    _ = numbers | tg.WindowInto(tg.FixedWindows(300)) | tg.combiners.Count.Globally() | recorder
    pipeline.run()
    assert [(record.value, record.window.end) for record in recorder.records()] == [
        (5, tg.Timestamp(300)),
        (5, tg.Timestamp(600)),
    ]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((1.5,), {}, r"start must be a whole number, not 1\.5"),
        ((0, "9"), {}, "stop must be a whole number, not '9'"),
        ((True,), {}, "start must be a whole number, not True"),
        ((0,), {"rate": 0}, "rate is a number of elements per second, above 0"),
        ((0,), {"rate": 2_000_000}, "at most 1,000,000"),
        ((0,), {"rate": float("nan")}, "not nan"),
    ],
)
def test_invalid_arguments_are_refused(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(tg.BuildError, match=message):
        tg.io.GenerateSequence(*arguments, **options)

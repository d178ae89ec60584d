"""The machine's clock is set while a stream runs: delays are not affected, and processing time neither goes back nor
stands still."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tests.support.streaming.in_process_job import ONE_WORKER, InProcessJob
from tidegate.runners.direct.runner import DirectRunner
from tidegate.runners.engine.time.clock import SystemClock
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import SECOND

HOUR = 3600 * SECOND
STEPS = [pytest.param(-HOUR, id="back"), pytest.param(HOUR, id="forward")]


# -- the clock


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(-50, 50)), max_size=30))
def test_processing_time_advances_at_least_at_half_speed_and_follows_a_clock_that_is_ahead(
    intervals: list[tuple[int, int]],
) -> None:
    ticks = step = 0
    clock = SystemClock(lambda: ticks + step, lambda: ticks)
    before = clock.now()
    for passed, stepped in intervals:
        ticks, step = ticks + passed, step + stepped
        now = clock.now()
        assert now >= before
        assert now >= ticks + step
        before = now
    assert before >= ticks // 2
    ticks += 2 * max(0, before - ticks - step)
    assert clock.now() == ticks + step, "the machine's clock has caught up"


def test_processing_time_after_a_restore_does_not_go_back_behind_the_saved_one() -> None:
    ticks = 0
    clock = SystemClock(lambda: ticks, lambda: ticks)
    clock.reach(1_000)
    assert clock.now() == 1_000
    ticks = 500
    assert clock.now() == 1_250
    clock.reach(1_000)
    assert clock.now() == 1_250
    ticks = 3_000
    assert clock.now() == 3_000


# -- a stream


@dataclass(frozen=True)
class Polled(Source[Any]):
    """Emits one element per second, always with the same key."""

    @property
    def bounded(self) -> bool:
        return False

    def splits(self, desired: int) -> list[Split]:
        return [Split("all")]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _PolledReader(position or 0)


class _PolledReader(Reader[Any]):
    def __init__(self, at: int) -> None:
        self._at = at

    def read(self, limit: int) -> Batch:
        self._at += 1
        if self._at % 2:
            return Batch(Block([(0, self._at // 2)], 0))
        return Batch(Block([], 0), wait=1.0)

    def position(self) -> Position:
        return self._at


SOON = tg.ProcessingTimer("soon")
SET = tg.ValueStateSpec("set")


class RepeatsTimer(tg.DoFn):
    """Sets a timer a second ahead, and again whenever it fires; emits when it was due and when it fired."""

    def process(
        self,
        pair: Any,
        now: tg.Timestamp = tg.DoFn.ProcessingTimeParam,
        due: Any = tg.DoFn.StateParam(SET),
        soon: tg.Timer = tg.DoFn.TimerParam(SOON),
    ) -> None:
        if due.read() is None:
            self._set(now, due, soon)

    @tg.on_timer(SOON)
    def fired(
        self,
        now: tg.Timestamp = tg.DoFn.ProcessingTimeParam,
        due: Any = tg.DoFn.StateParam(SET),
        soon: tg.Timer = tg.DoFn.TimerParam(SOON),
    ) -> Iterator[tuple[int, int]]:
        yield due.read(), now.micros
        self._set(now, due, soon)

    @staticmethod
    def _set(now: tg.Timestamp, due: Any, soon: tg.Timer) -> None:
        due.write((now + 1).micros)
        soon.set(now + 1)


class WriteToFile(tg.DoFn):
    """Appends its elements to a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def process(self, element: Any) -> None:
        with open(self.path, "a") as file:
            file.write(f"{element!r}\n")


def output(path: Path) -> list[Any]:
    return [eval(line) for line in path.read_text().splitlines()] if path.exists() else []


def job_with(tmp_path: Path, *, timer: bool, interval: float = 10.0) -> InProcessJob:
    p = tg.Pipeline()
    polled = p | tg.Read(Polled())
    elements = polled | tg.ParDo(RepeatsTimer()) if timer else polled
    _ = elements | tg.Reshuffle() | tg.ParDo(WriteToFile(str(tmp_path / "output")))
    checkpoints = replace(ONE_WORKER.checkpoints, interval=interval, timeout=30.0)
    return InProcessJob(p, tmp_path, replace(ONE_WORKER, task_timeout=60.0, checkpoints=checkpoints))


@pytest.mark.parametrize("step", STEPS)
def test_waits_of_sources_and_intervals_of_checkpoints_are_not_affected_by_setting_the_clock(
    step: int, tmp_path: Path
) -> None:
    job = job_with(tmp_path, timer=False)
    job.advance(95)
    assert (len(output(tmp_path / "output")), job.completed) == (95, 9)
    job.ahead += step
    job.advance(100)
    assert (len(output(tmp_path / "output")), job.completed, job.failed) == (195, 19, [])


def test_a_processing_time_timer_neither_waits_for_a_clock_that_was_set_back_nor_fires_twice(tmp_path: Path) -> None:
    job = job_with(tmp_path, timer=True)
    job.advance(60)
    before = output(tmp_path / "output")
    job.ahead -= HOUR
    job.advance(60)
    after = output(tmp_path / "output")[len(before) :]
    assert 58 <= len(before) <= 60
    assert 28 <= len(after) <= 31, "a timer waits twice as long while the clock has yet to catch up"
    due_times = [due for due, _ in before + after]
    assert due_times == sorted(set(due_times))
    assert all(due <= now < due + SECOND for due, now in before + after)


def test_a_processing_time_timer_fires_once_when_the_clock_is_set_forward(tmp_path: Path) -> None:
    job = job_with(tmp_path, timer=True)
    job.advance(60)
    before = output(tmp_path / "output")
    job.ahead += HOUR
    job.advance(60)
    after = output(tmp_path / "output")[len(before) :]
    assert 58 <= len(after) <= 61
    late = [now - due for due, now in after if now - due > SECOND]
    assert len(late) == 1, "only the timer that was pending"
    assert late[0] > HOUR - 2 * SECOND


def test_a_processing_time_timer_fires_after_a_restore_from_a_clock_that_was_ahead(tmp_path: Path) -> None:
    job = job_with(tmp_path, timer=True, interval=1.0)
    job.ahead += HOUR
    job.advance(60)
    job.ahead -= HOUR
    job.crash()
    before = output(tmp_path / "output")
    job.advance(61)
    after = output(tmp_path / "output")[len(before) :]
    assert 28 <= len(after) <= 32
    assert after[0][0] >= before[-1][0], "processing time went back"


class SteppedClock(SystemClock):
    """A clock that is set back an hour after two seconds and forward two hours after five; waiting advances it."""

    def __init__(self) -> None:
        self.ticks = 0
        super().__init__(self.wall_time, lambda: self.ticks)

    def wall_time(self) -> int:
        steps = {2 * SECOND: -HOUR, 5 * SECOND: 2 * HOUR}
        return 10 * HOUR + self.ticks + sum(step for at, step in steps.items() if at < self.ticks)

    def wait(self, seconds: float, stop: Any) -> None:
        self.ticks += max(1, round(seconds * SECOND))


def test_the_duration_of_a_run_is_not_affected_by_setting_the_clock(tmp_path: Path) -> None:
    clock = SteppedClock()
    p = tg.Pipeline(options=["--run_for", "10"])
    _ = p | tg.Read(Polled()) | tg.ParDo(WriteToFile(str(tmp_path / "output")))
    DirectRunner(clock=clock).run(p.portable(), p.options).wait_until_finish()
    assert clock.ticks == 10 * SECOND
    assert len(output(tmp_path / "output")) == 10

"""Somebody sets the machine's clock while a stream runs: what waits for a while does so as if nothing had happened, and
processing time neither goes back nor stands still."""

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
def test_processing_time_passes_at_half_speed_at_least_and_follows_a_clock_that_is_ahead(
    turns: list[tuple[int, int]],
) -> None:
    ticks = step = 0
    clock = SystemClock(lambda: ticks + step, lambda: ticks)
    before = clock.now()
    for passed, stepped in turns:
        ticks, step = ticks + passed, step + stepped
        now = clock.now()
        assert now >= before
        assert now >= ticks + step
        before = now
    assert before >= ticks // 2
    ticks += 2 * max(0, before - ticks - step)
    assert clock.now() == ticks + step, "the machine's clock has caught up"


def test_what_goes_on_from_saved_state_has_already_seen_its_processing_time() -> None:
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
    """One element with each poll, and a second to wait after each. The key is always the same."""

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


class Looping(tg.DoFn):
    """Sets a timer a second ahead, and again whenever it fires. Gives when it was to fire, and when it did."""

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


class Noted(tg.DoFn):
    """Notes what it gets in a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def process(self, element: Any) -> None:
        with open(self.path, "a") as file:
            file.write(f"{element!r}\n")


def noted(path: Path) -> list[Any]:
    return [eval(line) for line in path.read_text().splitlines()] if path.exists() else []


def running(tmp_path: Path, *, timer: bool, interval: float = 10.0) -> InProcessJob:
    p = tg.Pipeline()
    polled = p | tg.Read(Polled())
    given = polled | tg.ParDo(Looping()) if timer else polled
    _ = given | tg.Reshuffle() | tg.ParDo(Noted(str(tmp_path / "noted")))
    checkpoints = replace(ONE_WORKER.checkpoints, interval=interval, timeout=30.0)
    return InProcessJob(p, tmp_path, replace(ONE_WORKER, task_timeout=60.0, checkpoints=checkpoints))


@pytest.mark.parametrize("step", STEPS)
def test_sources_that_wait_and_checkpoints_go_by_no_clock_that_anybody_sets(step: int, tmp_path: Path) -> None:
    alone = running(tmp_path, timer=False)
    alone.advance(95)
    assert (len(noted(tmp_path / "noted")), alone.completed) == (95, 9)
    alone.ahead += step
    alone.advance(100)
    assert (len(noted(tmp_path / "noted")), alone.completed, alone.failed) == (195, 19, [])


def test_a_timer_on_the_clock_neither_waits_for_a_clock_that_was_set_back_nor_fires_twice(tmp_path: Path) -> None:
    alone = running(tmp_path, timer=True)
    alone.advance(60)
    before = noted(tmp_path / "noted")
    alone.ahead -= HOUR
    alone.advance(60)
    after = noted(tmp_path / "noted")[len(before) :]
    assert 58 <= len(before) <= 60
    assert 28 <= len(after) <= 31, "a timer waits twice as long while the clock has yet to catch up"
    dues = [due for due, _ in before + after]
    assert dues == sorted(set(dues))
    assert all(due <= now < due + SECOND for due, now in before + after)


def test_a_timer_on_the_clock_fires_once_when_the_clock_is_set_forward(tmp_path: Path) -> None:
    alone = running(tmp_path, timer=True)
    alone.advance(60)
    before = noted(tmp_path / "noted")
    alone.ahead += HOUR
    alone.advance(60)
    after = noted(tmp_path / "noted")[len(before) :]
    assert 58 <= len(after) <= 61
    late = [now - due for due, now in after if now - due > SECOND]
    assert len(late) == 1, "the one that was waiting"
    assert late[0] > HOUR - 2 * SECOND


def test_a_timer_on_the_clock_is_not_stuck_where_its_state_was_saved_by_a_clock_that_was_ahead(tmp_path: Path) -> None:
    alone = running(tmp_path, timer=True, interval=1.0)
    alone.ahead += HOUR
    alone.advance(60)
    alone.ahead -= HOUR
    alone.crash()
    before = noted(tmp_path / "noted")
    alone.advance(61)
    after = noted(tmp_path / "noted")[len(before) :]
    assert 28 <= len(after) <= 32
    assert after[0][0] >= before[-1][0], "processing time is not before what had been seen"


class Moved(SystemClock):
    """A clock that is set back an hour after two seconds and forward two hours after five, and waits by moving on."""

    def __init__(self) -> None:
        self.ticks = 0
        super().__init__(self.shown, lambda: self.ticks)

    def shown(self) -> int:
        steps = {2 * SECOND: -HOUR, 5 * SECOND: 2 * HOUR}
        return 10 * HOUR + self.ticks + sum(step for at, step in steps.items() if at < self.ticks)

    def wait(self, seconds: float, stop: Any) -> None:
        self.ticks += max(1, round(seconds * SECOND))


def test_a_run_for_some_seconds_lasts_as_long_whatever_the_clock_shows(tmp_path: Path) -> None:
    clock = Moved()
    p = tg.Pipeline(options=["--run_for", "10"])
    _ = p | tg.Read(Polled()) | tg.ParDo(Noted(str(tmp_path / "noted")))
    DirectRunner(clock=clock).run(p.portable(), p.options).wait_until_finish()
    assert clock.ticks == 10 * SECOND
    assert len(noted(tmp_path / "noted")) == 10

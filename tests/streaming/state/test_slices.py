"""Where no process may be forked, state is copied and written in slices: neither the barrier, nor an event, nor a poll
copies much of it. The tests count how many accumulators are copied or pickled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.engine.test_rescale import answer
from tests.streaming.state.test_backend import Disk, awaited
from tests.support.operator_driver import SECOND, Clock, Elements, Watermark, context
from tidegate.runners.checkpoint.state_files import StateFile, UnpicklableState
from tidegate.runners.engine.operator import Operator
from tidegate.runners.engine.state.copy_on_write import CopyOnWrite
from tidegate.runners.streaming.state import memory
from tidegate.runners.streaming.state.backend import Capture
from tidegate.runners.streaming.state.memory import MemoryBackend
from tidegate.runners.streaming.state.uploads import DirectFileStore
from tidegate.sdk.authoring.combine import CombineFn
from tidegate.sdk.windowing.window import GLOBAL_WINDOW
from tidegate.testing.harness import step_operator

KEYS = 300
AT_ONCE, PIECE, CHUNK = 10, 4, 5
FEW = 3
"""The number of keys in a block of the second half."""
WINDOW = 10


class Counted:
    """A number that counts how often any is copied or pickled."""

    copies = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        Counted.copies += 1
        return Counted, (self.number,)


class CountedSum(CombineFn[int, Counted, int]):
    """A sum whose accumulators change in place."""

    def create_accumulator(self) -> Counted:
        return Counted(0)

    def add_input(self, accumulator: Counted, element: int) -> Counted:
        accumulator.number += element
        return accumulator

    def merge_accumulators(self, accumulators: Any) -> Counted:
        return Counted(sum(each.number for each in accumulators))

    def extract_output(self, accumulator: Counted) -> int:
        return accumulator.number


class Copies:
    """Counts the copies that are made in its context."""

    def __enter__(self) -> Copies:
        self._before = Counted.copies
        return self

    def __exit__(self, *error: object) -> None:
        self.n = Counted.copies - self._before


TOTAL = tg.CombiningStateSpec("total", CountedSum())
LATER = tg.EventTimer("later")


class Totals(tg.DoFn):
    """Sums in a state cell; the timer of a key emits the sum."""

    def process(
        self,
        element: Any,
        total: Any = tg.DoFn.StateParam(TOTAL),
        later: Any = tg.DoFn.TimerParam(LATER),
        t: Any = tg.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        total.add(element[1])
        later.set(t)
        return iter(())

    @tg.on_timer(LATER)
    def fire(self, key: Any = tg.DoFn.KeyParam, total: Any = tg.DoFn.StateParam(TOTAL)) -> Iterator[Any]:
        total.add(1)
        yield key, total.read()  # a read copies, too


def summed(windows: Any, **windowing: Any) -> Callable[[Any], Any]:
    def make(main: Any) -> Any:
        windowed = main | tg.WindowInto(windows, **windowing) | "spread" >> tg.Reshuffle()
        return windowed | "step" >> tg.CombinePerKey(CountedSum())

    return make


EARLY: dict[str, Any] = {
    "trigger": tg.AfterWatermark(early=tg.Repeatedly(tg.AfterCount(1_000)), late=tg.Repeatedly(tg.AfterCount(1))),
    "accumulation": tg.ACCUMULATING,
    "allowed_lateness": 5,
}
STEPS: dict[str, Callable[[Any], Any]] = {
    "cells and timers": lambda main: main | "step" >> tg.ParDo(Totals()),
    "windows": summed(tg.FixedWindows(WINDOW)),
    "windows with early panes": summed(tg.FixedWindows(WINDOW), **EARLY),
    "sessions": summed(tg.Sessions(WINDOW)),
    "sessions with early panes": summed(tg.Sessions(WINDOW), **EARLY),
}


def window_of(name: str, seconds: float) -> Any:
    """The window that a step's input is in."""
    if "windows" in name:
        return tg.IntervalWindow(0, WINDOW)
    return tg.IntervalWindow(seconds, seconds + WINDOW) if "sessions" in name else GLOBAL_WINDOW


class Job:
    """A step with the state of many keys, and a backend that must not fork."""

    def __init__(self, name: str, make: Callable[[Any], Any], root: Path) -> None:
        self._disk = Disk(root)
        self._name = name
        p = tg.Pipeline()
        made = make(p | "main" >> tg.Create([("a", 1)]))
        _ = made | "elsewhere" >> tg.Reshuffle() | "read" >> tg.Map(str)
        step_context = context(block_size=CHUNK)
        self.step: Operator = step_operator(p, "step", streaming=True)(step_context)
        self.step.open()
        files = DirectFileStore(self._disk, root)
        self.backend = MemoryBackend(lambda: {"step": self.step}, files, forks=False, full_every=10)

    def restore(self, files: tuple[StateFile, ...]) -> None:
        self.backend.restore([files], self._disk.read, None)

    def add(self, first: int, n: int) -> None:
        """Add one element for each of some keys; key n has the time n / 100 s."""
        elements = (
            ((f"key {k}", 1), k * SECOND // 100, (window_of(self._name, k / 100),)) for k in range(first, first + n)
        )
        answer(self.step, Elements(tuple(elements)))

    def capture(self, checkpoint: int = 1) -> Capture:
        list(self.step.finish_bundle())
        return self.backend.capture(checkpoint, f"chk-{checkpoint}", whole=False)

    def totals(self) -> list[Any]:
        """The output at the end of input."""
        return sorted(map(repr, answer(self.step, None)))


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "AT_ONCE", AT_ONCE)
    for module in ("checkpoint.state_files", "streaming.state.writers"):
        monkeypatch.setattr(f"tidegate.runners.{module}.PIECE", PIECE)
    for module in ("stateful.operator", "windowing.panes", "grouping.window_table"):
        monkeypatch.setattr(f"tidegate.runners.engine.{module}.CHUNK", CHUNK)


@pytest.fixture(params=STEPS)
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    made = Job(request.param, STEPS[request.param], tmp_path)
    answer(made.step, Clock(0))
    for first in range(0, KEYS, CHUNK):
        made.add(first, CHUNK)
    return made


def test_neither_the_barrier_nor_a_block_nor_a_poll_copies_much(job: Job) -> None:
    with Copies() as all_copies:
        with Copies() as at_the_barrier:
            capture = job.capture()
        assert at_the_barrier.n <= AT_ONCE
        files, polls = None, 0
        while files is None:
            with Copies() as at_a_block:
                job.add(polls * FEW % KEYS, FEW)
            assert at_a_block.n <= FEW
            with Copies() as at_a_poll:
                files = capture.poll()
            assert at_a_poll.n <= 4 * PIECE  # each is copied and pickled
            polls += 1
    assert all_copies.n >= 2 * KEYS
    assert polls >= KEYS // PIECE // 2


def test_a_timer_or_a_window_copies_only_the_keys_that_it_changes(job: Job) -> None:
    capture = job.capture()
    for key in range(0, 30, 10):
        with Copies() as at_a_watermark:
            answer(job.step, Watermark(key * SECOND // 100))
        assert at_a_watermark.n <= 2 * 10
    for watermark in ((WINDOW + 4) * SECOND, (2 * WINDOW + 9) * SECOND):
        list(job.step.finish_bundle())
        events = job.step.on_watermark(watermark)
        returned = True
        while returned:
            with Copies() as until_control_returns:
                returned = next(events, None) is not None
            if "Session" not in type(job.step).__name__:  # a watermark emits the sessions that end all at once
                assert until_control_returns.n <= 3 * CHUNK
    awaited(capture)


def test_nothing_is_copied_for_a_capture_that_is_written_or_abandoned(job: Job) -> None:
    abandoned = job.capture(1)
    abandoned.poll()
    abandoned.abandon()
    with Copies() as after_abandoning:
        job.add(0, KEYS)
    assert after_abandoning.n == 0
    written = job.capture(2)
    awaited(written)
    with Copies() as after_writing:
        job.add(0, KEYS)
    assert after_writing.n == 0


def test_a_capture_in_slices_has_the_state_of_its_instant(job: Job, tmp_path: Path, request: Any) -> None:
    name = request.node.callspec.params["job"]
    expected = Job(name, STEPS[name], tmp_path)
    answer(expected.step, Clock(0))
    for first in range(0, KEYS, CHUNK):
        expected.add(first, CHUNK)
    capture = job.capture()
    n, files = 0, None
    while files is None:
        job.add(KEYS - FEW * n % KEYS, FEW)
        if n == 5:
            answer(job.step, Watermark(SECOND))
        if n == 8:
            answer(job.step, Watermark((WINDOW + 1) * SECOND))
        n += 1
        files = capture.poll()
    restored = Job(name, STEPS[name], tmp_path)
    restored.restore(files)
    assert restored.totals() == expected.totals()


def test_a_block_without_keys_has_all_values_copied(tmp_path: Path) -> None:
    copies_made, table = CopyOnWrite(), {"a": [1], "b": [2]}
    with copies_made.deferred(at_once=0):
        snapshot: Any = copies_made.of_keys(table, None, list.copy)
    copies_made.copy(iter([[]]))  # a list can't be hashed
    for stored in table.values():
        stored.append(3)
    assert [dict(part.items()) for part in snapshot.cut(1)] == [{"a": [1]}, {"b": [2]}]


def test_state_that_cannot_be_pickled_is_reported_when_its_slice_is_written(tmp_path: Path) -> None:
    job = Job("cells", lambda main: main | "step" >> tg.ParDo(Keeping()), tmp_path)
    answer(job.step, Elements(tuple(((f"key {k}", k), 0, (GLOBAL_WINDOW,)) for k in range(KEYS))))
    capture = job.capture()
    with pytest.raises(UnpicklableState, match="step"):
        awaited(capture)


KEPT = tg.ValueStateSpec("kept")


class Keeping(tg.DoFn):
    """Keeps its elements in state, one of which can't be pickled."""

    def process(self, element: Any, kept: Any = tg.DoFn.StateParam(KEPT)) -> None:
        kept.write(element[1] if element[1] < KEYS - 1 else (n for n in range(3)))

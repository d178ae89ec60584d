"""Timers at the end of input: the operator may pause between two and be snapshotted, without effect on its output."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest

import tidegate as tg
from tests.engine.state.test_tiered import DictStore
from tests.support.operator_driver import Elements, Watermark, context, feed, operator, read
from tidegate.runners.engine.operator import Context, Operator
from tidegate.runners.engine.state.tiered import TieredOperator
from tidegate.sdk.metrics import ENGINE, MetricKey
from tidegate.sdk.time import MAX_MICROS, SECOND
from tidegate.sdk.windowing.window import GLOBAL_WINDOW

STEP = "step"
TICK, TOCK = tg.EventTimer("tick"), tg.ProcessingTimer("tock")
COUNT = tg.ValueStateSpec("count")


class Ticking(tg.DoFn):
    """Emits the number of ticks at each tick, and sets the next; a tock at the end sets one more tick."""

    def process(self, element: Any, tick: Any = tg.DoFn.TimerParam(TICK), tock: Any = tg.DoFn.TimerParam(TOCK)) -> None:
        tick.set(element[1])
        tock.set(1000)

    @tg.on_timer(TICK)
    def ticked(
        self,
        key: Any = tg.DoFn.KeyParam,
        timestamp: Any = tg.DoFn.TimestampParam,
        window: Any = tg.DoFn.WindowParam,
        count: Any = tg.DoFn.StateParam(COUNT),
        tick: Any = tg.DoFn.TimerParam(TICK),
    ) -> Iterator[Any]:
        count.write((count.read() or 0) + 1)
        yield key, timestamp.seconds(), count.read()
        if timestamp + 1 < window.end:
            tick.set(timestamp + 1)

    @tg.on_timer(TOCK)
    def tocked(self, key: Any = tg.DoFn.KeyParam, tick: Any = tg.DoFn.TimerParam(TICK)) -> Iterator[Any]:
        yield key, "tock"
        tick.set(5)


class Ending(Ticking):
    """Additionally has a callback for the expiration of windows."""

    @tg.on_window_expiration
    def expired(self, key: Any = tg.DoFn.KeyParam, count: Any = tg.DoFn.StateParam(COUNT)) -> Iterator[Any]:
        yield key, "expired", count.read()


class OneTick(tg.DoFn):
    """Ticks once in each window, and has a callback for its expiration."""

    def process(self, element: Any, t: Any = tg.DoFn.TimestampParam, tick: Any = tg.DoFn.TimerParam(TICK)) -> None:
        tick.set(t + 1)

    @tg.on_timer(TICK)
    def ticked(self) -> Iterator[Any]:
        yield "tick"

    @tg.on_window_expiration
    def expired(self) -> Iterator[Any]:
        yield "expired"


def make(fn: tg.DoFn, windows: Any, world: Context, *, pages: bool) -> Operator:
    def write(p: tg.Pipeline) -> Any:
        return p | tg.Create([("k", 1)]) | tg.WindowInto(windows) | STEP >> tg.ParDo(fn)

    inner: Any = operator(write, STEP, world=world)
    return TieredOperator(inner, DictStore(), 0) if pages else inner  # type: ignore[arg-type]


def output_at_the_end(
    build: Callable[[], Operator], windows: Any, *, restored: bool, clocked: bool = False
) -> list[Any]:
    """The output for some keys and the end of input; the watermark is repeated while the operator is paused. `clocked`:
    processing time advances during the pauses."""
    op = build()
    collection = "WindowInto(GlobalWindows)" if windows == tg.GlobalWindows() else "WindowInto(FixedWindows)"
    items = tuple(((key, 3 + n), SECOND, (_window(windows),)) for n, key in enumerate("abc"))
    out = [emitted for event in (Elements(items, collection), Watermark(4 * SECOND)) for emitted in feed(op, event)]
    out += [*read(op.finish_bundle()), *read(op.on_watermark(MAX_MICROS))]
    rounds = 0
    while op.paused:
        rounds += 1
        if restored:
            saved = pickle.dumps(op.snapshot())
            op = build()
            op.restore(pickle.loads(saved))
            assert op.paused
        assert op.next_clock() is None
        if clocked:
            out += [*read(op.finish_bundle()), *read(op.on_clock((2000 + rounds) * SECOND))]
            assert op.paused
        hold = op.hold()
        emitted = list(read(op.on_watermark(MAX_MICROS)))
        assert all(micros >= hold for _, _, micros, _ in emitted)
        out += emitted
    out += read(op.finish())
    assert not op.paused
    assert rounds < 1000
    return [value for _, value, _, _ in out]


def _window(windows: Any) -> Any:
    return GLOBAL_WINDOW if windows == tg.GlobalWindows() else tg.IntervalWindow(0, 10)


@pytest.mark.parametrize("clocked", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("restored", [False, True], ids=["going on", "restored"])
@pytest.mark.parametrize("pages", [False, True], ids=["in memory", "paged"])
@pytest.mark.parametrize("windows", [tg.GlobalWindows(), tg.FixedWindows(10)], ids=["global", "fixed"])
@pytest.mark.parametrize("fn", [Ticking(), Ending()], ids=["timers", "expiration"])
@pytest.mark.parametrize("pause", [(True,), (False, True), (False, False, True, True)], ids=str)
def test_pausing_between_two_timers_changes_nothing(
    fn: tg.DoFn, windows: Any, pages: bool, restored: bool, clocked: bool, pause: tuple[bool, ...]
) -> None:
    uninterrupted = context(max_end_timers=6)
    expected = output_at_the_end(lambda: make(fn, windows, uninterrupted, pages=False), windows, restored=False)
    world = context(max_end_timers=6)
    answers = cycle(pause)
    world.should_pause = lambda: next(answers)
    found = output_at_the_end(
        lambda: make(fn, windows, world, pages=pages), windows, restored=restored, clocked=clocked
    )
    for key in "abc":
        assert [value for value in found if value[0] == key] == [value for value in expected if value[0] == key]
    for name in ("dropped_timers", "keys_at_max_end_timers"):
        counter = MetricKey(STEP, ENGINE, name)
        assert world.metrics.counters.get(counter, 0) == uninterrupted.metrics.counters.get(counter, 0)
    assert len(found) == len(expected) > 12


@pytest.mark.parametrize("pages", [False, True], ids=["in memory", "paged"])
@pytest.mark.parametrize("first", ["earliest", "latest"])
def test_a_pause_holds_the_watermark_for_every_remaining_window(first: str, pages: bool) -> None:
    """The output of a paused window is never behind the output watermark, in any order of restored state."""
    world = context()
    world.should_pause = lambda: True
    windows = [tg.IntervalWindow(start, start + 10) for start in range(0, 100, 10)]
    items = [(("k", window.start.seconds() + 3), window.start.micros, (window,)) for window in windows]
    op = make(OneTick(), tg.FixedWindows(10), world, pages=pages)
    ordered = tuple(items if first == "earliest" else reversed(items))
    feed(op, Elements(ordered, "WindowInto(FixedWindows)"))
    watermark, values = 0, []
    emitted = [*read(op.finish_bundle()), *read(op.on_watermark(MAX_MICROS))]
    while True:
        assert all(micros >= watermark for _, _, micros, _ in emitted)
        values += [value for _, value, _, _ in emitted]
        if not op.paused:
            break
        watermark = max(watermark, op.hold())
        saved = pickle.dumps(op.snapshot())
        op = make(OneTick(), tg.FixedWindows(10), world, pages=pages)
        op.restore(pickle.loads(saved))
        watermark = max(watermark, op.hold())
        emitted = list(read(op.on_watermark(MAX_MICROS)))
    assert sorted(values) == ["expired"] * 10 + ["tick"] * 10


def test_control_returns_between_two_timers() -> None:
    world = context(max_end_timers=5)
    op = make(Ticking(), tg.GlobalWindows(), world, pages=False)
    for _ in feed(op, Elements(((("k", 1), SECOND, (GLOBAL_WINDOW,)),), "WindowInto(GlobalWindows)")):
        pass
    sizes = [len(block) for _, block in op.on_watermark(MAX_MICROS)]
    assert sizes.count(0) >= 6

"""Timers at the end of input: the operator can pause between two and be snapshotted, without effect on its output."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest

import tidegate as tg
from tests.engine.state.test_tiered import DictCold
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
    """Emits at each tick how many there were, and sets the next; a tock at the end sets one more tick."""

    def process(self, element: Any, tick: Any = tg.DoFn.TimerParam(TICK), tock: Any = tg.DoFn.TimerParam(TOCK)) -> None:
        tick.set(element[1])
        tock.set(1000)

    @tg.on_timer(TICK)
    def ticked(
        self,
        key: Any = tg.DoFn.KeyParam,
        at: Any = tg.DoFn.TimestampParam,
        window: Any = tg.DoFn.WindowParam,
        count: Any = tg.DoFn.StateParam(COUNT),
        tick: Any = tg.DoFn.TimerParam(TICK),
    ) -> Iterator[Any]:
        count.write((count.read() or 0) + 1)
        yield key, at.seconds(), count.read()
        if at + 1 < window.end:
            tick.set(at + 1)

    @tg.on_timer(TOCK)
    def tocked(self, key: Any = tg.DoFn.KeyParam, tick: Any = tg.DoFn.TimerParam(TICK)) -> Iterator[Any]:
        yield key, "tock"
        tick.set(5)


class Ending(Ticking):
    """The same, with a callback for each key when its window expires."""

    @tg.on_window_expiration
    def over(self, key: Any = tg.DoFn.KeyParam, count: Any = tg.DoFn.StateParam(COUNT)) -> Iterator[Any]:
        yield key, "over", count.read()


class Once(tg.DoFn):
    """One tick in each window, and a callback when it expires."""

    def process(self, element: Any, t: Any = tg.DoFn.TimestampParam, tick: Any = tg.DoFn.TimerParam(TICK)) -> None:
        tick.set(t + 1)

    @tg.on_timer(TICK)
    def ticked(self) -> Iterator[Any]:
        yield "tick"

    @tg.on_window_expiration
    def over(self) -> Iterator[Any]:
        yield "over"


def make(fn: tg.DoFn, windows: Any, world: Context, *, pages: bool) -> Operator:
    def write(p: tg.Pipeline) -> Any:
        return p | tg.Create([("k", 1)]) | tg.WindowInto(windows) | STEP >> tg.ParDo(fn)

    inner: Any = operator(write, STEP, world=world)
    return TieredOperator(inner, DictCold(), 0) if pages else inner  # type: ignore[arg-type]


def ended(build: Callable[[], Operator], windows: Any, *, restored: bool, clocked: bool = False) -> list[Any]:
    """The output for some keys and the end of input; the watermark is repeated while the operator is paused. `clocked`:
    processing time advances during the pauses."""
    op = build()
    collection = "WindowInto(GlobalWindows)" if windows == tg.GlobalWindows() else "WindowInto(FixedWindows)"
    items = tuple(((key, 3 + n), SECOND, (_window(windows),)) for n, key in enumerate("abc"))
    out = [made for event in (Elements(items, collection), Watermark(4 * SECOND)) for made in feed(op, event)]
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
        held = op.hold()
        made_now = list(read(op.on_watermark(MAX_MICROS)))
        assert all(micros >= held for _, _, micros, _ in made_now)
        out += made_now
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
    whole = context(max_end_timers=6)
    expected = ended(lambda: make(fn, windows, whole, pages=False), windows, restored=False)
    world = context(max_end_timers=6)
    asked = cycle(pause)
    world.should_pause = lambda: next(asked)
    found = ended(lambda: make(fn, windows, world, pages=pages), windows, restored=restored, clocked=clocked)
    for key in "abc":
        assert [value for value in found if value[0] == key] == [value for value in expected if value[0] == key]
    for name in ("dropped_timers", "keys_at_max_end_timers"):
        counter = MetricKey(STEP, ENGINE, name)
        assert world.metrics.counters.get(counter, 0) == whole.metrics.counters.get(counter, 0)
    assert len(found) == len(expected) > 12


@pytest.mark.parametrize("pages", [False, True], ids=["in memory", "paged"])
@pytest.mark.parametrize("first", ["earliest", "latest"])
def test_a_pause_holds_the_watermark_for_every_window_that_is_left(first: str, pages: bool) -> None:
    """The output of a paused window is never behind the output watermark, whatever the order of restored state."""
    world = context()
    world.should_pause = lambda: True
    windows = [tg.IntervalWindow(at, at + 10) for at in range(0, 100, 10)]
    items = [(("k", window.start.seconds() + 3), window.start.micros, (window,)) for window in windows]
    op = make(Once(), tg.FixedWindows(10), world, pages=pages)
    given = tuple(items if first == "earliest" else reversed(items))
    feed(op, Elements(given, "WindowInto(FixedWindows)"))
    passed_on, words = 0, []
    emitted = [*read(op.finish_bundle()), *read(op.on_watermark(MAX_MICROS))]
    while True:
        assert all(micros >= passed_on for _, _, micros, _ in emitted)
        words += [value for _, value, _, _ in emitted]
        if not op.paused:
            break
        passed_on = max(passed_on, op.hold())
        saved = pickle.dumps(op.snapshot())
        op = make(Once(), tg.FixedWindows(10), world, pages=pages)
        op.restore(pickle.loads(saved))
        passed_on = max(passed_on, op.hold())
        emitted = list(read(op.on_watermark(MAX_MICROS)))
    assert sorted(words) == ["over"] * 10 + ["tick"] * 10


def test_control_comes_back_between_two_timers() -> None:
    world = context(max_end_timers=5)
    op = make(Ticking(), tg.GlobalWindows(), world, pages=False)
    for _ in feed(op, Elements(((("k", 1), SECOND, (GLOBAL_WINDOW,)),), "WindowInto(GlobalWindows)")):
        pass
    given = [len(block) for _, block in op.on_watermark(MAX_MICROS)]
    assert given.count(0) >= 6

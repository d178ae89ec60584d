"""Stateful functions whose text stands in the loop, with the operations of their cells: only speed can show it."""

from __future__ import annotations

import pickle
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import DEFAULT, patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tests.support.operator_driver import SECOND, Clock, Elements, Event, Watermark, context, operator, run
from tidegate.runners.engine.loops.inlining import INLINED
from tidegate.runners.engine.state.cells import ValueCell
from tidegate.sdk.errors import TidegateError
from tidegate.sdk.metrics import collecting
from tidegate.sdk.windowing.assignment import assign_windows
from tidegate.sdk.windowing.window import GLOBAL_WINDOW

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
MOST = tg.ValueStateSpec("most")
LAST = tg.ValueStateSpec("last")
SHORT = tg.ValueStateSpec("short", ttl=5)
BAG = tg.BagStateSpec("bag")
TOTAL = tg.CombiningStateSpec("total", sum)
ALARM = tg.EventTimer("alarm")
STEP = "step"
Most = tg.DoFn.StateParam(MOST)
Last = tg.DoFn.StateParam(LAST)
LIMIT = 4


class Greatest(tg.DoFn):
    """The running maximum."""

    def process(self, pair: Any, most: Any = Most) -> Any:
        key, value = pair
        known = most.read()
        if known is None or value > known:
            most.write(value)
            known = value
        return (key, known)


class OneItem(tg.DoFn):
    def process(self, pair: Any, most: Any = Most) -> Any:
        known = most.read(0)
        most.write(known + pair[1])
        return [(pair, known)]


class Defaults(tg.DoFn):
    """Reads with defaults, by position and by name, and in other places than assignments."""

    def process(self, pair: Any, most: Any = Most, last: Any = Last) -> Any:
        nothing = -1
        if last.read(default=nothing) == -1 or most.read(None) is None:
            last.write(pair[1])
        else:
            last.clear()
        most.write((most.read() or 0) + 1)
        return [most.read(), last.read(nothing), len([most.read(0)] * 2)]


class Clears(tg.DoFn):
    def process(self, pair: Any, most: Any = Most) -> Any:
        if pair[1] % 3 == 0:
            most.clear()
            most.clear()
        elif pair[1] % 3 == 1:
            most.write(pair[1])
            most.clear()
            most.write([pair[1]])
        return [most.read("nothing")]


class Yields(tg.DoFn):
    """What follows downstream runs between the operations."""

    def process(self, pair: Any, most: Any = Most) -> Iterator[Any]:
        for n in range(pair[1] % 4):
            most.write(most.read(0) + n)
            yield pair[0], most.read()
        most.write(-most.read(LIMIT))


class Bags(tg.DoFn):
    def process(self, pair: Any, bag: Any = tg.DoFn.StateParam(BAG)) -> Any:
        bag.add(pair[1])
        if len(bag.read()) > 2:
            seen = bag.read()
            bag.clear()
            return [seen, bag.read()]
        return None


class Fails(tg.DoFn):
    def process(self, pair: Any, most: Any = Most) -> Any:
        most.write(pair[1])
        most.write(10 // (pair[1] - 5))
        return [most.read()]


class FailsAtFirst(tg.DoFn):
    def process(self, pair: Any, most: Any = Most) -> Any:
        most.write(10 // (most.read(5) - pair[1]))
        return [most.read() // (pair[1] - 2)]


class PassesOn(tg.DoFn):
    """The cell gets into other hands: it must be one."""

    def process(self, pair: Any, most: Any = Most, last: Any = Last) -> Any:
        self.bump(most)
        last.write(most.read())
        return [last.read()]

    def bump(self, cell: Any) -> None:
        cell.write(cell.read(0) + 1)


class TwoNames(tg.DoFn):
    """Two parameters are the same cell, and only one of them gets into other hands."""

    def process(self, pair: Any, most: Any = Most, same: Any = Most) -> Any:
        most.write(most.read(0) + pair[1])
        return [(pair[0], self.peek(same), most.read())]

    def peek(self, cell: Any) -> Any:
        return cell.read()


class InComprehension(tg.DoFn):
    def process(self, pair: Any, most: Any = Most) -> Any:
        made = [most.read(0) + n for n in range(2)]
        most.write(made[1])
        return made


class UsesResults(tg.DoFn):
    def process(self, pair: Any, most: Any = Most) -> Any:
        before = most.write(pair[1])
        read = most.read
        return [(before, read())]


class Several(tg.DoFn):
    """Cells of all kinds beside each other, and all that a step may ask for."""

    def process(
        self,
        pair: Any,
        most: Any = Most,
        short: Any = tg.DoFn.StateParam(SHORT),
        total: Any = tg.DoFn.StateParam(TOTAL),
        key: Any = tg.DoFn.KeyParam,
        t: Any = tg.DoFn.TimestampParam,
        window: Any = tg.DoFn.WindowParam,
    ) -> Any:
        most.write(most.read(0) + 1)
        short.write(most.read())
        total.add(pair[1])
        return [(key, float(t), str(window), most.read(), short.read(), total.read())]


class Stamps(tg.DoFn):
    def process(self, pair: Any, most: Any = Most) -> Iterator[Any]:
        most.write(most.read(0) + 1)
        yield tg.TimestampedValue((pair, most.read()), pair[1] + 1)


class MaybeStamps(tg.DoFn):
    def process(self, pair: Any, most: Any = Most) -> Any:
        most.write(most.read(0) + 1)
        return [tg.TimestampedValue(most.read(), pair[1] + 1) if pair[1] % 2 else most.read()]


class Timed(tg.DoFn):
    """The callback uses the cell, too, and a timer for the past fires before the next element."""

    def process(self, pair: Any, most: Any = Most, alarm: Any = tg.DoFn.TimerParam(ALARM)) -> Any:
        most.write(most.read(0) + pair[1])
        if pair[1] % 3 == 0:
            alarm.set(pair[1] % 5)
        return None if pair[1] % 2 else [most.read()]

    @tg.on_timer(ALARM)
    def ring(self, key: Any = tg.DoFn.KeyParam, most: Any = Most) -> Iterator[Any]:
        yield key, "rings", most.read()
        most.clear()


class Keeps(tg.DoFn):
    """The callback keeps the cell, by which `process` could see that it is not pointed at the key."""

    kept: Any = None

    def process(self, pair: Any, most: Any = Most, alarm: Any = tg.DoFn.TimerParam(ALARM)) -> Any:
        most.write(pair[1])
        alarm.set(0)
        return [self.kept is not None and self.kept.read()]

    @tg.on_timer(ALARM)
    def ring(self, most: Any = Most) -> None:
        self.kept = most


class Expires(tg.DoFn):
    def process(self, pair: Any, most: Any = Most) -> Any:
        most.write(most.read(0) + 1)

    @tg.on_window_expiration
    def last(self, key: Any = tg.DoFn.KeyParam, most: Any = Most) -> Iterator[Any]:
        yield key, most.read()


def counting(pair: Any, most: Any = Most) -> Any:
    most.write(most.read(0) + 1)
    return pair, most.read()


def first_of_key(pair: Any, most: Any = Most) -> bool:
    seen = most.read(False)
    most.write(True)
    return not seen


STEPS: dict[str, Callable[[], Any]] = {
    **{fn.__name__: lambda fn=fn: tg.ParDo(fn()) for fn in (  # type: ignore[misc]
        Greatest, OneItem, Defaults, Clears, Yields, Bags, Fails, FailsAtFirst, PassesOn, TwoNames, InComprehension,
        UsesResults, Several, Stamps, MaybeStamps, Timed, Keeps, Expires,
    )},
    "a function": lambda: tg.Map(counting),
    "a filter": lambda: tg.Filter(first_of_key),
    "dead letters": lambda: tg.ParDo(FailsAtFirst()).with_exception_handling(),
}  # fmt: skip
WINDOWS: dict[str, Any] = {
    "global": tg.GlobalWindows(),
    "fixed": tg.FixedWindows(4),
    "sliding": tg.SlidingWindows(4, 2),
}
VALUES = [("a", 1), ("b", 2), ("a", 3), ("a", 3), ("c", 0), ("b", 7), ("a", 6), ("c", 5), ("b", 2), ("c", 8)]


def shown(
    inline: str,
    step: Callable[[], Any],
    windows: Any,
    pairs: list[tuple[Any, int]],
    *,
    checks: str = "off",
    cut: int = 4,
) -> tuple[tuple[Any, ...], int]:
    """What a step emits for pairs, with its failure, metrics and state; and how many elements it was inlined for."""

    def make(p: tg.Pipeline) -> Any:
        made = p | tg.Create([("k", 1)]) | tg.WindowInto(windows) | STEP >> step()
        return made[0] if isinstance(made, tuple) else made

    world = context(checks=checks if checks == "all" else None)
    world.inline = inline  # type: ignore[assignment]
    made = operator(make, STEP, world=world)
    assign = assign_windows(windows)
    events: list[Event] = [Clock(0)]
    for n in range(0, len(pairs), 5):
        items = [(pair, at * SECOND, assign(at * SECOND)) for at, pair in enumerate(pairs[n : n + 5], n)]
        events += [Elements(tuple(items)), Clock((n + 3) * SECOND), Watermark(max(0, n - 1) * SECOND)]
    out: list[Any] = []
    failure: list[str] = []
    touched: list[Any] = []
    for event in events:
        try:
            with collecting(world.metrics):
                out += run(made, [event], cut=cut, end=False)
        except TidegateError as error:
            failure += [str(error), *traceback.format_exception(error.__cause__)]
        changed = made.touched()  # type: ignore[attr-defined]
        touched.append(changed if changed is None else sorted({str(key) for keys in changed for key in keys}))
    state = pickle.dumps(made.snapshot().tables)
    out += run(made, [])
    counters = {key: n for key, n in world.metrics.counters.items() if key.name != INLINED}
    inlined = sum(n for key, n in world.metrics.counters.items() if key.name == INLINED)
    made.close()
    failure = [ADDRESS.sub("", line) for line in failure]
    return (out, failure, counters, touched, state), inlined


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("name", STEPS)
def test_an_inlined_stateful_function_is_the_function(name: str, windows: str) -> None:
    called, none = shown("off", STEPS[name], WINDOWS[windows], VALUES)
    inlined, some = shown("on", STEPS[name], WINDOWS[windows], VALUES)
    assert inlined == called
    assert none == 0 < some


@pytest.mark.parametrize("name", STEPS)
def test_a_stateful_function_inlined_in_checked_loops_is_the_function(name: str) -> None:
    called, none = shown("off", STEPS[name], WINDOWS["fixed"], VALUES, checks="all")
    inlined, some = shown("always", STEPS[name], WINDOWS["fixed"], VALUES, checks="all")
    assert inlined == called
    assert none == 0 < some


@given(
    st.sampled_from(sorted(STEPS)),
    st.sampled_from(sorted(WINDOWS)),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 9)), max_size=25),
    st.integers(1, 9),
)
def test_random_pairs_do_the_same_called_and_inlined(
    name: str, windows: str, pairs: list[tuple[Any, int]], cut: int
) -> None:
    called, _ = shown("off", STEPS[name], WINDOWS[windows], pairs, cut=cut)
    assert shown("on", STEPS[name], WINDOWS[windows], pairs, cut=cut)[0] == called


class Remembers(tg.DoFn):
    """Changes the value that it has read in place."""

    def process(self, pair: Any, most: Any = Most) -> Any:
        seen = most.read()
        if seen is None:
            most.write([pair[1]])
        else:
            seen.append(pair[1])
        return [pair[1]]


def test_a_change_of_a_value_that_was_read_is_found_in_inlined_functions() -> None:
    (_, failure, *_), _ = shown("always", lambda: tg.ParDo(Remembers()), WINDOWS["global"], VALUES, checks="all")
    assert "a value read from the state cell 'most' was" in failure[0]


def test_a_post_mortem_finds_the_value_of_the_cell() -> None:
    world = context()
    world.inline = "on"
    made = operator(lambda p: p | tg.Create([("k", 1)]) | STEP >> tg.ParDo(Fails()), STEP, world=world)
    with pytest.raises(TidegateError) as caught:
        run(made, [Elements((((("a", 5), 0, (GLOBAL_WINDOW,))),))])
    trace = caught.value.__cause__.__traceback__ if caught.value.__cause__ is not None else None
    while trace is not None and trace.tb_frame.f_code.co_name != "process":
        trace = trace.tb_next
    assert trace is not None
    assert trace.tb_frame.f_locals["most"].read() == 5
    assert trace.tb_frame.f_locals["pair"] == ("a", 5)


def test_the_cell_of_an_inlined_function_is_not_called() -> None:
    with patch.multiple(ValueCell, read=DEFAULT, write=DEFAULT) as methods:
        shown("on", STEPS["Greatest"], WINDOWS["global"], VALUES)
        assert [each.call_count for each in methods.values()] == [0, 0]
        shown("off", STEPS["Greatest"], WINDOWS["global"], VALUES[:1])
        assert methods["read"].call_count == 1

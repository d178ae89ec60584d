"""The names of a loop's own variables, which no variable of a comprehension in an inlined body may have."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tidegate as tg
from tests.engine.loops.inlined_steps import author, reason
from tests.support.run_and_collect import collect
from tidegate.runners.engine.loops import loop_tree
from tidegate.runners.engine.loops.form import GLOBALS, PlacedBody

LIMIT = 3
VALUE = tg.ValueStateSpec("value")
TOTAL = tg.CombiningStateSpec("total", sum)
ALARM = tg.EventTimer("alarm")


class Timed(tg.DoFn):
    """Uses cells as they are and by their tables."""

    def process(
        self,
        pair: Any,
        value: Any = tg.DoFn.StateParam(VALUE),
        total: Any = tg.DoFn.StateParam(TOTAL),
        alarm: Any = tg.DoFn.TimerParam(ALARM),
        key: Any = tg.DoFn.KeyParam,
    ) -> Any:
        value.write(pair[1])
        total.add(1)
        return [(key, alarm is not None, total is not None)]

    @tg.on_timer(ALARM)
    def ring(self) -> None:
        pass


def every_parameter(p: Any) -> None:
    """Steps whose functions read values of all kinds that loops give to them."""
    elements = p | "elements" >> tg.Create([1, 2, 3])
    side = tg.AsList(p | "side" >> tg.Create([1]))

    def passed(
        x: Any,
        side: Any,
        const: Any,
        default: Any = 2,
        at: Any = tg.DoFn.TimestampParam,
        window: Any = tg.DoFn.WindowParam,
        pane: Any = tg.DoFn.PaneInfoParam,
        clock: Any = tg.DoFn.ProcessingTimeParam,
    ) -> Any:
        const = local = (const, LIMIT, side, at, window, pane, clock, default)
        return x, local, const, any(y for y in [x]), elements_of

    def rounds(numbers: Any) -> Any:
        return numbers | "round" >> tg.Map(lambda n, r=tg.DoFn.RoundParam: n + r)

    elements_of = 3
    of_another_module = author("n = 1\nfn = lambda x: (x, n, len)")["fn"]
    _ = elements | "all" >> tg.Map(passed, side, 5) | "other" >> tg.Map(of_another_module)
    _ = elements | "rounds" >> tg.Iterate(rounds, rounds=2)
    pairs = elements | "pairs" >> tg.FlatMap(lambda x: ((y, x) for y in [x]))
    pairs = pairs | "swap" >> tg.MapTuple(lambda a, b: (b, a))
    _ = pairs | "call" >> tg.MapValues(lambda x: x + LIMIT + elements_of) | "kept" >> tg.Filter(lambda x: x[0] > 0)
    _ = pairs | "group" >> tg.CombinePerKey(tg.associative(lambda a, x: a + x + LIMIT))
    _ = pairs | "state" >> tg.ParDo(Timed())
    _ = elements | "stamp" >> tg.Map(lambda x: tg.TimestampedValue(x, x))


def names_given(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The variables that loops give to what bodies read, and the names that stand for bodies."""
    found: set[str] = set()
    copied = loop_tree._copied

    def noting(placed: PlacedBody) -> Any:
        names = [each if each.startswith(GLOBALS) else each.partition(".")[0] for each in placed.names.values()]
        found.update([placed.name, *names])
        return copied(placed)

    monkeypatch.setattr(loop_tree, "_copied", noting)
    loop_tree._codes.clear()
    for checks in ("off", "all"):
        with tg.Pipeline("direct", {"inline": "always", "checks": checks}) as p:
            every_parameter(p)
    return found


def test_no_variable_of_a_comprehension_has_a_name_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    found = names_given(monkeypatch)
    kinds = {re.sub(r"\d+", "N", name).partition("N_")[0] for name in found}
    assert kinds >= {"a", "c", "cell", "d", "g", "h", "l", "bodyN", "roundN", "vN", "wN", "kN", "iter", "pane"}
    assert kinds >= {"moduleN", "watched_N", "timer_N", "cell_N", "entry_N", "Entry"}
    others = {name for name in found if name.startswith(GLOBALS)}  # which no variable can have
    for name in found - others - {"x"}:  # an input that is added, of which a comprehension's `x` gets another name
        fn = author(f"fn = lambda y, z=1: [z for {name} in y]")["fn"]
        assert reason(fn) == f"the loop has a variable {name!r} of its own"


def test_a_comprehension_may_have_a_variable_of_the_name_of_the_round() -> None:
    def write(p: Any) -> Any:
        def body(numbers: Any) -> Any:
            return numbers | tg.Map(lambda n, r=tg.DoFn.RoundParam: n + sum([r for round0 in [50, 60]]))

        return p | tg.Iterate(body, rounds=3)

    found = [
        collect(lambda p: {"all": write(p | tg.Create([1]))}, "direct", {"inline": inline, "checks": "off"})
        for inline in ("off", "always")
    ]
    assert found[0].values("all") == found[1].values("all") == [13]

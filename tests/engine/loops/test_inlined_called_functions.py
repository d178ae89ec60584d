"""Functions that a function of the library calls, such as that of MapValues: their text stands in the loop, too.

Functions that the author's functions call stay calls, since tracebacks show those of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tests.engine.loops.inlined_steps import author, compare, operator, ran
from tidegate.runners.engine.elementwise.codegen import generate
from tidegate.runners.engine.elementwise.shape import Shape
from tidegate.runners.engine.loops.inlining import Inlining
from tidegate.runners.engine.loops.loop_tree import printed

LIMIT = 3
PAIRS = [("a", 1), ("b", 0), ("a", 5), 7, ("c", "text"), ["d", 4], ("e", None), ("f", [2])]


def scaled(n: Any) -> Any:
    return lambda v: [n * v, len(str(v)), [n + w for w in range(v)]]


def statements(v: Any) -> Any:
    made = v + 1
    return made * LIMIT


def halves(v: Any) -> Any:
    yield 10 / v
    yield 20 / v


def twice(x: Any, fn: Any) -> Any:
    return fn(x), fn(x)


def in_comprehension(x: Any, fn: Any) -> Any:
    return [fn(x) for x in (x, 1)]


def once(x: Any, by: Any, fn: Any) -> Any:
    v = by
    shown = fn(x)
    return v, shown, len(str(shown))


LENGTH = author("len = lambda x: 42\nlength = lambda v: (len(v), [len for len in (v, v)])")["length"]

STEPS: dict[str, Callable[[], Any]] = {
    "map values": lambda: tg.MapValues(lambda v: 10 / v),
    "map values with names": lambda: tg.MapValues(scaled(2)),
    "map values with a name that the library has, too": lambda: tg.MapValues(LENGTH),
    "map values with a method": lambda: tg.MapValues(lambda value: value.upper()),
    "map values with statements": lambda: tg.MapValues(statements),
    "with keys": lambda: tg.WithKeys(lambda x: x[1] // (x[1] - 5)),
    "flat map values": lambda: tg.FlatMapValues(lambda v: [v, v + 1] if v else None),
    "flat map values of a generator": lambda: tg.FlatMapValues(halves),
    "a builtin": lambda: tg.MapValues(str),
    "of the author's": lambda: tg.Map(once, 1, lambda x: (x, 12 // x[1])),
    "called twice": lambda: tg.Map(twice, lambda x: 10 / x[1]),
    "called in a comprehension": lambda: tg.Map(in_comprehension, lambda x: x),
    "stop": lambda: tg.MapValues(lambda v: next(iter(v))),
}


def step(name: str) -> Any:
    return STEPS[name]().with_input_types(Any)


@pytest.mark.parametrize("follow", [False, True], ids=["last", "followed"])
@pytest.mark.parametrize("name", STEPS)
def test_a_function_that_an_inlined_one_calls_does_what_a_call_does(name: str, follow: bool) -> None:
    def write(p: Any) -> Any:
        made = p | "step" >> step(name)
        return made | "next" >> tg.Map(lambda x: [x]) if follow else made

    compare(write, *([pair] for pair in PAIRS), PAIRS, [("a", 2), ("b", 3)])


@pytest.mark.parametrize("name", STEPS)
def test_its_dead_letters_are_those_of_a_call(name: str) -> None:
    def write(p: Any) -> Any:
        return (p | "step" >> step(name).with_exception_handling())[0]

    compare(write, PAIRS)


@pytest.mark.parametrize("name", STEPS)
def test_in_checked_loops_it_does_what_a_call_does(name: str) -> None:
    called, inlined = (
        ran(lambda p: p | "step" >> step(name), how, PAIRS[:3], checks="all") for how in ("off", "always")
    )
    assert inlined.outcome == called.outcome
    assert called.inlined == 0 < inlined.inlined


@pytest.mark.parametrize("name", ["map values", "with keys"])
def test_the_loop_has_its_expression(name: str) -> None:
    made, _ = operator(lambda p: p | "step" >> step(name), "on")
    links: Any = made.links  # type: ignore[attr-defined]
    bodies = Inlining(links).bodies
    text = printed(generate(links, Shape(inlined=frozenset(bodies)), None, bodies))
    assert " / " in text or " // " in text


def test_a_global_of_it_that_is_not_set_is_a_name_error() -> None:
    fn = author("fn = lambda v: missing + v")["fn"]
    called, inlined = (
        ran(lambda p: p | tg.MapValues(fn).with_input_types(Any), how, [("a", 1)]) for how in ("off", "on")
    )
    assert inlined.outcome == called.outcome
    assert inlined.outcome.failure[1].startswith("NameError: name 'missing' is not defined")


def test_a_function_with_more_arguments_is_called() -> None:
    made, _ = operator(lambda p: p | tg.MapValues(lambda v, n: v + n, LIMIT).with_input_types(Any), "on")
    links: Any = made.links  # type: ignore[attr-defined]
    assert Inlining(links).reasons == {0: "it takes any number of arguments"}

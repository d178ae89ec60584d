"""Comprehensions that become loops: their errors show the positions that they have in comprehensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tests.engine.loops.inlined_steps import author, operator, ran, reason
from tidegate.runners.engine.elementwise import chain
from tidegate.runners.engine.loops.loop_tree import printed
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import TidegateError

AUTHOR = """
class NoBool:
    def __bool__(self):
        raise ValueError("no bool")
class Compared:
    def __gt__(self, other):
        return NoBool()
class NoIter:
    def __iter__(self):
        raise ValueError("no iterator")
class StopsIter:
    def __iter__(self):
        raise StopIteration("no iterator")
def some(x):
    yield x
    raise KeyError(x)
def stop(x):
    raise StopIteration(x)
def fn(x):
    n = x
    return PARTS
"""

PARTS: dict[str, str] = {
    "an iterator that fails": "(y, 1) for y in some(n)",
    "an iterator that fails after a test": "(y, 1) for y in some(n) if y",
    "an iterator of several lines": "(\n        y, 1) for y in\n    some(n)",
    "no iterable": "(y, 1) for y in n",
    "no iterator": "(y, 1) for y in NoIter()",
    "an iterable that can't be evaluated": "(y, 1) for y in 1 // n",
    "a second iterator that fails": "(y, 1) for z in [1] for y in some(n)",
    "no second iterable": "(y, 1) for z in [1]\n    for y in n",
    "no second iterator": "(y, 1)\n    for z in [1]\n    for y in NoIter()",
    "a second iterable that can't be evaluated": "(y, 1) for z in [1]\n    for y in 1 // n",
    "a third iterator that fails": "(y, 1) for z in [1] for w in [1, 2]\n    for y in some(w)",
    "no second iterable after a comparison": "(y, 1) for z in [1]\n    if z > 0\n    for y in n",
    "a second iterable after a test": "(y, 1) for z in [1]\n    if z\n    for y in some(n)",
    "an item instead of a second iterable": "(y, 1) for z in [n]\n    for y in [1 // z]",
    "items instead of a second iterable": "(y, w) for z in [n]\n    for y, w in [z]",
    "no bool": "(y, 1) for y in [1]\n    if NoBool()",
    "no bool after a comparison": "(y, 1) for y in [1]\n    if y > 0\n    if NoBool()",
    "no bool of a comparison": "(y, 1) for y in [1]\n    if Compared() > y",
    "no bool of several comparisons": "(y, 1) for y in [1]\n    if Compared() > y > 0",
    "no bool with and": "(y, 1) for y in [1]\n    if y and NoBool()",
    "no bool with or and not": "(y, 1) for y in [1]\n    if not y or not NoBool()",
    "no bool with a comparison": "(y, 1) for y in [1]\n    if y > 0 and NoBool()",
    "no bool of a conditional": "(y, 1) for y in [1]\n    if (NoBool() if y else 0)",
    "no bool of a second loop": "(y, 1) for z in [1] if z > 0 for y in [1, 2]\n    if NoBool()",
    "a test that can't be evaluated": "(y, 1) for y in [1]\n    if 1 // n",
    "no items": "(y, w) for y, w in [n]",
    "an item that can't be evaluated": "(y, 1 // n) for y in [1]",
    "an inner comprehension that fails": "(y, [1 // n for _ in [1]]) for y in [1]",
    "a stop iteration": "(y, stop(n)) for y in [1]",
    "a stop iteration of a test": "(y, 1) for y in [1] if stop(n)",
    "a stop iteration of the iterable": "(y, 1) for y in stop(n)",
    "a stop iteration of no iterator": "(y, 1) for y in StopsIter()",
    "a stop iteration of no second iterator": "(y, 1) for z in [1, 2] for y in StopsIter()",
}


def made(text: str) -> Any:
    return author(AUTHOR.replace("PARTS", text))["fn"]


@pytest.mark.parametrize("name", PARTS)
def test_an_error_in_a_generator_expression_is_that_of_a_call(name: str) -> None:
    fn = made(f"({PARTS[name]})")
    assert reason(fn, step=tg.FlatMap) == ""
    same_failure(lambda p: p | tg.FlatMap(fn))
    same_failure(lambda p: p | tg.FlatMap(fn) | tg.CombinePerKey(sum) | tg.Map(str))


@pytest.mark.parametrize("name", PARTS)
def test_an_error_in_a_list_whose_items_are_grouped_is_that_of_a_call(name: str) -> None:
    fn = made(f"[{PARTS[name]}]")
    assert reason(fn, step=tg.FlatMap) == ""
    same_failure(lambda p: p | tg.FlatMap(fn) | tg.CombinePerKey(sum) | tg.Map(str))


@pytest.mark.parametrize("time", ["'bad'", "x + 1 and 'bad'"])
def test_a_refused_timestamp_in_a_generator_expression_is_that_of_a_call(time: str) -> None:
    text = f"from tidegate import TimestampedValue\ndef fn(x): return (TimestampedValue(y, {time}) for y in [x])"
    fn = author(text)["fn"]
    assert reason(fn, step=tg.FlatMap) == ""
    same_failure(lambda p: p | tg.FlatMap(fn))


def same_failure(write: Callable[[Any], Any]) -> None:
    called, inlined = (ran(write, inline, [0]) for inline in ("off", "on"))
    assert called.outcome.failure
    assert inlined.outcome.failure == called.outcome.failure
    assert inlined.inlined > 0


@pytest.mark.parametrize(
    "text",
    [
        "(y for y in [n] if y)",
        "(y for z in [n] for y in (z, 1) if z > 0 if y)",
        "(y for z in [n]\n    for y in [z + 1] if not y or n is None)",
        "(y + w for y in [n] if y for w in range(y) if w or y > 2)",
        "(y for y in [n] if 1)",
        "(y for y in [(w for w in [n] if w), [w for w in [n] if w]] if y)",
    ],
)
def test_generator_expressions_are_loops(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    whole = chain.generate
    monkeypatch.setattr(chain, "generate", lambda *args: texts.append(printed(form := whole(*args))) or form)
    fn = made(text)
    called, inlined = (ran(lambda p: p | tg.FlatMap(fn) | tg.Map(str), inline, [0, 1, 2]) for inline in ("off", "on"))
    assert [each.split(" at ")[0] for _, each, _ in inlined.outcome.out] == [
        each.split(" at ")[0] for _, each, _ in called.outcome.out
    ]
    assert "for l0_y in" in texts[1] or "l0_y = " in texts[1]


def test_a_stop_iteration_around_a_generator_expression_is_no_runtime_error() -> None:
    fn = made("(y for y in stop(n))")
    operated, _ = operator(lambda p: p | tg.FlatMap(fn), "on")
    with pytest.raises(TidegateError, match=r"^StopIteration: 3\n"):
        list(operated.process(Block([3], 0), "elements"))


def test_more_loops_than_python_nests_are_no_statements() -> None:
    fn = made(f"(x {' '.join(f'for y{number} in [n, n]' for number in range(21))})")
    assert reason(fn, step=tg.FlatMap) == "it has a generator expression in it"

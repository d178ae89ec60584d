"""Filters whose text stands in the loop, which tests the truth of the result outside of the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tests.engine.loops.inlined_steps import author, ran, reason

RUNS: list[list[Any]] = [[]]
"""What objects of the author's were asked, in order, in each run. Those of a failed run may end in a later one."""


class Truth:
    """Something that notes when its truth is tested and when it ends; the truth of None can't be tested."""

    def __init__(self, of: Any) -> None:
        self.of, self.notes = of, RUNS[-1]

    def __bool__(self) -> bool:
        self.notes.append(("bool", self.of))
        if self.of is None:
            raise ValueError("neither true nor false")
        return bool(self.of)

    def __gt__(self, other: Any) -> Truth:
        self.notes.append(("greater", self.of, other))
        return Truth(None if self.of == 3 else self.of)

    def __contains__(self, item: Any) -> Any:
        return Truth(item)

    def __del__(self) -> None:
        self.notes.append(("end", self.of))


def truth(of: Any) -> Any:
    from tests.engine.loops import test_inlined_filters as here  # the module, not a copy that has been pickled

    return here.Truth(of)


def noted(x: Any) -> Any:
    from tests.engine.loops import test_inlined_filters as here

    here.RUNS[-1].append(("next", x))
    return x


FILTERS: dict[str, Any] = {
    "a call": lambda x: truth(x),
    "a comparison": lambda x: truth(x) > 0,
    "a comparison on several lines": lambda x: (
        truth(x)
        > 0
    ),
    "comparisons": lambda x: truth(x) > 0 < 1,
    "comparisons whose last is an object": lambda x: 3 > 2 < truth(x) > 0,
    "membership": lambda x: x in truth(0),
    "no membership": lambda x: x not in truth(0),
    "and": lambda x: truth(x) and truth(x - 1),
    "or": lambda x: truth(x) or truth(0),
    "and, then or": lambda x: (truth(x) and truth(x - 1)) or truth(7),
    "and before a comparison": lambda x: x and truth(x) > 1,
    "and in a comparison": lambda x: (truth(x) and truth(1)) > 0,
    "not": lambda x: not truth(x),
    "not not": lambda x: not not truth(x),  # noqa: SIM208
    "not and": lambda x: not (truth(x) and truth(2)),
    "not a comparison": lambda x: not truth(x) > 0,
    "not comparisons": lambda x: not truth(x) > 0 < 1,
    "a conditional": lambda x: truth(x) if x else truth(0),
    "a conditional on an object": lambda x: 1 if truth(x) else 0,
    "a conditional of and": lambda x: (truth(x) and truth(1)) if x != 2 else (truth(0) or truth(2)),
    "a variable": lambda x: (y := truth(x)),  # noqa: F841
    "a variable of and": lambda x: (y := truth(x) and truth(1)),  # noqa: F841
    "and of a variable": lambda x: (y := truth(x)) and y,
    "a subscript": lambda x: [truth(x)][0],
    "a comprehension": lambda x: [y for y in (x, x) if truth(y)],
    "a comprehension with a comparison": lambda x: [y for y in (x, x) if truth(y) > 0],
    "nothing": lambda x: None,
}  # fmt: skip

STATEMENTS: dict[str, str] = {
    "a result": "a = truth(x)\nreturn a",
    "results": "if x == 2:\n    return truth(x)\nreturn truth(x - 1)",
    "a comparison": "a = truth(x)\nreturn a > 0",
    "a bool": "a = truth(x)\nreturn not a",
    "bools": "if x == 2:\n    return True\na = x\nreturn a is None",
    "a result in a loop": "for a in (x, 1):\n    if truth(a):\n        return truth(a)",
}

ELEMENTS = [1, 0, 2, 3, 1]


def with_statements(body: str) -> Any:
    lines = body.replace("\n", "\n    ")
    return author(f"from tests.engine.loops.test_inlined_filters import truth\ndef fn(x):\n    {lines}\n")["fn"]


SURROUNDINGS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "alone": lambda fn: lambda p: p | "step" >> tg.Filter(fn),
    "before a step": lambda fn: lambda p: p | "step" >> tg.Filter(fn) | "next" >> tg.Map(noted),
    "in a comprehension": lambda fn: lambda p: p | "step" >> tg.Filter(fn) | "next" >> tg.Map(lambda x: noted(x)),
    "in a loop": lambda fn: lambda p: p | "step" >> tg.Filter(fn) | "next" >> tg.FlatMap(lambda x: [noted(x)] * x),
    "with dead letters": lambda fn: lambda p: (p | "step" >> tg.Filter(fn).with_exception_handling())[0],
}


def same(fn: Any, surroundings: str) -> None:
    """Compare what a filter does that is called with what the same does inlined, and what objects see of it."""
    for elements in ([0], [1], [None], [3], ELEMENTS):
        seen = []
        for inline in ("off", "on"):
            RUNS.append([])
            done = ran(SURROUNDINGS[surroundings](fn), inline, elements)
            # The end of what a failure's frames have depends on when its traceback ends.
            kept = [note for note in RUNS[-1] if note[0] != "end" or not done.outcome.failure]
            seen.append((done.outcome, kept))
        assert seen[1] == seen[0], elements


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
@pytest.mark.parametrize("name", FILTERS)
def test_the_result_of_an_expression_is_tested_as_that_of_a_call(name: str, surroundings: str) -> None:
    assert reason(FILTERS[name], step=tg.Filter) == ""
    same(FILTERS[name], surroundings)


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
@pytest.mark.parametrize("name", STATEMENTS)
def test_the_result_of_statements_is_tested_as_that_of_a_call(name: str, surroundings: str) -> None:
    fn = with_statements(STATEMENTS[name])
    assert reason(fn, step=tg.Filter) == ""
    same(fn, surroundings)


TESTED = """
import tidegate as tg
class Tested:
    def __bool__(self):
        tg.Metrics.counter("mine", "tests").inc()
        return not fails or 1 / 0
made = Tested()
inlined = lambda x: made
def called(x):
    try:
        return made
    finally:
        pass
"""


@pytest.mark.parametrize("name", ["inlined", "called"])
@pytest.mark.parametrize("fails", [False, True])
def test_the_test_of_a_result_is_part_of_the_filter_in_a_comprehension_of_several_steps(fails: bool, name: str) -> None:
    names = author(TESTED, fails=fails)

    def write(p: Any) -> Any:
        return p | "first" >> tg.Map(lambda x: [x, 0]) | "step" >> tg.Filter(names[name]) | tg.Map(lambda x: [x])

    called, inlined = (ran(write, inline, [1, 2, 3], sealed=False) for inline in ("off", "on"))
    assert inlined.outcome == called.outcome
    assert inlined.inlined > 0
    assert {key.step for key in called.outcome.metrics if key.name == "tests"} == {"step"}
    assert ("in step 'step'" in called.outcome.failure[1]) if fails else not called.outcome.failure


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_a_result_that_is_neither_true_nor_false_shows_no_frame_of_the_function(surroundings: str) -> None:
    done = ran(SURROUNDINGS[surroundings](FILTERS["a comparison"]), "on", [3])
    assert any("in __bool__" in line for line in done.outcome.failure)
    assert not any("<lambda>" in line for line in done.outcome.failure[2:])

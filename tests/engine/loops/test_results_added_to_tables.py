"""Steps with several results per element whose loop adds these to the tables of a grouping."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from sys import getrefcount
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tests.engine.loops.inlined_steps import Ran, ran, reason
from tests.engine.loops.test_inlined_statements import function
from tidegate.runners.engine.elementwise.fused_loop import ONE_REFERENCE
from tidegate.runners.engine.factory import build
from tidegate.runners.engine.operator import Context, Operator
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.data.block import Block

RESULTS: dict[str, str] = {
    "a list": "return [(y, x) for y in range(x)]",
    "a list with a condition": "return [(y % 2, x + y) for y in range(x) if y != 1]",
    "a list of lists": "return [(y, z) for y in range(x) for z in range(y) if z or y == 1]",
    "a list over a list": "return [(y, x) for y in [0, 1, x]]",
    "a list after statements": "y = [x, 2]\nnote(y)\nreturn [(z, x) for z in y]",
    "a list of what is no pair": "return [y for y in (x, (1, 2, 3))]",
    "a list that fails": "return [(1 // y, x)\n    for y in range(x, -1, -1)]",
    "a list over what fails": "return [(y, 1) for y in 6 // x]",
    "a list that fails after what can't be hashed": "return [([], 1 // y) for y in (1, 0 * x)]",
    "a list that fails after what can't be added": "return [(0, (y, 1 // y)[y]) for y in (1, 'a', 0)]",
    "a list with a failing condition": "return [(y, 1) for y in range(x) if 6 // y]",
    "a list whose second loop fails": "return [(y, 1) for y in range(x) for z in 1 // y]",
    "a list that stops": "return [(y, next(iter([1][y:]))) for y in range(x)]",
    "a list of a variable's name": "y = x\nreturn [(y, 1) for y in range(y)]",
    "a list that uses a comprehension": "return [(y, sum([z for z in range(y)])) for y in range(x)]",
    "a generator": "return ((y, x) for y in range(x))",
    "a generator that fails": "return ((6 // y, x) for y in range(x, -1, -1))",
    "a generator over what fails": "return ((y, 1) for y in 6 // x)",
    "a generator that stops": "return ((y, next(iter([1][y:]))) for y in range(x))",
    "a generator with an inner loop": "return ((y, z) for y in range(x) for z in (1 // y, 2))",
    "yields": "yield x, 1\nfor y in range(x):\n    yield y, x",
    "yields of variables": "z = x\nfor y in iter([0, 1, x]):\n    yield y, z",
    "yields in a loop that does more": "for y in range(x):\n    note(y)\n    yield y, x",
    "yields of constants": "for y in range(x):\n    yield 1, y",
    "yields of expressions": "for y in [x, 0, x]:\n    yield -y, [y][0]",
    "yields whose value changes the key": "y = 0\nfor z in [x, 5]:\n    yield y, (y := z)",
    "yields whose value is the key": "for y in [x, 5]:\n    yield (z := y), z",
    "a list that grows": "z = [x]\nfor y in z:\n    yield y, z.append(y - 1) or 1 if y > 0 else 1",
    "a list that shrinks": "z = [2, 1, x]\nfor y in z:\n    yield y, z.pop()",
    "a list in a list that grows": "z = [[x]]\nfor y in z[0]:\n    yield y, z[0].append(y - 1) or 1 if y > 0 else 1",
    "a list with a name that grows": "for y in (z := [x]):\n    yield y, z.append(y - 1) or 1 if y > 0 else 1",
    "a list of elsewhere that grows": (
        "note.seen = [x]\nfor y in note.seen:\n    yield y, note.seen.append(y - 1) or 1 if y > 0 else 1"
    ),
    "a set that changes": "z = {x}\nfor y in z:\n    yield y, z.remove(y) or z.add(y + 8) or 1",
    "a dict whose last key is replaced": (
        "z = {0: 0, x: 0, 9: 0}\nfor y in z:\n    yield y, z.pop(9, 0) or z.update(a=1) or 1"
    ),
    "keys that can't be hashed": "for y in [[x], 1]:\n    yield y, x",
    "values that can't be added": "for y in (x, 'a', None):\n    yield 0, y",
}

GROUPINGS: dict[str, Callable[[], Any]] = {
    "sum": lambda: tg.CombinePerKey(sum),
    "min": lambda: tg.CombinePerKey(min),
    "lists": tg.GroupByKey,
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_in_the_loop_are_grouped_as_those_of_a_call(name: str) -> None:
    fn = function(RESULTS[name])
    for grouping in GROUPINGS.values():

        def alone(p: Any, grouping: Any = grouping) -> Any:
            return p | "step" >> tg.FlatMap(fn) | "group" >> grouping() | "end" >> tg.Map(str)

        def windowed(p: Any, grouping: Any = grouping) -> Any:
            stamped = p | "step" >> tg.FlatMap(fn) | "windows" >> tg.WindowInto(tg.SlidingWindows(4, 2))
            return stamped | "group" >> grouping() | "end" >> tg.Map(str)

        def after_map(p: Any, grouping: Any = grouping) -> Any:
            return alone(p | "map" >> tg.Map(lambda x: x), grouping)

        for write in (alone, windowed, after_map):
            for blocks in ([[2]], [[3, 1, 4]], [[2, 0], [5]]):
                called, inlined = (ran(write, inline, *blocks, times=True) for inline in ("off", "on"))
                assert shown(inlined) == shown(called), (grouping, write, blocks)
                assert inlined.inlined > 0
        checked = [ran(alone, inline, [3, 1, 4], checks="all") for inline in ("off", "always")]
        assert shown(checked[1]) == shown(checked[0])


def test_a_list_to_which_nothing_else_refers_is_known_as_one() -> None:
    made = "a b".split()
    assert getrefcount(made) == ONE_REFERENCE
    also = made
    assert getrefcount(also) > ONE_REFERENCE


def shown(done: Ran) -> Any:
    """What a run shows. A list that fails has been grouped in part, which nobody sees."""
    outcome = done.outcome
    return (outcome.failure,) if outcome.failure else (outcome.out, outcome.metrics)


def test_a_generator_expression_is_a_loop_before_other_steps_too() -> None:
    fn = function("return ((y, x) for y in range(x))")
    assert reason(fn, step=tg.FlatMap) == ""
    for write in (
        lambda p: p | "step" >> tg.FlatMap(fn),
        lambda p: p | "step" >> tg.FlatMap(fn) | "next" >> tg.MapTuple(lambda y, x: (y, 1 // x)),
    ):
        for blocks in ([[0, 1, 2]], [[3], ["a"]]):
            assert ran(write, "on", *blocks).outcome == ran(write, "off", *blocks).outcome


def fused(budget: int, directory: Path, combine: Any, *, block_size: int = 64) -> Operator:
    """A step that splits a text into pairs of a letter and 1, whose loop ends in the tables of a grouping."""
    pipeline = tg.Pipeline()
    texts = pipeline | "in" >> tg.Create([""])
    pairs = texts | tg.FlatMap(letters).with_output_types(tuple[str, int])
    _ = pairs | "group" >> combine | tg.Map(str)
    found = plan(pipeline.sealed(), Traits(parallel=False))
    (step,) = [step for step in found.steps if step.label == "group"]
    assert len(step.nodes) == 2
    operator = build(step, found, Context(budget, lambda: directory, block_size=block_size))
    operator.open()
    return operator


def letters(text: str) -> Iterator[tuple[str, int]]:
    for place in range(len(text)):
        yield text[place] + str(place % 400), 1


@pytest.mark.parametrize("combine", [tg.CombinePerKey(sum), tg.GroupByKey()], ids=["sum", "lists"])
@pytest.mark.parametrize("budget", [1, 20_000, 1 << 30])
def test_tables_are_spilled_while_one_element_has_many_results(tmp_path: Path, combine: Any, budget: int) -> None:
    operator = fused(budget, tmp_path, combine)
    texts = ["ab" * 2_000, "", "c" * 5_000, "a"]
    emitted = [block for _, block in operator.process(Block(texts), "in")]
    assert sum(map(len, emitted)) == 0
    assert len(emitted) > 50  # control returns now and then
    pairs = [pair for _, block in operator.finish() for pair in block.values]
    operator.close()
    found = {key: value if isinstance(value, int) else sum(value) for key, value in pairs}
    assert found == Counter(key for text in texts for key, _ in letters(text))
    spills = sum(n for key, n in operator.context.metrics.counters.items() if key.name == "spills")
    assert (spills > 0) == (budget < 1 << 20)


@given(st.lists(st.text("abc", max_size=9), max_size=9), st.integers(1, 5), st.sampled_from([1, 2_000, 1 << 30]))
def test_blocks_of_any_size_are_grouped_alike(texts: list[str], size: int, budget: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        operator = fused(budget, Path(directory), tg.CombinePerKey(sum), block_size=size)
        for block in Block(texts).split(size):
            for _ in operator.process(block, "in"):
                pass
        found = dict(pair for _, block in operator.finish() for pair in block.values)
        operator.close()
    assert found == Counter(key for text in texts for key, _ in letters(text))

"""Functions of several statements, generators and functions of the items of tuples whose text stands in the loop."""

from __future__ import annotations

import gc
import weakref  # noqa: F401, used by functions that import this module
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.engine.loops.inlined_steps import ADDRESS, ELEMENTS, author, compare, operator, ran, reason
from tests.engine.loops.random_bodies import BODIES, PRELUDE
from tests.engine.loops.test_inlining import VALUES
from tidegate.runners.engine.elementwise import chain
from tidegate.runners.engine.loops.inlining import CalledStep, Inlining
from tidegate.runners.engine.loops.loop_tree import printed
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import TidegateError
from tidegate.sdk.user_code.body import find_body

NOTED: list[Any] = []
"""Side effects of functions that have been pickled, which import this module when they run."""

STATEMENTS: dict[str, str] = {
    "an assignment": "y = x + 1\nreturn y * 2",
    "a result that is a variable": "y = [x]\nreturn y",
    "unpacking": "y, z = x\nreturn z, y",
    "unpacking in one another": "y, (z, *w) = x, (x, x, 1)\nreturn z, y, w",
    "several targets": "y = z = x\nreturn y, z",
    "an assignment to the parameter": "x = x + 1\nx += 1\nreturn x",
    "an assignment to a default": "d += (x,)\nreturn d",
    "an annotated variable": "y: int = x + 1\nreturn y",
    "an item and an attribute": "y = [0, x]\ny[0] = x\ny[1] += 1\nnote.seen = y\nreturn note.seen, y",
    "no return": "y = x + 1",
    "a bare return": "if x:\n    return\nreturn x",
    "only pass": "pass",
    "if": "y = 0\nif x:\n    y = x\nreturn y",
    "if and else": "if x:\n    y = x\nelse:\n    y = -1\nreturn y",
    "elif": "if x == 1:\n    y = 1\nelif x == 2:\n    y = 'two'\nelse:\n    y = x\nreturn y, x",
    "an early return": "if x == 1:\n    return 'one'\nif x == 2:\n    return\nreturn x + 1",
    "returns in both branches": "if x:\n    return 1\nelse:\n    return 2",
    "a for loop": "total = 0\nfor y in range(x):\n    total += y\nreturn total",
    "a for loop with break and else": (
        "for y in range(x):\n    if y == 2:\n        break\nelse:\n    y = None\nreturn x, y"
    ),
    "a return in a loop": "for y in range(x):\n    if y == 2:\n        return 'found', y\nreturn 'none'",
    "a return in a loop in a loop": (
        "for y in range(x):\n    for z in range(y):\n        if z == 1:\n            return y, z\n    note(y)\nelse:\n"
        "    return 'else'\nreturn 'after'"
    ),
    "a return in a loop that breaks": (
        "for y in range(x):\n    if y == 1:\n        break\n    if x == 1:\n        return y\nelse:\n"
        "    return 'else'\nreturn 'broken'"
    ),
    "a return in the else of a loop in a loop": (
        "for y in range(3):\n    for z in range(x):\n        if z:\n            continue\n    else:\n"
        "        if y == x:\n            return y\nreturn 'after'"
    ),
    "a while loop": "y = 0\nwhile y < x:\n    y += 1\n    if y == 2:\n        continue\n    note(y)\nreturn y",
    "an endless loop": "y = 0\nwhile True:\n    y += 1\n    if y > 3:\n        return y, x",
    "an endless loop with break": "while True:\n    y = x\n    break\nreturn y",
    "raise": "if x == 1:\n    raise ValueError(x)\nreturn x",
    "raise with a cause": "if x == 1:\n    raise ValueError(x) from KeyError(x)\nreturn x",
    "only raise": "raise ValueError(x)",
    "assert": "assert x != 1, note(x)\nreturn x",
    "a failing line of several": "y = 1\nz = [\n    y,\n    y / x,\n]\nreturn z",
    "a failing loop": "y = 0\nfor y in x:\n    pass\nreturn y",
    "a failing result": "y = 1\nreturn y / x",
    "a walrus": "return (y := x, y)",
    "a walrus in a condition": "if (y := x) and y != 2:\n    return y\nreturn y, 0",
    "a walrus in a comprehension": "y = 0\nz = [y := w for w in range(x)]\nreturn y, z",
    "a comprehension over a variable": "y = x\nreturn [y + z for z in (1, 2)], [[z, w] for z in [x] for w in (z, y)]",
    "a comprehension's variable of the same name": "y = 5\nz = [y for y in (x, 1)]\nreturn y, z",
    "a generator expression": "y = [x, 1]\nreturn sum(abs(z) for z in y), list(z for z in y if z in table)",
    "a generator expression of a captured variable": "return list(n for _ in range(x))",
    "a lazy generator expression": "return list(y for y in (z for z in [x]))",
    "a failing generator expression": "return list(1 // z for z in [x])",
    "the key of sorted": "return sorted([x, 1, -x], key=lambda y: -y)",
    "a failing key": "return min(x, 2, key=lambda y: fail(y) if y == 3 else y)",
    "map and filter": "return list(map(lambda y: y + n, [x])), list(filter(lambda y: y in table, [x]))",
    "the loop's names": (
        "v0 = out = i = t = x\nv1 = [v0]\nl0_x = r0 = e0 = block = values = 1\nreturn v0, out, i, t, v1, l0_x, r0, e0"
    ),
    "letters that are not ASCII": "größe = x + 1\nreturn größe",
}

MODULE = """
import math, tidegate as tg
g = 7
text = "abc"
table = {0: "zero", 1: [1, 2], "ab": 3}
numbers = [3, 1, 2]
def note(*x):
    from tests.engine.loops import test_inlined_statements
    test_inlined_statements.NOTED.append(repr(x))
    return x[0] if x else None
def fail(x):
    raise KeyError(x)
def few(x):
    return list(x)[:3]
def cap(x):
    if isinstance(x, (int, float)):
        return x if abs(x) < 9 else 0
    return x if len(repr(x)) < 99 else 0
def make(n):
    def fn(PARAMETERS):
        BODY
    return fn
fn = make(5)
"""


def function(body: str, parameters: str = "x, d=(1, 2)") -> Any:
    lines = body.replace("\n", "\n        ")
    return author(MODULE.replace("PARAMETERS", parameters).replace("BODY", lines))["fn"]


def both(write: Callable[[Any], Any], *blocks: Iterable[Any], checks: str | None = None, times: bool = False) -> int:
    """Compare a run of called functions with one of inlined ones. Returns how many elements were inlined."""
    seen = []
    for inline in ("off", "on" if checks is None else "always"):
        NOTED.clear()
        done = ran(write, inline, *blocks, checks=checks, times=times)
        outcome = done.outcome
        if outcome.failure:
            # Wrapped results that are not made leave the loop later: blocks before a failure, which are lost, differ.
            outcome = replace(outcome, out=[], metrics={})
        seen.append((outcome, [ADDRESS.sub("", note) for note in NOTED]))
    assert seen[1] == seen[0]
    return done.inlined


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements_in_the_loop_do_what_a_call_does(name: str) -> None:
    fn = function(STATEMENTS[name])
    assert reason(fn) == ""
    for step in (tg.Map, tg.Filter, tg.FlatMap):
        assert both(lambda p, step=step: p | step(fn), *([element] for element in ELEMENTS)) > 0
        assert both(lambda p, step=step: p | step(fn), [0, 1, 2, 3], [(1, 2), (3, 4)], ["ab"]) > 0
    good = lambda p: (p | "step" >> tg.Map(fn).with_exception_handling())[0]  # noqa: E731
    assert both(good, ELEMENTS) > 0
    assert both(lambda p: p | tg.Map(fn) | tg.Map(lambda y: [y]), [0, 2, 3], checks="all") > 0


GENERATORS: dict[str, str] = {
    "one": "yield x",
    "nothing": "yield",
    "in a loop": "for y in range(x):\n    yield y",
    "with statements around it": (
        "note('begin')\nfor y in range(x):\n    note(y)\n    yield y\n    note('next')\nnote('end')"
    ),
    "in loops": "for y in range(x):\n    if y == 1:\n        continue\n    for z in range(y):\n        yield y, z",
    "with a break": "for y in range(x):\n    yield y\n    if y == 1:\n        break\nelse:\n    note('else')",
    "with a return": "if x == 1:\n    return\nfor y in range(x):\n    if y == 2:\n        return note(y)\n    yield y",
    "in a while loop": "y = 0\nwhile y < x:\n    y += 1\n    yield y",
    "never": "return\nyield x",
    "in a branch": "if x == 2:\n    yield 'two'\nelse:\n    note(x)",
    "failing before": "y = 1 / x\nyield y",
    "failing after": "yield x\nnote(1 / x)",
    "a failing value": "for y in range(x):\n    yield 1 / (y - 1)",
    "a stop iteration": "yield next(iter([1][x:]))",
    "a stop iteration in a comprehension": "y = [next(iter([])) for _ in range(x)]\nyield y",
    "several": "yield x\nnote('between')\nfor y in range(x):\n    yield y, 1\nyield note('last')",
    "in branches": "for y in range(x):\n    if y == 1:\n        yield 'one'\n    else:\n        yield\n    note(y)",
    "several with a return": (
        "yield x\nif x == 2:\n    return\nyield x, x\nfor y in range(x):\n    if y == 2:\n        return\n    yield y"
    ),
    "several of which one fails": "yield x\nyield (1,\n    6 // x)\nyield x - 3",
    "several with a stop iteration": "yield 'first'\nyield next(iter([1][x:]))",
    "several wrapped": "yield tg.TimestampedValue(x, 2)\nyield tg.TaggedOutput('a', x)\nyield x",
    "a timestamp": "for y in range(x):\n    yield tg.TimestampedValue(y, y)",
    "a tagged output": "for y in range(x):\n    yield tg.TaggedOutput('a', y) if y % 2 else y",
    "a wrapper in another": "yield tg.TimestampedValue(tg.TaggedOutput('a', x), 1)",
}


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_in_the_loop_do_what_a_call_does(name: str) -> None:
    fn = function(GENERATORS[name])
    assert reason(fn, step=tg.FlatMap) == ""
    odd = author("def odd(y):\n    from tests.engine.loops import test_inlined_statements as t\n"
                 "    t.NOTED.append(f'down {y!r}')\n    return y in (1, 3) or (1, 0)\n")["odd"]  # fmt: skip

    def alone(p: Any) -> Any:
        return p | "step" >> tg.FlatMap(fn)

    def followed(p: Any) -> Any:
        first = p | "step" >> tg.FlatMap(fn) | "odd" >> tg.Filter(odd) | "pair" >> tg.Map(lambda y: (y, y))
        return first | "both" >> tg.FlatMap(lambda y: y) | "last" >> tg.Map(lambda y: 6 // y)

    def windowed(p: Any) -> Any:
        first = p | "before" >> tg.WindowInto(tg.SlidingWindows(4, 2)) | "step" >> tg.FlatMap(fn)
        return first | "after" >> tg.WindowInto(tg.FixedWindows(2)) | "odd" >> tg.Filter(odd)

    def twice(p: Any) -> Any:
        return p | "step" >> tg.FlatMap(fn) | "again" >> tg.FlatMap(fn) | "odd" >> tg.Filter(odd)

    for write in (alone, followed, windowed, twice):
        assert both(write, *([element] for element in ELEMENTS)) > 0
        both(write, [0, 1, 2, 3], [5, 4], checks="all")
    assert both(lambda p: (p | "step" >> tg.FlatMap(fn).with_outputs("a"))[None], [0], [2], [3]) > 0


TAGGED: dict[str, str] = {
    "a choice": "return tg.TaggedOutput('a', x) if x == 1 else x",
    "a choice of choices": (
        "return x if x == 1 else tg.TaggedOutput('a', [x]) if x == 2 else tg.TaggedOutput('b', 1 // x)"
    ),
    "always": "return tg.TaggedOutput('b', x)",
    "an early return": "y = [x]\nif x == 2:\n    return tg.TaggedOutput('a', y)\nreturn y",
    "returns in a loop": "for y in range(x):\n    if y:\n        return tg.TaggedOutput('b', y)\nelse:\n    return x",
    "a wrapper in another": "return tg.TaggedOutput('a', tg.TimestampedValue(x, 2)) if x == 1 else x",
    "an unpacked value": "return tg.TaggedOutput('a', *(x,)) if x == 1 else x",
    "an unpacked value always": "y = (x,)\nreturn tg.TaggedOutput('a', *y)",
    "a tag that is not declared": "return tg.TaggedOutput('missing', x) if x == 1 else x",
    "no return": "if x == 1:\n    return tg.TaggedOutput('a', x)",
}


@pytest.mark.parametrize("name", TAGGED)
def test_tagged_outputs_that_are_not_made_go_to_their_outputs(name: str) -> None:
    fn = function(TAGGED[name])
    assert reason(fn) == ""

    def tagged(p: Any) -> Any:
        outputs = p | "step" >> tg.Map(fn).with_outputs("a", "b")
        for tag in ("a", "b"):
            outputs[tag] | f"read {tag}" >> tg.Map(lambda y: y)
        return outputs[None] | "main" >> tg.Map(lambda y: y)

    def windowed(p: Any) -> Any:
        return tagged(p | "windows" >> tg.WindowInto(tg.FixedWindows(2)))

    for write in (tagged, windowed):
        for blocks in ([[element] for element in ELEMENTS], [[0, 1, 2, 3]], [[2, 2, 0], [5, 1, 3]]):
            assert both(write, *blocks) > 0
            assert both(write, *blocks, checks="all") > 0
            assert both(write, *blocks, times=True) > 0
    assert both(lambda p: p | "alone" >> tg.Map(fn), [2], [1]) > 0


def test_a_loop_makes_no_tagged_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    whole = chain.generate
    monkeypatch.setattr(chain, "generate", lambda *args: texts.append(printed(source := whole(*args))) or source)
    fn = function(TAGGED["a choice"])
    assert both(lambda p: (p | tg.Map(fn).with_outputs("a"))[None], [1, 2]) > 0
    assert "f0(v0)" in texts[0]
    assert "v1 = v0\n                tag0 = 'a'\n                break" in texts[1]


TUPLES: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "a pair": ("a, b", "return b, a", ()),
    "one item": ("a", "return a", ()),
    "a default": ("a, b=3", "return a, b", ()),
    "an extra argument": ("a, b, c", "return a, b, c", (10,)),
    "an assigned item": ("a, b", "a += 1\nreturn a, b", ()),
    "positional only": ("a, /, b", "return a, b", ()),
    "a keyword": ("a, b, *, c=4", "return a, b, c", ()),
    "an injected timestamp": ("a, b, at=tg.DoFn.TimestampParam", "return a, b, at", ()),
    "a comprehension": ("a, b", "return [a + c for c in (b, b)]", ()),
}


@pytest.mark.parametrize("name", TUPLES)
def test_functions_of_the_items_of_tuples_in_the_loop_do_what_a_call_does(name: str) -> None:
    parameters, body, extra = TUPLES[name]
    elements = [(1, 2), [3, 4], (1,), (1, 2, 3), (), 5, "ab", iter((1, 2)), {1: 2, 3: 4}, (1, "a"), range(2), None]
    fn = function(body, parameters)
    many = function(f"note({parameters[0]})\n{body.replace('return', 'for y in range(2): yield y,')}", parameters)
    for step, called in ((tg.MapTuple, fn), (tg.FlatMapTuple, fn), (tg.FlatMapTuple, many)):
        for element in elements:
            seen = []
            for inline in ("off", "on"):
                given = iter((1, 2)) if type(element).__name__ == "tuple_iterator" else element
                seen.append(ran(lambda p: p | step(called, *extra), inline, [given]))  # noqa: B023
            assert seen[1].outcome == seen[0].outcome
            assert seen[1].inlined == 1
    both(lambda p: (p | tg.MapTuple(fn, *extra).with_exception_handling())[0], [(1, 2), 3, (1,), (1, 2, 3), (1, "a")])


class Price:
    __rate = 2

    def scaled(self) -> Any:
        def fn(x: Any) -> Any:
            __twice = self.__rate * x
            return __twice, [__twice + __y for __y in (x,)]

        return fn


def test_private_names_are_those_of_the_class() -> None:
    fn = Price().scaled()
    assert reason(fn) == ""
    assert compare(lambda p: p | tg.Map(fn), [3]).out[0][1] == "tuple: (6, [9])"


class Held:
    pass


HELD: list[Any] = []


def test_variables_live_no_longer_than_a_call() -> None:
    text = (
        "def hold():\n    from tests.engine.loops import test_inlined_statements as t\n"
        "    held = t.Held()\n    t.HELD.append(t.weakref.ref(held))\n    return held\n"
        "def fn(x):\n    if x == 1:\n        return 0\n    held = hold()\n    return x\n"
        "def many(x):\n    held = hold()\n    yield x\n"
        "def caught(x):\n    held = hold()\n    return 1 // x\n"
        "def seen(x):\n    from tests.engine.loops import test_inlined_statements as t\n"
        "    return [each() is not None for each in t.HELD]\n"
    )
    fns = author(text)

    def collected(step: Any, inline: str) -> Any:
        HELD.clear()

        def write(p: Any) -> Any:
            made = p | "step" >> step
            return (made[0] if isinstance(made, tuple) else made) | "seen" >> tg.Map(fns["seen"])

        return ran(write, inline, [0, 1, 2]).outcome

    for step in (
        tg.Map(fns["fn"]),
        tg.Filter(fns["fn"]),
        tg.FlatMap(fns["many"]),
        tg.Map(fns["caught"]).with_exception_handling(),
    ):
        assert collected(step, "on") == collected(step, "off")
        assert len(HELD) > 1


@pytest.mark.parametrize("collector", [True, False])
def test_variables_of_a_failed_call_live_no_longer_than_its_error(collector: bool) -> None:
    """Dead letters have the texts of tracebacks, for which no garbage collection is needed. The error of a run is part
    of cycles, which one frees."""
    text = (
        "def hold():\n    from tests.engine.loops import test_inlined_statements as t\n"
        "    held = t.Held()\n    t.HELD.append(t.weakref.ref(held))\n    return held\n"
        "def fails(x):\n    held = hold()\n    return 1 // x\n"
        "def fails_inside(x):\n    held = hold()\n    return [1 // y for y in [x]]\n"
        "def stops(x):\n    held = hold()\n    yield x\n    yield next(iter([]))\n"
        "def lazy(x):\n    return (1 // (y, hold())[0] for y in [x])\n"
    )
    fns = author(text)

    def dead_letters(p: Any, name: str) -> Any:
        good, bad = p | "step" >> tg.Map(fns[name]).with_exception_handling()
        return bad | "read" >> tg.Map(lambda letter: letter[0]), good

    def fails(p: Any, name: str) -> Any:
        return p | "step" >> (tg.FlatMap if name in ("stops", "lazy") else tg.Map)(fns[name])

    steps = [(fails, name) for name in ("fails", "fails_inside", "stops", "lazy")]
    if not collector:
        steps = [(dead_letters, name) for name in ("fails", "fails_inside")]
        gc.disable()
    try:
        for write, name in steps:
            HELD.clear()
            assert ran(lambda p, write=write, name=name: write(p, name), "on", [0, 0], [0]).inlined > 0
            if collector:
                gc.collect()
            assert [each() for each in HELD] == [None] * (len(HELD) or 1)
    finally:
        gc.enable()


LIVING = (
    "def hold():\n    from tests.engine.loops import test_inlined_statements as t\n"
    "    held = t.Held()\n    t.HELD.append(t.weakref.ref(held))\n    return held\n"
    "def note():\n    from tests.engine.loops import test_inlined_statements as t\n"
    "    t.NOTED.append([each() is not None for each in t.HELD])\n"
    "def kept(x):\n    note()\n    if x:\n        return [hold()]\n    return []\n"
    "def loop(x):\n    for y in ITEMS:\n        yield x, 1\n    note()\n"
)


def living(write: Callable[[Any], Any], inline: str, block_size: int) -> list[str]:
    """Which objects are alive when functions note that, while nobody keeps the blocks that are emitted."""
    made, _ = operator(write, inline)
    made.context.block_size = block_size  # type: ignore[attr-defined]
    HELD.clear()
    NOTED.clear()
    for emitted in made.process(Block([1, 2, 3], 0), "elements"):
        del emitted
    for emitted in made.finish():
        del emitted
    made.close()
    return list(map(str, NOTED))


def test_a_result_lives_no_longer_than_its_block() -> None:
    kept = author(LIVING)["kept"]
    once = lambda x: (x, 1)  # noqa: E731
    for flat in (tg.FlatMap(once), tg.FlatMap(partial(once)).with_output_types(int)):

        def write(p: Any, flat: Any = flat) -> Any:
            return p | "flat" >> flat | "step" >> tg.Map(kept).with_output_types(str)

        for block_size in (1, 2, 3):
            assert living(write, "on", block_size) == living(write, "off", block_size)
            assert len(NOTED) == 6


@pytest.mark.parametrize("items", ["[hold(), hold()]", "iter([hold(), hold()])", "(hold(), hold())"])
def test_items_live_no_longer_than_the_loop_over_them(items: str) -> None:
    loop = author(LIVING.replace("ITEMS", items))["loop"]

    def write(p: Any) -> Any:
        return p | "step" >> tg.FlatMap(loop) | "group" >> tg.CombinePerKey(sum) | tg.Map(str)

    assert living(write, "on", 9) == living(write, "off", 9)
    assert NOTED[0] == [False, True]


@pytest.mark.parametrize(
    ("parameters", "body", "dropped"),
    [
        ("x", "a, b = x\nreturn a + b", ()),
        ("x", "a, b = x\nc = a\nreturn c + b", ("c",)),
        ("x", "a, b = x\nreturn a + len(x)", ("a", "b")),
        ("x", "a, b = x\na = [a]\nreturn a", ("a",)),
        ("x", "a, *b = x\nreturn b", ("b",)),
        ("x", "x = [x]\n(a,) = x\nreturn a", ("x", "a")),
        ("x, y=(0, 1)", "a, b = y\nreturn a + b", ("a", "b")),
    ],
)
def test_only_variables_that_could_keep_a_value_alive_are_set_to_none(
    parameters: str, body: str, dropped: tuple[str, ...]
) -> None:
    step = CalledStep(fn := function(body, parameters), find_body(fn))
    inlined = Inlining([step]).bodies[0]
    assert set(inlined.dropped) == set(dropped)


def test_a_post_mortem_finds_the_variables() -> None:
    fn = function("y = x + 1\nz = w = None\nreturn y / 0\n")
    made, _ = operator(lambda p: p | tg.Map(fn), "on")
    with pytest.raises(TidegateError) as caught:
        list(made.process(Block([7], 0), "elements"))
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__traceback__ is not None
    assert caught.value.__cause__.__traceback__.tb_frame.f_locals == {"x": 7, "d": (1, 2), "y": 8}


def test_elements_that_a_generator_yields_are_emitted_before_it_ends() -> None:
    fn = function("for y in range(x):\n    note(y)\n    yield y")
    made, _ = operator(lambda p: p | tg.FlatMap(fn), "on")
    made.context.block_size = 2  # type: ignore[attr-defined]
    NOTED.clear()
    sizes = []
    for _, block in made.process(Block([7], 0), "elements"):
        sizes.append((len(block), len(NOTED)))
    assert sizes == [(2, 2), (2, 4), (2, 6), (1, 7)]


UNSET = "it may read 'y' before it assigns it"
GENERATOR = "it has a generator expression in it"
CALLED: dict[str, tuple[str, str]] = {
    "a variable that may be unset": ("if x:\n    y = 1\nreturn y", UNSET),
    "a variable of a loop that may not run": ("for y in x:\n    pass\nreturn y", UNSET),
    "a variable of an element before": ("y = y if x else 1\nreturn y", UNSET),
    "a variable after a break": (
        "while True:\n    if x:\n        break\n    y = 1\n    break\nreturn y",
        UNSET,
    ),
    "a walrus that may not run": ("return x and (y := 1), y", UNSET),
    "a walrus of a comprehension": ("z = [y := w for w in x]\nreturn y", UNSET),
    "a walrus of an assertion": ("assert (y := x)\nreturn y", UNSET),
    "del": ("y = 1\ndel y\nreturn x", "it deletes something"),
    "global": ("global g\ng = x", "it assigns a global"),
    "try": ("try:\n    return x\nfinally:\n    pass", "it has a try statement in it"),
    "with": ("with open(x) as file:\n    return file", "it has a with statement in it"),
    "match": ("match x:\n    case 1:\n        return 2", "it has a match statement in it"),
    "import": ("import math\nreturn math.pi", "it imports a module"),
    "a function": ("def f(): return x\nreturn f", "it has a function in it"),
    "a lambda that is kept": ("return [lambda: 0]", "it has a lambda in it"),
    "a lambda of a variable": ("y = x\nreturn sorted([1], key=lambda z: z + y)", "it has a lambda in it"),
    "a lambda with a default": ("return sorted([1], key=lambda z, y=x: z)", "it has a lambda in it"),
    "a lambda in a comprehension": ("return [sorted(y, key=lambda z: z + y) for y in x]", "it has a lambda in it"),
    "a lambda that looks at its caller": (
        "return list(map(lambda y: eval('x'), [x]))",
        "it uses 'eval', which may look at the function's frame",
    ),
    "a generator expression of a variable": ("y = x\nreturn list(y for _ in x)", GENERATOR),
    "a generator expression that assigns": ("y = 0\nreturn any(y := z for z in x)", GENERATOR),
    "many yields": ("yield 1\n" * 5, "it yields at more than 4 places"),
    "the value of a yield": ("y = yield x", "it uses the value of a yield"),
    "yield from": ("yield from x", "it yields from something else"),
    "a yield in try": ("try:\n    yield x\nfinally:\n    pass", "it has a try statement in it"),
    "a yield in with": ("with open(x) as file:\n    yield file", "it has a with statement in it"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLED)
def test_a_function_is_called_if_its_statements_could_mean_something_else(name: str) -> None:
    text, why = CALLED[name]
    assert reason(function(text), step=tg.FlatMap) == why


def test_a_lambda_for_another_function_of_the_name_sorted_is_called() -> None:
    fn = author("def sorted(x, key): return key\nfn = lambda x: sorted(x, key=lambda y: y)")["fn"]
    assert ran(lambda p: p | tg.Map(fn) | tg.Map(lambda f: f(3)), "on", [1]).outcome.out[0][1] == "int: 3"
    assert reason(fn) != ""


# -- random functions

STEPS: dict[str, Callable[[Any], Any]] = {
    "map": tg.Map,
    "filter": tg.Filter,
    "flat map": tg.FlatMap,
    "map tuple": tg.MapTuple,
    "flat map tuple": tg.FlatMapTuple,
    "dead letters": lambda fn: tg.Map(fn).with_exception_handling(),
    "generator": tg.FlatMap,
    "generator of items": tg.FlatMapTuple,
}


def _compiled(body: str, parameters: str) -> Any:
    try:
        return function(body.replace("GIVEN", ""), parameters)
    except SyntaxError:  # break outside of a loop, or a line end in an f-string before Python 3.12
        return None


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_random_functions_do_the_same_called_and_inlined(pytestconfig: pytest.Config) -> None:
    inlined = dict.fromkeys(STEPS, 0)

    @settings(max_examples=pytestconfig.getoption("inlined_functions") // 6)
    @given(
        BODIES,
        VALUES,
        st.sampled_from(sorted(STEPS)),
        st.sampled_from(["", PRELUDE, PRELUDE]),
        st.booleans(),
        st.integers(1, 3),
    )
    def check(body: str, values: list[Any], step: str, prelude: str, follow: bool, yields: int) -> None:
        text = prelude + body
        if step.startswith("generator"):
            text = text.replace("YIELD", "yield", yields)
            assume("yield" in text)
        tuples = step.endswith(("tuple", "items"))
        fn = _compiled(text.replace("YIELD", "note"), "x, d=(1, 2)")
        assume(fn is not None)
        if tuples:
            values = [(value, 1) if number % 2 else value for number, value in enumerate(values)]

        def write(p: Any) -> Any:
            made = p | "step" >> STEPS[step](fn)
            made = made[0] if step == "dead letters" else made
            if follow:
                made = made | "show" >> tg.Map(shown) | "cut" >> tg.Filter(lambda y: len(y) % 3)
            return made

        inlined[step] += both(write, *([value] for value in values), values)
        inlined[step] += both(write, values, checks="all")

    shown = function("note('shown', x)\nreturn repr(x)", "x")
    check()
    assert sum(inlined.values()) > 0


def test_a_variable_of_an_element_before_is_not_read() -> None:
    fn = function("if x:\n    y = x\nreturn y")
    assert "UnboundLocalError" in ran(lambda p: p | tg.Map(fn), "on", [1, 0]).outcome.failure[1]

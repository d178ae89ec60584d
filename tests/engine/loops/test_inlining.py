"""Functions whose text stands in the loop: nothing but speed can show it."""

from __future__ import annotations

import inspect
import logging
import math
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.engine.loops import random_functions
from tests.engine.loops.inlined_steps import ELEMENTS, Ran, author, compare, operator, ran, reason
from tests.engine.loops.random_functions import EXPRESSIONS, function
from tests.support.operator_driver import context, read
from tidegate import TimestampedValue
from tidegate.runners.engine.elementwise import chain
from tidegate.runners.engine.factory import build
from tidegate.runners.engine.loops.inlining import INLINED, Inlining
from tidegate.runners.engine.loops.loop_tree import printed
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import TidegateError

NOTED: list[str] = []
"""Side effects of functions that have been pickled, which import this module when they run."""

LIMIT = 3
TABLE = {1: "one", 2: "two"}


def adder(n: Any) -> Any:
    return lambda x: x + n


def one_return(x: Any) -> Any:
    """A documented function."""
    return x * LIMIT


def shout(x: Any) -> str:
    return f"{x}!"


FUNCTIONS: dict[str, Any] = {
    "an operator": lambda x: x + 1,
    "a global": lambda x: x * LIMIT,
    "a captured variable": adder(2),
    "a function of one return": one_return,
    "a function with a default": lambda x, y=(1, 2): (x, y),
    "a builtin": lambda x: len(str(x)),
    "a function of the author's": lambda x: shout(x),
    "a method": lambda x: str(x).upper().join(["a", "b"]),
    "a module's function": lambda x: math.log(x, 2),
    "a constant": lambda x: "text",
    "a parameter read twice": lambda x: (x, x, [x]),
    "a conditional": lambda x: x if x else LIMIT,
    "a chain of comparisons": lambda x: 0 < x <= LIMIT,
    "and, or, not": lambda x: (x and not LIMIT) or x,
    "displays": lambda x: ([x], {x}, {x: x, **TABLE}, (*[x], 1)),
    "a slice": lambda x: x[1:2],
    "a subscript": lambda x: TABLE[x],
    "an f-string": lambda x: f"{x!r:>{LIMIT}} {x}",
    "a list comprehension": lambda x: [y + x for y in range(x) if y < LIMIT for z in (y,)],
    "a set comprehension": lambda x: {-y for y in range(x)},
    "a dict comprehension": lambda x: {y: -y for y in range(x)},
    "comprehensions in one another": lambda x: [[y * z for z in range(y)] for y in range(x)],
    "a comprehension over its parameter's name": lambda x: [-x for x in range(x)],
    "star-arguments": lambda x: max(*x, *x, key=shout),
    "star-keywords": lambda x: dict({1: x}, **x),
    "several lines": lambda x: [
        x,
        1 // x,
    ],
    "letters that are not ASCII": lambda größe: "é" + größe,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_inlined_function_is_the_function(name: str) -> None:
    fn = FUNCTIONS[name]
    assert reason(fn) == ""
    for element in ELEMENTS:
        compare(lambda p: p | tg.Map(fn), [element])
        compare(lambda p: p | tg.Filter(fn), [element])
        compare(lambda p: p | tg.FlatMap(fn), [element])
        compare(lambda p: p | "first" >> tg.Map(fn) | "second" >> tg.Map(lambda x: [x]), [element])


def test_steps_of_one_loop_do_not_mix_their_names() -> None:
    def write(p: Any) -> Any:
        first = p | "a" >> tg.Map(adder(1)) | "b" >> tg.Map(adder(10)) | "c" >> tg.Map(lambda v0: v0 + LIMIT)
        second = (
            first | "d" >> tg.Map(lambda out, t=100: out + t) | "e" >> tg.FlatMap(lambda i: [v + i for v in (1, 2)])
        )
        return second | "f" >> tg.Filter(lambda block: block % 2) | "g" >> tg.Map(lambda x, n: x + n, 1000)

    assert [value for _, value, _ in compare(write, range(4)).out] == [f"int: {1115 + n + n % 2}" for n in range(4)]


def test_arguments_are_those_that_the_engine_passes() -> None:
    def stamped(x: Any, at: Any = tg.DoFn.TimestampParam) -> Any:
        return (x, at, at)

    def windowed(x: Any, window: Any = tg.DoFn.WindowParam, *, factor: int) -> Any:
        return (x, window.max_timestamp(), factor)

    def write(p: Any) -> Any:
        return p | "times" >> tg.Map(stamped) | "windows" >> tg.Map(windowed, factor=3)

    out = compare(write, [1, 2], times=True).out
    assert out[1][1].startswith(
        "tuple: ((2, Timestamp(1970-01-01T00:00:00.000001Z), Timestamp(1970-01-01T00:00:00.000001Z)), "
    )


def test_dead_letters_show_the_authors_lines() -> None:
    def write(p: Any) -> Any:
        good, bad = p | "divide" >> tg.Map(lambda x: 10 // x).with_exception_handling()
        bad | "bad" >> tg.Map(lambda letter: letter)
        return good | "good" >> tg.Map(lambda x: x)

    def collected(inline: str) -> tuple[list[Any], int]:
        pipeline = tg.Pipeline()
        write(pipeline | "elements" >> tg.Create([0]))
        made = plan(pipeline.sealed(values=True), Traits(parallel=False))
        world = context()
        world.inline = inline  # type: ignore[assignment]
        step = next(step for step in made.steps if step.head.label == "divide")
        operator = build(step, made, world)
        operator.open()
        out = list(read(operator.process(Block([5, 0, "a", None], 0), "elements")))
        list(operator.finish_bundle())
        return out, sum(n for key, n in world.metrics.counters.items() if key.name == INLINED)

    called, none = collected("off")
    inlined, some = collected("on")
    assert inlined == called
    assert none == 0 < some
    letters = [value for collection, value, _, _ in called if collection.endswith("bad")]
    assert [letter[0] for letter in letters] == [0, "a", None]
    assert letters[0][1][0] == "ZeroDivisionError"
    assert any("in <lambda>" in line for line in letters[0][1][2])


def failing(x: Any) -> Any:
    raise ValueError(f"no {x}")


def test_the_traceback_of_a_failure_is_that_of_a_call() -> None:
    fails = lambda x: [  # noqa: E731
        x,
        failing(x) + 1,
    ]
    outcome = compare(lambda p: p | tg.Map(fails), [7])
    name, message, *lines = outcome.failure
    assert name == "UserCodeError"
    assert message.startswith("ValueError: no 7\n  in step 'Map(<lambda>)', applied at ")
    assert message.endswith("\n  element: 7")
    assert [line.splitlines()[0].rpartition(", ")[2] for line in lines[1:-1]] == ["in <lambda>", "in failing"]


def test_a_post_mortem_finds_the_parameters() -> None:
    made, _ = operator(lambda p: p | tg.Map(lambda x, y=5: x / 0 + y + LIMIT), "on")
    with pytest.raises(TidegateError) as caught:
        list(made.process(Block([7], 0), "elements"))
    cause = caught.value.__cause__
    assert cause is not None
    assert cause.__traceback__ is not None
    frame = cause.__traceback__.tb_frame
    assert frame.f_locals == {"x": 7, "y": 5}
    assert frame.f_code.co_name == "<lambda>"
    assert frame.f_code.co_filename == __file__
    assert frame.f_globals["LIMIT"] == LIMIT


def stop(x: Any) -> Any:
    raise StopIteration(x)


def test_a_stop_iteration_is_an_error_as_from_a_call() -> None:
    outcome = compare(lambda p: p | tg.Map(lambda x: stop(x)), [1])
    assert outcome.failure[1].startswith("StopIteration: 1\n")


def count(x: Any) -> Any:
    tg.Metrics.counter("mine", "calls").inc()
    return x


def test_metrics_count_under_the_step_that_is_inlined() -> None:
    def write(p: Any) -> Any:
        first = p | "a" >> tg.Map(lambda x: count(x)) | "b" >> tg.Filter(lambda x: count(x) > 1)
        return first | "c" >> tg.FlatMap(lambda x: [count(y) for y in (x, x)])

    metrics = compare(write, range(5)).metrics
    assert {key.step: n for key, n in metrics.items() if key.namespace == "mine"} == {"a": 5, "b": 5, "c": 6}


# -- names


def test_a_builtin_that_the_module_shadows_is_not_the_builtin() -> None:
    fn = author("len = lambda x: 42\nfn = lambda x: len(x)")["fn"]
    assert compare(lambda p: p | tg.Map(fn), [[]]).out[0][1] == "int: 42"


def test_a_global_that_is_not_set_is_a_name_error() -> None:
    fn = author("fn = lambda x: missing + x")["fn"]
    called, inlined = ran(lambda p: p | tg.Map(fn), "off", [1]), ran(lambda p: p | tg.Map(fn), "on", [1])
    assert inlined == called
    assert inlined.inlined == 0
    assert inlined.outcome.failure[1].startswith("NameError: name 'missing' is not defined")


CHANGES = {
    "a function": "def bump():\n    global n\n    n += 1\n    return n\nfn = lambda x: (bump(), n, bump(), n)",
    "a method": "class A:\n    def bump(self):\n        global n\n        n += 1\nfn = lambda x: (A().bump(), n)",
    "a function in a table": (
        "def bump():\n    global n\n    n += 1\nTABLE = {'a': [bump]}\nfn = lambda x: (TABLE['a'][0](), n)"
    ),
    "a partial function": (
        "import functools\ndef bump(by):\n    def inner():\n        global n\n        n += by\n    inner()\n"
        "more = functools.partial(bump, 2)\nfn = lambda x: (more(), n)"
    ),
    "a decorated function": (
        "import contextlib\n@contextlib.contextmanager\ndef bump():\n    global n\n    n += 1\n    yield n\n"
        "fn = lambda x: (bump().__enter__(), n)"
    ),
    "an attribute of an object": (
        "class A: pass\ndef made():\n    def bump():\n        global n\n        n += 1\n    return bump\n"
        "a = A()\na.bump = made()\nb = a.bump\ndel b, made\nfn = lambda x: (a.bump(), n)"
    ),
    "a registry in an object": (
        "class A: pass\ndef bump():\n    global n\n    n += 1\na = A()\na.b = A()\na.b.known = {1: bump}\ndel bump\n"
        "fn = lambda x: (a.b.known[1](), n)"
    ),
    "a registry in an object in an object": (
        "class A: pass\ndef bump():\n    global n\n    n += 1\na = A()\na.b = A()\na.b.c = A()\n"
        "a.b.c.known = {1: bump}\ndel bump\nfn = lambda x: (a.b.c.known[1](), n)"
    ),
    "a function that is called and changed": (
        "def use(x): return x\nstep = use\ndef bump():\n    global use\n    use = lambda x: -x\n"
        "fn = lambda x: (use(x), bump(), use(x), [use(y) for y in use([1])])"
    ),
    "a generic function": (
        "import functools\n@functools.singledispatch\ndef bump(x): pass\n@bump.register\ndef _(x: int):\n    global n\n"
        "    n += 1\n_ = None\nfn = lambda x: (bump(1), n)"
    ),
    "a generator": (
        "def bumps():\n    global n\n    while True:\n        n += 1\n        yield\nmade = bumps()\ndel bumps\n"
        "fn = lambda x: (next(made), n)"
    ),
    "an attribute of the module": (
        "class Here: pass\nhere = Here()\nhere.__dict__ = globals()\ndef bump(): here.n = n + 1\n"
        "fn = lambda x: (bump(), n)"
    ),
    "globals()": "def bump():\n    globals()['n'] += 1\nfn = lambda x: (bump(), n)",
    "exec": "def bump():\n    exec('global n; n += 1')\nfn = lambda x: (bump(), n)",
    "a deletion": "def bump(x):\n    global n\n    if x > 1:\n        del n\nfn = lambda x: (bump(x), n)",
    "a name that shadows a builtin": (
        "def bump():\n    global len\n    len = str\nfn = lambda x: (len('ab'), bump(), len('ab'))"
    ),
}


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_global_that_other_code_changes_is_read_at_each_use(change: str, beside: bool) -> None:
    """Also in a loop that has the globals of another module, of which it reads more."""
    names = author(f"n = 0\n{CHANGES[change]}")
    before = dict(names)

    def write(p: Any) -> Any:
        if beside:
            p = p | "beside" >> tg.Map(author("a = b = c = d = e = 0\nfn = lambda x: (a, b, c, d, e, x)[5]")["fn"])
        return p | tg.Map(names["fn"])

    def with_the_first_values(inline: str) -> Ran:
        names.clear()
        names.update(before)
        return ran(write, inline, [1, 2], sealed=False)

    called, inlined = with_the_first_values("off"), with_the_first_values("on")
    assert inlined.outcome == called.outcome
    steps = 1 + (beside and change not in CALLED_BESIDE)
    assert inlined.inlined >= 2 * steps > 0 == called.inlined


CALLED_BESIDE = {"an attribute of the module", "globals()", "exec", "a deletion", "a name that shadows a builtin"}
"""What may delete a global, or hide a builtin, which a loop reads once per block, but for those of one module."""


@pytest.mark.parametrize("handled", [False, True])
def test_a_global_that_a_module_without_a_function_in_the_loop_deletes_is_not_defined(handled: bool) -> None:
    names = author("n = 0\nfn = lambda x: (drop(x), n)")
    names["drop"] = author("def drop(x):\n    if x > 1: OWNER.pop('n', None)", OWNER=names)["drop"]
    beside = author("a = b = c = d = e = 0\nfn = lambda x: (a, b, c, d, e, x)[5]")["fn"]

    def write(p: Any) -> Any:
        names["n"] = 0
        step = tg.Map(names["fn"])
        p = p | "beside" >> tg.Map(beside)
        if not handled:
            return p | step
        good, bad = p | step.with_exception_handling()
        return (good, bad | tg.Map(lambda letter: letter)) | tg.Flatten()

    called, inlined = (ran(write, inline, [1, 2], sealed=False) for inline in ("off", "on"))
    assert inlined.outcome == called.outcome
    assert inlined.inlined >= 2 > 0 == called.inlined
    assert "NameError" in str(inlined.outcome)


@pytest.mark.parametrize("name", ["__class__", "__dict__", "__doc__", "__module__", "__slots__", "__init__", "OWN"])
def test_a_global_may_have_a_name_that_all_objects_or_those_of_loops_have(name: str) -> None:
    beside = author("a = b = c = 0\nfn = lambda x: (a, b, c, x)[3]")["fn"]
    fn = author(f"{name} = 5\nfn = lambda x: (x, {name})")["fn"]
    assert compare(lambda p: p | "beside" >> tg.Map(beside) | tg.Map(fn), [1]).out[0][1] == "tuple: (1, 5)"


def test_a_name_of_all_globals_may_change_them() -> None:
    for change in ("NS['len'] = str", "del NS['n']"):
        fn = author(f"n = 0\nNS = globals()\ndef bump(): {change}\ndef fn(x): return bump(), len('ab'), n")["fn"]
        assert reason_beside(fn) == "'NS' has all globals, and by it any of them may change"


def test_globals_in_a_dict_of_another_class_are_not_read_by_module() -> None:
    class Globals(dict[str, Any]):
        pass

    names = Globals(author("n = 1\nfn = lambda x: x + n"))
    fn = FunctionType(names["fn"].__code__, names, "<lambda>")
    assert reason_beside(fn) == "its globals are in a dict of a class of its own"


def reason_beside(fn: Any) -> str:
    """Why a function is called beside one of another module, of which the loop has the globals."""
    beside = author("a = b = c = d = 0\nfn = lambda x: (a, b, c, d, x)[4]")["fn"]
    made, _ = operator(lambda p: p | "beside" >> tg.Map(beside) | tg.Map(fn), "on", sealed=False)
    links: Any = made.links  # type: ignore[attr-defined]
    return Inlining(links).reasons.get(1, "")


DEEP = {
    "a sum": "def fn(x): return x" + " + 1" * 600,
    "a chain of calls": "def fn(x): return str(x)" + ".strip()" * 300,
    "a chain of tests": "def fn(x):\n    if x == 0:\n        return 0\n"
    + "".join(f"    elif x == -{n}:\n        return {n}\n" for n in range(1, 300))
    + "    return x",
}


@pytest.mark.parametrize("name", DEEP)
def test_text_that_is_nested_deeply_is_called(name: str) -> None:
    fn = author(DEEP[name])["fn"]
    assert reason(fn) == "its text is nested too deeply (more than 120 levels)"
    called, inlined = (ran(lambda p: p | tg.Map(fn), inline, [1, 2]) for inline in ("off", "on"))
    assert inlined.outcome == called.outcome
    assert not called.outcome.failure


@pytest.mark.parametrize("shape", ["x", "len([each for each in range(x)])"])
def test_text_that_is_nested_as_deeply_as_may_be_is_inlined(shape: str) -> None:
    fn = author(f"def fn(x): return {shape}" + " + 1" * 100)["fn"]
    assert reason(fn) == ""
    out = compare(lambda p: p | tg.Map(fn) | "more" >> tg.Map(fn), [1, 2]).out
    assert [value for _, value, _ in out] == ["int: 201", "int: 202"]


@pytest.mark.parametrize("beside", [False, True])
def test_a_call_of_what_an_imported_module_has_fails_where_python_says(beside: bool) -> None:
    """Python does not compile it as the call of a method, which has another position."""
    fn = author("import json\ndef fn(x):\n    return (json\n        .loads(x))")["fn"]
    other = author("a = b = c = d = 0\nfn = lambda x: (a, b, c, d, x)[4]")["fn"]
    failure = compare(lambda p: (p | "beside" >> tg.Map(other) if beside else p) | tg.Map(fn), [1]).failure
    assert "TypeError: the JSON object must be" in failure[-1]


def test_a_warning_of_an_operator_has_the_module_of_a_function_that_reads_no_global() -> None:
    names = author("fn = lambda x: x.warns + 1")

    class Warns:
        @property
        def warns(self) -> int:
            warnings.warn("seen", UserWarning, stacklevel=2)
            return 1

    made, _ = operator(lambda p: p | tg.Map(names["fn"]), "on", sealed=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=names["__name__"])
        assert [value for _, value, _, _ in read(made.process(Block([Warns()], 0), "elements"))] == [2]
    assert caught == []
    assert "__warningregistry__" in names


def test_defaults_that_change_between_blocks_have_their_new_values() -> None:
    names = author("def fn(x, by=1, *, more=2): return x + by + more")
    made, _ = operator(lambda p: p | tg.Map(names["fn"]), "on", sealed=False)

    def seen() -> list[Any]:
        return [value for _, value, _, _ in read(made.process(Block([1], 0), "elements"))]

    assert seen() == [4]
    names["fn"].__defaults__ = (10,)
    assert seen() == [13]
    names["fn"].__kwdefaults__["more"] = 20
    assert seen() == [31]


def test_a_function_of_another_module_fails_at_its_own_position() -> None:
    """Its callee is no method that the loop calls, whose positions Python may move."""
    beside = author("a = b = c = 0\nfn = lambda x: (a, b, c, x)[3]")["fn"]
    fn = author("def use(x): raise ValueError(x)\ndef fn(x):\n    return [1, (\n      use\n    )(\n      x)]")["fn"]
    failure = compare(lambda p: p | "beside" >> tg.Map(beside) | tg.Map(fn), [1]).failure
    assert failure[-1] == "ValueError: 1\n"


SETS_ANOTHER = "class Here: pass\nhere = Here()\nhere.__dict__ = space\ndef fn(x):\n    here.n = x\n    return x"
"""A function that sets an attribute of a module, as it seems: the names of another function are the attributes."""


@pytest.mark.parametrize("uses", [1, 2])
def test_a_global_that_code_of_another_module_changes_has_its_value_at_each_use(uses: int) -> None:
    def write(p: Any) -> Any:
        space = author("n = 0\nuse = lambda x: (x, n)")
        made = p | "set" >> tg.Map(author(SETS_ANOTHER, space=space)["fn"])
        for number in range(uses):
            made = made | f"use {number}" >> tg.Map(space["use"])
        return made

    called, inlined = (ran(write, inline, [1, 2], sealed=False) for inline in ("off", "on"))
    assert inlined.outcome == called.outcome
    assert inlined.inlined == 2 * (1 + uses) > called.inlined


def test_a_global_that_changes_between_blocks_has_its_new_value() -> None:
    made, _ = operator(lambda p: p | tg.Map(author("n = 1\nfn = lambda x: x + n")["fn"]), "on")
    links: Any = made.links  # type: ignore[attr-defined]
    assert [value for _, value, _, _ in read(made.process(Block([1], 0), "elements"))] == [2]
    links[0].fn.__globals__["n"] = 10
    assert [value for _, value, _, _ in read(made.process(Block([1], 0), "elements"))] == [11]
    del links[0].fn.__globals__["n"]
    with pytest.raises(TidegateError, match="name 'n' is not defined"):
        list(made.process(Block([1], 0), "elements"))


def test_a_captured_variable_that_another_function_changes_is_read_at_each_use() -> None:
    fn = author(
        "def make():\n    n = 0\n    def bump():\n        nonlocal n\n        n += 1\n"
        "    return lambda x: (bump(), n, bump(), n)\nfn = make()"
    )["fn"]
    made, world = operator(lambda p: p | tg.Map(fn), "on", sealed=False)
    values = [value for _, value, _, _ in read(made.process(Block([1, 2], 0), "elements"))]
    assert values == [(None, 1, None, 2), (None, 3, None, 4)]
    list(made.finish_bundle())
    assert any(key.name == INLINED for key in world.metrics.counters)


def test_a_captured_variable_that_is_not_set_is_a_name_error() -> None:
    fn = author("def make():\n    fn = lambda x: x + n\n    return fn\n    n = 1\nfn = make()")["fn"]
    made, world = operator(lambda p: p | tg.Map(fn), "on", sealed=False)
    with pytest.raises(TidegateError, match="cannot access free variable 'n'"):
        list(made.process(Block([1], 0), "elements"))
    list(made.finish_bundle())
    assert not any(key.name == INLINED for key in world.metrics.counters)


# -- timestamps


def both(element: Any) -> Any:
    return tg.TimestampedValue((element, 1), element)


STAMPING: dict[str, Any] = {
    "an attribute of a module": both,
    "a global": lambda x: TimestampedValue([x], timestamp=x),
    "a value that may need unwrapping": lambda x: TimestampedValue(x, 5),
    "another step's wrapper inside": lambda x: TimestampedValue(tg.TaggedOutput("a", x), 5),
    "a failing value": lambda x: TimestampedValue(1 // x, 5),
    "a failing timestamp": lambda x: TimestampedValue(x, 1 // x),
    "an unpacked timestamp": lambda x: TimestampedValue([x], *(x,)),
    "an unpacked value": lambda x: TimestampedValue(*[(x,)], timestamp=x),
    "no timestamp": lambda x: TimestampedValue(*([x], x), *()),
}
TIMES = (0, 1, -2.5, 2.0000005, True, None, "ab", math.nan, math.inf, 10**30, tg.Timestamp(7), tg.MAX_TIMESTAMP)


@pytest.mark.parametrize("windows", [None, tg.FixedWindows(2), tg.SlidingWindows(4, 2)], ids=str)
@pytest.mark.parametrize("name", STAMPING)
def test_a_timestamped_value_that_is_not_made_sets_the_timestamp(name: str, windows: Any) -> None:
    def write(p: Any) -> Any:
        if windows is not None:
            p = p | "before" >> tg.WindowInto(windows)
        p = p | "stamp" >> tg.Map(STAMPING[name])
        if windows is not None:
            p = p | "after" >> tg.WindowInto(tg.FixedWindows(1))
        return p | "last" >> tg.Map(lambda x: (x, 0))

    outcome = compare(write, *([time] for time in TIMES), [1, 2, 3], times=True)
    assert [t for _, _, t in outcome.out[-3:]] != [0, 1, 2]


def test_a_loop_that_sets_timestamps_makes_no_wrapper(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    whole = chain.generate
    monkeypatch.setattr(chain, "generate", lambda *args: texts.append(printed(source := whole(*args))) or source)
    compare(lambda p: p | tg.Map(both), [1, 2])
    called, inlined = texts
    assert "f0(v0)" in called
    assert "v1 = (v0, 1)\n        t0 = v0\n" in inlined


def test_a_warning_about_a_timestamp_names_the_authors_line() -> None:
    text = "import tidegate as tg\n\nfn = lambda x: tg.TimestampedValue(x, x)\n"

    def warned(inline: str) -> list[tuple[str, int]]:
        fn = author(text)["fn"]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            done = ran(lambda p: p | tg.Map(fn), inline, [1_700_000_000_000])
        assert done.inlined == (inline == "on")
        return [(str(each.message).replace(fn.__code__.co_filename, "F"), each.lineno) for each in caught]

    assert warned("on") == warned("off") != []


# -- what is called


def recursive(x: Any) -> Any:
    return 1 if x < 1 else recursive(x - 1)


CALLED: dict[str, tuple[Any, str]] = {
    "a generator expression": (lambda x: sum(y + x for y in x), "it has a generator expression in it"),
    "a lambda": (lambda x: sorted(x, key=lambda y: -y + x), "it has a lambda in it"),
    "any number of parameters": (lambda *x: x, "it takes any number of arguments"),
    "locals": (lambda x: locals(), "it uses 'locals', which may look at the function's frame"),
    "globals": (lambda x: globals(), "it uses 'globals', which may look at the function's frame"),
    "vars": (lambda x: vars(), "it uses 'vars', which may look at the function's frame"),
    "dir": (lambda x: dir(), "it uses 'dir', which may look at the function's frame"),
    "eval": (lambda x: eval("x"), "it uses 'eval', which may look at the function's frame"),
    "breakpoint": (lambda x: breakpoint(), "it uses 'breakpoint', which may look at the function's frame"),
    "a frame": (
        lambda x: sys._getframe().f_code.co_name,
        "it uses '_getframe', which may look at the function's frame",
    ),
    "inspect": (lambda x: inspect.currentframe(), "it uses 'inspect', which may look at the function's frame"),
    "a warning": (
        lambda x: warnings.warn("w", stacklevel=1),
        "it uses 'warnings', which may look at the function's frame",
    ),
    "logging": (lambda x: logging.info(x), "it uses 'logging', which may look at the function's frame"),
    "a logger of an object": (lambda x: x.log.info("a"), "it uses 'info', which may look at the function's frame"),
    "itself": (recursive, "it calls itself"),
    "a variable of the loop": (lambda x: [-v0 for v0 in x], "the loop has a variable 'v0' of its own"),
    "an attribute assigned by a comprehension": (
        lambda x: [0 for x.a in (1,)],
        "it has a comprehension that assigns to something else than variables",
    ),
    "C": (abs, "its source is not known"),
    "no source": (eval("lambda x: x"), "its source is not known"),
}


@pytest.mark.parametrize("name", CALLED)
def test_a_function_is_called_if_a_loop_could_be_seen(name: str) -> None:
    fn, why = CALLED[name]
    assert reason(fn) == why


def tries(x: Any) -> Any:
    try:
        return x + 1
    except TypeError:
        return None


class Doubled(tg.DoFn):
    def process(self, x: Any) -> Iterator[Any]:
        yield x * 2


def test_dofns_are_inlined() -> None:
    made, _ = operator(lambda p: p | tg.ParDo(Doubled()), "on")
    links: Any = made.links  # type: ignore[attr-defined]
    made_of = Inlining(links)
    assert (set(made_of.bodies), made_of.reasons) == ({0}, {})


def test_off_calls_and_on_calls_for_checked_elements_and_always_inlines() -> None:
    def inlined(**options: str) -> int:
        pipeline = tg.Pipeline(options=options)
        pipeline | tg.Create(range(3000)) | "add" >> tg.Map(lambda x: x + 1)
        found = pipeline.run().metrics().query(INLINED, namespace="tidegate")
        return sum(result.value for result in found)

    assert inlined(inline="off", checks="off") == 0
    assert inlined(inline="on", checks="off") == 3000
    assert 0 < inlined(inline="on") <= 2000
    assert inlined(inline="always") == 3000
    assert inlined(inline="on", checks="all") == 0


def test_a_tracer_or_a_profiler_sees_the_calls() -> None:
    names: list[str] = []

    def trace(frame: Any, event: str, _: Any) -> None:
        names.append(frame.f_code.co_name)

    made, world = operator(lambda p: p | tg.Map(lambda x: x + 1), "on")
    for start in (sys.settrace, sys.setprofile):
        before = sys.gettrace() if start is sys.settrace else sys.getprofile()
        names.clear()
        start(trace)
        try:
            list(made.process(Block([1, 2], 0), "elements"))
        finally:
            start(before)
        assert names.count("<lambda>") >= 2
    list(made.finish_bundle())
    assert not any(key.name == INLINED for key in world.metrics.counters)


# -- random expressions

VALUES = st.lists(st.sampled_from(random_functions.VALUES), min_size=1, max_size=4)
STEPS: dict[str, Callable[[Any], Any]] = {
    "map": tg.Map,
    "filter": tg.Filter,
    "flat_map": tg.FlatMap,
    "dead letters": lambda fn: tg.Map(fn).with_exception_handling(),
}


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_random_expressions_do_the_same_called_and_inlined(pytestconfig: pytest.Config) -> None:
    inlined = 0

    @settings(max_examples=pytestconfig.getoption("inlined_functions") // 6)
    @given(EXPRESSIONS, VALUES, st.sampled_from(sorted(STEPS)))
    def check(expression: str, values: list[Any], step: str) -> None:
        nonlocal inlined
        fn = function(expression)

        def write(p: Any) -> Any:
            made = p | "step" >> STEPS[step](fn)
            return made[0] if step == "dead letters" else made

        seen = {}
        for inline in ("off", "on"):
            random_functions.NOTED.clear()
            each = ran(write, inline, *([value] for value in values))
            seen[inline] = each.outcome, list(random_functions.NOTED)
            inlined += each.inlined
        assert seen["on"] == seen["off"]

    check()
    assert inlined > 0


CHAIN: dict[str, Callable[[], Any]] = {
    "add": lambda: tg.Map(lambda x: x + 1),
    "divide": lambda: tg.Map(lambda x: 12 // (x % 7 - 1)),
    "captured": lambda: tg.Map(adder(LIMIT)),
    "argument": lambda: tg.Map(lambda x, by, n=2: x * by + n, 3),
    "called": lambda: tg.Map(tries),
    "thirds": lambda: tg.Filter(lambda x: x % 3 == 0),
    "large": lambda: tg.Filter(lambda x: x > LIMIT),
    "both": lambda: tg.FlatMap(lambda x: (x + 0, -x)),
    "one": lambda: tg.FlatMap(lambda x: [x * 2]),
    "none": lambda: tg.FlatMap(lambda x: ()),
    "some": lambda: tg.FlatMap(lambda x: [y + x for y in (1, 2, 3)][: x % 4]),
    "windows": lambda: tg.WindowInto(tg.FixedWindows(10)),
    "again": lambda: tg.WindowInto(tg.GlobalWindows()),
}


@given(
    st.lists(st.sampled_from(sorted(CHAIN)), min_size=1, max_size=5),
    st.lists(st.lists(st.integers(-20, 20) | st.just("ab"), max_size=12), min_size=1, max_size=3),
    st.booleans(),
)
def test_random_chains_do_the_same_called_and_inlined(names: list[str], blocks: list[list[Any]], times: bool) -> None:
    def write(p: Any) -> Any:
        p = p | "first" >> tg.Map(lambda x: x)
        for number, name in enumerate(names):
            p = p | f"{name} {number}" >> CHAIN[name]()
        return p

    called, inlined = (ran(write, inline, *blocks, times=times) for inline in ("off", "on"))
    assert inlined.outcome == called.outcome
    assert any(blocks) == (inlined.inlined > 0)


def test_a_chain_whose_counts_follow_from_its_output_is_a_comprehension(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    whole = chain.generate

    def generate(*args: Any) -> Any:
        form = whole(*args)
        texts.append(printed(form))
        return form

    monkeypatch.setattr(chain, "generate", generate)

    def write(p: Any) -> Any:
        first = p | "add" >> tg.Map(lambda x: x + 1) | "thirds" >> tg.Filter(lambda x: x % 3 == 0)
        return first | "both" >> tg.FlatMap(lambda x: (x + 0, -x)) | "double" >> tg.Map(lambda x: x * 2)

    outcome = compare(write, range(10))
    assert [value for _, value, _ in outcome.out] == ["int: 6", "int: -6", "int: 12", "int: -12", "int: 18", "int: -18"]
    counts = {key.step: n for key, n in outcome.metrics.items() if key.name == "elements_out"}
    assert counts == {"add": 10, "thirds": 3, "both": 6, "double": 6}
    assert [text.count(".append(") for text in texts] == ([1, 0] if sys.version_info < (3, 12) else [1, 1])
    failed = compare(write, [2, 5, "a"])
    assert failed.failure[1].endswith("\n  element: 'a'")
    assert "in step 'add'" in failed.failure[1]


# -- into the tables of groupings

FOLDS: dict[str, Callable[[], Any]] = {
    "sum": lambda: tg.CombinePerKey(sum),
    "largest": lambda: tg.CombinePerKey(max),
    "list": lambda: tg.GroupByKey(),
    "elements": lambda: tg.CombinePerElement(len),
}
PAIRS: dict[str, Any] = {
    "pairs": lambda x: (x % 3, x),
    "lists": lambda x: [x % 3, x],
    "stamped pairs": lambda x: TimestampedValue((x % 3, x), x),
    "failing pairs": lambda x: (x % 3, 1 // (x - 5)),
    "failing times": lambda x: TimestampedValue((x % 3, x), 1 // (x - 5)),
    "unfit keys": lambda x: ({x}, x),
    "unfit values": lambda x: (x % 3, str(x)),
    "triples": lambda x: (x, x, x),
}


@pytest.mark.parametrize("windows", [None, tg.FixedWindows(2)], ids=str)
@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("fold", FOLDS)
def test_a_grouping_of_inlined_pairs_is_that_of_called_ones(fold: str, pairs: str, windows: Any) -> None:
    def grouped(inline: str) -> tuple[Any, ...]:
        pipeline = tg.Pipeline(options={"inline": inline, "checks": "off", "type_check": "off"})
        made = pipeline | tg.Create(range(10)) | "pair" >> tg.Map(PAIRS[pairs])
        if windows is not None:
            made = made | tg.WindowInto(windows)
        made | "fold" >> FOLDS[fold]() | "note" >> tg.Map(_note)
        NOTED.clear()
        try:
            metrics = pipeline.run().metrics()
        except TidegateError as error:
            return str(error), traceback.format_exception(error.__cause__)
        counters = {each.key: each.value for each in metrics.query() if each.key.name == "elements_out"}
        assert bool(metrics.query(INLINED)) == (inline == "on")
        return sorted(NOTED), counters

    assert grouped("on") == grouped("off")


def _note(x: Any, window: Any = tg.DoFn.WindowParam) -> None:
    from tests.engine.loops import test_inlining

    test_inlining.NOTED.append(f"{x!r} in {window}")

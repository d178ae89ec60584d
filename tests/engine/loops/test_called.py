"""What is called, always: each construct would give a wrong result if it were inlined."""

from __future__ import annotations

import ast
import importlib
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tidegate as tg
from tests.engine.loops.inlined_steps import author
from tests.support.operator_driver import context, read
from tidegate.runners.engine.factory import build
from tidegate.runners.engine.loops.inlined_body import InlinedBody
from tidegate.runners.engine.loops.inlining import INLINED, Inlining
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import TidegateError
from tidegate.sdk.user_code.body import find_body, proven_node


@dataclass(frozen=True)
class Construct:
    """An author's module whose `fn` uses a construct, and why the function is called.

    The function is run for 1 and 2, unless the module has an `element`.
    """

    text: str
    why: str


FRAMES = "which may look at the function's frame"
CONSTRUCTS: dict[str, Construct] = {
    "a generator expression": Construct(
        "fn = lambda x: (x + y for y in (10, 20))", "it has a generator expression in it"
    ),
    "a lambda": Construct("fn = lambda x: lambda: x", "it has a lambda in it"),
    "a variable that the loop has": Construct(
        "fn = lambda x: [v0 + x for v0 in (10, 20)]", "the loop has a variable 'v0' of its own"
    ),
    "a function": Construct(
        "def fn(x):\n    def later(): return x\n    return later", "it has a function in it"
    ),
    "a global statement": Construct(
        "n = 0\ndef now(): return n\ndef fn(x):\n    global n\n    n += x\n    return now()", "it assigns a global"
    ),
    "a nonlocal statement": Construct(
        "def make():\n    n = 0\n    def fn(x):\n        nonlocal n\n        n += x\n        return n\n    return fn\n"
        "fn = make()",
        "it assigns a variable of the function around it",
    ),
    "a deleted parameter": Construct("def fn(x):\n    del x\n    return 1 / 0", "it deletes something"),
    "star-arguments": Construct("fn = lambda *x: x", "it takes any number of arguments"),
    "locals": Construct("fn = lambda x: sorted(locals())", f"it uses 'locals', {FRAMES}"),
    "globals": Construct("fn = lambda x: '__name__' in globals()", f"it uses 'globals', {FRAMES}"),
    "vars": Construct("fn = lambda x: sorted(vars())", f"it uses 'vars', {FRAMES}"),
    "dir": Construct("fn = lambda x: dir()", f"it uses 'dir', {FRAMES}"),
    "eval": Construct("fn = lambda x: eval('x')", f"it uses 'eval', {FRAMES}"),
    "exec": Construct("fn = lambda x: exec('x + 1')", f"it uses 'exec', {FRAMES}"),
    "breakpoint": Construct("fn = lambda x: breakpoint()", f"it uses 'breakpoint', {FRAMES}"),
    "sys._getframe": Construct(
        "import sys\nfn = lambda x: sys._getframe().f_code.co_name", f"it uses '_getframe', {FRAMES}"
    ),
    "an imported _getframe": Construct(
        "from sys import _getframe as here\nfn = lambda x: here().f_code.co_name", f"it uses 'here', {FRAMES}"
    ),
    "inspect": Construct(
        "import inspect\nfn = lambda x: inspect.currentframe().f_code.co_name", f"it uses 'inspect', {FRAMES}"
    ),
    "warnings.warn": Construct("import warnings\nfn = lambda x: warnings.warn('w')", f"it uses 'warnings', {FRAMES}"),
    "logging": Construct("import logging\nfn = lambda x: logging.warning(x)", f"it uses 'logging', {FRAMES}"),
    "a logger": Construct(
        "import logging\nlog = logging.getLogger('author')\nfn = lambda x: log.error(x)", f"it uses 'log', {FRAMES}"
    ),
    "a logger of an object": Construct(
        "import logging\nclass A:\n    log = logging.getLogger('author')\nfn = lambda x: A.log.error(x)",
        f"it uses 'error', {FRAMES}",
    ),
    "traceback": Construct(
        "import traceback\nfn = lambda x: traceback.extract_stack()[-1].name", f"it uses 'traceback', {FRAMES}"
    ),
    "super, and with it __class__": Construct(
        "class Base:\n    def f(self): return 1\nclass A(Base):\n    up = lambda self: super().f()\n"
        "fn = A.up\nelement = A()",
        "it uses __class__",
    ),
}  # fmt: skip

CHANGING: dict[str, Construct] = {
    "a builtin that a function hides": Construct(
        "def hide():\n    global len\n    len = str\nfn = lambda x: (hide(), len('ab'))",
        "'hide' changes the global 'len'",
    ),
    "a builtin that a method hides": Construct(
        "class A:\n    def hide(self):\n        global len\n        len = str\na = A()\n"
        "fn = lambda x: (a.hide(), len('ab'))",
        "'hide' changes the global 'len'",
    ),
    "a global that a function deletes": Construct(
        "n = 0\ndef drop():\n    global n\n    del n\nfn = lambda x: (x == 2 and drop(), n)",
        "'drop' changes the global 'n'"
    ),
    "globals changed through globals()": Construct(
        "n = 0\ndef bump(): globals()['n'] += 1\nfn = lambda x: (bump(), n)",
        "'bump' uses 'globals', and may change any global",
    ),
    "globals changed by exec": Construct(
        "n = 0\ndef bump(): exec('global n; n += 1')\nfn = lambda x: (bump(), n)",
        "'bump' uses 'exec', and may change any global",
    ),
    "globals changed by setattr on the module": Construct(
        "import sys\nn = 0\nclass Here: pass\nhere = Here()\nhere.__dict__ = globals()\n"
        "def bump(): setattr(here, 'n', n + 1)\nfn = lambda x: (bump(), n)",
        "'bump' uses 'setattr', and may change any global",
    ),
}  # fmt: skip
"""Of the functions in a loop that has the globals of another module."""


class ByForce(Inlining):
    """Inlines all functions, without a question about what is in them."""

    def __init__(self, links: Sequence[Any]) -> None:
        self.bodies = {k: forced_body(link) for k, link in enumerate(links)}
        self.reasons = {}

    def ready(self) -> frozenset[int]:
        return frozenset(self.bodies)


def forced_body(link: Any) -> InlinedBody:
    fn = link.fn
    node = proven_node(link.body, fn)
    assert node is not None
    first = () if isinstance(node, ast.Lambda) else tuple(node.body)
    captured = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    return InlinedBody(
        fn=fn,
        first=first,
        expression=node.body if isinstance(node, ast.Lambda) else None,
        yields=False,
        arguments={fn.__code__.co_varnames[0]: Param("element")},
        items=(),
        defaults={},
        local=(),
        dropped=(),
        globals=tuple(name for name in link.body.names if name not in captured),
        builtins={},
        cells=captured,
        inner={},
    )


@dataclass(frozen=True)
class Seen:
    """What an author can see of a run: results, warnings, records of logs, breakpoints, and the failure."""

    results: list[str]
    noted: list[str]
    failure: str
    inlined: int


OF_ANOTHER_MODULE = "a = b = c = d = 0\nfn = lambda x: (a, b, c, d, x)[4]"


def operator(fn: Any, inlining: Callable[[Sequence[Any]], Inlining], *, beside: bool = False) -> Any:
    """The step that maps a function. `inlining` decides what is inlined. `beside`: in the same loop, after a function
    of another module that reads more globals."""
    pipeline = tg.Pipeline()
    values = pipeline | tg.Create([0])
    if beside:
        values = values | "beside" >> tg.Map(author(OF_ANOTHER_MODULE)["fn"])
    values | "step" >> tg.Map(fn)
    made = plan(pipeline.portable(), Traits(parallel=False))
    world = context()
    world.inline = "on"
    operator: Any = build(made.steps[1], made, world)
    operator._inlining = inlining(operator.links)
    operator.open()
    return operator


def seen(
    fn: Any,
    elements: Sequence[Any],
    *,
    inlining: Callable[[Sequence[Any]], Inlining] = Inlining,
    beside: bool = False,
) -> Seen:
    """Run a block of elements."""
    made = operator(fn, inlining, beside=beside)
    failure, results = "", []
    with noting() as noted:
        try:
            results = [value for _, value, _, _ in read(made.process(Block(list(elements), 0), "elements"))]
        except (TidegateError, SyntaxError) as error:
            cause = error.__cause__ or error
            failure = f"{type(cause).__name__}: {cause}, for the element {getattr(error, 'element', None)}"
    list(made.finish_bundle())
    counters = made.context.metrics.counters
    inlined = sum(n for key, n in counters.items() if (key.step, key.name) == ("step", INLINED))
    made.close()
    return Seen([_shown(value) for value in results], noted, failure, inlined)


def _shown(value: Any) -> str:
    if isinstance(value, Iterator):
        value = list(value)
    elif callable(value):
        value = value()
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@contextmanager
def noting() -> Iterator[list[str]]:
    """Notes what looks at the frame of its caller: by function and line."""
    noted: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            noted.append(f"log in {record.funcName}, line {record.lineno}")

    def hook() -> None:
        frame: FrameType | None = sys._getframe(1)
        assert frame is not None
        noted.append(f"breakpoint in {frame.f_code.co_name}, line {frame.f_lineno}")

    handler = Handler()
    logging.getLogger().addHandler(handler)
    try:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            patch.setattr(sys, "breakpointhook", hook)
            yield noted
    finally:
        logging.getLogger().removeHandler(handler)
    noted += [f"warning in {each.filename.partition(' ')[0]}, line {each.lineno}" for each in caught]


@pytest.mark.parametrize("name", [*CONSTRUCTS, *CHANGING])
def test_a_construct_that_would_give_something_else_in_a_loop_is_called(name: str) -> None:
    construct = (CONSTRUCTS | CHANGING)[name]
    called = run_construct(construct, Inlining)
    assert called.inlined == 0
    assert called == run_construct(construct, Inlining)
    assert reason(construct) == construct.why
    by_force = run_construct(construct, ByForce)
    assert by_force.inlined > 0
    assert replace(by_force, inlined=0) != called


def run_construct(construct: Construct, inlining: Callable[[Sequence[Any]], Inlining]) -> Seen:
    """Run a construct's function in a module of its own."""
    names = author(construct.text)
    elements = [names["element"]] if "element" in names else [1, 2]
    return seen(names["fn"], elements, inlining=inlining, beside=construct in CHANGING.values())


def reason(construct: Construct) -> str:
    """Why the function of a construct is called."""
    made = operator(author(construct.text)["fn"], Inlining, beside=construct in CHANGING.values())
    return str(made._inlining.reasons[len(made.links) - 1])


def test_a_lambda_would_see_the_element_that_comes_last() -> None:
    construct = CONSTRUCTS["a lambda"]
    assert run_construct(construct, Inlining).results == ["1", "2"]
    assert run_construct(construct, ByForce).results == ["2", "2"]


def test_a_generator_expression_would_see_the_element_that_comes_last() -> None:
    construct = CONSTRUCTS["a generator expression"]
    assert run_construct(construct, Inlining).results == ["[11, 21]", "[12, 22]"]
    assert run_construct(construct, ByForce).results == ["[12, 22]", "[12, 22]"]


def test_a_builtin_that_is_hidden_would_be_what_it_was_when_the_block_began() -> None:
    construct = CHANGING["a builtin that a function hides"]
    assert run_construct(construct, Inlining).results == ["(None, 'ab')", "(None, 'ab')"]
    assert run_construct(construct, ByForce).results == ["(None, 2)", "(None, 2)"]


RELOADED = """
import importlib
import sys
n = vars(sys.modules[__name__]).get("n", -1) + 1
def again(): importlib.reload(sys.modules[__name__])
fn = lambda x: (again(), n)
"""


def test_a_global_of_a_module_that_is_reloaded_would_have_the_value_that_it_had_when_the_block_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_reloaded_author.py").write_text(RELOADED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "a_reloaded_author", raising=False)
    fn = importlib.import_module("a_reloaded_author").fn
    made = operator(fn, Inlining, beside=True)
    assert made._inlining.reasons == {1: "'again' uses 'reload', and may change any global"}
    called = seen(fn, [1, 2], beside=True)
    by_force = seen(fn, [1, 2], inlining=ByForce, beside=True)
    assert (called.results, called.inlined) == (["(None, 1)", "(None, 2)"], 0)
    assert (by_force.results, by_force.inlined) == (["(None, 2)", "(None, 2)"], 2)


def test_an_await_would_be_no_python_in_a_loop() -> None:
    """A coroutine function has no body that could be inlined; its text by force is none that Python compiles."""
    text = "async def fn(x):\n    return await x"
    fn = author(text)["fn"]
    made = operator(lambda x: x, ByForce)
    (body,) = made._inlining.bodies.values()
    assert find_body(fn) is None
    result = ast.parse(text).body[0].body[0].value  # type: ignore[attr-defined]
    made._inlining.bodies = {0: replace(body, fn=fn, expression=result)}
    with pytest.raises(SyntaxError, match="'await' outside async function"):
        list(made.process(Block([1], 0), "elements"))


# -- names that are not set, and builtins


class WithoutNames(ByForce):
    """Leaves the names that a body reads to the loop's own module."""

    def __init__(self, links: Sequence[Any]) -> None:
        super().__init__(links)
        self.bodies = {k: replace(body, globals=()) for k, body in self.bodies.items()}


def test_a_builtin_that_a_module_shadows_would_be_the_builtin_in_the_loop() -> None:
    fn = author("len = lambda x: 42\nfn = lambda x: len(x)")["fn"]
    right = seen(fn, ["a"])
    assert (right.results, right.inlined) == (["42"], 1)
    assert seen(fn, ["a"], inlining=WithoutNames).results == ["1"]


@pytest.mark.parametrize(
    "text",
    [
        "fn = lambda x: x + n",
        "def make():\n    fn = lambda x: x + n\n    return fn\n    n = 1\nfn = make()",
    ],
    ids=["a global", "a captured variable"],
)
def test_a_name_that_is_not_set_would_have_another_error(text: str) -> None:
    fn = author(text)["fn"]
    called = seen(fn, [1])
    assert called.inlined == 0
    assert called.failure.startswith("NameError: ")
    assert "'n'" in called.failure
    assert seen(fn, [1], inlining=ByForce).failure not in ("", called.failure)

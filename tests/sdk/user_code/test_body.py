"""The text of the author's functions: found and proven for each kind of function, and refused wherever it is not
provably what runs."""

from __future__ import annotations

import ast
import asyncio
import functools
import importlib.util
import itertools
import linecache
import math
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle
import pytest

import tidegate as tg
from tidegate.cli.scripts import Script
from tidegate.sdk.user_code import body as module_of_bodies
from tidegate.sdk.user_code.body import Body, class_around, find_body, proven_node
from tidegate.sdk.user_code.user_fn import UserFn

LIMIT = 3
ROOT = Path(__file__).parents[3]


def adder(n: int) -> Callable[[int], int]:
    return lambda x: x + n


def closures_in_a_loop() -> list[Callable[[int], int]]:
    made: list[Callable[[int], int]] = []
    for n in range(3):
        made.append(lambda x: x * n)  # noqa: B023
    return made


def decorated(fn: Any) -> Any:
    return fn


def nested(n: int) -> Any:
    @decorated
    @functools.partial(decorated)
    def add(x: int, *rest: int, base: int = 1, **options: int) -> int:
        """Add."""
        total = x + n  # the sum
        return (
            total
            + base
        )  # fmt: skip

    return add


def early(x: int) -> int:
    if x > LIMIT:
        return x
    for y in range(x):
        x += y
    else:
        x = -x

    return x

    # never reached


def one_line(x: int) -> int: return x + LIMIT  # fmt: skip


class Account:
    __rate = 2
    interest = lambda self: self.__rate  # noqa: E731

    def doubled(self) -> Any:
        return lambda x: x * self.__rate

    def mangled(self, x: int) -> int:
        return x * self.__rate


first, second = lambda x: (x), lambda x: (x)  # fmt: skip
outer_of_two = lambda x, inner=lambda y: (y): inner(x)  # noqa: E731  # fmt: skip
commented = lambda x: (  # why it is so  # noqa: E731
    x + 1  # one more
)
continued = lambda x: \
    x + 1  # noqa: E731  # fmt: skip
several_lines = lambda x: [  # noqa: E731
    y
    for y in x
    if y > LIMIT
]  # fmt: skip

# fmt: off
FOUND: dict[str, tuple[Any, str]] = {
    "a lambda": (lambda x: x + 1, "x + 1"),
    "a closure": (adder(1), "x + n"),
    "a closure made in a loop": (closures_in_a_loop()[1], "x * n"),
    "the first of two equal lambdas on a line": (first, "x"),
    "the second of two equal lambdas on a line": (second, "x"),
    "a lambda with a lambda as default": (outer_of_two, "inner(x)"),
    "the lambda that is a default": (outer_of_two.__defaults__[0], "y"),
    "a lambda in parentheses with comments": (commented, "x + 1"),
    "a lambda on a continued line": (continued, "x + 1"),
    "a lambda of several lines": (several_lines, "[  # noqa: E731\n    y\n    for y in x\n    if y > LIMIT\n]"),
    "all kinds of parameters": (lambda x, /, y, *rest, z=1, **more: (x, y, rest, z, more), "(x, y, rest, z, more)"),
    "a conditional expression": (lambda x: x if x else LIMIT, "x if x else LIMIT"),
    "a constant": (lambda x: "text", '"text"'),
    "no value": (lambda x: None, "None"),
    "a constant of several lines": (lambda x: (
        1, "two"), '(\n        1, "two")'),
    "a conditional expression with a constant": (lambda x: x if x else 0, "x if x else 0"),
    "a condition of constants": (lambda x: "some" if x else "none", '"some" if x else "none"'),
    "an or": (lambda x: (x and LIMIT) or x, "(x and LIMIT) or x"),
    "a walrus": (lambda x: (y := x) + y, "(y := x) + y"),
    "an f-string": (lambda x: f"{x!r:>{LIMIT}} {x + 1}", 'f"{x!r:>{LIMIT}} {x + 1}"'),
    "a text of several lines": (lambda x: """one
  two""" + x, '"""one\n  two""" + x'),
    "letters that are not ASCII": (lambda größe: "é" + größe + "日本" + größe, '"é" + größe + "日本" + größe'),
    "a lambda inside": (lambda x: sorted(x, key=lambda y: -y), "sorted(x, key=lambda y: -y)"),
    "a generator expression inside": (lambda x: sum(y for y in x), "sum(y for y in x)"),
    "a lambda made in a comprehension": ([lambda x: x + n for n in range(2)][1], "x + n"),  # noqa: B023
    "a private name in a class": (Account.interest, "self.__rate"),
    "a private name in a method": (Account().doubled(), "x * self.__rate"),
}
# fmt: on


@pytest.mark.parametrize("name", FOUND)
def test_the_expression_of_a_lambda_is_found(name: str) -> None:
    fn, text = FOUND[name]
    body = find_body(fn)
    assert body is not None
    assert body.text == text
    assert body.file == __file__


def generator(x: int) -> Iterator[int]:
    for y in range(x):
        yield y + 1


def imported_modules(x: int) -> int:
    return math.floor(x.bit_length()) + max(x, math.gcd(x, x.bit_length()))


def named_as_a_module(x: Any, math: Any) -> Any:
    return min(x, math.floor(x.bit_length()), key=x.get)


DEFS: dict[str, tuple[Any, str, str]] = {
    "a function that calls imported modules": (imported_modules, "def imported_modules(", "x.bit_length()))"),
    "a parameter named as a module": (named_as_a_module, "def named_as_a_module(", "key=x.get)"),
    "a generator": (generator, "def generator(x: int)", "yield y + 1"),
    "a function": (early, "def early(x: int) -> int:", "return x"),
    "a function on one line": (one_line, "def one_line(x: int)", "return x + LIMIT"),
    "a decorated closure": (nested(1), "    def add(x: int, *rest", ")  # fmt: skip"),
    "a method with a private name": (Account.mangled, "    def mangled(self, x: int)", "return x * self.__rate"),
}


@pytest.mark.parametrize("name", DEFS)
def test_the_statement_of_a_function_is_found(name: str) -> None:
    fn, begin, end = DEFS[name]
    body = find_body(fn)
    assert body is not None
    assert body.text.startswith(begin)
    assert end.removesuffix("  # fmt: skip") in body.text.splitlines()[-1]


@pytest.mark.parametrize("name", [*FOUND, *DEFS])
def test_the_text_is_proven_again_after_the_function_was_pickled(name: str) -> None:
    fn = (FOUND | DEFS)[name][0]
    body = find_body(fn)
    assert body is not None
    loaded = cloudpickle.loads(cloudpickle.dumps(fn))
    node = proven_node(body, loaded)
    assert isinstance(node, (ast.Lambda, ast.FunctionDef))


def test_a_node_stands_where_the_author_wrote_it() -> None:
    fn = FOUND["a lambda of several lines"][0]
    body = find_body(fn)
    assert body is not None
    node = proven_node(body, fn)
    assert isinstance(node, ast.Lambda)
    lines = Path(__file__).read_text().splitlines()
    assert lines[node.body.lineno - 1][: node.body.col_offset] == "several_lines = lambda x: "
    assert node.body.end_lineno is not None
    assert lines[node.body.end_lineno - 1][: node.body.end_col_offset] == "]"


def test_parameters_and_the_names_read_are_recorded() -> None:
    many = find_body(FOUND["all kinds of parameters"][0])
    assert many is not None
    assert many.parameters == ("x", "y", "z", "*rest", "**more")
    read = find_body(lambda x: [adder(LIMIT)(y) + len(x) for y in x if y > math.pi])
    assert read is not None
    assert read.names == ("LIMIT", "adder", "len", "math")
    captured = find_body(adder(1))
    assert captured is not None
    assert captured.names == ("n",)


async def coroutine(x: int) -> int:
    await asyncio.sleep(0)
    return x


class Callable_:
    def __call__(self, x: int) -> int:
        return x


def asserting(x: int) -> int:
    assert x > 0
    return x


NOT_FOUND: dict[str, Any] = {
    "a coroutine function": coroutine,
    "a function written in C": math.sqrt,
    "a method of a builtin type": str.upper,
    "a class": int,
    "an object with __call__": Callable_(),
    "a bound method": Callable_().__call__,
    "a partial": functools.partial(early, 1),
    "a function whose asserts pytest has rewritten": asserting,
    "a function without a file": eval("lambda x: x + 1"),
    "nothing": None,
}


@pytest.mark.parametrize("name", NOT_FOUND)
def test_what_is_no_plain_function_of_a_file_has_no_body(name: str) -> None:
    assert find_body(NOT_FOUND[name]) is None


_numbers = itertools.count()


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"author_{next(_numbers)}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # which dataclasses look for
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


def test_what_python_warns_about_when_it_compiles_a_text_is_not_warned_of_again(tmp_path: Path) -> None:
    path = tmp_path / "author.py"
    path.write_text("def five(x):\n    return x is 5\n\nescaped = lambda x: '\\d'\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = imported(path)
    for fn in (module.five, module.escaped):  # warnings are errors here
        body = find_body(fn)
        assert body is not None
        module_of_bodies._proofs.clear()
        assert proven_node(body, fn) is not None
        assert proven_node(body, fn) is not None


def test_a_filter_of_warnings_that_is_added_while_a_text_is_compiled_again_remains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compile_beside_others(*args: Any, **options: Any) -> Any:
        warnings.filterwarnings("ignore", message="mine")  # as another thread may at any time
        return compile(*args, **options)

    module_of_bodies._found.clear()
    monkeypatch.setattr(module_of_bodies, "compile", compile_beside_others, raising=False)
    with warnings.catch_warnings():
        assert find_body(adder(10)) is not None
        warnings.warn("mine", stacklevel=1)  # warnings are errors here


WARNED = """
same = lambda x: x is 1

def matches(x):
    return "\\d" if x is 1 else None
"""


def test_only_python_warns_of_what_the_author_has_written(tmp_path: Path) -> None:
    path = tmp_path / "warned.py"
    path.write_text(WARNED)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = imported(path)
    assert len(caught) == 3
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Script(path.read_bytes())
        for fn in (module.same, module.matches):
            assert proven_node(find_body(fn), cloudpickle.loads(cloudpickle.dumps(fn))) is not None  # type: ignore[arg-type]
        p = tg.Pipeline(options=["--inline=always"])
        ran = p | tg.Create([1, 2]) | tg.Map(module.matches) | tg.Filter(module.same) | tg.FlatMap(module.same)
        assert ran.collect() == []
    assert [str(each.message) for each in caught] == []


def test_an_edited_file_gives_no_body(tmp_path: Path) -> None:
    path = tmp_path / "author.py"
    path.write_text("fn = lambda x: x + 1\n")
    module = imported(path)
    path.write_text("fn = lambda x: x + 2\n")
    assert find_body(module.fn) is None


@pytest.mark.parametrize(
    "after",
    ["fn = lambda x: x * 1\n", "fn  = lambda x: x + 1\n", "\nfn = lambda x: x + 1\n", ""],
    ids=["another operator", "another column", "another line", "empty"],
)
def test_a_file_that_differs_in_any_way_gives_no_body(tmp_path: Path, after: str) -> None:
    path = tmp_path / "author.py"
    path.write_text("fn = lambda x: x + 1\n")
    module = imported(path)
    path.write_text(after)
    linecache.checkcache(str(path))
    assert find_body(module.fn) is None


def test_an_edit_elsewhere_in_the_file_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "author.py"
    path.write_text("fn = lambda x: x + 1\nother = 1\n")
    module = imported(path)
    path.write_text("fn = lambda x: x + 1\nother = {  # half written")
    body = find_body(module.fn)
    assert body is not None
    assert body.text == "x + 1"


def test_a_body_recorded_for_another_function_proves_nothing(tmp_path: Path) -> None:
    body = find_body(first)
    assert body is not None
    assert proven_node(body, first) is not None
    assert proven_node(body, second) is None
    assert proven_node(body, early) is None
    assert proven_node(body, math.sqrt) is None
    for text in ("y", "x +", ")", "x\n)\n(", "x" * 5, ""):
        assert proven_node(Body(text, body.file, body.line, body.column), first) is None


@pytest.mark.parametrize("const", [1.0, True, 2], ids=repr)
def test_a_function_with_an_equal_constant_of_another_type_is_another_function(const: object) -> None:
    fn = lambda x: x + 1  # noqa: E731
    body = find_body(fn)
    assert body is not None
    consts = tuple(const if each == 1 else each for each in fn.__code__.co_consts)
    assert proven_node(body, FunctionType(fn.__code__.replace(co_consts=consts), {})) is None
    assert proven_node(body, FunctionType(fn.__code__, {})) is not None


def test_a_module_with_future_annotations_and_tabs_is_read(tmp_path: Path) -> None:
    path = tmp_path / "author.py"
    path.write_text("from __future__ import annotations\nclass A:\n\tdef f(self, x: Unknown):\n\t\treturn x\n")
    module = imported(path)
    body = find_body(module.A.f)
    assert body is not None
    assert body.text == "\tdef f(self, x: Unknown):\n\t\treturn x"


def test_the_source_in_a_zipped_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "authors.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped_author.py", "fn = lambda x: x + 1\n")
    monkeypatch.syspath_prepend(str(archive))
    module = importlib.import_module("zipped_author")
    monkeypatch.delitem(sys.modules, "zipped_author")
    body = find_body(module.fn)
    assert body is not None
    assert body.text == "x + 1"


def test_a_cell_of_a_notebook_is_read_from_the_line_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "fn = lambda x: x + 1\n"
    monkeypatch.setitem(linecache.cache, "<cell 1>", (len(text), None, [text], "<cell 1>"))
    names: dict[str, Any] = {}
    exec(compile(text, "<cell 1>", "exec"), names)
    body = find_body(names["fn"])
    assert body is not None
    assert (body.text, body.file, body.line) == ("x + 1", "<cell 1>", 1)


SCRIPT = """
from tidegate.sdk.user_code.body import find_body
def fn(x):
    assert x
    return x + 1
for body in (find_body(fn), find_body(lambda x: x + 1)):
    print(body and body.text)
"""


@pytest.mark.parametrize(
    ("flags", "printed"),
    [
        ((), "def fn(x):\n    assert x\n    return x + 1\nx + 1\n"),
        (("-O",), "def fn(x):\n    assert x\n    return x + 1\nx + 1\n"),
        (("-X", "no_debug_ranges"), "None\nNone\n"),
    ],
    ids=["plain", "-O", "no_debug_ranges"],
)
def test_flags_of_python_are_respected(tmp_path: Path, flags: tuple[str, ...], printed: str) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, *flags, path], capture_output=True, text=True, check=True, cwd=ROOT, env={"PYTHONPATH": "."}
    )
    assert done.stdout == printed


def test_an_untested_python_finds_and_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    body = find_body(first)
    assert body is not None
    monkeypatch.setattr(module_of_bodies, "_TESTED", False)
    assert find_body(first) is None
    assert proven_node(body, first) is None


@pytest.mark.parametrize(
    ("version", "found"), [((3, 10), False), ((3, 11), True), ((3, 13), True), ((3, 14), False), ((4, 0), False)]
)
def test_only_the_tested_versions_of_python_have_bodies(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], found: bool
) -> None:
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    planted = imported(Path(module_of_bodies.__file__))
    monkeypatch.undo()
    assert (planted.find_body(first) is not None) == found


def test_the_class_that_mangles_private_names_is_the_innermost() -> None:
    assert class_around(Account.mangled.__code__) == "Account"
    assert class_around(Account().doubled().__code__) == "Account"
    assert class_around(early.__code__) == ""
    assert class_around(adder(1).__code__) == ""


def test_a_lambda_is_shown_by_its_expression_and_anything_else_by_its_name() -> None:
    assert UserFn.of(lambda x: x + 1).shown == "x + 1"
    assert UserFn.of(several_lines).shown == "[ # noqa: E731 y for y in x if y > LIMIT ]"
    long = UserFn.of(lambda x: x + 1111111111 + 1111111111 + 1111111111 + 1111111111 + 1111111111)
    assert long.shown == "x + 1111111111 + 1111111111 + 1111111111 + 1111111111 + 111…"
    assert UserFn.of(early).shown == "early"
    assert UserFn.of(str.upper).shown == "str.upper"
    assert UserFn.of(eval("lambda x: x + 1")).shown == "<lambda>"

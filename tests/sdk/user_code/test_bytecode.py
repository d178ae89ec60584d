"""Properties of functions read off bytecode, that of this interpreter and that of Python 3.14."""

from __future__ import annotations

import dis
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import tidegate as tg
from tidegate.sdk.user_code import bytecode
from tidegate.sdk.user_code.bytecode import emits_plain
from tidegate.testing import TestPipeline, assert_that, equal_to


@dataclass(frozen=True)
class Written:
    """An instruction as `dis` describes it."""

    opname: str
    argrepr: str = ""
    is_jump_target: bool = False


BORROWED = Written("LOAD_FAST_BORROW", "x")
RETURN = Written("RETURN_VALUE")


def of_3_14(*body: Written) -> list[Written]:
    return [Written("RESUME", "0"), *body, RETURN]


@pytest.mark.parametrize(
    ("fn", "form", "plain"),
    [
        (lambda x: x[0], "map", False),
        (lambda x: x["name"], "map", False),
        (lambda x: x[0][1], "map", False),
        (lambda x: x[1:], "map", False),
        (lambda x: x + 1, "map", True),
        (lambda x: x[0] + x[1], "map", True),
        (lambda x: (x[0], x[1]), "map", True),
        (lambda x: -x, "map", True),
        (lambda x: x, "map", False),
        (lambda x: [x[0]], "flat_map", False),
        (lambda x: [x, x + 1], "flat_map", True),
        (lambda x: x[0], "flat_map", False),
    ],
)
def test_what_a_function_gives_is_told_by_how_it_is_made(fn: Callable[..., Any], form: str, plain: bool) -> None:
    assert emits_plain(fn, form) is plain


@pytest.mark.parametrize(
    ("body", "form", "plain"),
    [
        # x[0], x[1:], x + 1, x[0] + 1, x += 1, an operator that there is not yet, (x[0],), [x[0]], [x + 1]
        ([BORROWED, Written("LOAD_SMALL_INT", "0"), Written("BINARY_OP", "[]")], "map", False),
        ([BORROWED, Written("LOAD_CONST", "slice(1, None)"), Written("BINARY_OP", "[]")], "map", False),
        ([BORROWED, Written("LOAD_SMALL_INT", "1"), Written("BINARY_OP", "+")], "map", True),
        (
            [
                BORROWED,
                Written("LOAD_SMALL_INT", "0"),
                Written("BINARY_OP", "[]"),
                Written("LOAD_SMALL_INT", "1"),
                Written("BINARY_OP", "+"),
            ],
            "map",
            True,
        ),
        ([BORROWED, Written("LOAD_SMALL_INT", "1"), Written("BINARY_OP", "**=")], "map", True),
        ([BORROWED, BORROWED, Written("BINARY_OP", "??")], "map", False),
        (
            [BORROWED, Written("LOAD_SMALL_INT", "0"), Written("BINARY_OP", "[]"), Written("BUILD_TUPLE", "1")],
            "map",
            True,
        ),
        (
            [BORROWED, Written("LOAD_SMALL_INT", "0"), Written("BINARY_OP", "[]"), Written("BUILD_LIST", "1")],
            "flat_map",
            False,
        ),
        (
            [BORROWED, Written("LOAD_SMALL_INT", "1"), Written("BINARY_OP", "+"), Written("BUILD_LIST", "1")],
            "flat_map",
            True,
        ),
    ],
)
def test_in_python_3_14_a_subscript_is_a_binary_operation_that_gives_what_is_stored(
    monkeypatch: pytest.MonkeyPatch, body: list[Written], form: str, plain: bool
) -> None:
    monkeypatch.setattr(bytecode, "instructions_of", lambda fn: of_3_14(*body))
    assert emits_plain(lambda x: x, form) is plain


def test_every_operator_of_this_interpreter_is_known() -> None:
    for sign in "+ - * / // % @ & | ^ << >> **".split():
        for source in (f"lambda x, y: x {sign} y", f"def f(x, y):\n    x {sign}= y\n    return x"):
            names: dict[str, Any] = {}
            fn = eval(source) if source.startswith("lambda") else exec(source, names) or names["f"]
            (operation,) = [each for each in dis.get_instructions(fn) if each.opname == "BINARY_OP"]
            assert bytecode._operation(operation) == "BINARY_OP"


def test_what_a_step_takes_out_of_its_element_may_be_tagged() -> None:
    with TestPipeline("direct") as pipeline:
        pairs = pipeline | tg.Create([0]) | tg.Map(lambda x: (tg.TaggedOutput("side", x),))
        out = pairs | tg.Map(lambda pair: pair[0]).with_outputs("side")
        assert_that(out.side, equal_to([0]))

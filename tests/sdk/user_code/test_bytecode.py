"""Properties of functions derived from the bytecode of this interpreter and of Python 3.14."""

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
class Instruction:
    """An instruction as `dis` describes it."""

    opname: str
    argrepr: str = ""
    is_jump_target: bool = False


BORROWED = Instruction("LOAD_FAST_BORROW", "x")
RETURN = Instruction("RETURN_VALUE")


def python_3_14_body(*body: Instruction) -> list[Instruction]:
    return [Instruction("RESUME", "0"), *body, RETURN]


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
def test_the_bytecode_shows_whether_a_function_emits_only_new_values(
    fn: Callable[..., Any], form: str, plain: bool
) -> None:
    assert emits_plain(fn, form) is plain


@pytest.mark.parametrize(
    ("body", "form", "plain"),
    [
        # x[0], x[1:], x + 1, x[0] + 1, x += 1, an unknown operator, (x[0],), [x[0]], [x + 1]
        ([BORROWED, Instruction("LOAD_SMALL_INT", "0"), Instruction("BINARY_OP", "[]")], "map", False),
        ([BORROWED, Instruction("LOAD_CONST", "slice(1, None)"), Instruction("BINARY_OP", "[]")], "map", False),
        ([BORROWED, Instruction("LOAD_SMALL_INT", "1"), Instruction("BINARY_OP", "+")], "map", True),
        (
            [
                BORROWED,
                Instruction("LOAD_SMALL_INT", "0"),
                Instruction("BINARY_OP", "[]"),
                Instruction("LOAD_SMALL_INT", "1"),
                Instruction("BINARY_OP", "+"),
            ],
            "map",
            True,
        ),
        ([BORROWED, Instruction("LOAD_SMALL_INT", "1"), Instruction("BINARY_OP", "**=")], "map", True),
        ([BORROWED, BORROWED, Instruction("BINARY_OP", "??")], "map", False),
        (
            [
                BORROWED,
                Instruction("LOAD_SMALL_INT", "0"),
                Instruction("BINARY_OP", "[]"),
                Instruction("BUILD_TUPLE", "1"),
            ],
            "map",
            True,
        ),
        (
            [
                BORROWED,
                Instruction("LOAD_SMALL_INT", "0"),
                Instruction("BINARY_OP", "[]"),
                Instruction("BUILD_LIST", "1"),
            ],
            "flat_map",
            False,
        ),
        (
            [
                BORROWED,
                Instruction("LOAD_SMALL_INT", "1"),
                Instruction("BINARY_OP", "+"),
                Instruction("BUILD_LIST", "1"),
            ],
            "flat_map",
            True,
        ),
    ],
)
def test_in_python_3_14_a_subscript_is_a_binary_operation_that_emits_a_stored_value(
    monkeypatch: pytest.MonkeyPatch, body: list[Instruction], form: str, plain: bool
) -> None:
    monkeypatch.setattr(bytecode, "instructions_of", lambda fn: python_3_14_body(*body))
    assert emits_plain(lambda x: x, form) is plain


def test_every_operator_of_this_interpreter_is_known() -> None:
    for sign in "+ - * / // % @ & | ^ << >> **".split():
        for source in (f"lambda x, y: x {sign} y", f"def f(x, y):\n    x {sign}= y\n    return x"):
            names: dict[str, Any] = {}
            fn = eval(source) if source.startswith("lambda") else exec(source, names) or names["f"]
            (operation,) = [
                instruction for instruction in dis.get_instructions(fn) if instruction.opname == "BINARY_OP"
            ]
            assert bytecode._operation(operation) == "BINARY_OP"


def test_a_value_taken_out_of_an_element_may_be_a_tagged_output() -> None:
    with TestPipeline("direct") as pipeline:
        pairs = pipeline | tg.Create([0]) | tg.Map(lambda x: (tg.TaggedOutput("side", x),))
        out = pairs | tg.Map(lambda pair: pair[0]).with_outputs("side")
        assert_that(out.side, equal_to([0]))

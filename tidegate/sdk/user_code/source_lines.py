"""The line on which a step stands, inside an expression of many lines.

`frame.f_lineno` is the first line of the whole chain for every `|` of it. Python records the positions of each
instruction, so the line of the operand on the right, which is the step, can be found.
"""

from __future__ import annotations

import dis
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Final, TypeAlias

Position: TypeAlias = tuple[int | None, int | None, int | None, int | None]
"""Line, end line, column and end column, as `code.co_positions()` gives them."""

_MOST_CODES: Final = 256
_UNIT: Final = 2
"""Bytes of an instruction. Its caches are instructions of their own in `co_code`."""

_known: Final[dict[int, tuple[CodeType, dict[int, int]]]] = {}
"""By the id of the code, which the entry keeps alive: hashing a code object hashes all that is in it."""


def line_of(frame: FrameType) -> int:
    """The line of what `frame` is doing: of a binary operation, the line on which its right operand begins.

    With `-X no_debug_ranges` Python keeps no columns, and it is the line that tracebacks show.
    """
    return line_at(frame.f_code, frame.f_lasti) or frame.f_lineno


def line_at(code: CodeType, instruction: int) -> int | None:
    """The line on which the right operand of a binary operation of several lines begins; None for any other
    instruction."""
    known = _known.get(id(code))
    if known is None:
        if len(_known) >= _MOST_CODES:
            _known.clear()
        known = _known[id(code)] = (code, _right_operands(code))
    return known[1].get(instruction)


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """A place in code, more exact than a line."""

    code: CodeType
    offset: int

    def in_one_expression_with(self, later: Instruction) -> bool:
        """Whether an expression that has come to `later` has been here, and nothing has been stored since."""
        return (
            self.code is later.code
            and self.offset < later.offset
            and not any(
                self.offset < instruction.offset < later.offset
                and (instruction.opname.startswith("STORE_") or instruction.opname in _ENDS_OF_EXPRESSIONS)
                for instruction in dis.get_instructions(self.code)
            )
        )


def _right_operands(code: CodeType) -> dict[int, int]:
    """Of the binary operations that go over several lines, by offset, the line on which the right operand begins."""
    instructions = code.co_code
    positions: list[Position] = list(code.co_positions())
    found = {}
    for number, (first, last, column, _) in enumerate(positions):
        at = number * _UNIT
        if first != last and first and last and column is not None and _is_operator(instructions, at):
            found[at] = _begin_of_operand(instructions, positions, at, first, last)
    return found


def _is_operator(instructions: bytes, at: int) -> bool:
    """Whether an instruction is a binary operation, and no subscript."""
    return instructions[at] == _BINARY_OP and instructions[at + 1] != _SUBSCRIPT


def _begin_of_operand(instructions: bytes, positions: list[Position], at: int, first: int, begin: int) -> int:
    """The least line of the instructions just before `at` that together leave one value on the stack."""
    values = 0
    while at > 0 and values < 1:
        at -= _UNIT
        if instructions[at] in _NO_EFFECT:
            continue
        values += _effect(instructions, at)
        line = positions[at // _UNIT][0]
        if line is not None and first <= line < begin:
            begin = line
    return begin


def _effect(instructions: bytes, at: int) -> int:
    """How many values the instruction leaves on the stack, less those that it takes from it."""
    operation, argument = instructions[at], instructions[at + 1]
    shift, before = 8, at - _UNIT
    while before >= 0 and instructions[before] == dis.EXTENDED_ARG:
        argument |= instructions[before + 1] << shift
        shift, before = shift + 8, before - _UNIT
    return dis.stack_effect(operation, argument if operation in _WITH_ARGUMENT else None, jump=False)


_BINARY_OP: Final = dis.opmap["BINARY_OP"]
_SUBSCRIPT: Final = next(
    (of.arg for of in dis.get_instructions(compile("a[b]", "", "eval")) if of.opcode == _BINARY_OP), None
)
"""Since Python 3.14 the argument with which BINARY_OP is a subscript; before, that is an instruction of its own."""
_ENDS_OF_EXPRESSIONS: Final = frozenset({"POP_TOP", "RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE"})
_NO_EFFECT: Final = frozenset({dis.opmap["CACHE"], dis.EXTENDED_ARG})
_WITH_ARGUMENT: Final = frozenset(
    getattr(dis, "hasarg", None) or (operation for operation in dis.opmap.values() if operation >= dis.HAVE_ARGUMENT)
)

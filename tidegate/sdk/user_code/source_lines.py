"""The line of a step within an expression of many lines.

For every `|` of a chain of steps, `frame.f_lineno` is the first line of the chain. Python also records the position of
each instruction, from which the line of the right operand, the step, can be found.
"""

from __future__ import annotations

import dis
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Final, TypeAlias

Position: TypeAlias = tuple[int | None, int | None, int | None, int | None]
"""Line, end line, column and end column, as in `code.co_positions()`."""

_CACHED_CODES: Final = 256
_UNIT: Final = 2
"""Bytes of an instruction. Inline caches are separate instructions in `co_code`."""

_cache: Final[dict[int, tuple[CodeType, dict[int, int]]]] = {}
"""Results by the id of the code object, which the entry keeps alive: hashing a code object hashes all its contents."""


def line_of(frame: FrameType) -> int:
    """The line `frame` is executing; for a binary operation, the line on which its right operand begins.

    With `-X no_debug_ranges` Python records no columns, and this is the line that tracebacks show.
    """
    return line_at(frame.f_code, frame.f_lasti) or frame.f_lineno


def line_at(code: CodeType, instruction: int) -> int | None:
    """The line on which the right operand of a binary operation that spans several lines begins; None for any other
    instruction."""
    cached = _cache.get(id(code))
    if cached is None:
        if len(_cache) >= _CACHED_CODES:
            _cache.clear()
        cached = _cache[id(code)] = (code, _right_operands(code))
    return cached[1].get(instruction)


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """A place in code, more precise than a line."""

    code: CodeType
    offset: int

    def in_one_expression_with(self, later: Instruction) -> bool:
        """Whether this instruction and `later` belong to one expression, and no result is stored between them."""
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
    """By offset, for each binary operation that spans several lines, the line on which its right operand begins."""
    instructions = code.co_code
    positions: list[Position] = list(code.co_positions())
    found = {}
    for number, (first, last, column, _) in enumerate(positions):
        at = number * _UNIT
        if first != last and first and last and column is not None and _is_operator(instructions, at):
            found[at] = _begin_of_operand(instructions, positions, at, first, last)
    return found


def _is_operator(instructions: bytes, at: int) -> bool:
    """Whether an instruction is a binary operation other than a subscript."""
    return instructions[at] == _BINARY_OP and instructions[at + 1] != _SUBSCRIPT


def _begin_of_operand(instructions: bytes, positions: list[Position], at: int, first: int, begin: int) -> int:
    """The first line of the instructions before `at` that together push the right operand onto the stack."""
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
    """The net number of values that the instruction pushes onto the stack."""
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
"""Since Python 3.14, the argument with which BINARY_OP is a subscript; None before, when that had its own
instruction."""
_ENDS_OF_EXPRESSIONS: Final = frozenset({"POP_TOP", "RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE"})
_NO_EFFECT: Final = frozenset({dis.opmap["CACHE"], dis.EXTENDED_ARG})
_WITH_ARGUMENT: Final = frozenset(
    getattr(dis, "hasarg", None) or (operation for operation in dis.opmap.values() if operation >= dis.HAVE_ARGUMENT)
)

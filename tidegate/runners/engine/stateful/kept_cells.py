"""Finds out whether the callbacks of a stateful step could keep a cell that they are given, and so `process` see it.

A loop that uses the table of a cell does not point the cell at keys. Nothing shows that if `process` does nothing with
the cell but call its methods, and callbacks, which are given the same object, call its methods, too.
"""

from __future__ import annotations

import sys
from dis import Instruction, get_instructions
from itertools import pairwise
from types import CodeType
from typing import Any

from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.sdk.portable.model import ParDo


def may_keep(link: Link, cell: str) -> bool:
    """Whether a callback of a step does anything with a cell but call its methods."""
    assert isinstance(link.node, ParDo)
    for callback in link.node.callbacks:
        for param in callback.params:
            if param.kind == "state" and param.ref == cell:
                code = getattr(getattr(link.dofn, callback.method), "__code__", None)
                if not isinstance(code, CodeType) or param.keyword is None or _keeps(code, param.keyword):
                    return True
    return False


def _keeps(code: CodeType, parameter: str) -> bool:
    """Whether code uses a parameter in any other way than to call its methods. It does, if a function in it has it."""
    if parameter in code.co_cellvars or parameter not in code.co_varnames:
        return True
    return any(
        _uses(instruction, parameter) and not (_only_loads_last(instruction, parameter) and _is_method(following))
        for instruction, following in pairwise(get_instructions(code))
    )


def _uses(instruction: Instruction, parameter: str) -> bool:
    return "FAST" in instruction.opname and parameter in _variables(instruction)


def _only_loads_last(instruction: Instruction, parameter: str) -> bool:
    """Whether an instruction, which may be one for two variables, loads the parameter as the last thing it does."""
    names = _variables(instruction)
    return instruction.opname.endswith("LOAD_FAST") and names.index(parameter) == len(names) - 1


def _variables(instruction: Instruction) -> tuple[Any, ...]:
    names = instruction.argval
    return names if isinstance(names, tuple) else (names,)


def _is_method(instruction: Instruction) -> bool:
    """Whether an instruction looks up a method that is called."""
    if sys.version_info < (3, 12):
        return instruction.opname == "LOAD_METHOD"
    return instruction.opname == "LOAD_ATTR" and bool((instruction.arg or 0) & 1)

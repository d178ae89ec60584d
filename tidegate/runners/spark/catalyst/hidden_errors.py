"""Expressions of which Spark might not see an error: its optimiser drops operands that can't change a value.

It makes `x + NULL` NULL and `x AND FALSE` FALSE without computing `x`, and drops a condition before a value that is the
default, too. It moves a constant operand into the branches of a conditional beside it, and a row that takes a branch of
NULL never computes the constant. Python, which evaluates operands in their order, fails where one of them does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from tidegate.sdk.relational.binding import is_aggregate, is_of_window, may_fail
from tidegate.sdk.relational.expressions import Call, Case, Column, Literal, Tree, parts, walk
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.operations import OPERATIONS
from tidegate.sdk.relational.python.row_function import RowCode, row_function


def hides_errors(tree: Tree) -> bool:
    """Whether Spark might compute a value of a bound tree where Python fails."""
    match tree:
        case Column() | Literal():
            return False
        case _ if _is_constant(tree):
            return _fails(tree)
        case Call(operation=name, arguments=arguments) if OPERATIONS[name].nulls == "strict":
            if any(map(may_fail, arguments)) and any(_is_always(each, None) for each in arguments):
                return True
    return drops_operand(tree) or any(map(hides_errors, parts(tree)))


def drops_operand(tree: Tree) -> bool:
    """Whether a condition in a bound tree, not in its parts, may fail and doesn't matter for the value otherwise."""
    match tree:
        case Case():
            _, idle, _ = _reduced(tree)
            return any(map(may_fail, idle))
        case Call(operation="and" | "or" as name, arguments=arguments):
            return any(map(may_fail, arguments)) and any(_is_always(each, name == "or") for each in arguments)
        case _:
            return False


_Branches: TypeAlias = list[tuple[Tree, Tree]]


def _reduced(tree: Case) -> tuple[_Branches, list[Tree], Tree]:
    """What Spark makes of a conditional: its branches without those that are never taken and the last ones that are the
    default, the conditions of these last ones, and the default."""
    branches, otherwise = _Branches(), tree.otherwise
    for condition, value in tree.branches:
        if _is_always(condition, True):
            otherwise = value
            break
        if not (_is_always(condition, False) or _is_always(condition, None)):
            branches.append((condition, _simplified(value)))
    otherwise = _simplified(otherwise)
    idle = []
    while branches and branches[-1][1] == otherwise:
        idle.append(branches.pop()[0])
    return branches, idle, otherwise


def _simplified(tree: Tree) -> Tree:
    if not isinstance(tree, Case):
        return tree
    branches, _, otherwise = _reduced(tree)
    return replace(tree, branches=tuple(branches), otherwise=otherwise) if branches else otherwise


def _is_constant(tree: Tree) -> bool:
    return not any(isinstance(each, Column) or is_of_window(each) or is_aggregate(each) for each in walk(tree))


def _fails(constant: Tree) -> bool:
    try:
        _value(constant)
    except ExpressionError:
        return True
    return False


def _is_always(tree: Tree, value: bool | None) -> bool:
    match tree:
        case Literal(value=found):
            return found is value
        case _:
            return _is_constant(tree) and not _fails(tree) and _value(tree) is value


def _value(constant: Tree) -> object:
    return row_function(RowCode((constant,), "item", single=True))({})

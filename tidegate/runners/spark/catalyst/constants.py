"""Constants of expressions beside which Spark would not see errors: its optimiser doesn't keep the order of evaluation.

It makes `x + NULL` NULL without computing `x`. It moves a constant operand into the branches of a conditional beside
it, and a row that takes a branch of NULL never computes the constant. Python, which evaluates operands in their order,
fails in both cases.
"""

from __future__ import annotations

from tidegate.sdk.relational.binding import is_aggregate, is_of_window, may_fail
from tidegate.sdk.relational.expressions import Call, Column, Literal, Tree, parts, walk
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.operations import OPERATIONS
from tidegate.sdk.relational.python.row_function import RowCode, row_function


def hides_errors(tree: Tree) -> bool:
    """Whether a bound tree has a constant that fails, or one that is NULL beside an operand that may fail."""
    match tree:
        case Column() | Literal():
            return False
        case _ if _is_constant(tree):
            return _fails(tree)
        case Call(operation=name, arguments=arguments) if OPERATIONS[name].nulls == "strict":
            if any(map(may_fail, arguments)) and any(map(_is_null, arguments)):
                return True
    return any(map(hides_errors, parts(tree)))


def _is_constant(tree: Tree) -> bool:
    return not any(isinstance(each, Column) or is_of_window(each) or is_aggregate(each) for each in walk(tree))


def _fails(constant: Tree) -> bool:
    try:
        _value(constant)
    except ExpressionError:
        return True
    return False


def _is_null(tree: Tree) -> bool:
    return _is_constant(tree) and not _fails(tree) and _value(tree) is None


def _value(constant: Tree) -> object:
    return row_function(RowCode((constant,), "item", single=True))({})

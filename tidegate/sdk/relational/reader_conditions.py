"""Conditions that readers evaluate: those on single columns, weakened to what a reader of any format can decide.

A reader may keep rows for which a condition is not true, since the step that has it looks at them again. It must not
drop a row for which the condition is true.

>>> from tidegate.sdk.data.columns import BIGINT, BOOLEAN
>>> from tidegate.sdk.relational.expressions import Call, Column, Literal, text
>>> n = Column("n", BIGINT)
>>> least = Call("greater", (n, Literal(3, BIGINT)), BOOLEAN)
>>> odd = Call("equal", (Call("remainder", (n, Literal(2, BIGINT)), BIGINT), Literal(1, BIGINT)), BOOLEAN)
>>> text(weakened(Call("and", (least, odd), BOOLEAN)))
'n > 3'
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tidegate.sdk.data.columns import BIGINT, BOOLEAN, DATE, DOUBLE, STRING, TIMESTAMP, ColumnType, DecimalType
from tidegate.sdk.relational.expressions import Call, Column, Literal, Tree

_FLIPPED: Final = {
    "equal": "equal",
    "not_equal": "not_equal",
    "less": "greater",
    "less_or_equal": "greater_or_equal",
    "greater": "less",
    "greater_or_equal": "less_or_equal",
}
"""The comparisons, and what they are with their operands exchanged."""

_ORDERED: Final = (BIGINT, BOOLEAN, DATE, DOUBLE, STRING, TIMESTAMP)


def conjuncts(condition: Tree) -> Iterator[Tree]:
    """The conditions that AND connects, in the order in which they are evaluated."""
    match condition:
        case Call(operation="and", arguments=(left, right)):
            yield from conjuncts(left)
            yield from conjuncts(right)
        case _:
            yield condition


def weakened(condition: Tree) -> Tree | None:
    """A condition that is true wherever this one is, and that readers can evaluate; None if only `true` is.

    It consists of AND, OR, comparisons of a column with a literal of its type, `is_in` with such literals, `is_null` of
    a column, NOT of that, and columns that are booleans, or NOT of them.
    """
    match condition:
        case Call(operation="and", arguments=(left, right)):
            one, two = weakened(left), weakened(right)
            if one is None or two is None:
                return two if one is None else one
            return replace(condition, arguments=(one, two))
        case Call(operation="or", arguments=(left, right)):
            one, two = weakened(left), weakened(right)
            return None if one is None or two is None else replace(condition, arguments=(one, two))
        case Call(operation=operation, arguments=(Literal() as value, Column() as column)) if operation in _FLIPPED:
            return weakened(replace(condition, operation=_FLIPPED[operation], arguments=(column, value)))
        case Call(operation=operation, arguments=(Column(type=type), Literal() as value)) if operation in _FLIPPED:
            return condition if _is_ordered(type) and _is_plain(value, type) else None
        case Call(operation="is_in", arguments=(Column(type=type), *values)):
            return condition if _is_ordered(type) and all(_is_plain(each, type) for each in values) else None
        case Call(operation="is_null", arguments=(Column(),)):
            return condition
        case Call(operation="not", arguments=(Call(operation="is_null", arguments=(Column(),)),)):
            return condition
        case Column(type=type) | Call(operation="not", arguments=(Column(type=type),)) if type == BOOLEAN:
            return condition
        case _:
            return None


def _is_ordered(type: ColumnType) -> bool:
    return type in _ORDERED or isinstance(type, DecimalType)


def _is_plain(tree: Tree, type: ColumnType) -> bool:
    """Whether a tree is a literal of a type, and neither NULL nor NaN."""
    match tree:
        case Literal(value=value):
            return tree.type == type and value is not None and not (isinstance(value, float) and math.isnan(value))
        case _:
            return False

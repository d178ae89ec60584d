"""Conditions that the planner has given to a reader: which rows of a batch, or row groups, can't meet them.

Values compare as in expressions: a comparison with NULL is not true, and NaN is greater than all numbers. Where Arrow
might see another value than the elements have, nothing is ruled out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from tidegate.io.records.projection import Projected
from tidegate.sdk.data.columns import BIGINT, BOOLEAN, DATE, DOUBLE, STRING, TIMESTAMP, ColumnType, DecimalType
from tidegate.sdk.relational.expressions import Call, Column, Literal, Tree

_KERNELS: Final = {
    "equal": "equal",
    "not_equal": "not_equal",
    "less": "less",
    "less_or_equal": "less_equal",
    "greater": "greater",
    "greater_or_equal": "greater_equal",
}


class Kept(list[Any]):
    """The elements of a chunk that meet the conditions: `rows` are their numbers among all `of` elements of it."""

    def __init__(self, elements: Sequence[Any], rows: Sequence[int], of: int) -> None:
        super().__init__(elements)
        self.rows = rows
        self.of = of


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of a column's values in a row group; None: unknown."""

    least: Any
    greatest: Any
    nulls: int | None
    rows: int


def usable(conditions: Sequence[Tree], columns: Iterable[Projected]) -> Sequence[Tree]:
    """The conditions; none if a row that they leave out could have been an error, since a column's type has values
    that elements can't have."""
    import pyarrow.types as kinds

    for each in columns:
        if kinds.is_uint64(each.type):
            return ()
    return conditions


def mask_of_pushed(conditions: Sequence[Tree], arrays: Mapping[str, Any]) -> Any:
    """Which rows of some Arrow arrays may meet all conditions, as an array of booleans; None for all of them."""
    import pyarrow.compute as pc

    masks = [mask for each in conditions if (mask := _mask(each, arrays)) is not None]
    return reduce(pc.and_, masks) if masks else None


def _mask(condition: Tree, arrays: Mapping[str, Any]) -> Any:
    import pyarrow.compute as pc

    match condition:
        case Call(operation="and", arguments=(left, right)):
            return mask_of_pushed((left, right), arrays)
        case Call(operation="or", arguments=parts):
            masks = [_mask(each, arrays) for each in parts]
            return None if any(each is None for each in masks) else reduce(pc.or_, masks)
        case Call(operation="is_null", arguments=(Column(name=name),)):
            return arrays[name].is_null()
        case Call(operation="not", arguments=(Call(operation="is_null", arguments=(Column(name=name),)),)):
            return arrays[name].is_valid()
    column = _column(condition)
    array = arrays[column.name]
    if not _has_type(array.type, column.type):
        return None
    try:
        return pc.fill_null(_true(condition, array, column.type), False)
    except (ValueError, TypeError, OverflowError, NotImplementedError):  # Arrow's errors are of these classes
        return None


def _true(condition: Tree, array: Any, type: ColumnType) -> Any:
    """Where a condition on one column is true, false or null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    match condition:
        case Call(operation="is_in", arguments=(_, *values)):
            found = [each.value for each in values if isinstance(each, Literal)]
            if type == DOUBLE:
                found += [-each for each in found if each == 0]  # Arrow tells both zeros apart
            known = pa.array(found, _literal_type(array, type))
            return pc.is_in(array.cast(known.type), value_set=known)
        case Call(operation="not"):
            return pc.invert(array)
        case Call(operation=operation, arguments=(_, Literal(value=value))):
            found = getattr(pc, _KERNELS[operation])(array, pa.scalar(value, _literal_type(array, type)))
            if type == DOUBLE and operation in ("greater", "greater_or_equal"):
                found = pc.or_(found, pc.is_nan(array))
            return found
        case _:
            return array


def _literal_type(array: Any, type: ColumnType) -> Any:
    """The type of a literal: that of the column, or one that has more values."""
    import pyarrow as pa

    wide: dict[ColumnType, Any] = {BIGINT: pa.int64(), DOUBLE: pa.float64(), STRING: pa.string()}
    return wide.get(type, array.type)


def _has_type(given: Any, type: ColumnType) -> bool:
    """Whether Arrow's values of a type are those that elements have, as values of the type of a column."""
    import pyarrow.types as kinds

    match type:
        case DecimalType(precision=precision, scale=scale):
            return bool(kinds.is_decimal(given)) and (given.precision, given.scale) == (precision, scale)
        case _ if type == TIMESTAMP:
            return bool(kinds.is_timestamp(given)) and given.tz is not None and given.unit in ("s", "ms", "us")
    checks: dict[ColumnType, Callable[[Any], bool]] = {
        BIGINT: lambda each: kinds.is_integer(each) and not kinds.is_uint64(each),
        DOUBLE: lambda each: kinds.is_float32(each) or kinds.is_float64(each),
        STRING: lambda each: kinds.is_string(each) or kinds.is_large_string(each),
        BOOLEAN: kinds.is_boolean,
        DATE: kinds.is_date32,
    }
    return type in checks and bool(checks[type](given))


def _column(condition: Tree) -> Column:
    """The column of a condition on one column."""
    while isinstance(condition, Call):
        condition = condition.arguments[0]
    assert isinstance(condition, Column)
    return condition


def may_meet(condition: Tree, statistics: Callable[[str], Statistics | None]) -> bool:
    """Whether a row of a row group may meet a condition, by the statistics of its columns."""
    match condition:
        case Call(operation="and", arguments=parts):
            return all(may_meet(each, statistics) for each in parts)
        case Call(operation="or", arguments=parts):
            return any(may_meet(each, statistics) for each in parts)
    column = _column(condition)
    found = statistics(column.name)
    if found is None:
        return True
    match condition:
        case Call(operation="is_null"):
            return found.nulls is None or found.nulls > 0
        case Call(operation="not", arguments=(Call(),)):
            return found.nulls is None or found.nulls < found.rows
    if found.nulls == found.rows:
        return False
    try:
        return _may_be(condition, found.least, found.greatest, has_nan=column.type == DOUBLE)
    except TypeError:
        return True


def _may_be(condition: Tree, least: Any, greatest: Any, *, has_nan: bool) -> bool:
    """Whether a value from `least` to `greatest`, or NaN if there may be one, may meet a condition."""
    if least is None or greatest is None or least != least or greatest != greatest:
        return True
    match condition:
        case Call(operation="is_in", arguments=(_, *values)):
            return any(isinstance(each, Literal) and least <= each.value <= greatest for each in values)
        case Call(operation="equal", arguments=(_, Literal(value=value))):
            return bool(least <= value <= greatest)
        case Call(operation="less", arguments=(_, Literal(value=value))):
            return bool(least < value)
        case Call(operation="less_or_equal", arguments=(_, Literal(value=value))):
            return bool(least <= value)
        case Call(operation="greater", arguments=(_, Literal(value=value))):
            return has_nan or bool(greatest > value)
        case Call(operation="greater_or_equal", arguments=(_, Literal(value=value))):
            return has_nan or bool(greatest >= value)
        case _:
            return True

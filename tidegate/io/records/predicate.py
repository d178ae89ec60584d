"""Conditions on columns (`where=`): `[("country", "==", "DE"), ("amount", ">", 100)]` means that all of them hold.

As in SQL, a comparison with null is not true; `("country", "==", None)` and `"!="` ask whether a value is null.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from tidegate.io.records.types import kind_of
from tidegate.sdk.errors import BuildError, ReadError, shorten
from tidegate.sdk.time import Timestamp

_COMPARISONS: Final[dict[str, tuple[str, Callable[[Any, Any], Any]]]] = {
    "==": ("equal", operator.eq),
    "!=": ("not_equal", operator.ne),
    "<": ("less", operator.lt),
    "<=": ("less_equal", operator.le),
    ">": ("greater", operator.gt),
    ">=": ("greater_equal", operator.ge),
}
_OPERATORS: Final = (*_COMPARISONS, "in", "not in")


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a column's values with a value, or with a tuple of values."""

    column: str
    op: str
    value: Any

    def __str__(self) -> str:
        return f"({self.column!r}, {self.op!r}, {shorten(self.value)})"


def conditions_of(where: Iterable[Sequence[Any]] | None, of: str) -> tuple[Condition, ...]:
    """The conditions that an author gave. Raises BuildError for anything else."""
    if where is None:
        return ()
    found = []
    try:
        given = [tuple(each) for each in where]
    except TypeError:
        given = [()]
    for each in given:
        if len(each) != 3 or not isinstance(each[0], str):
            raise BuildError(f'{of}: where is a list of conditions such as ("amount", ">", 100), not {shorten(where)}')
        column, op, value = each
        op = "==" if op == "=" else op
        if op not in _OPERATORS:
            raise BuildError(f"{of}: where has the operator {op!r}, which is none of {', '.join(_OPERATORS)}")
        if op in ("in", "not in"):
            if isinstance(value, str | bytes) or not isinstance(value, Iterable):
                raise BuildError(f"{of}: in where, {op!r} takes a list of values, not {shorten(value)}")
            value = tuple(map(_plain, value))
        elif value is None and op not in ("==", "!="):
            raise BuildError(f"{of}: in where, nothing is {op} None")
        found.append(Condition(column, op, _plain(value)))
    return tuple(found)


def _plain(value: Any) -> Any:
    return value.to_utc_datetime() if isinstance(value, Timestamp) else value


def mask_of(condition: Condition, column: Any) -> Any:
    """Which values of an Arrow array meet the condition, as an array of booleans without nulls. Raises ReadError if the
    condition's value can't be compared with the column's."""
    import pyarrow as pa
    import pyarrow.compute as pc

    op, value = condition.op, condition.value
    try:
        if op in ("in", "not in"):
            given = [each for each in value if each is not None]
            if kind_of(column.type) == "float":
                given += [-0.0, 0.0] if 0 in given else []  # Arrow tells both zeros apart
            elif kind_of(column.type) == "decimal":
                given = [each for each in given if not isinstance(each, Decimal) or _has_value(column.type, each)]
            known = pa.array(given, column.type)
            found = pc.is_in(column, value_set=known)
            if op == "not in":
                found = pc.and_(pc.invert(found), column.is_valid())
        elif value is None:
            return column.is_null() if op == "==" else column.is_valid()
        else:
            found = getattr(pc, _COMPARISONS[op][0])(column, scalar_of(value, column.type))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise _incomparable(condition, column.type) from error
    return pc.fill_null(found, False)


def _has_value(type: Any, value: Decimal) -> bool:
    """Whether a type of decimals has a value."""
    import pyarrow as pa

    try:
        pa.scalar(value, type)
    except pa.ArrowInvalid:
        return False
    return True


def scalar_of(value: Any, type: Any) -> Any:
    """A value as an Arrow scalar to compare with a column of this type."""
    import pyarrow as pa

    match kind_of(type):
        case "integer" if isinstance(value, float):
            return pa.scalar(value, pa.float64())
        case "integer" if isinstance(value, int) and not isinstance(value, bool):
            return pa.scalar(value)
        case "decimal" if isinstance(value, Decimal) and not _has_value(type, value):
            return pa.scalar(value)
        case "timestamp" if isinstance(value, datetime.datetime) and value.tzinfo is None:
            raise pa.ArrowInvalid("a naive time is no instant")
        case "float" | "decimal" | "integer" if isinstance(value, bool):
            raise pa.ArrowInvalid("a bool is no number")
    return pa.scalar(value, type)


def may_match(condition: Condition, least: Any, greatest: Any, nulls: int | None, rows: int) -> bool:
    """Whether a value between `least` and `greatest` may meet the condition, of `rows` values of which `nulls` are
    null (None: unknown). True if that is unknown."""
    op, value = condition.op, condition.value
    if op in ("==", "!=") and value is None:
        return nulls is None or (nulls > 0 if op == "==" else nulls < rows)
    if nulls is not None and nulls == rows:
        return False
    if least is None or greatest is None:
        return True
    try:
        match op:
            case "==":
                return bool(least <= value <= greatest)
            case "<":
                return bool(least < value)
            case "<=":
                return bool(least <= value)
            case ">":
                return bool(greatest > value)
            case ">=":
                return bool(greatest >= value)
            case "in":
                return any(each is not None and least <= each <= greatest for each in value)
    except TypeError:
        return True
    return True


def matches(conditions: Sequence[Condition], record: Mapping[str, Any]) -> bool:
    """Whether a record meets all conditions. Raises ReadError for values that can't be compared."""
    return all(_holds(condition, record.get(condition.column)) for condition in conditions)


def _holds(condition: Condition, found: Any) -> bool:
    op, value = condition.op, condition.value
    if op in ("in", "not in"):
        return found is not None and (found in value) == (op == "in")
    if value is None:
        return (found is None) == (op == "==")
    if found is None:
        return False
    try:
        return bool(_COMPARISONS[op][1](found, value))
    except TypeError as error:
        raise _incomparable(condition, type(found).__name__) from error


def _incomparable(condition: Condition, type: Any) -> ReadError:
    return ReadError(f"where={condition}: the column is {type}, with which that value can't be compared")

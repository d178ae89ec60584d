"""Interval joins: finding, among conditions, the bounds between the times of two tables."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.sdk.data.columns import TIMESTAMP
from tidegate.sdk.relational.expressions import Call, Column, Literal, Tree
from tidegate.sdk.time import Duration
from tidegate.sql.steps.relation import Relation


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """The conditions mean `lower <= right time - left time <= upper`, for a time column of each side."""

    left: str
    right: str
    lower: Duration
    upper: Duration
    conditions: tuple[Tree, ...]


def time_bounds(conditions: Sequence[Tree], left: Relation, right: Relation) -> TimeBounds | None:
    """The bounds that conditions such as `r.t BETWEEN l.t - INTERVAL '1' HOUR AND l.t` give; None without both."""
    lefts = {each.field for each in left.columns if _is_time(each.field, left)}
    rights = {each.field for each in right.columns if _is_time(each.field, right)}
    bounds: dict[tuple[str, str], dict[str, tuple[int, list[Tree]]]] = {}
    for each in conditions:
        found = _bound(each, lefts, rights)
        if found is None:
            continue
        pair, sides = found
        for side, micros in sides:
            known = bounds.setdefault(pair, {})
            best = micros if side not in known else (max if side == "lower" else min)(known[side][0], micros)
            known[side] = best, [*(known[side][1] if side in known else ()), each]
    for (one, two), known in bounds.items():
        if "lower" in known and "upper" in known:
            lower, upper = known["lower"][0], known["upper"][0]
            used = tuple(dict.fromkeys([*known["lower"][1], *known["upper"][1]]))
            return TimeBounds(one, two, Duration(micros=lower), Duration(micros=upper), used)
    return None


def _is_time(field: str, relation: Relation) -> bool:
    known = relation.schema.field(field)
    return known is not None and known.type == TIMESTAMP


def _bound(tree: Tree, lefts: set[str], rights: set[str]) -> tuple[tuple[str, str], tuple[tuple[str, int], ...]] | None:
    """A comparison of two times as bounds of `right - left`. Strict ones count as others: the condition is kept."""
    match tree:
        case Call(operation=operation, arguments=(one, two)):
            first, second = _shifted(one), _shifted(two)
            if first is None or second is None:
                return None
            (a, x), (b, y) = first, second
            if a in rights and b in lefts:  # right + x ? left + y
                pair, difference = (b, a), y - x
            elif a in lefts and b in rights:  # left + x ? right + y
                pair, difference = (a, b), x - y
                operation = _MIRRORED.get(operation, operation)
            else:
                return None
            match operation:
                case "greater_or_equal" | "greater":
                    return pair, (("lower", difference),)
                case "less_or_equal" | "less":
                    return pair, (("upper", difference),)
                case "equal":
                    return pair, (("lower", difference), ("upper", difference))
    return None


_MIRRORED = {
    "greater_or_equal": "less_or_equal",
    "greater": "less",
    "less_or_equal": "greater_or_equal",
    "less": "greater",
}


def _shifted(tree: Tree) -> tuple[str, int] | None:
    """A time column, and how many microseconds are added to it."""
    match tree:
        case Column(name=name):
            return name, 0
        case Call(
            operation="add" | "subtract" as operation,
            arguments=(Column(name=name), Literal(value=datetime.timedelta() as by)),
        ):
            micros = by // datetime.timedelta(microseconds=1)
            return name, micros if operation == "add" else -micros
        case _:
            return None

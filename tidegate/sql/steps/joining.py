"""Joins of rows: by key and window, by an interval of time, and by look-up in a bounded side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from tidegate.sdk.authoring.side_inputs import AsList, AsMultiMap
from tidegate.sdk.data.columns import Access, Schema
from tidegate.sdk.data.schema import access_of
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import FlatMap, Map, pair_type
from tidegate.sdk.primitives.relate import Relate, row_type
from tidegate.sdk.relational.binding import Input, bound, bound_alike
from tidegate.sdk.relational.expressions import Column, Tree, mapped
from tidegate.sdk.relational.relation_binding import bound_relation
from tidegate.sdk.relational.relations import Join, JoinKind, Named
from tidegate.sdk.relational.steps.joins import JoinCode, joined_group
from tidegate.sdk.relational.steps.rows import keyed
from tidegate.sdk.windowing.strategy import is_global

Keys: TypeAlias = Sequence[tuple[Tree, Tree]]
"""Pairs of expressions, one over the left fields and one over the right ones, that have to be equal."""

_CAN_LOOK_UP: Final = ("inner", "left", "semi", "anti")


def joined(
    left: PCollection[Any],
    right: PCollection[Any],
    kind: JoinKind,
    keys: Keys,
    on: Tree | None,
    label: str,
    within: tuple[int, int] | None = None,
    own: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {}),
) -> PCollection[Any]:
    """The join of two collections whose fields have different names: rows of the fields of both. NULL equals nothing.

    `own` gives for each side the fields of its elements by their names in the rows; {} for all fields under their own.
    `on` is a condition on pairs, over the fields of both; `within` the range, in microseconds, of the right timestamp
    minus the left one. A bounded right side in the global window is looked up if the left side is in windows or
    unbounded.
    """
    one, two = (each or _under_their_own(rows) for rows, each in zip((left, right), own, strict=True))
    relation = _relation(one, two, kind, keys, on, within)
    if within is None and _looks_up(left, right, kind):
        return _looked_up(left, right, (_columns(left, one), _columns(right, two)), relation, label)
    if not keys:
        zero = _zero()
        relation = replace(relation, keys=((zero, zero),))
    return (left, right) | Relate(relation, name=label)


def _relation(
    one: Mapping[str, str],
    two: Mapping[str, str],
    kind: JoinKind,
    keys: Keys,
    on: Tree | None,
    within: tuple[int, int] | None,
) -> Join:
    left = {name: Column(own) for name, own in one.items()}
    right = {name: Column(own, input=1) for name, own in two.items()}
    columns = left if kind in ("semi", "anti") else left | right
    where = None if on is None else _sided(on, left | right)
    pairs = tuple((_sided(a, left), _sided(b, right)) for a, b in keys)
    return Join(kind, pairs, tuple(Named(*each) for each in columns.items()), where, within)


def _under_their_own(rows: PCollection[Any]) -> Mapping[str, str]:
    return {name: name for name in _schema(rows).names}


def _schema(rows: PCollection[Any]) -> Schema:
    return rows.schema or Schema(())


def _sided(tree: Tree, columns: Mapping[str, Column]) -> Tree:
    """A tree over fields of joined rows, with the columns of both sides in their place."""
    return mapped(tree, lambda each: columns.get(each.name) if isinstance(each, Column) else None)


def _zero() -> Tree:
    from tidegate.sdk.relational.authoring import literal

    return literal(0)


# -- look-up


def _looks_up(left: PCollection[Any], right: PCollection[Any], kind: JoinKind) -> bool:
    if kind not in _CAN_LOOK_UP or not right.is_bounded or not is_global(right.windowing):
        return False
    return not left.is_bounded or not is_global(left.windowing)


def _looked_up(
    left: PCollection[Any],
    right: PCollection[Any],
    columns: tuple[tuple[Column, ...], tuple[Column, ...]],
    join: Join,
    label: str,
) -> PCollection[Any]:
    """The join with the right side as a side input: by key, or as a list if there are no keys.

    `columns` are those of each side that the join reads: each task has them of all right elements.
    """
    schemas = one, two = _schema(left), _schema(right)
    whole = replace(join, keys=((_zero(), _zero()),)) if not join.keys else join
    known = bound_relation(whole, schemas)
    assert isinstance(known, Join)
    lefts_read, rights_read = (tuple(each.name for each in side) for side in columns)
    code = JoinCode(join.join, known.columns, known.where, lefts_read, rights_read, len(join.keys) > 1)
    lefts, rights = [], []
    for a, b in join.keys:
        a, b = bound_alike([bound(a, Input(one, two)), bound(b, Input(one, two))], "the keys of a join")
        lefts.append(a)
        rights.append(mapped(b, lambda each: replace(each, input=0) if isinstance(each, Column) else None))
    side = Side(tuple(rights), access_of(right.element_type), columns[1])
    pairs = Map(Made(_side, side), name=f"{label} right").with_output_types(pair_type(Any, tuple[Any, ...]))
    own = Side(tuple(lefts), access_of(left.element_type), columns[0])
    rows = right | pairs
    shape = row_type(known, schemas, left.element_type)
    if join.keys:
        step = FlatMap(MadeOfTwo(_lookup, own, code), AsMultiMap(rows), name=label)
    else:
        step = FlatMap(MadeOfTwo(_product, own, code), AsList(rows), name=label)
    return left | step.with_output_types(shape)


def _columns(rows: PCollection[Any], own: Mapping[str, str]) -> tuple[Column, ...]:
    """The columns of some rows that joined rows have under other names."""
    read = set(own.values())
    return tuple(Column(each.name, each.type, each.nullable) for each in _schema(rows).fields if each.name in read)


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a join: its keys and values, and how fields of its elements are read."""

    keys: tuple[Tree, ...]
    access: Access
    values: tuple[Tree, ...]


class Made:
    """A function made of parts, which is pickled as them."""

    def __init__(self, make: Callable[..., Any], *parts: Any) -> None:
        self.make = make
        self.parts = parts
        self._call = make(*parts)

    def __call__(self, element: Any) -> Any:
        return self._call(element)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.make, *self.parts)


class MadeOfTwo(Made):
    """The same for a function of an element and of a side input."""

    def __call__(self, element: Any, others: Any) -> Any:  # type: ignore[override]
        return self._call(element, others)


def _side(side: Side) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = keyed(side.keys, side.access, side.values)
    return function


def _lookup(side: Side, code: JoinCode) -> Callable[[Any, Any], list[Any]]:
    """A function from an element, and the right rows by key, to the joined rows."""
    of, rows = _side(side), joined_group(code)

    def found(element: Any, rights: Mapping[Any, Any]) -> list[Any]:
        key, values = of(element)
        partners = [] if code.is_null(key) or key not in rights else list(rights[key])
        return rows((key, ([values], partners)))

    return found


def _product(side: Side, code: JoinCode) -> Callable[[Any, Any], list[Any]]:
    """A function from an element, and all right rows, to the joined rows."""
    of, rows = _side(side), joined_group(code)

    def found(element: Any, rights: Sequence[Any]) -> list[Any]:
        key, values = of(element)
        return rows((key, ([values], [right for _, right in rights])))

    return found

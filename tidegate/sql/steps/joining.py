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
) -> PCollection[Any]:
    """The join of two collections whose fields have different names: rows of the fields of both. NULL equals nothing.

    `on` is a condition on pairs, over the fields of both; `within` the range, in microseconds, of the right timestamp
    minus the left one. A bounded right side in the global window is looked up if the left side is in windows or
    unbounded.
    """
    relation = _relation(left, right, kind, keys, on, within)
    if within is None and _looks_up(left, right, kind, keys):
        return _looked_up(left, right, relation, label)
    if not keys:
        zero = _zero()
        relation = replace(relation, keys=((zero, zero),))
    return (left, right) | Relate(relation, name=label)


def _relation(
    left: PCollection[Any],
    right: PCollection[Any],
    kind: JoinKind,
    keys: Keys,
    on: Tree | None,
    within: tuple[int, int] | None,
) -> Join:
    one, two = _schema(left), _schema(right)
    columns = [Named(name, Column(name)) for name in one.names]
    if kind not in ("semi", "anti"):
        columns += [Named(name, Column(name, input=1)) for name in two.names]
    of_right = set(two.names)
    where = None if on is None else _sided(on, of_right)
    return Join(kind, tuple((a, _sided(b, of_right)) for a, b in keys), tuple(columns), where, within)


def _schema(rows: PCollection[Any]) -> Schema:
    return rows.schema or Schema(())


def _sided(tree: Tree, of_right: set[str]) -> Tree:
    """A tree over the fields of both sides, whose columns know their side."""

    def side(each: Tree) -> Tree | None:
        if not isinstance(each, Column):
            return None
        return Column(each.name, input=1 if each.name in of_right else 0)

    return mapped(tree, side)


def _zero() -> Tree:
    from tidegate.sdk.relational.authoring import literal

    return literal(0)


# -- look-up


def _looks_up(left: PCollection[Any], right: PCollection[Any], kind: JoinKind, keys: Keys) -> bool:
    if kind not in _CAN_LOOK_UP or not right.is_bounded or not is_global(right.windowing):
        return False
    return not left.is_bounded or not is_global(left.windowing)


def _looked_up(left: PCollection[Any], right: PCollection[Any], join: Join, label: str) -> PCollection[Any]:
    """The join with the right side as a side input: by key, or as a list if there are no keys."""
    schemas = one, two = _schema(left), _schema(right)
    whole = replace(join, keys=((_zero(), _zero()),)) if not join.keys else join
    known = bound_relation(whole, schemas)
    assert isinstance(known, Join)
    code = JoinCode(join.join, known.columns, known.where, one.names, two.names, len(join.keys) > 1)
    lefts, rights = [], []
    for a, b in join.keys:
        a, b = bound_alike([bound(a, Input(one, two)), bound(b, Input(one, two))], "the keys of a join")
        lefts.append(a)
        rights.append(mapped(b, lambda each: replace(each, input=0) if isinstance(each, Column) else None))
    side = Side(tuple(rights), access_of(right.element_type), _columns(two))
    pairs = Map(Made(_side, side), name=f"{label} right").with_output_types(pair_type(Any, tuple[Any, ...]))
    own = Side(tuple(lefts), access_of(left.element_type), _columns(one))
    rows = right | pairs
    shape = row_type(known, schemas, left.element_type)
    if join.keys:
        step = FlatMap(MadeOfTwo(_lookup, own, code), AsMultiMap(rows), name=label)
    else:
        step = FlatMap(MadeOfTwo(_product, own, code), AsList(rows), name=label)
    return left | step.with_output_types(shape)


def _columns(schema: Schema) -> tuple[Tree, ...]:
    return tuple(Column(each.name, each.type, each.nullable) for each in schema.fields)


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

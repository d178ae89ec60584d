"""Binding of relations: their expressions get types from the schemas of the inputs, or are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tidegate.sdk.data.columns import BIGINT, BOOLEAN, VOID, Field, Schema
from tidegate.sdk.errors import BuildError, TypeCheckError
from tidegate.sdk.relational.binding import Input, bound, bound_aggregate, bound_alike
from tidegate.sdk.relational.expressions import Call, Column, Tree, text, walk
from tidegate.sdk.relational.operations import OPERATIONS
from tidegate.sdk.relational.relations import (
    Aggregate,
    Compute,
    Join,
    Named,
    Order,
    Rank,
    Relation,
    SortLimit,
    trees_of,
)
from tidegate.sdk.relational.signatures import is_comparable


def bound_relation(relation: Relation, schemas: Sequence[Schema | None]) -> Relation:
    """The relation with its expressions bound to the schemas of its inputs. Raises BuildError if they don't fit."""
    _check_operations(relation)
    input = Input(schemas[0])
    match relation:
        case Compute(columns=columns, where=where):
            named = None if columns is None else _bound_columns(columns, input)
            return replace(relation, columns=named, where=_condition(where, input, "a filter's condition"))
        case Aggregate(keys=keys, columns=columns):
            grouped = _bound_columns(keys, input)
            for each in grouped:
                _refuse_nested(each.tree)
            by_name = {each.name: each.tree for each in grouped}
            return replace(relation, keys=grouped, columns=_bound_aggregates(columns, input, by_name))
        case Join():
            return _bound_join(relation, schemas)
        case Rank(order=order, per=per):
            _require_schema(schemas[0])
            groups = tuple(_comparable(bound(each, input), "a row's group") for each in per)
            return replace(relation, order=_bound_order(order, input), per=groups)
        case SortLimit(order=order):
            _require_schema(schemas[0])
            return replace(relation, order=_bound_order(order, input))


def fields_of(relation: Relation, schemas: Sequence[Schema | None]) -> Schema | None:
    """The schema of the rows that a bound relation emits; None if it emits elements of its input."""
    match relation:
        case Compute(columns=None) | SortLimit() | Rank(number=None):
            return None
        case Compute(columns=tuple(named)) | Join(columns=named):
            pass
        case Aggregate(keys=keys, columns=columns):
            named = (*keys, *columns)
        case Rank(number=str(number)):
            before = () if schemas[0] is None else schemas[0].fields
            return Schema((*before, Field(number, BIGINT, nullable=False)))
    return Schema(tuple(Field(each.name, each.tree.type, each.tree.nullable) for each in named))


def _check_operations(relation: Relation) -> None:
    """Refuse operations of a file that a later version has written."""
    for tree in trees_of(relation):
        for each in walk(tree):
            if isinstance(each, Call) and each.operation not in OPERATIONS:
                raise BuildError(f"the operation {each.operation!r} is not known to this version of Tidegate")


def _bound_columns(columns: Iterable[Named], input: Input) -> tuple[Named, ...]:
    """The columns, bound. Errors name the column."""
    found: list[Named] = []
    for each in columns:
        try:
            found.append(Named(each.name, bound(each.tree, input)))
        except BuildError as error:
            error.args = (f"column {each.name!r}: {error}",)
            raise
    _check_names(found)
    return tuple(found)


def _bound_aggregates(columns: Iterable[Named], input: Input, keys: Mapping[str, Tree]) -> tuple[Named, ...]:
    found: list[Named] = []
    for each in columns:
        try:
            found.append(Named(each.name, bound_aggregate(each.tree, input, keys)))
        except BuildError as error:
            error.args = (f"column {each.name!r}: {error}",)
            raise
    _check_names((*map(Named, keys, keys.values()), *found))
    return tuple(found)


def _check_names(columns: Sequence[Named]) -> None:
    names = [each.name for each in columns]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise BuildError(f"there are two columns {twice!r}: give one of them another name")


def _condition(tree: Tree | None, input: Input, what: str) -> Tree | None:
    if tree is None:
        return None
    found = bound(tree, input)
    if found.type not in (BOOLEAN, VOID):
        raise TypeCheckError(f"{what} is a boolean, and {text(found)} is of type {found.type}")
    return found


def _bound_order(order: Iterable[Order], input: Input) -> tuple[Order, ...]:
    return tuple(replace(each, tree=_comparable(bound(each.tree, input), "an order")) for each in order)


def _comparable(tree: Tree, what: str) -> Tree:
    if not is_comparable(tree.type):
        raise TypeCheckError(f"{text(tree)} is of type {tree.type}, whose values can't be compared: it can't be {what}")
    return tree


def _refuse_nested(tree: Tree) -> None:
    """Raise TypeCheckError for a key that is an array, a map or a record."""
    if tree.type.kind in ("array", "map", "struct"):
        parts = "its fields" if tree.type.kind == "struct" else "its parts"
        raise TypeCheckError(f"{text(tree)} is of type {tree.type}, which can't be a key of groups: group by {parts}")


def _require_schema(schema: Schema | None) -> None:
    if schema is None:
        raise BuildError(
            "the order of rows that are equal in the columns given is that of their other columns, so the elements "
            "need a type with fields: add .with_output_types(...) to the step before, or tg.Select(...)"
        )


_OPTIONAL: Final[dict[str, frozenset[int]]] = {
    "left": frozenset({1}),
    "right": frozenset({0}),
    "full": frozenset({0, 1}),
}
"""By kind of join, the inputs whose element may be missing."""


def _bound_join(join: Join, schemas: Sequence[Schema | None]) -> Join:
    left, right = schemas
    if left is None or right is None:
        raise BuildError(
            f"the columns of the {'left' if left is None else 'right'} collection are not known: a join makes rows of "
            "the columns of both, so give its elements a type with fields (.with_output_types(...), or tg.Select(...))"
        )
    if not join.keys:
        raise BuildError("a join needs at least one key: a column of each side whose values are equal in a pair")
    keys = []
    for pair in join.keys:
        for number, tree in enumerate(pair):
            if any(isinstance(each, Column) and each.input != number for each in walk(tree)):
                raise BuildError(f"the key {text(tree)} has a column of the other side")
        one, two = bound_alike([bound(tree, Input(left, right)) for tree in pair], "the keys of a join")
        keys.append((_comparable(one, "a key"), _comparable(two, "a key")))
    input = Input(left, right, _OPTIONAL.get(join.join, frozenset()))
    columns = _bound_columns(join.columns, input)
    if join.join in ("semi", "anti"):
        for each in columns:
            if any(isinstance(part, Column) and part.input for part in walk(each.tree)):
                raise BuildError(f"column {each.name!r}: a {join.join} join emits columns of the left collection only")
    where = _condition(join.where, Input(left, right), "the condition of a join")
    return replace(join, keys=tuple(keys), columns=columns, where=where)

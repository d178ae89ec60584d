"""Relations: what a `Relate` node computes, as data: columns, aggregates, joins, ranks and sorted rows.

A relation is bound if its expressions are bound to the schemas of the node's inputs. All but a `Compute` without
columns emit rows of the fields that `fields_of` lists; that one, `Rank` and `SortLimit` emit elements of the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tidegate.sdk.data.columns import Schema
from tidegate.sdk.relational.expressions import Literal as Constant
from tidegate.sdk.relational.expressions import Tree, text

EVERY: Final = 2**63 - 1
"""The limit of a rank that keeps all elements."""

JoinKind: TypeAlias = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class Named:
    """A column and the expression that computes it."""

    name: str
    tree: Tree


@dataclass(frozen=True, slots=True)
class Order:
    """An order by the values of an expression; NULL comes first or last."""

    tree: Tree
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class Compute:
    """Drops the elements for which `where` is not true, and makes rows of the others; without columns, keeps them."""

    columns: tuple[Named, ...] | None = None
    where: Tree | None = None
    kind: Literal["compute"] = "compute"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A row for each window and different values of the keys: the keys, then columns over keys and aggregates.

    Without keys there is one row for each window that has elements, and one for a bounded input without any.
    """

    keys: tuple[Named, ...]
    columns: tuple[Named, ...]
    kind: Literal["aggregate"] = "aggregate"


@dataclass(frozen=True, slots=True)
class Join:
    """Rows of the pairs of elements whose keys are equal, which NULL never is, and for which `where` is true.

    Keys are pairs of an expression over the left and one over the right input. `within`, in microseconds, is the range
    of the right timestamp minus the left one, including both ends; without it, pairs are of one window. `left`, `right`
    and `full` emit each unmatched element of a side with NULLs for the other one; `semi` and `anti` emit each left
    element that has a partner, or has none.
    """

    join: JoinKind
    keys: tuple[tuple[Tree, Tree], ...]
    columns: tuple[Named, ...]
    where: Tree | None = None
    within: tuple[int, int] | None = None
    kind: Literal["join"] = "join"


@dataclass(frozen=True, slots=True)
class Rank:
    """The first `limit` elements, in an order, of each window and different values of `per`.

    Ties are broken by the other columns. With `number`, rows of the columns and the element's number, from 1.
    """

    order: tuple[Order, ...]
    limit: int
    per: tuple[Tree, ...] = ()
    number: str | None = None
    kind: Literal["rank"] = "rank"


@dataclass(frozen=True, slots=True)
class SortLimit:
    """All elements of a bounded input in an order, or `limit` of them after the first `offset`."""

    order: tuple[Order, ...]
    limit: int | None = None
    offset: int = 0
    kind: Literal["sort_limit"] = "sort_limit"


Relation: TypeAlias = Compute | Aggregate | Join | Rank | SortLimit


def trees_of(relation: Relation) -> Iterator[Tree]:
    """The expressions of a relation."""
    match relation:
        case Compute(columns=columns, where=where):
            yield from (each.tree for each in columns or ())
            if where is not None:
                yield where
        case Aggregate(keys=keys, columns=columns):
            yield from (each.tree for each in (*keys, *columns))
        case Join(keys=pairs, columns=columns, where=where):
            yield from (tree for pair in pairs for tree in pair)
            yield from (each.tree for each in columns)
            if where is not None:
                yield where
        case Rank(order=order, per=per):
            yield from (*(each.tree for each in order), *per)
        case SortLimit(order=order):
            yield from (each.tree for each in order)


def shown(relation: Relation) -> str:
    """What a relation computes, on one line: `where qty > 10: user, price * qty as total`."""
    match relation:
        case Compute(columns=None, where=where):
            return "" if where is None else f"where {text(where)}"
        case Compute(columns=columns, where=where):
            return ("" if where is None else f"where {text(where)}: ") + (_listed(columns or ()) or "no columns")
        case Aggregate(keys=keys, columns=columns):
            return f"{_listed(columns)} by {_listed(keys)}" if keys else _listed(columns)
        case Join(join=kind, keys=pairs, where=where, within=within):
            equal = " & ".join(f"{text(left)} == {text(right)}" for left, right in pairs)
            near = "" if within is None else f", within {within[0] / 1e6:g} to {within[1] / 1e6:g} s"
            if all(isinstance(key, Constant) for pair in pairs for key in pair):
                return f"{kind} join of all pairs" + ("" if where is None else f" on {text(where)}") + near
            return f"{kind} join on {equal}" + ("" if where is None else f" & {text(where)}") + near
        case Rank(order=order, limit=limit, per=per):
            groups = f" per {', '.join(map(text, per))}" if per else ""
            kept = "numbered" if limit == EVERY else f"first {limit}"
            return f"{kept} by {_ordered(order)}{groups}"
        case SortLimit(order=order, limit=limit, offset=offset):
            return (
                f"by {_ordered(order)}"
                + (f", {limit} of them" if limit is not None else "")
                + (f" after {offset}" if offset else "")
            )


def described(relation: Relation, schema: Schema | None) -> str:
    """A relation with its kind, and the columns of its result: `Filter qty > 10 → user string, qty bigint`."""
    match relation:
        case Compute(columns=None, where=where):
            what = "Filter" if where is None else f"Filter {text(where)}"
        case Compute():
            what = f"Select {shown(relation)}"
        case Aggregate():
            what = f"Aggregate {shown(relation)}"
        case SortLimit():
            what = f"Sort {shown(relation)}"
        case Join() | Rank():
            what = shown(relation)[:1].upper() + shown(relation)[1:]
    return f"{what} → {schema}" if schema is not None and schema.fields else what


def _listed(columns: Iterable[Named]) -> str:
    return ", ".join(
        each.name if text(each.tree) == each.name else f"{text(each.tree)} as {each.name}" for each in columns
    )


def _ordered(order: Iterable[Order]) -> str:
    return ", ".join(text(each.tree) + (" descending" if each.descending else "") for each in order)

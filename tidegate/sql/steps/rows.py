"""The steps that relations are made of: filters, projections, groups, windows and their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from tidegate.sdk.data.row import Row
from tidegate.sdk.data.schema import access_of
from tidegate.sdk.data.values import TimestampedValue
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.portable.model import MAIN
from tidegate.sdk.primitives import Map, WindowInto
from tidegate.sdk.primitives.relate import Relate
from tidegate.sdk.relational.authoring import Expression
from tidegate.sdk.relational.binding import Input, bound
from tidegate.sdk.relational.expressions import Call, Column, Tree
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.python.generated_functions import compiled
from tidegate.sdk.relational.python.printing import printed
from tidegate.sdk.relational.python.row_function import RowCode, reader
from tidegate.sdk.relational.python.values import field_of
from tidegate.sdk.relational.relations import Compute
from tidegate.sdk.relational.relations import Named as NamedTree
from tidegate.sdk.typehints.hints import class_of, plain_hint
from tidegate.sdk.windowing.assigners import GlobalWindows
from tidegate.sql.steps.relation import ROLES, Named, Relation
from tidegate.transforms.grouping.aggregate_columns import AggregateColumns


def filtered(relation: Relation, condition: Tree, label: str) -> Relation:
    """The rows for which a condition is true."""
    return replace(relation, rows=relation.rows | Relate(Compute(where=condition), name=label))


def projected(rows: PCollection[Any], columns: Mapping[str, Tree], label: str) -> PCollection[Any]:
    """Rows of computed fields."""
    named = tuple(NamedTree(name, tree) for name, tree in columns.items())
    return rows | Relate(Compute(columns=named), name=label)


def has_just(relation: Relation, columns: Mapping[str, Tree]) -> bool:
    """Whether the elements are Rows that have these columns already, in this order."""
    schema = relation.rows.schema
    if class_of(plain_hint(relation.rows.element_type))[0] is not Row or schema is None:
        return False
    copies = all(isinstance(tree, Column) and tree.name == name for name, tree in columns.items())
    return copies and schema.names == tuple(columns)


def grouped(
    rows: PCollection[Any], keys: Mapping[str, Tree], columns: Mapping[str, Tree], label: str, late: str | None = None
) -> tuple[PCollection[Any], PCollection[Any] | None]:
    """A row for each group: its keys, and columns of aggregates; and the rows that were too late, if asked for.

    Without keys there is one row for each window, and for an empty bounded collection in the global window as well.
    """
    grouping = AggregateColumns(
        {name: Expression(tree) for name, tree in keys.items()},
        {name: Expression(tree) for name, tree in columns.items()},
        late,
        label,
    )
    out: Any = rows | grouping
    return (out, None) if late is None else (out[MAIN], out[late])


def distinct(relation: Relation, label: str) -> Relation:
    """Each row once. The rows have the relation's columns only."""
    keys: dict[str, Tree] = {each.field: Column(each.field) for each in relation.columns}
    rows, _ = grouped(relation.rows, keys, {_unused("n", keys): Call("count", ())}, label)
    return replace(relation, rows=projected(rows, keys, f"{label} rows"), times=frozenset())


def _unused(name: str, taken: Mapping[str, Any] | Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


# -- time and windows


def stamped(rows: PCollection[Any], column: str, label: str) -> PCollection[Any]:
    """The rows with the value of a column as their timestamps."""
    tree = bound(Column(column), Input(rows.schema))
    stamp = Stamp(RowCode((tree,), access_of(rows.element_type), single=True), column)
    step = Map(stamp, name=label)
    step.stamps_by = column
    return rows | step.with_output_types(rows.element_type)


class Stamp:
    """A function that gives an element the timestamp that generated code computes; unpickled, it is that code."""

    def __init__(self, code: RowCode, column: str) -> None:
        self.parts = code, column
        self.timestamp_of = code.trees[0]
        self._stamped = stamping(code, column)

    def __call__(self, element: Any) -> TimestampedValue[Any]:
        return self._stamped(element)

    def __reduce__(self) -> tuple[Any, ...]:
        return stamping, self.parts


def stamping(code: RowCode, column: str) -> Callable[[Any], TimestampedValue[Any]]:
    """A generated function from an element to it with the value of a time column as timestamp.

    The tree of that value is the function's attribute `timestamp_of`, for runners that compute it in another way.
    """

    def refuse() -> NoReturn:
        raise ExpressionError("INVALID_COLUMN_VALUE", f"the time column {column!r} is NULL: filter such rows out")

    made = printed(code.trees, reader(code.access), checked=code.checked)
    (at,) = made.results
    lines = [*made.reads, f"at = {at}", "if at is None: refuse()", "return TimestampedValue(element, at)"]
    names = {"field_of": field_of, "refuse": refuse, "TimestampedValue": TimestampedValue}
    stamped = compiled("stamped", "element", lines, names | dict(made.names))
    setattr(stamped, "timestamp_of", code.trees[0])  # noqa: B010  (functions have no such attribute by their type)
    return stamped


def materialised(relation: Relation, fields: Mapping[str, Any], label: str) -> Relation:
    """The relation with those of its window columns as fields of the rows that are among `fields`."""
    wanted = [each for each in relation.columns if each.virtual and each.field in fields]
    if not wanted:
        return relation
    schema = relation.rows.schema
    trees: dict[str, Tree] = {name: Column(name) for name in (schema.names if schema is not None else ())}
    trees |= {each.field: Call(str(each.role), ()) for each in wanted}
    columns = tuple(replace(each, virtual=False) if each in wanted else each for each in relation.columns)
    return replace(relation, rows=projected(relation.rows, trees, label), columns=columns)


def in_global_window(relation: Relation, label: str) -> Relation:
    """The rows in the global window, where their window columns are ordinary ones."""
    if relation.windows == "none":
        return relation
    made = materialised(relation, {each.field: None for each in relation.columns}, f"{label} columns")
    columns = tuple(replace(each, role=None) for each in made.columns)
    rows = made.rows | WindowInto(GlobalWindows(), name=label)
    times = made.times
    if times is not None:
        times = frozenset(each.field for each in made.columns if made.can_be_time(each.field))
    return Relation(rows, columns, times=times)


def window_columns(table: str, taken: Sequence[str], *, hidden: bool) -> tuple[Named, ...]:
    """The columns that a window table function adds. One whose name is taken is left out if hidden."""
    return tuple(
        Named(table, role, _unused(role, taken), role, virtual=True, hidden=hidden)
        for role in ROLES
        if not (hidden and role in taken)
    )

"""Relations as DataFrames: what a `Relate` node makes of the DataFrames of its inputs, in Spark's DataFrame API.

Spark computes a condition before a join if it reads one side alone, and so for rows without a partner, too. Where that
could fail, the expression is made one that Spark leaves in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final

from tidegate.runners.spark.catalyst.expressions import quoted, sql
from tidegate.runners.spark.catalyst.windows import HIDDEN, TIME, WINDOW
from tidegate.sdk.data.columns import DecimalType, Schema
from tidegate.sdk.relational.binding import is_comparable, split_aggregates
from tidegate.sdk.relational.decimal_types import decimal_cast_fails, operation_fails
from tidegate.sdk.relational.expressions import Call, Cast, Column, Tree, mapped, walk
from tidegate.sdk.relational.operations import CASTS, OPERATIONS
from tidegate.sdk.relational.relations import Aggregate, Compute, Join, Named, Order, Rank, Relation, SortLimit


@dataclass(frozen=True, slots=True)
class Made:
    """The DataFrame of a collection. `joined`: a join is among the steps that it is made by. `windowed`: it has the
    columns of windows."""

    frame: Any
    joined: bool = False
    windowed: bool = False

    @property
    def windows(self) -> tuple[str, ...]:
        """The columns of windows."""
        return tuple(map(quoted, WINDOW)) if self.windowed else ()


def made(relation: Relation, inputs: Sequence[Made], schemas: Sequence[Schema]) -> Made:
    """The DataFrame of a relation of those of its inputs, which have these schemas."""
    match relation:
        case Compute():
            return _computed(inputs[0], relation.where, relation.columns)
        case Aggregate():
            return _aggregated(inputs[0], relation)
        case Join():
            return _joined(inputs[0], inputs[1], relation)
        case Rank():
            return _ranked(inputs[0], relation, schemas[0])
        case SortLimit():
            return _sorted(inputs[0], relation, schemas[0])


def united(inputs: Sequence[Made]) -> Made:
    """The rows of several DataFrames of the same columns."""
    frame = inputs[0].frame
    for each in inputs[1:]:
        frame = frame.unionByName(each.frame)
    return replace(inputs[0], frame=frame, joined=any(each.joined for each in inputs))


def can_raise(tree: Tree) -> bool:
    """Whether evaluating a tree may be an error in Spark."""
    for each in walk(tree):
        match each:
            case Call(operation=operation, type=DecimalType() as type, arguments=arguments):
                if operation_fails(operation, [argument.type for argument in arguments], type):
                    return True
            case Call(operation=operation, type=type) if OPERATIONS[operation].fails:
                if str(type) != "double" or operation in ("divide", "remainder"):
                    return True
            case Cast(operand=operand, type=DecimalType() as type):
                if decimal_cast_fails(operand.type, type):
                    return True
            case Cast(operand=operand, type=type) if CASTS.get((operand.type.kind, type.kind)):
                return True
    return False


def raises_for_one_side(condition: Tree) -> bool:
    """Whether a part of a join's condition reads one side alone, and may be an error."""
    match condition:
        case Call(operation="and" | "or" | "not", arguments=arguments):
            return any(map(raises_for_one_side, arguments))
        case _:
            return len({each.input for each in walk(condition) if isinstance(each, Column)}) < 2 and can_raise(
                condition
            )


# -- kinds of relations


def _computed(input: Made, where: Tree | None, columns: Sequence[Named] | None) -> Made:
    frame = input.frame if where is None else input.frame.where(_in_place(where, input))
    if columns is not None:
        kept = [quoted(name) for name in HIDDEN if name in frame.columns]
        frame = frame.selectExpr(*_selected(columns, input), *kept)
    return replace(input, frame=frame)


def _selected(columns: Iterable[Named], input: Made) -> list[str]:
    return [_named(_in_place(each.tree, input), each.name) for each in columns]


def _named(text: str, name: str) -> str:
    return f"{text} AS {quoted(name)}"


def _in_place(tree: Tree, input: Made) -> str:
    """The text of an expression that Spark doesn't compute before a join that the input is made by, if it may fail."""
    text = sql(tree)
    return _unmoved(text) if input.joined and can_raise(tree) else text


def _unmoved(text: str) -> str:
    """An expression whose value is not determined as far as Spark knows, and which it therefore leaves in its place."""
    return f"CASE WHEN monotonically_increasing_id() >= 0 THEN {text} END"


def _aggregated(input: Made, aggregate: Aggregate) -> Made:
    outputs, calls = split_aggregates([each.tree for each in aggregate.columns])
    arguments = [Named(f"argument {k}", call.arguments[0]) for k, call in enumerate(calls) if call.arguments]
    keys = {each.name: f"key {k}" for k, each in enumerate(aggregate.keys)}
    named = [Named(keys[each.name], each.tree) for each in aggregate.keys]
    frame = input.frame.selectExpr(*(_selected([*named, *arguments], input) or ["1 AS one"]), *input.windows)
    results = [_expression(frame, _aggregate(call, f"argument {k}")).alias(f"${k}") for k, call in enumerate(calls)]
    totals = frame.groupBy(*map(quoted, keys.values()), *input.windows).agg(*results)

    def name(column: Column) -> str:
        return quoted(keys.get(column.name, column.name))

    columns = [_named(quoted(key), name) for name, key in keys.items()]
    columns += [_named(sql(tree, name), each.name) for each, tree in zip(aggregate.columns, outputs, strict=True)]
    return replace(input, frame=totals.selectExpr(*columns, *input.windows))


def _aggregate(call: Call, argument: str) -> str:
    """The text of an aggregate, whose argument is a column of this name."""
    given = (Column(argument, each.type, each.nullable) for each in call.arguments)
    return sql(replace(call, arguments=tuple(given)))


_KINDS: Final = {
    "inner": "inner",
    "left": "left",
    "right": "right",
    "full": "full",
    "semi": "left_semi",
    "anti": "left_anti",
}


def _joined(left: Made, right: Made, join: Join) -> Made:
    sides = [_side(number, input, [pair[number] for pair in join.keys]) for number, input in enumerate((left, right))]
    equal = [f"{quoted(f'0 key {k}')} = {quoted(f'1 key {k}')}" for k in range(len(join.keys))]
    after = join.where is not None and join.join == "inner" and can_raise(join.where)
    if left.windowed:
        equal += [f"{quoted(_of_side(0, name))} = {quoted(_of_side(1, name))}" for name in WINDOW]
    if join.where is not None and not after:
        equal.append(sql(join.where, _name_of_side))
    frame = sides[0].join(sides[1], _expression(sides[0], " AND ".join(equal)), _KINDS[join.join])
    if join.where is not None and after:
        frame = frame.where(_unmoved(sql(join.where, _name_of_side)))
    columns = []
    for each in join.columns:
        text = sql(each.tree, _name_of_side)
        columns.append(_named(_unmoved(text) if can_raise(each.tree) else text, each.name))
    if left.windowed:
        sides_of = {"right": (1,), "full": (0, 1)}.get(join.join, (0,))
        for name in WINDOW:
            columns.append(_named(f"coalesce({', '.join(quoted(_of_side(k, name)) for k in sides_of)})", name))
    return Made(frame.selectExpr(*columns), joined=True, windowed=left.windowed)


def _side(number: int, input: Made, keys: Sequence[Tree]) -> Any:
    """One side of a join: its columns, and its keys. The names begin with the number of the side."""
    own = [
        mapped(key, lambda each: replace(each, input=0) if isinstance(each, Column) and each.input else None)
        for key in keys
    ]
    columns = [_named(quoted(name), _of_side(number, name)) for name in input.frame.columns]
    named = [Named(f"{number} key {k}", key) for k, key in enumerate(own)]
    return input.frame.selectExpr(*columns, *_selected(named, input))


def _of_side(side: int, name: str) -> str:
    return f"{side}: {name}"


def _name_of_side(column: Column) -> str:
    return quoted(_of_side(column.input, column.name))


def _ranked(input: Made, rank: Rank, schema: Schema) -> Made:
    per = [*(_in_place(tree, input) for tree in rank.per), *input.windows]
    groups = f"PARTITION BY {', '.join(per)} " if per else ""
    order = ", ".join(_term(each, input) for each in _whole_order(rank.order, schema))
    number = "number of the row" if rank.number is None else rank.number
    frame = input.frame.selectExpr("*", _named(f"CAST(row_number() OVER ({groups}ORDER BY {order}) AS BIGINT)", number))
    frame = frame.where(f"{quoted(number)} <= {rank.limit}L")
    return replace(input, frame=frame.drop(TIME, *([number] if rank.number is None else [])))


def _sorted(input: Made, sort: SortLimit, schema: Schema) -> Made:
    terms = []
    for each in _whole_order(sort.order, schema):
        column = _expression(input.frame, _in_place(each.tree, input))
        ends = "nulls_first" if each.nulls_first else "nulls_last"
        terms.append(getattr(column, f"{'desc' if each.descending else 'asc'}_{ends}")())
    frame = input.frame.orderBy(*terms).drop(TIME)
    frame = frame.offset(sort.offset) if sort.offset else frame
    return replace(input, frame=frame if sort.limit is None else frame.limit(sort.limit))


def _whole_order(order: Sequence[Order], schema: Schema) -> list[Order]:
    """An order, and that of the other columns for rows that are equal in it."""
    given = {each.tree.name for each in order if isinstance(each.tree, Column)}
    ties = [
        Order(Column(each.name, each.type, each.nullable))
        for each in schema.fields
        if each.name not in given and is_comparable(each.type)
    ]
    return [*order, *ties]


def _term(order: Order, input: Made) -> str:
    direction = "DESC" if order.descending else "ASC"
    return f"{_in_place(order.tree, input)} {direction} NULLS {'FIRST' if order.nulls_first else 'LAST'}"


def _expression(frame: Any, text: str) -> Any:
    """A Column of the text, of the kind that the DataFrame takes: classic, or of Spark Connect."""
    kind = "connect." if type(frame).__module__.startswith("pyspark.sql.connect") else ""
    return import_module(f"pyspark.sql.{kind}functions").expr(text)

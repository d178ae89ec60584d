"""Relations as queries in Spark's SQL: what a `Relate` node makes of the queries of its inputs.

Spark computes a condition before a join if it reads one side alone, and so for rows without a partner, too. Where that
could fail, the expression is made one that Spark leaves in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tidegate.runners.spark.catalyst.expressions import quoted, sql
from tidegate.runners.spark.catalyst.queries import TIME, WINDOW, Made, listed, named, query
from tidegate.runners.spark.catalyst.windows import SESSION, numbered_sessions
from tidegate.sdk.data.columns import DecimalType, Schema
from tidegate.sdk.relational.binding import split_aggregates
from tidegate.sdk.relational.decimal_types import decimal_cast_fails, operation_fails
from tidegate.sdk.relational.expressions import Call, Cast, Column, Tree, mapped, walk
from tidegate.sdk.relational.operations import CASTS, OPERATIONS
from tidegate.sdk.relational.relations import Aggregate, Compute, Join, Named, Order, Rank, Relation, SortLimit
from tidegate.sdk.relational.signatures import is_comparable


def made(relation: Relation, inputs: Sequence[Made], schemas: Sequence[Schema]) -> Made:
    """What a relation makes of its inputs, which have these schemas."""
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
    """The rows of several collections of the same columns."""
    first = inputs[0]
    rows = " UNION ALL ".join(f"SELECT {listed(first.every)} FROM {each.table}" for each in inputs)
    return replace(first, table=query(first.every, f"({rows}) AS t"), joined=any(each.joined for each in inputs))


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
    condition = "" if where is None else f" WHERE {_in_place(where, input)}"
    if columns is None:
        return replace(input, table=query(input.every, input.table, condition))
    names = tuple(each.name for each in columns)
    return replace(
        input, table=query([*_selected(columns, input), *input.hidden], input.table, condition), columns=names
    )


def _selected(columns: Iterable[Named], input: Made) -> list[str]:
    return [named(_in_place(each.tree, input), each.name) for each in columns]


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
    parts = [*(Named(keys[each.name], each.tree) for each in aggregate.keys), *arguments]
    table = query([*_selected(parts, input), *input.windows], input.table)
    results = [named(_aggregate(call, f"argument {k}"), f"${k}") for k, call in enumerate(calls)]
    groups = [*map(quoted, keys.values())]
    shown = [*groups, *input.windows, *results]
    if input.merging:
        table = numbered_sessions(table, [quoted(each.name) for each in parts], groups)
        bounds = zip(("min", "max"), WINDOW, strict=True)
        shown = [*groups, *(named(f"{operation}({quoted(name)})", name) for operation, name in bounds), *results]
        groups.append(quoted(SESSION))
    else:
        groups += input.windows
    totals = query(shown, table, f" GROUP BY {', '.join(groups)}" if groups else "")

    def name(column: Column) -> str:
        return quoted(keys.get(column.name, column.name))

    columns = [named(quoted(key), name) for name, key in keys.items()]
    columns += [named(sql(tree, name), each.name) for each, tree in zip(aggregate.columns, outputs, strict=True)]
    names = (*keys, *(each.name for each in aggregate.columns))
    return replace(input, table=query([*columns, *input.windows], totals), columns=names, merging=False, timed=False)


def _aggregate(call: Call, argument: str) -> str:
    """The text of an aggregate, whose argument is a column of this name."""
    given = (Column(argument, each.type, each.nullable) for each in call.arguments)
    return sql(replace(call, arguments=tuple(given)))


_KINDS: Final = {
    "inner": "INNER",
    "left": "LEFT",
    "right": "RIGHT",
    "full": "FULL",
    "semi": "LEFT SEMI",
    "anti": "LEFT ANTI",
}


def _joined(left: Made, right: Made, join: Join) -> Made:
    sides = [_side(number, input, [pair[number] for pair in join.keys]) for number, input in enumerate((left, right))]
    equal = [f"{quoted(f'0 key {k}')} = {quoted(f'1 key {k}')}" for k in range(len(join.keys))]
    after = join.where is not None and join.join == "inner" and can_raise(join.where)
    if left.windowed:
        equal += [f"{_of_side(0, name)} = {_of_side(1, name)}" for name in WINDOW]
    times = [_of_side(k, TIME) for k in (0, 1)]
    if join.within is not None:
        lower, upper = (f"{times[0]} + {bound}L" for bound in join.within)
        equal.append(f"{times[1]} BETWEEN {lower} AND {upper}")
    if join.where is not None and not after:
        equal.append(sql(join.where, _column_of_side))
    rows = f"{sides[0]} {_KINDS[join.join]} JOIN {sides[1]} ON {' AND '.join(equal)}"
    where = f" WHERE {_unmoved(sql(join.where, _column_of_side))}" if join.where is not None and after else ""
    columns = []
    for each in join.columns:
        text = sql(each.tree, _column_of_side)
        columns.append(named(_unmoved(text) if can_raise(each.tree) else text, each.name))
    if left.windowed:
        sides_of = {"right": (1,), "full": (0, 1)}.get(join.join, (0,))
        for name in WINDOW:
            columns.append(named(f"coalesce({', '.join(_of_side(k, name) for k in sides_of)})", name))
    if join.within is not None:  # the later time of both, or that of the only one
        columns.append(named(times[0] if join.join in ("semi", "anti") else f"greatest({', '.join(times)})", TIME))
    names = tuple(each.name for each in join.columns)
    return Made(query(columns, rows, where), names, True, left.windowed, timed=join.within is not None)


def _side(number: int, input: Made, keys: Sequence[Tree]) -> str:
    """One side of a join: its columns, and its keys. The names begin with the number of the side."""
    own = [
        mapped(key, lambda each: replace(each, input=0) if isinstance(each, Column) and each.input else None)
        for key in keys
    ]
    hidden = (name for name in (*WINDOW, TIME) if quoted(name) in input.hidden)
    columns = [f"{quoted(name)} AS {_of_side(number, name)}" for name in (*input.columns, *hidden)]
    parts = [Named(f"{number} key {k}", key) for k, key in enumerate(own)]
    return query([*columns, *_selected(parts, input)], input.table)


def _of_side(side: int, name: str) -> str:
    return quoted(f"{side}: {name}")


def _column_of_side(column: Column) -> str:
    return _of_side(column.input, column.name)


def _ranked(input: Made, rank: Rank, schema: Schema) -> Made:
    per = [*(_in_place(tree, input) for tree in rank.per), *input.windows]
    groups = f"PARTITION BY {', '.join(per)} " if per else ""
    order = ", ".join(_term(each, input) for each in _whole_order(rank.order, schema))
    number = "number of the row" if rank.number is None else rank.number
    kept = [*map(quoted, input.columns), *input.windows]
    row_number = named(f"CAST(row_number() OVER ({groups}ORDER BY {order}) AS BIGINT)", number)
    numbered = query([*kept, row_number], input.table)
    names = input.columns if rank.number is None else (*input.columns, number)
    table = query([*map(quoted, names), *input.windows], numbered, f" WHERE {quoted(number)} <= {rank.limit}L")
    return replace(input, table=table, columns=names, timed=False)


def _sorted(input: Made, sort: SortLimit, schema: Schema) -> Made:
    terms = ", ".join(_term(each, input) for each in _whole_order(sort.order, schema))
    rest = f" ORDER BY {terms}" if terms else ""
    rest += "" if sort.limit is None else f" LIMIT {sort.limit}"
    rest += f" OFFSET {sort.offset}" if sort.offset else ""
    return replace(input, table=query(map(quoted, input.columns), input.table, rest), timed=False)


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

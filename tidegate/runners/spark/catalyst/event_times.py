"""The columns from which functions take the timestamps of elements, as far as the functions' own text says so."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any

from tidegate.sdk.data.columns import TIMESTAMP, Schema
from tidegate.sdk.data.values import TimestampedValue
from tidegate.sdk.portable.model import ParDo, Read, Stamping
from tidegate.sdk.relational.expressions import Column, Tree
from tidegate.sdk.user_code.body import proven_node
from tidegate.sdk.user_code.user_fn import UserFn


def time_of(node: ParDo, schema: Schema | None) -> Tree | None:
    """The expression of the timestamps that a step gives to the elements of its input, which have this schema; None if
    the step does more, or anything else.

    The step is one of SQL, or a `Map` like `lambda row: tg.TimestampedValue(row, row.at)`.
    """
    if node.form != "map" or len(node.outputs) > 1 or node.side_inputs or node.stateful or node.dead_letters:
        return None
    live = node.fn.load()
    tree: Tree | None = getattr(live, "timestamp_of", None)
    if tree is not None:
        return tree
    match _lambda(node.fn, live):
        case ast.Lambda(
            args=ast.arguments(args=[ast.arg(arg=row)]),
            body=ast.Call(func=called, args=[ast.Name(id=element), time], keywords=[]),
        ) if element == row and _value(called, live) is TimestampedValue:
            return _column(time, row, schema)
    return None


def time_of_read(node: Read, schema: Schema) -> Tree | None:
    """The column that a read takes timestamps from, by a function like `lambda row: row.at`; None if it does more."""
    match node.stamping:
        case Stamping(timestamp=UserFn() as fn, ingestion=False, idle_after=None):
            match _lambda(fn, fn.load()):
                case ast.Lambda(args=ast.arguments(args=[ast.arg(arg=row)]), body=time):
                    return _column(time, row, schema)
    return None


def _lambda(fn: UserFn, live: Any) -> ast.Lambda | None:
    """The node of a lambda of one parameter; None for other functions."""
    body = fn.body
    if body is None or not isinstance(live, FunctionType) or live.__code__.co_argcount != 1 or live.__defaults__:
        return None
    node = proven_node(body, live)
    return node if isinstance(node, ast.Lambda) else None


def _value(node: ast.expr, fn: FunctionType) -> Any:
    """The value of a global variable of a function, or of an attribute of one; None if it is neither."""
    match node:
        case ast.Name(id=name) if name in fn.__code__.co_names:
            return fn.__globals__.get(name)
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in fn.__code__.co_names:
            return getattr(fn.__globals__.get(name), attribute, None)
    return None


def _column(node: ast.expr, row: str, schema: Schema | None) -> Column | None:
    """The time column that is an attribute of the row."""
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == row and schema is not None:
            field = schema.field(attribute)
            if field is not None and field.type == TIMESTAMP:
                return Column(field.name, field.type, field.nullable)
    return None

"""Rows of edge values, calls of every operation on them, and random expressions."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from tidegate.sdk.data.columns import SCALARS, ColumnType, DecimalType, Field, Schema, type_named
from tidegate.sdk.relational.authoring import Expression, literal
from tidegate.sdk.relational.binding import Input, bound, bound_aggregate
from tidegate.sdk.relational.expressions import Call, Case, Cast, Column, Tree
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.operations import CASTS, COMPARABLE, OPERATIONS, Operation, Signature
from tidegate.sdk.relational.python.row_function import RowCode, row_function

UTC = datetime.UTC
NAN = float("nan")
INF = float("inf")

POOLS: Final[dict[str, list[Any]]] = {
    "bigint": [None, 0, 1, -1, 7, -2, 2**63 - 1, -(2**63), 40],
    "double": [None, 0.0, -0.0, 1.5, -2.5, NAN, INF, -INF, 1e300],
    "decimal": [None, *map(Decimal, ("0", "1.50", "-2.25", "99999999.99", "-0.01", "0.05", "7", "40"))],
    "string": [None, "", "a", " 12 ", "Straße", "👍é ", "1e3", "TRUE", "2024-02-29"],
    "boolean": [None, True, False],
    "date": [None, datetime.date(2024, 2, 29), datetime.date(1969, 12, 31), datetime.date(2023, 1, 31)],
    "timestamp": [
        None,
        datetime.datetime(2024, 2, 29, 23, 59, 59, 999999, UTC),
        datetime.datetime(1969, 12, 31, 23, 59, 55, 500000, UTC),
        datetime.datetime(2023, 5, 17, 12, 30, tzinfo=UTC),
    ],
    "interval": [
        None,
        datetime.timedelta(0),
        datetime.timedelta(days=-3, microseconds=1),
        datetime.timedelta(hours=25),
    ],
}
"""Edge values by type."""

COLUMNS: Final[dict[str, tuple[str, str]]] = {
    "bigint": ("a", "b"),
    "double": ("x", "y"),
    "decimal": ("m", "n"),
    "string": ("s", "t"),
    "boolean": ("p", "q"),
    "date": ("d", "e"),
    "timestamp": ("at", "until"),
    "interval": ("i", "j"),
}

NESTED: Final[dict[str, tuple[str, list[Any]]]] = {
    "numbers": ("array<bigint>", [None, [], [1, None, -2], [7, 2**63 - 1], [0] * 41]),
    "doubles": ("array<double>", [None, [NAN, 1.5], [-0.0, None], [INF, 0.0]]),
    "words": ("array<string>", [["a", "Straße"], None, ["", None], []]),
    "decimals": ("array<decimal(10,2)>", [[Decimal("1.50")], None, [None, Decimal("7.00")]]),
    "counts": ("map<string,bigint>", [None, {}, {"a": 1, "": None}, {"Straße": -1, "a": 2**63 - 1}]),
    "weights": ("map<bigint,double>", [{0: NAN, 7: 1.5}, None, {1: None, -2: -0.0}]),
    "record": ("struct<n:bigint,s:string,at:timestamp,`a b`:array<bigint>,of:struct<x:double>>", [
        None,
        {"n": 7, "s": "a", "at": datetime.datetime(2024, 2, 29, tzinfo=UTC), "a b": [1, None], "of": {"x": NAN}},
        {"n": None, "s": None, "at": None, "a b": None, "of": None},
        {"n": -1, "s": "", "at": datetime.datetime(1969, 12, 31, tzinfo=UTC), "a b": [], "of": {"x": None}},
    ]),
}  # fmt: skip
"""Columns of arrays, maps and structs, their types, and their values."""

TYPES: Final[dict[str, ColumnType]] = {**SCALARS, "decimal": DecimalType(10, 2)}
"""The type of the columns of each name."""

SCHEMA: Final = Schema(
    (
        *(Field(name, TYPES[type]) for type, names in COLUMNS.items() for name in names),
        *(Field(name, type_named(type)) for name, (type, _) in NESTED.items()),
    )
)
INPUT: Final = Input(SCHEMA)

LITERALS: Final[dict[str, list[Any]]] = {
    "round": [0, 1, 2, -1],
    "date_trunc": ["year", "quarter", "month", "week", "day", "hour", "minute", "second"],
    "like": ["%", "a%", "_", "%a_e", "", "\\%", "% 12%"],
    "date_format": ["yyyy-MM-dd", "H:m:s d.M.'of' yyyy", "''HH:mm:ss.SSS'T'", "SSSSSS"],
    "regexp_extract": [
        ("(a|[^ -])(.*)$", 2),
        (r"\s*(\d+)\D", 1),
        ("^([A-Z]+?)(E{0,2})", 1),
        (r"(.)-(?:\w{2})", 0),
        ("x?", 0),
    ],
}
"""The literals with which operations are called whose signature asks for some: tuples where it asks for several."""


def edge_rows() -> list[dict[str, Any]]:
    """All pairs of edge values of each type, as the two columns of that type."""
    rows = []
    for k in range(81):
        row = {}
        for type, (one, two) in COLUMNS.items():
            pool = POOLS[type]
            row[one], row[two] = pool[k // len(pool) % len(pool)], pool[k % len(pool)]
        for name, (_, values) in NESTED.items():
            row[name] = values[k % len(values)]
        rows.append(row)
    return rows


NESTED_CALLS: Final[list[tuple[str, str, str, Any]]] = [
    ("bigint", "part", "numbers", Column("a")),
    ("bigint", "part", "counts", Column("s")),
    ("bigint", "part", "record", literal("n")),
    ("double", "part", "doubles", literal(1)),
    ("double", "part", "weights", Column("a")),
    ("double", "part", "record of", literal("x")),
    ("string", "part", "words", literal(0)),
    ("string", "part", "record", literal("s")),
    ("decimal", "part", "decimals", literal(0)),
    ("timestamp", "part", "record", literal("at")),
    ("bigint", "part", "record a b", literal(0)),
    *(("bigint", "size", name, None) for name in NESTED if name != "record"),
    ("bigint", "size", "record a b", None),
    ("boolean", "array_contains", "numbers", Column("a")),
    ("boolean", "array_contains", "doubles", Column("x")),
    ("boolean", "array_contains", "words", Column("s")),
    ("boolean", "array_contains", "decimals", Column("m")),
]
"""Operations on nested columns: the type of the result, the operation, the column or its field, and the argument."""


def nested_call(operation: str, of: str, argument: Tree | None) -> Tree:
    """A call of an operation on a nested column, or on a field of `record`, which follows in its name."""
    name, _, field = of.partition(" ")
    first: Tree = Call("part", (Column(name), literal(field))) if field else Column(name)
    return Call(operation, (first,) if argument is None else (first, argument))


def calls_of(operation: Operation) -> Iterator[Tree]:
    """Bound calls of an operation: of every signature, and for each type that `T` stands for."""
    if operation.name in _ON_NESTED:
        for _, name, of, argument in NESTED_CALLS:
            if name == operation.name:
                yield bound(nested_call(name, of, argument), INPUT)
        return
    for signature in operation.signatures:
        variable = any(each.type == "T" for each in signature.parameters)
        anything = any(each.type == "any" for each in signature.parameters)
        for type in COMPARABLE if variable or anything else ("",):
            if type != "binary":
                for arguments in _arguments(operation.name, signature, type):
                    call = Call(operation.name, arguments)
                    yield bound_aggregate(call, INPUT, {}) if operation.aggregate else bound(call, INPUT)


_ON_NESTED: Final = frozenset(name for _, name, _, _ in NESTED_CALLS)


def _arguments(name: str, signature: Signature, variable: str) -> Iterator[tuple[Tree, ...]]:
    columns: dict[str, int] = {}
    found: list[Tree | None] = []
    for each in signature.parameters:
        type = variable if each.type in ("T", "any") else each.type
        if each.literal and each.repeated:
            found += [literal(value) for value in POOLS[type][-2:]]
        elif each.literal:
            found.append(None)
        else:
            used = columns.get(type, 0)
            columns[type] = used + 1
            found.append(Column(COLUMNS[type][used % 2]))
    for value in LITERALS.get(name, [0]):
        values = iter(value if isinstance(value, tuple) else (value,))
        yield tuple(literal(next(values)) if each is None else each for each in found)


DECIMALS: Final = (DecimalType(10, 2), DecimalType(38, 0), DecimalType(3, 3), DecimalType(38, 18), DecimalType(2, 1))
"""The types to which values are cast that are cast to decimals."""


def casts() -> Iterator[Tree]:
    """Casts of the first column of each type, which has all its values, to every type."""
    for given, to in CASTS:
        for type in DECIMALS if to == "decimal" else (TYPES[to],):
            yield bound(Cast(Column(COLUMNS[given][0]), type), INPUT)


def python_results(tree: Tree, rows: list[dict[str, Any]]) -> list[Any]:
    """For each row the value of a bound tree, or the ExpressionError."""
    compute = row_function(RowCode((tree,), "item", single=True))
    found: list[Any] = []
    for row in rows:
        try:
            found.append(compute(row))
        except ExpressionError as error:
            found.append(error)
    return found


# -- random expressions

SCALAR_OPERATIONS: Final = [each for each in OPERATIONS.values() if not each.aggregate and not each.of_window]


def random_tree(draw: random.Random, depth: int, repeats: float = 0.0) -> Tree:
    """A bound expression of some type; `repeats` is how probably an operand is one that occurs before, too."""
    return bound(_random(draw, draw.choice(list(COLUMNS)), depth, repeats, {}), INPUT)


def _random(draw: random.Random, type: str, depth: int, repeats: float, known: dict[str, list[Tree]]) -> Tree:
    if type in known and repeats and draw.random() < repeats:
        return draw.choice(known[type])
    tree = _fresh(draw, type, depth, repeats, known)
    known.setdefault(type, []).append(tree)
    return tree


def _fresh(draw: random.Random, type: str, depth: int, repeats: float, known: dict[str, list[Tree]]) -> Tree:
    def operand(type: str) -> Tree:
        return _random(draw, type, depth - 1, repeats, known)

    if depth == 0 or draw.random() < 0.15:
        if draw.random() < 0.75:
            return Column(draw.choice(COLUMNS[type]))
        return literal(draw.choice([value for value in POOLS[type] if value is not None]))
    kind = draw.random()
    if kind > 0.92 and (calls := [each for each in NESTED_CALLS if each[0] == type]):
        _, name, of, argument = draw.choice(calls)
        if isinstance(argument, Column):
            kinds = [kind for kind, names in COLUMNS.items() if argument.name in names]
            argument = operand(kinds[0])
            if kinds[0] == "decimal":  # results of operations may have more digits than the items of the array
                argument = Cast(argument, DECIMALS[0])
        return nested_call(name, of, argument)
    if kind < 0.1:
        condition, value, other = map(operand, ("boolean", type, type))
        return Case(((condition, value),), other)
    if kind < 0.25 and (given := [one for one, to in CASTS if to == type]):
        to = draw.choice(DECIMALS) if type == "decimal" else TYPES[type]
        return Cast(operand(draw.choice(given)), to)
    operation, signature, variable = draw.choice(_makers(type))
    arguments: list[Tree] = []
    given = draw.choice(LITERALS.get(operation.name, [()]))
    literals = iter(given if isinstance(given, tuple) else (given,))
    for each in signature.parameters:
        wanted = variable if each.type == "T" else draw.choice(list(COLUMNS)) if each.type == "any" else each.type
        if each.literal:
            drawn = draw.choice([value for value in POOLS[wanted] if value is not None])
            arguments.append(literal(next(literals, drawn)))
        else:
            arguments.append(operand(wanted))
    return Call(operation.name, tuple(arguments))


def _makers(type: str) -> list[tuple[Operation, Signature, str]]:
    found = []
    for operation in SCALAR_OPERATIONS:
        if operation.rounded or operation.name in _ON_NESTED:
            continue  # the last digits would decide comparisons; calls of nested columns are listed
        for signature in operation.signatures:
            generic = any(each.type == "T" for each in signature.parameters)
            if signature.result == "T":
                found.append((operation, signature, type))
            elif signature.result == type:
                found += [(operation, signature, each) for each in (COLUMNS if generic else ("",))]
    return found


def tree_of(expression: Expression) -> Tree:
    """An author's expression, bound to the columns of the edge rows."""
    return bound(expression.tree, INPUT)

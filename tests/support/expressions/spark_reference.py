"""Expressions as Spark SQL: the reference that the Python of every operation is compared with."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from typing import Any, Final

from tests.support.expressions.cases import SCHEMA
from tidegate.runners.spark.catalyst import expressions
from tidegate.runners.spark.catalyst.errors import expression_error
from tidegate.runners.spark.driver.spark_settings import AS_WRITTEN
from tidegate.sdk.relational.expressions import Call, Case, Cast, Column, Literal, Tree

_INFIX: Final = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "div": "DIV",
    "remainder": "%",
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_or_equal": "<=",
    "greater": ">",
    "greater_or_equal": ">=",
    "not_distinct": "<=>",
    "and": "AND",
    "or": "OR",
}

_NAMES: Final = {
    "length": "char_length",
    "position": "instr",
    "starts_with": "startswith",
    "ends_with": "endswith",
    "is_nan": "isnan",
    "add_days": "date_add",
    "days_between": "datediff",
    "day_of_week": "dayofweek",
    "day_of_year": "dayofyear",
    "is_null": "isnull",
}

_SQL_TYPES: Final = {"interval": "interval day to second"}

_CAST_TO_INT: Final = frozenset({"substring", "add_months", "add_days", "split_part"})
"""Functions whose numbers are ints in Spark."""


def sql(tree: Tree) -> str:
    """The SQL of a bound tree; the result has the tree's type."""
    match tree:
        case Column(name=name):
            return f"`{name}`"
        case Literal(value=value, type=type):
            return f"CAST({_literal(value)} AS {sql_type(type)})"
        case Cast(operand=operand, type=type):
            return f"CAST({sql(operand)} AS {sql_type(type)})"
        case Case(branches=branches, otherwise=otherwise):
            whens = " ".join(f"WHEN {sql(condition)} THEN {sql(value)}" for condition, value in branches)
            return f"CASE {whens} ELSE {sql(otherwise)} END"
        case Call():
            return f"CAST({_call(tree)} AS {sql_type(tree.type)})"


def bare_sql(tree: Tree) -> str:
    """The SQL of a tree without types, as an author would write it."""
    match tree:
        case Literal(value=value):
            return _literal(value)
        case Call(operation=name, arguments=(one, two)) if name in _INFIX:
            return f"({bare_sql(one)} {_INFIX[name]} {bare_sql(two)})"
        case Call(operation=name, arguments=arguments):
            texts = list(map(bare_sql, arguments))
            return _SPECIAL[name](texts) if name in _SPECIAL else f"{_NAMES.get(name, name)}({', '.join(texts)})"
    return sql(tree)


def filtered_sql(aggregate: Call, condition: Tree) -> str:
    """The SQL of an aggregate of the rows for which a condition is true."""
    return f"CAST({_call(aggregate)} FILTER (WHERE {sql(condition)}) AS {sql_type(aggregate.type)})"


def sql_type(type: Any) -> str:
    """The name of a type in Spark."""
    return _SQL_TYPES.get(str(type), str(type))


def _call(call: Call) -> str:
    name = call.operation
    arguments = [sql(each) for each in call.arguments]
    if name == "part":
        return _part(call, arguments)
    if name in _SPECIAL:
        return _SPECIAL[name](arguments)
    if name in _INFIX:
        return f"({arguments[0]} {_INFIX[name]} {arguments[1]})"
    if name in _CAST_TO_INT:
        arguments = [
            f"CAST(IF({text} IS NULL, {text}, greatest(least({text}, 2147483647), -2147483648)) AS INT)"
            if str(each.type) == "bigint"
            else text
            for text, each in zip(arguments, call.arguments, strict=True)
        ]
    if name in ("like", "date_trunc", "round", "date_format", "regexp_extract"):
        arguments = [_bare(each, text) for each, text in zip(call.arguments, arguments, strict=True)]
    if name == "like":
        return f"({arguments[0]} LIKE {arguments[1]})"
    return f"{_NAMES.get(name, name)}({', '.join(arguments)})"


def _part(call: Call, arguments: list[str]) -> str:
    of, key = call.arguments
    if of.type.kind == "struct" and isinstance(key, Literal):
        return f"({arguments[0]}).`{key.value}`"
    if of.type.kind == "map":
        return f"{arguments[0]}[{arguments[1]}]"
    clamped = f"CAST(greatest(least({arguments[1]}, 2147483647), -1) AS INT)"
    return f"{arguments[0]}[IF({arguments[1]} IS NULL, NULL, {clamped})]"


def _bare(tree: Tree, text: str) -> str:
    return _literal(tree.value) if isinstance(tree, Literal) else text


_SPECIAL: Final[dict[str, Callable[[list[str]], str]]] = {
    "not": lambda a: f"(NOT {a[0]})",
    "negate": lambda a: f"(- {a[0]})",
    "is_in": lambda a: f"({a[0]} IN ({', '.join(a[1:])}))",
    "count_distinct": lambda a: f"count(DISTINCT {a[0]})",
    "sum_distinct": lambda a: f"sum(DISTINCT {a[0]})",
    "avg_distinct": lambda a: f"avg(DISTINCT {a[0]})",
    "count": lambda a: f"count({a[0] if a else '*'})",
}


def _literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int():
            return f"'{value}'" if value == -(2**63) else f"{value}L" if abs(value) >= 2**31 else str(value)
        case float():
            return f"'{value!r}'" if not math.isfinite(value) else f"{value!r}D"
        case Decimal():
            return f"{value:f}BD"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case datetime.datetime():
            return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}'"
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case datetime.timedelta():
            return f"make_dt_interval({value.days}, 0, 0, {value.seconds + value.microseconds / 1e6:.6f})"
    raise AssertionError(f"no literal for {value!r}")


def _without_error(text: str) -> str:
    """SQL that is true if an expression has a value. Spark's try_to_binary gives NULL for any error in its argument."""
    return f"try_to_binary(concat('v', coalesce(CAST({text} AS STRING), '')), 'utf-8') IS NOT NULL"


def _as_run(tree: Tree) -> str:
    """The SQL of a tree as the Spark runner writes it, if it does; else that of the reference."""
    return expressions.sql(tree) if expressions.fits(tree) else sql(tree)


DDL: Final = ", ".join(f"{field.name} {sql_type(field.type)}" for field in SCHEMA.fields)


class SparkRows:
    """A session in ANSI mode and UTC, with a table of rows on which it evaluates expressions."""

    def __init__(self, session: Any, rows: list[dict[str, Any]]) -> None:
        self.session = session.newSession()
        self.session.conf.set("spark.sql.ansi.enabled", "true")
        self.session.conf.set("spark.sql.session.timeZone", "UTC")
        self.session.conf.set("spark.sql.shuffle.partitions", "1")
        for name, value in AS_WRITTEN.items():
            self.session.conf.set(name, value)
        numbered = [(k, *(row[name] for name in SCHEMA.names)) for k, row in enumerate(rows)]
        self.frame = self.session.createDataFrame(numbered, f"row int, {DDL}").coalesce(1).cache()
        self.frame.createOrReplaceTempView("expression_rows")

    def compile(self, compile: bool) -> None:
        """Let Spark compile expressions to Java, as it does in runs, or else interpret them, which is done sooner."""
        self.session.conf.set("spark.sql.codegen.wholeStage", str(compile).lower())
        self.session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if compile else "NO_CODEGEN")

    def values(
        self, trees: Sequence[Tree], failing: Sequence[Collection[int]]
    ) -> tuple[list[list[Any]], list[list[int]]]:
        """For each tree its values for all rows but those that should fail, and which of these don't fail."""
        columns = []
        for k, (tree, left_out) in enumerate(zip(trees, failing, strict=True)):
            text, rows = _as_run(tree), ", ".join(map(str, left_out))
            if not left_out:
                columns += [f"{text} AS v{k}", f"FALSE AS f{k}"]
                continue
            columns.append(f"CASE WHEN row IN ({rows}) THEN NULL ELSE {text} END AS v{k}")
            columns.append(f"CASE WHEN row IN ({rows}) THEN {_without_error(text)} ELSE FALSE END AS f{k}")
        rows = self.session.sql(f"SELECT row, {', '.join(columns)} FROM expression_rows").collect()
        rows.sort(key=lambda row: row["row"])
        values = [[from_spark(row[f"v{k}"]) for row in rows] for k in range(len(trees))]
        return values, [[row["row"] for row in rows if row[f"f{k}"]] for k in range(len(trees))]

    def in_place(self, trees: Sequence[Tree], left_out: Collection[int]) -> list[list[Any]]:
        """For each tree its values for all rows but those left out, computed without a conditional around it: Spark
        computes parts that occur twice before all others, but for those in conditionals."""
        columns = ", ".join(f"{_as_run(tree)} AS v{k}" for k, tree in enumerate(trees))
        kept = f"row NOT IN ({', '.join(map(str, left_out))})" if left_out else "TRUE"
        rows = self.session.sql(f"SELECT row, {columns} FROM expression_rows WHERE {kept}").collect()
        rows.sort(key=lambda row: row["row"])
        return [[from_spark(row[f"v{k}"]) for row in rows] for k in range(len(trees))]

    def condition(self, tree: Tree, row: int) -> str:
        """The condition of the error of a tree for a row, under the name that it has in Tidegate; "" without one."""
        from pyspark.errors import PySparkException

        try:
            text = _as_run(tree)
            if str(tree.type) == "timestamp":  # Python has none outside the years 1 to 9999
                query = f"SELECT year({text}) NOT BETWEEN 1 AND 9999 FROM expression_rows WHERE row = {row}"
                return "DATETIME_OVERFLOW" if self.session.sql(query).collect()[0][0] else ""
            self.session.sql(f"SELECT {text} FROM expression_rows WHERE row = {row}").collect()
        except PySparkException as error:
            return condition_of(error)
        return ""


def condition_of(error: Exception) -> str:
    """The condition of an error of Spark's, under the name that it has in Tidegate; another error is raised again."""
    found = next((name for name in CONDITIONS if f"[{name}" in str(error)), None)
    if found is not None:
        return CONDITIONS[found]
    own = expression_error(str(error))
    if own is None:
        raise error
    return own.condition


CONDITIONS: Final = {
    "ARITHMETIC_OVERFLOW": "ARITHMETIC_OVERFLOW",
    "BINARY_ARITHMETIC_OVERFLOW": "ARITHMETIC_OVERFLOW",
    "INTERVAL_ARITHMETIC_OVERFLOW": "ARITHMETIC_OVERFLOW",
    "DIVIDE_BY_ZERO": "DIVIDE_BY_ZERO",
    "REMAINDER_BY_ZERO": "REMAINDER_BY_ZERO",
    "NUMERIC_VALUE_OUT_OF_RANGE": "NUMERIC_VALUE_OUT_OF_RANGE",
    "NUMERIC_OUT_OF_SUPPORTED_RANGE": "NUMERIC_VALUE_OUT_OF_RANGE",
    "CAST_INVALID_INPUT": "CAST_INVALID_INPUT",
    "CAST_OVERFLOW": "CAST_OVERFLOW",
    "DATETIME_OVERFLOW": "DATETIME_OVERFLOW",
    "INVALID_INDEX_OF_ZERO": "INVALID_INDEX_OF_ZERO",
    "INVALID_ARRAY_INDEX": "INVALID_ARRAY_INDEX",
}
"""Spark's conditions, and ours for them."""


def from_spark(value: Any) -> Any:
    """A value that Spark returned, as expressions have it: naive local datetimes become instants in UTC."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC)
    return value


def same(one: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Whether two values are the same, including the sign of zeros and NaN; doubles up to a relative tolerance."""
    if isinstance(one, float) and isinstance(other, float):
        if one != one or other != other:
            return one != one and other != other
        if tolerance and math.isclose(one, other, rel_tol=tolerance):
            return True
        return one == other and math.copysign(1.0, one) == math.copysign(1.0, other)
    return type(one) is type(other) and bool(one == other)

"""Every operation, cast and random expression has the same value, or the same error, in Python as in Spark."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pytest

import tidegate as tg
from tests.support.expressions.cases import (
    SCALAR_OPERATIONS,
    SCHEMA,
    calls_of,
    casts,
    edge_rows,
    python_results,
    random_tree,
    tree_of,
)
from tests.support.expressions.spark_reference import SparkRows, bare_sql, filtered_sql, from_spark, same
from tidegate.runners.spark.catalyst.expressions import fits
from tidegate.runners.spark.catalyst.hidden_errors import drops_operand, hides_errors, merges_zeros, rearranges, settled
from tidegate.sdk.data.columns import BIGINT, BOOLEAN, Field, Schema, type_named
from tidegate.sdk.data.schema import with_schema
from tidegate.sdk.relational.authoring import literal
from tidegate.sdk.relational.binding import Input, bound, bound_aggregate, may_fail
from tidegate.sdk.relational.expressions import Call, Column, Literal, Tree, mapped, text, walk
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.operations import OPERATIONS

ROWS = edge_rows()


@pytest.fixture(scope="module")
def reference(spark_session: Any) -> SparkRows:
    return SparkRows(spark_session, ROWS)


@pytest.fixture(autouse=True)
def compiled(reference: SparkRows) -> None:
    """Spark compiles expressions, unless a test says otherwise."""
    reference.compile(True)


def differences(reference: SparkRows, trees: Sequence[Tree], errors_each: int, asked: int = 1) -> list[str]:
    """Where Python and Spark differ.

    That a row fails is compared for all; which error it is takes a query of its own, and is asked for `errors_each`
    rows of one in `asked` expressions.
    """
    from pyspark.errors import PySparkException

    python = [python_results(tree, ROWS) for tree in trees]
    unlike: list[int] = []
    failing = [[k for k, value in enumerate(values) if isinstance(value, ExpressionError)] for values in python]
    try:
        spark, succeeding = reference.values(trees, failing)
    except PySparkException as error:
        if len(trees) > 1:
            return [each for tree in trees for each in differences(reference, [tree], errors_each, asked)]
        if len(failing[0]) == len(ROWS):
            return []  # a constant that fails does so in both
        fails = [k for k in range(len(ROWS)) if k not in failing[0] and reference.condition(trees[0], k)]
        if not fails or not hides_errors(trees[0]):
            shown = [f"for {_shown(trees[0], k)}" for k in fails[:3]] or ["for all rows together"]
            return [f"{text(trees[0])}: only Spark fails {each}: {error}"[:400] for each in shown]
        unlike = fails  # Spark computes a constant that fails where Python stops before it, and workers these trees
        try:
            spark, succeeding = reference.values(trees, [[*failing[0], *unlike]])
        except PySparkException:
            return []  # computed even for rows that are left out: Spark has no values to compare
        succeeding = [[k for k in succeeding[0] if k not in unlike]]
    found = []
    of = zip(trees, python, spark, failing, succeeding, strict=True)
    for number, (tree, ours, theirs, failed, succeeded) in enumerate(of):
        rounded = any(isinstance(each, Call) and OPERATIONS[each.operation].rounded for each in walk(tree))
        pairs = [] if merges_zeros(tree) else zip(ours, theirs, strict=True)  # workers compute such trees
        for k, (one, other) in enumerate(pairs):
            if k not in failed and k not in unlike and not same(one, other, 1e-12 if rounded else 0.0):
                found.append(f"{text(tree)}: Python {one!r}, Spark {other!r} for {_shown(tree, k)}")
        # Spark might not see an error, and workers compute such trees.
        dropped = rearranges(tree) or any(map(drops_operand, (*walk(tree), *walk(settled(tree)))))
        beyond = not fits(tree)  # other SQL than the runner's, with which Spark goes beyond the year 9999
        comparable = [k for k in failed if not (beyond and ours[k].condition == "DATETIME_OVERFLOW")]
        found += [
            f"{text(tree)}: only Python fails for {_shown(tree, k)}: {ours[k]}"
            for k in comparable
            if k in succeeded and ours[k].condition != "DATETIME_OVERFLOW" and not dropped
        ]
        asks = number % asked == 0 and not dropped and not hides_errors(tree)  # workers tell the errors of the others
        for k in comparable[:errors_each] if asks else ():
            condition = reference.condition(tree, k)
            if condition != ours[k].condition:
                found.append(f"{text(tree)}: Python {ours[k]}, Spark {condition!r} for {_shown(tree, k)}")
    return found


def failures_in_place(reference: SparkRows, trees: Sequence[Tree]) -> list[str]:
    """Where Spark fails, or has another value, if trees are computed for the rows for which no one fails in Python,
    with nothing around them. Trees that workers compute are left out."""
    from pyspark.errors import PySparkException

    trees = [tree for tree in trees if may_fail(tree) and fits(tree) and not (hides_errors(tree) or merges_zeros(tree))]
    python = [python_results(tree, ROWS) for tree in trees]
    left_out = {k for values in python for k, value in enumerate(values) if isinstance(value, ExpressionError)}
    if not trees or len(left_out) == len(ROWS):
        return []
    try:
        spark = reference.in_place(trees, left_out)
    except PySparkException as error:
        if len(trees) > 1:
            return [each for tree in trees for each in failures_in_place(reference, [tree])] or [f"together: {error}"]
        return [f"{text(trees[0])}: only Spark fails: {error}"[:400]]
    kept = [k for k in range(len(ROWS)) if k not in left_out]
    return [
        f"{text(tree)}: Python {ours[k]!r}, Spark {other!r} in place, for {_shown(tree, k)}"
        for tree, ours, theirs in zip(trees, python, spark, strict=True)
        for k, other in zip(kept, theirs, strict=True)
        if not same(ours[k], other, 1e-12)
    ]


def _shown(tree: Tree, k: int) -> Any:
    from tidegate.sdk.relational.expressions import column_names

    return {name: ROWS[k][name] for name in column_names(tree)}


def batches(trees: Iterable[Tree], size: int) -> list[list[Tree]]:
    every = list(trees)
    return [every[at : at + size] for at in range(0, len(every), size)]


def test_every_operation_on_edge_values_is_that_of_spark(reference: SparkRows) -> None:
    trees = [tree for operation in SCALAR_OPERATIONS for tree in calls_of(operation)]
    assert {tree.operation for tree in trees if isinstance(tree, Call)} == {
        operation.name for operation in SCALAR_OPERATIONS
    }
    assert [each for batch in batches(trees, 40) for each in differences(reference, batch, 1)] == []


def test_every_cast_of_edge_values_is_that_of_spark(reference: SparkRows) -> None:
    reference.compile(False)
    assert differences(reference, list(casts()), 2) == []


def test_random_expressions_are_those_of_spark(reference: SparkRows, pytestconfig: pytest.Config) -> None:
    draw = random.Random(19 + pytestconfig.getoption("--streaming-seed"))
    count = pytestconfig.getoption("--expressions")
    trees = [random_tree(draw, draw.randrange(2, 5), draw.choice((0.0, 0.3))) for _ in range(count)]
    trees = [tree for tree in trees if not any(map(is_constant_null, walk(tree)))]
    found: list[str] = []
    reference.compile(True)  # interpreted, CONCAT computes what follows a NULL, and may fail where runs don't
    for batch in batches(trees, 25):
        found += differences(reference, batch, 1, 25)
        for few in batches(batch, 5):
            found += failures_in_place(reference, few)
    assert not found, "\n".join(found)


def test_random_expressions_of_what_is_never_null_are_those_of_spark(
    reference: SparkRows, pytestconfig: pytest.Config
) -> None:
    """Spark knows more of operands that aren't NULL: it may find a value without computing them."""
    draw = random.Random(19 + pytestconfig.getoption("--streaming-seed"))
    count = max(pytestconfig.getoption("--expressions") // 5, 100)
    trees = [around(draw, random_tree(draw, draw.randrange(1, 4), 0.3)) for _ in range(count)]
    trees = [tree for tree in trees if not any(map(is_constant_null, walk(tree)))]
    found = [each for batch in batches(trees, 25) for each in differences(reference, batch, 0, 25)]
    assert not found, "\n".join(found)
    assert any(settled(tree) != tree for tree in trees)
    assert any(may_fail(tree) and not hides_errors(tree) for tree in trees)


_INSTEAD_OF_NULL = {"bigint": 3, "double": 0.5, "string": "a", "boolean": True}


def _never_null(tree: Tree) -> Tree | None:
    """A column, or a constant where it is NULL; None for what is no column that has such a constant."""
    if isinstance(tree, Column) and str(tree.type) in _INSTEAD_OF_NULL:
        return Call("coalesce", (tree, literal(_INSTEAD_OF_NULL[str(tree.type)])))
    return None


def around(draw: random.Random, tree: Tree) -> Tree:
    """A tree, with constants for the NULLs of most columns, or what Spark might simplify around it."""
    filled = tg.Expression(mapped(tree, _never_null))
    condition = filled if tree.type == BOOLEAN else filled.is_null()
    fails = tg.fn.coalesce(tg.col("a"), 3) + tg.fn.coalesce(tg.col("b"), 3) > 0
    made = [
        filled,
        filled.is_null(),
        filled == filled,
        condition & ~condition,
        ~condition | fails | condition,
        fails & filled.is_null(),
        fails & filled.is_not_distinct_from(None),
        filled.is_null() | ~filled.is_null() & fails,
        tg.fn.when(filled.is_null(), fails).otherwise(fails & condition),
    ]
    if tree.type == BIGINT:
        made += [filled * 0, 1 * filled < filled + 0, (filled <= 5) & (filled > 5), filled + 1 + tg.col("b") + 2]
    return tree_of(draw.choice(made))


def test_rare_differences_from_spark_do_not_come_back(reference: SparkRows) -> None:
    """Those that random expressions found: one in a thousand, so that a short run of these can miss them."""
    a, b, s, n, at, numbers = (tg.col(name) for name in ("a", "b", "s", "n", "at", "numbers"))
    date = tg.lit("a").cast("date")  # a constant that fails, beside a number that may be NULL
    string = date.cast("string")
    expressions = [
        tg.fn.floor(b.cast("double")),
        tg.fn.ceil(b.cast("double")),
        b.cast("double").cast("bigint"),
        tg.fn.add_months(date, a),
        tg.fn.add_days(date, a),
        tg.fn.substring(string, a, b),
        tg.fn.split_part(string, s, a),
        numbers[tg.fn.year(date)],
        tg.fn.lower(tg.fn.upper(s)),
        tg.fn.upper(tg.fn.lower(tg.fn.upper(s))),
        tg.fn.concat(string, tg.fn.when(a == 1, a).otherwise(b).cast("string")),
        tg.fn.substring(s, tg.fn.hour(at), tg.fn.coalesce(tg.fn.second(at), tg.lit(-math.inf).cast("bigint"))),
        tg.fn.position(
            tg.lit("a"), tg.fn.when(s.cast("boolean"), tg.fn.ltrim(tg.lit(""))).otherwise(tg.fn.lower(tg.lit("")))
        ),
        tg.fn.when(tg.lit(Decimal("0")) % n == Decimal("0.5"), n).otherwise(n + 1),
        a.cast("decimal(38,0)").is_in([Decimal("0.05"), 7]),
        a.cast("decimal(38,0)") == Decimal("0.05"),
        at.is_in([datetime.date(2024, 2, 29), datetime.date(1970, 1, 1)]),
        tg.fn.ceil(tg.fn.when(s.cast("boolean"), Decimal("-0.01")).otherwise(Decimal("0.00"))),
        tg.fn.when(a / b > 1, 3).otherwise(4) > 2,
        *operands_behind_a_null(),
    ]
    trees = [tree_of(each) for each in expressions]
    assert differences(reference, trees, 1) == []
    assert [each for tree in trees for each in failures_in_place(reference, [tree])] == []


def operands_behind_a_null() -> list[tg.Expression]:
    """Expressions with an operand that may fail, occurs twice or has to be in the calendar, and is computed only for
    rows where the one before it is not NULL, or a condition holds."""
    a, b, s, t, numbers, counts = (tg.col(name) for name in ("a", "b", "s", "t", "numbers", "counts"))
    day = tg.fn.add_days(datetime.date(2024, 2, 29), a % b)
    instant = tg.fn.timestamp_micros(tg.fn.div(a, b))
    return [
        a + (b % 2 + tg.fn.div(1, b)) * tg.fn.div(1, b),
        (a + tg.fn.div(1, b)) / b,
        tg.fn.substring(s, tg.fn.div(1, b), tg.fn.div(1, b)),
        tg.fn.concat(s, t, tg.fn.div(1, b).cast("string"), tg.fn.div(1, b).cast("string")),
        tg.fn.coalesce(a, b) + (tg.fn.div(1, b) + tg.fn.div(1, b)),
        numbers[tg.fn.div(1, b) * tg.fn.div(1, b)],
        counts["a"] + (tg.fn.div(1, b) + tg.fn.div(1, b)),
        (b != 0) & (day > datetime.date(2024, 2, 28)),
        (b == 0) | (instant > datetime.datetime(2024, 2, 28, tzinfo=datetime.UTC)),
        tg.fn.concat(s, day.cast("string")),
        tg.fn.date_format(instant, "yyyy") == s,
        tg.fn.when(b != 0, day).otherwise(None),
    ]


def is_constant_null(tree: Tree) -> bool:
    """Whether a part is NULL without reading a row: Spark makes what it stands in NULL, without computing the rest."""
    return not any(isinstance(each, Column) for each in walk(tree)) and python_results(tree, ROWS[:1]) == [None]


@pytest.mark.parametrize("key", ["p", "x", "s"])
def test_aggregates_of_groups_are_those_of_spark(reference: SparkRows, key: str) -> None:
    small = tg.col("a").between(-1000, 1000)  # the sums of others are errors, which Spark finds in another order
    columns: dict[str, tg.Expression] = {}
    texts = []
    for operation in (each for each in OPERATIONS.values() if each.aggregate):
        for number, tree in enumerate(calls_of(operation)):
            assert isinstance(tree, Call)
            aggregate = tg.Expression(tree)
            for name, kept in (("all", tg.lit(True)), ("some", tg.col("q"))):
                condition = kept & small if operation.name.partition("_")[0] in ("sum", "avg") else kept
                column = f"{operation.name}_{number}_{name}"
                columns[column] = aggregate.filter(condition)
                texts.append(f"{filtered_sql(tree, tree_of(condition))} AS {column}")
    p = tg.Pipeline()
    rows = p | tg.Create(ROWS) | tg.Map(lambda row: row).with_output_types(with_schema(dict[str, Any], SCHEMA))
    ours = (rows | tg.GroupBy(key).agg(**columns)).collect()
    query = f"SELECT {key}, {', '.join(texts)} FROM expression_rows GROUP BY {key}"
    theirs = reference.session.sql(query).collect()
    found = {repr(row[0]): row for row in ours}
    assert found.keys() == {repr(row[0]) for row in theirs}
    different = [
        f"{column} of {row[0]!r}: Python {one!r}, Spark {other!r}"
        for row in theirs
        for column, one, other in zip((key, *columns), found[repr(row[0])], map(from_spark, row), strict=True)
        if not same(one, other, 1e-12)
    ]
    assert different == []


DECIMALS = ((10, 2), (5, 5), (38, 18), (38, 0), (38, 37), (20, 3))


def test_the_types_of_operations_on_decimals_are_those_of_spark(reference: SparkRows) -> None:
    of = {f"d{p}_{s}": f"decimal({p},{s})" for p, s in DECIMALS} | {"n": "bigint", "x": "double"}
    input = Input(Schema(tuple(Field(name, type_named(type)) for name, type in of.items())))
    trees: list[Tree] = []
    decimals = [Column(name) for name in of if name.startswith("d")]
    for one in decimals:
        trees += [Call(name, (one,)) for name in ("floor", "ceil", "abs", "negate")]
        trees += [Call("round", (one, literal(digits))) for digits in (-3, 0, 1, 20)]
        for two in (*decimals, Column("n"), Column("x"), literal(1234), literal(Decimal("0.050"))):
            trees += [Call(name, (one, two)) for name in ("add", "subtract", "multiply", "divide", "remainder")]
            if not isinstance(two, Literal):  # those of Spark are no bigints
                trees.append(Call("coalesce", (one, two)))
    found = [bound(tree, input) for tree in trees]
    texts = ", ".join(f"typeof({bare_sql(tree)})" for tree in trees)
    columns = ", ".join(f"CAST(NULL AS {type}) AS {name}" for name, type in of.items())
    names = list(reference.session.sql(f"SELECT {texts} FROM (SELECT {columns})").collect()[0])
    different = [
        f"{text(tree)}: {tree.type}, Spark {name}"
        for tree, name in zip(found, names, strict=True)
        if str(tree.type) != name
    ]
    assert different == []
    aggregates = [Call(name, (one,)) for name in ("sum", "avg", "min") for one in decimals]
    texts = ", ".join(f"typeof({bare_sql(tree)})" for tree in aggregates)
    names = list(reference.session.sql(f"SELECT {texts} FROM (SELECT {columns})").collect()[0])
    assert [str(bound_aggregate(tree, input, {}).type) for tree in aggregates] == names

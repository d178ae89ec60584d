"""Code generated for expressions and aggregates: special forms give what the general ones give."""

from __future__ import annotations

import datetime
import linecache
import math
import warnings
from collections import deque
from collections.abc import Iterable
from decimal import Decimal
from operator import itemgetter
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.runners.engine.grouping.fold_codegen import adds
from tidegate.runners.engine.loops.form import Form, written
from tidegate.sdk.data.columns import BIGINT, DATE, DOUBLE, STRING, ColumnType, DecimalType
from tidegate.sdk.relational.expressions import Call, Column
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.python import generated_functions
from tidegate.sdk.relational.python.aggregates import AggregateFn, of_plain_values

first_of = itemgetter(0)
VALUES = [-7, -6, -1, 0, 1, 6, 7, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("operation", ["remainder", "div"])
def test_dividing_by_a_literal_is_dividing_by_a_column_of_that_value(operation: str) -> None:
    rows = tg.Pipeline() | tg.Create([tg.Row(n=n, d=3) for n in VALUES]).with_output_types(tg.Row)
    n, d = tg.col("n", int), tg.col("d", int)
    both = {"remainder": (n % 3, n % d), "div": (tg.fn.div(n, 3), tg.fn.div(n, d))}[operation]
    found = (rows | tg.Select(literal=both[0], column=both[1])).collect()
    assert [row.literal for row in found] == [row.column for row in found]


@pytest.mark.parametrize("given", ["1.5", "-1.5", "'a' || 'b'", "1 + 2", "NULL", "CAST(NULL AS BIGINT)", "n"])
def test_python_has_nothing_to_warn_of_in_a_test_for_null(given: str) -> None:
    rows = tg.Pipeline() | tg.Create([Cells("a", None, None, 1)])
    query = f"SELECT {given} IS NULL AS yes, {given} IS NOT NULL AS no FROM pcoll"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = (rows | tg.Sql(query)).collect()
    assert (found.yes, found.no) == ("NULL" in given, "NULL" not in given)


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize(
    ("operation", "type", "values"),
    [
        ("sum", BIGINT, [3, -5, 8]),
        ("sum", DOUBLE, [0.5, -0.0, 2.0]),
        ("avg", BIGINT, [1, 2, 6]),
        ("count", BIGINT, [1, 1]),
        ("min", DOUBLE, [math.nan, 2.0, -1.0, math.nan]),
        ("max", DOUBLE, [1.0, math.nan, 7.0]),
        ("min", BIGINT, [4, -2, 9]),
        ("count_distinct", DOUBLE, [math.nan, math.nan, 1.0, 1.0]),
        ("sum_distinct", DOUBLE, [0.1, 0.2, 0.1, -0.0, 0.0]),
        ("avg_distinct", BIGINT, [4, 4, 1]),
    ],
)
def test_lines_of_a_loop_add_what_the_combiner_adds(
    operation: str, type: ColumnType, values: list[float], bare: bool, nullable: bool
) -> None:
    fn = AggregateFn([Call(operation, (Column("c", type, nullable),), type)], bare)
    inputs = [*values, None] if nullable else values
    table: dict[str, list[float]] = {}
    called = fn.create_accumulator()
    loop: dict[str, Any] = {}
    exec(written(Form("k, x, table, get", adds(fn, "whole")))[0], loop)
    for value in inputs:
        x = value if bare else (value,)
        loop["run"]("key", x, table, table.get)
        called = fn.add_input(called, x)
    all_at_once = fn.add_all(fn.create_accumulator(), [value if bare else (value,) for value in inputs])
    assert repr(fn.extract_output(table["key"])) == repr(fn.extract_output(called))
    assert repr(fn.extract_output(all_at_once)) == repr(fn.extract_output(called))


@pytest.mark.parametrize(
    ("operation", "type", "values"),
    [
        ("count", BIGINT, [3, 3, 1]),
        ("sum", BIGINT, [5, -5, 2**62, 2**62]),
        ("sum", DOUBLE, [-0.0, -0.0]),
        ("sum", DOUBLE, [0.1, math.nan, 0.2]),
        ("min", BIGINT, [4, -2, 9]),
        ("max", STRING, ["b", "", "c"]),
        ("min", DATE, [datetime.date(2024, 2, 29), datetime.date(2023, 1, 1)]),
        ("max", DecimalType(10, 2), [Decimal("1.10"), Decimal("-2.00")]),
    ],
)
def test_built_in_combiners_give_what_the_generated_one_gives(
    operation: str, type: ColumnType, values: list[Any]
) -> None:
    call = Call(operation, (Column("c", type, nullable=False),), type)
    builtin, generated = of_plain_values(call), AggregateFn([call], bare=True)
    assert builtin is not None
    halves = [values[:1], values[1:]]

    def combined(fn: Any) -> Any:
        parts = []
        for half in halves:
            accumulator = fn.create_accumulator()
            for value in half:
                accumulator = fn.add_input(accumulator, value)
            parts.append(accumulator)
        return fn.extract_output(fn.merge_accumulators(parts))

    if type == BIGINT and operation == "sum":
        with pytest.raises(ExpressionError, match="9223372036854775808"):
            combined(generated)
        assert combined(builtin) == sum(values)
    else:
        assert repr((combined(builtin),)) == repr(combined(generated))


@pytest.mark.parametrize(
    "call",
    [
        Call("sum", (Column("c", BIGINT, nullable=True),), BIGINT),
        Call("min", (Column("c", DOUBLE, nullable=False),), DOUBLE),
        Call("sum", (Column("c", DecimalType(10, 2), nullable=False),), DecimalType(20, 2)),
        Call("avg", (Column("c", BIGINT, nullable=False),), DOUBLE),
        Call("count_distinct", (Column("c", BIGINT, nullable=False),), BIGINT),
    ],
    ids=lambda call: f"{call.operation} {call.arguments[0].type}",
)
def test_other_aggregates_have_no_built_in_combiner(call: Call) -> None:
    assert of_plain_values(call) is None


CELLS = {"text": ["", "a", "b"], "number": [None, -1, 0, 7], "double": [None, math.nan, -0.0, 0.0, 1.5], "n": range(3)}


class Cells(NamedTuple):
    text: str
    number: int | None
    double: float | None
    n: int


def test_a_sum_out_of_range_is_refused_where_groups_become_rows() -> None:
    rows = tg.Pipeline() | tg.Create([Cells("a", None, None, 2**62)] * 2)
    with pytest.raises(tg.TidegateError, match=r"9223372036854775808(?s:.)*in step 'sums'"):
        (rows | "sums" >> tg.GroupBy("text").agg(s=tg.fn.sum("n"))).collect()


def rank_of(value: Any, *, descending: bool) -> tuple[int, float]:
    """Where a value of Cells is in an order: NULL first, or last if descending, and NaN after other doubles."""
    if value is None:
        return (2 if descending else 0, 0.0)
    at = float(" ab".find(value or " ")) if isinstance(value, str) else math.inf if value != value else float(value)
    return (1, -at if descending else at)


def shown(values: Iterable[Any]) -> str:
    """Values such that those that SQL groups together look alike."""
    return repr([value + 0.0 if isinstance(value, float) else value for value in values])


@settings(max_examples=60)
@given(
    rows=st.lists(st.builds(Cells, *(st.sampled_from(list(values)) for values in CELLS.values())), max_size=30),
    by=st.lists(st.tuples(st.sampled_from(list(CELLS)), st.booleans()), min_size=1, max_size=3, unique_by=first_of),
    per=st.lists(st.sampled_from(list(CELLS)), max_size=2, unique=True),
    limit=st.integers(1, 4),
)
def test_numbered_rows_are_the_first_of_each_group_in_the_order(
    rows: list[Cells], by: list[tuple[str, bool]], per: list[str], limit: int
) -> None:
    order = [tg.col(name).desc() if descending else tg.col(name) for name, descending in by]
    created = tg.Pipeline() | tg.Create(rows).with_output_types(Cells)
    found = (created | tg.TopN(limit, by=order, per=per, number="place")).collect()

    groups: dict[str, list[Cells]] = {}
    for row in rows:
        groups.setdefault(shown(getattr(row, name) for name in per), []).append(row)
    whole = [*by, *((name, False) for name in CELLS if name not in [*dict(by), *per])]
    expected = []
    for group in groups.values():
        group.sort(key=lambda row: [rank_of(getattr(row, name), descending=down) for name, down in whole])
        expected += [(*row, place) for place, row in enumerate(group[:limit], 1)]

    assert sorted(map(shown, found)) == sorted(map(shown, expected))


def test_only_the_newest_texts_of_generated_functions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated_functions, "_kept", deque())
    monkeypatch.setattr(generated_functions, "_MOST", 3)
    functions = [generated_functions.compiled("f", "x", [f"return x + {n}"], {}) for n in range(5)]
    files = [function.__code__.co_filename for function in functions]
    assert [file in linecache.cache for file in files] == [False, False, True, True, True]
    assert [function(1) for function in functions] == [1, 2, 3, 4, 5]
    assert generated_functions.body_of_compiled(functions[0]) is None
    body = generated_functions.body_of_compiled(functions[4])
    assert body is not None
    assert "x + 4" in body.text

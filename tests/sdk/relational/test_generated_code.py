"""Code generated for expressions and aggregates: special forms give what the general ones give."""

from __future__ import annotations

import linecache
import math
from collections import deque
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.engine.grouping.fold_codegen import adds
from tidegate.runners.engine.loops.form import Form, written
from tidegate.sdk.data.columns import BIGINT, DOUBLE, ColumnType
from tidegate.sdk.relational.expressions import Call, Column
from tidegate.sdk.relational.python import generated_functions
from tidegate.sdk.relational.python.aggregates import AggregateFn

VALUES = [-7, -6, -1, 0, 1, 6, 7, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("operation", ["remainder", "div"])
def test_dividing_by_a_literal_is_dividing_by_a_column_of_that_value(operation: str) -> None:
    rows = tg.Pipeline() | tg.Create([tg.Row(n=n, d=3) for n in VALUES]).with_output_types(tg.Row)
    n, d = tg.col("n", int), tg.col("d", int)
    both = {"remainder": (n % 3, n % d), "div": (tg.fn.div(n, 3), tg.fn.div(n, d))}[operation]
    found = (rows | tg.Select(literal=both[0], column=both[1])).collect()
    assert [row.literal for row in found] == [row.column for row in found]


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

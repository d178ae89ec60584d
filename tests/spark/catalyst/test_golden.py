"""A sample of the golden file still is what Spark answers."""

from __future__ import annotations

from typing import Any

from tests.support.expressions.golden import (
    ROWS,
    answer,
    is_error,
    recorded,
    recorded_rows,
    rows_for,
    spark_rows,
    values,
)
from tests.support.expressions.spark_reference import SparkRows


def test_a_sample_of_the_recorded_answers_is_that_of_spark(spark_session: Any) -> None:
    table = SparkRows(spark_session, ROWS)
    cases = recorded()
    plain = {each: rows_for(each) for each, answers in cases.items() if not any(map(is_error, answers))}
    sample = {each: plain[each] for each in list(plain)[::9]}
    assert len(sample) > 12
    for expression, found in values(table, sample).items():
        assert list(found.values()) == cases[expression], expression
    failing = [each for each in cases if each not in plain]
    for expression in failing[::16]:
        at = next(k for k, one in enumerate(cases[expression]) if is_error(one))
        assert answer(table, expression, rows_for(expression)[at]) == cases[expression][at], expression
    queries = recorded_rows()
    for query in list(queries)[4::6]:
        assert repr(spark_rows(table, query)) == repr(queries[query]), query

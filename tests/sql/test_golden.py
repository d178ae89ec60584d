"""Expressions over edge values have the answers in Python that Spark gave when tests/sql/golden.json was recorded."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.expressions.golden import (
    EXPRESSIONS,
    FILE,
    QUERIES,
    ROWS,
    is_error,
    python_answers,
    python_rows,
    recorded,
    recorded_rows,
    rows_for,
)

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"


def test_python_gives_the_recorded_values_and_errors() -> None:
    different = [
        f"{expression} of {ROWS[number]}: Python {ours!r}, Spark {theirs!r}"
        for expression, answers in recorded().items()
        for number, ours, theirs in zip(rows_for(expression), python_answers(expression), answers, strict=True)
        if ours != theirs or type(ours) is not type(theirs)
    ]
    assert different == []


def test_queries_have_the_recorded_rows() -> None:
    different = [
        f"{query}: Python {ours!r}, Spark {theirs!r}"
        for query, theirs in recorded_rows().items()
        if repr(ours := python_rows(query)) != repr(theirs)
    ]
    assert different == []


def test_the_file_is_of_these_expressions_and_of_the_spark_that_is_pinned() -> None:
    asked = [*recorded(), *recorded_rows()]
    assert asked == [*EXPRESSIONS, *QUERIES], "record it again: python -m tests.support.expressions.golden"
    version = json.loads(FILE.read_text())["spark"]
    assert f"pyspark=={version}" in CONSTRAINTS.read_text().splitlines(), "record it again with the new Spark"


def test_the_file_has_values_and_every_kind_of_error() -> None:
    answers = [each for case in recorded().values() for each in case]
    assert len(answers) > 5_000
    assert {each["error"] for each in answers if is_error(each)} >= {
        "ARITHMETIC_OVERFLOW",
        "CAST_INVALID_INPUT",
        "CAST_OVERFLOW",
        "DIVIDE_BY_ZERO",
        "INVALID_ARRAY_INDEX",
        "NUMERIC_VALUE_OUT_OF_RANGE",
        "REMAINDER_BY_ZERO",
    }

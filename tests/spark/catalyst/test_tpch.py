"""The 22 queries of TPC-H on Spark alone, against answers recorded from DuckDB."""

from __future__ import annotations

import pytest

from tests.support.sql.tpch_answers import assert_answer, folder_of


@pytest.mark.parametrize("number", range(1, 23))
def test_spark_answers_a_query_of_tpch_without_python(
    number: int, no_workers: None, pytestconfig: pytest.Config
) -> None:
    assert_answer(folder_of(pytestconfig), number, "spark")

"""The 22 queries of TPC-H, against answers recorded from DuckDB. `--tpch` gives a folder with larger tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sql.tpch_answers import assert_answer, folder_of


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest) -> Path:
    return folder_of(request.config)


@pytest.mark.parametrize("number", range(1, 23))
def test_a_query_of_tpch_has_the_answer_of_duckdb(folder: Path, number: int) -> None:
    assert_answer(folder, number, "direct")


@pytest.mark.parametrize("number", range(1, 23))
def test_a_query_of_tpch_has_the_answer_of_duckdb_on_the_streaming_runner(
    folder: Path, number: int, request: pytest.FixtureRequest
) -> None:
    if number not in (4, 16) and request.config.getoption("--tpch-streaming") == "sample":
        pytest.skip("--tpch-streaming all runs all queries on the streaming runner")
    assert_answer(folder, number, "streaming")

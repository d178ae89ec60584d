"""The 22 queries of TPC-H, against answers recorded from DuckDB. `--tpch` gives a folder with larger tables."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.sql.tpch_tables import tables

SMALL = Path(__file__).parent / "tpch"


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest) -> Path:
    given = request.config.getoption("--tpch")
    return Path(given) if given else SMALL


def plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


def assert_answer(folder: Path, number: int, runner: str, **options: Any) -> None:
    recorded = json.loads((folder / "queries.json").read_text())
    query = recorded["queries"][str(number)]
    pipeline = tg.Pipeline(runner, **options)
    rows = (tables(pipeline, folder, query) | tg.Sql(query)).collect()
    answer = recorded["answers"][str(number)]
    assert len(rows) == len(answer)
    for row, wanted in zip(rows, answer, strict=True):
        for one, two in zip(map(plain, row), wanted, strict=True):
            if isinstance(one, Decimal):
                assert_decimal(one, two)
            elif isinstance(two, float):
                assert math.isclose(one, two, rel_tol=1e-12, abs_tol=1e-9), (row, wanted)
            else:
                assert one == two, (row, wanted)


def assert_decimal(ours: Decimal, recorded: Any) -> None:
    """DuckDB's sums of decimals are exact. Its means and quotients are doubles: ours are those, rounded."""
    if isinstance(recorded, float):
        _, _, exponent = ours.as_tuple()
        assert isinstance(exponent, int)
        half = Decimal(5).scaleb(exponent - 1)
        assert abs(ours - Decimal(recorded)) <= half + abs(ours) * Decimal("1e-15"), (ours, recorded)
    else:
        assert ours == Decimal(recorded), (ours, recorded)


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

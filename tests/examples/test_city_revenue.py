"""The example of revenue by city gives the same in SQL and in expressions, on each runner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.example_scripts import DATA, load_example

city_revenue = load_example("city_revenue")


@pytest.mark.parametrize(
    ("runner", "expressions"),
    [
        ("direct", False),
        ("direct", True),
        ("streaming", False),
        ("streaming", True),
        pytest.param("spark", False, marks=pytest.mark.xdist_group("spark")),
        pytest.param("spark", True, marks=pytest.mark.xdist_group("spark")),
    ],
)
def test_revenue_is_added_up_by_city_and_window(
    runner: str, expressions: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if runner == "spark":
        request.getfixturevalue("spark_session")
    options = city_revenue.Options(
        shop=str(DATA / "shop"), output=str(tmp_path / "revenue"), runner=runner, expressions=expressions
    )
    city_revenue.pipeline(options).run().wait_until_finish()
    rows = [json.loads(line) for path in tmp_path.glob("revenue*") for line in path.read_text().splitlines()]
    found = sorted((row["window_start"], row["city"], row["revenue"], row["orders"]) for row in rows)
    ten, twelve = "2024-01-01T10:00:00Z", "2024-01-01T10:10:00Z"
    assert found == [(ten, "Bern", 3.0, 1), (ten, "Ulm", 2.5, 1), (twelve, "Bern", 7.0, 1)]

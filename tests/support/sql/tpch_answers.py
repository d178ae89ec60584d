"""The answers to the queries of TPC-H, recorded from DuckDB, and the comparison with them."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import tidegate as tg
from tests.support.sql.tpch_tables import tables

SMALL = Path(__file__).parents[2] / "sql" / "tpch"


def folder_of(config: Any) -> Path:
    """The folder with the tables: that of `--tpch`, or the small one."""
    given = config.getoption("--tpch")
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

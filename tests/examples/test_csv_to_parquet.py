"""The conversion of CSV files to Parquet is compared with a loop over the same files: rows, folders, rejected lines."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow.dataset
import pytest

from tests.support.example_scripts import DATA, lines_of, load_example

csv_to_parquet = load_example("csv_to_parquet")
TILLS = sorted((DATA / "tills").glob("*.csv"))
REJECTED = {("harbour.csv", 8), ("station.csv", 5), ("station.csv", 13)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which one run has written `sales`."""
    folder: Path = tmp_path_factory.mktemp("converted")
    options = csv_to_parquet.ConversionOptions(input=str(DATA / "tills" / "*.csv"), output=str(folder / "sales"))
    csv_to_parquet.pipeline(options).run().wait_until_finish()
    return folder


def till_lines() -> list[dict[str, Any]]:
    """The lines that are sales, as read by the module csv."""
    found = []
    for path in TILLS:
        with path.open(newline="") as file:
            rows = csv.DictReader(file)
            found += [row for row in rows if (path.name, rows.line_num) not in REJECTED]
    return found


def test_the_rows_equal_those_of_a_loop(folder: Path) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    expected = [
        {
            "at": datetime.fromisoformat(line["at"]).replace(tzinfo=berlin).astimezone(UTC),
            "item": line["item"],
            "pieces": int(line["pieces"]),
            "total": int(line["pieces"]) * Decimal(line["price"]),
            "card": line.get("card") or None,
            "shop": line["shop"],
            "day": line["at"][:10],
        }
        for line in till_lines()
    ]
    files = [str(path) for path in (folder / "sales").rglob("*.parquet")]
    sales = pyarrow.dataset.dataset(files, partitioning="hive", partition_base_dir=str(folder / "sales"))
    found = sales.to_table().to_pylist()
    place = itemgetter("shop", "at", "item")
    assert sorted(found, key=place) == sorted(expected, key=place)
    assert {row["card"] for row in found} > {None, "K-17"}


def test_each_shop_and_day_has_a_folder(folder: Path) -> None:
    folders = {str(path.parent.relative_to(folder / "sales")) for path in (folder / "sales").rglob("*.parquet")}
    assert folders == {f"shop={line['shop']}/day={line['at'][:10]}" for line in till_lines()}


def test_rejected_lines_are_written_with_their_position_and_the_reason(folder: Path) -> None:
    rejected = list(csv.DictReader(lines_of(folder / "sales-rejected")))
    assert {(Path(row["file"]).name, int(row["line_or_row"])) for row in rejected} == REJECTED
    reasons = {row["text"]: row["reason"] for row in rejected}
    assert reasons["2024-03-01 10:12:00,station"] == "Expected 5 columns, got 2"
    assert all(reasons.values())

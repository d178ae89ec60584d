"""The analysis of a log is compared with a loop over the same files: statuses and failures by minute, broken lines."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.example_scripts import DATA, lines_of, load_example

log_analysis = load_example("log_analysis")
LOGS = sorted((DATA / "logs").glob("*.jsonl"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, str]]]:
    """The rows that one run writes, by the names of their files."""
    folder: Path = tmp_path_factory.mktemp("log")
    options = log_analysis.LogOptions(input=str(DATA / "logs" / "*.jsonl"), output=str(folder / "log"))
    result = log_analysis.pipeline(options).run()
    result.wait_until_finish()
    assert result.metrics().counter("bad_records") == len(broken())
    return {name: list(csv.DictReader(lines_of(folder / f"log-{name}"))) for name in ("statuses", "failures", "broken")}


def lines() -> list[tuple[str, int, str]]:
    """The lines of all files, with file and number."""
    return [(str(path), number, line) for path in LOGS for number, line in enumerate(path.read_text().splitlines(), 1)]


def request_of(line: str) -> dict[str, Any] | None:
    """The request of a line; None if it is broken."""
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return found if found["at"].endswith("Z") and type(found["status"]) is int else None


def requests() -> list[dict[str, Any]]:
    return [found for _, _, line in lines() if (found := request_of(line)) is not None]


def broken() -> list[tuple[str, int]]:
    """The file and the number of each broken line."""
    return [(path, number) for path, number, line in lines() if request_of(line) is None]


def minute(request: dict[str, Any]) -> str:
    """The minute of a request, as in the CSV file."""
    return f"{request['at'][:16].replace('T', ' ')}:00"


def test_statuses_are_counted_by_minute_and_path(written: dict[str, list[dict[str, str]]]) -> None:
    expected = Counter((minute(each), each["path"], str(each["status"])) for each in requests())
    found = {(row["minute"][:19], row["path"], row["status"]): int(row["requests"]) for row in written["statuses"]}
    assert found == expected
    assert len(found) == len(written["statuses"])


def test_the_share_of_failures_equals_that_of_a_loop(written: dict[str, list[dict[str, str]]]) -> None:
    total = Counter((minute(each), each["path"]) for each in requests())
    failed = Counter((minute(each), each["path"]) for each in requests() if each["status"] >= 500)
    found = {
        (row["minute"][:19], row["path"]): (int(row["requests"]), int(row["failed"]), float(row["share"]))
        for row in written["failures"]
    }
    assert found == {key: (n, failed[key], round(failed[key] / n, 4)) for key, n in total.items()}
    assert any(0 < share < 1 for *_, share in found.values())


def test_broken_lines_are_written_with_their_position(written: dict[str, list[dict[str, str]]]) -> None:
    assert sorted((row["file"], int(row["line_or_row"])) for row in written["broken"]) == sorted(broken())
    reasons = sorted(row["reason"] for row in written["broken"])
    assert any("it is not JSON" in reason for reason in reasons)
    assert any(row["column"] == "status" for row in written["broken"])

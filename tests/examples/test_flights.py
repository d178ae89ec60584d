"""The output of the flights example is compared with that of plain loops over the same file."""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from collections import defaultdict
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.support.example_scripts import EXAMPLES, load_example, run_successfully

pytestmark = pytest.mark.xdist_group("flights")  # they share what the example wrote and what the plain loop read

NEW_YORK = ZoneInfo("America/New_York")
EVERY = 20_000


@pytest.fixture(scope="module")
def rows() -> list[tuple[float, dict[str, str]]]:
    """Every flight with its departure time (the scheduled one if it was cancelled)."""
    found = []
    with zipfile.ZipFile(load_example("flights").installed_flights()) as archive, archive.open("flights.csv") as file:
        for row in csv.DictReader(io.TextIOWrapper(file, "utf-8")):
            at = datetime.strptime(row["time_hour"], "%Y-%m-%dT%H:%M:%S%z").timestamp() + int(row["minute"]) * 60
            delay = row["dep_delay"]
            found.append((at if delay in ("", "NA") else at + int(delay) * 60, row))
    return found


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The example's output by file name."""
    folder = tmp_path_factory.mktemp("flights")
    run_successfully(sys.executable, EXAMPLES / "flights.py", "--output", folder, "--every", str(EVERY))
    return {path.name.partition("-")[0]: path.read_text().splitlines() for path in folder.glob("*.txt")}


def local_day(at: float) -> str:
    return datetime.fromtimestamp(at, NEW_YORK).date().isoformat()


def flown(rows: list[tuple[float, dict[str, str]]]) -> list[tuple[float, dict[str, str]]]:
    return [(at, row) for at, row in rows if row["dep_delay"] not in ("", "NA")]


def test_the_mean_delay_of_each_carrier_and_day_equals_that_of_a_plain_loop(
    rows: list[tuple[float, dict[str, str]]], lines: dict[str, list[str]]
) -> None:
    delays: dict[tuple[str, str], list[int]] = defaultdict(list)
    for at, row in flown(rows):
        delays[local_day(at), row["carrier"]].append(int(row["dep_delay"]))
    expected = {f"{day} {carrier} {sum(found) / len(found):.2f}" for (day, carrier), found in delays.items()}
    assert set(lines["carriers"]) == expected
    assert len(lines["carriers"]) == len(expected)


def test_the_spells_of_each_aircraft_equal_those_of_its_sorted_departures(
    rows: list[tuple[float, dict[str, str]]], lines: dict[str, list[str]]
) -> None:
    times: dict[str, list[float]] = defaultdict(list)
    for at, row in flown(rows):
        if row["tailnum"] not in ("", "NA"):
            times[row["tailnum"]].append(at)
    expected = []
    for aircraft, found in times.items():
        spells: list[list[float]] = []
        for at in sorted(found):
            if spells and at - spells[-1][-1] < 12 * 3600:
                spells[-1].append(at)
            else:
                spells.append([at])
        for spell in spells:
            start = datetime.fromtimestamp(spell[0], ZoneInfo("UTC"))
            minutes = int(spell[-1] - spell[0]) // 60
            expected.append(f"{aircraft} {start:%Y-%m-%dT%H:%MZ} {len(spell)} flights in {minutes} minutes")
    assert sorted(lines["aircraft"]) == sorted(expected)


def test_the_worst_delays_are_written_after_a_number_of_departures_and_at_the_end(
    rows: list[tuple[float, dict[str, str]]], lines: dict[str, list[str]]
) -> None:
    expected = []
    seen: dict[str, list[tuple[int, tuple[str, ...]]]] = defaultdict(list)
    panes: dict[str, int] = defaultdict(int)
    fields = ("carrier", "flight", "tailnum", "origin", "dest")

    def expect(origin: str, timing: str) -> None:
        worst = sorted(seen[origin], reverse=True)[:10]
        flights = ", ".join(f"{f[0]}{f[1]} to {f[4]} {delay}" for delay, f in worst)
        expected.append(f"{origin} {panes[origin]:02d} {timing}: {flights}")
        panes[origin] += 1

    for _, row in sorted(flown(rows), key=lambda found: found[0]):
        delays = seen[row["origin"]]
        delays.append((int(row["dep_delay"]), tuple(row[field] for field in fields)))
        if len(delays) % EVERY == 0:
            expect(row["origin"], "early")
    for origin in seen:
        expect(origin, "on_time")
    assert sorted(lines["worst"]) == sorted(expected)


def test_cancelled_flights_are_counted_by_their_scheduled_day(
    rows: list[tuple[float, dict[str, str]]], lines: dict[str, list[str]]
) -> None:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for at, row in rows:
        if row["dep_delay"] in ("", "NA"):
            counts[local_day(at), row["carrier"]] += 1
    assert sorted(lines["cancelled"]) == sorted(f"{day} {carrier} {n}" for (day, carrier), n in counts.items())

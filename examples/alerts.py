"""Monitor machines: report those that are too hot for too long or stop reporting, and mean temperatures by window.

    tidegate run examples/alerts.py --runner streaming --checkpoint_dir build/checkpoints --output build/watch
    tidegate run examples/alerts.py --runner direct --run_for 10 --output build/watch
    tidegate run examples/alerts.py --runner spark --spark_checkpoint_dir build/checkpoints --output build/watch

writes lines such as `12:30:05 press-3: 91.2 °C, and above 85 for 2 s` to files whose names begin with
`build/watch-alerts`, and the means to `build/watch-means`. The input has no end: Ctrl-C stops the pipeline. The first
and the last command then resume it when they are given again, and every alert and every mean is written exactly once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic import Field

import tidegate as tg

NAMES = ("press", "saw", "kiln", "mixer")


class AlertsOptions(tg.PipelineOptions):
    """The machines to monitor, and the files to write."""

    output: str = Field(description="the prefix of the files to write")
    machines: int = Field(default=8, ge=1, description="how many machines there are")
    every: float = Field(default=0.25, gt=0, description="seconds between two readings of a machine")
    limit: float = Field(default=85.0, description="the highest normal temperature, in °C")
    patience: float = Field(default=2.0, gt=0, description="seconds of heat, or of silence, before an alert")
    window: float = Field(default=5.0, gt=0, description="the seconds of the windows of mean temperatures")


@dataclass(frozen=True)
class Reading:
    """The temperature of a machine."""

    machine: str
    celsius: float


@dataclass(frozen=True)
class Alert:
    """The beginning or the end of a problem."""

    at: tg.Timestamp
    machine: str
    text: str


def readings(tick: tg.Timestamp, machines: int) -> Iterator[Reading]:
    """The readings of an instant. Machines heat up and cool down, and each is silent for 4 of 30 seconds."""
    second = tick.seconds()
    for n in range(machines):
        if (second + 5 * n) % 30 >= 4:
            noise = math.sin(second * 12.9898 + n * 78.233) * 43758.5453 % 1
            yield Reading(f"{NAMES[n % len(NAMES)]}-{n}", 75 + 15 * math.sin(second / 4 + n) + noise)


HOT_SINCE = tg.ValueStateSpec("hot_since")
PROBLEM = tg.ValueStateSpec("problem")
SILENCE = tg.EventTimer("silence")


class Watch(tg.DoFn):
    """Emits one alert when a problem of a machine begins, and one when it ends."""

    def __init__(self, limit: float, patience: float) -> None:
        self.limit = limit
        self.patience = patience

    def process(
        self,
        element: tuple[str, Reading],
        at: tg.Timestamp = tg.DoFn.TimestampParam,
        hot_since: tg.ValueState[tg.Timestamp] = tg.DoFn.StateParam(HOT_SINCE),
        problem: tg.ValueState[str] = tg.DoFn.StateParam(PROBLEM),
        silence: tg.Timer = tg.DoFn.TimerParam(SILENCE),
    ) -> Iterator[Alert]:
        machine, reading = element
        silence.set(at + self.patience)
        if problem.read() == "silent":
            problem.clear()
            yield Alert(at, machine, "reports again")
        if reading.celsius <= self.limit:
            hot_since.clear()
            if problem.read() == "hot":
                problem.clear()
                yield Alert(at, machine, f"has cooled down to {reading.celsius:.1f} °C")
            return
        since = hot_since.read()
        if since is None:
            hot_since.write(at)
        elif at - since >= tg.Duration.of(self.patience) and problem.read() is None:
            problem.write("hot")
            yield Alert(at, machine, f"{reading.celsius:.1f} °C, and above {self.limit:g} for {self.patience:g} s")

    @tg.on_timer(SILENCE)
    def fell_silent(
        self,
        machine: str = tg.DoFn.KeyParam,
        at: tg.Timestamp = tg.DoFn.TimestampParam,
        hot_since: tg.ValueState[tg.Timestamp] = tg.DoFn.StateParam(HOT_SINCE),
        problem: tg.ValueState[str] = tg.DoFn.StateParam(PROBLEM),
    ) -> Iterable[Alert]:
        hot_since.clear()
        problem.write("silent")
        return [Alert(at, machine, f"silent for {self.patience:g} s")]


def as_line(alert: Alert) -> str:
    """The line of an alert."""
    return f"{alert.at.to_utc_datetime():%H:%M:%S} {alert.machine}: {alert.text}"


def mean_as_line(mean: tuple[str, float], window: tg.IntervalWindow = tg.DoFn.WindowParam) -> str:
    """The line of a window's mean."""
    return f"{window.end.to_utc_datetime():%H:%M:%S} {mean[0]}: {mean[1]:.1f}"


def pipeline(options: AlertsOptions) -> tg.Pipeline:
    """Monitor machines that report their temperature."""
    p = tg.Pipeline(options=options, name="alerts")
    by_machine = (
        p
        | "tick" >> tg.PeriodicImpulse(options.every)
        | "read" >> tg.FlatMap(readings, options.machines)
        | tg.Map(lambda reading: (reading.machine, reading), name="by machine")
    )
    (
        by_machine
        | "watch" >> tg.ParDo(Watch(options.limit, options.patience))
        | "as line" >> tg.Map(as_line)
        | "write alerts" >> tg.io.WriteToText(f"{options.output}-alerts")
    )
    (
        by_machine
        | "temperature" >> tg.MapTuple(lambda machine, reading: (machine, reading.celsius))
        | "window" >> tg.WindowInto(tg.FixedWindows(options.window))
        | "mean" >> tg.combiners.Mean.PerKey()
        | "as line too" >> tg.Map(mean_as_line)
        | "write means" >> tg.io.WriteToText(f"{options.output}-means")
    )
    return p


if __name__ == "__main__":
    pipeline(AlertsOptions.from_args()).run().wait_until_finish()

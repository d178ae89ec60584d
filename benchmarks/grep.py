"""`make bench-grep`: measures the throughput and latency of a streaming grep for several buffer timeouts.

    python benchmarks/grep.py [--seconds 8] [--rates 200000,667000] [--workers 2] [--timeouts 0,5,10,50,100]
        [--svg FILE]

Modelled on figure 4 of "Apache Flink: Stream and Batch Processing in a Single Engine": a source, a rebalance, a filter
by substring, a count. Prints a table with a row per timeout (ms). Each timeout has several runs, with a checkpoint
every second: one at full load, limited by backpressure only, for the throughput, and one for each rate (records per
second and worker), for the latency. A record contains its creation time, and its latency is measured after the filter.
At full load, latency depends on the queues rather than the timeout, and is shown in columns of its own. A source with a
rate is polled every millisecond, and emits the records created since the last poll.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tidegate as tg
from tidegate.sdk.connectors.sinks import Attempt, Sink
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block

WORD = "tide"
ONE_IN = 10
"""One of so many lines contains the word."""
LINES = [f"line {n} of the log" + f" has {WORD} in it" * (n % ONE_IN == 0) for n in range(1000)]
WARM = 2.0
"""Seconds at the beginning of a run that are not measured."""


@dataclass(frozen=True)
class Log(Source[Any]):
    """Endless pairs `(creation time, line)`, `rate` per second in all splits together; as many as possible if it is
    0."""

    parts: int
    rate: float

    bounded = False

    def splits(self, desired: int) -> list[Split]:
        return [Split(f"part-{n}") for n in range(self.parts)]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _LogReader(self.rate / self.parts, position or 0)


class _LogReader(Reader[Any]):
    def __init__(self, rate: float, at: int) -> None:
        self._rate = rate
        self._at = self._first = at
        self._began = time.time()

    def read(self, limit: int) -> Batch:
        now = time.time()
        count = limit
        if self._rate:
            count = min(limit, self._first + int((now - self._began) * self._rate) - self._at)
            if not count:
                return Batch(Block([], []), wait=0.001)
        made = int(now * 1_000_000)
        start, self._at = self._at % len(LINES), self._at + count
        lines = (LINES * (count // len(LINES) + 2))[start : start + count]
        return Batch(Block([(made, line) for line in lines], made), watermark=made)

    def position(self) -> Position:
        return self._at


@dataclass(frozen=True)
class Arrivals(Sink[Any]):
    """Writes two numbers (µs) per record to files in a folder: the time of its arrival, and its latency."""

    folder: str

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        return _ArrivalsAttempt(Path(self.folder, f"{task}"))


class _ArrivalsAttempt(Attempt[Any]):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._arrivals = array("q")

    def write(self, values: Sequence[Any]) -> None:
        now = time.time_ns() // 1000
        for made, _ in values:
            self._arrivals.append(now)
            self._arrivals.append(now - made)

    def prepare(self) -> list[Any]:
        with self._path.open("ab") as file:
            self._arrivals.tofile(file)
        del self._arrivals[:]
        return []


@dataclass(frozen=True)
class Measured:
    """The results of a run: records per second, and latencies in milliseconds."""

    throughput: float
    p50: float
    p99: float


def measure(timeout: float, rate: float, workers: int, seconds: float) -> Measured:
    """Run the pipeline once, with a buffer timeout in ms."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--workers", str(workers), "--buffer_timeout", str(timeout / 1000), "--checkpoint_interval", "1"]
        p = tg.Pipeline(options=["--runner", "streaming", *flags, "--run_for", str(seconds + WARM)])
        _ = (
            p
            | "log" >> tg.Read(Log(workers, rate))
            | "spread" >> tg.Reshuffle()
            | "grep" >> tg.Filter(lambda record: WORD in record[1])
            | "arrivals" >> tg.Write(Arrivals(folder))
        )
        p.run().wait_until_finish()
        arrivals = array("q")
        for path in Path(folder).iterdir():
            arrivals.frombytes(path.read_bytes())
    first = min(arrivals[::2]) + int(WARM * 1_000_000)
    last = first + int((seconds - 0.5) * 1_000_000)
    latencies = sorted(late for at, late in zip(arrivals[::2], arrivals[1::2]) if first <= at < last)
    if not latencies:
        raise SystemExit("no records arrived: set more --seconds")
    return Measured(
        len(latencies) * ONE_IN / (last - first) * 1_000_000,
        latencies[len(latencies) // 2] / 1000,
        latencies[len(latencies) * 99 // 100] / 1000,
    )


def svg(rows: Sequence[tuple[float, Measured, Sequence[Measured]]], rate: float) -> str:
    """The table as a plot over the timeouts: throughput as bars, p50 and p99 at the lowest rate as lines."""
    width, height, left, low = 640, 360, 70, 300
    step = (width - 2 * left) / len(rows)
    most = max(full.throughput for _, full, _ in rows)
    slowest = max(calm[0].p99 for _, _, calm in rows)

    def line(colour: str, values: Sequence[float]) -> Iterator[str]:
        points = [(left + step * (n + 0.5), low - 240 * value / slowest) for n, value in enumerate(values)]
        yield f'<polyline fill="none" stroke="{colour}" points="{" ".join(f"{x:.0f},{y:.0f}" for x, y in points)}"/>'
        for (x, y), value in zip(points, values):
            yield f'<text x="{x:.0f}" y="{y - 6:.0f}" fill="{colour}" text-anchor="middle">{value:.1f} ms</text>'

    head = f'viewBox="0 0 {width} {height}" font-size="11" font-family="sans-serif"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {head}>']
    for n, (timeout, full, _) in enumerate(rows):
        x, tall = left + step * (n + 0.2), 240 * full.throughput / most
        bar = f'x="{x:.0f}" y="{low - tall:.0f}" width="{step * 0.6:.0f}" height="{tall:.0f}"'
        middle = f'x="{x + step * 0.3:.0f}" text-anchor="middle"'
        parts += [
            f'<rect {bar} fill="#dde6f0"/>',
            f'<text {middle} y="{low - 6}" fill="#567">{full.throughput / 1e6:.2f} M/s</text>',
            f'<text {middle} y="{low + 18}">{timeout:g} ms</text>',
        ]
    parts += line("#1a7f37", [calm[0].p50 for _, _, calm in rows])
    parts += line("#b3261e", [calm[0].p99 for _, _, calm in rows])
    lines = f"p50 and p99 latency at {rate:,.0f} per second and worker"
    legend = f"buffer timeout; bars: records per second at full load; lines: {lines}"
    parts += [f'<text x="{width / 2}" y="{height - 12}" text-anchor="middle">{legend}</text>', "</svg>"]
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rates", default="200000,667000", help="records per second and worker")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeouts", default="0,5,10,50,100")
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    rates = [float(part) for part in args.rates.split(",")]
    loads = ["full load", *(f"{rate:,.0f} per second, each" for rate in rates)]
    print(f"{args.workers} workers, Python {sys.version.split()[0]}, {os.cpu_count()} cores, {args.seconds:g} s a run")
    print(f"{'':>10}" + "".join(f"{load:>30}" for load in loads))
    print(f"{'timeout':>10}" + f"{'records/s':>14}{'p50 ms':>8}{'p99 ms':>8}" * len(loads))
    rows = []
    for timeout in (float(part) for part in args.timeouts.split(",")):
        full, *calm = (measure(timeout, rate * args.workers, args.workers, args.seconds) for rate in (0, *rates))
        rows.append((timeout, full, calm))
        cells = "".join(f"{m.throughput:14,.0f}{m.p50:8.1f}{m.p99:8.1f}" for m in (full, *calm))
        print(f"{timeout:>7g} ms{cells}", flush=True)
    if args.svg is not None:
        args.svg.write_text(svg(rows, rates[0]), encoding="utf-8")


if __name__ == "__main__":
    main()

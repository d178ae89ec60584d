"""`make bench-checkpoints`: what checkpoints of large state cost a stream. Prints a table.

    python benchmarks/checkpoints.py [--keys 1000000] [--backends memory,rocksdb] [--workers 1,2] [--state dofn]
        [--turns 10] [--repeat 1] [--memory_budget 1GB]

A source counts, by key, as fast as it is let: first every key once, then those of a twentieth that moves on by its own
width each second, so that a tenth of all is counted between two checkpoints. In turns there is a checkpoint each
second for some seconds, and none for some: what they cost is by how much less gets through meanwhile. It is one run,
for two may differ by several hundredths, as memory happens to lie; `cost` is that of all turns together, so that a
checkpoint which has everything counts as often as there is one, with the least and the most of a turn. (`--repeat`: in
so many runs.) The first second of a turn with checkpoints is not looked at, for that has to take what changed without
them, nor is the first half of one without, in which the last is still written.

`pause` is the longest that a task stood still for its part of a checkpoint, as it tells; `gap` the longest between two
reads of a source in a second, which is what the stream feels (the median of all), and `without` the same in turns
without checkpoints. `lasts` is how long a checkpoint takes until it is complete, `taken` how many there were.
The counts are in a `DoFn`'s state; with `--state combine` in a combine's, whose parts for all the keys of a second
leave in front of each barrier, while without barriers those of several seconds are one: then that is in the cost.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import tidegate as tg
from tidegate.runners.streaming.checkpoint.tracker import CheckpointTracker
from tidegate.runners.streaming.client.job_client import JobClient
from tidegate.runners.streaming.coordinator import checkpoint_coordinator
from tidegate.runners.streaming.protocol.coordinator_io import CancelJob, CheckpointReport
from tidegate.runners.streaming.runner import StreamingRunner
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.options.model import PipelineOptions
from tidegate.sdk.time import SECOND

TENTHS = 10
COUNT = tg.ValueStateSpec("count")
STRIDE = 7919
"""Neighbours in time are no neighbours in memory."""
ON, OFF = 7.0, 4.0
"""Seconds with a checkpoint each, and without, in turns: what has everything comes at another place in each."""
SETTLE = 1.0
"""Seconds after the last key has come for the first time that are not looked at."""
NOTED = 0.05
"""Seconds after which a source notes again how far it has come."""
LEAD, TAIL = 1.0, 0.5
"""Seconds at the beginning of either that are not looked at."""


@dataclass(frozen=True)
class Keys(Source[Any]):
    """`(key, 1)` without end, in as many parts. Each part notes in its file of `folder` how far it has come."""

    keys: int
    parts: int
    folder: str

    bounded = False

    def splits(self, desired: int) -> list[Split]:
        return [Split(f"part-{n}", None, n) for n in range(self.parts)]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _KeysReader(self, split.payload)


class _KeysReader(Reader[Any]):
    def __init__(self, source: Keys, part: int) -> None:
        self._share = source.keys // source.parts
        self._first = part * self._share
        self._at = 0
        self._notes = Path(source.folder, str(part)).open("w")  # noqa: SIM115  open as long as the process
        self._noted = self._last = time.time()
        self._gap = 0.0

    def read(self, limit: int) -> Batch:
        now = time.time()
        self._gap, self._last = max(self._gap, now - self._last), now
        if now - self._noted > NOTED:
            self._notes.write(f"{now} {self._at} {self._gap} {int(self._at >= self._share)}\n")
            self._notes.flush()
            self._noted, self._gap = now, 0.0
        start, self._at = self._at, self._at + limit
        if start < self._share:
            low, width = self._first, self._share
        else:
            width = self._share // TENTHS // 2
            low = self._first + int(now * width) % (self._share - width)
        pairs = [(low + n * STRIDE % width, 1) for n in range(start, start + limit)]
        return Batch(Block(pairs, 0))

    def position(self) -> Position:
        return self._at


class Count(tg.DoFn):
    """The same count in a cell of its own for each key."""

    def process(self, element: tuple[int, int], count: tg.ValueState[int] = tg.DoFn.StateParam(COUNT)) -> None:
        count.write((count.read() or 0) + element[1])


class Alternating(CheckpointTracker):
    """Checkpoints in turns, by the wall clock."""

    def next_wake(self) -> int | None:
        wake = super().next_wake()
        if wake is None or self.pending is not None:
            return wake
        since = wake / SECOND % (ON + OFF)
        return wake if since < ON else wake + int((ON + OFF - since) * SECOND)

    def is_due(self, now: int) -> bool:
        return super().is_due(now) and now / SECOND % (ON + OFF) < ON


@dataclass(frozen=True)
class Turn:
    """Elements a second with checkpoints and right afterwards without, and the longest gap in each (ms)."""

    with_: float
    without: float
    gap: float
    gap_without: float

    @property
    def cost(self) -> float:
        return 1 - self.with_ / self.without


@dataclass(frozen=True)
class Measured:
    """Of one run; memory (MB) is that of the largest worker at its peak."""

    turns: list[Turn]
    memory: float
    checkpoints: list[CheckpointReport]


def measure(args: argparse.Namespace, backend: str, workers: int) -> Measured:
    """One run."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--runner=streaming", f"--workers={workers}", "--checkpoint_interval=1"]
        flags += [f"--state_backend={backend}", f"--memory_budget={args.memory_budget}", f"--temp_dir={folder}"]
        p = tg.Pipeline(options=[])
        keys = p | "keys" >> tg.Read(Keys(args.keys, workers, folder)) | "hours" >> tg.WindowInto(tg.FixedWindows(3600))
        if args.state == "combine":
            counts = keys | "count" >> tg.CombinePerKey(sum)
        else:
            counts = keys | "count" >> tg.ParDo(Count())
        _ = counts | "nothing" >> tg.Map(lambda pair: None)
        reports: list[CheckpointReport] = []

        def heard(message: Any) -> None:
            if isinstance(message, CheckpointReport):
                reports.append(message)

        submitted = StreamingRunner().submission(p.sealed(), PipelineOptions.from_args(flags))
        job = JobClient(submitted, on_report=heard, serialize=lambda same: same)

        def follow(until: float) -> None:
            while (left := until - time.time()) > 0:
                if job.ended:
                    raise SystemExit(f"the job has {job.state}: {job.error}")
                job.wait(min(left, 0.2))
                job.receive()

        while not all(Path(folder, str(part)).exists() for part in range(workers)) or not all(
            _all_there(folder, workers)
        ):
            follow(time.time() + 0.2)
        begins = [((time.time() + SETTLE) // (ON + OFF) + 1 + turn) * (ON + OFF) for turn in range(args.turns + 1)]
        follow(begins[0])
        del reports[:]
        follow(begins[-1] + TAIL)
        memory = max(_peaks(job))
        job.send(CancelJob())
        while not job.ended:
            job.wait(1)
            job.receive()
        notes = [_notes(folder, part) for part in range(workers)]
        turns = [
            Turn(
                sum(_rate(of, begin + LEAD, begin + ON) for of in notes),
                sum(_rate(of, begin + ON + TAIL, begin + ON + OFF) for of in notes),
                max(_gap(of, begin + LEAD, begin + ON) for of in notes),
                max(_gap(of, begin + ON + TAIL, begin + ON + OFF) for of in notes),
            )
            for begin in begins[:-1]
        ]
        return Measured(turns, memory, reports)


Note: TypeAlias = tuple[float, float, float, float]
"""When, how many elements until then, the longest gap since the note before, whether all keys have come."""


def _notes(folder: str, part: int) -> list[Note]:
    lines = Path(folder, str(part)).read_text().split("\n")[:-1]
    return [tuple(map(float, line.split())) for line in lines]  # type: ignore[misc]


def _rate(notes: list[Note], start: float, end: float) -> float:
    """Elements a second."""
    within = [note for note in notes if start <= note[0] <= end]
    return (within[-1][1] - within[0][1]) / (within[-1][0] - within[0][0])


def _gap(notes: list[Note], start: float, end: float) -> float:
    """The longest gap (ms)."""
    return max(note[2] for note in notes if start + NOTED <= note[0] <= end) * 1000


def _all_there(folder: str, parts: int) -> Iterator[bool]:
    for part in range(parts):
        notes = _notes(folder, part)
        yield bool(notes) and bool(notes[-1][3])


def _peaks(job: JobClient) -> Iterator[float]:
    """The most memory (MB) that each worker has had."""
    pid = job._process.pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        for line in Path(f"/proc/{child}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                yield int(line.split()[1]) / 1024


def _spread(turns: list[Turn]) -> str:
    """What checkpoints cost in all turns together, and the least and the most of a turn."""
    cost = 1 - sum(turn.with_ for turn in turns) / sum(turn.without for turn in turns)
    return f"{cost:.1%} ({min(turn.cost for turn in turns):.0%}…{max(turn.cost for turn in turns):.0%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--backends", default="memory,rocksdb")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--state", choices=["combine", "dofn"], default="dofn")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--memory_budget", default="1GB")
    args = parser.parse_args()
    # A job's process is forked from this one, and so uses it.
    checkpoint_coordinator.CheckpointTracker = Alternating  # type: ignore[misc, attr-defined]
    print(f"{args.keys:,} keys, {args.state}, {args.repeat} runs of {args.turns} turns; "
          f"Python {sys.version.split()[0]}, {os.cpu_count()} cores")  # fmt: skip
    print(f"{'backend':8}{'workers':>8}{'without/s':>12}{'with/s':>12}{'cost':>22}{'pause ms':>10}{'gap ms':>8}"
          f"{'without':>9}{'lasts s':>9}{'taken':>7}{'peak MB':>9}")  # fmt: skip
    for backend in args.backends.split(","):
        for workers in map(int, args.workers.split(",")):
            runs = [measure(args, backend, workers) for _ in range(args.repeat)]
            turns = [turn for run in runs for turn in run.turns]
            done = [report for run in runs for report in run.checkpoints if not report.error]
            failed = [report for run in runs for report in run.checkpoints if report.error]
            without, with_ = (statistics.mean(getattr(turn, name) for turn in turns) for name in ("without", "with_"))
            print(
                f"{backend:8}{workers:>8}{without:>12,.0f}{with_:>12,.0f}{_spread(turns):>22}"
                f"{max((r.pause for r in done), default=0) * 1000:>10.1f}"
                f"{statistics.median(turn.gap for turn in turns):>8.1f}"
                f"{statistics.median(turn.gap_without for turn in turns):>9.1f}"
                f"{statistics.median([r.duration for r in done] or [0]):>9.2f}{len(done):>7}"
                f"{max(run.memory for run in runs):>9.0f}",
                flush=True,
            )
            for report in failed:
                print(f"  checkpoint {report.checkpoint} failed: {report.error}")


if __name__ == "__main__":
    main()

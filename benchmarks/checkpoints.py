"""`make bench-checkpoints`: measures the cost of checkpoints of large state. Prints a table.

    python benchmarks/checkpoints.py [--keys 1000000] [--backends memory,rocksdb] [--workers 1,2] [--state dofn]
        [--turns 10] [--repeat 1] [--memory_budget 1GB] [--forks yes]

A pipeline counts keys from a source that is limited only by backpressure. The source emits each key once, and then keys
from a range of a twentieth of all keys, which moves by its own width every second: about a tenth of all keys change
between two checkpoints. In each turn, a phase with a checkpoint every second is followed by a phase without; the cost
of checkpoints is the decrease in throughput. All turns are in one run, because two runs may differ by several
hundredths with their memory layout (`--repeat` sets the number of runs). `cost` is that of all turns together, in which
full checkpoints have the weight of their frequency, with the minimum and maximum of a turn. Two times are not measured:
the first second of a phase with checkpoints, which includes the changes of the phase without, and the first half second
of a phase without, in which the last checkpoint is still being written.

`pause` is the longest pause of a task for a checkpoint, as it reports. `gap` is the longest time between two reads of a
source (the median of all turns), and `without` the same in phases without checkpoints. `duration` is the time until a
checkpoint is complete, and `number` the number of checkpoints. The counts are in a `DoFn`'s state. With `--state
combine`, they are in a combine, which sends partial counts downstream before each barrier; without barriers, it sends
them only every few seconds. This difference is then part of the cost. With `--forks no`, the source says that its
client makes forking unsafe, so the workers write all state in slices.
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
"""The distance between consecutive keys, so that they are not adjacent in memory."""
ON, OFF = 7.0, 4.0
"""The seconds of a phase with a checkpoint every second, and of one without."""
SETTLE = 1.0
"""Seconds that are not measured after every key has occurred."""
NOTE_PERIOD = 0.05
"""Seconds between two notes of a source about its progress."""
LEAD, TAIL = 1.0, 0.5
"""Seconds that are not measured at the beginning of a phase with checkpoints, and of one without."""


@dataclass(frozen=True)
class Keys(Source[Any]):
    """Endless pairs `(key, 1)`, in `parts` splits. Each split writes notes about its progress to a file in `folder`."""

    keys: int
    parts: int
    folder: str
    forks_safely: bool

    bounded = False

    def splits(self, desired: int) -> list[Split]:
        return [Split(f"part-{n}", None, n) for n in range(self.parts)]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _KeysReader(self, split.payload)


class _KeysReader(Reader[Any]):
    def __init__(self, source: Keys, part: int) -> None:
        self._width = source.keys // source.parts
        self._first = part * self._width
        self._at = 0
        self._notes = Path(source.folder, str(part)).open("w")  # noqa: SIM115  open as long as the process
        self._noted = self._last = time.time()
        self._gap = 0.0

    def read(self, limit: int) -> Batch:
        now = time.time()
        self._gap, self._last = max(self._gap, now - self._last), now
        if now - self._noted > NOTE_PERIOD:
            self._notes.write(f"{now} {self._at} {self._gap} {int(self._at >= self._width)}\n")
            self._notes.flush()
            self._noted, self._gap = now, 0.0
        start, self._at = self._at, self._at + limit
        if start < self._width:  # not every key has occurred yet
            low, width = self._first, self._width
        else:
            width = self._width // TENTHS // 2
            low = self._first + int(now * width) % (self._width - width)
        pairs = [(low + n * STRIDE % width, 1) for n in range(start, start + limit)]
        return Batch(Block(pairs, 0))

    def position(self) -> Position:
        return self._at


class Count(tg.DoFn):
    """Counts in a state cell per key."""

    def process(self, element: tuple[int, int], count: tg.ValueState[int] = tg.DoFn.StateParam(COUNT)) -> None:
        count.write((count.read() or 0) + element[1])


class Alternating(CheckpointTracker):
    """Triggers checkpoints only during the phases with checkpoints, by the wall clock."""

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
    """Elements per second in a phase with checkpoints and in the following one without, and the longest gap in each
    (ms)."""

    with_: float
    without: float
    gap: float
    gap_without: float

    @property
    def cost(self) -> float:
        return 1 - self.with_ / self.without


@dataclass(frozen=True)
class Measured:
    """The results of a run; memory (MB) is the peak of the largest worker."""

    turns: list[Turn]
    memory: float
    checkpoints: list[CheckpointReport]


def measure(args: argparse.Namespace, backend: str, workers: int) -> Measured:
    """Run the pipeline once."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--runner=streaming", f"--workers={workers}", "--checkpoint_interval=1"]
        flags += [f"--state_backend={backend}", f"--memory_budget={args.memory_budget}", f"--temp_dir={folder}"]
        p = tg.Pipeline(options=[])
        keys = (
            p
            | "keys" >> tg.Read(Keys(args.keys, workers, folder, args.forks == "yes"))
            | "hours" >> tg.WindowInto(tg.FixedWindows(3600))
        )
        if args.state == "combine":
            counts = keys | "count" >> tg.CombinePerKey(sum)
        else:
            counts = keys | "count" >> tg.ParDo(Count())
        _ = counts | "nothing" >> tg.Map(lambda pair: None)
        reports: list[CheckpointReport] = []

        def on_report(message: Any) -> None:
            if isinstance(message, CheckpointReport):
                reports.append(message)

        submitted = StreamingRunner().submission(p.sealed(), PipelineOptions.from_args(flags))
        job = JobClient(submitted, on_report=on_report, serialize=lambda same: same)

        def follow(until: float) -> None:
            while (left := until - time.time()) > 0:
                if job.ended:
                    raise SystemExit(f"the job has ended in the state {job.state}: {job.error}")
                job.wait(min(left, 0.2))
                job.receive()

        while not all(Path(folder, str(part)).exists() for part in range(workers)) or not all(
            _has_all_keys(folder, workers)
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
"""The time, the number of elements so far, the longest gap since the last note, and whether every key has occurred."""


def _notes(folder: str, part: int) -> list[Note]:
    lines = Path(folder, str(part)).read_text().split("\n")[:-1]
    return [tuple(map(float, line.split())) for line in lines]  # type: ignore[misc]


def _rate(notes: list[Note], start: float, end: float) -> float:
    """Elements per second in an interval."""
    within = [note for note in notes if start <= note[0] <= end]
    return (within[-1][1] - within[0][1]) / (within[-1][0] - within[0][0])


def _gap(notes: list[Note], start: float, end: float) -> float:
    """The longest gap in an interval (ms)."""
    return max(note[2] for note in notes if start + NOTE_PERIOD <= note[0] <= end) * 1000


def _has_all_keys(folder: str, parts: int) -> Iterator[bool]:
    for part in range(parts):
        notes = _notes(folder, part)
        yield bool(notes) and bool(notes[-1][3])


def _peaks(job: JobClient) -> Iterator[float]:
    """The peak memory (MB) of each worker."""
    pid = job._process.pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        for line in Path(f"/proc/{child}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                yield int(line.split()[1]) / 1024


def _spread(turns: list[Turn]) -> str:
    """The cost of checkpoints in all turns together, and the minimum and maximum of a turn."""
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
    parser.add_argument("--forks", choices=["yes", "no"], default="yes")
    args = parser.parse_args()
    # The process of the job is forked from this one, and inherits the replacement.
    checkpoint_coordinator.CheckpointTracker = Alternating  # type: ignore[misc, attr-defined]
    print(f"{args.keys:,} keys, {args.state}, forks: {args.forks}, {args.repeat} runs of {args.turns} turns; "
          f"Python {sys.version.split()[0]}, {os.cpu_count()} cores")  # fmt: skip
    print(f"{'backend':8}{'workers':>8}{'without/s':>12}{'with/s':>12}{'cost':>22}{'pause ms':>10}{'gap ms':>8}"
          f"{'without':>9}{'duration s':>11}{'number':>7}{'peak MB':>9}")  # fmt: skip
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
                f"{statistics.median([r.duration for r in done] or [0]):>11.2f}{len(done):>7}"
                f"{max(run.memory for run in runs):>9.0f}",
                flush=True,
            )
            for report in failed:
                print(f"  checkpoint {report.checkpoint} failed: {report.error}")


if __name__ == "__main__":
    main()

"""`make bench-checkpoints`: what checkpoints of large state cost a stream. Prints a table.

    python benchmarks/checkpoints.py [--keys 1000000] [--backends memory,rocksdb] [--workers 1,2] [--state combine]
        [--seconds 12] [--repeat 3] [--interval 1] [--memory_budget 1GB]

A source counts, by key, as fast as it is let: first every key once, then those of a twentieth that moves on by its own
width each second, so that a tenth of all is counted between two checkpoints. A run with a checkpoint each
second follows one without any, so that both meet the same weather; what they
cost is worked out for each pair, and shown as the median with the least and the most of all pairs. `cost` is by how
much less gets through, `cpu` by how much more processor time an element takes, children that write included: the
latter says the same on a busy machine. `pause` is the longest that a task stood still for its part of a checkpoint, as
it tells; `gap` the longest between two reads of a source, which is what the stream feels (the median of the runs), and
`work` how much of the longest was the worker's own: the rest it waited for a processor. `--state dofn` keeps the counts
in a `DoFn`'s state instead of a combine's, whose parts for all the keys of a second leave in front of each barrier.
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
from typing import Any

import tidegate as tg
from tidegate.runners.streaming.actions import CancelJob, CheckpointReport
from tidegate.runners.streaming.client import Job
from tidegate.runners.streaming.runner import StreamingRunner
from tidegate.sdk.block import Block
from tidegate.sdk.options import PipelineOptions
from tidegate.sdk.sources import Batch, Position, Reader, Source, Split

TENTHS = 10
COUNT = tg.ValueStateSpec("count")
STRIDE = 7919
"""Neighbours in time are no neighbours in memory."""
SETTLE = 2.0
"""Seconds after the last key has come for the first time that are not looked at."""
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Keys(Source[Any]):
    """`(key, 1)` without end, in as many parts. Each part notes in its file of `folder` how far it has come."""

    keys: int
    parts: int
    folder: str

    @property
    def bounded(self) -> bool:
        return False

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
        self._noted = self._last = time.monotonic()
        self._worked = time.thread_time()
        self._gap = self._work = 0.0

    def read(self, limit: int) -> Batch:
        now = time.monotonic()
        self._gap, self._last = max(self._gap, now - self._last), now
        worked = time.thread_time()
        self._work, self._worked = max(self._work, worked - self._worked), worked
        if now - self._noted > 0.1:
            self._notes.write(f"{now} {self._at} {self._gap} {int(self._at >= self._share)} {self._work}\n")
            self._notes.flush()
            self._noted, self._gap, self._work = now, 0.0, 0.0
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


@dataclass(frozen=True)
class Measured:
    """Of one run: elements a second, the longest gap and the most work in one (ms), µs of processor time an element,
    memory (MB) of the largest worker at its peak, and the checkpoints that were completed."""

    throughput: float
    gap: float
    work: float
    cpu: float
    memory: float
    checkpoints: list[CheckpointReport]


def measure(args: argparse.Namespace, backend: str, workers: int, interval: float) -> Measured:
    """One run."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--runner=streaming", f"--workers={workers}", f"--checkpoint_interval={interval}"]
        flags += [f"--state_backend={backend}", f"--memory_budget={args.memory_budget}", f"--temp_dir={folder}"]
        p = tg.Pipeline()
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
        job = Job(submitted, on_report=heard)

        def follow(seconds: float) -> None:
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0:
                if job.ended:
                    raise SystemExit(f"the job has {job.state}: {job.error}")
                job.wait(min(left, 0.2))
                job.hear()

        while not all(Path(folder, str(part)).exists() for part in range(workers)) or not all(
            _all_there(folder, workers)
        ):
            follow(0.2)
        follow(SETTLE)
        del reports[:]
        began, cpu = time.monotonic(), _cpu(job)
        follow(args.seconds)
        ended, cpu = time.monotonic(), _cpu(job) - cpu
        memory = max(_peaks(job))
        job.ask(CancelJob())
        while not job.ended:
            job.wait(1)
            job.hear()
        through = gap = work = 0.0
        for part in range(workers):
            notes = [note for note in _notes(folder, part) if began <= note[0] <= ended]
            through += (notes[-1][1] - notes[0][1]) / (notes[-1][0] - notes[0][0])
            gap = max(gap, *(note[2] for note in notes[1:]))
            work = max(work, *(note[4] for note in notes[1:]))
        each = cpu / (through * (ended - began)) * 1e6
        return Measured(through, gap * 1000, work * 1000, each, memory, reports)


def _notes(folder: str, part: int) -> list[tuple[float, float, float, float, float]]:
    lines = Path(folder, str(part)).read_text().split("\n")[:-1]
    return [tuple(map(float, line.split())) for line in lines]  # type: ignore[misc]


def _all_there(folder: str, parts: int) -> Iterator[bool]:
    for part in range(parts):
        notes = _notes(folder, part)
        yield bool(notes) and bool(notes[-1][3])


def _tree(pid: int) -> Iterator[int]:
    """A process and all under it."""
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _tree(int(child))


def _cpu(job: Job) -> float:
    """Seconds of processor time of all of a job's processes, those that have ended included."""
    total = 0
    for pid in _tree(job._process.pid):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICK


def _peaks(job: Job) -> Iterator[float]:
    """The most memory (MB) that each worker has had."""
    pid = job._process.pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        for line in Path(f"/proc/{child}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                yield int(line.split()[1]) / 1024


def _spread(shares: list[float]) -> str:
    """The median, and from where to where."""
    return f"{statistics.median(shares):.1%} ({min(shares):.0%}…{max(shares):.0%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--backends", default="memory,rocksdb")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--state", choices=["combine", "dofn"], default="combine")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--memory_budget", default="1GB")
    args = parser.parse_args()
    print(f"{args.keys:,} keys, a checkpoint every {args.interval:g} s, {args.state}, {args.repeat} pairs of runs; "
          f"Python {sys.version.split()[0]}, {os.cpu_count()} cores")  # fmt: skip
    print(f"{'backend':8}{'workers':>8}{'without/s':>12}{'with/s':>12}{'cost':>23}{'cpu':>23}{'pause ms':>10}"
          f"{'gap ms':>8}{'work':>6}{'without':>9}{'lasts s':>9}{'taken':>7}{'peak MB':>9}")  # fmt: skip
    for backend in args.backends.split(","):
        for workers in map(int, args.workers.split(",")):
            off, on = [], []
            for _ in range(args.repeat):
                off.append(measure(args, backend, workers, 3600))
                on.append(measure(args, backend, workers, args.interval))
            without, with_ = (statistics.median(run.throughput for run in runs) for runs in (off, on))
            cost = [1 - b.throughput / a.throughput for a, b in zip(off, on, strict=True)]
            cpu = [b.cpu / a.cpu - 1 for a, b in zip(off, on, strict=True)]
            done = [report for run in on for report in run.checkpoints if not report.error]
            failed = [report for run in on for report in run.checkpoints if report.error]
            gaps = [statistics.median(run.gap for run in runs) for runs in (on, off)]
            print(
                f"{backend:8}{workers:>8}{without:>12,.0f}{with_:>12,.0f}{_spread(cost):>23}{_spread(cpu):>23}"
                f"{max((r.pause for r in done), default=0) * 1000:>10.1f}{gaps[0]:>8.1f}"
                f"{max(run.work for run in on):>6.0f}{gaps[1]:>9.1f}"
                f"{statistics.median([r.duration for r in done] or [0]):>9.2f}{len(done) / args.repeat:>7.1f}"
                f"{max(run.memory for run in (*on, *off)):>9.0f}",
                flush=True,
            )
            for report in failed:
                print(f"  checkpoint {report.checkpoint} failed: {report.error}")


if __name__ == "__main__":
    main()

"""`make soak`: checks that the memory of a long run does not grow. Prints a line per minute.

    python benchmarks/soak.py [--seconds 3600] [--rate 2000] [--keys 1000] [--backends memory,rocksdb] [--workers 2]
        [--checkpoint_interval 2] [--most 8MB]

A source produces `--rate` elements per second with a fixed set of keys. Each element changes the state of its key: it
writes a cell, clears and refills another, moves a timer, and sets another one, which fires. Elements are also combined
in windows, which expire. Each backend runs for `--seconds`.

The benchmark samples the resident memory of the client, of the job's process and of the largest worker. The first
quarter of the samples is ignored, because allocators and caches fill up then. Of the rest, the medians of the first and
the last third may differ by `--most`; otherwise the exit code is 1.
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
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.options.quantities import parse_size
from tidegate.sdk.time import SECOND

PROCESSES = ("client", "job", "worker")
SAMPLE_PERIOD = 5.0
"""Seconds between two samples of memory."""


@dataclass(frozen=True)
class Steady(Source[Any]):
    """Pairs `(key, number)`, `rate` per second."""

    rate: int
    keys: int
    parts: int

    @property
    def bounded(self) -> bool:
        return False

    def splits(self, desired: int) -> list[Split]:
        return [Split(f"part-{n}", None, n) for n in range(self.parts)]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _SteadyReader(self, position or 0)


class _SteadyReader(Reader[Any]):
    def __init__(self, source: Steady, at: int) -> None:
        self._rate = source.rate / source.parts
        self._keys = source.keys
        self._at = at
        self._began: int | None = None
        self._emitted = 0

    def read(self, limit: int) -> Batch:
        now = self.now()
        if self._began is None:
            self._began = now
        target = int((now - self._began) / SECOND * self._rate)
        first, self._at = self._at, self._at + min(limit, target - self._emitted)
        self._emitted += self._at - first
        pairs = [(n % self._keys, n) for n in range(first, self._at)]
        return Batch(Block(pairs, now), watermark=now, wait=0.02)

    def position(self) -> Position:
        return self._at


VALUE = tg.ValueStateSpec("value")
BAG = tg.BagStateSpec("bag")
LAST = tg.EventTimer("last")
SOON = tg.ProcessingTimer("soon")


class Changing(tg.DoFn):
    """Changes all cells and timers of the key with each element."""

    def process(
        self,
        pair: tuple[int, int],
        at: tg.Timestamp = tg.DoFn.TimestampParam,
        now: tg.Timestamp = tg.DoFn.ProcessingTimeParam,
        value: tg.ValueState[int] = tg.DoFn.StateParam(VALUE),
        bag: tg.BagState[int] = tg.DoFn.StateParam(BAG),
        last: tg.Timer = tg.DoFn.TimerParam(LAST),
        soon: tg.Timer = tg.DoFn.TimerParam(SOON),
    ) -> Iterator[tuple[int, int]]:
        value.write((value.read() or 0) + 1)
        bag.clear()
        bag.add(pair[1])
        last.set(at + 86_400, output_timestamp=at + 86_400)
        soon.set(now + 1)
        yield pair

    @tg.on_timer(LAST)
    def on_last(self, key: int = tg.DoFn.KeyParam) -> Iterator[tuple[int, int]]:
        yield key, 0

    @tg.on_timer(SOON)
    def on_soon(
        self, key: int = tg.DoFn.KeyParam, bag: tg.BagState[int] = tg.DoFn.StateParam(BAG)
    ) -> Iterator[tuple[int, int]]:
        bag.clear()
        yield key, 0


def resident(pid: int) -> int:
    """The resident memory of a process in bytes; 0 if the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def children(pid: int) -> list[int]:
    """The child processes of a process."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def sample() -> tuple[int, ...]:
    """The memory of the client, of the job's process and of the largest worker."""
    jobs = children(os.getpid())
    workers = [worker for job in jobs for worker in children(job)]
    return resident(os.getpid()), max(map(resident, jobs), default=0), max(map(resident, workers), default=0)


def soak(backend: str, args: argparse.Namespace, folder: str) -> list[tuple[int, ...]]:
    """Run the pipeline for `--seconds`, and return the samples of its memory."""
    flags = ["--runner", "streaming", "--workers", str(args.workers), "--state_backend", backend]
    flags += ["--checkpoint_interval", str(args.checkpoint_interval), "--checkpoint_dir", f"{folder}/checkpoints"]
    p = tg.Pipeline(options=flags)
    changed = p | tg.Read(Steady(args.rate, args.keys, args.workers)) | tg.ParDo(Changing())
    _ = changed | tg.WindowInto(tg.FixedWindows(5)) | tg.CombinePerKey(sum) | tg.Map(lambda pair: None)
    result: Any = p.run()
    began = printed = time.monotonic()
    samples: list[tuple[int, ...]] = []
    while (now := time.monotonic()) - began < args.seconds:
        time.sleep(min(SAMPLE_PERIOD, args.seconds / 40))
        if result.state.ended:
            result.wait_until_finish()
            raise SystemExit(f"{backend}: the job has ended by itself, in the state {result.state}")
        samples.append(sample())
        if now - printed >= 60:
            printed = now
            counted = result.metrics().counter("checkpoints", step="")
            print(f"{backend:<8} {now - began:7,.0f} s  {as_text(samples[-1])}  {counted} checkpoints", flush=True)
    result.cancel()
    return samples


def as_text(sizes: tuple[int, ...]) -> str:
    return "  ".join(f"{name} {size / (1 << 20):7.1f} MB" for name, size in zip(PROCESSES, sizes, strict=True))


def growth(samples: list[tuple[int, ...]]) -> tuple[int, ...]:
    """By how many bytes each process has grown after the first quarter."""
    rest = samples[len(samples) // 4 :]
    third = max(1, len(rest) // 3)
    early, late = zip(*rest[:third], strict=True), zip(*rest[-third:], strict=True)
    return tuple(round(statistics.median(b) - statistics.median(a)) for a, b in zip(early, late, strict=True))


def main() -> None:
    """Parse the command line, run each backend, and exit with code 1 if memory has grown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--backends", default="memory,rocksdb")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--checkpoint_interval", type=float, default=2)
    parser.add_argument("--most", default="8MB")
    args = parser.parse_args()
    grows = False
    for backend in args.backends.split(","):
        with tempfile.TemporaryDirectory(prefix="tidegate-soak-") as folder:
            grown = growth(soak(backend, args, folder))
        grows = grows or max(grown) > parse_size(args.most)
        print(f"{backend:<8} has grown by  {as_text(grown)}", flush=True)
    sys.exit(1 if grows else 0)


if __name__ == "__main__":
    main()

"""`make soak`: whether memory stays flat in a long run. Prints a line a minute, and fails if it grows.

    python benchmarks/soak.py [--seconds 3600] [--rate 2000] [--keys 1000] [--backends memory,rocksdb] [--workers 2]
        [--checkpoint_interval 2] [--most 8MB]

A source gives so many elements a second, of the same few keys for ever. Each changes state of its key: a cell is
written, another is taken out and put back, a timer is moved, and another is set and fires. Each is in a window as well,
which is combined and expires. Each backend takes `--seconds`.

What is looked at is the resident memory of the client, of the job's process and of the largest worker. The first
quarter is left out, in which allocators and caches fill up. Of the rest, the medians of the first third and of the last
third may differ by `--most`.
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

WHO = ("client", "job", "worker")
LOOK = 5.0
"""Seconds between two looks."""


@dataclass(frozen=True)
class Steady(Source[Any]):
    """`(key, number)`, `rate` of them in each second of the clock."""

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
        self._given = 0

    def read(self, limit: int) -> Batch:
        now = self.now()
        if self._began is None:
            self._began = now
        due = int((now - self._began) / SECOND * self._rate)
        first, self._at = self._at, self._at + min(limit, due - self._given)
        self._given += self._at - first
        pairs = [(n % self._keys, n) for n in range(first, self._at)]
        return Batch(Block(pairs, now), watermark=now, wait=0.02)

    def position(self) -> Position:
        return self._at


VALUE = tg.ValueStateSpec("value")
BAG = tg.BagStateSpec("bag")
LAST = tg.EventTimer("last")
SOON = tg.ProcessingTimer("soon")


class Changing(tg.DoFn):
    """Changes all it keeps with each element."""

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
    """The memory of a process in bytes; 0 if there is none."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def look() -> tuple[int, ...]:
    """The memory of the client, of the job's process and of the largest worker."""
    jobs = children(os.getpid())
    workers = [worker for job in jobs for worker in children(job)]
    return resident(os.getpid()), max(map(resident, jobs), default=0), max(map(resident, workers), default=0)


def soak(backend: str, args: argparse.Namespace, folder: str) -> list[tuple[int, ...]]:
    """Run it for so long, and look at its memory all the while."""
    flags = ["--runner", "streaming", "--workers", str(args.workers), "--state_backend", backend]
    flags += ["--checkpoint_interval", str(args.checkpoint_interval), "--checkpoint_dir", f"{folder}/checkpoints"]
    p = tg.Pipeline(options=flags)
    changed = p | tg.Read(Steady(args.rate, args.keys, args.workers)) | tg.ParDo(Changing())
    _ = changed | tg.WindowInto(tg.FixedWindows(5)) | tg.CombinePerKey(sum) | tg.Map(lambda pair: None)
    result: Any = p.run()
    began = told = time.monotonic()
    seen: list[tuple[int, ...]] = []
    while (now := time.monotonic()) - began < args.seconds:
        time.sleep(min(LOOK, args.seconds / 40))
        if result.state.ended:
            result.wait_until_finish()
            raise SystemExit(f"{backend}: the job has ended by itself, as {result.state}")
        seen.append(look())
        if now - told >= 60:
            told = now
            counted = result.metrics().counter("checkpoints", step="")
            print(f"{backend:<8} {now - began:7,.0f} s  {in_words(seen[-1])}  {counted} checkpoints", flush=True)
    result.cancel()
    return seen


def in_words(sizes: tuple[int, ...]) -> str:
    return "  ".join(f"{who} {size / (1 << 20):7.1f} MB" for who, size in zip(WHO, sizes, strict=True))


def growth(seen: list[tuple[int, ...]]) -> tuple[int, ...]:
    """By how much each has grown after the first quarter."""
    rest = seen[len(seen) // 4 :]
    third = max(1, len(rest) // 3)
    early, late = zip(*rest[:third], strict=True), zip(*rest[-third:], strict=True)
    return tuple(round(statistics.median(b) - statistics.median(a)) for a, b in zip(early, late, strict=True))


def main() -> None:
    """As the command line says; exit code 1 if memory grows."""
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
        print(f"{backend:<8} has grown by  {in_words(grown)}", flush=True)
    sys.exit(1 if grows else 0)


if __name__ == "__main__":
    main()

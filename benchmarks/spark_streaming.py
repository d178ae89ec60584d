"""`make bench-spark-streaming`: streams on Spark beside the streaming runner, in processor seconds. Prints tables.

    python benchmarks/spark_streaming.py [windows stateful hand empty second keys soak] [--batch 4000000] [--batches 4]
        [--keys 1000] [--state_keys 5000000] [--seconds 1800] [--cores 2]

- `windows` sums events by key and window of ten seconds, `stateful` counts the events of each key in a cell, each on
  Spark in batches of `--batch` events, one right after another, and on the streaming runner with `--cores` workers and
  a checkpoint every five seconds. The figure is events per processor second, of all processes together, once the first
  batches are done. The source makes numbers, which costs both the same.
- `hand` is `stateful` written by hand: `transformWithState` with a row of Spark's for each event, in batches of a
  quarter of the size.
- `empty` runs batches that read nothing, and `second` one batch a second, of 10,000 events each: the processor seconds
  of a batch in the JVM, in the driver's Python and in the workers' Python.
- `keys` counts `--state_keys` keys: memory of the workers, size of the checkpoint, and the time of a batch that changes
  4,000 of them.
- `soak` runs for `--seconds` at a low rate with windows, cells and timers, and prints a line a minute: the time of
  batches, the memory of each kind of process, and the files of the checkpoint. The JVM's is what it has after a full
  collection: before one, it is what the collector has taken, by the load of the machine. Of the last three quarters,
  the medians of the first and the last third are compared; the exit code is 1 if memory or files have grown. It is not
  among the defaults.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import tidegate as tg
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import SECOND

KINDS: Final = ("JVM", "driver", "workers")
TICKS: Final = os.sysconf("SC_CLK_TCK")
PER_SECOND: Final = 100_000
"""Events in a second of event time."""
WARM: Final = 4
"""Batches that are not measured."""
GROWS: Final = {"JVM": 0.15, "driver": 0.1, "workers": 0.1, "files": 0.1}
"""By which part each may grow in a soak."""


# -- processor time and memory of processes


@dataclass(frozen=True)
class Usage:
    """Processor seconds and resident bytes, by the kind of process."""

    cpu: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    memory: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    @property
    def total(self) -> float:
        return sum(self.cpu.values())


def usage() -> Usage:
    """That of this process and all that descend from it, with those that have ended and were waited for."""
    found = Usage()
    children: dict[int, list[int]] = {}
    stats: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            stats[int(entry.name)] = stat
            children.setdefault(int(stat[1]), []).append(int(entry.name))

    def add(pid: int, kind: str) -> None:
        stat = stats[pid]
        found.cpu[kind] += sum(map(int, stat[11:15])) / TICKS
        found.memory[kind] += int(stat[21]) * os.sysconf("SC_PAGE_SIZE")
        for child in children.get(pid, ()):
            try:
                is_java = b"java" in Path(f"/proc/{child}/cmdline").read_bytes().partition(b"\0")[0]
            except OSError:
                is_java = False
            add(child, "JVM" if is_java else "workers")

    add(os.getpid(), "driver")
    return found


# -- the pipelines


@dataclass(frozen=True)
class Numbers(Source[int]):
    """Endless numbers, in `parts` splits; at most `rate` a second in all, if there is one. Each read that returns none
    says to wait for `wait` seconds."""

    parts: int
    rate: int | None = None
    wait: float = 0.001

    @property
    def bounded(self) -> bool:
        return False

    def splits(self, desired: int) -> list[Split]:
        return [Split(str(n), None, n) for n in range(self.parts)]

    def reader(self, split: Split, position: Position = None) -> Reader[int]:
        return NumbersReader(self, split.payload, position)


class NumbersReader(Reader[int]):
    """The position: the next number, and when (µs) the first one was due."""

    def __init__(self, source: Numbers, part: int, position: Position) -> None:
        self._source = source
        self._next, self._began = position or (part, None)

    def read(self, limit: int) -> Batch:
        source, now = self._source, self.now()
        if self._began is None:
            self._began = now
        if source.rate is not None:
            due = int((now - self._began) / SECOND * source.rate) - self._next
            limit = max(0, min(limit, -(-due // source.parts)))
        stop = self._next + limit * source.parts
        numbers = list(range(self._next, stop, source.parts))
        self._next = stop
        at = SECOND // PER_SECOND
        return Batch(Block(numbers, [n * at for n in numbers]), watermark=stop * at, wait=source.wait)

    def position(self) -> Position:
        return self._next, self._began


COUNT = tg.ValueStateSpec("count")
QUIET = tg.EventTimer("quiet")


class Count(tg.DoFn):
    """Counts the events of each key, and emits each thousandth count."""

    def process(
        self, pair: tuple[int, int], count: tg.ValueState[int] = tg.DoFn.StateParam(COUNT)
    ) -> Iterable[tuple[int, int]]:
        seen = (count.read() or 0) + 1
        count.write(seen)
        if seen % 1000 == 0:
            yield pair[0], seen


class Visit(tg.DoFn):
    """Counts the events of a key until it has been quiet for a second, and forgets it then."""

    def process(
        self,
        pair: tuple[int, int],
        at: tg.Timestamp = tg.DoFn.TimestampParam,
        count: tg.ValueState[int] = tg.DoFn.StateParam(COUNT),
        quiet: tg.Timer = tg.DoFn.TimerParam(QUIET),
    ) -> Iterable[tuple[int, int]]:
        count.write((count.read() or 0) + 1)
        quiet.set(at + 1)
        return ()

    @tg.on_timer(QUIET)
    def on_quiet(
        self, key: int = tg.DoFn.KeyParam, count: tg.ValueState[int] = tg.DoFn.StateParam(COUNT)
    ) -> Iterator[tuple[int, int]]:
        yield key, count.read() or 0
        count.clear()


def windows(p: tg.Pipeline, source: Numbers, keys: int) -> None:
    """The sum of each key in each window."""
    pairs = p | "read" >> tg.Read(source) | tg.Map(lambda n: (n % keys, n))
    _ = pairs | tg.WindowInto(tg.FixedWindows(10)) | tg.CombinePerKey(sum) | tg.Map(lambda pair: None)


def stateful(p: tg.Pipeline, source: Numbers, keys: int) -> None:
    """The count of each key."""
    _ = p | "read" >> tg.Read(source) | tg.Map(lambda n: (n % keys, n)) | tg.ParDo(Count()) | tg.Map(lambda pair: None)


def soaked(p: tg.Pipeline, source: Numbers, keys: int) -> None:
    """Keys that come, change and go."""
    pairs = p | "read" >> tg.Read(source) | tg.Map(lambda n: ((n // 50_000) * 100_000 + n % keys, n))
    visits = pairs | "visit" >> tg.ParDo(Visit())
    _ = visits | tg.WindowInto(tg.FixedWindows(5)) | tg.CombinePerKey(sum) | tg.Map(lambda pair: None)


Build = Callable[[tg.Pipeline, Numbers, int], None]


# -- runs


class SparkRun:
    """A stream on Spark, of which it is known when its batches are final."""

    def __init__(self, build: Build, source: Numbers, keys: int, folder: str, *flags: str) -> None:
        self.folder = folder
        self._commits = Path(folder, "spark/commits")
        p = tg.Pipeline(options=["--runner", "spark", "--spark_checkpoint_dir", folder, *flags])
        build(p, source, keys)
        self.result: Any = p.run()
        self.last = -1
        self.began = self.ended = time.monotonic()

    def wait(self, batches: int) -> None:
        """Wait until some more batches are final."""
        before = self.last
        while self.last < before + batches:
            time.sleep(0.005)
            if self.result.state.ended:
                self.result.wait_until_finish()
            while (self._commits / str(self.last + 1)).exists():
                self.last += 1
                self.began, self.ended = self.ended, time.monotonic()

    def collect_garbage(self) -> None:
        """Have the JVM collect all of its garbage, and give back what it no longer needs."""
        from pyspark import SparkContext

        SparkContext._active_spark_context._jvm.System.gc()

    def files(self) -> tuple[int, int]:
        """The number and the bytes of the checkpoint's files."""
        sizes = []
        for path in Path(self.folder).rglob("*"):
            try:
                sizes.append(path.stat().st_size)
            except OSError:  # Spark has removed it
                continue
        return len(sizes), sum(sizes)


def flags_of(args: argparse.Namespace, elements: int, trigger: str) -> list[str]:
    return [
        "--spark_master", f"local[{args.cores}]", "--spark_partitions", str(args.cores),
        "--spark_conf", "spark.driver.memory=1g", "--spark_conf", "spark.ui.enabled=false",
        "--spark_batch_elements", str(elements), "--spark_trigger_interval", trigger,
    ]  # fmt: skip


def on_spark(build: Build, args: argparse.Namespace) -> None:
    """Large batches, one right after another."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        flags = flags_of(args, args.batch // args.cores, "1ms")
        run = SparkRun(build, Numbers(args.cores), args.keys, folder, *flags)
        run.wait(WARM)
        before, began = usage(), run.ended
        run.wait(args.batches)
        after = usage()
        wall = (run.ended - began) / args.batches
        run.result.cancel()
    events = args.batch * args.batches
    cpu = {kind: (after.cpu[kind] - before.cpu[kind]) / args.batches for kind in KINDS}
    show(f"{build.__name__} on spark", events / (after.total - before.total), cpu, wall)


def on_streaming(build: Build, args: argparse.Namespace) -> None:
    """The streaming runner, for as long as it takes to read a few batches."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        flags = ["--runner", "streaming", "--workers", str(args.cores), "--checkpoint_dir", folder]
        p = tg.Pipeline(options=[*flags, "--checkpoint_interval", "5"])
        build(p, Numbers(args.cores), args.keys)
        result: Any = p.run()

        def read() -> int:
            return int(result.metrics().counter("elements_out", step="read"))

        first = wait_for(result, read, args.batch * 2)
        before, began = usage(), time.monotonic()
        last = wait_for(result, read, first + args.batch * args.batches)
        after, ended = usage(), time.monotonic()
        result.cancel()
    cpu = after.total - before.total
    batches = (last - first) / args.batch
    show(f"{build.__name__} on streaming", (last - first) / cpu, {"workers": cpu / batches}, (ended - began) / batches)


def wait_for(result: Any, read: Callable[[], int], many: int) -> int:
    """Wait until so many elements have been read, and return how many."""
    while (found := read()) < many:
        time.sleep(0.2)
        if result.state.ended:
            result.wait_until_finish()
    return found


def show(what: str, rate: float, cpu: dict[str, float], wall: float) -> None:
    parts = ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in cpu.items())
    speed = f"{rate / 1000:8,.0f} thousand events per processor second"
    print(f"{what:<24} {speed}; a batch: {parts}; {wall:.2f} s", flush=True)


def small_batches(name: str, source: Numbers, args: argparse.Namespace, trigger: str, batches: int) -> None:
    """Batches whose cost is mostly that of a batch itself."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        run = SparkRun(windows, source, args.keys, folder, *flags_of(args, 1_000_000, trigger))
        run.wait(WARM)
        before, began = usage(), run.ended
        run.wait(batches)
        after = usage()
        wall = (run.ended - began) / batches
        run.result.cancel()
    cpu = {kind: (after.cpu[kind] - before.cpu[kind]) / batches for kind in KINDS}
    parts = ", ".join(f"{kind} {seconds:.3f}" for kind, seconds in cpu.items())
    print(f"{name:<24} {sum(cpu.values()):.3f} processor seconds a batch: {parts}; {wall:.2f} s", flush=True)


def by_hand(args: argparse.Namespace) -> None:
    """`stateful` as Spark's own users write it: a row for each event, and a key of Spark's for each key."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Counting(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._count = handle.getValueState("count", "seen long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            from pyspark.sql import Row

            state = self._count.get()
            seen = 0 if state is None else state[0]
            for _ in rows:
                seen += 1
                if seen % 1000 == 0:
                    yield Row(key=key[0], seen=seen)
            self._count.update((seen,))

        def close(self) -> None:
            pass

    builder: Any = SparkSession.builder
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = builder.master(f"local[{args.cores}]").config("spark.ui.enabled", "false").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", str(args.cores))
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    batch = args.batch // 4
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", batch).load()
    counted = (
        frame.select((F.col("value") % args.keys).alias("key"), F.col("value"))
        .groupBy("key")
        .transformWithState(Counting(), "key long, seen long", "Append", "None")
    )
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        writer = counted.writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.trigger(processingTime="1 milliseconds").start()
        commits = Path(folder, "commits")

        def wait(epoch: int) -> None:
            while not (commits / str(epoch)).exists():
                time.sleep(0.02)
                if not query.isActive:
                    raise SystemExit(str(query.exception()))

        wait(WARM - 1)
        before, began = usage(), time.monotonic()
        wait(WARM - 1 + args.batches)
        after, ended = usage(), time.monotonic()
        query.stop()
    cpu = {kind: (after.cpu[kind] - before.cpu[kind]) / args.batches for kind in KINDS}
    show("stateful by hand", batch * args.batches / (after.total - before.total), cpu, (ended - began) / args.batches)


def many_keys(args: argparse.Namespace) -> None:
    """A large state, most of which stays as it is."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        elements = 500_000
        run = SparkRun(stateful, Numbers(args.cores), args.state_keys, folder, *flags_of(args, elements, "1ms"))
        run.wait(-(-args.state_keys // (elements * args.cores)))
        full = usage()
        files, size = run.files()
        run.wait(2)
        run.result.cancel()
        print(
            f"{args.state_keys:,} keys: workers {full.memory['workers'] >> 20:,} MB in all, JVM "
            f"{full.memory['JVM'] >> 20:,} MB; {files} files of {size >> 20:,} MB; the last batch, of "
            f"{elements * args.cores:,} events, took {run.ended - run.began:.1f} s",
            flush=True,
        )
        small = flags_of(args, 2000, "1s")
        again = SparkRun(stateful, Numbers(args.cores), args.state_keys, folder, *small)
        again.last = run.last
        again.wait(1)
        restored = again.ended - again.began
        again.wait(3)
        before = usage()
        again.wait(5)
        after = usage()
        print(
            f"its first batch after a restart took {restored:.1f} s; a batch of 4,000 events takes "
            f"{(after.total - before.total) / 5:.2f} processor seconds; workers {after.memory['workers'] >> 20:,} MB",
            flush=True,
        )
        again.result.cancel()


def soak(args: argparse.Namespace) -> bool:
    """Run for a long time at a low rate. Returns whether something has grown."""
    samples: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        run = SparkRun(soaked, Numbers(args.cores, rate=2000), 1000, folder, *flags_of(args, 1_000_000, "1s"))
        began = printed = time.monotonic()
        while (now := time.monotonic()) - began < args.seconds:
            last, since = run.last, run.ended
            run.wait(5)
            files, size = run.files()
            each = (run.ended - since) / (run.last - last)
            run.collect_garbage()
            memory = usage().memory
            samples.append({**{kind: memory[kind] for kind in KINDS}, "files": files, "bytes": size, "batch": each})
            if now - printed >= 60:
                printed = now
                print(f"{now - began:7,.0f} s  batch {run.last:5}  {as_text(samples[-1])}", flush=True)
        run.result.cancel()
    rest = samples[len(samples) // 4 :]
    third = max(1, len(rest) // 3)
    grows = False
    for name, most in GROWS.items():
        early = statistics.median(sample[name] for sample in rest[:third])
        late = statistics.median(sample[name] for sample in rest[-third:])
        grows = grows or late > early * (1 + most)
        print(f"{name:<8} {late / early - 1:+.1%} (at most {most:+.0%})", flush=True)
    return grows


def as_text(sample: dict[str, float]) -> str:
    memory = "  ".join(f"{kind} {sample[kind] / (1 << 20):6,.0f} MB" for kind in KINDS)
    files = f"{sample['files']:5,.0f} files of {sample['bytes'] / (1 << 20):6.1f} MB"
    return f"{sample['batch']:5.2f} s each  {memory}  {files}"


def main() -> None:
    """Parse the command line, and run each case."""
    parser = argparse.ArgumentParser()
    usual = ["windows", "stateful", "hand", "empty", "second", "keys"]
    parser.add_argument("cases", nargs="*", default=usual)
    parser.add_argument("--batch", type=int, default=4_000_000)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--state_keys", type=int, default=5_000_000)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--cores", type=int, default=2)
    args = parser.parse_args()
    grows = False
    for case in args.cases:
        match case:
            case "windows" | "stateful":
                build = windows if case == "windows" else stateful
                on_streaming(build, args)
                on_spark(build, args)
            case "hand":
                by_hand(args)
            case "empty":
                small_batches("empty batches", Numbers(args.cores, rate=0), args, "1ms", 10 * args.batches)
            case "second":
                small_batches("batches of one second", Numbers(args.cores, rate=10_000), args, "1s", 4 * args.batches)
            case "keys":
                many_keys(args)
            case "soak":
                grows = soak(args) or grows
            case _:
                parser.error(f"there is no case {case!r}")
    sys.exit(1 if grows else 0)


if __name__ == "__main__":
    main()

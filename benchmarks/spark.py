"""Compares the workloads on Tidegate's Spark runner with hand-written RDD code, in one warm session.

    python benchmarks/spark.py [W1 … W7 W3f] [--input rdds|frames|files] [--scale 1.0] [--repeat 5] [--cores 2]

Both sides read the same input with the same number of tasks. With `rdds` it is persisted RDDs of tuples, and with
`frames` persisted DataFrames, which RDD code reads with `.rdd` as `Row`s; pipelines read both with `ReadFromSpark`.
With `files` it is files of pickled lists, which both sides unpickle in the same way, so that the comparison is about
the steps after reading. W1 reads a range of numbers, and W2 lines of text.

Each figure is the median time of several runs, in which both sides take turns. Before that, small runs are repeated
until the JVM has compiled the code, followed by one warm-up run of each side. A difference between results ends the
benchmark. With `--scale 1`, W1 has 10 M elements, W3 and W4 have 5 M, and the others as many as in `make bench`; W3f is
W3 with six times as many windows. W2, W3 and W5 are also computed by DataFrame operations, which use Python only to
read the pickles and to sum the checksum. `MB` is the maximum resident memory of all Python workers of Spark, by hand
and as a pipeline, sampled 20 times a second in the warm-up run, because sampling takes time.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import add
from pathlib import Path
from typing import Any, TypeVar

import data
import workloads
from data import HOME, MASK, START_MS, mixed
from workloads import Greatest, join_terms, list_term, report, session_term, windowed_term

import tidegate as tg
import tidegate.io
from tidegate.sdk.connectors.sources import Position, Reader, Source, Split

TARGETS = {"W1": 0.3, "W2": 0.5, "W3": 0.4, "W3f": 0.4, "W4": 0.65, "W5": 0.65, "W6": 0.75, "W7": 0.35}
TARGETS_OF_FILES = {"W3": 0.5}
FILES = 8
WARM_UPS = 60
WARM_MS = 150
T = TypeVar("T")
Result = tuple[int, int]
Rdd = Any
DataFrame = Any


# -- the input of both sides


@dataclass(frozen=True)
class Pickles(Source[Any]):
    """The elements of the pickled lists in the files of a folder; each file is a split."""

    folder: str

    def splits(self, desired: int) -> list[Split]:
        return [Split(path.name, path.stat().st_size, str(path)) for path in sorted(Path(self.folder).iterdir())]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _PickleReader(split.payload)


class _PickleReader(Reader[Any]):
    def __init__(self, path: str) -> None:
        self._values = load(path)
        self._at = 0

    def read(self, limit: int) -> Any:
        from tidegate.sdk.connectors.sources import Batch
        from tidegate.sdk.data.block import Block

        values = self._values[self._at : self._at + limit]
        self._at += limit
        return Batch(Block.of(values), end=self._at >= len(self._values))

    def position(self) -> Position:
        return self._at


RDDS: dict[str, Rdd] = {}
"""The persisted RDDs, by the folders of their files."""
FRAMES: dict[str, DataFrame] = {}
"""The persisted DataFrames, by the folders of their files."""


def read(folder: str, time: int | None = None) -> Any:
    """The input of a pipeline; `time` is the index of the field with the event time in ms."""
    stamp = None if time is None else lambda element: element[time] / 1000
    if folder in RDDS:
        return tg.io.ReadFromSpark(RDDS[folder], timestamp=stamp)
    if folder in FRAMES:
        return Tuples(tg.io.ReadFromSpark(FRAMES[folder], timestamp=stamp))
    return tg.Read(Pickles(folder), timestamp=stamp)


class Tuples(tg.PTransform[Any, Any]):
    """Converts the rows of a DataFrame to tuples, as in the files."""

    def __init__(self, rows: tg.PTransform[Any, Any]) -> None:
        self.rows = rows

    def expand(self, input: Any) -> Any:
        return input | self.rows | tg.Map(lambda row: tuple(row))


def load(path: str) -> list[Any]:
    with open(path, "rb") as file:
        return pickle.load(file)  # type: ignore[no-any-return]


def stored(name: str, count: int, make: Callable[[random.Random, int], Any]) -> str:
    """The folder of a data set, which is generated at first use."""
    folder = HOME / "spark" / f"{name}-{count}"
    if not folder.exists():
        rnd = random.Random(name)
        values = [make(rnd, i) for i in range(count)]
        partly = folder.with_name(folder.name + ".part")
        partly.mkdir(parents=True, exist_ok=True)
        for number in range(FILES):
            chunk = values[number * count // FILES : (number + 1) * count // FILES]
            (partly / f"{number}").write_bytes(pickle.dumps(chunk, 5))
        partly.rename(folder)
    return str(folder)


def make_event(rnd: random.Random, i: int) -> tuple[int, int, int]:
    return rnd.randrange(10_000), START_MS + i // 10 + rnd.randrange(2000), rnd.randrange(1000)


def make_visit(rnd: random.Random, i: int) -> tuple[int, int]:
    return rnd.randrange(5_000), (START_MS + i * 3 + rnd.randrange(1000)) // 7 * 7 + 1


def make_pair(rnd: random.Random, i: int) -> tuple[int, int]:
    return rnd.randrange(100_000), rnd.randrange(1_000_000)


def make_reading(rnd: random.Random, i: int) -> tuple[int, int, int]:
    return rnd.randrange(10_000), START_MS + i, rnd.randrange(1_000_000)


def make_record(rnd: random.Random, i: int) -> tuple[int, int]:
    return rnd.randrange(500_000), rnd.randrange(1_000_000)


@dataclass(frozen=True)
class Sizes:
    """The inputs of all workloads at a scale."""

    scale: float

    def numbers(self) -> int:
        return int(10_000_000 * self.scale)

    def events(self) -> str:
        return stored("events", int(5_000_000 * self.scale), make_event)

    def visits(self) -> str:
        return stored("visits", int(5_000_000 * self.scale), make_visit)

    def pairs(self) -> str:
        return stored("pairs", int(1_000_000 * self.scale), make_pair)

    def readings(self) -> str:
        return stored("readings", int(1_000_000 * self.scale), make_reading)

    def records(self, side: str) -> str:
        return stored(side, int(500_000 * self.scale), make_record)


# -- by hand


def count_and_sum(terms: Rdd) -> Result:
    count, total = terms.aggregate((0, 0), lambda a, x: (a[0] + 1, a[1] + x), lambda a, b: (a[0] + b[0], a[1] + b[1]))
    return count, total & MASK


def by_hand(sc: Any, folder: str, parts: int) -> Rdd:
    if folder in RDDS:
        return RDDS[folder]
    if folder in FRAMES:
        return FRAMES[folder].rdd
    paths = sorted(map(str, Path(folder).iterdir()))
    return sc.parallelize(paths, parts).flatMap(load)


def rdd_w1(sc: Any, sizes: Sizes, parts: int) -> Result:
    numbers = sc.parallelize(range(sizes.numbers()), parts)
    kept = numbers.map(lambda x: x + 1).filter(lambda x: x % 3 == 0)
    return count_and_sum(kept.flatMap(lambda x: (x, -x)).map(lambda x: x * 2))


def rdd_w2(sc: Any, sizes: Sizes, parts: int) -> Result:
    words = sc.textFile(str(data.text()), parts).flatMap(str.split)
    counts = words.map(lambda word: (word, 1)).reduceByKey(add, parts)
    with tempfile.TemporaryDirectory() as folder:
        counts.map(lambda pair: f"{pair[0]}\t{pair[1]}").saveAsTextFile(f"{folder}/counts")
        return read_counts(Path(folder, "counts").glob("part-*"))


def rdd_w3(sc: Any, sizes: Sizes, parts: int, ms: int = 10_000) -> Result:
    cells = by_hand(sc, sizes.events(), parts).map(lambda e: ((e[0], e[1] // ms * ms), e[2])).reduceByKey(add, parts)
    return count_and_sum(cells.map(lambda cell: mixed(cell[0][0], cell[0][1] // 1000, cell[1])))


def sessions_of(visits: tuple[int, Iterable[int]]) -> Iterator[int]:
    key, times = visits[0], sorted(visits[1])
    start = last = times[0]
    n = 0
    for at in times:
        if at - last >= 30_000:
            yield mixed(key, start, n)
            start, n = at, 0
        n += 1
        last = at
    yield mixed(key, start, n)


def rdd_w4(sc: Any, sizes: Sizes, parts: int) -> Result:
    return count_and_sum(by_hand(sc, sizes.visits(), parts).groupByKey(parts).flatMap(sessions_of))


def rdd_w5(sc: Any, sizes: Sizes, parts: int) -> Result:
    return count_and_sum(by_hand(sc, sizes.pairs(), parts).groupByKey(parts).map(list_term))


def greatest_terms(readings: tuple[int, Iterable[tuple[int, int]]]) -> Iterator[int]:
    key, most = readings[0], -1
    for _, value in sorted(readings[1]):
        most = max(most, value)
        yield key ^ (most * 31)


def rdd_w6(sc: Any, sizes: Sizes, parts: int) -> Result:
    keyed = by_hand(sc, sizes.readings(), parts).map(lambda r: (r[0], (r[1], r[2])))
    return count_and_sum(keyed.groupByKey(parts).flatMap(greatest_terms))


def rdd_w7(sc: Any, sizes: Sizes, parts: int) -> Result:
    left, right = (by_hand(sc, sizes.records(side), parts) for side in ("left", "right"))
    joined = left.cogroup(right, parts)
    return count_and_sum(joined.flatMap(lambda pair: join_terms((pair[0], dict(zip(("left", "right"), pair[1]))))))


# -- by DataFrame operations


def rows_of(spark: Any, folder: str, parts: int, fields: tuple[str, ...]) -> DataFrame:
    """The input as a DataFrame of longs."""
    if folder in FRAMES:
        return FRAMES[folder]
    paths = spark.createDataFrame([(str(path),) for path in sorted(Path(folder).iterdir())], "path string")
    return paths.repartition(parts).mapInArrow(
        partial(unpickled, fields=fields), ", ".join(f"{f} long" for f in fields)
    )


def unpickled(batches: Iterable[Any], fields: tuple[str, ...]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        for path in batch.column("path").to_pylist():
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in zip(*load(path))], names=list(fields))


def summed(rows: DataFrame, term: Callable[..., int]) -> Result:
    """The number of rows, and the sum of a term of each."""
    parts = rows.mapInArrow(partial(terms_summed, term=term), "n long, total string").collect()
    return sum(part.n for part in parts), sum(int(part.total) for part in parts) & MASK


def terms_summed(batches: Iterable[Any], term: Callable[..., int]) -> Iterator[Any]:
    import pyarrow as pa

    n = total = 0
    for batch in batches:
        n += batch.num_rows
        total += sum(map(term, *(column.to_pylist() for column in batch.columns)))
    yield pa.RecordBatch.from_pydict({"n": [n], "total": [str(total)]})


def df_w2(spark: Any, sizes: Sizes, parts: int) -> Result:
    from pyspark.sql import functions as f

    words = spark.read.text(str(data.text())).select(f.explode(f.split("value", r"\s+")).alias("word"))
    counts = words.where(words.word != "").groupBy("word").count()
    with tempfile.TemporaryDirectory() as folder:
        counts.select(f.concat_ws("\t", "word", "count")).write.text(f"{folder}/counts")
        return read_counts(Path(folder, "counts").glob("part-*"))


def df_w3(spark: Any, sizes: Sizes, parts: int, ms: int = 10_000) -> Result:
    from pyspark.sql import functions as f

    events = rows_of(spark, sizes.events(), parts, ("key", "ms", "value"))
    start = (f.col("ms") / ms).cast("long") * (ms // 1000)
    return summed(events.groupBy("key", start.alias("start")).agg(f.sum("value")), mixed)


def df_w5(spark: Any, sizes: Sizes, parts: int) -> Result:
    from pyspark.sql import functions as f

    pairs = rows_of(spark, sizes.pairs(), parts, ("key", "value"))
    lists = pairs.groupBy("key").agg(f.sort_array(f.collect_list("value")))
    return summed(lists, lambda key, values: list_term((key, values)))


# -- as pipelines


def total(terms: Any, folder: str) -> None:
    terms | "count" >> tg.CombineGlobally(len) | "write count" >> tg.Map(report, f"{folder}/count")
    terms | "sum" >> tg.CombineGlobally(sum) | "write sum" >> tg.Map(report, f"{folder}/sum")


def tg_w1(p: tg.Pipeline, sizes: Sizes, folder: str) -> None:
    kept = p | tg.Create(range(sizes.numbers())) | tg.Map(lambda x: x + 1) | tg.Filter(lambda x: x % 3 == 0)
    total(kept | tg.FlatMap(lambda x: (x, -x)) | "double" >> tg.Map(lambda x: x * 2), folder)


def tg_w2(p: tg.Pipeline, sizes: Sizes, folder: str) -> None:
    counts = p | tg.io.ReadFromText(str(data.text())) | tg.FlatMap(str.split) | tg.CombinePerElement(len)
    counts | tg.MapTuple(lambda word, n: f"{word}\t{n}") | tg.io.WriteToText(f"{folder}/counts")


def tg_w3(p: tg.Pipeline, sizes: Sizes, folder: str, seconds: float = 10) -> None:
    events = p | read(sizes.events(), time=1) | tg.Map(lambda event: (event[0], event[2]))
    sums = events | tg.WindowInto(tg.FixedWindows(seconds)) | tg.CombinePerKey(sum)
    total(sums | "term" >> tg.Map(windowed_term) | "all" >> tg.WindowInto(tg.GlobalWindows()), folder)


def tg_w4(p: tg.Pipeline, sizes: Sizes, folder: str) -> None:
    counts = p | read(sizes.visits(), time=1) | tg.WindowInto(tg.Sessions(30)) | tg.CombinePerKey(len)
    total(counts | "term" >> tg.Map(session_term) | "all" >> tg.WindowInto(tg.GlobalWindows()), folder)


def tg_w5(p: tg.Pipeline, sizes: Sizes, folder: str) -> None:
    total(p | read(sizes.pairs()) | tg.GroupByKey() | "term" >> tg.Map(list_term), folder)


def tg_w6(p: tg.Pipeline, sizes: Sizes, folder: str) -> None:
    readings = p | read(sizes.readings(), time=1) | tg.Map(lambda reading: (reading[0], reading[2]))
    total(readings | tg.ParDo(Greatest()), folder)


def tg_w7(p: tg.Pipeline, sizes: Sizes, folder: str) -> None:
    sides = {side: p | side >> read(sizes.records(side)) for side in ("left", "right")}
    total(sides | tg.CoGroupByKey() | "terms" >> tg.FlatMap(join_terms), folder)


BY_HAND: dict[str, Callable[..., Result]] = {
    "W1": rdd_w1, "W2": rdd_w2, "W3": rdd_w3, "W3f": partial(rdd_w3, ms=1000), "W4": rdd_w4, "W5": rdd_w5,
    "W6": rdd_w6, "W7": rdd_w7,
}  # fmt: skip
PIPELINES: dict[str, Callable[..., None]] = {
    "W1": tg_w1, "W2": tg_w2, "W3": tg_w3, "W3f": partial(tg_w3, seconds=1), "W4": tg_w4, "W5": tg_w5,
    "W6": tg_w6, "W7": tg_w7,
}  # fmt: skip


DATAFRAMES: dict[str, Callable[..., Result]] = {
    "W2": df_w2, "W3": df_w3, "W3f": partial(df_w3, ms=1000), "W5": df_w5,
}  # fmt: skip


def piped(name: str, sizes: Sizes, parts: int) -> Result:
    """Build and run one workload as a pipeline, and return its count and checksum."""
    with tempfile.TemporaryDirectory() as folder:
        with tg.Pipeline(options=["--runner", "spark", "--spark_partitions", str(parts)]) as p:
            PIPELINES[name](p, sizes, folder)
        if name == "W2":
            return read_counts(Path(folder).glob("counts*"))
        count, sum_ = (int(Path(folder, part).read_text()) for part in ("count", "sum"))
        return count, sum_ & MASK


def read_counts(paths: Iterable[Path]) -> Result:
    lines = [line.split("\t") for path in paths for line in path.read_text().splitlines()]
    return len(lines), sum(int(n) for _, n in lines)


def with_memory(call: Callable[[], T]) -> tuple[T, int]:
    """The result of a call, and the maximum resident memory (bytes) of all Python workers of Spark during it."""
    peak = 0
    done = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(0.05):
            peak = max(peak, resident_in_workers())

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        result = call()
    finally:
        done.set()
        sampler.join()
    return result, peak


def resident_in_workers() -> int:
    """The resident bytes of all `pyspark.daemon` descendants of this process; 0 without /proc."""
    parents: dict[int, int] = {}
    resident: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if b"pyspark.daemon" in (folder / "cmdline").read_bytes():
                pages = int((folder / "statm").read_text().split()[1])
                resident[int(folder.name)] = pages * os.sysconf("SC_PAGE_SIZE")
        except OSError:  # the process has ended
            continue

    def is_ours(pid: int) -> bool:
        while pid in parents:
            if pid == os.getpid():
                return True
            pid = parents[pid]
        return False

    return sum(size for pid, size in resident.items() if is_ours(pid))


def persist(spark: Any, name: str, sizes: Sizes, parts: int, form: str) -> None:
    """Persist the input of a workload as RDDs or DataFrames."""
    inputs: dict[str, list[tuple[str, tuple[str, ...]]]] = {
        "W4": [(sizes.visits(), ("key", "ms"))],
        "W5": [(sizes.pairs(), ("key", "value"))],
        "W6": [(sizes.readings(), ("key", "ms", "value"))],
        "W7": [(sizes.records(side), ("key", "value")) for side in ("left", "right")],
    }
    inputs["W3"] = inputs["W3f"] = [(sizes.events(), ("key", "ms", "value"))]
    for folder, fields in inputs.get(name, []):
        if form == "rdds":
            RDDS[folder] = by_hand(spark.sparkContext, folder, parts).persist()
            RDDS[folder].count()
        elif form == "frames":
            FRAMES[folder] = rows_of(spark, folder, parts, fields).persist()
            FRAMES[folder].count()


def warm_up(spark: Any, name: str, small: Sizes, parts: int, form: str) -> None:
    """Run a workload on both sides until the JVM has compiled the code."""
    persist(spark, name, small, parts, form)
    jit = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getCompilationMXBean()
    for _ in range(WARM_UPS):
        before = jit.getTotalCompilationTime()
        BY_HAND[name](spark.sparkContext, small, parts)
        piped(name, small, parts)
        if jit.getTotalCompilationTime() - before < WARM_MS:
            break
    unpersist()


def unpersist() -> None:
    """Unpersist all RDDs and DataFrames."""
    for persisted in (*RDDS.values(), *FRAMES.values()):
        persisted.unpersist()
    RDDS.clear()
    FRAMES.clear()


def medians(name: str, ways: dict[str, Callable[[], Result]], repeat: int, expected: Result) -> list[float]:
    """The median time of each way to compute a workload; the ways take turns."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeat):
        for way, run in ways.items():
            begun = time.perf_counter()
            result = run()
            times[way].append(time.perf_counter() - begun)
            check(name, {way: result}, expected)
    return [statistics.median(each) for each in times.values()]


def check(name: str, results: dict[str, Result], expected: Result) -> None:
    """Exit if a result differs from the expected one."""
    for way, result in results.items():
        if result != expected:
            raise SystemExit(f"{name}: the result of {way} is {result}, not {expected}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="W1…W7")
    parser.add_argument("--input", choices=["rdds", "frames", "files"], default="rdds")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    args = parser.parse_args()
    from pyspark import cloudpickle
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    quiet = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "4g",
        "spark.python.unix.domain.socket.enabled": "true",  # as in sessions that Tidegate creates
    }
    for setting, value in quiet.items():
        builder = builder.config(setting, value)
    spark = builder.master(f"local[{args.cores}]").getOrCreate()
    sc = spark.sparkContext
    cloudpickle.register_pickle_by_value(data)  # the workers can't import these modules
    cloudpickle.register_pickle_by_value(workloads)
    sizes, parts = Sizes(args.scale), args.cores
    spark.conf.set("spark.sql.shuffle.partitions", str(parts))
    print(f"Spark {spark.version}, local[{args.cores}], {args.input}, scale {args.scale:g}, median of {args.repeat}")
    print(f"{'':4}{'by hand s':>10}{'pipeline s':>12}{'ratio':>8}{'target':>7}{'DataFrame s':>13}{'MB':>14}")
    for name in args.workloads or BY_HAND:
        if name != "W2":  # whose input has a fixed size
            warm_up(spark, name, Sizes(min(args.scale, 0.001)), parts, args.input)
        persist(spark, name, sizes, parts, args.input)
        ways: dict[str, Callable[[], Result]] = {
            "RDDs": partial(BY_HAND[name], sc, sizes, parts),
            "pipeline": partial(piped, name, sizes, parts),
        }
        warm = {way: with_memory(run) for way, run in ways.items()}
        expected = warm["RDDs"][0]
        check(name, {way: result for way, (result, _) in warm.items()}, expected)
        hand, pipe = medians(name, ways, args.repeat, expected)
        frame_time = " " * 13
        if name in DATAFRAMES:
            frames: dict[str, Callable[[], Result]] = {"DataFrames": partial(DATAFRAMES[name], spark, sizes, parts)}
            medians(name, frames, 1, expected)
            (frame,) = medians(name, frames, args.repeat, expected)
            frame_time = f"{frame:13.2f}"
        peaks = " / ".join(str(peak >> 20) for _, peak in warm.values())
        targets = TARGETS | TARGETS_OF_FILES if args.input == "files" else TARGETS
        ratio = f"{pipe / hand:8.2f}{targets[name]:>7.2f}"
        print(f"{name:4}{hand:10.2f}{pipe:12.2f}{ratio}{frame_time}{peaks:>14}", flush=True)
        unpersist()
    spark.stop()


if __name__ == "__main__":
    main()

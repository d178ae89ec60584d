"""A pipeline to run while its processes are killed, and a check that its output is exactly once.

`main` is the client of such a run. Its processes report each read, write and commit as a byte on a named pipe, so that
a test can kill at a chosen moment. A line on stdin names the folder of a savepoint to take, or is "drain".
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tidegate as tg
from tidegate.runners.checkpoint import state_files
from tidegate.runners.streaming.state import memory, writers
from tidegate.sdk.connectors.sinks import Attempt, Committable, Delivery, Sink, in_order
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import RunError

MILLISECOND = 1000
WINDOW = 0.5
FLUSH_AFTER = 0.2
DISORDER = 100 * MILLISECOND
KEYS = 23
PARTITIONS = 4
BATCH = 16

Record = list[Any]


@dataclass(frozen=True)
class Run:
    """The parameters of a run.

    `rate` is the number of records per second and partition (0: no limit), `slow` the seconds that a step spends on
    each record, and `faulty` the place of a single failure: process, snapshot, restore or commit. Records are also
    written to files of each of the `formats`, which are separated by commas. `in_slices`: no process may be forked to
    write state, and workers copy and write the state of one key at a time.
    """

    folder: str
    rate: int = 1500
    slow: float = 0.0
    faulty: str = ""
    formats: str = ""
    in_slices: bool = False

    @property
    def event_pipe(self) -> str:
        """The named pipe."""
        return f"{self.folder}/events"

    @property
    def hold_file(self) -> Path:
        """While this file exists, no output is prepared."""
        return Path(self.folder, "hold")

    def report(self, event: str) -> None:
        """Report an event over the pipe, without waiting for a reader."""
        with contextlib.suppress(OSError):
            pipe = os.open(self.event_pipe, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(pipe, event.encode())
            finally:
                os.close(pipe)

    def fails_at(self, place: str) -> bool:
        """True if this is the one failure at this place."""
        if self.faulty != place:
            return False
        try:
            os.close(os.open(f"{self.folder}/failed-{place}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def event_time(number: int) -> int:
    """The event time (µs) of a partition's n-th record: one each millisecond, out of order by up to 100 ms."""
    return number * MILLISECOND + (number * 7919) % DISORDER


@dataclass(frozen=True)
class NumberSource(Source[Any]):
    """`(key, number, partition)` without end: the numbers of each partition from 0 on."""

    run: Run

    @property
    def bounded(self) -> bool:
        return False

    def splits(self, desired: int) -> list[Split]:
        return [Split(f"partition-{n}", None, n) for n in range(PARTITIONS)]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _NumberReader(self.run, split.payload, position or 0)


class _NumberReader(Reader[Any]):
    def __init__(self, run: Run, partition: int, at: int) -> None:
        self._run = run
        self._partition = partition
        self._at = self._first = at
        self._began = time.monotonic()

    def read(self, limit: int) -> Batch:
        count = min(limit, BATCH)
        if self._run.rate:
            due = self._first + int((time.monotonic() - self._began) * self._run.rate)
            if due - self._at < count:
                return Batch(Block([], []), wait=count / self._run.rate)
        numbers = range(self._at, self._at + count)
        self._at += count
        self._run.report("r")
        block = Block([(n * 31 % KEYS, n, self._partition) for n in numbers], [event_time(n) for n in numbers])
        return Batch(block, watermark=self._at * MILLISECOND)

    def position(self) -> Position:
        return self._at


SEEN = tg.ValueStateSpec("seen")
GATHERED = tg.BagStateSpec("gathered")
FLUSH = tg.EventTimer("flush")
LAST = tg.MapStateSpec("last")


@dataclass(frozen=True)
class Fragile:
    """A number in state whose pickling fails once, or whose unpickling fails once."""

    run: Run
    number: int

    def __getstate__(self) -> Any:
        if self.run.fails_at("snapshot"):
            raise RuntimeError("injected into a snapshot")
        return self.run, self.number

    def __setstate__(self, state: Any) -> None:
        for name, value in zip(("run", "number"), state):
            object.__setattr__(self, name, value)
        if self.run.fails_at("restore"):
            raise RuntimeError("injected into a restore")


class CountPerKey(tg.DoFn):
    """Numbers the records of each key as they arrive, and emits the buffered ones when a timer fires."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def process(
        self,
        element: tuple[int, tuple[int, int]],
        at: tg.Timestamp = tg.DoFn.TimestampParam,
        seen: tg.ValueState[Fragile] = tg.DoFn.StateParam(SEEN),
        gathered: tg.BagState[tuple[int, int]] = tg.DoFn.StateParam(GATHERED),
        flush: tg.Timer = tg.DoFn.TimerParam(FLUSH),
    ) -> Iterator[Record]:
        key, (partition, number) = element
        if number > 500 and self.run.fails_at("process"):
            raise RuntimeError("injected into process")
        before = seen.read()
        count = 1 if before is None else before.number + 1
        seen.write(Fragile(self.run, count))
        if not gathered.read():
            flush.set(at + FLUSH_AFTER)
        gathered.add((partition, number))
        yield ["seen", key, count, partition, number]

    @tg.on_timer(FLUSH)
    def flush(
        self,
        key: int = tg.DoFn.KeyParam,
        gathered: tg.BagState[tuple[int, int]] = tg.DoFn.StateParam(GATHERED),
    ) -> Iterator[Record]:
        records = list(gathered.read())
        gathered.clear()
        yield ["flushed", key, records]


class InOrder(tg.DoFn):
    """Emits, with each record, the previous record of its partition and key."""

    def process(
        self,
        element: tuple[int, tuple[int, int]],
        last: tg.MapState[int, int] = tg.DoFn.StateParam(LAST),
    ) -> Iterator[Record]:
        key, (partition, number) = element
        yield ["order", key, partition, last.get(partition, -1), number]
        last.put(partition, number)


class WithWindow(tg.DoFn):
    """Adds the end of its window to each element."""

    def process(self, element: tuple[int, int], window: Any = tg.DoFn.WindowParam) -> Iterator[Record]:
        yield ["sum", element[0], window.end.micros, element[1]]


@dataclass(frozen=True)
class VerifyingSink(Sink[Any]):
    """Writes files that the commit moves, one by one, into the folder of committed output."""

    run: Run

    @property
    def delivery(self) -> Delivery:
        return "exactly_once"

    @property
    def forks_safely(self) -> bool:
        return not self.run.in_slices

    @property
    def pending(self) -> Path:
        """The folder to which attempts write."""
        return Path(self.run.folder, "pending")

    @property
    def committed(self) -> Path:
        """The folder of visible output."""
        return Path(self.run.folder, "committed")

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        self.pending.mkdir(exist_ok=True)
        self.committed.mkdir(exist_ok=True)
        return _VerifyingAttempt(self, task)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        assert checkpoint is not None
        self.run.report("c")
        for committable in in_order(committables):
            task, sequence = committable.order
            final = self.committed / f"{checkpoint:06}-{task:02}-{sequence:06}"
            if final.exists():
                continue
            os.replace(self.pending / committable.payload, final)  # raises if it is lost
            self.run.report("m")
            if self.run.fails_at("commit"):
                raise RuntimeError("injected into a commit")
        self.run.report("d")

    def abort(self, run: str) -> None:
        self.run.report("a")
        for path in self.pending.glob("*"):
            path.unlink(missing_ok=True)


class _VerifyingAttempt(Attempt[Any]):
    def __init__(self, sink: VerifyingSink, task: int) -> None:
        self._sink = sink
        self._task = task
        self._attempt = os.urandom(4).hex()
        self._sequence = 0
        self._lines: list[str] = []

    def write(self, values: Sequence[Any]) -> None:
        self._sink.run.report("w")
        self._lines += [json.dumps(value) + "\n" for value in values]

    def prepare(self) -> list[Committable]:
        self._sink.run.report("p")
        if not self._lines:
            return []
        if self._sink.run.hold_file.exists():
            self._sink.run.report("h")
            while self._sink.run.hold_file.exists():
                time.sleep(0.001)
        name = f"{self._attempt}-{self._sequence:06}"
        (self._sink.pending / name).write_text("".join(self._lines))
        self._lines = []
        self._sequence += 1
        return [Committable((self._task, self._sequence), name)]


def delay(record: Any, run: Run) -> Any:
    """Slow the pipeline down by `run.slow` seconds per record."""
    if run.slow:
        time.sleep(run.slow)
    return record


FILE_WRITERS: dict[str, Callable[..., Any]] = {
    "csv": tg.WriteToCsv,
    "json": tg.WriteToJson,
    "parquet": tg.WriteToParquet,
    "avro": tg.WriteToAvro,
    "arrow": tg.WriteToArrow,
}


def build_pipeline(run: Run, options: Sequence[str]) -> tg.Pipeline:
    """Records through a rebalance, keyed state with timers, a second shuffle and windows; all into two sinks."""
    pipeline = tg.Pipeline(options=[*options, "--runner", "streaming"])
    numbers = pipeline | "numbers" >> tg.Read(NumberSource(run))
    counted = (
        numbers
        | "spread" >> tg.Reshuffle()
        | "slowly" >> tg.Map(delay, run)
        | "by key" >> tg.Map(lambda r: (r[0], (r[2], r[1])))
        | "count" >> tg.ParDo(CountPerKey(run))
    )
    in_order_ = numbers | "by key too" >> tg.Map(lambda r: (r[0], (r[2], r[1]))) | "order" >> tg.ParDo(InOrder())
    sums = (
        counted
        | "seen" >> tg.Filter(lambda record: record[0] == "seen")
        | "by digit" >> tg.Map(lambda record: (record[4] % 10, 1))
        | "windows" >> tg.WindowInto(tg.FixedWindows(WINDOW))
        | "sum" >> tg.CombinePerKey(sum)
        | "ends" >> tg.ParDo(WithWindow())
        | "all together" >> tg.WindowInto(tg.GlobalWindows())
    )
    records = (counted, in_order_, sums) | "records" >> tg.Flatten()
    _ = records | "verifying" >> tg.Write(VerifyingSink(run))
    _ = records | "lines" >> tg.Map(json.dumps) | "text" >> tg.io.WriteToText(f"{run.folder}/text/part")
    if run.formats:
        rows = records | "rows" >> tg.Map(lambda record: tg.Row(kind=record[0], text=json.dumps(record)))
        for name in run.formats.split(","):
            _ = rows | f"{name} files" >> FILE_WRITERS[name](
                f"{run.folder}/{name}/part", {"kind": str, "text": str}, partition_by="kind", max_file_bytes=20_000
            )
    return pipeline


class ExactlyOnceViolation(AssertionError):
    """A record is lost, duplicated or out of order."""


def check_exactly_once(records: Iterable[Record], numbers: int, *, ordered_too: bool = True) -> None:
    """Check all records, in the order in which they became visible, against the output expected of `numbers` inputs.

    `ordered_too`: also check that the records of a key arrived in the order of their partition.
    """
    counts: dict[int, int] = defaultdict(int)
    seen: set[tuple[int, int]] = set()
    flushed: set[tuple[int, int]] = set()
    ordered: set[tuple[int, int]] = set()
    last: dict[tuple[int, int], int] = {}
    sums: dict[tuple[int, int], int] = {}
    for record in records:
        match record:
            case ["seen", key, count, partition, number]:
                counts[key] += 1
                _must(count == counts[key], f"key {key}: count {count} follows {counts[key] - 1}")
                _once(seen, (partition, number), "seen")
            case ["order", key, partition, before, number]:
                expected = last.get((key, partition), -1)
                follows = before == expected and (expected < number or not ordered_too)
                _must(follows, f"key {key} of {partition}: {number} follows {before}, not {expected}")
                _once(ordered, (partition, number), "in order")
                last[key, partition] = number
            case ["flushed", key, together]:
                for partition, number in together:
                    _must(number * 31 % KEYS == key, f"{number} was flushed by key {key}")
                    _once(flushed, (partition, number), "flushed")
            case ["sum", digit, end, count]:
                _must((digit, end) not in sums, f"the window of {digit} that ends at {end} came twice")
                sums[digit, end] = count
            case other:
                raise ExactlyOnceViolation(f"what is {other}?")
    _must(len(seen) == numbers, f"{numbers} numbers were read, and {len(seen)} have been seen")
    for partition in range(PARTITIONS):
        mine = sorted(number for at, number in seen if at == partition)
        _must(mine == list(range(len(mine))), f"some of the first {len(mine)} numbers of {partition} are lost")
    _must(seen == flushed, f"{len(seen ^ flushed)} of the numbers seen were not flushed")
    _must(seen == ordered, f"{len(seen ^ ordered)} of the numbers seen are missing in order")
    wanted: dict[tuple[int, int], int] = defaultdict(int)
    length = int(WINDOW * 1000 * MILLISECOND)
    for _, number in seen:
        wanted[number % 10, (event_time(number) // length + 1) * length] += 1
    wrong = {at for at in wanted.keys() | sums.keys() if wanted.get(at) != sums.get(at)}
    _must(not wrong, f"the sums of {len(wrong)} windows are wrong, such as {min(wrong, default=None)}")


def read_records(paths: Iterable[Path]) -> Iterator[Record]:
    """The records of these files, in order."""
    for path in paths:
        with path.open() as lines:
            yield from map(json.loads, lines)


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ExactlyOnceViolation(otherwise)


def _once(found: set[tuple[int, int]], it: tuple[int, int], where: str) -> None:
    _must(it not in found, f"{it} came twice: {where}")
    found.add(it)


def main() -> None:
    """The client of a run."""
    run = Run(**json.loads(sys.argv[1]))
    if run.in_slices:
        memory.AT_ONCE, state_files.PIECE, writers.PIECE = 0, 1, 1  # type: ignore[misc]  # inherited by the workers
    result: Any = build_pipeline(run, sys.argv[2:]).run()

    def listen() -> None:
        for line in sys.stdin:
            if line == "drain\n":
                result.stop(drain=True)
                return
            try:
                result.savepoint(line.rstrip("\n"))
            except RunError as error:
                print(error, file=sys.stderr)

    threading.Thread(target=listen, daemon=True).start()
    result.wait_until_finish()
    print(result.metrics().counter("elements_out", step="numbers"))


def client_command(run: Run, flags: Sequence[str]) -> list[str]:
    """The command that starts such a client."""
    return [
        sys.executable,
        "-c",
        "from tests.support.streaming.exactly_once_pipeline import main; main()",
        json.dumps(asdict(run)),
        *flags,
    ]

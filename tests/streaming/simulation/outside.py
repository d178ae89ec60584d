"""A simulation of everything outside of the engine: a disk that tears writes, a source of numbers, a checked sink.

User code looks it up by the name of the simulation, because it reaches tasks pickled.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from io import BytesIO
from typing import Any, BinaryIO

from tidegate.sdk.connectors.sinks import Attempt, Committable, Sink, StagedFile, in_order
from tidegate.sdk.connectors.sources import Batch, Discovery, Position, Reader, Source, Split, SplitEnumerator
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import SECOND

Record = tuple[Any, ...]


class Killed(BaseException):
    """The process that runs this code is killed at this point."""


@dataclass
class Outside:
    """The outside of one simulation. `crash_point` is called wherever a process may be killed."""

    numbers: int
    partitions: int
    discovers: bool = False
    """True if partitions are discovered while the job runs, so that elements of later ones may be late."""
    crash_point: Callable[[str], None] = lambda place: None
    pending: dict[str, list[Record]] = field(default_factory=dict)
    committed: list[tuple[int, list[Record]]] = field(default_factory=list)
    """Committed records, with the checkpoint that they belong to."""
    done: set[str] = field(default_factory=set)
    attempts: int = 0
    on_commit: Callable[[], None] = lambda: None


OUTSIDES: dict[str, Outside] = {}


def outside_of(name: str) -> Outside:
    """The outside of that name, also for code that was pickled by value, with its own copy of this module's globals."""
    found: Outside = import_module("tests.streaming.simulation.outside").OUTSIDES[name]
    return found


@dataclass(frozen=True)
class Numbers(Source[Any]):
    """`(key, number)` for every number of a partition, with distinct timestamps, slightly out of order."""

    name_: str
    numbers: int
    partitions: int
    keys: int
    endless: bool

    @property
    def bounded(self) -> bool:
        return not self.endless

    def splits(self, desired: int) -> list[Split]:
        return [Split(f"part-{n}", None, n) for n in range(self.partitions)]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _NumbersReader(self, split.payload, position or 0)


@dataclass(frozen=True)
class DiscoveredNumbers(Numbers):
    """The same numbers; partitions are discovered one after another while earlier ones are being read."""

    def splits(self, desired: int) -> list[Split]:
        raise AssertionError("the enumerator discovers the partitions")

    def enumerator(self, state: Position = None) -> SplitEnumerator:
        return _Partitions(self, state or 0)


class _Partitions(SplitEnumerator):
    def __init__(self, source: Numbers, found: int) -> None:
        self._source = source
        self._found = found

    def discover(self, limit: int) -> Discovery:
        outside_of(self._source.name_).crash_point("discover")
        found = Split(f"part-{self._found}", None, self._found)
        self._found += 1
        outside_of(self._source.name_).crash_point("discovered")
        return Discovery([found], wait=0.05 * self._found, end=self._found == self._source.partitions)

    def state(self) -> Position:
        return self._found


class _NumbersReader(Reader[Any]):
    def __init__(self, source: Numbers, partition: int, at: int) -> None:
        self._source = source
        self._partition = partition
        self._at = at

    def read(self, limit: int) -> Batch:
        source = self._source
        outside_of(source.name_).crash_point("read")
        share = source.numbers // source.partitions
        count = min(limit, share - self._at, 1 + (self._at * 7) % 5)
        numbers = [self._partition * share + self._at + n for n in range(count)]
        self._at += count
        times = [event_time(n % share) for n in numbers]
        block = Block([(n % source.keys, n) for n in numbers], times)
        return Batch(block, watermark=self._at * SECOND // 10 - 2 * SECOND, end=self._at >= share)

    def position(self) -> Position:
        return self._at


def event_time(n: int) -> int:
    """The event time (µs) of the n-th number of a partition: ten per second, out of order by up to a second."""
    return n * SECOND // 10 - (n * 7919 % 10) * SECOND // 10


@dataclass(frozen=True)
class Checked(Sink[Any]):
    """Stores committed records in the outside, and reports every commit.

    `stages`: prepared records are in staged files; otherwise, they are in the outside.
    """

    name_: str
    stages: bool = False
    commit_by: Any = "job"

    @property
    def delivery(self) -> Any:
        return "exactly_once"

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        return _CheckedAttempt(self.name_, run, task, stages=self.stages)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        outside = outside_of(self.name_)
        for committable in in_order(committables):
            outside.crash_point("commit")
            name = committable.payload
            if name in outside.done:
                continue
            records = outside.pending.pop(name) if not self.stages else []
            for file in committable.files:
                with file.open() as opened:
                    records += pickle.loads(opened.read())
            outside.done.add(name)
            outside.committed.append((checkpoint or 0, records))
            outside.on_commit()
            outside.crash_point("committed")

    def abort(self, run: str) -> None:
        outside = outside_of(self.name_)
        for name in list(outside.pending):
            if name.startswith(f"{run}/"):
                outside.crash_point("abort")
                del outside.pending[name]


class _CheckedAttempt(Attempt[Any]):
    def __init__(self, name: str, run: str, task: int, *, stages: bool) -> None:
        self._outside = outside_of(name)
        self._run = run
        self._outside.attempts += 1
        self._attempt = self._outside.attempts
        self._task = task
        self._stages = stages
        self._records: list[Record] = []
        self._pieces = 0

    def write(self, values: Sequence[Any]) -> None:
        self._outside.crash_point("write")
        self._records += values

    def prepare(self) -> list[Committable]:
        self._outside.crash_point("prepare")
        if not self._records:
            return []
        self._pieces += 1
        name = f"{self._run}/{self._task}.{self._attempt}.{self._pieces}"
        records, self._records = self._records, []
        order = (self._task, self._attempt * 1_000_000 + self._pieces)
        if self._stages:
            half = len(records) // 2
            files = [StagedFile.of_bytes("half", pickle.dumps(part)) for part in (records[:half], records[half:])]
            return [Committable(order, name, tuple(files))]
        self._outside.pending[name] = records
        self._outside.crash_point("prepared")
        return [Committable(order, name)]

    def close(self) -> None:
        self._records = []


@dataclass
class Disk:
    """A checkpoint directory. A file that a killed process was writing is missing, or torn under a temporary name."""

    files: dict[str, bytes] = field(default_factory=dict)
    crash_point: Callable[[str], None] = lambda place: None
    unsynced: set[str] = field(default_factory=set)

    def read(self, name: str) -> bytes:
        self.crash_point("disk read")
        try:
            return self.files[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def open(self, name: str) -> BinaryIO:
        return BytesIO(self.read(name))

    def write(self, name: str, data: bytes) -> None:
        self.files[f"{name}.tmp"] = data[: len(data) // 2]
        self.crash_point("disk write")
        del self.files[f"{name}.tmp"]
        self.files[name] = data
        self.crash_point("disk written")

    def put(self, name: str, data: bytes) -> None:
        self.write(name, data)
        self.unsynced.add(name)

    def sync(self, names: Iterable[str]) -> None:
        for name in names:
            self.crash_point("disk sync")
            if name not in self.files:
                raise FileNotFoundError(name)
            self.unsynced.discard(name)

    def create(self, name: str, data: bytes) -> bool:
        self.crash_point("disk create")
        if name in self.files:
            return False
        self.files[name] = data
        self.crash_point("disk created")
        return True

    def list(self, folder: str) -> list[str]:
        prefix = f"{folder.rstrip('/')}/" if folder else ""
        return sorted(name for name in self.files if name.startswith(prefix))

    def unfinished(self, folder: str) -> list[str]:
        return []

    def delete(self, name: str) -> None:
        self.crash_point("disk delete")
        self.files.pop(name, None)

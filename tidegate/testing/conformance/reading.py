"""Reads a source as a runner does: splits listed or discovered, readers in turn, positions as a checkpoint has them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.runners.engine.sources.async_reader import AsyncReaderAdapter
from tidegate.sdk.connectors.sources import (
    AsyncReader,
    Batch,
    Columns,
    Discovery,
    Position,
    Reader,
    Source,
    Split,
    SplitEnumerator,
)
from tidegate.sdk.errors import shorten
from tidegate.testing.conformance.rules import Calls, NotApplicable, broken
from tidegate.testing.matchers import difference, pair_up

_QUIET: Final = 3
"""The number of consecutive empty looks after which a source counts as exhausted."""
_NAP: Final = 0.01
"""The longest that a check sleeps between two looks (s); the readers' clock advances by as much as they ask for."""


@dataclass(slots=True)
class SourceCase:
    """A source and what is known about it; `check_source` explains the fields."""

    make: Callable[[], Source[Any]]
    expected: list[Any]
    desired: tuple[int, ...]
    limits: tuple[int, ...]
    max_positions: int
    endless: bool
    max_state_bytes: int
    calls: Calls
    bad_source: Callable[[], Source[Any]] | None = None
    bad_place: str = ""
    add: Callable[[], Iterable[Any]] | None = None
    lose: Callable[[], object] | None = None
    runners: tuple[str, ...] = ()

    def source(self) -> Source[Any]:
        return self.calls("make_source()", self.make)

    def compare(self, found: list[Any], how: str) -> None:
        """Raise if these are not the expected elements."""
        if self.endless:
            missing, _ = pair_up(self.expected, found)
            problem = f"missing: {shorten(missing)}" if missing else None
        else:
            problem = difference(self.expected, found)
        if problem is not None:
            raise broken(
                f"{how}: {problem}", "return each element exactly once from exactly one split, whatever the limit is"
            )

    def positions(self, steps: Sequence[Any]) -> list[Any]:
        """At most `max_positions` of the steps, evenly chosen, always with the first and the last one."""
        if len(steps) <= self.max_positions:
            return list(steps)
        count = max(2, self.max_positions)
        return [steps[at * (len(steps) - 1) // (count - 1)] for at in range(count)]


@dataclass(slots=True)
class Reading:
    """What was read of one split: elements, batches, and after how many elements the reader was at which position."""

    values: list[Any] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    steps: list[tuple[int, Position]] = field(default_factory=list)
    ended: bool = False


@dataclass(slots=True)
class Clock:
    """The readers' processing time, which advances by what they ask to wait for."""

    micros: int = field(default_factory=lambda: time.time_ns() // 1000)

    def now(self) -> int:
        return self.micros

    def wait(self, seconds: float) -> None:
        self.micros += int(min(max(seconds, 0.0), 3600.0) * 1_000_000)
        time.sleep(min(max(seconds, 0.0), _NAP))


def as_stored(what: str, value: Any) -> Any:
    """The value as a checkpoint restores it."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        raise broken(
            f"{what} is {shorten(value)}, which JSON can't store: {error}",
            "let it consist of numbers, strings, lists and dicts with strings as keys",
        ) from error


def open_reader(case: SourceCase, source: Source[Any], split: Split, position: Position = None) -> Reader[Any]:
    """A reader from a position on; an asynchronous one reads in its event loop, as in a worker."""
    what = f"reader({split.id!r}, {shorten(position)})"
    reader = case.calls(what, source.reader, split, position)
    if isinstance(reader, AsyncReader):
        return AsyncReaderAdapter(reader, position)
    return reader


def read(case: SourceCase, reader: Reader[Any], split: Split, limit: int) -> Batch:
    """The next batch, after the checks that hold for each batch."""
    batch = case.calls(f"read({limit}) of split {split.id!r}", reader.read, limit)
    if not isinstance(batch, Batch):
        raise broken(f"read({limit}) returned {shorten(batch)}", "return a tg.io.Batch")
    if len(batch.block) > limit and not isinstance(reader, AsyncReaderAdapter):
        raise broken(
            f"read({limit}) of split {split.id!r} returned {len(batch.block)} elements",
            "return at most `limit` elements, and the others from the next read",
        )
    return batch


def position_of(reader: Reader[Any], case: SourceCase, split: Split) -> Position:
    position = case.calls(f"position() of split {split.id!r}", reader.position)
    return as_stored(f"a position in split {split.id!r}", position)


def values_of(batch: Batch) -> list[Any]:
    block = batch.block.block() if isinstance(batch.block, Columns) else batch.block
    return list(block.values)


def is_bounded(source: Source[Any], split: Split) -> bool:
    return source.bounded if split.bounded is None else split.bounded


def drain(
    case: SourceCase,
    source: Source[Any],
    splits: Sequence[Split],
    *,
    limit: int,
    starts: Mapping[str, Position] | None = None,
    wanted: int | None = None,
) -> dict[str, Reading]:
    """Read splits in turn until they end, or, if they are unbounded, until `wanted` elements and no more have come.

    Without `wanted`, these are the expected elements of the whole source.
    """
    readings = {split.id: Reading() for split in splits}
    readers: dict[str, Reader[Any]] = {}
    clock = Clock()
    starts = starts or {}
    try:
        for split in splits:
            readers[split.id] = open_reader(case, source, split, starts.get(split.id))
            readers[split.id].now = clock.now
            start = position_of(readers[split.id], case, split)
            readings[split.id].steps.append((0, start))
        _drain(case, source, list(splits), readers, readings, clock, limit, wanted)
    except BaseException:
        for reader in readers.values():
            case.calls.outcome("close()", reader.close)
        raise
    for id, reader in readers.items():
        case.calls(f"close() of split {id!r}", reader.close)
    return readings


def _drain(
    case: SourceCase,
    source: Source[Any],
    remaining: list[Split],
    readers: Mapping[str, Reader[Any]],
    readings: Mapping[str, Reading],
    clock: Clock,
    limit: int,
    wanted: int | None,
) -> None:
    goal = len(case.expected) if wanted is None else wanted
    total = quiet = 0
    progress = time.monotonic()
    while remaining:
        moved, waits = False, []
        for split in list(remaining):
            reading, reader = readings[split.id], readers[split.id]
            batch = read(case, reader, split, limit)
            values = values_of(batch)
            reading.values += values
            reading.batches.append(batch)
            position = position_of(reader, case, split)
            moved = moved or bool(values) or position != reading.steps[-1][1]
            reading.steps.append((len(reading.values), position))
            total += len(values)
            waits.append(batch.wait)
            if batch.end:
                reading.ended = True
                remaining.remove(split)
        bounded = [split for split in remaining if is_bounded(source, split)]
        quiet = 0 if moved else quiet + 1
        if total > 2 * goal + 1000 and not case.endless:
            return  # far too many: the comparison says so
        if (
            remaining
            and not bounded
            and _enough(case, readings, goal, total, wanted)
            and (case.endless or quiet >= _QUIET)
        ):
            return
        if moved:
            progress = time.monotonic()
        elif time.monotonic() - progress > case.calls.patience:
            if not bounded:
                return
            raise broken(
                f"split {bounded[0].id!r} is bounded, but returned neither elements nor `end` for "
                f"{case.calls.patience:g} s",
                "return `end=True` with the last elements, or set `bounded = False`",
            )
        elif remaining:
            clock.wait(min(waits))


def _enough(case: SourceCase, readings: Mapping[str, Reading], goal: int, total: int, wanted: int | None) -> bool:
    if total < goal:
        return False
    if not case.endless or wanted is not None:
        return True
    return not pair_up(case.expected, [value for reading in readings.values() for value in reading.values])[0]


def read_all(case: SourceCase, source: Source[Any], splits: Sequence[Split], limit: int) -> list[Any]:
    """The elements of some splits, which are all of the source's."""
    return [value for reading in drain(case, source, splits, limit=limit).values() for value in reading.values]


def splits_of(case: SourceCase, source: Source[Any], desired: int) -> list[Split]:
    """The splits, listed, or discovered at most `desired` at a time."""
    enumerator = case.calls("enumerator(None)", source.enumerator, None)
    if enumerator is None:
        splits = case.calls(f"splits({desired})", source.splits, desired)
    else:
        try:
            splits = discover(case, enumerator, desired)
        finally:
            case.calls("close() of the enumerator", enumerator.close)
    for split in splits:
        if not isinstance(split, Split):
            raise broken(f"{shorten(split)} is among the splits", "return a list of tg.io.Split")
    return splits


def enumerator_of(case: SourceCase, source: Source[Any], state: Position = None) -> SplitEnumerator:
    found = case.calls(f"enumerator({shorten(state)})", source.enumerator, state)
    if found is None:
        raise NotApplicable("the source has no enumerator")
    return found


def look(case: SourceCase, enumerator: SplitEnumerator, limit: int) -> Discovery:
    """One look, after the checks that hold for each."""
    found = case.calls(f"discover({limit})", enumerator.discover, limit)
    if not isinstance(found, Discovery):
        raise broken(f"discover({limit}) returned {shorten(found)}", "return a tg.io.Discovery")
    if len(found.splits) > limit:
        raise broken(
            f"discover({limit}) returned {len(found.splits)} splits",
            "return at most `limit` splits, and the others from the next call",
        )
    return found


def discover(
    case: SourceCase, enumerator: SplitEnumerator, limit: int, known: Iterable[str] | None = None
) -> list[Split]:
    """The splits of look after look: until the end, or until nothing more comes and the `known` ones are among them.
    Without `known`, there is at least one split if elements are expected."""
    found: list[Split] = []
    missing = set(known or ())
    quiet = 0
    progress = time.monotonic()
    while True:
        discovery = look(case, enumerator, limit)
        found += discovery.splits
        missing -= {split.id for split in discovery.splits}
        if discovery.end:
            return found
        if discovery.splits:
            quiet, progress = 0, time.monotonic()
            continue
        quiet += 1
        settled = not missing and (found or known is not None or not case.expected)
        if (quiet >= _QUIET and settled) or time.monotonic() - progress > case.calls.patience:
            return found
        time.sleep(min(discovery.wait, _NAP * 5))

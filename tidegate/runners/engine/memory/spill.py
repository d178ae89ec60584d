"""Tables that exceed memory, written to disk in partitions by the hash of the key.

A table that has reached its budget is written out and starts empty again; each write adds one frame per partition.
When input has ended, partitions are read back one by one. A partition that is still too large is cut again by other
bits of the hash; a key whose values alone are too many is never loaded: they are streamed from disk, as often as
they are asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from threading import local
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias, overload

from tidegate.runners.engine.memory.spill_file import SpillFile, new_file
from tidegate.sdk.data.coders import decode_columns, encode_columns
from tidegate.sdk.data.keys import partition_of
from tidegate.sdk.user_code.redefined_classes import dumps
from tidegate.sdk.windowing.window import window_end

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS: Final = 32
_HEADER: Final = struct.Struct("<QQ")
_FRAMES: Final = 64
"""How many frames of values would fill the budget."""
_LEAST_VALUES: Final = 16
_MOST_VALUES: Final = 50_000
_MAX_LEVEL: Final = 5


class SpilledValues(Sequence[Any]):
    """The values of one key, too many for memory: read from disk whenever they are asked for. Pickles as a list."""

    __slots__ = ("_count", "_frames", "_path")

    def __init__(self, path: Path, frames: list[tuple[int, int, int]], count: int) -> None:
        self._path = path
        self._frames = frames
        self._count = count

    def __iter__(self) -> Iterator[Any]:
        with self._path.open("rb") as file:
            for offset, start, stop in self._frames:
                yield from _read_values(file, offset)[start:stop]

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            wanted = range(self._count)[index]
            first, last = (min(wanted), max(wanted) + 1) if wanted else (0, 0)
            run = list(islice(self, first, last))
            return [run[at - first] for at in wanted]
        at = range(self._count)[index]
        with self._path.open("rb") as file:
            for offset, start, stop in self._frames:
                if at < stop - start:
                    return _read_values(file, offset)[start + at]
                at -= stop - start
        raise IndexError(index)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"SpilledValues({self._count} values on disk)"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SpilledValues) and (other._path, other._frames) == (self._path, self._frames):
            return True
        if not isinstance(other, (list, SpilledValues)) or len(other) != self._count:
            return False
        return all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        if _within.run:
            return SpilledValues, (self._path, self._frames, self._count)
        return list, (list(self),)


class _Within(local):
    run: bool = False


_within: Final = _Within()


def dumps_within_run(value: Any) -> bytes:
    """A pickle that is read again while this run's spilled values are on disk: it says where they are."""
    _within.run = True
    try:
        return dumps(value)
    finally:
        _within.run = False


@dataclass(slots=True)
class Spill:
    """The runs one grouping has written, in one file per partition.

    `lists` says that a key's entry is a list of values. `value_size` (bytes) is about what one takes in memory: it
    bounds the frames, which are what is held at once when values are read back. `level` is that of `partition_of`:
    the exchange before the grouping divided at level 0, so the keys of one task differ in the bits of higher levels.
    """

    directory: Callable[[], Path]
    lists: bool
    merge: Callable[[tuple[Any, Any]], Any]
    budget: int
    level: int = 1
    files: dict[int, _Partition] = field(default_factory=dict)
    value_size: int = 100

    def write(self, window: Any, table: dict[Any, Any]) -> None:
        """Write a window's whole table out, in frames of bounded size."""
        buckets: list[list[Any]] = [[] for _ in range(PARTITIONS)]
        level = self.level
        for key in table:
            buckets[partition_of(key, PARTITIONS, level)].append(key)
        for number, keys in enumerate(buckets):
            if keys:
                self._write_partition(number, window, keys, table)

    def _write_partition(self, number: int, window: Any, keys: list[Any], table: dict[Any, Any]) -> None:
        partition = self.files.get(number)
        if partition is None:
            partition = self.files[number] = _Partition(new_file(self.directory, f"spill-{self.level}-{number}"))
        limit = max(_LEAST_VALUES, min(_MOST_VALUES, self.budget // _FRAMES // (self.value_size + 1)))
        for frame in _list_frames(keys, table, limit) if self.lists else _entry_frames(keys, table, limit):
            partition.append(window, *frame)

    def drain(self) -> Iterator[tuple[Any, dict[Any, Any]]]:
        """Every window and part of its table, partition by partition; what a yielded table holds is whole.

        The windows of any one key come by (end, start), as they do from memory.
        """
        for number in sorted(self.files):
            partition = self.files.pop(number)
            yield from self._drain_partition(partition)

    def entries(self) -> Iterator[tuple[Any, dict[Any, Any]]]:
        """As `drain`, but all stays where it is: every window and part of its table, in memory."""
        for number in sorted(self.files):
            tables: dict[Any, dict[Any, Any]] = {}
            for window, keys, counts, values in self.files[number].frames():
                self._take_in(tables.setdefault(window, {}), keys, counts, values)
            yield from tables.items()

    def _drain_partition(self, partition: _Partition) -> Iterator[tuple[Any, dict[Any, Any]]]:
        share = partition.bytes * _EXPANSION
        if share > self.budget and self.level < _MAX_LEVEL and (self.lists or partition.many_keys):
            huge = self._huge(partition) if self.lists else {}
            yield from self._recut(partition, huge)
            return
        tables: dict[Any, dict[Any, Any]] = {}
        for window, keys, counts, values in partition.frames():
            self._take_in(tables.setdefault(window, {}), keys, counts, values)
        partition.file.remove()
        yield from _by_window(tables)

    def _take_in(self, table: dict[Any, Any], keys: list[Any], counts: list[int], values: list[Any]) -> None:
        if not self.lists:
            for key, accumulator in zip(keys, values, strict=True):
                table[key] = self.merge((table[key], accumulator)) if key in table else accumulator
            return
        at = 0
        for key, n in zip(keys, counts, strict=True):
            known = table.get(key)
            if known is None:
                table[key] = values[at : at + n]
            else:
                known += values[at : at + n]
            at += n

    def _huge(self, partition: _Partition) -> dict[tuple[Any, Any], int]:
        """Keys of which the values in some window alone would fill a quarter of the budget: in each of their windows,
        how many they are."""
        totals: dict[tuple[Any, Any], int] = {}
        values = 0
        for _, window, keys, counts in partition.heads():
            for key, n in zip(keys, counts, strict=True):
                totals[window, key] = totals.get((window, key), 0) + n
                values += n
        per_value = max(1, partition.bytes * _EXPANSION // max(1, values))
        keys_of_these = {key for (_, key), n in totals.items() if n * per_value > self.budget // 4}
        return {at: n for at, n in totals.items() if at[1] in keys_of_these}

    def _recut(self, partition: _Partition, huge: dict[tuple[Any, Any], int]) -> Iterator[tuple[Any, dict[Any, Any]]]:
        """Cut a partition by other bits of the hash; values of huge keys stay where they are."""
        deeper = Spill(self.directory, self.lists, self.merge, self.budget, self.level + 1, value_size=self.value_size)
        places: dict[tuple[Any, Any], list[tuple[int, int, int]]] = {at: [] for at in huge}
        for offset, window, keys, counts in partition.heads():
            at = 0
            wanted: list[tuple[Any, int, int]] = []
            for key, n in zip(keys, counts, strict=True):
                if (window, key) in places:
                    places[window, key].append((offset, at, at + n))
                else:
                    wanted.append((key, at, n))
                at += n
            if wanted:
                values = partition.values_at(offset)
                table: dict[Any, Any] = {}
                for key, start, n in wanted:
                    self._take_in(table, [key], [n], values[start : start + n])
                deeper.write(window, table)
        tables: dict[Any, dict[Any, Any]] = {}
        for (window, key), frames in places.items():
            tables.setdefault(window, {})[key] = SpilledValues(partition.file.path, frames, huge[window, key])
        yield from _by_window(tables)
        if not huge:
            partition.file.remove()
        yield from deeper.drain()


def window_order(window: Any) -> tuple[int, Any]:
    """By which windows are sorted: their end, then their start."""
    return window_end(window), window


def _by_window(tables: dict[Any, dict[Any, Any]]) -> Iterator[tuple[Any, dict[Any, Any]]]:
    """Tables by window in the order of windows; where there is no windowing, there is one."""
    for window in sorted(tables, key=window_order) if len(tables) > 1 else tables:
        yield window, tables[window]


Frame: TypeAlias = tuple[list[Any], list[int], list[Any]]
"""Keys, how many values each has, and all the values one after another."""


def _entry_frames(keys: list[Any], table: dict[Any, Any], limit: int) -> Iterator[Frame]:
    """Entries of a table that are one value each, `limit` at a time."""
    for start in range(0, len(keys), limit):
        part = keys[start : start + limit]
        yield part, [1] * len(part), [table[key] for key in part]


def _list_frames(keys: list[Any], table: dict[Any, Any], limit: int) -> Iterator[Frame]:
    """Entries that are lists, as many as have at most `limit` values together; a longer list is cut."""
    counts = [len(table[key]) for key in keys]
    at = 0
    while at < len(keys):
        if counts[at] > limit:
            key, entry = keys[at], table[keys[at]]
            for start in range(0, len(entry), limit):
                part = entry[start : start + limit]
                yield [key], [len(part)], part
            at += 1
            continue
        first, total = at, 0
        while at < len(keys) and total + counts[at] <= limit:
            total += counts[at]
            at += 1
        run = keys[first:at]
        yield run, counts[first:at], list(chain.from_iterable([table[key] for key in run]))


_EXPANSION: Final = 4
"""About how many times larger elements are in memory than on disk."""


class _Partition:
    """One file of frames: a head (window, keys, counts), then the values."""

    def __init__(self, path: Path) -> None:
        self.file = SpillFile(path)
        self.bytes = 0
        self.many_keys = False

    def append(self, window: Any, keys: list[Any], counts: list[int], values: list[Any]) -> None:
        """One more frame."""
        _within.run = True
        try:
            head = encode_columns((window, keys, counts))
            body = encode_columns((values,))
        finally:
            _within.run = False
        self.file.append((_HEADER.pack(len(head), len(body)), head, body))
        self.bytes += len(head) + len(body)
        self.many_keys = self.many_keys or len(keys) > 1

    def heads(self) -> Iterator[tuple[int, Any, list[Any], list[int]]]:
        """Of each frame: where it stands, its window, keys and counts."""
        with self.file.reader() as file:
            while (offset := file.tell()) < self.file.size:
                head, body = _HEADER.unpack(file.read(_HEADER.size))
                window, keys, counts = decode_columns(file.read(head))
                file.seek(body, 1)
                yield offset, window, keys, counts

    def frames(self) -> Iterator[tuple[Any, list[Any], list[int], list[Any]]]:
        """Every frame: its window, keys, counts and values."""
        with self.file.reader() as file:
            for offset, window, keys, counts in self.heads():
                yield window, keys, counts, _read_values(file, offset)

    def values_at(self, offset: int) -> list[Any]:
        """The values of the frame at `offset`."""
        with self.file.reader() as file:
            return _read_values(file, offset)


def _read_values(file: BinaryIO, offset: int) -> list[Any]:
    file.seek(offset)
    head, body = _HEADER.unpack(file.read(_HEADER.size))
    file.seek(head, 1)
    (values,) = decode_columns(file.read(body))
    return values  # type: ignore[no-any-return]


def chunks(table: dict[Any, Any], size: int) -> Iterator[list[tuple[Any, Any]]]:
    """The table's entries in order, `size` at a time."""
    items = iter(table.items())
    while chunk := list(islice(items, size)):
        yield chunk

"""Tables that exceed the memory budget are spilled to disk, partitioned by the hash of the key.

Each spill of a table adds frames to the partitions, and the table starts empty again. At the end of input the
partitions are loaded one by one. A partition that is still too large is partitioned again by other bits of the hash.
The values of a key that has too many of them are never loaded together: every iteration streams them from disk.

>>> import tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as directory:
...     spill = Spill(lambda: Path(directory), lists=True, merge=max, budget=1 << 20)
...     spill.write(None, {"a": [1, 2], "b": [3]})
...     spill.write(None, {"a": [4]})
...     sorted((key, values) for _, table in spill.drain() for key, values in table.items())
[('a', [1, 2, 4]), ('b', [3])]
"""

from __future__ import annotations

import copyreg
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias, overload

from tidegate.runners.engine.memory.spill_file import SpillFile, new_file
from tidegate.sdk.data.coders import Reducers, decode_columns, encode_columns
from tidegate.sdk.data.keys import spill_partitions
from tidegate.sdk.user_code.redefined_classes import dumps
from tidegate.sdk.windowing.window import window_order

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS: Final = 37
"""A prime, as `spill_partitions` asks for, by which powers of two leave all remainders. A task has the keys whose crc32
lies in a range; that depends on the sum of some of their bits, and so does the remainder of 31."""
_HEADER: Final = struct.Struct("<QQ")
_FRAMES: Final = 64
"""The memory budget divided by this is the target size of a frame."""
_MIN_FRAME_VALUES: Final = 16
_MAX_FRAME_VALUES: Final = 50_000
_MAX_LEVEL: Final = 5
_PARTITIONED_TOGETHER: Final = 4_096


class SpilledValues(Sequence[Any]):
    """A sequence of one key's values that stays on disk: every access reads them from there. Pickles as a list."""

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
            positions = range(self._count)[index]
            first, last = (min(positions), max(positions) + 1) if positions else (0, 0)
            values = list(islice(self, first, last))
            return [values[at - first] for at in positions]
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
        return list, (list(self),)

    def by_reference(self) -> tuple[Any, ...]:
        """Pickle the path and the frames instead of the values (see `BY_REFERENCE`)."""
        return SpilledValues, (self._path, self._frames, self._count)


BY_REFERENCE: Final[Reducers] = {SpilledValues: SpilledValues.by_reference}
"""For pickles that are read again in this run, while the spilled values are still on disk."""


def dumps_within_run(value: Any) -> bytes:
    """Pickle a value for use within this run: spilled values are not copied."""
    return dumps(value, table={**copyreg.dispatch_table, **BY_REFERENCE})


@dataclass(slots=True)
class Spill:
    """The spilled tables of one grouping, in one file per partition.

    With `lists`, a key's entry is a list of values; otherwise it is an accumulator, and `merge` merges two of them.
    `value_size` is the estimated size of one value in memory (bytes). It bounds the size of frames, since values are
    read back frame by frame. `level` is that of `spill_partitions`.
    """

    directory: Callable[[], Path]
    lists: bool
    merge: Callable[[tuple[Any, Any]], Any]
    budget: int
    level: int = 1
    files: dict[int, _Partition] = field(default_factory=dict)
    value_size: int = 100

    def write(self, window: Any, table: dict[Any, Any]) -> None:
        """Write a window's table to disk, in frames of bounded size."""
        limit = max(_MIN_FRAME_VALUES, min(_MAX_FRAME_VALUES, self.budget // _FRAMES // (self.value_size + 1)))
        frames: list[Frame] = [([], [], []) for _ in range(PARTITIONS)]
        parts: list[list[Any]] = [[] for _ in range(PARTITIONS)]
        add_key, add_entry = [keys.append for keys, _, _ in frames], [part.append for part in parts]
        remaining, rest = iter(table), iter(table.values())
        # In small portions, so that the entries, which lie about in memory, are in the processor's cache.
        while portion := list(islice(remaining, _PARTITIONED_TOGETHER)):
            numbers = spill_partitions(portion, PARTITIONS, self.level)
            entries = list(islice(rest, len(portion)))
            single = self.lists and set(map(len, entries)) == {1}
            if single:
                for number, key, (value,) in zip(numbers, portion, entries, strict=True):
                    add_key[number](key)
                    add_entry[number](value)
            else:
                for number, key, entry in zip(numbers, portion, entries, strict=True):
                    add_key[number](key)
                    add_entry[number](entry)
            divided = self.lists and not single
            for number, (frame, part) in enumerate(zip(frames, parts, strict=True)):
                _, counts, values = frame
                counts += map(len, part) if divided else [1] * len(part)
                values += chain.from_iterable(part) if divided else part
                part.clear()
                if len(values) >= limit:
                    self._write_partition(number, window, frame, limit)
                    for column in frame:
                        column.clear()
        for number, frame in enumerate(frames):
            if frame[0]:
                self._write_partition(number, window, frame, limit)

    def _write_partition(self, number: int, window: Any, frame: Frame, limit: int) -> None:
        """Write a frame as frames with at most `limit` values; an entry with more of them is divided."""
        partition = self.files.get(number)
        if partition is None:
            partition = self.files[number] = _Partition(new_file(self.directory, f"spill-{self.level}-{number}"))
        keys, counts, values = frame
        ends = list(accumulate(counts))
        at = start = 0
        while at < len(keys):
            after = bisect_right(ends, start + limit, at)
            if after > at:
                partition.append(window, keys[at:after], counts[at:after], values[start : ends[after - 1]])
            else:
                after = at + 1
                for first in range(start, ends[at], limit):
                    piece = values[first : min(first + limit, ends[at])]
                    partition.append(window, [keys[at]], [len(piece)], piece)
            at, start = after, ends[after - 1]

    def drain(self) -> Iterator[tuple[Any, dict[Any, Any]]]:
        """Load and remove the partitions one by one; yield their tables with their windows.

        The entries of a yielded table are complete. The windows of any one key are ordered by (end, start), as they
        are in memory.
        """
        for number in sorted(self.files):
            partition = self.files.pop(number)
            yield from self._drain_partition(partition)

    def entries(self) -> Iterator[tuple[Any, dict[Any, Any]]]:
        """Yield the same tables as `drain`, each loaded as a whole, and leave the partitions on disk."""
        for number in sorted(self.files):
            yield from self._loaded(self.files[number]).items()

    def _drain_partition(self, partition: _Partition) -> Iterator[tuple[Any, dict[Any, Any]]]:
        size = partition.bytes * _EXPANSION
        if size > self.budget and self.level < _MAX_LEVEL and (self.lists or partition.many_keys):
            huge = self._huge_keys(partition) if self.lists else {}
            yield from self._repartition(partition, huge)
            return
        tables = self._loaded(partition)
        partition.file.remove()
        yield from _by_window(tables)

    def _loaded(self, partition: _Partition) -> dict[Any, dict[Any, Any]]:
        tables: dict[Any, dict[Any, Any]] = {}
        for window, keys, counts, values in partition.frames():
            self._merge_frame(tables.setdefault(window, {}), keys, counts, values)
        return tables

    def _merge_frame(self, table: dict[Any, Any], keys: list[Any], counts: list[int], values: list[Any]) -> None:
        if not self.lists:
            for key, accumulator in zip(keys, values, strict=True):
                table[key] = self.merge((table[key], accumulator)) if key in table else accumulator
            return
        get = table.get
        if counts.count(1) == len(keys):
            for key, value in zip(keys, values, strict=True):
                entry = get(key)
                if entry is None:
                    table[key] = [value]
                else:
                    entry.append(value)
            return
        at = 0
        for key, n in zip(keys, counts, strict=True):
            entry = get(key)
            if entry is None:
                table[key] = values[at : at + n]
            else:
                entry += values[at : at + n]
            at += n

    def _huge_keys(self, partition: _Partition) -> dict[tuple[Any, Any], int]:
        """The keys whose values in some window take more than a quarter of the budget: the number of their values, by
        window and key."""
        totals: dict[tuple[Any, Any], int] = {}
        values = 0
        for _, window, keys, counts in partition.heads():
            for key, n in zip(keys, counts, strict=True):
                totals[window, key] = totals.get((window, key), 0) + n
                values += n
        per_value = max(1, partition.bytes * _EXPANSION // max(1, values))
        huge = {key for (_, key), n in totals.items() if n * per_value > self.budget // 4}
        return {at: n for at, n in totals.items() if at[1] in huge}

    def _repartition(
        self, partition: _Partition, huge: dict[tuple[Any, Any], int]
    ) -> Iterator[tuple[Any, dict[Any, Any]]]:
        """Partition by other bits of the hash. The values of huge keys stay in the file, and are not loaded."""
        deeper = Spill(self.directory, self.lists, self.merge, self.budget, self.level + 1, value_size=self.value_size)
        huge_frames: dict[tuple[Any, Any], list[tuple[int, int, int]]] = {at: [] for at in huge}
        for offset, window, keys, counts in partition.heads():
            at = 0
            others: list[tuple[Any, int, int]] = []
            for key, n in zip(keys, counts, strict=True):
                if (window, key) in huge_frames:
                    huge_frames[window, key].append((offset, at, at + n))
                else:
                    others.append((key, at, n))
                at += n
            if others:
                values = partition.values_at(offset)
                table: dict[Any, Any] = {}
                for key, start, n in others:
                    self._merge_frame(table, [key], [n], values[start : start + n])
                deeper.write(window, table)
        tables: dict[Any, dict[Any, Any]] = {}
        for (window, key), frames in huge_frames.items():
            tables.setdefault(window, {})[key] = SpilledValues(partition.file.path, frames, huge[window, key])
        yield from _by_window(tables)
        if not huge:
            partition.file.remove()
        yield from deeper.drain()


def _by_window(tables: dict[Any, dict[Any, Any]]) -> Iterator[tuple[Any, dict[Any, Any]]]:
    """Tables in the order of their windows; without windowing there is only one table."""
    for window in sorted(tables, key=window_order) if len(tables) > 1 else tables:
        yield window, tables[window]


Frame: TypeAlias = tuple[list[Any], list[int], list[Any]]
"""Keys, the number of values of each key, and the values of all keys in one list."""


_EXPANSION: Final = 4
"""Elements in memory are about so many times larger than on disk."""


class _Partition:
    """One file of frames: a head (window, keys, counts), then the values."""

    def __init__(self, path: Path) -> None:
        self.file = SpillFile(path)
        self.bytes = 0
        self.many_keys = False

    def append(self, window: Any, keys: list[Any], counts: list[int], values: list[Any]) -> None:
        """Append one frame."""
        head = encode_columns((window, keys, counts), BY_REFERENCE)
        body = encode_columns((values,), BY_REFERENCE)
        self.file.append((_HEADER.pack(len(head), len(body)), head, body))
        self.bytes += len(head) + len(body)
        self.many_keys = self.many_keys or len(keys) > 1

    def heads(self) -> Iterator[tuple[int, Any, list[Any], list[int]]]:
        """Of each frame: its offset in the file, window, keys and counts."""
        with self.file.reader() as file:
            while (offset := file.tell()) < self.file.size:
                head, body = _HEADER.unpack(file.read(_HEADER.size))
                window, keys, counts = decode_columns(file.read(head))
                file.seek(body, 1)
                yield offset, window, keys, counts

    def frames(self) -> Iterator[tuple[Any, list[Any], list[int], list[Any]]]:
        """Of each frame: its window, keys, counts and values."""
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
    """The table's entries, in lists of at most `size`."""
    items = iter(table.items())
    while chunk := list(islice(items, size)):
        yield chunk

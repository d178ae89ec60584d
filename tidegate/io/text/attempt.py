"""One task's try at writing text files: lines become parts in the sink's work folder.

Where elements come with addresses (`output_names.py`), a task may write to thousands of files in turn. So a part holds
its lines in memory until there are enough of them to write, all parts of an attempt together keep to a budget, and only
so many files (and compressors) are open at once. A part whose file was closed is opened again to append; where a store
can't append, it is finished instead, and another part is begun.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple

from tidegate.io import compression as _compression
from tidegate.io import files
from tidegate.io.compression import Compression
from tidegate.io.files import Store
from tidegate.io.output_names import Address
from tidegate.sdk.connectors.sinks import Attempt, Committable
from tidegate.sdk.errors import WriteError, shorten

OPEN_AT_ONCE: Final = 64
"""Files that one attempt has open."""

_PART_BYTES: Final = 1 << 18
_ALL_BYTES: Final = 1 << 26


class Piece(NamedTuple):
    """A committable's payload: a part's path in the sink's work folder, its shard, its bytes: all, and those of its
    header and its footer; and its address, if elements have one."""

    path: str
    shard: int
    size: int
    head: int
    foot: int
    address: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """The format of each part: the (compressed) bytes before and after its lines, and the encoding of lines."""

    sink: str
    shards: int
    head: bytes
    foot: bytes
    compression: Compression
    encoding: str
    line_end: str
    addressed: bool


class TextAttempt(Attempt[Any]):
    """Writes one part per address and shard between two `prepare`s, begun when it has its first line."""

    def __init__(self, layout: Layout, store: Store, work: str, task: int) -> None:
        self._layout = layout
        self._store = store
        self._task = task
        self._name = f"{task:05d}-{os.urandom(8).hex()}"
        self._work = work
        self._parts: dict[tuple[Address, int], _Part] = {}
        self._open: dict[_Part, None] = {}  # by last use
        self._finished: list[Piece] = []
        self._held = 0
        self._begun = 0
        self._sequence = 0
        # The shard that an address's next element goes to; tasks start apart, so that little data is not all in the
        # first shard.
        self._turns: dict[Address, int] = {}

    def write(self, values: Sequence[Any]) -> None:
        if not values:
            return
        try:
            if not self._layout.addressed:
                self._write((), values)
                return
            by_address: dict[Address, list[Any]] = {}
            for address, value in values:
                by_address.setdefault(address, []).append(value)
            for address, found in by_address.items():
                self._write(address, found)
        except WriteError:
            raise
        except Exception as error:  # a remote file system raises what it likes
            raise self._failed(error) from error

    def prepare(self) -> list[Committable]:
        try:
            for key in sorted(self._parts):
                self._finish(key)
        except Exception as error:
            raise self._failed(error) from error
        pieces, self._finished = self._finished, []
        prepared = [Committable((self._task, self._sequence + i), list(piece)) for i, piece in enumerate(pieces)]
        self._sequence += len(prepared)
        return prepared

    def close(self) -> None:
        for part in self._open:
            _quietly(part.release)
        written = [part.path for part in self._parts.values()] + [self._at(piece.path) for piece in self._finished]
        for path in written:
            _quietly(partial(self._store.remove, path))
        self._parts, self._open, self._finished = {}, {}, []
        _quietly(partial(self._store.remove_empty_folder, self._at(self._name)))  # it isn't, before the commit

    def _write(self, address: Address, values: Sequence[Any]) -> None:
        shards = self._layout.shards
        turn = self._turns.get(address, self._task % shards)
        for i in range(min(shards, len(values))):
            shard = (turn + i) % shards
            data = self._encoded(values if shards == 1 else values[i::shards])
            part = self._part(address, shard)
            part.hold(data)
            self._held += len(data)
            if part.held >= _PART_BYTES:
                self._flush(part)
        if shards > 1:
            self._turns[address] = (turn + len(values)) % shards
        if self._held >= _ALL_BYTES:
            for part in sorted(self._parts.values(), key=lambda part: part.held, reverse=True):
                self._flush(part)
                if self._held < _ALL_BYTES // 2:
                    break

    def _part(self, address: Address, shard: int) -> _Part:
        part = self._parts.get((address, shard))
        if part is None:
            name = f"{self._name}/{self._begun:05d}-{shard:05d}"
            self._begun += 1
            part = self._parts[address, shard] = _Part(self._layout, self._store, self._at(name), name, address, shard)
            if not self._layout.addressed:
                self._use(part)  # a folder that can't be written to shows at the first line
        return part

    def _flush(self, part: _Part) -> None:
        self._use(part)
        self._held -= part.held
        part.flush()

    def _use(self, part: _Part) -> None:
        """Open a part's file, if need be in place of the one that was used the longest time ago."""
        if part in self._open:
            del self._open[part]
        elif len(self._open) >= OPEN_AT_ONCE:
            oldest = next(iter(self._open))
            if self._store.appends:
                del self._open[oldest]
                oldest.release()
            else:
                self._finish((oldest.address, oldest.shard))
        part.open()
        self._open[part] = None

    def _finish(self, key: tuple[Address, int]) -> None:
        part = self._parts[key]
        self._use(part)
        self._held -= part.held
        self._finished.append(part.finish())
        del self._open[part]
        del self._parts[key]

    def _at(self, name: str) -> str:
        return files.join(self._work, name)

    def _encoded(self, values: Sequence[Any]) -> bytes:
        end, encoding = self._layout.line_end, self._layout.encoding
        try:
            return (end.join(values) + end).encode(encoding)
        except TypeError:
            pass  # not all are strings
        except UnicodeEncodeError:
            pass  # find out which
        lines = []
        tail = end.encode(encoding)
        for value in values:
            try:
                lines.append(value if isinstance(value, bytes) else str(value).encode(encoding))
            except UnicodeEncodeError as error:
                raise WriteError(
                    f"{self._layout.sink}: {shorten(value)} can't be written as {encoding}: {error.reason}. "
                    "encoding='utf-8' can write all but lone surrogates"
                ) from error
        return tail.join(lines) + tail

    def _failed(self, error: Exception) -> WriteError:
        return WriteError(f"{self._layout.sink}: can't be written: {files.describe(error)}")


class _Part:
    """A file being written: its header, then lines, of which the last ones are still in memory."""

    def __init__(self, layout: Layout, store: Store, path: str, name: str, address: Address, shard: int) -> None:
        self.path = path
        self.address = address
        self.shard = shard
        self.held = 0
        self._layout = layout
        self._store = store
        self._name = name
        self._lines: list[bytes] = []
        self._size = 0
        self._file: BinaryIO | None = None
        self._compressor: Any = None

    def hold(self, data: bytes) -> None:
        """Take lines, to be written by the next `flush`."""
        self._lines.append(data)
        self.held += len(data)

    def open(self) -> None:
        """Have the file open, its header in it."""
        if self._file is None:
            self._file = self._store.append(self.path) if self._size else self._store.create(self.path)
            if not self._size:
                self._size += self._file.write(self._layout.head)
            self._compressor = _compression.compressor(self._layout.compression)

    def flush(self) -> None:
        """Write what is in memory. The file is open."""
        self._put(b"".join(self._lines))
        self._lines.clear()
        self.held = 0

    def release(self) -> None:
        """Close the file for a while. What is compressed so far becomes a stream of its own."""
        if self._file is not None:
            file, self._file = self._file, None
            with file:
                self._size += file.write(self._compressor.flush())

    def finish(self) -> Piece:
        """Write the rest, and make the file durable. The file is open."""
        assert self._file is not None
        self.flush()
        file, self._file = self._file, None
        self._size += file.write(self._compressor.flush() + self._layout.foot)
        self._store.finish(file)
        layout = self._layout
        return Piece(self._name, self.shard, self._size, len(layout.head), len(layout.foot), self.address)

    def _put(self, data: bytes) -> None:
        assert self._file is not None
        self._size += self._file.write(self._compressor.compress(data))


def joined(pieces: Iterable[Piece]) -> int:
    """The bytes of one file made of these pieces: all lines, the first header, the last footer."""
    found = list(pieces)
    dropped = sum(piece.head for piece in found[1:]) + sum(piece.foot for piece in found[:-1])
    return sum(piece.size for piece in found) - dropped


def _quietly(call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception:
        pass  # what is left is removed with the work folder

"""One task's attempt to write files: elements become parts in the sink's work folder.

If elements have addresses (`output_names.py`), a task may write to thousands of files in turn. Each part therefore
buffers its elements in memory until there are enough of them to write, all parts of an attempt share a memory budget,
and only so many files (and compressors) are open at once. A part whose file was closed is opened again to append; where
the format or the store can't append, the part is finished instead, and another one continues it.

A part is also finished when it reaches the size or the age at which files are rolled. The next part of the same address
then belongs to another file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple

from tidegate.io import files
from tidegate.io.file_sink.format import FileFormat, FileWriter
from tidegate.io.files import Store
from tidegate.io.output_names import Address
from tidegate.sdk.connectors.sinks import Attempt, Committable
from tidegate.sdk.errors import WriteError

OPEN_AT_ONCE: Final = 64
"""The number of files that one attempt has open."""

BUFFER_BUDGET: Final = 1 << 26
"""The number of bytes that all parts of an attempt buffer together."""

_TURNS_AT_ONCE: Final = 100_000


class Piece(NamedTuple):
    """The payload of a committable: a part's path in the sink's work folder, its shard, its size in bytes and those of
    its header and footer, its address if elements have one, and the number of the file that it belongs to: pieces of
    one task and address with the same number are one file."""

    path: str
    shard: int
    size: int
    head: int
    foot: int
    address: Sequence[str] = ()
    file: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """How an attempt divides elements into files. `max_file_bytes`, `roll_interval` (seconds): None for no limit."""

    sink: str
    format: FileFormat
    shards: int
    addressed: bool
    max_file_bytes: int | None = None
    roll_interval: float | None = None

    @property
    def rolls(self) -> bool:
        """Whether a file may be finished before the attempt is prepared."""
        return self.max_file_bytes is not None or self.roll_interval is not None


class FileAttempt(Attempt[Any]):
    """Writes parts between two `prepare`s: one for each address and shard that has elements, or several in turn."""

    def __init__(
        self, layout: Layout, store: Store, work: str, task: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._layout = layout
        self._store = store
        self._task = task
        self._clock = clock
        self._name = f"{task:05d}-{os.urandom(8).hex()}"
        self._work = work
        self._new_writer = layout.format.writers(layout.sink)
        self._appends = layout.format.appends and store.appends
        self._parts: dict[tuple[Address, int], _Part] = {}
        self._open: dict[_Part, None] = {}  # by last use
        self._finished: list[Piece] = []
        self._interrupted: dict[tuple[Address, int], _File] = {}  # files whose last part had to be finished early
        self._buffered = 0
        self._begun = 0
        self._sequence = 0
        # The shard that receives an address's next element; tasks start at different ones, so that little data is not
        # all in the first shard.
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
            # Open files first: to open another one might finish one of them.
            for part in sorted(
                self._parts.values(), key=lambda part: (part not in self._open, part.address, part.shard)
            ):
                self._finish(part)
        except WriteError:
            raise
        except Exception as error:
            raise self._failed(error) from error
        self._interrupted.clear()
        if len(self._turns) > _TURNS_AT_ONCE:
            self._turns.clear()
        pieces, self._finished = self._finished, []
        prepared = [Committable((self._task, self._sequence + i), list(piece)) for i, piece in enumerate(pieces)]
        self._sequence += len(prepared)
        return prepared

    def close(self) -> None:
        for part in self._parts.values():
            _quietly(part.discard)
        written = [part.path for part in self._parts.values()] + [self._at(piece.path) for piece in self._finished]
        for path in written:
            _quietly(partial(self._store.remove, path))
        self._parts, self._open, self._finished = {}, {}, []
        _quietly(partial(self._store.remove_empty_folder, self._at(self._name)))  # not empty if output was prepared

    def _write(self, address: Address, values: Sequence[Any]) -> None:
        shards = self._layout.shards
        turn = self._turns.get(address, self._task % shards)
        for i in range(min(shards, len(values))):
            part = self._part(address, (turn + i) % shards)
            before = part.writer.buffered
            part.writer.add(values if shards == 1 else values[i::shards])
            self._buffered += part.writer.buffered - before
            if part.writer.buffered >= self._layout.format.buffer_bytes:
                self._flush(part)
            if self._layout.rolls:
                self._roll_if_due(part)
        if shards > 1:
            self._turns[address] = (turn + len(values)) % shards
        if self._buffered >= BUFFER_BUDGET:
            for part in sorted(self._parts.values(), key=lambda part: part.writer.buffered, reverse=True):
                self._flush(part)
                if self._buffered < BUFFER_BUDGET // 2:
                    break

    def _part(self, address: Address, shard: int) -> _Part:
        part = self._parts.get((address, shard))
        if part is None:
            name = f"{self._name}/{self._begun:05d}-{shard:05d}"
            number = self._begun if self._layout.rolls else 0
            file = self._interrupted.pop((address, shard), None) or _File(number, self._clock())
            self._begun += 1
            part = _Part(self._store, self._at(name), name, self._new_writer(), address, shard, file)
            self._parts[address, shard] = part
            if not self._layout.addressed:
                self._use(part)  # so that a folder that can't be written to is reported at the first element
        return part

    def _flush(self, part: _Part) -> None:
        if part.closed:  # finished since it was listed, to open another one
            return
        self._use(part)
        self._buffered -= part.writer.buffered
        part.flush()

    def _roll_if_due(self, part: _Part) -> None:
        """Finish a part whose file has reached its size or its age."""
        layout = self._layout
        if layout.max_file_bytes is not None and part.expected_size >= layout.max_file_bytes:
            self._flush(part)
            # A flush may show that the elements take less room in the file than in memory.
            if part.file.size + part.size >= layout.max_file_bytes * 0.9:
                self._finish(part)
                return
        if layout.roll_interval is not None and self._clock() - part.file.begun_at >= layout.roll_interval:
            self._finish(part)

    def _use(self, part: _Part) -> None:
        """Open a part's file, if necessary in place of the least recently used one."""
        if part in self._open:
            del self._open[part]
        elif len(self._open) >= OPEN_AT_ONCE:
            oldest = next(iter(self._open))
            if self._appends:
                del self._open[oldest]
                oldest.suspend()
            else:
                self._finish(oldest)
                self._interrupted[oldest.address, oldest.shard] = oldest.continued()
        part.open()
        self._open[part] = None

    def _finish(self, part: _Part) -> None:
        self._use(part)
        self._buffered -= part.writer.buffered
        self._finished.append(part.finish())
        del self._open[part]
        del self._parts[part.address, part.shard]

    def _at(self, name: str) -> str:
        return files.join(self._work, name)

    def _failed(self, error: Exception) -> WriteError:
        return WriteError(f"{self._layout.sink}: can't be written: {files.describe(error)}")


class _File(NamedTuple):
    """A file of which parts may be written already: its number, when it was begun, and the size of those parts."""

    number: int
    begun_at: float
    size: int = 0


class _Part:
    """A part being written. Its file is created when something is first flushed, and may be closed in between."""

    def __init__(
        self, store: Store, path: str, name: str, writer: FileWriter, address: Address, shard: int, file: _File
    ) -> None:
        self.path = path
        self.writer = writer
        self.address = address
        self.shard = shard
        self.file = file
        self.size = 0
        self.closed = False
        self._store = store
        self._name = name
        self._created = False
        self._stream: BinaryIO | None = None
        self._flushed = 0  # bytes, as they were counted in memory

    @property
    def expected_size(self) -> int:
        """The size of the part's file with all that is buffered, if that takes as much room as what was written."""
        ratio = self.size / self._flushed if self._flushed else 1.0
        return self.file.size + self.size + int(self.writer.buffered * ratio)

    def open(self) -> None:
        """Open the file; a new one begins with its header."""
        if self._stream is not None:
            return
        if self._created:
            self._stream = self._store.append(self.path)
            self.writer.resume(self._stream)
        else:
            self._stream = self._store.create(self.path)
            self._created = True
            self.writer.begin(self._stream)

    def flush(self) -> None:
        """Write what is in memory. The file is open."""
        assert self._stream is not None
        self._flushed += self.writer.buffered
        self.writer.flush()
        self.size = self._stream.tell()

    def suspend(self) -> None:
        """Close the file for a while."""
        stream, self._stream = self._stream, None
        assert stream is not None
        with stream:
            self.writer.suspend()
            self.size = stream.tell()

    def finish(self) -> Piece:
        """Write the rest, and make the file durable. The file is open."""
        assert self._stream is not None
        self.writer.finish()
        stream, self._stream = self._stream, None
        self.size = stream.tell()
        self.closed = True
        self._store.finish(stream)
        writer = self.writer
        return Piece(self._name, self.shard, self.size, writer.head, writer.foot, self.address, self.file.number)

    def continued(self) -> _File:
        """The file that this part, which is finished, belongs to."""
        return self.file._replace(size=self.file.size + self.size)

    def discard(self) -> None:
        """Close the file; it will be removed."""
        self.closed = True
        self.writer.discard()
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.close()


def _quietly(call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception:
        pass  # what is left is removed with the work folder

"""One task's attempt to write files: elements become parts in the sink's work folder.

If elements have addresses (`output_names.py`), a task may write to thousands of files in turn. Each part therefore
buffers its elements in memory until there are enough of them to write, all parts of an attempt share a memory budget,
and only so many files (and compressors) are open at once. A part whose file was closed is opened again to append; where
the format or the store can't append, the part is finished instead, and another one continues it.

A part is also finished when it reaches the size or the age at which files are rolled. The next part of the same address
then belongs to another file. How much room elements take in the file is known only when they have been flushed. So they
are added a few at a time, and in between the size is estimated by what earlier ones took.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple

from tidegate.io import files
from tidegate.io.file_sink.element_sizes import estimated_content
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
_FULL: Final = 0.9
"""A file is finished at this share of its greatest size: what is left would make a small flush of its own."""
_STEP: Final = 8
"""At most one such part of a file's greatest size is added at once,"""
_LOOK_AHEAD: Final = 512
"""and at most this many elements."""


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
        self,
        layout: Layout,
        open_store: Callable[[], Store],
        work: str,
        task: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`open_store` opens the store with the credentials of the moment: at first, and again for the first file after
        each `prepare`."""
        self._layout = layout
        self._open_store = open_store
        self._store = open_store()
        self._has_prepared = False
        """Whether the store was opened before the last `prepare`."""
        self._task = task
        self._clock = clock
        self._name = f"{task:05d}-{os.urandom(8).hex()}"
        self._work = work
        self._new_writer = layout.format.writers(layout.sink)
        self._appends = layout.format.appends and self._store.appends
        self._parts: dict[tuple[Address, int], _Part] = {}
        self._open: dict[_Part, None] = {}  # by last use
        self._finished: list[Piece] = []
        self._interrupted: dict[tuple[Address, int], _File] = {}  # files whose last part had to be finished early
        self._buffered = 0
        # That of the part that was flushed last, since elements are alike. The first guess is high: a first flush comes
        # early, and shows it.
        self._ratio = float(_STEP)
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
        self._has_prepared = True
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
        if self._layout.rolls:
            self._write_and_roll(address, values)
        else:
            self._write_in_turn(address, values)
        if self._buffered >= BUFFER_BUDGET:
            for part in sorted(self._parts.values(), key=lambda part: part.writer.buffered, reverse=True):
                self._flush(part)
                if self._buffered < BUFFER_BUDGET // 2:
                    break

    def _write_in_turn(self, address: Address, values: Sequence[Any]) -> None:
        """Distribute elements over the shards of an address."""
        shards = self._layout.shards
        turn = self._turns.get(address, self._task % shards)
        for i in range(min(shards, len(values))):
            self._add(self._part(address, (turn + i) % shards), values if shards == 1 else values[i::shards])
        if shards > 1:
            self._turns[address] = (turn + len(values)) % shards

    def _write_and_roll(self, address: Address, values: Sequence[Any]) -> None:
        """Write elements to an address's only shard, and begin a new file whenever one is old or full."""
        part = self._parts.get((address, 0))
        if part is not None and self._is_old(part.file):
            self._finish(part)
        start = 0
        while start < len(values):
            part = self._part(address, 0)
            stop = start + self._fitting(part, values, start)
            self._add(part, values[start:stop])
            if self._layout.max_file_bytes is not None:
                part.unflushed += estimated_content(values[start:stop])
                self._finish_if_full(part)
            start = stop

    def _fitting(self, part: _Part, values: Sequence[Any], start: int) -> int:
        """How many of the values from `start` on may be added to a part before its size has to be looked at."""
        greatest = self._layout.max_file_bytes
        if greatest is None:
            return len(values) - start
        room = (greatest - part.expected_size) / max(part.ratio, 0.01)
        room = min(max(room, greatest / _STEP**2), greatest / _STEP)
        near = values[start : start + _LOOK_AHEAD]
        return max(1, min(len(near), int(room * len(near) / max(1, estimated_content(near)))))

    def _add(self, part: _Part, values: Sequence[Any]) -> None:
        before = part.writer.buffered
        part.writer.add(values)
        self._buffered += part.writer.buffered - before
        if part.writer.buffered >= self._layout.format.buffer_bytes:
            self._flush(part)

    def _part(self, address: Address, shard: int) -> _Part:
        part = self._parts.get((address, shard))
        if part is None:
            name = f"{self._name}/{self._begun:05d}-{shard:05d}"
            number = self._begun if self._layout.rolls else 0
            file = self._interrupted.pop((address, shard), None)
            if file is None or self._is_old(file):
                file = _File(number, self._clock())
            self._begun += 1
            if self._has_prepared:
                self._store, self._has_prepared = self._open_store(), False
            part = _Part(self._store, self._at(name), name, self._new_writer(), address, shard, file, self._ratio)
            self._parts[address, shard] = part
            if not self._layout.addressed:
                self._use(part)  # report a folder that is not writable at the first element
        return part

    def _flush(self, part: _Part) -> None:
        if part.closed:  # the caller listed it, then another part needed its place
            return
        self._use(part)
        self._buffered -= part.writer.buffered
        part.flush()
        self._ratio = part.ratio

    def _is_old(self, file: _File) -> bool:
        """Whether a file is to have no more elements because of its age."""
        interval = self._layout.roll_interval
        return interval is not None and self._clock() - file.begun_at >= interval

    def _finish_if_full(self, part: _Part) -> None:
        """Finish a part whose file has reached its size."""
        greatest = self._layout.max_file_bytes
        assert greatest is not None
        if part.expected_size >= greatest:
            self._flush(part)
            # A flush may show that the elements take less room in the file than was expected.
            if part.file.size + part.size >= greatest * _FULL:
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
        self,
        store: Store,
        path: str,
        name: str,
        writer: FileWriter,
        address: Address,
        shard: int,
        file: _File,
        ratio: float,
    ) -> None:
        self.path = path
        self.writer = writer
        self.address = address
        self.shard = shard
        self.file = file
        self.ratio = ratio
        """How many bytes of the file a byte of elements becomes, as `estimated_content` counts them."""
        self.unflushed = 0
        """The size of the elements that are not in the file, by the same count."""
        self.size = 0
        self.closed = False
        self._store = store
        self._name = name
        self._created = False
        self._stream: BinaryIO | None = None
        self._flushed = 0  # by the same count

    @property
    def expected_size(self) -> int:
        """The size of the part's file with all that is buffered, if that takes as much room as what was written."""
        return self.file.size + self.size + int(self.unflushed * self.ratio)

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
        """Write the elements in memory. The file is open."""
        assert self._stream is not None
        self.writer.flush()
        self._flushed, self.unflushed = self._flushed + self.unflushed, 0
        self.size = self._stream.tell()
        if self._flushed:
            self.ratio = self.size / self._flushed

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
        pass  # leftovers are removed with the work folder

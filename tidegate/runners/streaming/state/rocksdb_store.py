"""The RocksDB on the local disk that stores the spilled keys of a task, with an index of their wakeups.

A record is stored under the operator's number, `s` and the key. Its value begins with a byte whose bits show which
wakeups follow, then the wakeups and the state. Each wakeup has an index entry: the operator's number, the letter of the
kind, the instant and the key. Instants are shifted so that their bytes sort in order of time.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tidegate.runners.engine.operator import Wakeups
from tidegate.runners.engine.state.tiered import Record, Which
from tidegate.sdk import moved
from tidegate.sdk.data.keys import key_bytes
from tidegate.sdk.errors import RunError, UnsupportedError
from tidegate.sdk.time import MAX_MICROS

_SHIFT: Final = 1 << 63
_INSTANT: Final = struct.Struct(">Q")
OPERATOR_NUMBER: Final = struct.Struct(">H")
_STATE: Final = b"s"
_INDEXES: Final[dict[Which, bytes]] = {"event": b"e", "clock": b"c", "hold": b"h"}


class RocksCold:
    """Stores the spilled keys of one operator (see `ColdStore`), in a RocksDB that all operators of the task share."""

    def __init__(self, db: Any, number: int, new_batch: Callable[[], Any]) -> None:
        self._db = db
        self._head = OPERATOR_NUMBER.pack(number)
        self._batch = new_batch
        self._first: dict[Which, tuple[int | None] | None] = dict.fromkeys(_INDEXES)
        """The earliest wakeup of each kind, in a tuple; None: to be looked up."""

    def load(self, keys: Sequence[Any]) -> list[bytes | None]:
        if not keys:
            return []
        encoded = [key_bytes(key) for key in keys]
        prefix = self._head + _STATE
        found = self._db.get([prefix + key for key in encoded])
        batch = self._batch()
        for key, data in zip(encoded, found, strict=True):
            if data is not None and data[:1] != b"\0":
                for index in self._index_keys(key, data):
                    batch.delete(index)
        if not batch.is_empty():
            self._write(batch)
        return [None if data is None else data[_skip(data) :] for data in found]

    def save(self, records: Iterable[Record]) -> None:
        batch = self._batch()
        prefix = self._head + _STATE
        for key, data, wakeups in records:
            encoded = key_bytes(key)
            if data is None:
                batch.delete(prefix + encoded)
                continue
            stored = _packed(wakeups) + data
            batch.put(prefix + encoded, stored)
            for index in self._index_keys(encoded, stored):
                batch.put(index, b"")
        if not batch.is_empty():
            self._write(batch)

    def due(self, which: Which, until: int, limit: int) -> list[Any]:
        first = self.first(which)
        if first is None or first > until:
            return []
        prefix = self._head + _INDEXES[which]
        past = prefix + (_INSTANT.pack(until + _SHIFT + 1) if until < MAX_MICROS else b"\xff" * (_INSTANT.size + 256))
        encoded: list[bytes] = []
        for index in self._db.keys(from_key=prefix):
            if index >= past or len(encoded) == limit:
                break
            encoded.append(self._head + _STATE + index[len(prefix) + _INSTANT.size :])
        return [pickle.loads(data[_skip(data) :])[0] for data in self._db.get(encoded)]

    def first(self, which: Which) -> int | None:
        known = self._first[which]
        if known is None:
            prefix = self._head + _INDEXES[which]
            index = next(iter(self._db.keys(from_key=prefix)), b"")
            at = None
            if index.startswith(prefix):
                at = _INSTANT.unpack_from(index, len(prefix))[0] - _SHIFT
            known = self._first[which] = (at,)
        return known[0]

    def scan(self) -> Iterator[tuple[Any, bytes]]:
        return records(self._db, self._head)

    def _write(self, batch: Any) -> None:
        try:
            self._db.write(batch)
        except Exception as error:  # rocksdict raises no other class; the message names the file
            raise RunError(f"keys can't be written to disk: {error}; see --temp_dir") from error
        self._first = dict.fromkeys(_INDEXES)

    def _index_keys(self, key: bytes, stored: bytes) -> Iterator[bytes]:
        at = 1
        for bit, index in enumerate(_INDEXES.values()):
            if stored[0] >> bit & 1:
                yield self._head + index + stored[at : at + _INSTANT.size] + key
                at += _INSTANT.size


_LATEST: Final[dict[Which, int]] = {"event": MAX_MICROS, "clock": MAX_MICROS, "hold": MAX_MICROS - 1}
"""The latest instant of each kind that is indexed; later ones mean that there is no wakeup."""


def _packed(wakeups: Wakeups | None) -> bytes:
    """A byte whose bits show which wakeups there are, and these wakeups."""
    bits, packed = 0, b""
    if wakeups is not None:
        for bit, (which, at) in enumerate(zip(_INDEXES, wakeups, strict=True)):
            if at <= _LATEST[which]:
                bits |= 1 << bit
                packed += _INSTANT.pack(at + _SHIFT)
    return bytes([bits]) + packed


def _skip(stored: bytes) -> int:
    """The offset of the state in a stored value."""
    return 1 + _INSTANT.size * stored[0].bit_count()


def records(db: Any, head: bytes) -> Iterator[tuple[Any, bytes]]:
    """Every key of an operator with its state. The store may have been written by an earlier version."""
    prefix = head + _STATE
    for name, stored in db.items(from_key=prefix):
        if not name.startswith(prefix):
            break
        data = stored[_skip(stored) :]
        yield moved.loads(data)[0], data


def rocksdb() -> Any:
    """The module `rocksdict`. UnsupportedError, which says what to install, if it is missing."""
    try:
        import rocksdict
    except ImportError:
        raise UnsupportedError(
            "--state_backend rocksdb needs the package rocksdict: pip install 'tidegate[rocksdb]'"
        ) from None
    return rocksdict


def open_store(folder: Path) -> Any:
    """Open the RocksDB in a folder, or create it. RunError if that fails."""
    rocks = rocksdb()
    options = rocks.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_max_background_jobs(1)
    options.set_write_buffer_size(32 << 20)
    options.set_max_write_buffer_number(2)
    table = rocks.BlockBasedOptions()
    table.set_bloom_filter(10, False)
    table.set_block_cache(rocks.Cache(32 << 20))
    options.set_block_based_table_factory(table)
    try:
        db = rocks.Rdict(str(folder), options)
    except Exception as error:  # rocksdict raises no other class
        raise RunError(f"no RocksDB can be opened in {folder}: {error}; see --temp_dir") from error
    writing = rocks.WriteOptions()
    writing.disable_wal = True
    db.set_write_options(writing)
    return db

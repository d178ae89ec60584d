"""State in RocksDB, with what is in use in memory: for keyed state that does not fit there.

The store holds the keys that sleep. A checkpoint is a hard-link checkpoint of it, of which only files that are new are
taken anywhere, and over it the chain of what has changed in memory, as the memory backend writes it; that chain begins
anew once all that was in it has been written to the store, a little with each block. Never a fork: RocksDB has threads.
"""

from __future__ import annotations

import pickle
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tidegate.runners.engine.operator import Operator
from tidegate.runners.engine.paging import LOT, Paged, Record, Which, by_keys
from tidegate.runners.engine.rescale import Keeps, overlaid, part, rescaled
from tidegate.runners.engine.snapshots import ByKey, Instants, KeyedState, Touched
from tidegate.runners.engine.waiting import SidesSnapshot
from tidegate.runners.streaming.backends import Capture, Changes, Files, InSlices, Keys, Operators, looked_up
from tidegate.runners.streaming.statefiles import (
    STORED,
    Read,
    StateFile,
    checked,
    frames,
    of_store,
    opened,
    read_states,
    snapshots_of,
)
from tidegate.sdk.errors import UnsupportedError
from tidegate.sdk.keys import key_bytes
from tidegate.sdk.time import MAX_MICROS

_SHIFT: Final = 1 << 63
_INSTANT: Final = struct.Struct(">Q")
_NUMBER: Final = struct.Struct(">H")
_STATE: Final = b"s"
_INDEXES: Final[dict[Which, bytes]] = {"event": b"e", "clock": b"c", "hold": b"h"}


class RocksCold:
    """The keys of one operator, in a RocksDB that it shares with others."""

    def __init__(self, db: Any, number: int, new_batch: Callable[[], Any]) -> None:
        self._db = db
        self._head = _NUMBER.pack(number)
        self._batch = new_batch
        self._first: dict[Which, tuple[int | None] | None] = dict.fromkeys(_INDEXES)

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
            self._db.write(batch)
            self._first = dict.fromkeys(_INDEXES)
        return [None if data is None else data[_skip(data) :] for data in found]

    def save(self, records: Iterable[Record]) -> None:
        batch = self._batch()
        prefix = self._head + _STATE
        for key, data, instants in records:
            encoded = key_bytes(key)
            if data is None:
                batch.delete(prefix + encoded)
                continue
            head = _instants_packed(instants)
            stored = head + data
            batch.put(prefix + encoded, stored)
            for index in self._index_keys(encoded, stored):
                batch.put(index, b"")
        if not batch.is_empty():
            self._db.write(batch)
            self._first = dict.fromkeys(_INDEXES)

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

    def _index_keys(self, key: bytes, stored: bytes) -> Iterator[bytes]:
        at = 1
        for bit, index in enumerate(_INDEXES.values()):
            if stored[0] >> bit & 1:
                yield self._head + index + stored[at : at + _INSTANT.size] + key
                at += _INSTANT.size


_LAST: Final[dict[Which, int]] = {"event": MAX_MICROS, "clock": MAX_MICROS, "hold": MAX_MICROS - 1}


def _instants_packed(instants: Instants | None) -> bytes:
    """Which instants there are, and these."""
    bits, packed = 0, b""
    if instants is not None:
        for bit, (which, at) in enumerate(zip(_INDEXES, instants, strict=True)):
            if at <= _LAST[which]:
                bits |= 1 << bit
                packed += _INSTANT.pack(at + _SHIFT)
    return bytes([bits]) + packed


def _skip(stored: bytes) -> int:
    """Where in what is stored the state begins."""
    return 1 + _INSTANT.size * stored[0].bit_count()


def records(db: Any, head: bytes) -> Iterator[tuple[Any, bytes]]:
    """Every key of an operator with its state."""
    prefix = head + _STATE
    for name, stored in db.items(from_key=prefix):
        if not name.startswith(prefix):
            break
        data = stored[_skip(stored) :]
        yield pickle.loads(data)[0], data


class RocksBackend:
    """State of a task in RocksDB. `page` goes into the operators' Context; `budget` (bytes) is for keys in memory."""

    def __init__(
        self, operators: Operators, files: Files, directory: Callable[[], Path], *, budget: int, full_every: int
    ) -> None:
        self._rocks = rocksdb()
        self._operators = operators
        self._files = files
        self._folder = directory()
        self._budget = budget
        self._db: Any = None
        self._paged: dict[str, Paged] = {}
        self._taken: dict[str, StateFile] = {}
        self._changes = Changes(1 << 30)
        self._most = full_every
        self._chain = 0
        self._since: dict[str, Touched] | None = None
        """What has been touched since all that is stale began to be stored; None: it has not."""

    @property
    def paged(self) -> Callable[[str, ByKey], Operator]:
        """Every keyed operator is paged."""
        return self.page

    def page(self, label: str, operator: ByKey) -> Paged:
        """The operator with its keys in this store."""
        if self._db is None:
            self._db = open_store(self._folder / "db")
        cold = RocksCold(self._db, len(self._paged), self._new_batch)
        self._paged[label] = Paged(operator, cold, self._budget)
        self._db.put(_NAMES, pickle.dumps(list(self._paged)))
        return self._paged[label]

    def close(self) -> None:
        """Close the store, and remove it: what is to stay is in checkpoints."""
        if self._db is not None:
            self._db.close()
            self._db = None
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- out

    def capture(self, checkpoint: int, name: str, *, whole: bool) -> Capture:
        operators = self._operators()
        if whole:
            return InSlices(self._everything(operators), name, self._files)
        keys, base = self._to_write(checkpoint, operators)
        wanted = looked_up(keys)
        for paged in self._paged.values():
            paged.asleep_too = False
        snapshots = list(snapshots_of(operators, wanted))
        for paged in self._paged.values():
            paged.asleep_too = True
        for label, snapshot in snapshots:
            if label in self._paged and wanted[label] is not None:
                self._paged[label].forget_emptied(wanted[label], _keyed(snapshot))
        own = InSlices(frames(snapshots, list(operators)), name, self._files)
        return _Linked(own, checkpoint, base, self._changes, self._links(checkpoint, name))

    def completed(self, checkpoint: int) -> None:
        self._changes.completed(checkpoint)

    def _to_write(self, checkpoint: int, operators: Mapping[str, Operator]) -> tuple[Keys, tuple[StateFile, ...]]:
        """The keys to write, and the files these build on: none, once the store has all that was in them."""
        keys, base = self._changes.since(checkpoint, operators, whole=False)
        if self._since is not None:
            for label, runs in self._changes.of(checkpoint).items():
                if runs is None:
                    self._since = None
                    break
                self._since.setdefault(label, []).extend(runs)
        if self._since is not None and not any(paged.writing for paged in self._paged.values()):
            since, self._since = self._since, None
            self._changes.anew()
            return {label: since.get(label, []) if label in self._paged else None for label in operators}, ()
        if self._since is None and len(base) >= self._most:
            self._since = {}
            for paged in self._paged.values():
                paged.writing = paged.stale()
        return keys, base

    def _links(self, checkpoint: int, name: str) -> tuple[StateFile, ...]:
        """A hard-link checkpoint of the store, of which the files that are new are taken to the others."""
        if self._db is None:
            return ()
        folder = self._folder / f"checkpoint-{checkpoint}"
        shutil.rmtree(folder, ignore_errors=True)
        self._rocks.Checkpoint(self._db).create_checkpoint(str(folder))
        files, taken = [], {}
        for path in sorted(folder.iterdir()):
            file = self._taken.get(path.name)
            if file is None:
                file = self._files.link(f"{name}{STORED}{path.name}", path)
            if path.suffix == ".sst":
                taken[path.name] = file
            files.append(file)
        self._taken = taken
        shutil.rmtree(folder)
        return tuple(files)

    def _everything(self, operators: Mapping[str, Operator]) -> Iterator[tuple[bytes, int]]:
        """The frames of a savepoint: what is in memory is copied now; the store is read later, as it is now."""
        for paged in self._paged.values():
            paged.asleep_too = False
        snapshots = list(snapshots_of(operators, dict.fromkeys(operators)))
        for paged in self._paged.values():
            paged.asleep_too = True
        view = self._db.snapshot() if self._db is not None else None
        awake = {label: paged.awake() for label, paged in self._paged.items()}

        def parts() -> Iterator[tuple[str, Any]]:
            for label, snapshot in snapshots:
                yield label, snapshot
                if label not in self._paged or view is None:
                    continue
                number = list(self._paged).index(label)
                asleep = (item for item in records(view, _NUMBER.pack(number)) if item[0] not in awake[label])
                empty = replace(_keyed(snapshot), tables={}, keys=(), windows=None)
                for lot in _lots(asleep, empty):
                    yield label, _within(snapshot, lot)

        return frames(parts(), list(operators))

    # -- in

    def restore(self, parts: Sequence[Sequence[StateFile]], read: Read, keeps: Keeps | None) -> None:
        found: dict[str, list[Any]] = {}
        for number, files in enumerate(files for files in parts if files):
            own = [file for file in files if of_store(file)]
            chain = [file for file in files if not of_store(file)]
            states = read_states(chain, read) if own or len(chain) > 1 else self._streamed(chain[0], read, keeps)
            if own:
                self._from_store(own, read, keeps, states, self._folder / f"restored-{number}")
            for label, state in states.items():
                found.setdefault(label, []).append(state)
        for label, operator in self._operators().items():
            states_of = found.get(label, [])
            state = rescaled(states_of, keeps) if keeps is not None else next(iter(states_of), None)
            if state is not None:
                operator.restore(state)

    def _streamed(self, file: StateFile, read: Read, keeps: Keeps | None) -> dict[str, Any]:
        """What a file that has everything holds; but what is by key goes to the store, piece by piece."""
        states: dict[str, Any] = {}
        _, pieces = opened(checked(file, read), file[0])
        for label, piece in pieces:
            if label in states and label in self._paged:
                keyed = _keyed(piece)
                self._paged[label].restore(keyed if keeps is None else part(keyed, keeps))
            else:
                states[label] = overlaid(states.get(label), piece)
        return states

    def _from_store(
        self, files: Sequence[StateFile], read: Read, keeps: Keeps | None, awake: Mapping[str, Any], folder: Path
    ) -> None:
        """The keys that slept, but for those that have been awake since."""
        db = _unpacked(files, read, folder)
        labels = pickle.loads(db.get(_NAMES))
        for number, label in enumerate(labels):
            if label not in self._paged or label not in awake:
                continue
            hot = _keyed(awake[label])
            known = by_keys(hot)
            asleep = (
                item
                for item in records(db, _NUMBER.pack(number))
                if item[0] not in known and (keeps is None or keeps(item[0]))
            )
            for lot in _lots(asleep, replace(hot, tables={}, keys=None, windows=None)):
                self._paged[label].restore(lot)
        db.close()
        shutil.rmtree(folder)

    # -- RocksDB

    def _new_batch(self) -> Any:
        return self._rocks.WriteBatch(raw_mode=True)


def rocksdb() -> Any:
    """The package; UnsupportedError, with what to install, where it is missing."""
    try:
        import rocksdict
    except ImportError:
        raise UnsupportedError(
            "--state_backend rocksdb needs the package rocksdict: pip install 'tidegate[rocksdb]'"
        ) from None
    return rocksdict


def read_stored(files: Sequence[StateFile], read: Read) -> dict[str, Any]:
    """The snapshots, by name, that a capture of this backend has in its files. As `read_states` raises."""
    states = read_states([file for file in files if not of_store(file)], read)
    with TemporaryDirectory() as folder:
        db = _unpacked([file for file in files if of_store(file)], read, Path(folder) / "db")
        for number, label in enumerate(pickle.loads(db.get(_NAMES))):
            if label in states:
                awake = _keyed(states[label])
                known = by_keys(awake)
                asleep = (item for item in records(db, _NUMBER.pack(number)) if item[0] not in known)
                for lot in _lots(asleep, replace(awake, tables={}, keys=(), windows=None)):
                    states[label] = overlaid(states[label], _within(states[label], lot))
        db.close()
    return states


def _unpacked(files: Sequence[StateFile], read: Read, folder: Path) -> Any:
    """A store from the files of its checkpoint."""
    folder.mkdir()
    for file in files:
        (folder / file[0].rpartition(STORED)[2]).write_bytes(checked(file, read))
    return open_store(folder)


def open_store(folder: Path) -> Any:
    """A RocksDB in a folder."""
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
    db = rocks.Rdict(str(folder), options)
    writing = rocks.WriteOptions()
    writing.disable_wal = True
    db.set_write_options(writing)
    return db


_NAMES: Final = b"\xff\xffnames"


class _Linked:
    """A capture with the files of the store it goes with."""

    def __init__(
        self, own: Capture, checkpoint: int, base: tuple[StateFile, ...], changes: Changes, links: tuple[StateFile, ...]
    ) -> None:
        self._own = own
        self._checkpoint = checkpoint
        self._base = base
        self._changes = changes
        self._links = links

    def poll(self) -> tuple[StateFile, ...] | None:
        files = self._own.poll()
        if files is None:
            return None
        chain = (*files, *self._base)
        self._changes.stored(self._checkpoint, chain)
        return (*chain, *self._links)

    def abandon(self) -> None:
        self._own.abandon()


def _keyed(snapshot: Any) -> KeyedState:
    state = snapshot.inner if isinstance(snapshot, SidesSnapshot) else snapshot
    assert isinstance(state, KeyedState)
    return state


def _within(snapshot: Any, keyed: KeyedState) -> Any:
    """A piece of a snapshot of this kind."""
    if isinstance(snapshot, SidesSnapshot):
        return replace(snapshot, waiting=None, sides={}, inner=keyed)
    return keyed


def _lots(asleep: Iterable[tuple[Any, bytes]], empty: KeyedState) -> Iterator[KeyedState]:
    """Records as snapshots of some keys each."""
    items = iter(asleep)
    while lot := list(islice(items, LOT)):
        tables: dict[str, dict[Any, dict[Any, Any]]] = {}
        for key, data in lot:
            for name, window, stored in pickle.loads(data)[1]:
                tables.setdefault(name, {}).setdefault(window, {})[key] = stored
        yield replace(empty, tables=tables)

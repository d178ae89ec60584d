"""State in RocksDB, with what is in use in memory: for keyed state that does not fit there.

The store holds the keys that sleep. A checkpoint is a hard-link checkpoint of it, of which only files that are new are
taken anywhere, and over it the chain of what has changed in memory, of which every so often a file has everything that
is there. These files are written a little at a time between events. Never a fork: RocksDB has threads.
"""

from __future__ import annotations

import contextlib
import pickle
import shutil
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tidegate.runners.engine.operator import KeyedOperator, Operator, Wakeups
from tidegate.runners.engine.rescale import Keeps, overlaid, part, rescaled
from tidegate.runners.engine.side_inputs.operator import Part, SidesSnapshot
from tidegate.runners.engine.state.keyed_state import KeyedState
from tidegate.runners.engine.state.tiered import AWAKE, BATCH, Record, Taking, TieredOperator, Which, known_keys
from tidegate.runners.streaming.state.backend import Capture, Operators
from tidegate.runners.streaming.state.files import (
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
from tidegate.runners.streaming.state.incremental import IncrementalChain
from tidegate.runners.streaming.state.uploads import Files, Stored, Storing
from tidegate.runners.streaming.state.writers import EmptyCapture, IncrementalWriter, Keys, looked_up
from tidegate.sdk import moved
from tidegate.sdk.data.keys import key_bytes
from tidegate.sdk.errors import RunError, UnsupportedError
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
            self._write(batch)
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
        except Exception as error:  # it has no other kind, and names the file
            raise RunError(f"keys can't be put on disk: {error}; see --temp_dir") from error
        self._first = dict.fromkeys(_INDEXES)

    def _index_keys(self, key: bytes, stored: bytes) -> Iterator[bytes]:
        at = 1
        for bit, index in enumerate(_INDEXES.values()):
            if stored[0] >> bit & 1:
                yield self._head + index + stored[at : at + _INSTANT.size] + key
                at += _INSTANT.size


_LAST: Final[dict[Which, int]] = {"event": MAX_MICROS, "clock": MAX_MICROS, "hold": MAX_MICROS - 1}


def _instants_packed(instants: Wakeups | None) -> bytes:
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
    """Every key of an operator with its state. The store may be one that an earlier version has written."""
    prefix = head + _STATE
    for name, stored in db.items(from_key=prefix):
        if not name.startswith(prefix):
            break
        data = stored[_skip(stored) :]
        yield moved.loads(data)[0], data


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
        self._paged: dict[str, TieredOperator] = {}
        self._taken: dict[str, StateFile] = {}
        self._linked: tuple[int, tuple[StateFile, ...]] = (-1, ())
        """How much had been written to the store when it was last linked, and the files of it."""
        self._changes = IncrementalChain(full_every)

    @property
    def paged(self) -> Callable[[str, KeyedOperator], Operator]:
        """Every keyed operator is paged."""
        return self.page

    def page(self, label: str, operator: KeyedOperator) -> TieredOperator:
        """The operator with its keys in this store."""
        if self._db is None:
            self._db = open_store(self._folder / "db")
        cold = RocksCold(self._db, len(self._paged), self._new_batch)
        self._paged[label] = TieredOperator(operator, cold, self._budget)
        self._name_operators()
        return self._paged[label]

    def close(self) -> None:
        """Close the store, and remove it: what is to stay is in checkpoints."""
        if self._db is not None:
            with contextlib.suppress(Exception):  # one that has failed says so again
                self._db.close()
            self._db = None
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- out

    def capture(self, checkpoint: int, name: str, *, whole: bool) -> Capture:
        operators = self._operators()
        if whole:
            asleep = None if self._db is None else _Asleep(self._hard_links(checkpoint), self._paged)
            return self._taking(name, operators, dict.fromkeys(operators), asleep)
        keys, base = self._changes.since(checkpoint, operators, whole=False)
        own = self._taking(name, operators, keys)
        try:
            links = self._links(checkpoint, name)
        except (OSError, RunError):
            own.abandon()
            raise
        return _Linked(own, checkpoint, base, self._changes, links)

    def completed(self, checkpoint: int) -> None:
        self._changes.completed(checkpoint)

    def _links(self, checkpoint: int, name: str) -> _Links:
        """A hard-link checkpoint of the store, of which the files that are new are taken to the others."""
        written = -1 if self._db is None else self._db.latest_sequence_number()
        if written == self._linked[0]:
            return _Links(None, {file[0]: Stored(file) for file in self._linked[1]}, lambda files, whole: None)
        folder = self._hard_links(checkpoint)
        storing: dict[str, Storing] = {}
        links = _Links(folder, storing, partial(self._have_taken, written))
        try:
            for path in sorted(folder.iterdir()):
                file = self._taken.get(path.name)
                known = None if file is None else Stored(file)
                storing[path.name] = known or self._files.link(f"{name}{STORED}{path.name}", path)
            links.poll()
        except OSError:
            links.abandon()
            raise
        return links

    def _have_taken(self, written: int, files: Mapping[str, StateFile], whole: bool) -> None:
        """Files of a hard-link checkpoint are stored: all of them (`whole`), or those before it was given up."""
        tables = {name: file for name, file in files.items() if name.endswith(".sst")}
        if whole:
            self._taken, self._linked = tables, (written, tuple(files.values()))
        else:
            self._taken = self._taken | tables

    def _taking(
        self,
        name: str,
        operators: Mapping[str, Operator],
        keys: Keys,
        asleep: _Asleep | None = None,
    ) -> Capture:
        """A file of what is in memory now of these keys. What is by key is looked up later, as it is now; then
        follows, of each that is paged, what is `asleep`."""
        heads: list[tuple[str, Any]] = []
        takings: dict[str, Taking] = {}

        def give_up() -> None:
            for taking in takings.values():
                taking.give_up()
            if asleep is not None:
                asleep.close()

        try:
            for label, operator in operators.items():
                runs, paged = keys[label], self._paged.get(label)
                if paged is None:
                    heads += snapshots_of({label: operator}, looked_up({label: runs}))
                    continue
                parts = None if runs is None else [key for run in runs if _of_parts(run) for key in run]
                with paged.without_keys():
                    heads.append((label, operator.snapshot(parts)))
                by_key = None if runs is None else [run for run in runs if not _of_parts(run)]
                takings[label] = paged.begin_taking(by_key)
        except BaseException:
            give_up()
            raise
        if not heads and asleep is None:
            return EmptyCapture()

        def snapshots() -> Iterator[tuple[str, Any] | None]:
            for label, head in heads:
                yield label, head
                if label not in takings:
                    continue
                keyed = _keyed(head)
                for taken in takings[label].pieces():
                    if taken is None:
                        yield None
                        continue
                    if asleep is not None:
                        taken.tables.pop(AWAKE, None)
                    own = replace(keyed, tables=taken.tables, keys=taken.keys, windows=None)
                    yield label, _within(head, own)
                for lot in asleep.pieces(label, head) if asleep is not None else ():
                    yield label, lot
            if asleep is not None:
                asleep.close()

        return IncrementalWriter(frames(snapshots(), list(operators)), name, self._files, give_up)

    def _hard_links(self, checkpoint: int) -> Path:
        """A folder with the store as it is now. OSError if there is no room for it; RunError if the store has failed
        with that: from then on it takes nothing, also when there is room again, so that a new one has to be made."""
        folder = self._folder / f"checkpoint-{checkpoint}"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            self._rocks.Checkpoint(self._db).create_checkpoint(str(folder))
        except Exception as error:  # it has no other kind, and names the file
            shutil.rmtree(folder, ignore_errors=True)
            try:
                self._name_operators()
            except Exception:
                raise RunError(f"the store in {self._folder} has failed: {error}; see --temp_dir") from error
            raise OSError(f"the store can't be linked in {folder}: {error}; see --temp_dir") from error
        return folder

    def _name_operators(self) -> None:
        """Note in the store which operators it is of, in their order."""
        self._db.put(_NAMES, pickle.dumps(list(self._paged)))

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
            known = known_keys(hot)
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
                known = known_keys(awake)
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
    """A RocksDB in a folder. RunError if there can be none."""
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
    except Exception as error:  # it has no other kind
        raise RunError(f"no RocksDB can be opened in {folder}: {error}; see --temp_dir") from error
    writing = rocks.WriteOptions()
    writing.disable_wal = True
    db.set_write_options(writing)
    return db


_NAMES: Final = b"\xff\xffnames"


class _Asleep:
    """What slept at an instant, of each operator: hard links to the store as it was, opened when first read. (An
    iterator over what RocksDB calls a snapshot would not do: rocksdict's reads what has been written since, too.)
    """

    def __init__(self, folder: Path, paged: Mapping[str, TieredOperator]) -> None:
        self._folder = folder
        self._awake = {label: each.awake() for label, each in paged.items()}
        self._db: Any = None

    def pieces(self, label: str, head: Any) -> Iterator[Any]:
        """Of one operator, as pieces of its snapshot, of which `head` is the first."""
        if self._db is None:
            self._db = open_store(self._folder)
        awake = self._awake[label]
        number = list(self._awake).index(label)
        found = (item for item in records(self._db, _NUMBER.pack(number)) if item[0] not in awake)
        for lot in _lots(found, replace(_keyed(head), tables={}, keys=(), windows=None)):
            yield _within(head, lot)

    def close(self) -> None:
        """Nothing more is read."""
        if self._db is not None:
            self._db.close()
            self._db = None
        shutil.rmtree(self._folder, ignore_errors=True)


class _Links:
    """The files of a hard-link checkpoint on their way to where others are. `folder`: where they are until then;
    `taken` is told which have been stored, and whether that is all."""

    def __init__(
        self,
        folder: Path | None,
        storing: Mapping[str, Storing],
        taken: Callable[[Mapping[str, StateFile], bool], None],
    ) -> None:
        self._folder = folder
        self._storing = storing
        self._taken = taken
        self._files: tuple[StateFile, ...] | None = None

    def poll(self) -> tuple[StateFile, ...] | None:
        """The files, once all are stored. OSError if one can't be."""
        if self._files is None:
            found = {name: file for name, each in self._storing.items() if (file := each.poll()) is not None}
            if len(found) < len(self._storing):
                return None
            self._files = tuple(found.values())
            self._taken(found, True)
            self._clear_up()
        return self._files

    def abandon(self) -> None:
        """They are not wanted any more; those that are stored by now serve the next checkpoint."""
        if self._files is not None:
            return
        found = {}
        for name, each in self._storing.items():
            each.abandon()
            with contextlib.suppress(OSError):
                if (file := each.poll()) is not None:
                    found[name] = file
        self._taken(found, False)
        self._clear_up()

    def _clear_up(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


class _Linked:
    """A capture with the files of the store it goes with."""

    def __init__(
        self, own: Capture, checkpoint: int, base: tuple[StateFile, ...], changes: IncrementalChain, links: _Links
    ) -> None:
        self._own = own
        self._checkpoint = checkpoint
        self._base = base
        self._changes = changes
        self._links = links
        self._files: tuple[StateFile, ...] | None = None

    def poll(self) -> tuple[StateFile, ...] | None:
        if self._files is None:
            self._files = self._own.poll()
        links = self._links.poll()
        if self._files is None or links is None:
            return None
        chain = (*self._files, *self._base)
        self._changes.stored(self._checkpoint, chain)
        return (*chain, *links)

    @property
    def uploading(self) -> bool:
        return self._files is not None or self._own.uploading

    def abandon(self) -> None:
        self._own.abandon()
        self._links.abandon()


def _of_parts(run: Collection[Any]) -> bool:
    """Whether what was touched here are parts of a step's state that are not by key."""
    return type(next(iter(run), None)) is Part


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
    while lot := list(islice(items, BATCH)):
        tables: dict[str, dict[Any, dict[Any, Any]]] = {}
        for key, data in lot:
            for name, window, stored in moved.loads(data)[1]:
                tables.setdefault(name, {}).setdefault(window, {})[key] = stored
        yield replace(empty, tables=tables)

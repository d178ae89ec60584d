"""State in RocksDB, with what is in use in memory: for keyed state that does not fit there.

The store holds the keys that sleep. A checkpoint is a hard-link checkpoint of it, of which only files that are new are
taken anywhere, and over it the chain of what has changed in memory, of which every so often a file has everything that
is there. These files are written a little at a time between events. Never a fork: RocksDB has threads.
"""

from __future__ import annotations

import contextlib
import pickle
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tidegate.runners.engine.operator import KeyedOperator, Operator
from tidegate.runners.engine.rescale import KeyFilter, overlaid, rescaled, select_keys
from tidegate.runners.engine.state.tiered import TieredOperator, known_keys
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
)
from tidegate.runners.streaming.state.incremental import IncrementalChain
from tidegate.runners.streaming.state.rocksdb_capture import (
    HardLinks,
    KeyedCapture,
    LinkedCapture,
    SpilledKeys,
    in_batches,
    keyed_state_of,
    piece_of,
)
from tidegate.runners.streaming.state.rocksdb_store import OPERATOR_NUMBER, RocksCold, open_store, records, rocksdb
from tidegate.runners.streaming.state.uploads import PendingFile, StateFileStore, StoredFile
from tidegate.runners.streaming.state.writers import EmptyCapture, IncrementalWriter, Keys
from tidegate.sdk.errors import RunError

_NAMES: Final = b"\xff\xffnames"


class RocksBackend:
    """State of a task in RocksDB. `page` goes into the operators' Context; `budget` (bytes) is for keys in memory."""

    def __init__(
        self,
        operators: Operators,
        files: StateFileStore,
        directory: Callable[[], Path],
        *,
        budget: int,
        full_every: int,
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
    def wrap_keyed(self) -> Callable[[str, KeyedOperator], Operator]:
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
            spilled = None if self._db is None else SpilledKeys(self._hard_links(checkpoint), self._paged)
            return self._capture_keys(name, operators, dict.fromkeys(operators), spilled)
        keys, base = self._changes.since(checkpoint, operators, whole=False)
        own = self._capture_keys(name, operators, keys)
        try:
            links = self._links(checkpoint, name)
        except (OSError, RunError):
            own.abandon()
            raise
        return LinkedCapture(own, checkpoint, base, self._changes, links)

    def completed(self, checkpoint: int) -> None:
        self._changes.completed(checkpoint)

    def _links(self, checkpoint: int, name: str) -> HardLinks:
        """A hard-link checkpoint of the store, of which the files that are new are taken to the others."""
        written = -1 if self._db is None else self._db.latest_sequence_number()
        if written == self._linked[0]:
            return HardLinks(None, {file[0]: StoredFile(file) for file in self._linked[1]}, lambda files, whole: None)
        folder = self._hard_links(checkpoint)
        storing: dict[str, PendingFile] = {}
        links = HardLinks(folder, storing, partial(self._have_taken, written))
        try:
            for path in sorted(folder.iterdir()):
                file = self._taken.get(path.name)
                known = None if file is None else StoredFile(file)
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

    def _capture_keys(
        self, name: str, operators: Mapping[str, Operator], keys: Keys, spilled: SpilledKeys | None = None
    ) -> Capture:
        """A file of the given keys; of a savepoint, also of those that are `spilled`."""
        captured = KeyedCapture(operators, keys, self._paged, spilled)
        if captured.is_empty:
            return EmptyCapture()
        return IncrementalWriter(frames(captured.snapshots(), list(operators)), name, self._files, captured.abandon)

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

    def restore(self, parts: Sequence[Sequence[StateFile]], read: Read, keeps: KeyFilter | None) -> None:
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

    def _streamed(self, file: StateFile, read: Read, keeps: KeyFilter | None) -> dict[str, Any]:
        """What a file that has everything holds; but what is by key goes to the store, piece by piece."""
        states: dict[str, Any] = {}
        _, pieces = opened(checked(file, read), file[0])
        for label, piece in pieces:
            if label in states and label in self._paged:
                keyed = keyed_state_of(piece)
                self._paged[label].restore(keyed if keeps is None else select_keys(keyed, keeps))
            else:
                states[label] = overlaid(states.get(label), piece)
        return states

    def _from_store(
        self, files: Sequence[StateFile], read: Read, keeps: KeyFilter | None, awake: Mapping[str, Any], folder: Path
    ) -> None:
        """The keys that slept, but for those that have been awake since."""
        db = _unpacked(files, read, folder)
        labels = pickle.loads(db.get(_NAMES))
        for number, label in enumerate(labels):
            if label not in self._paged or label not in awake:
                continue
            hot = keyed_state_of(awake[label])
            known = known_keys(hot)
            spilled = (
                item
                for item in records(db, OPERATOR_NUMBER.pack(number))
                if item[0] not in known and (keeps is None or keeps(item[0]))
            )
            for batch in in_batches(spilled, replace(hot, tables={}, keys=None, windows=None)):
                self._paged[label].restore(batch)
        db.close()
        shutil.rmtree(folder)

    # -- RocksDB

    def _new_batch(self) -> Any:
        return self._rocks.WriteBatch(raw_mode=True)


def read_stored(files: Sequence[StateFile], read: Read) -> dict[str, Any]:
    """The snapshots, by name, that a capture of this backend has in its files. As `read_states` raises."""
    states = read_states([file for file in files if not of_store(file)], read)
    with TemporaryDirectory() as folder:
        db = _unpacked([file for file in files if of_store(file)], read, Path(folder) / "db")
        for number, label in enumerate(pickle.loads(db.get(_NAMES))):
            if label in states:
                awake = keyed_state_of(states[label])
                known = known_keys(awake)
                spilled = (item for item in records(db, OPERATOR_NUMBER.pack(number)) if item[0] not in known)
                for batch in in_batches(spilled, replace(awake, tables={}, keys=(), windows=None)):
                    states[label] = overlaid(states[label], piece_of(states[label], batch))
        db.close()
    return states


def _unpacked(files: Sequence[StateFile], read: Read, folder: Path) -> Any:
    """A store from the files of its checkpoint."""
    folder.mkdir()
    for file in files:
        (folder / file[0].rpartition(STORED)[2]).write_bytes(checked(file, read))
    return open_store(folder)

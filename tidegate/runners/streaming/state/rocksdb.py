"""The state backend for keyed state that does not fit into memory: resident keys in memory, spilled keys in RocksDB.

A checkpoint has two parts. The spilled keys are a hard-link checkpoint of the store, of which only new files are copied
to the checkpoint directory. The keys in memory are an incremental chain of state files, as in the memory backend. These
files are written in small steps between events, never by a forked child, since RocksDB runs threads.
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

from tidegate.runners.checkpoint.state_files import (
    STORED,
    Read,
    StateFile,
    checked,
    frames,
    of_store,
    opened,
    read_states,
)
from tidegate.runners.engine.operator import KeyedOperator, Operator
from tidegate.runners.engine.rescale import KeyFilter, overlaid, rescaled, select_keys
from tidegate.runners.engine.state.tiered import TieredOperator, known_keys
from tidegate.runners.streaming.state.backend import Capture, Operators
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
    """Stores the state of a task in RocksDB, except for at most `budget` bytes of recently used keys per operator."""

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
        self._stored_tables: dict[str, StateFile] = {}
        """Files of the store that are in the checkpoint directory, by their names in the store."""
        self._linked: tuple[int, tuple[StateFile, ...]] = (-1, ())
        """The store's sequence number when it was last linked, and the files it had then."""
        self._changes = IncrementalChain(full_every)

    @property
    def wrap_keyed(self) -> Callable[[str, KeyedOperator], Operator]:
        """Every keyed operator is wrapped by `page`."""
        return self.page

    def page(self, label: str, operator: KeyedOperator) -> TieredOperator:
        """Wrap an operator so that its keys can be spilled to this store."""
        if self._db is None:
            self._db = open_store(self._folder / "db")
        cold = RocksCold(self._db, len(self._paged), self._new_batch)
        self._paged[label] = TieredOperator(operator, cold, self._budget)
        self._name_operators()
        return self._paged[label]

    def close(self) -> None:
        """Close the store and delete its files; checkpoints have copies of all they need."""
        if self._db is not None:
            with contextlib.suppress(Exception):  # a store that has failed raises its error again
                self._db.close()
            self._db = None
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- capture

    def capture(self, checkpoint: int, name: str, *, whole: bool) -> Capture:
        operators = self._operators()
        if whole:
            spilled = None if self._db is None else SpilledKeys(self._hard_links(checkpoint), self._paged)
            return self._capture_keys(name, operators, dict.fromkeys(operators), spilled)
        keys, base = self._changes.since(checkpoint, operators, whole=False)
        changed = self._capture_keys(name, operators, keys)
        try:
            links = self._links(checkpoint, name)
        except (OSError, RunError):
            changed.abandon()
            raise
        return LinkedCapture(changed, checkpoint, base, self._changes, links)

    def completed(self, checkpoint: int) -> None:
        self._changes.completed(checkpoint)

    def _links(self, checkpoint: int, name: str) -> HardLinks:
        """Make a hard-link checkpoint of the store, and begin to store those of its files that are not stored yet."""
        sequence = -1 if self._db is None else self._db.latest_sequence_number()
        if sequence == self._linked[0]:
            return HardLinks(None, {file[0]: StoredFile(file) for file in self._linked[1]}, lambda files, _: None)
        folder = self._hard_links(checkpoint)
        storing: dict[str, PendingFile] = {}
        links = HardLinks(folder, storing, partial(self._on_stored, sequence))
        try:
            for path in sorted(folder.iterdir()):
                file = self._stored_tables.get(path.name)
                known = None if file is None else StoredFile(file)
                storing[path.name] = known or self._files.link(f"{name}{STORED}{path.name}", path)
            links.poll()
        except OSError:
            links.abandon()
            raise
        return links

    def _on_stored(self, sequence: int, files: Mapping[str, StateFile], complete: bool) -> None:
        """Files of a hard-link checkpoint are stored: all (`complete`), or those stored before it was abandoned."""
        tables = {name: file for name, file in files.items() if name.endswith(".sst")}
        if complete:
            self._stored_tables, self._linked = tables, (sequence, tuple(files.values()))
        else:
            self._stored_tables = self._stored_tables | tables

    def _capture_keys(
        self, name: str, operators: Mapping[str, Operator], keys: Keys, spilled: SpilledKeys | None = None
    ) -> Capture:
        """Capture the given keys in a file; for a savepoint, also the `spilled` keys."""
        captured = KeyedCapture(operators, keys, self._paged, spilled)
        if captured.is_empty:
            return EmptyCapture()
        return IncrementalWriter(frames(captured.snapshots(), list(operators)), name, self._files, captured.abandon)

    def _hard_links(self, checkpoint: int) -> Path:
        """A folder with hard links to the present files of the store.

        OSError if they can't be made, for example on a full disk. RunError if that has made the store fail: it then
        refuses all writes, even once there is room again, and the task must be restored into a new store.
        """
        folder = self._folder / f"checkpoint-{checkpoint}"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            self._rocks.Checkpoint(self._db).create_checkpoint(str(folder))
        except Exception as error:  # rocksdict raises no other class; the message names the file
            shutil.rmtree(folder, ignore_errors=True)
            try:
                self._name_operators()
            except Exception:
                raise RunError(f"the store in {self._folder} has failed: {error}; see --temp_dir") from error
            raise OSError(f"the store can't be linked in {folder}: {error}; see --temp_dir") from error
        return folder

    def _name_operators(self) -> None:
        """Write the names of the operators to the store, in the order of their numbers."""
        self._db.put(_NAMES, pickle.dumps(list(self._paged)))

    # -- restore

    def restore(self, parts: Sequence[Sequence[StateFile]], read: Read, keeps: KeyFilter | None) -> None:
        found: dict[str, list[Any]] = {}
        for number, files in enumerate(files for files in parts if files):
            linked = [file for file in files if of_store(file)]
            chain = [file for file in files if not of_store(file)]
            states = read_states(chain, read) if linked or len(chain) > 1 else self._load(chain[0], read, keeps)
            if linked:
                self._restore_spilled(linked, read, keeps, states, self._folder / f"restored-{number}")
            for label, state in states.items():
                found.setdefault(label, []).append(state)
        for label, operator in self._operators().items():
            states_of = found.get(label, [])
            state = rescaled(states_of, keeps) if keeps is not None else next(iter(states_of), None)
            if state is not None:
                operator.restore(state)

    def _load(self, file: StateFile, read: Read, keeps: KeyFilter | None) -> dict[str, Any]:
        """The snapshots in a file with all state. Keyed state is restored piece by piece, not collected."""
        states: dict[str, Any] = {}
        _, pieces = opened(checked(file, read), file[0])
        for label, piece in pieces:
            if label in states and label in self._paged:
                keyed = keyed_state_of(piece)
                self._paged[label].restore(keyed if keeps is None else select_keys(keyed, keeps))
            else:
                states[label] = overlaid(states.get(label), piece)
        return states

    def _restore_spilled(
        self, files: Sequence[StateFile], read: Read, keeps: KeyFilter | None, states: Mapping[str, Any], folder: Path
    ) -> None:
        """Restore the spilled keys, except those with newer state in `states`, the snapshots of the keys in memory."""
        db = _open_copy(files, read, folder)
        labels = pickle.loads(db.get(_NAMES))
        for number, label in enumerate(labels):
            if label not in self._paged or label not in states:
                continue
            resident = keyed_state_of(states[label])
            known = known_keys(resident)
            spilled = (
                item
                for item in records(db, OPERATOR_NUMBER.pack(number))
                if item[0] not in known and (keeps is None or keeps(item[0]))
            )
            for batch in in_batches(spilled, replace(resident, tables={}, keys=None, windows=None)):
                self._paged[label].restore(batch)
        db.close()
        shutil.rmtree(folder)

    # -- RocksDB

    def _new_batch(self) -> Any:
        return self._rocks.WriteBatch(raw_mode=True)


def read_stored(files: Sequence[StateFile], read: Read) -> dict[str, Any]:
    """The operators' snapshots, by name, from the files of a capture of this backend. Raises as `read_states` does."""
    states = read_states([file for file in files if not of_store(file)], read)
    with TemporaryDirectory() as folder:
        db = _open_copy([file for file in files if of_store(file)], read, Path(folder) / "db")
        for number, label in enumerate(pickle.loads(db.get(_NAMES))):
            if label in states:
                resident = keyed_state_of(states[label])
                known = known_keys(resident)
                spilled = (item for item in records(db, OPERATOR_NUMBER.pack(number)) if item[0] not in known)
                for batch in in_batches(spilled, replace(resident, tables={}, keys=(), windows=None)):
                    states[label] = overlaid(states[label], piece_of(states[label], batch))
        db.close()
    return states


def _open_copy(files: Sequence[StateFile], read: Read, folder: Path) -> Any:
    """Copy the files of a hard-link checkpoint to a folder, and open the store there."""
    folder.mkdir()
    for file in files:
        (folder / file[0].rpartition(STORED)[2]).write_bytes(checked(file, read))
    return open_store(folder)

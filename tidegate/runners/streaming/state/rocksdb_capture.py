"""Captures of state that is partly in memory and partly in RocksDB."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from tidegate.runners.checkpoint.state_files import (
    StateFile,
    snapshots_of,
)
from tidegate.runners.engine.operator import Operator
from tidegate.runners.engine.side_inputs.operator import Part, SidesSnapshot
from tidegate.runners.engine.state.keyed_state import KeyedState, Touched
from tidegate.runners.engine.state.tiered import BATCH, RESIDENT, ResidentCapture, TieredOperator
from tidegate.runners.streaming.state.backend import Capture
from tidegate.runners.streaming.state.incremental import IncrementalChain
from tidegate.runners.streaming.state.rocksdb_store import OPERATOR_NUMBER, open_store, records
from tidegate.runners.streaming.state.uploads import PendingFile
from tidegate.runners.streaming.state.writers import Keys, looked_up
from tidegate.sdk import moved


class KeyedCapture:
    """The state of the given keys at one instant, as pieces of snapshots that are made later.

    State that is not by key is captured at once. The state of a key is captured when its piece is made, or before it
    changes, whichever comes first. `spilled`: for a savepoint, the keys that were in the store at that instant.
    """

    def __init__(
        self,
        operators: Mapping[str, Operator],
        keys: Keys,
        paged: Mapping[str, TieredOperator],
        spilled: SpilledKeys | None,
    ) -> None:
        self._spilled = spilled
        self._heads: list[tuple[str, Any]] = []
        """The first piece of each operator's snapshot, by the operator's name."""
        self._captures: dict[str, ResidentCapture] = {}
        try:
            for label, operator in operators.items():
                self._begin(label, operator, keys[label], paged.get(label))
        except BaseException:
            self.abandon()
            raise

    def _begin(self, label: str, operator: Operator, runs: Touched | None, paged: TieredOperator | None) -> None:
        if paged is None:
            self._heads += snapshots_of({label: operator}, looked_up({label: runs}))
            return
        parts = None if runs is None else [key for run in runs if _of_parts(run) for key in run]
        with paged.without_keys():
            self._heads.append((label, operator.snapshot(parts)))
        by_key = None if runs is None else [run for run in runs if not _of_parts(run)]
        self._captures[label] = paged.begin_capture(by_key)

    @property
    def is_empty(self) -> bool:
        """Whether there is no state to write."""
        return not self._heads and self._spilled is None

    def snapshots(self) -> Iterator[tuple[str, Any] | None]:
        """The pieces, each with its operator's name; None where the work pauses without a piece."""
        for label, head in self._heads:
            yield label, head
            if label in self._captures:
                yield from self._pieces(label, head)
        if self._spilled is not None:
            self._spilled.close()

    def _pieces(self, label: str, head: Any) -> Iterator[tuple[str, Any] | None]:
        keyed = keyed_state_of(head)
        for piece in self._captures[label].pieces():
            if piece is None:
                yield None
                continue
            if self._spilled is not None:
                piece.tables.pop(RESIDENT, None)
            yield label, piece_of(head, replace(keyed, tables=piece.tables, keys=piece.keys, windows=None))
        for batch in self._spilled.pieces(label, head) if self._spilled is not None else ():
            yield label, batch

    def abandon(self) -> None:
        """Stop the capture, and delete the hard links."""
        for capture in self._captures.values():
            capture.stop()
        if self._spilled is not None:
            self._spilled.close()


class SpilledKeys:
    """The keys of each operator that were in the store at one instant, read from hard links to the store's files.

    The linked store is opened at the first read. A RocksDB snapshot would not do, because rocksdict's iterator over a
    snapshot also returns later writes.
    """

    def __init__(self, folder: Path, paged: Mapping[str, TieredOperator]) -> None:
        self._folder = folder
        self._resident = {label: each.resident_keys() for label, each in paged.items()}
        self._db: Any = None

    def pieces(self, label: str, head: Any) -> Iterator[Any]:
        """The keys of one operator, as pieces of its snapshot; `head` is the first piece of it."""
        if self._db is None:
            self._db = open_store(self._folder)
        resident = self._resident[label]
        number = list(self._resident).index(label)
        found = (item for item in records(self._db, OPERATOR_NUMBER.pack(number)) if item[0] not in resident)
        for batch in in_batches(found, replace(keyed_state_of(head), tables={}, keys=(), windows=None)):
            yield piece_of(head, batch)

    def close(self) -> None:
        """Close the linked store and delete the links."""
        if self._db is not None:
            self._db.close()
            self._db = None
        shutil.rmtree(self._folder, ignore_errors=True)


class HardLinks:
    """The files of a hard-link checkpoint of the store, while they are being stored with the job's checkpoint.

    `folder` has the links, and is deleted afterwards. `on_stored` is called at the end with the files that are stored,
    and whether these are all.
    """

    def __init__(
        self,
        folder: Path | None,
        storing: Mapping[str, PendingFile],
        on_stored: Callable[[Mapping[str, StateFile], bool], None],
    ) -> None:
        self._folder = folder
        self._storing = storing
        self._on_stored = on_stored
        self._files: tuple[StateFile, ...] | None = None

    def poll(self) -> tuple[StateFile, ...] | None:
        """The files once all are stored, None until then. OSError if one can't be stored."""
        if self._files is None:
            found = {name: file for name, each in self._storing.items() if (file := each.poll()) is not None}
            if len(found) < len(self._storing):
                return None
            self._files = tuple(found.values())
            self._on_stored(found, True)
            self._delete_links()
        return self._files

    def abandon(self) -> None:
        """Stop storing the files. The next checkpoint reuses those that are stored by now."""
        if self._files is not None:
            return
        found = {}
        for name, each in self._storing.items():
            each.abandon()
            with contextlib.suppress(OSError):
                if (file := each.poll()) is not None:
                    found[name] = file
        self._on_stored(found, False)
        self._delete_links()

    def _delete_links(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


class LinkedCapture:
    """A capture of the changes in memory, together with the store's files from the same instant."""

    def __init__(
        self,
        changed: Capture,
        checkpoint: int,
        base: tuple[StateFile, ...],
        changes: IncrementalChain,
        links: HardLinks,
    ) -> None:
        self._changed = changed
        self._checkpoint = checkpoint
        self._base = base
        self._changes = changes
        self._links = links
        self._files: tuple[StateFile, ...] | None = None

    def poll(self) -> tuple[StateFile, ...] | None:
        if self._files is None:
            self._files = self._changed.poll()
        links = self._links.poll()
        if self._files is None or links is None:
            return None
        chain = (*self._files, *self._base)
        self._changes.stored(self._checkpoint, chain)
        return (*chain, *links)

    @property
    def uploading(self) -> bool:
        return self._files is not None or self._changed.uploading

    def abandon(self) -> None:
        self._changed.abandon()
        self._links.abandon()


def _of_parts(run: Collection[Any]) -> bool:
    """Whether these are the parts of a step's state that are not by key."""
    return type(next(iter(run), None)) is Part


def keyed_state_of(snapshot: Any) -> KeyedState:
    """The keyed state in a snapshot of an operator with or without side inputs."""
    state = snapshot.inner if isinstance(snapshot, SidesSnapshot) else snapshot
    assert isinstance(state, KeyedState)
    return state


def piece_of(snapshot: Any, keyed: KeyedState) -> Any:
    """A piece with this keyed state, of the same class as the snapshot."""
    if isinstance(snapshot, SidesSnapshot):
        return replace(snapshot, waiting=None, sides={}, inner=keyed)
    return keyed


def in_batches(spilled: Iterable[tuple[Any, bytes]], empty: KeyedState) -> Iterator[KeyedState]:
    """The records as snapshots like `empty`, each of a batch of keys."""
    items = iter(spilled)
    while batch := list(islice(items, BATCH)):
        tables: dict[str, dict[Any, dict[Any, Any]]] = {}
        for key, data in batch:
            for name, window, stored in moved.loads(data)[1]:
                tables.setdefault(name, {}).setdefault(window, {})[key] = stored
        yield replace(empty, tables=tables)

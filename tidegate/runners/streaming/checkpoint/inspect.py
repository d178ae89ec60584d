"""Reads a checkpoint or savepoint for inspection: its manifest, or the individual entries of its state.

The manifest is plain JSON. The entries are pickles of the author's values, which only `entries` unpickles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tidegate.runners.checkpoint.catalog import check_files, checkpoint_numbers, latest
from tidegate.runners.checkpoint.manifest import Manifest, ManifestError, folder_of
from tidegate.runners.checkpoint.manifest_json import loads
from tidegate.runners.checkpoint.parts import StateHandle
from tidegate.runners.checkpoint.state_files import of_store, read_states
from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.runners.engine.side_inputs.operator import SidesSnapshot
from tidegate.runners.engine.state.keyed_state import KeyedState
from tidegate.runners.streaming.state.rocksdb import read_stored
from tidegate.sdk.errors import RunError

_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """One value in the state of a step. `window` None: the value does not belong to one window."""

    step: str
    task: str
    table: str
    window: Any
    key: Any
    value: Any


def opened(storage: Storage, where: str, checkpoint: int | None = None) -> tuple[Manifest, list[str]]:
    """Open a checkpoint, by default the newest complete one; also returns a warning for each newer one that is damaged.

    Reads and verifies all files of the checkpoint. `where` names the directory in messages. Raises ManifestError if the
    checkpoint does not exist or is damaged.
    """
    if checkpoint is None:
        manifest, damaged = _newest(storage)
        if manifest is None:
            raise ManifestError(f"there is no checkpoint in {where}")
        return manifest, damaged
    names = set(storage.list(""))
    if checkpoint not in checkpoint_numbers(names):
        existing = ", ".join(map(str, checkpoint_numbers(names))) or "none"
        raise ManifestError(f"there is no checkpoint {checkpoint} in {where}; there are: {existing}")
    try:
        manifest = loads(storage.read(f"{folder_of(checkpoint)}/manifest.json"))
        check_files(storage, manifest, names, thorough=True)
    except ManifestError as error:
        raise ManifestError(f"checkpoint {checkpoint} in {where} can't be used: {error}") from None
    return manifest, []


def _newest(storage: Storage) -> tuple[Manifest | None, list[str]]:
    """Find the newest complete checkpoint. Tries again if the files change: a running job may delete a checkpoint."""
    for _ in range(_ATTEMPTS):
        before = storage.list("")
        try:
            manifest, damaged = latest(storage, thorough=True)
        except ManifestError:
            if storage.list("") == before:
                raise
            continue
        if not damaged or storage.list("") == before:
            return manifest, damaged
    return latest(storage, thorough=True)


def entries(storage: Storage, manifest: Manifest) -> Iterator[Entry]:
    """Unpickle all entries of a checkpoint's state.

    Unpickling can run arbitrary code, so the checkpoint must be trusted; it needs the pipeline's modules. Raises
    ManifestError if a file is missing or damaged.
    """
    for part in manifest.tasks:
        if part.handle is not None:
            for step, state in _operator_states(storage, part.handle).items():
                for table, window, key, value in _state_entries(state):
                    yield Entry(step, str(part.task), table, window, key, value)


def _operator_states(storage: Storage, handle: StateHandle) -> dict[str, Any]:
    """The state of a task's operators, by name."""
    try:
        if any(of_store(file) for file in handle.files):
            return read_stored(handle.files[1:], storage.read)
        return read_states(handle.files[1:], storage.read)
    except RunError as error:
        raise ManifestError(str(error)) from error


def _state_entries(state: Any) -> Iterator[tuple[str, Any, Any, Any]]:
    match state:
        case KeyedState():
            for name, tables in state.tables.items():
                for window, table in tables.items():
                    for key, value in table.items():
                        yield name, window, key, value
        case SidesSnapshot():
            for name, side in state.sides.items():
                yield f"side input {name}", None, None, side
            for window, _, columns in state.waiting or ():
                for values, _, _ in columns:
                    for value in values:
                        yield "waiting for side inputs", window, None, value
            yield from _state_entries(state.inner)
        case None:
            return
        case _:
            yield "state", None, None, state

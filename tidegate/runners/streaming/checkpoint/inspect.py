"""Looking into a checkpoint or savepoint: what is in it, by its manifest alone, or entry by entry.

The manifest is text. Entries are pickles of the author's values: only `entries` opens them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tidegate.runners.engine.side_inputs.operator import SidesSnapshot
from tidegate.runners.engine.state.keyed_state import KeyedState
from tidegate.runners.streaming.checkpoint.catalog import check_files, checkpoint_numbers, latest
from tidegate.runners.streaming.checkpoint.manifest import Manifest, ManifestError, folder_of
from tidegate.runners.streaming.checkpoint.manifest_json import loads
from tidegate.runners.streaming.protocol.worker_messages import StateHandle
from tidegate.runners.streaming.state.files import of_store, read_states
from tidegate.runners.streaming.state.rocksdb import read_stored
from tidegate.runners.streaming.storage.base import Storage
from tidegate.sdk.errors import RunError

_LOOKS: Final = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """One value in a step's state: of a task, a table of the step, a window (None: of no one window) and a key."""

    step: str
    task: str
    table: str
    window: Any
    key: Any
    value: Any


def opened(storage: Storage, where: str, checkpoint: int | None = None) -> tuple[Manifest, list[str]]:
    """A checkpoint of a directory, by default the newest that is whole; and what is wrong with newer ones.

    All its files are read, so that what is shown is known to be there. `where` is the directory, for people.
    ManifestError if there is none, or not that one, or if it is damaged.
    """
    if checkpoint is None:
        manifest, damaged = _newest(storage)
        if manifest is None:
            raise ManifestError(f"there is no checkpoint in {where}")
        return manifest, damaged
    names = set(storage.list(""))
    if checkpoint not in checkpoint_numbers(names):
        there = ", ".join(map(str, checkpoint_numbers(names))) or "none"
        raise ManifestError(f"there is no checkpoint {checkpoint} in {where}; there are: {there}")
    try:
        manifest = loads(storage.read(f"{folder_of(checkpoint)}/manifest.json"))
        check_files(storage, manifest, names, thorough=True)
    except ManifestError as error:
        raise ManifestError(f"checkpoint {checkpoint} in {where} can't be used: {error}") from None
    return manifest, []


def _newest(storage: Storage) -> tuple[Manifest | None, list[str]]:
    """The newest that is whole. A job may be at work there, which removes an older one while it is looked at."""
    for _ in range(_LOOKS):
        there = storage.list("")
        try:
            manifest, damaged = latest(storage, thorough=True)
        except ManifestError:
            if storage.list("") == there:
                raise
            continue
        if not damaged or storage.list("") == there:
            return manifest, damaged
    return latest(storage, thorough=True)


def entries(storage: Storage, manifest: Manifest) -> Iterator[Entry]:
    """All that a checkpoint holds of state, unpickled: run only what you trust, where the pipeline's code is at hand.

    ManifestError for a file that is missing or damaged.
    """
    for part in manifest.tasks:
        if part.handle is not None:
            for step, state in _operators(storage, part.handle).items():
                for table, window, key, value in _rows(state):
                    yield Entry(step, str(part.task), table, window, key, value)


def _operators(storage: Storage, handle: StateHandle) -> dict[str, Any]:
    """The state of a task's steps."""
    try:
        if any(of_store(file) for file in handle.files):
            return read_stored(handle.files[1:], storage.read)
        return read_states(handle.files[1:], storage.read)
    except RunError as error:
        raise ManifestError(str(error)) from error


def _rows(state: Any) -> Iterator[tuple[str, Any, Any, Any]]:
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
            yield from _rows(state.inner)
        case None:
            return
        case _:
            yield "state", None, None, state

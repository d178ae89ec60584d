"""State files: the snapshots of a task's operators, written in small frames and read back as one.

A file has all state of the operators, or the changes since an earlier file. Each frame is a pickle behind its length:
first the names of the operators, then pieces of their snapshots. A trailer with a checksum shows that the file is
complete.

>>> from tidegate.runners.engine.state.keyed_state import KeyedState
>>> def state_file(snapshot):
...     data = bytearray()
...     write_to(data.extend, frames([("Count", snapshot)], ["Count"]))
...     return bytes(data)
>>> full = KeyedState({"cells": {None: {"a": 1, "b": 1}}})
>>> changes = KeyedState({"cells": {None: {"b": 2, "c": 1}}}, keys=["b", "c"], windows=[None])
>>> stored = {"full": state_file(full), "changes": state_file(changes)}
>>> chain = [(name, len(stored[name]), crc32(stored[name])) for name in ("changes", "full")]
>>> read_states(chain, stored.__getitem__)["Count"].tables
{'cells': {None: {'a': 1, 'b': 2, 'c': 1}}}
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeAlias
from zlib import crc32

from tidegate.runners.engine.iteration.backlog import BacklogSnapshot
from tidegate.runners.engine.rescale import overlaid
from tidegate.runners.engine.side_inputs.operator import SidesSnapshot
from tidegate.runners.engine.state.keyed_state import ColumnTable, KeyedState
from tidegate.sdk import moved
from tidegate.sdk.errors import RunError
from tidegate.sdk.user_code.redefined_classes import dumps

StateFile: TypeAlias = tuple[str, int, int]
"""The name, size in bytes and crc32 of a file, as a `StateHandle` lists it."""
Read: TypeAlias = Callable[[str], bytes]
"""Reads a file of a checkpoint by its name; OSError if it is gone."""

STORED: Final = ".rocksdb-"
"""Part of the name of every file that belongs to a RocksDB store."""
FORMAT: Final = 1
PIECE: Final = 4_096
"""The number of entries written at a time."""
_LENGTH: Final = struct.Struct("<Q")
_END: Final = struct.Struct("<8sIQ")
_MAGIC: Final = b"tgstate1"


@dataclass(frozen=True, slots=True)
class Head:
    """The first frame of a file: its format, and the names of all operators that have state."""

    format: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """The trailer of a file: the checksum of everything before it, and the number of entries."""

    check: int
    entries: int

    def packed(self) -> bytes:
        """The trailer as the last END_SIZE bytes of a file."""
        return _END.pack(_MAGIC, self.check, self.entries)


END_SIZE: Final = _END.size


def read_end(data: bytes) -> Written:
    """Parse the last END_SIZE bytes of a file. RunError if the file is incomplete."""
    if len(data) == END_SIZE:
        magic, check, entries = _END.unpack(data)
        if magic == _MAGIC:
            return Written(check, entries)
    raise RunError("a state file is incomplete: its writer did not finish")


class UnpicklableState(Exception):
    """The state of the step `name` can't be pickled; `why` is the error."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why


def frames(snapshots: Iterable[tuple[str, Any] | None], names: Iterable[str]) -> Iterator[tuple[bytes, int]]:
    """The frames of a file, each with its number of entries.

    None among the snapshots gives an empty frame: looking for state took time, but found none.
    """
    yield framed(pickle.dumps(Head(FORMAT, tuple(names)), 5)), 0
    for named in snapshots:
        if named is None:
            yield b"", 0
            continue
        name, snapshot = named
        for piece, entries in pieces(snapshot):
            try:
                data = dumps((name, piece))
            except Exception as error:
                raise UnpicklableState(name, f"{type(error).__name__}: {error}") from error
            yield framed(data), entries


def framed(data: bytes) -> bytes:
    """The data, preceded by its length."""
    return _LENGTH.pack(len(data)) + data


def pieces(snapshot: Any) -> Iterator[tuple[Any, int]]:
    """Split a snapshot into pieces, each with its number of entries; `overlaid` in this order restores it."""
    match snapshot:
        case KeyedState():
            yield replace(snapshot, tables={name: {} for name in snapshot.tables}), 0
            rest = replace(snapshot, tables={}, keys=(), windows=None)
            for name, tables in snapshot.tables.items():
                for window, table in tables.items():
                    for batch in _in_batches(table):
                        yield replace(rest, tables={name: {window: batch}}), len(batch)
        case SidesSnapshot(inner=inner) if inner is not None:
            outer = snapshot
            for piece, n in pieces(inner):
                yield replace(outer, inner=piece), n
                outer = replace(snapshot, waiting=None, sides={})
        case BacklogSnapshot():
            yield from snapshot.pieces(PIECE)
        case _:
            yield snapshot, 1


def _in_batches(table: Mapping[Any, Any]) -> Iterator[Any]:
    """The table in parts of at most PIECE entries."""
    if isinstance(table, ColumnTable):
        yield from table.cut(PIECE)
        return
    entries = iter(table.items())
    while batch := dict(islice(entries, PIECE)):
        yield batch


def write_to(write: Callable[[bytes], object], parts: Iterable[tuple[bytes, int]]) -> None:
    """Write the frames and the trailer."""
    check = entries = 0
    for data, n in parts:
        write(data)
        check = crc32(data, check)
        entries += n
    write(Written(check, entries).packed())


def read_states(files: Sequence[StateFile], read: Read) -> dict[str, Any]:
    """The operators' snapshots, by name, from a file and those it builds on, the latest first. RunError if one of them
    is damaged or missing."""
    states: dict[str, Any] = {}
    for file in reversed(files):
        names, parts = opened(checked(file, read), file[0])
        for name, piece in parts:
            states[name] = overlaid(states.get(name), piece)
        states = {name: state for name, state in states.items() if name in names}
    return states


def of_store(file: StateFile) -> bool:
    """Whether the file belongs to a RocksDB store; the other files of a capture have the state that was in memory."""
    return STORED in file[0]


def checked(file: StateFile, read: Read) -> bytes:
    """Read a file. RunError if it can't be read or is not as it was written."""
    name, size, check = file
    try:
        data = read(name)
    except OSError as error:
        raise RunError(f"the state in {name} can't be read: {error}") from error
    if len(data) != size or crc32(data) != check:
        raise RunError(f"the state in {name} is damaged: take an earlier checkpoint")
    return data


def opened(data: bytes, name: str) -> tuple[tuple[str, ...], Iterator[tuple[str, Any]]]:
    """The names of the operators in a file, and its pieces, each with the name of its operator."""
    read_end(data[-END_SIZE:])
    parts = _unframed(data[:-END_SIZE])
    head = next(parts, None)
    if not isinstance(head, Head) or head.format != FORMAT:
        raise RunError(f"the state in {name} has a format that this version does not read")
    return head.names, parts


def _unframed(data: bytes) -> Iterator[Any]:
    view, at = memoryview(data), 0
    while at < len(view):
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        yield moved.loads(view[at : at + length])
        at += length


def snapshots_of(operators: Mapping[str, Any], keys: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The operators' snapshots, each of the keys under the operator's name (None: all keys)."""
    for name, operator in operators.items():
        snapshot = operator.snapshot(keys[name])
        if snapshot is not None:
            yield name, snapshot

"""Files of operators' state: frames of what is in them, each built on the ones before, read back as one.

A file has the whole state of a task's operators, or what has changed since another. Its frames are pickles: first the
names of the operators there are, then pieces of their snapshots, none of them large. At the end stands what was
written, so that a file that breaks off is known as such.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeAlias
from zlib import crc32

from tidegate.runners.engine.rescale import overlaid
from tidegate.runners.engine.side_inputs.operator import SidesSnapshot
from tidegate.runners.engine.state.keyed_state import ColumnTable, KeyedState
from tidegate.sdk import moved
from tidegate.sdk.errors import RunError
from tidegate.sdk.user_code.redefined_classes import dumps

StateFile: TypeAlias = tuple[str, int, int]
"""Name, size in bytes and crc32 of a file, as a `StateHandle` lists it."""
Read: TypeAlias = Callable[[str], bytes]
"""Reads a file of a checkpoint by its name; OSError if it is gone."""

STORED: Final = ".rocksdb-"
"""In the names of files that are a RocksDB's own."""
FORMAT: Final = 1
PIECE: Final = 4_096
"""How many entries are written at a time."""
_LENGTH: Final = struct.Struct("<Q")
_END: Final = struct.Struct("<8sIQ")
_MAGIC: Final = b"tgstate1"


@dataclass(frozen=True, slots=True)
class Head:
    """What a file begins with: its format, and the names of all operators that have state."""

    format: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """What the end of a file says: the checksum of all before it, and how many entries there are."""

    check: int
    entries: int

    def packed(self) -> bytes:
        """As the last END_SIZE bytes of a file."""
        return _END.pack(_MAGIC, self.check, self.entries)


END_SIZE: Final = _END.size


def read_end(data: bytes) -> Written:
    """From the last END_SIZE bytes of a file. RunError if it breaks off."""
    if len(data) == END_SIZE:
        magic, check, entries = _END.unpack(data)
        if magic == _MAGIC:
            return Written(check, entries)
    raise RunError("a file of state breaks off: its writer did not finish")


class UnpicklableState(Exception):
    """State of a step that can't be pickled: its name, and why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why


def frames(snapshots: Iterable[tuple[str, Any] | None], names: Iterable[str]) -> Iterator[tuple[bytes, int]]:
    """Frames of a file, and how many entries each has; none of an operator's (None) gives an empty frame: it took time
    to find that there was nothing."""
    yield framed(pickle.dumps(Head(FORMAT, tuple(names)), 5)), 0
    for each in snapshots:
        if each is None:
            yield b"", 0
            continue
        name, snapshot = each
        for piece, entries in pieces(snapshot):
            try:
                data = dumps((name, piece))
            except Exception as error:
                raise UnpicklableState(name, f"{type(error).__name__}: {error}") from error
            yield framed(data), entries


def framed(data: bytes) -> bytes:
    """Bytes behind their length."""
    return _LENGTH.pack(len(data)) + data


def pieces(snapshot: Any) -> Iterator[tuple[Any, int]]:
    """A snapshot as several, to be laid one over another in this order; and how many entries each has."""
    match snapshot:
        case KeyedState():
            yield replace(snapshot, tables={name: {} for name in snapshot.tables}), 0
            rest = replace(snapshot, tables={}, keys=(), windows=None)
            for name, tables in snapshot.tables.items():
                for window, table in tables.items():
                    for some in _lots(table):
                        yield replace(rest, tables={name: {window: some}}), len(some)
        case SidesSnapshot(inner=inner) if inner is not None:
            outer = snapshot
            for piece, n in pieces(inner):
                yield replace(outer, inner=piece), n
                outer = replace(snapshot, waiting=None, sides={})
        case _:
            yield snapshot, 1


def _lots(table: Mapping[Any, Any]) -> Iterator[Any]:
    """A table a few entries at a time."""
    if isinstance(table, ColumnTable):
        yield from table.cut(PIECE)
        return
    entries = iter(table.items())
    while some := dict(islice(entries, PIECE)):
        yield some


def write_to(write: Callable[[bytes], object], parts: Iterable[tuple[bytes, int]]) -> None:
    """Write frames, and what stands at the end."""
    check = entries = 0
    for data, n in parts:
        write(data)
        check = crc32(data, check)
        entries += n
    write(Written(check, entries).packed())


def read_states(files: Sequence[StateFile], read: Read) -> dict[str, Any]:
    """The operators' snapshots, by name, from a file and those it builds on, the latest first. RunError if one is
    damaged or gone."""
    states: dict[str, Any] = {}
    for file in reversed(files):
        names, parts = opened(checked(file, read), file[0])
        for name, piece in parts:
            states[name] = overlaid(states.get(name), piece)
        states = {name: state for name, state in states.items() if name in names}
    return states


def of_store(file: StateFile) -> bool:
    """Whether a file is of a store, rather than of what was in memory beside it."""
    return STORED in file[0]


def checked(file: StateFile, read: Read) -> bytes:
    """What is in a file, if it is what was written."""
    name, size, check = file
    try:
        data = read(name)
    except OSError as error:
        raise RunError(f"the state in {name} can't be read: {error}") from error
    if len(data) != size or crc32(data) != check:
        raise RunError(f"the state in {name} is damaged: take an earlier checkpoint")
    return data


def opened(data: bytes, name: str) -> tuple[tuple[str, ...], Iterator[tuple[str, Any]]]:
    """The names of the operators a file knows, and its pieces, each with the operator's name."""
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
    """The operators' snapshots, each of the keys given under its name (None: of all)."""
    for name, operator in operators.items():
        snapshot = operator.snapshot(keys[name])
        if snapshot is not None:
            yield name, snapshot

"""The state of a task in Spark's store: a snapshot of its operators, the changes since in each batch, and a head.

The head is written in each batch, and replaced: it has the task's progress, and a token. What lives in a worker's
memory may be used again if it has the same token. The log is only added to, until the changes weigh more than the
snapshot that they follow; then it is replaced by a new one.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from tidegate.runners.engine.operator import Operator, keeps_state
from tidegate.runners.engine.rescale import overlaid
from tidegate.runners.engine.state.keyed_state import distinct
from tidegate.runners.spark.streaming.rows import MAX_BYTES
from tidegate.sdk import moved
from tidegate.sdk.errors import RunError
from tidegate.sdk.user_code.redefined_classes import dumps


class Piece(NamedTuple):
    """A piece of an entry of the log; `last`: the entry ends here."""

    last: bool
    data: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """The token of the state, the bytes of the whole snapshot in the log and of the changes that follow it, and the
    pickled progress of the task."""

    token: str
    whole: int
    changes: int
    progress: bytes


class Store(Protocol):
    """Where the state of one task is, as of the batch before."""

    def head(self) -> Head | None: ...
    def pieces(self) -> Iterable[Piece]: ...
    def save(self, head: Head, pieces: list[Piece], *, anew: bool) -> None:
        """Save a head, and add pieces to the log; `anew`: instead of all that are there."""


def read_log(store: Store) -> dict[str, Any]:
    """The snapshots of a task's operators, by name."""
    states: dict[str, Any] = {}
    for data in _entries(store.pieces()):
        for name, snapshot in moved.loads(data).items():
            states[name] = overlaid(states.get(name), snapshot)
    return states


def save(store: Store, before: Head | None, operators: Mapping[str, Operator], progress: Any) -> Head:
    """Save what has changed in the operators since `before`, or everything, and the task's progress."""
    anew = before is None or before.changes > max(before.whole, _LIGHT)
    snapshots = {}
    for name, operator in operators.items():
        touched = operator.touched()
        keys = None if touched is None or (anew and keeps_state(operator)) else distinct(touched)
        if (snapshot := operator.snapshot(keys)) is not None:
            try:
                snapshots[name] = dumps(snapshot)
            except Exception as error:
                raise RunError(
                    f"the state of step {name!r} can't be pickled ({type(error).__name__}: {error}), and Spark "
                    "stores it after each batch"
                ) from error
    data = pickle.dumps({name: Pickled(data) for name, data in snapshots.items()}, 5) if snapshots else b""
    whole, changes = (len(data), 0) if anew or before is None else (before.whole, before.changes + len(data))
    head = Head(os.urandom(8).hex(), whole, changes, dumps(progress))
    store.save(head, list(_pieces(data)), anew=anew)
    return head


class Pickled:
    """A pickle in a pickle, which unpickles as its object."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return moved.loads, (self._data,)


def _pieces(data: bytes) -> Iterator[Piece]:
    for at in range(0, len(data), MAX_BYTES):
        yield Piece(at + MAX_BYTES >= len(data), data[at : at + MAX_BYTES])


def _entries(pieces: Iterable[Piece]) -> Iterator[bytes]:
    parts: list[bytes] = []
    for last, data in pieces:
        parts.append(data)
        if last:
            yield b"".join(parts)
            parts = []


_LIGHT: Final = 1 << 16
"""Changes of fewer bytes are kept, however small the whole state is."""

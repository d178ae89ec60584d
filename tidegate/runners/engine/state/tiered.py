"""Tiered state: recently used keys are resident in the operator's memory, the others are spilled to a store.

Before each block, the spilled keys in it are loaded, in one batch. When memory is full, the least recently used keys
are spilled. A spilled key is also loaded when the watermark or processing time reaches one of its wakeups, which the
store indexes. If one event wakes more keys than fit into memory, they are processed in batches in the order of the
store, each batch as if it were a task of its own.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, filterfalse, islice
from typing import Any, Final, Literal, Protocol, TypeAlias

from tidegate.runners.engine.memory.sizing import TABLE_ENTRY, deep_size
from tidegate.runners.engine.operator import Emitted, KeyedOperator, Operator, Wakeups
from tidegate.runners.engine.state.keyed_state import KeyedState, Touched, distinct
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.user_code.redefined_classes import dumps

Which: TypeAlias = Literal["event", "clock", "hold"]
Record: TypeAlias = tuple[Any, bytes | None, Wakeups | None]
"""A key, its state (None: it has none), and its wakeups (None: it never wakes)."""

BATCH: Final = 16_384
"""The number of keys that are woken, written or spilled at a time."""
MAX_SYNCHRONOUS: Final = 200_000
"""Up to so many keys are captured synchronously, which costs less in all than capturing them in the background."""
_SAMPLE: Final = 32


class ColdStore(Protocol):
    """The store for the spilled keys of one operator, with an index of their wakeups."""

    def load(self, keys: Sequence[Any]) -> list[bytes | None]:
        """The state of each key. Removes their wakeups from the index, since the keys are resident now."""

    def save(self, records: Iterable[Record]) -> None:
        """Replace the state and the wakeups of keys."""

    def due(self, which: Which, until: int, limit: int) -> list[Any]:
        """At most `limit` keys that have a wakeup up to `until`, ordered by wakeup."""

    def first(self, which: Which) -> int | None:
        """The earliest wakeup of any key."""

    def scan(self) -> Iterator[tuple[Any, bytes]]:
        """Every key and its state. The state of resident keys is the one with which they were loaded."""


class TieredOperator(Operator):
    """Wraps a keyed operator so that at most `budget` bytes of its state are in memory."""

    def __init__(self, inner: KeyedOperator, cold: ColdStore, budget: int) -> None:
        self.inner = inner
        self.cold = cold
        self._budget = budget
        self._resident: dict[Any, int] = {}
        """The resident keys, with the number of the block in which each was used last."""
        self._stored: set[Any] = set()
        """The resident keys that the store has, too, with the state they had when they were loaded."""
        self._block = 0
        self._per_key = 500
        """The estimated size of a key and its state (bytes)."""
        self._moved: list[Any] = []
        """Keys that were loaded or spilled since the last call of `touched`."""
        self.capture: ResidentCapture | None = None
        """The unfinished capture of resident keys, if there is one."""
        self._without_keys = False
        self._pending_at_end = False
        """Whether spilled keys have work left to do at the end of input."""

    # -- events

    def open(self) -> None:
        self.inner.open()

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        try:
            keys = dict.fromkeys(self.inner.keys_of(block))
        except (TypeError, ValueError):
            self._about_to_change(None)
            yield from self.inner.process(block, collection)  # raises an error that names the element
            return
        self._block += 1
        self._about_to_change(keys)
        self.load([key for key in keys if key not in self._resident])
        self._resident.update(dict.fromkeys(keys, self._block))
        yield from self.inner.process(block, collection)
        self._make_room()

    def finish_bundle(self) -> Iterator[Emitted]:
        return self.inner.finish_bundle()

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        return self._woken("event", micros, self.inner.on_watermark)

    def on_clock(self, micros: int) -> Iterator[Emitted]:
        return iter(()) if self.paused else self._woken("clock", micros, self.inner.on_clock)

    @property
    def paused(self) -> bool:
        return self._pending_at_end or self.inner.paused

    def next_clock(self) -> int | None:
        if self.paused:
            return None
        instants = [self.inner.next_clock(), self.cold.first("clock")]
        return min((at for at in instants if at is not None), default=None)

    def hold(self) -> int:
        spilled = self.cold.first("hold")
        return self.inner.hold() if spilled is None else min(spilled, self.inner.hold())

    def under_way(self) -> int:
        spilled = None if self.cold.first("clock") is None else self.cold.first("hold")
        return self.inner.under_way() if spilled is None else min(spilled, self.inner.under_way())

    def finish(self) -> Iterator[Emitted]:
        self._about_to_change(None)
        yield from self.on_watermark(MAX_MICROS)
        yield from self.inner.finish()

    def close(self) -> None:
        self.inner.close()

    def _woken(self, which: Which, micros: int, event: Callable[[int], Iterator[Emitted]]) -> Iterator[Emitted]:
        if which == "event":
            self._pending_at_end = False
        due = self.cold.due(which, micros, BATCH + 1)
        if not due and not self._reaches(which, micros):
            yield from event(micros)
            return
        self._about_to_change(None)
        if len(due) <= BATCH:
            self.load(due)
            yield from event(micros)
            self._make_room()
            return
        before_event = self.inner.snapshot(())
        self.spill(list(self._resident))
        while due := self.cold.due(which, micros, BATCH):
            self.load(due, before_event)
            yield from event(micros)
            self.spill(list(self._resident))
            if self.inner.paused:
                return

    def _reaches(self, which: Which, micros: int) -> bool:
        """Whether an event may change the state of a resident key."""
        if which == "event":
            return self.inner.next_event() <= micros
        at = self.inner.next_clock()
        return at is not None and at <= micros

    def _about_to_change(self, keys: Collection[Any] | None) -> None:
        """Copy on write: an unfinished capture copies these keys (None: all), which the next event may change."""
        if self.capture is not None:
            if keys is None:
                self.capture.copy_rest()
            else:
                self.capture.copy(keys)

    # -- resident keys

    def load(self, keys: Sequence[Any], as_of: KeyedState | None = None) -> None:
        """Load keys from the store. With `as_of`, reset the state that is not keyed to that of an earlier snapshot."""
        state = as_of if as_of is not None else self.inner.snapshot(())
        tables: dict[str, dict[Any, dict[Any, Any]]] = {name: {} for name in state.tables}
        for key, data in zip(keys, self.cold.load(keys), strict=True):
            if data is None:
                continue
            for name, window, stored in pickle.loads(data)[1]:
                tables[name].setdefault(window, {})[key] = stored
            self._stored.add(key)
            self._moved.append(key)
        self._resident.update(dict.fromkeys(keys, self._block))
        state.tables = tables
        self.inner.restore(state)

    def spill(self, keys: Sequence[Any]) -> None:
        """Write the state of keys to the store, and evict them from the operator."""
        for start in range(0, len(keys), BATCH):
            batch = keys[start : start + BATCH]
            self._about_to_change(batch)
            self._moved += batch
            self.cold.save(self._records(batch))
            self.inner.evict(batch)
            for key in batch:
                del self._resident[key]
            self._stored.difference_update(batch)

    def _records(self, keys: Sequence[Any]) -> Iterator[Record]:
        state = self.inner.snapshot(keys)
        instants = self.inner.wakeups(state)
        by_key = by_keys(state)
        for key in keys:
            entries = by_key.get(key)
            if entries is not None:
                yield key, dumps((key, entries)), instants.get(key)
            elif key in self._stored:
                yield key, None, None

    def _make_room(self) -> None:
        if len(self._resident) * self._per_key <= self._budget:
            return
        self._estimate_size()
        over = len(self._resident) - self._budget // self._per_key
        if over <= 0:
            return
        # Spill more keys than necessary, so that the next spill is some time away.
        n = min(len(self._resident), over + self._budget // self._per_key // 8)
        oldest = sorted(self._resident, key=self._resident.__getitem__)
        self.spill(oldest[:n])

    def _estimate_size(self) -> None:
        sample = list(islice(reversed(self._resident), _SAMPLE))
        entries = by_keys(self.inner.snapshot(sample))
        sizes = [deep_size(key) + deep_size(entries.get(key)) + 4 * TABLE_ENTRY for key in sample]
        self._per_key = max(100, sum(sizes) // max(1, len(sizes)))

    # -- state

    @contextmanager
    def without_keys(self) -> Iterator[None]:
        """A context in which snapshots, also of an operator around this one, have no keyed state.

        A `ResidentCapture` copies the keyed state.
        """
        self._without_keys = True
        try:
            yield
        finally:
            self._without_keys = False

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        """All state, spilled keys included; with `keys`, only what is resident."""
        if self._without_keys:
            head: KeyedState = self.inner.snapshot(())
            return replace(head, keys=None, windows=None) if keys is None else head
        if keys is not None:
            partial: KeyedState = self.inner.snapshot(keys)
            return partial
        state: KeyedState = self.inner.snapshot()
        all_tables = {
            name: {window: dict(table) for window, table in tables.items()} for name, tables in state.tables.items()
        }
        for key, data in self.cold.scan():
            if key not in self._resident:
                for name, window, stored in pickle.loads(data)[1]:
                    all_tables[name].setdefault(window, {})[key] = stored
        return replace(state, tables=all_tables)

    def restore(self, state: KeyedState) -> None:
        """Restore into the store, merging with the state it already has of a key; keys are loaded as they are used."""
        self.inner.restore(replace(state, tables={name: {} for name in state.tables}))
        remaining = iter(by_keys(state).items())
        while batch := dict(islice(remaining, BATCH)):
            stored_before = [() if data is None else pickle.loads(data)[1] for data in self.cold.load(list(batch))]
            union = replace(state, tables={name: {} for name in state.tables})
            for (key, entries), before in zip(batch.items(), stored_before, strict=True):
                for name, window, stored in (*before, *entries):
                    union.tables.setdefault(name, {}).setdefault(window, {})[key] = stored
            wakeups = self.inner.wakeups(union)
            self.cold.save((key, dumps((key, entries)), wakeups.get(key)) for key, entries in by_keys(union).items())
        self._pending_at_end = state.watermark == MAX_MICROS and self.cold.first("event") is not None

    def touched(self) -> Touched | None:
        moved, self._moved = self._moved, []
        touched = self.inner.touched()
        return None if touched is None else [*touched, moved]

    def resident_keys(self) -> set[Any]:
        """The keys in memory."""
        return set(self._resident)

    def begin_capture(self, touched: Touched | None) -> ResidentCapture:
        """Capture the present state of these keys, or, with None, of all resident ones."""
        keys: Touched = [list(self._resident)] if touched is None else [keys for keys in touched if keys]
        capture = ResidentCapture(self, keys, full=touched is None)
        if sum(map(len, keys)) <= MAX_SYNCHRONOUS:
            capture.copy_all(keys)
        else:
            self.capture = capture
        return capture

    def outdated(self, keys: Collection[Any]) -> list[Any]:
        """The resident ones among these keys for which the store has an earlier state."""
        if not self._stored:
            return []
        return [key for key in keys if key in self._stored]


RESIDENT: Final = "awake"
"""The table of a captured snapshot that lists resident keys for which the store has an earlier state.

The snapshot replaces that state, even if a key has none any more. A key is listed once, when it has been loaded, and
its listing counts until the key is spilled.
"""


class ResidentCapture:
    """The state of resident keys at one instant, copied in pieces while the operator continues (copy on write).

    A key's state is copied when its piece is made or before the key changes, whichever comes first. Each piece is an
    incremental snapshot, to be laid over an earlier one; of a `full` capture, over one without keys.
    """

    def __init__(self, operator: TieredOperator, keys: Touched, *, full: bool) -> None:
        self._operator = operator
        self._full = full
        self._keys = chain.from_iterable(keys)
        self._seen: set[Any] = set()
        self._copied: list[KeyedState] = []
        self._done = False

    def copy(self, keys: Iterable[Any]) -> None:
        """Copy these keys unless they have been copied. Keys that are not part of the capture do no harm."""
        new = dict.fromkeys(filterfalse(self._seen.__contains__, keys))
        if new:
            self._seen.update(new)
            self._copy(new)

    def copy_all(self, keys: Touched) -> None:
        """Copy all keys now."""
        if keys:
            self._copy(distinct(keys))
        self._done = True

    def _copy(self, keys: Collection[Any]) -> None:
        state = self._operator.inner.snapshot(keys)
        assert state.keys is not None
        outdated = self._operator.outdated(state.keys)
        if outdated:
            state.tables[RESIDENT] = {None: dict.fromkeys(outdated, True)}
        if self._full:
            state.keys = ()
        self._copied.append(state)

    def copy_rest(self) -> None:
        """Copy all keys that have not been copied."""
        if not self._done:
            self.copy(dict.fromkeys(self._keys))
            self.stop()

    def pieces(self) -> Iterator[KeyedState | None]:
        """The pieces. None after a batch of keys that had all been copied already, to return control to the caller."""
        while True:
            while self._copied:
                yield self._copied.pop()
            if self._done:
                return
            batch = list(islice(self._keys, _COPY_BATCH))
            if not batch:
                self.stop()
                return
            self.copy(batch)
            if not self._copied:
                yield None

    def stop(self) -> None:
        """Copy no more keys: all have been copied, or the capture is aborted."""
        self._done = True
        if self._operator.capture is self:
            self._operator.capture = None


def known_keys(state: KeyedState) -> set[Any]:
    """The keys whose state a restored snapshot has, or lists as `RESIDENT`; removes that table from it."""
    known = set(by_keys(state))
    state.tables.pop(RESIDENT, None)
    return known


_COPY_BATCH: Final = 8_192


def by_keys(state: KeyedState) -> dict[Any, list[tuple[str, Any, Any]]]:
    """The entries of each key: (table, window, stored value).

    >>> by_keys(KeyedState({"sum": {None: {"a": 1}}, "last": {None: {"a": 9, "b": 7}}}))
    {'a': [('sum', None, 1), ('last', None, 9)], 'b': [('last', None, 7)]}
    """
    found: dict[Any, list[tuple[str, Any, Any]]] = {}
    for name, tables in state.tables.items():
        for window, table in tables.items():
            for key, stored in table.items():
                found.setdefault(key, []).append((name, window, stored))
    return found

"""State that exceeds memory: the keys used last are in an operator's own tables, the others in a store, as bytes.

The keys of a block are loaded before the block, all at once; when memory is full, the keys used least recently are
spilled, many at once. A key in the store is loaded again when an element arrives for it, or when the watermark or
processing time reaches one of its wakeups, which the store indexes. Where one event wakes more keys than fit into
memory, they are processed in batches, each as if it were a task of its own, in the order of the store.
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
"""A key, its state (None: it has none), and when it has work to do again (None: never)."""

BATCH: Final = 16_384
"""How many keys are woken, written or spilled at a time."""
AT_ONCE: Final = 200_000
"""The most keys that are looked up while the stream waits; looking them up little by little would cost more in all."""
_SAMPLE: Final = 32


class ColdStore(Protocol):
    """The keys of one operator that are not in memory. `save` replaces a key's state and its wakeups."""

    def load(self, keys: Sequence[Any]) -> list[bytes | None]:
        """The state of each key. Their wakeups no longer count: the keys are in memory now."""

    def save(self, records: Iterable[Record]) -> None: ...

    def due(self, which: Which, until: int, limit: int) -> list[Any]:
        """At most `limit` keys with a wakeup up to `until`, the earliest first."""

    def first(self, which: Which) -> int | None:
        """The earliest wakeup of any key."""

    def scan(self) -> Iterator[tuple[Any, bytes]]:
        """Every key and its state; keys in memory have the state with which they were loaded."""


class TieredOperator(Operator):
    """An operator with keyed state, of which at most `budget` bytes are in memory."""

    def __init__(self, inner: KeyedOperator, cold: ColdStore, budget: int) -> None:
        self.inner = inner
        self.cold = cold
        self._budget = budget
        self._used: dict[Any, int] = {}
        """The keys in memory, and the block in which each was used last."""
        self._stored: set[Any] = set()
        """The keys in memory of which the store has a (possibly outdated) state."""
        self._block = 0
        self._per_key = 500
        self._moved: list[Any] = []
        """Keys that were loaded or spilled and have not been reported by `touched` yet."""
        self.taking: Taking | None = None
        """The capture that is still reading the state of some keys as of an instant; None if there is none."""
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
            yield from self.inner.process(block, collection)  # which knows how to say what is wrong
            return
        self._block += 1
        self._about_to_change(keys)
        self.load([key for key in keys if key not in self._used])
        self._used.update(dict.fromkeys(keys, self._block))
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
        held = self.cold.first("hold")
        return self.inner.hold() if held is None else min(held, self.inner.hold())

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
        before_all = self.inner.snapshot(())
        self.spill(list(self._used))
        while due := self.cold.due(which, micros, BATCH):
            self.load(due, before_all)
            yield from event(micros)
            self.spill(list(self._used))
            if self.inner.paused:
                return

    def _reaches(self, which: Which, micros: int) -> bool:
        """Whether an event may change the state of a key in memory."""
        if which == "event":
            return self.inner.next_event() <= micros
        at = self.inner.next_clock()
        return at is not None and at <= micros

    def _about_to_change(self, keys: Collection[Any] | None) -> None:
        """The next event may change these keys (None: any): a running capture reads them first."""
        if self.taking is not None:
            if keys is None:
                self.taking.take_rest()
            else:
                self.taking.take(keys)

    # -- keys in memory

    def load(self, keys: Sequence[Any], as_of: KeyedState | None = None) -> None:
        """Load keys into the operator, which is as it is now or as of an earlier snapshot."""
        state = as_of if as_of is not None else self.inner.snapshot(())
        tables: dict[str, dict[Any, dict[Any, Any]]] = {name: {} for name in state.tables}
        for key, data in zip(keys, self.cold.load(keys), strict=True):
            if data is None:
                continue
            for name, window, stored in pickle.loads(data)[1]:
                tables[name].setdefault(window, {})[key] = stored
            self._stored.add(key)
            self._moved.append(key)
        self._used.update(dict.fromkeys(keys, self._block))
        state.tables = tables
        self.inner.restore(state)

    def spill(self, keys: Sequence[Any]) -> None:
        """Move keys out of memory; their state is stored if it has changed."""
        for start in range(0, len(keys), BATCH):
            batch = keys[start : start + BATCH]
            self._about_to_change(batch)
            self._moved += batch
            self.cold.save(self._records(batch))
            self.inner.evict(batch)
            for key in batch:
                del self._used[key]
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
        if len(self._used) * self._per_key <= self._budget:
            return
        self._measure()
        over = len(self._used) - self._budget // self._per_key
        if over <= 0:
            return
        # The keys used least recently, and considerably more of them than have to be spilled.
        wanted = min(len(self._used), over + self._budget // self._per_key // 8)
        oldest = sorted(self._used, key=self._used.__getitem__)
        self.spill(oldest[:wanted])

    def _measure(self) -> None:
        """About how much a key takes, from some of them."""
        sample = list(islice(reversed(self._used), _SAMPLE))
        entries = by_keys(self.inner.snapshot(sample))
        sizes = [deep_size(key) + deep_size(entries.get(key)) + 4 * TABLE_ENTRY for key in sample]
        self._per_key = max(100, sum(sizes) // max(1, len(sizes)))

    # -- state

    @contextmanager
    def without_keys(self) -> Iterator[None]:
        """Inside, a snapshot of this, or of an operator around it, has nothing by key: `taking` looks that up."""
        self._without_keys = True
        try:
            yield
        finally:
            self._without_keys = False

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        """All state, in memory; of `keys`, what is in the operator."""
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
            if key not in self._used:
                for name, window, stored in pickle.loads(data)[1]:
                    all_tables[name].setdefault(window, {})[key] = stored
        return replace(state, tables=all_tables)

    def restore(self, state: KeyedState) -> None:
        """Into the store, with what it may have of the same keys; memory fills as keys are used."""
        self.inner.restore(replace(state, tables={name: {} for name in state.tables}))
        coming = iter(by_keys(state).items())
        while batch := dict(islice(coming, BATCH)):
            known = [() if data is None else pickle.loads(data)[1] for data in self.cold.load(list(batch))]
            whole = replace(state, tables={name: {} for name in state.tables})
            for (key, entries), before in zip(batch.items(), known, strict=True):
                for name, window, stored in (*before, *entries):
                    whole.tables.setdefault(name, {}).setdefault(window, {})[key] = stored
            instants = self.inner.wakeups(whole)
            self.cold.save((key, dumps((key, entries)), instants.get(key)) for key, entries in by_keys(whole).items())
        self._pending_at_end = state.watermark == MAX_MICROS and self.cold.first("event") is not None

    def touched(self) -> Touched | None:
        moved, self._moved = self._moved, []
        noted = self.inner.touched()
        return None if noted is None else [*noted, moved]

    def awake(self) -> set[Any]:
        """The keys in memory."""
        return set(self._used)

    def begin_taking(self, runs: Touched | None) -> Taking:
        """Have the state of these keys looked up as it is now; None: of all that are in memory."""
        everything = runs is None
        runs = [list(self._used)] if runs is None else [run for run in runs if run]
        taking = Taking(self, runs, everything=everything)
        if sum(map(len, runs)) <= AT_ONCE:
            taking.take_at_once(runs)
        else:
            self.taking = taking
        return taking

    def outdated(self, keys: Collection[Any]) -> list[Any]:
        """Of which of these keys the store has what they had before they came into memory."""
        if not self._stored:
            return []
        return [key for key in keys if key in self._stored]


AWAKE: Final = "awake"
"""The table, in what is taken, of keys that are in memory while the store has an earlier state of them: what they have
is what is taken, be it nothing. Each that comes into memory is told once, and stays in it until it leaves."""


class Taking:
    """The state of some keys as it was at an instant, looked up a little at a time, while the operator goes on.

    What is about to change is looked up before it does. As snapshots to be laid over one that may have had any of these
    keys; or, of `everything`, over one that has no keys at all.
    """

    def __init__(self, paged: TieredOperator, runs: Touched, *, everything: bool) -> None:
        self._paged = paged
        self._everything = everything
        self._keys = chain.from_iterable(runs)
        self._seen: set[Any] = set()
        self._taken: list[KeyedState] = []
        self._over = False

    def take(self, keys: Iterable[Any]) -> None:
        """Look these up now, if they have not been: also some that nobody asked for, which does no harm."""
        fresh = dict.fromkeys(filterfalse(self._seen.__contains__, keys))
        if fresh:
            self._seen.update(fresh)
            self._take(fresh)

    def take_at_once(self, runs: Touched) -> None:
        """Look up all there are."""
        if runs:
            self._take(distinct(runs))
        self._over = True

    def _take(self, keys: Collection[Any]) -> None:
        state = self._paged.inner.snapshot(keys)
        assert state.keys is not None
        outdated = self._paged.outdated(state.keys)
        if outdated:
            state.tables[AWAKE] = {None: dict.fromkeys(outdated, True)}
        if self._everything:
            state.keys = ()
        self._taken.append(state)

    def take_rest(self) -> None:
        """Look up all that is left."""
        if not self._over:
            self.take(dict.fromkeys(self._keys))
            self.give_up()

    def pieces(self) -> Iterator[KeyedState | None]:
        """What has been looked up, and then the rest; None where there was nothing new among as many keys as are looked
        at in one go."""
        while True:
            while self._taken:
                yield self._taken.pop()
            if self._over:
                return
            some = list(islice(self._keys, _LOOKED_AT))
            if not some:
                self.give_up()
                return
            self.take(some)
            if not self._taken:
                yield None

    def give_up(self) -> None:
        """Nothing more is to be looked up."""
        self._over = True
        if self._paged.taking is self:
            self._paged.taking = None


def known_keys(state: KeyedState) -> set[Any]:
    """The keys of which a state says what they have, be it nothing; from now on it says nothing of the latter."""
    known = set(by_keys(state))
    state.tables.pop(AWAKE, None)
    return known


_LOOKED_AT: Final = 8_192


def by_keys(state: KeyedState) -> dict[Any, list[tuple[str, Any, Any]]]:
    """(table, window, what is stored) of each key."""
    found: dict[Any, list[tuple[str, Any, Any]]] = {}
    for name, tables in state.tables.items():
        for window, table in tables.items():
            for key, stored in table.items():
                found.setdefault(key, []).append((name, window, stored))
    return found

"""Sessions of a stream, fired by the watermark: groupings that emit one pane per session, on time.

A watermark visits only keys that may have a session that has ended. Each key has a wakeup at the end of its earliest
session; if that session has grown since, the key gets another wakeup. An element is late if its own session has ended
and overlaps no session of its key (SEMANTICS, Lateness).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

from tidegate.runners.engine.grouping.sessions.columns import SessionColumns
from tidegate.runners.engine.grouping.sessions.counts import count_sessions
from tidegate.runners.engine.grouping.sessions.key_sessions import KeySessions, Session
from tidegate.runners.engine.grouping.sessions.table import SessionTable
from tidegate.runners.engine.operator import NEVER, Context, Emitted, KeyedOperator, Wakeups
from tidegate.runners.engine.state.copy_on_write import CopyOnWrite
from tidegate.runners.engine.state.key_wakeups import KeyWakeups
from tidegate.runners.engine.state.keyed_state import CELLS, KeyedState, Touched, TouchedKeys, first_of, without
from tidegate.runners.plan import Phase
from tidegate.sdk.data.block import Block, DerivedFrom
from tidegate.sdk.data.keys import check_key
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey
from tidegate.sdk.time import MAX_MICROS, Duration
from tidegate.sdk.windowing.assigners import Sessions
from tidegate.sdk.windowing.strategy import WindowingStrategy

_SECOND: Final = 1_000_000
_BUCKETS_PER_GAP: Final = 16
"""How many buckets of wakeups a gap is divided into."""
_MAX_BUFFERED: Final = 1 << 18
"""How many times are buffered at most: a snapshot has to wait until all have been added to sessions."""
_MIN_TIMES_PER_KEY: Final = 4
"""How many times per key make buffering cheaper than adding each element to its session at once."""
_BLOCKS_UNBUFFERED: Final = 64
"""How many blocks are added at once before buffering is tried again."""


class StreamingSessions(SessionTable, KeyedOperator):
    """Groups or combines a stream per key and session, without allowed lateness.

    Where elements are only counted, their times are buffered until there are many, or until a session may have ended,
    and are then added to sessions together.
    """

    def __init__(
        self,
        node: GroupByKey | CombinePerKey,
        phase: Phase,
        strategy: WindowingStrategy,
        context: Context,
        main: str,
    ) -> None:
        super().__init__(node, phase, strategy, context, main)
        self._touches = TouchedKeys()
        self._copies: Final = CopyOnWrite()
        match strategy.assigner:
            case Sessions(gap=Duration(micros=gap)):
                self._wakeups = KeyWakeups(gap // _BUCKETS_PER_GAP)
            case _:
                self._wakeups = KeyWakeups(_SECOND)
        self._buffered = self._unbuffered_blocks = 0
        self._restored = False
        self._first_end = NEVER
        """The earliest end of the session of a buffered time."""

    # -- in

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        self.exchange_check.check(block)
        if self._copies.active:
            self._copies.copy(self.keys_of(block))
        if not self._buffer(block):
            self._flush_buffer()
            self._add_elements(block)
        if self._touches.on:
            self._touches.note(self.keys_of(block))
        return iter(())

    def keys_of(self, block: Block) -> Iterable[Any]:
        return block.values if self.key == "element" else map(first_of, self.pairs(block))

    def _buffer(self, block: Block) -> bool:
        """Buffer the times of a block if its elements are only counted and none can be late; return whether it did."""
        match block.windows:
            case DerivedFrom(Sessions(gap=Duration(micros=gap))) if self.counts and self.context.checks is None:
                if self._unbuffered_blocks:
                    self._unbuffered_blocks -= 1
                    return False
                first = block.timestamps if isinstance(block.timestamps, int) else min(block.timestamps, default=0)
                end = min(first + gap, MAX_MICROS)
                if end <= self.watermark:
                    return False
                self._gap = gap
                self._first_end = min(self._first_end, end)
                self._add_times(block)
                self._buffered += len(block)
                if self._buffered > _MAX_BUFFERED:
                    self._flush_buffer()
                return True
            case _:
                return False

    def _flush_buffer(self) -> None:
        """Add the buffered times to sessions."""
        times, n = self._drain_buffer()
        if n < _MIN_TIMES_PER_KEY * len(times):
            self._unbuffered_blocks = _BLOCKS_UNBUFFERED
        for k, stamps in times.items():
            self._add_stamps(k, stamps)

    def _drain_buffer(self) -> tuple[dict[Any, list[int]], int]:
        """Remove the buffered times, and return them by key, and how many there are."""
        drained = self._times, self._buffered
        self._times, self._buffered, self._first_end = defaultdict(list), 0, NEVER
        return drained

    def _add_stamps(self, k: Any, stamps: list[int]) -> None:
        spans: Iterable[tuple[int, int, int]]
        if len(stamps) == 1:
            (t,) = stamps
            spans = ((t, min(t + self._gap, MAX_MICROS), 1),)
        else:
            ends, starts, _, counts = count_sessions({k: stamps}, self._gap)
            spans = zip(starts, ends, counts, strict=True)
        for start, end, n in spans:
            sessions = self._table.get(k)
            if sessions is not None and sessions.start <= start < sessions.end:
                sessions.contents += n
                if end > sessions.end:
                    sessions.end = end
            else:
                self._add_session(k, sessions, start, end, n)

    def _add_session(self, k: Any, sessions: KeySessions | None, start: int, end: int, contents: Any) -> None:
        if sessions is None and self.context.checks is not None:
            check_key(k)
        super()._add_session(k, sessions, start, end, contents)
        self._wakeups.set(k, end)

    # -- out

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        if micros <= self.watermark:
            return iter(())
        self.watermark = micros
        if micros == MAX_MICROS:
            return self._emit(self._drain_all())
        if micros >= self._first_end:
            self._flush_buffer()
        return self._emit(self._drain_ended(self._wakeups.pop_until(micros)))

    def _drain_all(self) -> SessionColumns:
        """Remove and return all sessions, keys by first arrival."""
        if not self._table:
            times, _ = self._drain_buffer()
            return count_sessions(times, self._gap)
        self._flush_buffer()
        if self._copies.active:
            self._copies.copy(self._table)
        if self._touches.on:
            self._touches.note(list(self._table))
        self._wakeups.clear()
        if self._restored:
            self._table = dict(sorted(self._table.items(), key=lambda entry: entry[1].number))
        return self._drain()

    def _drain_ended(self, keys: Sequence[Any]) -> SessionColumns:
        """Remove and return the sessions of these keys that have ended, keys by first arrival."""
        ended: list[tuple[int, Any, list[Session]]] = []
        if self._copies.active:
            self._copies.copy(keys)
        for k in keys:
            stamps = self._times.pop(k, None)
            if stamps is not None:
                self._buffered -= len(stamps)
                self._add_stamps(k, stamps)
            sessions = self._table[k]
            if sessions.end <= self.watermark:
                ended.append((sessions.number, k, sessions.to_list()))
                del self._table[k]
                self._wakeups.remove(k)
            else:
                older = sessions.pop_older(self.watermark)
                self._wakeups.set(k, sessions.first_end)
                if older:
                    ended.append((sessions.number, k, older))
        if not ended:
            return SessionColumns()
        if self._touches.on:
            self._touches.note([k for _, k, _ in ended])
        ended.sort(key=itemgetter(0))
        rows = [(end, start, k, contents) for _, k, of in ended for start, end, contents in of]
        return SessionColumns(*zip(*rows, strict=True))

    def finish(self) -> Iterator[Emitted]:
        return self.on_watermark(MAX_MICROS)

    # -- state by key

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        """By key its number, and (start, end, contents) of its sessions."""
        if keys is None or keys:
            self._flush_buffer()
        cells = self._copies.of_keys(self._table, keys, self._saved)
        return KeyedState(
            {CELLS: {None: cells}},
            self.watermark,
            serials={"arrivals": self._arrivals, "keys": self._keys},
            keys=keys,
        )

    def _saved(self, sessions: KeySessions) -> tuple[int, list[Session]]:
        copy = self._copy
        return sessions.number, [(start, end, copy(contents)) for start, end, contents in sessions.to_list()]

    def restore(self, state: KeyedState) -> None:
        self.watermark = state.watermark
        self._restored = True
        self._arrivals = max(self._arrivals, state.serials["arrivals"])
        self._keys = max(self._keys, state.serials["keys"])
        for k, (number, saved) in state.tables[CELLS].get(None, {}).items():
            copies = [(start, end, self._copy(contents)) for start, end, contents in saved]
            sessions = self._table[k] = KeySessions.of(copies, number)
            self._wakeups.set(k, sessions.first_end)

    @property
    def copies(self) -> CopyOnWrite:
        return self._copies

    def touched(self) -> Touched | None:
        return self._touches.take()

    def evict(self, keys: Collection[Any]) -> None:
        without(self._table, keys)
        for k in keys:
            self._wakeups.remove(k)

    def wakeups(self, state: KeyedState) -> dict[Any, Wakeups]:
        cells = state.tables[CELLS].get(None, {})
        return {k: Wakeups(sessions[0][1], NEVER, MAX_MICROS) for k, (_, sessions) in cells.items()}

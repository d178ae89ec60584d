"""Sessions of a stream, fired by the watermark: groupings that emit one pane per session, on time.

The watermark looks only at keys that have a session which may be over: each is filed under the end of its earliest
session as it was then, and again under what has become of it. An element is late if it overlaps no session that
stands, and its own has ended (SEMANTICS, Lateness).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

from tidegate.runners.engine.grouping.sessions.table import Columns, Session, SessionTable, counted
from tidegate.runners.engine.operator import NEVER, Context, Emitted, KeyedOperator, Wakeups
from tidegate.runners.engine.state.key_wakeups import KeyWakeups
from tidegate.runners.engine.state.keyed_state import (
    CELLS,
    KeyedState,
    Touched,
    TouchedKeys,
    first_of,
    of_keys,
    without,
)
from tidegate.runners.plan import Phase
from tidegate.sdk.data.block import Block, DerivedFrom
from tidegate.sdk.data.keys import check_key
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey
from tidegate.sdk.time import MAX_MICROS, Duration
from tidegate.sdk.windowing.assigners import Sessions
from tidegate.sdk.windowing.strategy import WindowingStrategy

_SECOND: Final = 1_000_000
_PER_GAP: Final = 16
"""Into how many parts a gap is divided, to file keys by."""
_WAITING: Final = 1 << 18
"""How many times wait at most to be put into sessions: this long, a snapshot waits too."""
_PAYS: Final = 4
"""How many times of a key must have waited together, lest it is cheaper to put each into its session at once."""
_STRAIGHT: Final = 64
"""For how many blocks that is done, before it is tried again."""
_end: Final = itemgetter(1)
_number: Final = itemgetter(4)
"""Of a key that has these sessions, or one of them."""


class StreamingSessions(SessionTable, KeyedOperator):
    """Groups or combines a stream per key and session; it has no allowed lateness.

    Where elements are only counted, times wait until they are many, or a session may be over, and are then put into
    sessions together.
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
        match strategy.assigner:
            case Sessions(gap=Duration(micros=gap)):
                self._due = KeyWakeups(gap // _PER_GAP)
            case _:
                self._due = KeyWakeups(_SECOND)
        self._waiting = self._straight = 0
        self._restored = False
        self._first_end = NEVER
        """The earliest end of an element whose time waits."""

    # -- in

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        self.exchange_check.check(block)
        if not self._waits(block):
            self._put_in()
            self._take_in(block)
        if self._touches.on:
            self._touches.note(self.keys_of(block))
        return iter(())

    def keys_of(self, block: Block) -> Iterable[Any]:
        return block.values if self.key == "element" else map(first_of, self.pairs(block))

    def _waits(self, block: Block) -> bool:
        """Let the times of a block wait, if that is all that counts and no element can be late."""
        match block.windows:
            case DerivedFrom(Sessions(gap=Duration(micros=gap))) if self.counts and self.context.checks is None:
                if self._straight:
                    self._straight -= 1
                    return False
                first = block.timestamps if isinstance(block.timestamps, int) else min(block.timestamps, default=0)
                end = min(first + gap, MAX_MICROS)
                if end <= self.watermark:
                    return False
                self._gap = gap
                self._first_end = min(self._first_end, end)
                self._take_times(block)
                self._waiting += len(block)
                if self._waiting > _WAITING:
                    self._put_in()
                return True
            case _:
                return False

    def _put_in(self) -> None:
        """Put what waits into sessions."""
        times, waited = self._taken()
        if waited < _PAYS * len(times):
            self._straight = _STRAIGHT
        for k, stamps in times.items():
            self._put_in_key(k, stamps)

    def _taken(self) -> tuple[dict[Any, list[int]], int]:
        """What waits, and how many times these are; nothing does any longer."""
        taken = self._times, self._waiting
        self._times, self._waiting, self._first_end = defaultdict(list), 0, NEVER
        return taken

    def _put_in_key(self, k: Any, stamps: list[int]) -> None:
        spans: Iterable[tuple[int, int, int]]
        if len(stamps) == 1:
            (t,) = stamps
            spans = ((t, min(t + self._gap, MAX_MICROS), 1),)
        else:
            ends, starts, _, counts = counted({k: stamps}, self._gap)
            spans = zip(starts, ends, counts, strict=True)
        for start, end, n in spans:
            newest = self._table.get(k)
            if newest is not None and newest[0] <= start < newest[1]:
                newest[2] += n
                if end > newest[1]:
                    newest[1] = end
            else:
                self._place(k, newest, start, end, n)

    def _place(self, k: Any, newest: Session | None, start: int, end: int, held: Any) -> None:
        if newest is None and self.context.checks is not None:
            check_key(k)
        super()._place(k, newest, start, end, held)
        self._due.set(k, end)

    # -- out

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        if micros <= self.watermark:
            return iter(())
        self.watermark = micros
        if micros == MAX_MICROS:
            return self._in_order(self._rest())
        if micros >= self._first_end:
            self._put_in()
        return self._in_order(self._over(self._due.passed(micros)))

    def _rest(self) -> Columns:
        """All sessions, keys by first arrival."""
        if not self._table:
            times, _ = self._taken()
            return counted(times, self._gap)
        self._put_in()
        if self._touches.on:
            self._touches.note(list(self._table))
        self._due.forget_all()
        if self._restored:
            self._table = dict(sorted(self._table.items(), key=lambda entry: _number(entry[1])))
        return self._columns()

    def _over(self, keys: Sequence[Any]) -> Columns:
        """The sessions of these keys that have ended, keys by first arrival."""
        table, watermark = self._table, self.watermark
        found = []
        changed = []
        for k in keys:
            stamps = self._times.pop(k, None)
            if stamps is not None:
                self._waiting -= len(stamps)
                self._put_in_key(k, stamps)
            newest = table[k]
            start, end, held, older, number = newest
            if end <= watermark:
                found += [(past, first, k, part, number) for first, past, part in older]
                found.append((end, start, k, held, number))
                del table[k]
                self._due.forget(k)
            else:
                n = bisect_right(older, watermark, key=_end)
                found += [(past, first, k, part, number) for first, past, part in older[:n]]
                del older[:n]
                self._due.set(k, older[0][1] if older else end)
                if not n:
                    continue
            changed.append(k)
        if not found:
            return (), (), (), ()
        if self._touches.on:
            self._touches.note(changed)
        found.sort(key=_number)
        ends, starts, of, what, _ = zip(*found, strict=True)
        return ends, starts, of, what

    def finish(self) -> Iterator[Emitted]:
        return self.on_watermark(MAX_MICROS)

    # -- state by key

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        """By key its number, and (start, end, held) of its sessions."""
        if keys is None or keys:
            self._put_in()
        cells = of_keys(self._table, keys, self._saved)
        return KeyedState(
            {CELLS: {None: cells}},
            self.watermark,
            serials={"arrivals": self._arrivals, "keys": self._keys},
            keys=keys,
        )

    def _saved(self, newest: Session) -> tuple[int, list[tuple[int, int, Any]]]:
        start, end, held, older, number = newest
        copied = self._copied
        if not older:
            return number, [(start, end, copied(held))]
        return number, [(*bounds, copied(part)) for *bounds, part in (*older, (start, end, held))]

    def restore(self, state: KeyedState) -> None:
        self.watermark = state.watermark
        self._restored = True
        self._arrivals = max(self._arrivals, state.serials["arrivals"])
        self._keys = max(self._keys, state.serials["keys"])
        for k, (number, sessions) in state.tables[CELLS].get(None, {}).items():
            *older, (start, end, held) = [(first, past, self._copied(part)) for first, past, part in sessions]
            self._table[k] = [start, end, held, older, number]
            self._due.set(k, older[0][1] if older else end)

    def touched(self) -> Touched | None:
        return self._touches.take()

    def evict(self, keys: Collection[Any]) -> None:
        without(self._table, keys)
        for k in keys:
            self._due.forget(k)

    def wakeups(self, state: KeyedState) -> dict[Any, Wakeups]:
        cells = state.tables[CELLS].get(None, {})
        return {k: Wakeups(sessions[0][1], NEVER, MAX_MICROS) for k, (_, sessions) in cells.items()}

"""Sessions of bounded input: one pane per session, at the end; so no trigger and no timer is needed.

What does not fit in memory meanwhile is on disk. Sessions may be combined in parts before an exchange.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice, repeat
from operator import lt
from typing import Any, Final

from tidegate.runners.engine.grouping.sessions.counts import SessionTimes, by_key
from tidegate.runners.engine.grouping.sessions.table import Columns, SessionTable, counted
from tidegate.runners.engine.memory.external_sort import GroupedEntries, sorted_entries
from tidegate.runners.engine.memory.gauge import SAMPLE, MemoryGauge, mean_size, oldest_and_newest
from tidegate.runners.engine.memory.sizing import LIST, TABLE_ENTRY, deep_size
from tidegate.runners.engine.operator import Context, Emitted
from tidegate.runners.engine.state.keyed_state import CELLS, KeyedState
from tidegate.runners.plan import Phase
from tidegate.sdk.data.block import Block, DerivedFrom
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey
from tidegate.sdk.time import MAX_MICROS, Duration
from tidegate.sdk.windowing.assigners import Sessions
from tidegate.sdk.windowing.strategy import WindowingStrategy

_TIME: Final = 41
"""About what the time of one element costs (bytes)."""
_SESSION: Final = 220
"""About what one session costs beside what it holds (bytes)."""


class BatchSessions(SessionTable):
    """Groups or combines bounded input per key and session.

    Where elements are only counted, nothing but their times is kept until the end. Parts that are combined before an
    exchange are `(key, (starts, ends, what each holds))` of all sessions of a key, without it where there is none.
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
        self._gauge = MemoryGauge(context.memory_budget, estimate=self._estimate, sample=self._measure)
        self._gathered_arrivals = 0
        self._key_size = self._held_size = 0
        self._numbered = SessionTimes.at_hand() if self.counts else None
        self._gathered = GroupedEntries(node.label, node.where, context)

    # -- in

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        self.exchange_check.check(block)
        if self.accumulation.phase == "merge":
            self._take_parts(block)
            return iter(())
        match block.windows:
            case DerivedFrom(Sessions(gap=Duration(micros=gap))) if self.counts and not self._table:
                self._gap = gap
                self._take_times(block)
            case _:
                self._place_times()
                self._take_in(block)
        if self._gauge.block_added():
            self._gather()
            self._gathered.spill()
        return iter(())

    def _take_parts(self, block: Block) -> None:
        """Sessions of parts of the input, to be merged when all are there."""
        table = self._gathered.table
        for element in block.values:
            k, (starts, ends, held) = (None, element) if self.key == "none" else element
            sessions = zip(starts, ends, held, strict=True)
            known = table.get(k)
            if known is None:
                table[k] = list(sessions)
            else:
                known += sessions
        self._gathered.block_added(large=True)

    def _put_times(self, keys: Sequence[Any], stamps: Sequence[int]) -> None:
        if self._numbered is None:
            super()._put_times(keys, stamps)
        else:
            self._numbered.take(keys, stamps)

    @property
    def _timed(self) -> dict[Any, Any]:
        """The keys whose times are kept, by first arrival."""
        return self._times if self._numbered is None else self._numbered.numbers

    def _cut(self) -> Iterator[tuple[Any, Sequence[int], Sequence[int], Sequence[Any]]]:
        """Every key with the starts and ends of the sessions that its times make, and how many are in each; no times
        are kept any longer."""
        found = self._sorted_times()
        if found is not None:
            yield from by_key(*found)
            return
        for k, stamps in self._taken_times().items():
            ends, starts, _, counts = counted({k: stamps}, self._gap)
            yield k, starts, ends, counts

    def _sorted_times(self) -> tuple[list[int], Columns] | None:
        """What `SessionTimes.sessions` makes of all times, if they are kept there and it can."""
        numbered = self._numbered
        return numbered.sessions(self._gap) if numbered is not None and numbered.numbers else None

    def _taken_times(self) -> dict[Any, list[int]]:
        """All times by key, wherever they are kept; none are any longer."""
        if self._numbered is not None:
            return self._numbered.drain()
        times, self._times = self._times, defaultdict(list)
        return times

    def _place_times(self) -> None:
        """Make sessions of the times so far: what comes now brings sessions of its own."""
        for k, starts, ends, counts in self._cut():
            self._sessions += len(ends)
            older = list(zip(starts[:-1], ends[:-1], counts[:-1], strict=True))
            self._table[k] = [starts[-1], ends[-1], counts[-1], older, self._keys]
            self._keys += 1

    # -- memory

    def _estimate(self) -> int:
        if self._timed:
            held = self._arrivals - self._gathered_arrivals
            return len(self._timed) * (TABLE_ENTRY + LIST + self._key_size) + held * _TIME
        held = self._arrivals - self._gathered_arrivals if self.lists else self._sessions
        keys = len(self._table) * (TABLE_ENTRY + LIST + self._key_size)
        return keys + self._sessions * _SESSION + held * self._held_size

    def _measure(self) -> None:
        if self._timed:
            self._key_size = mean_size((*islice(self._timed, SAMPLE), *islice(reversed(self._timed), SAMPLE)))
        sample = oldest_and_newest(self._table)
        if sample:
            held = [deep_size(session[2]) // (len(session[2]) if self.lists else 1) for _, session in sample]
            self._key_size = mean_size(key for key, _ in sample)
            self._held_size = sum(held) // len(held)

    def _gather(self) -> None:
        """Hand all sessions over to where they can be spilled from; they go on merging when they are read back."""
        for k, newest in self._table.items():
            self._gathered.table.setdefault(k, []).extend((*newest[3], tuple(newest[:3])))
        for k, starts, ends, counts in self._cut():
            self._gathered.table.setdefault(k, []).extend(zip(starts, ends, counts, strict=True))
        self._table = {}
        self._sessions = 0
        self._gathered_arrivals = self._arrivals

    def finish_bundle(self) -> Iterator[Emitted]:
        """Parts leave before any snapshot: a key's may be in several tasks."""
        if self.accumulation.phase == "parts":
            yield from self._emit_parts()
            self._sessions = 0

    # -- state by key

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        """By key (start, end, held) of its sessions so far; some may have to be merged yet."""
        self._place_times()
        gathered = self._gathered.entries()
        sessions = {
            k: [(start, end, self._copied(held)) for start, end, held in entries] for k, entries in gathered.items()
        }
        for k, newest in self._table.items():
            own = [(start, end, self._copied(held)) for start, end, held in (*newest[3], newest[:3])]
            sessions[k] = sessions.get(k, []) + own
        return KeyedState({CELLS: {None: sessions}}, serials={"arrivals": self._arrivals})

    def restore(self, state: KeyedState) -> None:
        self._arrivals = state.serials["arrivals"]
        for k, sessions in state.tables[CELLS].get(None, {}).items():
            for start, end, held in sessions:
                newest = self._table.get(k)
                if newest is not None and newest[0] <= start < newest[1]:
                    newest[1:3] = max(end, newest[1]), self._both(newest[2], self._copied(held))
                else:
                    self._place(k, newest, start, end, self._copied(held))

    # -- out

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        if micros == MAX_MICROS:
            yield from self.finish()

    def finish(self) -> Iterator[Emitted]:
        if self.accumulation.phase == "parts":
            return self._emit_parts()
        if self.accumulation.phase == "merge" or self._gathered.spilled:
            return self._emit_by_key()
        return self._in_order(self._columns())

    def _emit_parts(self) -> Iterator[Emitted]:
        """Every key with its sessions so far, as `_take_parts` has them."""
        size = self.context.block_size
        values: list[Any] = []
        n = 0
        for k, starts, ends, held in self._by_key():
            columns = starts, ends, self._results([k] * len(held), held)
            for at in range(0, len(starts), size):
                part = tuple(column[at : at + size] for column in columns)
                values.append(part if self.key == "none" else (k, part))
                n += len(part[0])
                if n >= size:
                    self.context.count(self.label, "elements_out", n)
                    yield self.main, Block(values)
                    values, n = [], 0
        if values:
            self.context.count(self.label, "elements_out", n)
            yield self.main, Block(values)

    def _by_key(self) -> Iterator[tuple[Any, Sequence[int], Sequence[int], Sequence[Any]]]:
        """Every key with the starts and ends of its sessions, and what they hold."""
        if self.accumulation.phase == "merge" or self._gathered.spilled:
            self._gather()
            for k, entries in self._gathered.drain():
                yield k, *self._merged(sorted_entries(entries, self.context.temp_dir))
        elif self._timed:
            yield from self._cut()
        else:
            table, self._table = self._table, {}
            for k, newest in table.items():
                since, until, held = zip(*newest[3], newest[:3], strict=True)
                yield k, since, until, held

    def _merged(self, sessions: Iterable[tuple[int, int, Any]]) -> tuple[Sequence[int], Sequence[int], Sequence[Any]]:
        """Starts, ends and contents of sessions by start, when those that overlap have become one."""
        starts, ends, held = zip(*sessions, strict=True)
        if not any(map(lt, islice(starts, 1, None), ends)):
            return starts, ends, held
        merged: list[list[Any]] = []
        for start, end, part in zip(starts, ends, held, strict=True):
            last = merged[-1] if merged else None
            if last is not None and start < last[1]:
                last[1:] = max(end, last[1]), self._both(last[2], part)
            else:
                merged.append([start, end, part])
        starts, ends, held = zip(*merged, strict=True)
        return starts, ends, held

    def _emit_by_key(self) -> Iterator[Emitted]:
        """One key's sessions after another's: where each task has some of the keys, or not all are in memory."""
        size = self.context.block_size
        keys: list[Any] = []
        starts: list[int] = []
        ends: list[int] = []
        held: list[Any] = []
        for k, *columns in self._by_key():
            keys += repeat(k, len(columns[0]))
            for whole, part in zip((starts, ends, held), columns, strict=True):
                whole += part
            while len(keys) >= size:
                yield self._block(keys[:size], starts[:size], ends[:size], held[:size])
                del keys[:size], starts[:size], ends[:size], held[:size]
        if keys:
            yield self._block(keys, starts, ends, held)

    def _columns(self) -> Columns:
        if self.context.checks is not None:
            self._gathered.check(self._timed or self._table)
        if not self._timed:
            return super()._columns()
        found = self._sorted_times()
        return counted(self._taken_times(), self._gap) if found is None else found[1]

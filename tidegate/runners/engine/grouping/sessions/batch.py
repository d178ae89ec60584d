"""Sessions of bounded input: each emits one pane at the end of input, which takes neither triggers nor timers.

Sessions that exceed the memory budget are spilled. A combine may combine sessions in parts before the exchange.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from operator import lt
from typing import Any, Final

from tidegate.runners.engine.grouping.sessions.columns import SessionColumns
from tidegate.runners.engine.grouping.sessions.counts import SessionTimes, count_sessions, split_by_key
from tidegate.runners.engine.grouping.sessions.key_sessions import KeySessions, Session
from tidegate.runners.engine.grouping.sessions.table import SessionTable
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

_TIME_SIZE: Final = 41
"""About how many bytes the time of one element takes."""
_SESSION_SIZE: Final = 220
"""About how many bytes a session takes without its contents."""


class BatchSessions(SessionTable):
    """Groups or combines bounded input per key and session.

    Sessions are in one of three places: elements that are only counted are stored as times; others in the table of
    sessions; and once that has exceeded the memory budget, or where partial results are merged, in `_spillable`, whose
    sessions merge when they are read back. A partial result is `(key, (starts, ends, contents))` of all sessions of a
    key, or only the columns for a combine without keys.
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
        self._spillable_arrivals = 0
        self._key_size = self._contents_size = 0
        self._time_arrays = SessionTimes.if_numpy() if self.counts else None
        self._spillable = GroupedEntries(node.label, node.where, context)

    # -- in

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        self.exchange_check.check(block)
        if self.accumulation.phase == "merge":
            self._add_partial_results(block)
            return iter(())
        match block.windows:
            case DerivedFrom(Sessions(gap=Duration(micros=gap))) if self.counts and not self._table:
                self._gap = gap
                self._add_times(block)
            case _:
                self._times_to_table()
                self._add_elements(block)
        if self._gauge.block_added():
            self._to_spillable()
            self._spillable.spill()
        return iter(())

    def _add_partial_results(self, block: Block) -> None:
        """Store sessions of parts of the input, to be merged when all have arrived."""
        table = self._spillable.table
        for element in block.values:
            k, (starts, ends, contents) = (None, element) if self.key == "none" else element
            sessions = zip(starts, ends, contents, strict=True)
            known = table.get(k)
            if known is None:
                table[k] = list(sessions)
            else:
                known += sessions
        self._spillable.block_added(large=True)

    def _store_times(self, keys: Sequence[Any], stamps: Sequence[int]) -> None:
        if self._time_arrays is None:
            super()._store_times(keys, stamps)
        else:
            self._time_arrays.add(keys, stamps)

    @property
    def _keys_of_times(self) -> dict[Any, Any]:
        """The keys whose times are stored, by first arrival."""
        return self._times if self._time_arrays is None else self._time_arrays.numbers

    def _drain_times(self) -> Iterator[tuple[Any, SessionColumns]]:
        """Remove all times, and return every key with the sessions that they make."""
        by_arrays = self._drain_time_arrays()
        if by_arrays is not None:
            yield from split_by_key(*by_arrays)
            return
        for k, stamps in self._drain_time_lists().items():
            yield k, count_sessions({k: stamps}, self._gap)

    def _drain_time_arrays(self) -> tuple[list[int], SessionColumns] | None:
        """As `SessionTimes.drain_sessions`; None, too, if there are no times in arrays."""
        arrays = self._time_arrays
        return arrays.drain_sessions(self._gap) if arrays is not None and arrays.numbers else None

    def _drain_time_lists(self) -> dict[Any, list[int]]:
        """Remove all times, and return them by key."""
        if self._time_arrays is not None:
            return self._time_arrays.drain()
        times, self._times = self._times, defaultdict(list)
        return times

    def _times_to_table(self) -> None:
        """Move the times to the table, as sessions: a block that brings windows of its own follows."""
        for k, (ends, starts, _, counts) in self._drain_times():
            self._sessions += len(ends)
            self._table[k] = KeySessions.of(list(zip(starts, ends, counts, strict=True)), self._keys)
            self._keys += 1

    # -- memory

    def _estimate(self) -> int:
        arrivals = self._arrivals - self._spillable_arrivals
        if times := self._keys_of_times:
            return len(times) * (TABLE_ENTRY + LIST + self._key_size) + arrivals * _TIME_SIZE
        keys = len(self._table) * (TABLE_ENTRY + LIST + self._key_size)
        contents = arrivals if self.lists else self._sessions
        return keys + self._sessions * _SESSION_SIZE + contents * self._contents_size

    def _measure(self) -> None:
        if times := self._keys_of_times:
            self._key_size = mean_size((*islice(times, SAMPLE), *islice(reversed(times), SAMPLE)))
        sample = oldest_and_newest(self._table)
        if sample:
            sizes = [deep_size(of.contents) // (len(of.contents) if self.lists else 1) for _, of in sample]
            self._key_size = mean_size(key for key, _ in sample)
            self._contents_size = sum(sizes) // len(sizes)

    def _to_spillable(self) -> None:
        """Move all sessions to `_spillable`."""
        for k, sessions in self._table.items():
            self._spillable.table.setdefault(k, []).extend(sessions.to_list())
        for k, (ends, starts, _, counts) in self._drain_times():
            self._spillable.table.setdefault(k, []).extend(zip(starts, ends, counts, strict=True))
        self._table = {}
        self._sessions = 0
        self._spillable_arrivals = self._arrivals

    def finish_bundle(self) -> Iterator[Emitted]:
        """Emit partial results before any snapshot, since several tasks may have some of the same key."""
        if self.accumulation.phase == "parts":
            yield from self._emit_partial_results()
            self._sessions = 0

    # -- state by key

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        """By key (start, end, contents) of its sessions so far, of which some may still have to merge."""
        self._times_to_table()
        sessions: dict[Any, list[Session]] = {
            k: [(start, end, self._copy(contents)) for start, end, contents in entries]
            for k, entries in self._spillable.entries().items()
        }
        for k, of in self._table.items():
            in_table = [(start, end, self._copy(contents)) for start, end, contents in of.to_list()]
            sessions[k] = sessions.get(k, []) + in_table
        return KeyedState({CELLS: {None: sessions}}, serials={"arrivals": self._arrivals})

    def restore(self, state: KeyedState) -> None:
        self._arrivals = state.serials["arrivals"]
        for k, sessions in state.tables[CELLS].get(None, {}).items():
            for start, end, contents in sessions:
                self._add_session(k, self._table.get(k), start, end, self._copy(contents))

    # -- out

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        if micros == MAX_MICROS:
            yield from self.finish()

    def finish(self) -> Iterator[Emitted]:
        if self.accumulation.phase == "parts":
            return self._emit_partial_results()
        if self.accumulation.phase == "merge" or self._spillable.spilled:
            return self._emit_by_key()
        return self._emit(self._drain())

    def _emit_partial_results(self) -> Iterator[Emitted]:
        """Every key with its sessions so far, as `_add_partial_results` receives them."""
        size = self.context.block_size
        values: list[Any] = []
        n = 0
        for k, (ends, starts, keys, contents) in self._drain_by_key():
            columns = starts, ends, self._results(keys, contents)
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

    def _drain_by_key(self) -> Iterator[tuple[Any, SessionColumns]]:
        """Remove all sessions, and return them by key."""
        if self.accumulation.phase == "merge" or self._spillable.spilled:
            self._to_spillable()
            for k, entries in self._spillable.drain():
                yield k, self._merge_overlapping(k, sorted_entries(entries, self.context.temp_dir))
        elif self._keys_of_times:
            yield from self._drain_times()
        else:
            table, self._table = self._table, {}
            for k, sessions in table.items():
                starts, ends, contents = zip(*sessions.to_list(), strict=True)
                yield k, SessionColumns(ends, starts, [k] * len(ends), contents)

    def _merge_overlapping(self, k: Any, sessions: Iterable[Session]) -> SessionColumns:
        """A key's sessions, which come by start, after those that overlap have merged."""
        starts, ends, contents = zip(*sessions, strict=True)
        if any(map(lt, islice(starts, 1, None), ends)):
            merged: list[list[Any]] = []
            for start, end, part in zip(starts, ends, contents, strict=True):
                last = merged[-1] if merged else None
                if last is not None and start < last[1]:
                    last[1:] = max(end, last[1]), self._merge(last[2], part)
                else:
                    merged.append([start, end, part])
            starts, ends, contents = zip(*merged, strict=True)
        return SessionColumns(ends, starts, [k] * len(ends), contents)

    def _emit_by_key(self) -> Iterator[Emitted]:
        """All sessions of one key after those of another: for tasks with some of the keys, and for spilled sessions."""
        size = self.context.block_size
        columns: list[list[Any]] = [[], [], [], []]
        for _, of_key in self._drain_by_key():
            for column, more in zip(columns, of_key, strict=True):
                column += more
            while len(columns[0]) >= size:
                yield self._block(SessionColumns(*[column[:size] for column in columns]))
                for column in columns:
                    del column[:size]
        if columns[0]:
            yield self._block(SessionColumns(*columns))

    def _drain(self) -> SessionColumns:
        if self.context.checks is not None:
            self._spillable.check(self._keys_of_times or self._table)
        if not self._keys_of_times:
            return super()._drain()
        by_arrays = self._drain_time_arrays()
        return count_sessions(self._drain_time_lists(), self._gap) if by_arrays is None else by_arrays[1]

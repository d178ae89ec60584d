"""Sessions of bounded input: each key's sessions as they stand, apart and in order, merged as elements fill the gaps.

There is one pane per session, at the end of input; so no trigger and no timer is needed, and of what is combined only
the accumulators are kept. Elements mostly come near the newest session of their key, which is the one at hand.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import compress, count, islice, repeat
from operator import eq, itemgetter, lt
from typing import Any, Final, NoReturn, TypeAlias

from tidegate.runners.engine import folds
from tidegate.runners.engine.blame import rethrow
from tidegate.runners.engine.gathered import Gathered, in_order
from tidegate.runners.engine.grouped import GroupedByKey
from tidegate.runners.engine.machine import UserCall
from tidegate.runners.engine.memory import LIST, TABLE_ENTRY, deep_size
from tidegate.runners.engine.operator import Context, Emitted
from tidegate.runners.engine.snapshots import CELLS, KeyedState
from tidegate.runners.engine.tables import ONLY_PANE
from tidegate.runners.plan import Phase
from tidegate.sdk.block import Block, DerivedFrom, Each
from tidegate.sdk.combine import NOTHING, CountFn
from tidegate.sdk.metrics import in_step
from tidegate.sdk.portable.pipeline import CombinePerKey, GroupByKey
from tidegate.sdk.time import MAX_MICROS, Duration
from tidegate.sdk.window_types import IntervalWindow
from tidegate.sdk.windowing import WindowingStrategy
from tidegate.sdk.windows import Sessions

Session: TypeAlias = list[Any]
"""The newest session of a key: [start, end (µs), what it holds, (start, end, held) of the older ones ascending]."""

_SAMPLE: Final = 16
_TIME: Final = 41
"""About what the time of one element costs (bytes)."""
_SESSION: Final = 220
"""About what one session costs beside what it holds (bytes)."""
_end: Final = itemgetter(0)
_drain: Final = deque[None](maxlen=0).extend


class SessionMerge(GroupedByKey):
    """Groups or combines bounded input per key and session.

    What a session holds: how many elements, an accumulator, or pairs (arrival number, value) where values keep the
    order in which they came. Where elements are only counted, and the gap is the same for all, nothing but their
    times is kept until the end, when each key's are sorted and cut at the gaps. Parts that are combined before an
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
        assert isinstance(strategy.assigner, Sessions)
        super().__init__(node, phase, strategy, context, main)
        self.lists = self.contents.how == "buffer"
        self.counts = type(self.combiner) is CountFn and phase != "merge"
        self._as_held = not self.lists and folds.extracts(self.combiner, phase) is None
        self._table: dict[Any, Session] = {}
        self._times: defaultdict[Any, list[int]] = defaultdict(list)
        self._gap = 0
        self._arrivals = self._sessions = self._blocks = 0
        self._gathered_arrivals = 0
        self._key_size = self._held_size = 0
        self._gathered = Gathered(node.label, node.where, context)

    # -- in

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        self.crossing.check(block)
        if self.contents.phase == "merge":
            self._take_parts(block)
            return iter(())
        match block.windows:
            case DerivedFrom(Sessions(gap=Duration(micros=gap))) if self.counts and not self._table:
                self._gap = gap
                self._take_times(block)
            case _:
                self._place_times()
                with in_step(self.label):
                    self._take_in(block)
        self._settle()
        return iter(())

    def _take_times(self, block: Block) -> None:
        """Every element's time to those of its key."""
        try:
            keys = block.values if self.key == "element" else [k for k, _ in self.keyed(block)]
            _drain(map(list.append, map(self._times.__getitem__, keys), block.timestamp_list()))
        except Exception as error:
            self._refuse(block, error)
        self._arrivals += len(block)

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
        self._gathered.settle(large=True)

    def _refuse(self, block: Block, error: Exception) -> NoReturn:
        """Find the element that can't be taken in, and raise the error for it."""
        element: Any = None
        k: Any = NOTHING
        for element in self.keyed(block):
            k = NOTHING
            try:
                k, _ = element
                hash(k)
            except Exception:
                break
        rethrow(self._blamed(error, element, k))

    def _place_times(self) -> None:
        """Make sessions of the times so far: what comes now brings sessions of its own."""
        times, self._times = self._times, defaultdict(list)
        for k, stamps in times.items():
            ends, starts, _, counts = _counted({k: stamps}, self._gap)
            self._sessions += len(ends)
            older = list(zip(starts[:-1], ends[:-1], counts[:-1], strict=True))
            self._table[k] = [starts[-1], ends[-1], counts[-1], older]

    def _take_in(self, block: Block) -> None:
        """Every element into the newest session of its key, or to where else it belongs."""
        get, place = self._table.get, self._place
        counts, lists, add = self.counts, self.lists, self.contents.add
        arrival = self._arrivals
        element: Any = None
        k: Any = NOTHING
        try:
            for element, start, end in self._spans(block):
                k = NOTHING
                k, x = element
                newest = get(k)
                if newest is None or not newest[0] <= start < newest[1]:
                    place(k, newest, start, end, 1 if counts else self._first(x, arrival))
                else:
                    if counts:
                        newest[2] += 1
                    elif lists:
                        newest[2].append((arrival, x))
                    else:
                        newest[2] = add(newest[2], x)
                    if end > newest[1]:
                        newest[1] = end
                arrival += 1
        except Exception as error:
            rethrow(self._blamed(error, element, k))
        self._arrivals = arrival

    def _spans(self, block: Block) -> Iterable[tuple[Any, int, int]]:
        """Every element as (key, what is grouped), with its own session."""
        values = self.keyed(block)
        match block.windows:
            case DerivedFrom(Sessions(gap=Duration(micros=gap))):
                times = block.timestamp_list()
                ends = [t + gap for t in times]
                if ends and max(ends) > MAX_MICROS:
                    ends = [min(end, MAX_MICROS) for end in ends]
                return zip(values, times, ends, strict=True)
            case _:
                pairs = zip(values, block.window_list(), strict=True)
                return ((v, w.start_micros, w.end_micros) for v, windows in pairs for w in windows)

    def _first(self, x: Any, arrival: int) -> Any:
        """What a session holds whose first element this is."""
        return [(arrival, x)] if self.lists else self.contents.add(self.contents.new(), x)

    def _place(self, k: Any, newest: Session | None, start: int, end: int, held: Any) -> None:
        """An element that does not start within the newest session of its key."""
        if newest is None:
            self._sessions += 1
            self._table[k] = [start, end, held, []]
            return
        first, past, before, older = newest
        if start >= past:
            self._sessions += 1
            older.append((first, past, before))
            newest[0], newest[1], newest[2] = start, end, held
            return
        if end > first:
            newest[0], newest[1] = start, max(end, past)
            newest[2] = self._both(before, held)
            while older and older[-1][1] > start:
                first, _, before = older.pop()
                self._sessions -= 1
                start = newest[0] = min(first, start)
                newest[2] = self._both(before, newest[2])
            return
        at = bisect_right(older, start, key=_end)  # the first session that starts after this element
        low = at - 1 if at and older[at - 1][1] > start else at
        high = at
        while high < len(older) and older[high][0] < end:
            high += 1
        for first, past, before in older[low:high]:
            start, end = min(start, first), max(end, past)
            held = self._both(before, held)
        self._sessions += 1 - (high - low)
        older[low:high] = [(start, end, held)]

    def _both(self, a: Any, b: Any) -> Any:
        """What a session holds that two have become."""
        if self.counts:
            return a + b
        if self.lists:
            a += b
            a.sort(key=_arrival)
            return a
        return self.contents.merge([a, b])

    def _blamed(self, error: BaseException, element: Any, k: Any) -> BaseException:
        """The error for the author, for what was raised while `element` was taken in."""
        return self.blamed(error, element, k, self.method(_failed(error)))

    # -- memory

    def _settle(self) -> None:
        """After each block: write what there is to disk when it has reached the budget."""
        self._blocks += 1
        if self._blocks & (self._blocks - 1) == 0 or self._blocks % 128 == 0:
            self._measure()
        if self._blocks % 8 == 0 and self._estimate() > self.context.memory_budget:
            self._measure()
            if self._estimate() > self.context.memory_budget:
                self._gather()
                self._gathered.write_out()

    def _estimate(self) -> int:
        if self._times:
            held = self._arrivals - self._gathered_arrivals
            return len(self._times) * (TABLE_ENTRY + LIST + self._key_size) + held * _TIME
        held = self._arrivals - self._gathered_arrivals if self.lists else self._sessions
        keys = len(self._table) * (TABLE_ENTRY + LIST + self._key_size)
        return keys + self._sessions * _SESSION + held * self._held_size

    def _measure(self) -> None:
        if self._times:
            keys = [*islice(self._times, _SAMPLE), *islice(reversed(self._times), _SAMPLE)]
            self._key_size = sum(map(deep_size, keys)) // len(keys)
        sample = [*islice(self._table.items(), _SAMPLE), *islice(reversed(self._table.items()), _SAMPLE)]
        if sample:
            held = [deep_size(session[2]) // (len(session[2]) if self.lists else 1) for _, session in sample]
            self._key_size = sum(deep_size(key) for key, _ in sample) // len(sample)
            self._held_size = sum(held) // len(held)

    def _gather(self) -> None:
        """Hand all sessions over to where they can be spilled from; they go on merging when they are read back."""
        for k, newest in self._table.items():
            self._gathered.table.setdefault(k, []).extend((*newest[3], tuple(newest[:3])))
        for k, times in self._times.items():
            ends, starts, _, counts = _counted({k: times}, self._gap)
            self._gathered.table.setdefault(k, []).extend(zip(starts, ends, counts, strict=True))
        self._table = {}
        self._times = defaultdict(list)
        self._sessions = 0
        self._gathered_arrivals = self._arrivals

    def finish_bundle(self) -> Iterator[Emitted]:
        """Parts leave before any snapshot: a key's may be in several tasks."""
        if self.contents.phase == "parts":
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

    def _copied(self, held: Any) -> Any:
        if self.counts:
            return held
        return held[:] if self.lists else self.contents.copied(held)

    # -- out

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        if micros == MAX_MICROS:
            yield from self.finish()

    def finish(self) -> Iterator[Emitted]:
        if self.contents.phase == "parts":
            return self._emit_parts()
        if self.contents.phase == "merge" or self._gathered.spilled:
            return self._emit_by_key()
        return self._emit()

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
        if self.contents.phase == "merge" or self._gathered.spilled:
            self._gather()
            for k, entries in self._gathered.drain():
                yield k, *self._merged(in_order(entries, self.context.temp_dir))
        elif self._times:
            times, self._times = self._times, defaultdict(list)
            for k, stamps in times.items():
                ends, starts, _, counts = _counted({k: stamps}, self._gap)
                yield k, starts, ends, counts
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

    def _emit(self) -> Iterator[Emitted]:
        """Sessions by (end, start), keys by first arrival."""
        ends, starts, keys, held = self._columns()
        order, ends = _order(ends, starts)
        size = self.context.block_size
        for at in range(0, len(order), size):
            pick = _picking(order[at : at + size])
            yield self._block(pick(keys), pick(starts), ends[at : at + size], pick(held))

    def _block(self, keys: Sequence[Any], starts: Sequence[int], ends: Sequence[int], held: Sequence[Any]) -> Emitted:
        results = self._results(keys, held)
        values = list(results) if self.key == "none" else list(zip(keys, results, strict=True))
        windows = list(zip(map(IntervalWindow.of_micros, starts, ends), strict=True))
        self.context.count(self.label, "elements_out", len(values))
        return self.main, Block(values, [end - 1 for end in ends], Each(windows), ONLY_PANE)

    def _columns(self) -> tuple[Sequence[int], Sequence[int], Sequence[Any], Sequence[Any]]:
        """Ends, starts, keys, and what is held, of every session."""
        if self._times:
            if self.context.checks is not None:
                self._gathered.check(self._times)
            times, self._times = self._times, defaultdict(list)
            return _counted(times, self._gap)
        sessions = list(self._all())
        if not sessions:
            return (), (), (), ()
        ends, starts, keys, held = zip(*sessions, strict=True)
        return ends, starts, keys, held

    def _all(self) -> Iterator[tuple[int, int, Any, Any]]:
        """(end, start, key, held) of every session."""
        if self.context.checks is not None:
            self._gathered.check(self._table)
        table, self._table = self._table, {}
        for k, newest in table.items():
            for start, end, held in newest[3]:
                yield end, start, k, held
            yield newest[1], newest[0], k, newest[2]

    def _results(self, keys: Sequence[Any], held: Sequence[Any]) -> Sequence[Any]:
        if self._as_held:
            return held
        extract, lists = self.contents.extract, self.lists
        k: Any = None
        results = []
        try:
            with in_step(self.label):
                for k, part in zip(keys, held, strict=True):  # noqa: B007  (an error is shown with its key)
                    results.append(extract([x for _, x in part] if lists else part))
        except UserCall as error:
            rethrow(self.shown(error.__cause__ or error, NOTHING, k, str(error)))
        except Exception as error:
            rethrow(self.shown(error, NOTHING, k, self.method("extract_output")))
        return results


def _counted(times: dict[Any, list[int]], gap: int) -> tuple[list[int], list[int], list[Any], list[int]]:
    """Ends, starts and keys of the sessions of each key's times, and how many times are in each."""
    ends: list[int] = []
    starts: list[int] = []
    keys: list[Any] = []
    counts: list[int] = []
    for k, stamps in times.items():
        stamps.sort()
        start = last = stamps[0]
        n = 0
        for t in stamps:
            if t - last >= gap:
                ends.append(last + gap)
                starts.append(start)
                keys.append(k)
                counts.append(n)
                start = t
                n = 0
            n += 1
            last = t
        ends.append(min(last + gap, MAX_MICROS))
        starts.append(start)
        keys.append(k)
        counts.append(n)
    return ends, starts, keys, counts


def _order(ends: Sequence[int], starts: Sequence[int]) -> tuple[list[int], list[int]]:
    """The sessions' numbers by end, then start, then as they come; and their ends in that order."""
    order = list(range(len(ends)))
    # Floats compare faster than large ints, but are not exact for the largest.
    order.sort(key=list(map(float, ends)).__getitem__)
    if order and not -_EXACT < ends[order[0]] <= ends[order[-1]] < _EXACT:
        order.sort(key=ends.__getitem__)
    ordered = list(map(ends.__getitem__, order))
    # Few end at one instant: only those are moved again.
    for at in compress(count(), map(eq, ordered, islice(ordered, 1, None))):
        first = bisect_left(ordered, ordered[at])
        if first == at:
            past = bisect_right(ordered, ordered[at])
            order[first:past] = sorted(order[first:past], key=starts.__getitem__)
    return order, ordered


def _picking(index: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """What takes a column's entries at `index`, in that order."""
    if len(index) > 1:
        return itemgetter(*index)
    return lambda column: [column[i] for i in index]


_EXACT: Final = 1 << 53


def _failed(error: BaseException) -> str:
    """The method of a combiner that raised."""
    name, trace = "add_input", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name in ("create_accumulator", "merge_accumulators"):
            name = trace.tb_frame.f_code.co_name
        trace = trace.tb_next
    return name


_arrival: Final = itemgetter(0)

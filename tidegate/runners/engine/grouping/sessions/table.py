"""Each key's sessions as they stand, apart and in order, merged as elements fill the gaps.

Elements mostly come near the newest session of their key, which is the one at hand. Of what is combined only the
accumulators are kept. When a session is over, and where all this is kept meanwhile, is for those who build on it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, count, islice
from operator import eq, itemgetter
from typing import Any, Final, NoReturn, TypeAlias

from tidegate.runners.engine.errors.attribution import UserCall, rethrow
from tidegate.runners.engine.grouping import fold_codegen
from tidegate.runners.engine.grouping.base import GroupedByKey
from tidegate.runners.engine.grouping.batch_table import ONLY_PANE
from tidegate.runners.engine.operator import Context, Emitted
from tidegate.runners.plan import Phase
from tidegate.sdk.authoring.combine import NOTHING, CountFn
from tidegate.sdk.data.block import Block, DerivedFrom, Each
from tidegate.sdk.metrics import in_step
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, Duration
from tidegate.sdk.windowing.assigners import Sessions
from tidegate.sdk.windowing.strategy import WindowingStrategy
from tidegate.sdk.windowing.window import IntervalWindow

Session: TypeAlias = list[Any]
"""The newest session of a key: [start, end (µs), what it holds, (start, end, held) of the older ones ascending, the
number of the key by first arrival]."""
Columns: TypeAlias = tuple[Sequence[int], Sequence[int], Sequence[Any], Sequence[Any]]
"""Ends, starts, keys, and what is held, of sessions."""

_start: Final = itemgetter(0)
_drain: Final = deque[None](maxlen=0).extend
_EXACT: Final = 1 << 53


class SessionTable(GroupedByKey):
    """Groups or combines per key and session.

    What a session holds: how many elements, an accumulator, or pairs (arrival number, value) where values keep the
    order in which they came. Where elements are only counted, and the gap is the same for all, their times may be
    kept instead, which are sorted and cut at the gaps when it is asked which sessions there are (`counted`).
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
        self.lists = self.accumulation.kind == "buffer"
        self.counts = type(self.combiner) is CountFn and phase != "merge"
        self.watermark = MIN_MICROS
        self._as_held = not self.lists and fold_codegen.extracts(self.combiner, phase) is None
        self._point: Callable[[Any], None] | None = getattr(self.combiner, "point", None)
        self._table: dict[Any, Session] = {}
        self._times: defaultdict[Any, list[int]] = defaultdict(list)
        self._gap = 0
        self._arrivals = self._sessions = self._keys = 0

    # -- in

    def _take_times(self, block: Block) -> None:
        """Every element's time to those of its key."""
        try:
            keys = block.values if self.key == "element" else [k for k, _ in self.pairs(block)]
            self._put_times(keys, block.timestamp_column())
        except Exception as error:
            self._refuse(block, error)
        self._arrivals += len(block)

    def _put_times(self, keys: Sequence[Any], stamps: Sequence[int]) -> None:
        _drain(map(list.append, map(self._times.__getitem__, keys), stamps))

    def _refuse(self, block: Block, error: Exception) -> NoReturn:
        """Find the element that can't be taken in, and raise the error for it."""
        element: Any = None
        k: Any = NOTHING
        for element in self.pairs(block):
            k = NOTHING
            try:
                k, _ = element
                hash(k)
            except Exception:
                break
        rethrow(self._blamed(error, element, k))

    def _take_in(self, block: Block) -> None:
        """Every element into the newest session of its key, or to where else it belongs, if it is not too late."""
        get, place, watermark = self._table.get, self._place, self.watermark
        counts, lists, add = self.counts, self.lists, self.accumulation.add
        arrival = self._arrivals
        late = 0
        element: Any = None
        k: Any = NOTHING
        try:
            with in_step(self.label):
                for element, start, end in self._spans(block):
                    k = NOTHING
                    k, x = element
                    newest = get(k)
                    if newest is not None and newest[0] <= start < newest[1]:
                        if counts:
                            newest[2] += 1
                        elif lists:
                            newest[2].append((arrival, x))
                        else:
                            newest[2] = add(newest[2], x)
                        if end > newest[1]:
                            newest[1] = end
                    elif end > watermark or _meets(newest, start, end):
                        place(k, newest, start, end, 1 if counts else self._first(x, arrival))
                    else:
                        late += 1
                    arrival += 1
        except Exception as error:
            rethrow(self._blamed(error, element, k))
        self._arrivals = arrival
        self.context.count(self.label, "dropped_late", late)

    def _spans(self, block: Block) -> Iterable[tuple[Any, int, int]]:
        """Every element as (key, what is grouped), with its own session."""
        values = self.pairs(block)
        match block.windows:
            case DerivedFrom(Sessions(gap=Duration(micros=gap))):
                times = block.timestamp_column()
                ends = [t + gap for t in times]
                if ends and max(ends) > MAX_MICROS:
                    ends = [min(end, MAX_MICROS) for end in ends]
                return zip(values, times, ends, strict=True)
            case _:
                pairs = zip(values, block.window_list(), strict=True)
                return ((v, w.start_micros, w.end_micros) for v, windows in pairs for w in windows)

    def _first(self, x: Any, arrival: int) -> Any:
        """What a session holds whose first element this is."""
        return [(arrival, x)] if self.lists else self.accumulation.add(self.accumulation.new(), x)

    def _place(self, k: Any, newest: Session | None, start: int, end: int, held: Any) -> None:
        """What does not start within the newest session of its key: an element, or a whole session."""
        if newest is None:
            self._sessions += 1
            self._table[k] = [start, end, held, [], self._keys]
            self._keys += 1
            return
        first, past, before, older, _ = newest
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
        at = bisect_right(older, start, key=_start)  # the first session that starts after this element
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
        return self.accumulation.merge([a, b])

    def _blamed(self, error: BaseException, element: Any, k: Any) -> BaseException:
        """The error for the author, for what was raised while `element` was taken in."""
        return self.attributed(error, element, k, self.method_name(_failed(error)))

    def _copied(self, held: Any) -> Any:
        if self.counts:
            return held
        return held[:] if self.lists else self.accumulation.copy(held)

    # -- out

    def _in_order(self, columns: Columns) -> Iterator[Emitted]:
        """Sessions by (end, start), of equal ones first what comes first."""
        ends, starts, keys, held = columns
        order, ends = _order(ends, starts)
        size = self.context.block_size
        for at in range(0, len(order), size):
            pick = _picking(order[at : at + size])
            yield self._block(pick(keys), pick(starts), ends[at : at + size], pick(held))

    def _block(self, keys: Sequence[Any], starts: Sequence[int], ends: Sequence[int], held: Sequence[Any]) -> Emitted:
        windows = list(map(IntervalWindow.of_micros, starts, ends))
        results = self._results(keys, held, windows)
        values = list(results) if self.key == "none" else list(zip(keys, results, strict=True))
        self.context.count(self.label, "elements_out", len(values))
        return self.main, Block(values, [end - 1 for end in ends], Each(list(zip(windows, strict=True))), ONLY_PANE)

    def _columns(self) -> Columns:
        """All sessions there are; there are none afterwards."""
        table, self._table = self._table, {}
        if not table:
            return (), (), (), ()
        sessions = [
            session
            for k, newest in table.items()
            for session in (
                *[(end, start, k, held) for start, end, held in newest[3]],
                (newest[1], newest[0], k, newest[2]),
            )
        ]
        ends, starts, keys, held = zip(*sessions, strict=True)
        return ends, starts, keys, held

    def _results(self, keys: Sequence[Any], held: Sequence[Any], windows: Sequence[Any] = ()) -> Sequence[Any]:
        """What is emitted of sessions that hold this; their windows are for combiners with side inputs."""
        if self._as_held:
            return held
        extract, lists, point = self.accumulation.extract, self.lists, self._point
        k: Any = None
        results = []
        try:
            with in_step(self.label):
                for at, (k, part) in enumerate(zip(keys, held, strict=True)):  # noqa: B007  (an error is shown with its key)
                    if point is not None and windows:
                        point(windows[at])
                    results.append(extract([x for _, x in part] if lists else part))
        except UserCall as error:
            rethrow(self.with_context(error.__cause__ or error, NOTHING, k, str(error)))
        except Exception as error:
            rethrow(self.with_context(error, NOTHING, k, self.method_name("extract_output")))
        return results


def _meets(newest: Session | None, start: int, end: int) -> bool:
    """Whether what is from `start` to `end` overlaps a session of its key."""
    if newest is None or start >= newest[1]:
        return False
    if end > newest[0]:
        return True
    older = newest[3]
    at = bisect_right(older, start, key=_start)
    return (at > 0 and older[at - 1][1] > start) or (at < len(older) and older[at][0] < end)


def counted(times: dict[Any, list[int]], gap: int) -> Columns:
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


def _failed(error: BaseException) -> str:
    """The method of a combiner that raised."""
    name, trace = "add_input", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name in ("create_accumulator", "merge_accumulators"):
            name = trace.tb_frame.f_code.co_name
        trace = trace.tb_next
    return name


_arrival: Final = itemgetter(0)

"""Sessions of bounded input: each key's elements are gathered, sorted by time at the end, and cut at the gaps.

There is one pane per session, on time; so no trigger, no timer and no merging of state is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

from tidegate.runners.engine.blame import combiner_method, guarded, located, not_pairs, rethrow, user_error
from tidegate.runners.engine.contents import Contents
from tidegate.runners.engine.crossing import Crossing
from tidegate.runners.engine.gathered import Gathered, in_order
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.engine.spill import SpilledValues
from tidegate.runners.engine.tables import ONLY_PANE, load_combiner
from tidegate.runners.plan import Phase
from tidegate.sdk.block import Block, DerivedFrom, Each
from tidegate.sdk.combine import NOTHING, CountFn
from tidegate.sdk.errors import KeyEncodingError
from tidegate.sdk.keys import check_key
from tidegate.sdk.metrics import in_step
from tidegate.sdk.portable.pipeline import CombinePerKey, GroupByKey
from tidegate.sdk.time import MAX_MICROS, Duration
from tidegate.sdk.window_types import IntervalWindow
from tidegate.sdk.windowing import WindowingStrategy
from tidegate.sdk.windows import Sessions

Session = tuple[int, int, Any, Any]
"""End, start (µs), key and result of a session."""


class SessionMerge(Operator):
    """Groups or combines bounded input per key and session.

    Of each element `(start, x)` is kept; the start alone where elements are only counted. `(start, end, x)` is kept
    once elements have come whose session is not `gap` long: the gap depends on the element, or parts are merged.
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
        self.node = node
        self.label = node.label
        self.context = context
        self.main = main
        self.combiner = load_combiner(node)
        self.contents = Contents(self.combiner, phase, strategy)
        gap = strategy.assigner.gap
        self.gap = gap.micros if isinstance(gap, Duration) and phase != "merge" else None
        self.key = "first" if isinstance(node, GroupByKey) or (phase == "merge" and node.key == "element") else node.key
        self.counts = type(self.combiner) is CountFn and phase != "merge"
        self._gathered = Gathered(node.label, node.where, context)
        self._crossing = Crossing(node, context)
        self._spans = self.gap is None

    def open(self) -> None:
        if self.combiner is not None:
            method = combiner_method(self.combiner, "setup")
            guarded(self.combiner.setup, step=self.label, where=self.node.where, method=method)

    def close(self) -> None:
        if self.combiner is not None:
            method = combiner_method(self.combiner, "teardown")
            guarded(self.combiner.teardown, step=self.label, where=self.node.where, method=method)

    # -- in

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        self._crossing.check(block)
        try:
            if not self._spans and isinstance(block.windows, DerivedFrom):
                self._take_starts(block)
            else:
                if not self._spans:
                    self._spans = True
                    self._respan()
                self._take_spans(block)
        except (TypeError, ValueError) as error:
            rethrow(self._refused(block, error))
        self._gathered.settle()
        return iter(())

    def _take_starts(self, block: Block) -> None:
        table = self._gathered.table
        get = table.get
        times = block.timestamp_list()
        if self.counts:
            if self.key == "none":
                table.setdefault(None, []).extend(times)
                return
            for (k, _), t in zip(self._pairs(block), times, strict=True):
                entries = get(k)
                if entries is None:
                    table[k] = [t]
                else:
                    entries.append(t)
            return
        for (k, x), t in zip(self._pairs(block), times, strict=True):
            entries = get(k)
            if entries is None:
                table[k] = [(t, x)]
            else:
                entries.append((t, x))

    def _take_spans(self, block: Block) -> None:
        table = self._gathered.table
        for (k, x), windows in zip(self._pairs(block), block.window_list(), strict=True):
            for window in windows:
                table.setdefault(k, []).append((window.start_micros, window.end_micros, x))

    def _respan(self) -> None:
        """Elements came whose windows are their own: all that is gathered from now on says where it ends."""
        gathered = self._gathered
        self._gathered = Gathered(self.label, self.node.where, self.context)
        for k, entries in gathered.drain():
            self._gathered.table[k] = list(map(self._span, entries))

    def _span(self, entry: Any) -> tuple[int, int, Any]:
        assert self.gap is not None
        start, x = (entry, None) if self.counts else entry
        return start, min(start + self.gap, MAX_MICROS), x

    def _pairs(self, block: Block) -> Iterable[Any]:
        match self.key:
            case "first":
                return block.values
            case "element":
                return [(value, value) for value in block.values]
            case _:
                return [(None, value) for value in block.values]

    def _refused(self, block: Block, error: BaseException) -> BaseException:
        """The error for an element that is no pair, or whose key can't be one."""
        for element in block.values:
            k = element
            if self.key == "first":
                try:
                    k, _ = element
                except (TypeError, ValueError):
                    return not_pairs(element, self.label, self.node.where)
            try:
                if self.key != "none":
                    check_key(k)
            except KeyEncodingError as refused:
                return located(refused, self.label, self.node.where)
        return error

    # -- out

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        if micros == MAX_MICROS:
            yield from self._emit()

    def finish(self) -> Iterator[Emitted]:
        yield from self._emit()

    def _emit(self) -> Iterator[Emitted]:
        with in_step(self.label):
            sessions = self._cut_all()
        sessions.sort(key=_second)
        sessions.sort(key=_first)
        size = self.context.block_size
        make = IntervalWindow.of_micros
        for at in range(0, len(sessions), size):
            part = sessions[at : at + size]
            values = [result if self.key == "none" else (k, result) for _, _, k, result in part]
            windows = [(make(start, end),) for end, start, _, _ in part]
            self.context.count(self.label, "elements_out", len(part))
            yield self.main, Block(values, [session[0] - 1 for session in part], Each(windows), ONLY_PANE)

    def _cut_all(self) -> list[Session]:
        sessions: list[Session] = []
        cut: Callable[[Any, Any, list[Session]], None]
        cut = self._cut_spans if self._spans else self._cut_counts if self.counts else self._cut_starts
        k: Any = NOTHING
        try:
            for k, entries in self._gathered.drain():
                cut(k, entries, sessions)
        except Exception as error:
            method = combiner_method(self.combiner, _failed(error)) if self.combiner is not None else ""
            shown = {"key": k} if k is not NOTHING and self.key != "none" else {}
            rethrow(user_error(error, step=self.label, where=self.node.where, method=method, **shown))
        return sessions

    def _cut_counts(self, k: Any, entries: list[int] | SpilledValues, sessions: list[Session]) -> None:
        gap = self.gap
        assert gap is not None
        if isinstance(entries, SpilledValues):
            self._cut(k, ((t, min(t + gap, MAX_MICROS), None, n) for n, t in enumerate(entries)), sessions)
            return
        times = sorted(entries)
        first = 0
        for cut in [i for i, (a, b) in enumerate(pairwise(times), 1) if b - a >= gap]:
            sessions.append((times[cut - 1] + gap, times[first], k, cut - first))
            first = cut
        sessions.append((min(times[-1] + gap, MAX_MICROS), times[first], k, len(times) - first))

    def _cut_starts(self, k: Any, entries: list[Any] | SpilledValues, sessions: list[Session]) -> None:
        gap = self.gap
        assert gap is not None
        if self.contents.how == "buffer" or isinstance(entries, SpilledValues):
            spans = ((t, min(t + gap, MAX_MICROS), x, n) for n, (t, x) in enumerate(entries))
            self._cut(k, list(spans) if isinstance(entries, list) else spans, sessions)
            return
        entries.sort(key=_first)
        times = [t for t, _ in entries]
        values = [x for _, x in entries]
        first = 0
        cuts = [i for i, (a, b) in enumerate(pairwise(times), 1) if b - a >= gap]
        for cut in (*cuts, len(times)):
            end = min(times[cut - 1] + gap, MAX_MICROS)
            sessions.append((end, times[first], k, self.contents.of(values[first:cut])))
            first = cut

    def _cut_spans(self, k: Any, entries: list[Any] | SpilledValues, sessions: list[Session]) -> None:
        spans = ((start, end, x, n) for n, (start, end, x) in enumerate(entries))
        self._cut(k, list(spans) if isinstance(entries, list) else spans, sessions)

    def _cut(self, k: Any, spans: Iterable[tuple[int, int, Any, int]], sessions: list[Session]) -> None:
        """Elements as (start, end, x, arrival): sessions of those that overlap, each one's values in arrival order."""
        first = past = 0
        held: list[tuple[int, Any]] = []
        for start, end, x, arrival in in_order(spans, self.context.temp_dir):
            if held and start >= past:
                sessions.append((past, first, k, self._in_arrival_order(held)))
                held = []
            if not held:
                first, past = start, end
            past = max(past, end)
            held.append((arrival, x))
        if held:
            sessions.append((past, first, k, self._in_arrival_order(held)))

    def _in_arrival_order(self, held: list[tuple[int, Any]]) -> Any:
        held.sort(key=_first)
        return self.contents.of([x for _, x in held])


def _failed(error: BaseException) -> str:
    """The method of a combiner that raised."""
    name, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name in _METHODS:
            name = trace.tb_frame.f_code.co_name
        trace = trace.tb_next
    return name or "extract_output"


_METHODS: Final = ("create_accumulator", "add_input", "merge_accumulators", "compact", "extract_output")
_first: Final = itemgetter(0)
_second: Final = itemgetter(1)

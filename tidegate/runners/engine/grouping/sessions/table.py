"""The sessions of every key: elements are added to a session of their key, or begin one, or connect several.

Most elements belong to the newest session of their key, so that one is tried first. Subclasses decide when a session
has ended, and where sessions are stored until then.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, NoReturn

from tidegate.runners.engine.errors.attribution import UserCall, rethrow
from tidegate.runners.engine.grouping import fold_codegen
from tidegate.runners.engine.grouping.base import GroupedByKey
from tidegate.runners.engine.grouping.batch_table import ONLY_PANE
from tidegate.runners.engine.grouping.sessions.columns import SessionColumns
from tidegate.runners.engine.grouping.sessions.key_sessions import KeySessions
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

_consume: Final = deque[None](maxlen=0).extend
_arrival: Final = itemgetter(0)


class SessionTable(GroupedByKey):
    """Groups or combines per key and session.

    The contents of a session are a count of elements, an accumulator, or, where values keep their arrival order, pairs
    (arrival number, value). Where elements are only counted and all have the same gap, a subclass may store their times
    in `_times` instead, and sort and cut them at the gaps when sessions are needed (`count_sessions`).
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
        self._extracts = self.lists or fold_codegen.extracts(self.combiner, phase) is not None
        self._set_window: Callable[[Any], None] | None = getattr(self.combiner, "point", None)
        self._table: dict[Any, KeySessions] = {}
        self._times: defaultdict[Any, list[int]] = defaultdict(list)
        self._gap = 0
        self._arrivals = self._sessions = self._keys = 0

    # -- in

    def _add_times(self, block: Block) -> None:
        """Store the time of every element."""
        try:
            keys = block.values if self.key == "element" else [k for k, _ in self.pairs(block)]
            self._store_times(keys, block.timestamp_column())
        except Exception as error:
            self._raise_for_element(block, error)
        self._arrivals += len(block)

    def _store_times(self, keys: Sequence[Any], stamps: Sequence[int]) -> None:
        _consume(map(list.append, map(self._times.__getitem__, keys), stamps))

    def _raise_for_element(self, block: Block, error: Exception) -> NoReturn:
        """Find the element that is no pair, or whose key can't be hashed, and raise the error for it."""
        element: Any = None
        k: Any = NOTHING
        for element in self.pairs(block):
            k = NOTHING
            try:
                k, _ = element
                hash(k)
            except Exception:
                break
        rethrow(self._attributed(error, element, k))

    def _add_elements(self, block: Block) -> None:
        """Add every element that is not late to a session of its key."""
        get, add_session, watermark = self._table.get, self._add_session, self.watermark
        counts, lists, add = self.counts, self.lists, self.accumulation.add
        arrival = self._arrivals
        late = 0
        element: Any = None
        k: Any = NOTHING
        try:
            with in_step(self.label):
                for element, start, end in self._with_bounds(block):
                    k = NOTHING
                    k, x = element
                    sessions = get(k)
                    if sessions is not None and sessions.start <= start < sessions.end:
                        if counts:
                            sessions.contents += 1
                        elif lists:
                            sessions.contents.append((arrival, x))
                        else:
                            sessions.contents = add(sessions.contents, x)
                        if end > sessions.end:
                            sessions.end = end
                    elif end > watermark or (sessions is not None and sessions.overlaps(start, end)):
                        add_session(k, sessions, start, end, 1 if counts else self._first_contents(x, arrival))
                    else:
                        late += 1
                    arrival += 1
        except Exception as error:
            rethrow(self._attributed(error, element, k))
        self._arrivals = arrival
        self.context.count(self.label, "dropped_late", late)

    def _with_bounds(self, block: Block) -> Iterable[tuple[Any, int, int]]:
        """Every element as (key, input), with the start and end of the session that it would be in alone."""
        pairs = self.pairs(block)
        match block.windows:
            case DerivedFrom(Sessions(gap=Duration(micros=gap))):
                times = block.timestamp_column()
                ends = [t + gap for t in times]
                if ends and max(ends) > MAX_MICROS:
                    ends = [min(end, MAX_MICROS) for end in ends]
                return zip(pairs, times, ends, strict=True)
            case _:
                with_windows = zip(pairs, block.window_list(), strict=True)
                return ((pair, w.start_micros, w.end_micros) for pair, windows in with_windows for w in windows)

    def _first_contents(self, x: Any, arrival: int) -> Any:
        """The contents of a session with one element."""
        return [(arrival, x)] if self.lists else self.accumulation.add(self.accumulation.new(), x)

    def _add_session(self, k: Any, sessions: KeySessions | None, start: int, end: int, contents: Any) -> None:
        """Add a session, perhaps of one element, to those of its key; `sessions` is None for a new key."""
        if sessions is None:
            self._table[k] = KeySessions(start, end, contents, self._keys)
            self._keys += 1
            self._sessions += 1
        else:
            self._sessions += sessions.add(start, end, contents, self._merge)

    def _merge(self, a: Any, b: Any) -> Any:
        """The contents of a session that two have merged into."""
        if self.counts:
            return a + b
        if self.lists:
            a += b
            a.sort(key=_arrival)
            return a
        return self.accumulation.merge([a, b])

    def _attributed(self, error: BaseException, element: Any, k: Any) -> BaseException:
        """The error to raise to the author for one raised while `element` was added."""
        return self.attributed(error, element, k, self.method_name(_failed_method(error)))

    def _copy(self, contents: Any) -> Any:
        if self.counts:
            return contents
        return contents[:] if self.lists else self.accumulation.copy(contents)

    # -- out

    def _emit(self, columns: SessionColumns) -> Iterator[Emitted]:
        """The panes of these sessions by (end, start)."""
        return map(self._block, columns.in_order(self.context.block_size))

    def _block(self, columns: SessionColumns) -> Emitted:
        ends, starts, keys, contents = columns
        windows = list(map(IntervalWindow.of_micros, starts, ends))
        results = self._results(keys, contents, windows)
        values = list(results) if self.key == "none" else list(zip(keys, results, strict=True))
        self.context.count(self.label, "elements_out", len(values))
        return self.main, Block(values, [end - 1 for end in ends], Each(list(zip(windows, strict=True))), ONLY_PANE)

    def _drain(self) -> SessionColumns:
        """Remove and return all sessions."""
        table, self._table = self._table, {}
        if not table:
            return SessionColumns()
        rows = [(end, start, k, contents) for k, of in table.items() for start, end, contents in of.to_list()]
        return SessionColumns(*zip(*rows, strict=True))

    def _results(self, keys: Sequence[Any], contents: Sequence[Any], windows: Sequence[Any] = ()) -> Sequence[Any]:
        """The results of sessions with these contents; a combiner with side inputs needs the windows."""
        if not self._extracts:
            return contents
        extract, lists, set_window = self.accumulation.extract, self.lists, self._set_window
        k: Any = None
        results = []
        try:
            with in_step(self.label):
                for at, (k, part) in enumerate(zip(keys, contents, strict=True)):  # noqa: B007  (errors name the key)
                    if set_window is not None and windows:
                        set_window(windows[at])
                    results.append(extract([x for _, x in part] if lists else part))
        except UserCall as error:
            rethrow(self.with_context(error.__cause__ or error, NOTHING, k, str(error)))
        except Exception as error:
            rethrow(self.with_context(error, NOTHING, k, self.method_name("extract_output")))
        return results


def _failed_method(error: BaseException) -> str:
    """The method of a combiner that raised."""
    name, trace = "add_input", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name in ("create_accumulator", "merge_accumulators"):
            name = trace.tb_frame.f_code.co_name
        trace = trace.tb_next
    return name

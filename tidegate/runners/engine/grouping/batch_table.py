"""Grouping by tables, window-major: `table[window][key]`, fired when input ends.

The loop that fills a table is generated (codegen, folds); here is what it fills, what keeps it within its memory
budget, and what comes out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from tidegate.runners.engine.checks import contracts
from tidegate.runners.engine.checks.combiners import trials_of
from tidegate.runners.engine.elementwise.codegen import Fold, FoldedWindows
from tidegate.runners.engine.errors.attribution import (
    combiner_method,
    guarded,
    located,
    not_pairs,
    rethrow,
    user_error,
)
from tidegate.runners.engine.grouping import fold_codegen
from tidegate.runners.engine.grouping.accumulation import copy_accumulator
from tidegate.runners.engine.grouping.combiners import load_combiner, set_up, tear_down
from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.engine.memory.gauge import MemoryGauge, mean_size, oldest_and_newest
from tidegate.runners.engine.memory.sizing import LIST, LIST_ITEM, TABLE_ENTRY
from tidegate.runners.engine.memory.spill import Spill, SpilledValues, chunks, window_order
from tidegate.runners.engine.operator import Context, Emitted
from tidegate.runners.engine.state.keyed_state import CELLS, KeyedState, Tables, of_keys
from tidegate.runners.plan import Phase
from tidegate.sdk.authoring.combine import NOTHING, CallableFn, CombineFn, CountFn, ListFn, MaxFn, MinFn, SumFn, TupleFn
from tidegate.sdk.data.block import BLOCK_SIZE, Block, Pairs, Same
from tidegate.sdk.data.keys import check_key, check_keys
from tidegate.sdk.data.panes import PaneInfo, Timing
from tidegate.sdk.errors import KeyEncodingError, PicklingError
from tidegate.sdk.metrics import in_step
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey
from tidegate.sdk.user_code.frames import author_frames
from tidegate.sdk.windowing.assigners import BuiltinAssigner
from tidegate.sdk.windowing.assignment import single_window
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, IntervalWindow, window_end

ONLY_PANE: Final = PaneInfo(True, True, Timing.ON_TIME, 0, 0)
"""The pane of a window that fires once, on time."""

_REPLACED: Final = frozenset({SumFn, CountFn, MinFn, MaxFn})
"""Combiners that make an accumulator anew with each input, or keep it as it is."""
_WINDOWS: Final = 8
"""In how many windows an element may be, as a first guess where it can be in several."""


class Grouping:
    """The tables of one grouping: whole, in parts, or merging parts. A Chain feeds it.

    `takes_some`: `taking` in its environment tells which of an element's windows it is taken into.
    """

    takes_some = False

    def __init__(self, node: GroupByKey | CombinePerKey, phase: Phase, context: Context, main: str) -> None:
        self.node = node
        self.label = node.label
        self.phase: Phase = phase
        self.context = context
        self.main = main
        self.combiner: CombineFn[Any, Any, Any] | None = load_combiner(node)
        self.lists = self.combiner is None or (
            phase != "merge" and type(self.combiner) in (ListFn, TupleFn, CallableFn)
        )
        self._tables: dict[Any, dict[Any, Any]] = {}
        self._by_start: dict[int, tuple[int, int, dict[Any, Any]]] = {}
        self._folds: dict[FoldedWindows, Fold] = {}
        self._assigner: BuiltinAssigner | None = None
        self._bounds: Callable[[int], tuple[int, int]] | None = None
        self._spill: Spill | None = None
        self._key_size = self._value_size = 0
        self._values = self._added = 0
        self._gauge = MemoryGauge(
            context.memory_budget, estimate=self._estimate, sample=self._measure, recount=self._recount
        )
        self._copies = 1
        self._trials = trials_of(self.combiner, phase, context)

    # -- what the generated loop uses

    def fold(self, windows: FoldedWindows) -> Fold:
        """How elements are taken in, where their windows are found this way."""
        known = self._folds.get(windows)
        if known is not None:
            return known
        key = "first" if isinstance(self.node, GroupByKey) or self.phase == "merge" else self.node.key
        if windows == "multi":
            self._copies = _WINDOWS
        body = fold_codegen.fold_lines(self.combiner, self.phase)
        if self._trials is not None:
            body = (*body, "witness(k, x)")
        made = self._folds[windows] = Fold(fold_codegen.key_line(key), body, windows, self.takes_some)
        return made

    def finds_windows(self, assigner: BuiltinAssigner) -> bool:
        """Whether a timestamp tells which window an element is in, and that is its only one; `bounds` are then those
        of this assigner."""
        if assigner is not self._assigner:
            self._assigner, self._bounds = assigner, single_window(assigner)
        return self._bounds is not None

    def environment(self) -> dict[str, Any]:
        """The names the generated lines use."""
        combiner = self.combiner
        return {
            "NOTHING": NOTHING,
            "global_window": GLOBAL_WINDOW,
            "table_in": self.table_in,
            "table_at": self._table_at,
            "add": combiner.add_input if combiner is not None else None,
            "create": combiner.create_accumulator if combiner is not None else None,
            "merge": combiner.merge_accumulators if combiner is not None else None,
            "crosses": self._crosses,
            "witness": self._trials.add_input if self._trials is not None else None,
        }

    def table_in(self, window: Any) -> dict[Any, Any]:
        """The table of a window."""
        table = self._tables.get(window)
        if table is None:
            table = self._tables[window] = Counter() if type(self.combiner) is CountFn else {}
        return table

    def bounds(self, t: int) -> tuple[int, int]:
        """Those of the window of a timestamp (µs), where `finds_windows` is true."""
        assert self._bounds is not None
        return self._bounds(t)

    def _table_at(self, t: int) -> tuple[int, int, dict[Any, Any]]:
        low, high = self.bounds(t)
        found = self._by_start.get(low)
        if found is None:
            found = self._by_start[low] = low, high, self.table_in(IntervalWindow.of_micros(low, high))
        return found

    def adds_whole(self, block: Block) -> bool:
        """Add a whole block at once, where its elements are only counted or are the first partial results of their
        window."""
        return self._counts_elements(block) or self._adopts(block)

    def _counts_elements(self, block: Block) -> bool:
        """Count a whole block's elements at once, if that is all this grouping does with them."""
        match self.node, block.windows:
            case CombinePerKey(key="element"), Same((window,)) if (
                type(self.combiner) is CountFn and self.phase != "merge"
            ):
                try:
                    self.table_in(window).update(block.values)
                except TypeError as error:
                    rethrow(self.blamed(error, next(filter(_unhashable, block.values), None)))
                return True
            case _:
                return False

    def _adopts(self, block: Block) -> bool:
        """Load partial results as they are, at once, if they are the first of their window."""
        if self.phase != "merge" or self._trials is not None or type(block.values) is not Pairs:
            return False
        match block.windows:
            case Same((window,)):
                table = self.table_in(window)
            case _:
                return False
        if table or type(table) is not dict:
            return False
        try:
            table.update(block.values)
        except Exception:  # a key that can't be hashed or compared: element by element, it will be found
            table.clear()
        if len(table) < len(block):
            table.clear()
        return bool(table)

    def take_lists(self, window: Any, keyed: KeyedBatch) -> None:
        """Elements of one window that come by key, where lists are grouped."""
        table, values = self.table_in(window), keyed.values
        get = table.get
        at = 0
        for key, n in zip(keyed.keys, keyed.counts, strict=True):
            known = get(key)
            if known is None:
                table[key] = values[at : at + n]
            else:
                known += values[at : at + n]
            at += n
        self._added += at
        for _ in range(0, at, BLOCK_SIZE):
            self._check_budget()

    def _crosses(self, value: Any) -> None:
        """What `--checks` look at: the element can travel, and its key has an encoding."""
        contracts.check_travels(value)
        if isinstance(self.node, CombinePerKey) and self.node.key == "element":
            check_key(value)
            return
        contracts.check_pair(value)
        key, _ = value
        check_key(key)

    def blamed(self, error: BaseException, element: Any) -> BaseException:
        """The error for the author, for what was raised while `element` was taken in."""
        node = self.node
        if isinstance(error, (TypeError, ValueError)):
            key = element
            if isinstance(node, GroupByKey) or node.key == "first":
                try:
                    contracts.check_pair(element)
                    key, _ = element
                except (TypeError, ValueError):
                    return not_pairs(element, node.label, node.where)
            try:
                check_key(key)
            except KeyEncodingError as refused:
                return located(refused, node.label, node.where)
        return user_error(error, step=node.label, where=node.where, element=element, method=self._method(error))

    def _method(self, error: BaseException) -> str:
        if self.combiner is None:
            return ""
        trace = author_frames(error.__traceback__)
        if trace is not None and trace.tb_frame.f_code.co_name == "create_accumulator":
            return combiner_method(self.combiner, "create_accumulator")
        return combiner_method(self.combiner, "merge_accumulators" if self.phase == "merge" else "add_input")

    # -- memory

    def block_added(self, n: int) -> None:
        """Account for a block of `n` elements, and spill the tables once they have reached the budget."""
        self._added += n
        self._check_budget()

    def _check_budget(self) -> None:
        if self._gauge.block_added():
            self._write_out()

    def _estimate(self) -> int:
        """About how many bytes the tables hold at most: each element added since the last count may be a value."""
        keys = sum(map(len, self._tables.values()))
        if not self.lists:
            return keys * (TABLE_ENTRY + self._key_size + self._value_size)
        values = self._values + self._added * self._copies
        return keys * (TABLE_ENTRY + LIST + self._key_size) + values * (LIST_ITEM + self._value_size)

    def _recount(self) -> None:
        """Sample again, and count the values in the tables, which is slow."""
        self._measure()
        self._added = 0
        if self.lists:
            self._values = sum(sum(map(len, table.values())) for table in self._tables.values())

    def _measure(self) -> None:
        """What a key and a value (or an accumulator) take, from the oldest and the newest entries."""
        newest = islice(reversed(self._tables.values()), 4)
        sample = [entry for table in newest for entry in oldest_and_newest(table)]
        if sample:
            self._key_size = mean_size(key for key, _ in sample)
            values = (value for _, entry in sample for value in (entry[-2:] if self.lists else (entry,)))
            self._value_size = mean_size(values)

    def _write_out(self) -> None:
        if self._spill is None:
            context = self.context
            self._spill = Spill(
                context.temp_dir, self.lists, self._merge, context.memory_budget, value_size=self._value_size
            )
        for window in list(self._tables):
            table = self._tables.pop(window)
            self._check_keys(table)
            try:
                self._spill.write(window, table)
            except PicklingError as error:
                rethrow(located(error, self.label, self.node.where))
            self.context.count(self.label, "spills")
        self._by_start.clear()
        self._added = self._values = 0

    def _merge(self, pair: tuple[Any, Any]) -> Any:
        assert self.combiner is not None
        method = combiner_method(self.combiner, "merge_accumulators")
        return guarded(self.combiner.merge_accumulators, pair, step=self.label, where=self.node.where, method=method)

    def _check_keys(self, keys: Iterable[Any]) -> None:
        try:
            check_keys(keys)
        except KeyEncodingError as error:
            raise located(error, self.node.label, self.node.where) from None

    # -- results

    def open(self) -> None:
        """The combiner's `setup`."""
        set_up(self.combiner, self.node)

    def close(self) -> None:
        """The combiner's `teardown`."""
        tear_down(self.combiner, self.node)

    def drain(self) -> Iterator[Emitted]:
        """Everything grouped, windows by (end, start) and keys by first arrival; the tables are empty afterwards.

        What was spilled comes partition by partition instead, in each of them the windows in this order.
        """
        size = self.context.block_size
        for window, table in self._parts():
            timestamp = window_end(window) - 1
            entries: Iterable[Sequence[Any]] | None = self._as_held(table, size)
            for values in map(self._results, chunks(table, size)) if entries is None else entries:
                self.context.count(self.label, "elements_out", len(values))
                yield self.main, Block(values, timestamp, Same((window,)), ONLY_PANE)

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        """All entries. Parts leave before any snapshot, so each key is of one task."""
        cells: Tables = {window: of_keys(table, None, self._copying()) for window, table in self._tables.items()}
        for window, spilled in self._spill.entries() if self._spill is not None else ():
            table = cells[window] = dict(cells.get(window, {}))
            for key, entry in spilled.items():
                table[key] = self._joined(entry, table[key]) if key in table else entry
        return KeyedState({CELLS: cells})

    def restore(self, state: KeyedState) -> None:
        """Take in a snapshot."""
        for window, entries in state.tables[CELLS].items():
            self.table_in(window).update({key: self._copied(entry) for key, entry in entries.items()})

    def _copying(self) -> Callable[[Any], Any] | None:
        """How a snapshot copies an entry; None: entries are not changed, only replaced."""
        return None if type(self.combiner) in _REPLACED and not self.lists else self._copied

    def _copied(self, entry: Any) -> Any:
        if self.lists:
            return entry[:]
        return copy_accumulator(self.combiner, entry) if self.combiner is not None else entry

    def _joined(self, earlier: Any, later: Any) -> Any:
        return earlier + later if self.lists else self._merge((earlier, later))

    def _parts(self) -> Iterator[tuple[Any, dict[Any, Any]]]:
        if self._spill is not None:
            self._write_out()
            yield from self._spill.drain()
            return
        for window in sorted(self._tables, key=window_order):
            table = self._tables.pop(window)
            self._check_keys(table)
            yield window, table
        self._by_start.clear()

    def _as_held(self, table: dict[Any, Any], size: int) -> Iterator[Pairs] | None:
        """The table's entries as they are, where nothing need be done to them; None elsewhere."""
        extracting = fold_codegen.extracts(self.combiner, self.phase) is not None
        if self._trials is not None or self._spill is not None or extracting:
            return None
        keys, values = iter(table), iter(table.values())
        return (Pairs(list(islice(keys, size)), list(islice(values, size))) for _ in range(0, len(table), size))

    def _results(self, chunk: list[tuple[Any, Any]]) -> Sequence[Any]:
        combiner = self.combiner
        if self._trials is not None:
            self._trials.check(chunk, self.node)
        extract = fold_codegen.extracts(combiner, self.phase)
        if combiner is not None and self.lists and self._spill is not None:
            chunk = [(k, list(v) if type(v) is SpilledValues else v) for k, v in chunk]
        if extract is None:
            return chunk
        assert combiner is not None
        key = None
        try:
            results = []
            with in_step(self.label):
                for key, accumulator in chunk:
                    results.append((key, extract(accumulator)))
            return results
        except Exception as error:
            method = combiner_method(combiner, extract.__name__)
            rethrow(user_error(error, step=self.label, where=self.node.where, method=method, key=key))


def _unhashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return True
    return False

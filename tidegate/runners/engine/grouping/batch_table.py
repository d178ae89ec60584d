"""Grouping into tables, `table[window][key]`, which fire at the end of input.

The loop that fills the tables is generated (elementwise/codegen, fold_codegen); this module provides the names that
the loop uses, and emits the results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from tidegate.runners.engine.checks import contracts
from tidegate.runners.engine.checks.combiners import trials_of
from tidegate.runners.engine.elementwise.shape import Fold, FoldedWindows
from tidegate.runners.engine.errors.attribution import combiner_method, located, not_pairs, rethrow, user_error
from tidegate.runners.engine.grouping import fold_codegen
from tidegate.runners.engine.grouping.accumulation import copy_accumulator
from tidegate.runners.engine.grouping.combiners import load_combiner, set_up, tear_down
from tidegate.runners.engine.grouping.spillable_tables import SpillableTables
from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.engine.loops.form import Do
from tidegate.runners.engine.loops.inlining import Step
from tidegate.runners.engine.memory.spill import SpilledValues, chunks
from tidegate.runners.engine.operator import Context, Emitted
from tidegate.runners.engine.state.keyed_state import CELLS, KeyedState, Tables, of_keys
from tidegate.runners.plan import Phase
from tidegate.sdk.authoring.combine import CallableFn, CombineFn, CountFn, ListFn, MaxFn, MinFn, SumFn, TupleFn
from tidegate.sdk.data.block import Block, Pairs, PanesColumn, Same
from tidegate.sdk.data.keys import check_key
from tidegate.sdk.data.panes import PaneInfo, Timing
from tidegate.sdk.errors import KeyEncodingError
from tidegate.sdk.metrics import in_step
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey
from tidegate.sdk.user_code.frames import author_frames
from tidegate.sdk.windowing.assigners import BuiltinAssigner
from tidegate.sdk.windowing.assignment import single_window
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, IntervalWindow, window_end

ONLY_PANE: Final = PaneInfo(True, True, Timing.ON_TIME, 0, 0)
"""The pane of a window that fires once, on time."""

_IMMUTABLE: Final = frozenset({SumFn, CountFn, MinFn, MaxFn})
"""Combiners that never change an accumulator in place."""
_WINDOWS_PER_ELEMENT: Final = 8
"""How many windows an element is taken to be in where it may be in several."""


class Grouping:
    """The tables of one grouping, or of the partial results of one. A Chain is what feeds it (see `FoldTarget`)."""

    selects_windows = False

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
        self.tables = SpillableTables(node, self.combiner, context, lists=self.lists)
        self._folds: dict[FoldedWindows, Fold] = {}
        self._assigner: BuiltinAssigner | None = None
        self._bounds: Callable[[int], tuple[int, int]] | None = None
        self._trials = trials_of(self.combiner, phase, context)

    # -- for the generated loop

    @property
    def adding(self) -> Step | None:
        """The author's function that adds an element, which a loop may contain; None if there is none."""
        if isinstance(self.node, GroupByKey) or self.node.params:
            return None
        return fold_codegen.adding_function(self.combiner, self.node.fn.body, self.phase)

    def fold(self, windows: FoldedWindows) -> Fold:
        """The statements that add an element whose windows are found in this way."""
        known = self._folds.get(windows)
        if known is not None:
            return known
        key = fold_codegen.variables(
            self.combiner, self.phase, "first" if isinstance(self.node, GroupByKey) else self.node.key
        )
        if windows == "multi":
            self.tables.windows_per_element = _WINDOWS_PER_ELEMENT
        body, pairwise = fold_codegen.adds(self.combiner, self.phase), fold_codegen.is_pairwise(self.combiner)
        also = () if self._trials is None else (Do("add_trial_input(k, x)"),)
        plain = key == "k, x" and not also and fold_codegen.is_plain(self.combiner, self.phase)
        made = Fold(key, body, windows, self.selects_windows, pairwise, also, plain)
        self._folds[windows] = made
        return made

    def use_single_window(self, assigner: BuiltinAssigner) -> bool:
        """Return whether `assigner` puts each timestamp into exactly one window; if so, `bounds` returns its bounds."""
        if assigner is not self._assigner:
            self._assigner, self._bounds = assigner, single_window(assigner)
        return self._bounds is not None

    def bounds(self, t: int) -> tuple[int, int]:
        """The bounds (µs) of the only window of a timestamp, after `use_single_window` has returned True."""
        assert self._bounds is not None
        return self._bounds(t)

    def environment(self) -> dict[str, Any]:
        """The names that the generated lines use."""
        combiner = self.combiner
        return {
            "global_window": GLOBAL_WINDOW,
            "table_in": self.table_in,
            "table_at": self._table_at,
            "add": combiner.add_input if combiner is not None else None,
            "create": combiner.create_accumulator if combiner is not None else None,
            "merge": combiner.merge_accumulators if combiner is not None else None,
            "check_exchange": self._check_exchange,
            "add_trial_input": self._trials.add_input if self._trials is not None else None,
        }

    def table_in(self, window: Any) -> dict[Any, Any]:
        """The table that the elements of a window are added to."""
        table = self.tables.by_window.get(window)
        return self.tables.add(window) if table is None else table

    def _table_at(self, t: int) -> tuple[int, int, dict[Any, Any]]:
        """The bounds of the only window of a timestamp, and its table."""
        low, high = self.bounds(t)
        found = self.tables.by_start.get(low)
        if found is None:
            found = self.tables.by_start[low] = low, high, self.table_in(IntervalWindow.of_micros(low, high))
        return found

    def add_block(self, block: Block) -> bool:
        """Add a block without a loop over its elements, if possible; return whether it was."""
        return self._add_to_counts(block) or self._adopt(block)

    def _add_to_counts(self, block: Block) -> bool:
        """Add a block to a Counter, if this grouping counts elements and all are in one window."""
        match self.node, block.windows:
            case CombinePerKey(key="element"), Same((window,)) if (
                type(self.combiner) is CountFn and self.phase != "merge"
            ):
                try:
                    self.table_in(window).update(block.values)
                except TypeError as error:
                    rethrow(self.attributed(error, next(filter(_unhashable, block.values), None)))
                return True
            case _:
                return False

    def _adopt(self, block: Block) -> bool:
        """Make the partial results of a block the entries of their window's table, if the table is empty."""
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
        except Exception:  # a key that can't be hashed or compared: the loop over the elements will report it
            table.clear()
        if len(table) < len(block):
            table.clear()
        return bool(table)

    def add_keyed_batch(self, window: Any, keyed: KeyedBatch) -> None:
        """Add elements of one window that arrive by key, where entries are lists."""
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
        self.tables.elements_added(at)

    def block_added(self, n: int) -> None:
        """Account for a block of `n` elements, and spill the tables if they exceed the budget."""
        self.tables.elements_added(n)

    def _check_exchange(self, value: Any) -> None:
        """For `--checks`: raise CheckError for an element that can't be exchanged, or whose key has no encoding."""
        contracts.check_travels(value)
        if isinstance(self.node, CombinePerKey) and self.node.key == "element":
            check_key(value)
            return
        contracts.check_pair(value)
        key, _ = value
        check_key(key)

    def attributed(self, error: BaseException, element: Any) -> BaseException:
        """The error to raise to the author for `error`, raised while `element` was added."""
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
        return user_error(error, step=node.label, where=node.where, element=element, method=self._failed_method(error))

    def _failed_method(self, error: BaseException) -> str:
        if self.combiner is None:
            return ""
        trace = author_frames(error.__traceback__)
        if trace is not None and trace.tb_frame.f_code.co_name == "create_accumulator":
            return combiner_method(self.combiner, "create_accumulator")
        return combiner_method(self.combiner, "merge_accumulators" if self.phase == "merge" else "add_input")

    # -- life cycle and state

    def open(self) -> None:
        """Call the combiner's `setup`."""
        set_up(self.combiner, self.node, self.context.life)

    def close(self) -> None:
        """Call the combiner's `teardown`."""
        tear_down(self.combiner, self.node, self.context.life)

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        """All entries. Partial results leave before any snapshot, so that each key is in one task."""
        cells: Tables = {
            window: of_keys(table, None, self._copy_entry()) for window, table in self.tables.by_window.items()
        }
        for window, spilled in self.tables.spilled_entries():
            table = cells[window] = dict(cells.get(window, {}))
            for key, entry in spilled.items():
                table[key] = self.tables.joined(entry, table[key]) if key in table else entry
        return KeyedState({CELLS: cells})

    def restore(self, state: KeyedState) -> None:
        """Add the entries of a snapshot."""
        for window, entries in state.tables[CELLS].items():
            self.table_in(window).update({key: self._copied(entry) for key, entry in entries.items()})

    def _copy_entry(self) -> Callable[[Any], Any] | None:
        """The function by which a snapshot copies an entry; None if entries never change in place."""
        return None if type(self.combiner) in _IMMUTABLE and not self.lists else self._copied

    def _copied(self, entry: Any) -> Any:
        if self.lists:
            return entry[:]
        return copy_accumulator(self.combiner, entry) if self.combiner is not None else entry

    # -- results

    def drain(self) -> Iterator[Emitted]:
        """Remove all entries, and emit their results: windows by (end, start), and keys by first arrival.

        Spilled entries are emitted partition by partition, with the windows of each partition in this order.
        """
        size = self.context.block_size
        for window, table in self._drain_tables():
            timestamp = window_end(window) - 1
            entries: Iterable[Sequence[Any]] | None = self._unchanged_results(table, size)
            for values in map(self._results, chunks(table, size)) if entries is None else entries:
                self.context.count(self.label, "elements_out", len(values))
                yield self.main, Block(values, timestamp, Same((window,)), self._panes(table, values))

    def _panes(self, table: dict[Any, Any], values: Sequence[Any]) -> PanesColumn:
        """The panes of results from this table."""
        return ONLY_PANE

    def _drain_tables(self) -> Iterator[tuple[Any, dict[Any, Any]]]:
        """Remove the tables that are to be emitted, and return them by window."""
        return self.tables.drain()

    def _unchanged_results(self, table: dict[Any, Any], size: int) -> Iterator[Pairs] | None:
        """The table's entries, `size` at a time, if they are emitted as they are; None otherwise."""
        extracting = fold_codegen.extracts(self.combiner, self.phase) is not None
        if self._trials is not None or self.tables.spilled or extracting:
            return None
        keys, values = iter(table), iter(table.values())
        return (Pairs(list(islice(keys, size)), list(islice(values, size))) for _ in range(0, len(table), size))

    def _results(self, chunk: list[tuple[Any, Any]]) -> Sequence[Any]:
        combiner = self.combiner
        if self._trials is not None:
            self._trials.check(chunk, self.node)
        extract = fold_codegen.extracts(combiner, self.phase)
        if combiner is not None and self.lists and self.tables.spilled:
            chunk = [(k, list(v) if type(v) is SpilledValues else v) for k, v in chunk]
        if extract is None:
            return chunk
        assert combiner is not None
        by_tag = fold_codegen.groups_by_tag(combiner, chunk)
        if by_tag is not None:
            return by_tag
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

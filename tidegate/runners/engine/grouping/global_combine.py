"""A combine without keys: one result per window over the whole collection. Adds whole blocks, not single elements."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from tidegate.runners.engine.checks.combiners import trials_of
from tidegate.runners.engine.checks.exchange import ExchangeCheck
from tidegate.runners.engine.errors.attribution import combiner_method, rethrow, user_error
from tidegate.runners.engine.grouping import fold_codegen
from tidegate.runners.engine.grouping.accumulation import copy_accumulator
from tidegate.runners.engine.grouping.batch_table import ONLY_PANE
from tidegate.runners.engine.grouping.combiners import load_combiner, set_up, tear_down
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.engine.state.keyed_state import CELLS, KeyedState
from tidegate.runners.plan import Phase
from tidegate.sdk.authoring.combine import CombineFn
from tidegate.sdk.data.block import Block, DerivedFrom, Same
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.metrics import in_step
from tidegate.sdk.portable.model import CombinePerKey
from tidegate.sdk.windowing.assigners import GlobalWindows
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, window_end, window_order

_NONE: Final = object()


class GlobalCombine(Operator):
    """Folds blocks into one accumulator per window, and emits the results when input ends."""

    def __init__(self, node: CombinePerKey, phase: Phase, context: Context, main: str) -> None:
        self.node = node
        self.phase: Phase = phase
        self.context = context
        self.main = main
        combiner = load_combiner(node)
        assert combiner is not None
        self.combiner: CombineFn[Any, Any, Any] = combiner
        self._fold = fold_codegen.fold_block(combiner, phase)
        self._accumulators: dict[Any, Any] = {}
        self._exchange_check = ExchangeCheck(node, context)
        self._trials = trials_of(combiner, phase, context)

    def open(self) -> None:
        set_up(self.combiner, self.node, self.context.life)

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        self._exchange_check.check(block)
        match block.windows:
            case Same((window,)):
                self._add(window, block.values)
            case DerivedFrom(GlobalWindows()):
                self._add(GLOBAL_WINDOW, block.values)
            case _:
                by_window: dict[Any, list[Any]] = {}
                for value, windows in zip(block.values, block.window_list(), strict=True):
                    for window in windows:
                        by_window.setdefault(window, []).append(value)
                for window, values in by_window.items():
                    self._add(window, values)
        return iter(())

    def finish_bundle(self) -> Iterator[Emitted]:
        if self.phase == "parts" and self._accumulators:
            yield from self._results()

    def finish(self) -> Iterator[Emitted]:
        return self._results()

    def _results(self) -> Iterator[Emitted]:
        if not self._accumulators and self.node.default and self.phase != "parts":
            self._accumulators[GLOBAL_WINDOW] = self._create()
        for window in sorted(self._accumulators, key=window_order):
            result = self._result(self._accumulators.pop(window))
            self.context.count(self.node.label, "elements_out")
            yield self.main, Block([result], window_end(window) - 1, Same((window,)), self._pane(window))

    def _pane(self, window: Any) -> PaneInfo:
        return ONLY_PANE

    def _result(self, accumulator: Any) -> Any:
        if self._trials is not None:
            self._trials.check([(None, accumulator)], self.node)
        extract = fold_codegen.extracts(self.combiner, self.phase)
        try:
            with in_step(self.node.label):
                return accumulator if extract is None else extract(accumulator)
        except Exception as error:
            rethrow(self._attributed(error, extract.__name__ if extract is not None else ""))

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        """The accumulators, under the key None. Partial results leave before any snapshot, so one task has them all."""
        cells = {window: {None: copy_accumulator(self.combiner, a)} for window, a in self._accumulators.items()}
        return KeyedState({CELLS: cells})

    def restore(self, state: KeyedState) -> None:
        for window, entries in state.tables[CELLS].items():
            for accumulator in entries.values():
                self._accumulators[window] = copy_accumulator(self.combiner, accumulator)

    def close(self) -> None:
        tear_down(self.combiner, self.node, self.context.life)

    def _create(self) -> Any:
        try:
            with in_step(self.node.label):
                return self.combiner.create_accumulator()
        except Exception as error:
            rethrow(self._attributed(error, "create_accumulator"))

    def _add(self, window: Any, values: Any) -> None:
        accumulator = self._accumulators.get(window, _NONE)
        self._accumulators[window] = self._fold_into(self._create() if accumulator is _NONE else accumulator, values)

    def _fold_into(self, accumulator: Any, values: Any) -> Any:
        """The accumulator after these values were added."""
        if self._trials is not None:
            for value in values:
                self._trials.add_input(None, value)
        try:
            with in_step(self.node.label):
                return self._fold(accumulator, values)
        except Exception as error:
            if self.phase == "merge":
                rethrow(self._attributed(error, "merge_accumulators"))
            rethrow(self._attributed(error, "add_input", *fold_codegen.element_being_added(error)))

    def _attributed(self, error: BaseException, method: str, *element: Any) -> BaseException:
        about = {"element": element[0]} if element else {}
        name = combiner_method(self.combiner, method)
        return user_error(error, step=self.node.label, where=self.node.where, method=name, **about)

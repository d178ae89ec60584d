"""A combine without keys: one result per window over the whole collection. Blocks are folded as wholes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegate.runners.engine import checks, folds
from tidegate.runners.engine.blame import guarded, rethrow, user_error
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.engine.tables import ONLY_PANE, load_combiner
from tidegate.runners.engine.trials import trials_of
from tidegate.runners.plan import Phase
from tidegate.sdk.block import Block, Same
from tidegate.sdk.combine import CombineFn
from tidegate.sdk.portable.pipeline import CombinePerKey
from tidegate.sdk.window_types import GLOBAL_WINDOW, window_end


class CombineWhole(Operator):
    """Folds every block into one accumulator per window; emits when input ends."""

    def __init__(self, node: CombinePerKey, phase: Phase, context: Context, main: str) -> None:
        self.node = node
        self.phase: Phase = phase
        self.context = context
        self.main = main
        combiner = load_combiner(node)
        assert combiner is not None
        self.combiner: CombineFn[Any, Any, Any] = combiner
        self._fold = folds.fold_block(combiner, phase)
        self._accumulators: dict[Any, Any] = {}
        self._seen = self._blocks = 0
        self._trials = trials_of(combiner, phase, context)

    def open(self) -> None:
        guarded(self.combiner.setup, step=self.node.label, where=self.node.where, method="setup")

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        self._check(block)
        match block.windows:
            case Same((window,)):
                self._add(window, block.values)
            case _:
                by_window: dict[Any, list[Any]] = {}
                for value, windows in zip(block.values, block.window_list(), strict=True):
                    for window in windows:
                        by_window.setdefault(window, []).append(value)
                for window, values in by_window.items():
                    self._add(window, values)
        return iter(())

    def finish(self) -> Iterator[Emitted]:
        if not self._accumulators and self.node.default and self.phase != "parts":
            self._accumulators[GLOBAL_WINDOW] = self._create()
        extract = folds.extracts(self.combiner, self.phase)
        for window in sorted(self._accumulators, key=lambda window: (window_end(window), window)):
            accumulator = self._accumulators.pop(window)
            if self._trials is not None:
                self._trials.check([(None, accumulator)], self.node)
            try:
                result = accumulator if extract is None else extract(accumulator)
            except Exception as error:
                rethrow(self._blamed(error, extract.__name__ if extract is not None else ""))
            self.context.count(self.node.label, "elements_out")
            yield self.main, Block([result], window_end(window) - 1, Same((window,)), ONLY_PANE)

    def close(self) -> None:
        guarded(self.combiner.teardown, step=self.node.label, where=self.node.where, method="teardown")

    def _create(self) -> Any:
        try:
            return self.combiner.create_accumulator()
        except Exception as error:
            rethrow(self._blamed(error, "create_accumulator"))

    def _add(self, window: Any, values: Any) -> None:
        known = window in self._accumulators
        accumulator = self._accumulators[window] if known else self._create()
        if self._trials is not None:
            for value in values:
                self._trials.witness(None, value)
        try:
            self._accumulators[window] = self._fold(accumulator, values)
        except Exception as error:
            method = "merge_accumulators" if self.phase == "merge" else "add_input"
            rethrow(self._blamed(error, method))

    def _blamed(self, error: BaseException, method: str) -> BaseException:
        return user_error(
            error, step=self.node.label, where=self.node.where, method=f"{type(self.combiner).__name__}.{method}"
        )

    def _check(self, block: Block) -> None:
        if self.context.checks is None:
            return
        self._blocks += 1
        share = self.context.checks.share(self._seen, self._blocks, len(block))
        self._seen += len(block)
        try:
            for value in block.values[:share]:
                checks.check_travels(value)
        except Exception as error:
            rethrow(user_error(error, step=self.node.label, where=self.node.where))

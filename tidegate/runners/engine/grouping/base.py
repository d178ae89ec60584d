"""The base of groupings that keep an accumulation per key: reads keys from elements and attributes errors."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

from tidegate.runners.engine.checks.combiners import is_tried
from tidegate.runners.engine.checks.exchange import ExchangeCheck
from tidegate.runners.engine.errors.attribution import combiner_method, located, not_pairs, user_error
from tidegate.runners.engine.grouping.accumulation import Accumulation
from tidegate.runners.engine.grouping.combiners import load_combiner, set_up, tear_down
from tidegate.runners.engine.operator import Context, Operator
from tidegate.runners.plan import Phase
from tidegate.sdk.authoring.combine import NOTHING
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.keys import check_key
from tidegate.sdk.errors import CheckError, KeyEncodingError, shorten
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey, KeyOf
from tidegate.sdk.windowing.strategy import WindowingStrategy


class GroupedByKey(Operator):
    """A grouping by key. `accumulation` adds elements to a pane and fires it; `key` tells where an element's key is."""

    def __init__(
        self,
        node: GroupByKey | CombinePerKey,
        phase: Phase,
        strategy: WindowingStrategy,
        context: Context,
        main: str,
    ) -> None:
        self.node = node
        self.label = node.label
        self.strategy = strategy
        self.context = context
        self.main = main
        self.combiner = load_combiner(node)
        self.accumulation = Accumulation(self.combiner, phase, strategy, tried=is_tried(self.combiner, phase, context))
        # Partial results arrive as pairs, except those of a combine without keys.
        self.key: KeyOf = "first"
        if isinstance(node, CombinePerKey) and not (phase == "merge" and node.key == "element"):
            self.key = node.key
        self.exchange_check = ExchangeCheck(node, context)

    def open(self) -> None:
        set_up(self.combiner, self.node, self.context.life)

    def close(self) -> None:
        tear_down(self.combiner, self.node, self.context.life)

    def pairs(self, block: Block) -> Iterable[Any]:
        """The block's elements as (key, input of the grouping)."""
        if self.key == "first":
            return block.values
        return zip(block.values if self.key == "element" else repeat(None), block.values, strict=False)

    def attributed(self, error: BaseException, element: Any, k: Any, method: str) -> BaseException:
        """The error to raise to the author for one that `method` (as `method_name` returns it) raised.

        Pass NOTHING for an unknown element or key. An element whose key is unknown is reported as not being a pair.
        """
        where = self.node.where
        if isinstance(error, (TypeError, ValueError)):
            if k is NOTHING:
                return not_pairs(element, self.label, where)
            try:
                check_key(k)
            except KeyEncodingError as refused:
                return located(refused, self.label, where)
        return self.with_context(error, element, k, method)

    def with_context(self, error: BaseException, element: Any, k: Any, method: str) -> BaseException:
        """The error with its step, element and key."""
        about: dict[str, Any] = {}
        if element is not NOTHING:
            about["element"] = element if self.key == "first" or k is NOTHING else element[1]
        if k is not NOTHING and self.key != "none":
            if isinstance(error, CheckError):
                error.args = (f"{error}\n  key: {shorten(k)}",)
            about["key"] = k
        return user_error(error, step=self.label, where=self.node.where, method=method, **about)

    def method_name(self, name: str) -> str:
        """How error messages name a method of the combiner."""
        return combiner_method(self.combiner, name) if self.combiner is not None else ""

"""What groupings have in common that hold a key's elements themselves: what is the key, what is held, who is blamed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

from tidegate.runners.engine.checks.combiners import is_tried
from tidegate.runners.engine.checks.exchange import ExchangeCheck
from tidegate.runners.engine.errors.attribution import combiner_method, located, not_pairs, user_error
from tidegate.runners.engine.grouping.accumulation import Contents
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
    """A grouping whose `contents` are what it holds of one key and window. `key` says what the key of an element is."""

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
        self.contents = Contents(self.combiner, phase, strategy, tried=is_tried(self.combiner, phase, context))
        # Parts come as pairs, whatever their key was.
        self.key: KeyOf = "first"
        if isinstance(node, CombinePerKey) and not (phase == "merge" and node.key == "element"):
            self.key = node.key
        self.crossing = ExchangeCheck(node, context)

    def open(self) -> None:
        set_up(self.combiner, self.node)

    def close(self) -> None:
        tear_down(self.combiner, self.node)

    def keyed(self, block: Block) -> Iterable[Any]:
        """Every element as (key, what is grouped)."""
        if self.key == "first":
            return block.values
        return zip(block.values if self.key == "element" else repeat(None), block.values, strict=False)

    def blamed(self, error: BaseException, element: Any, k: Any, method: str) -> BaseException:
        """The error for the author, for what `method` (as `method` names it) raised on this element and key.

        NOTHING stands for what is not at hand: without a key, the element was no pair.
        """
        where = self.node.where
        if isinstance(error, (TypeError, ValueError)):
            if k is NOTHING:
                return not_pairs(element, self.label, where)
            try:
                check_key(k)
            except KeyEncodingError as refused:
                return located(refused, self.label, where)
        return self.shown(error, element, k, method)

    def shown(self, error: BaseException, element: Any, k: Any, method: str) -> BaseException:
        """The error for the author, with the element and its key."""
        about: dict[str, Any] = {}
        if element is not NOTHING:
            about["element"] = element if self.key == "first" or k is NOTHING else element[1]
        if k is not NOTHING and self.key != "none":
            if isinstance(error, CheckError):
                error.args = (f"{error}\n  key: {shorten(k)}",)
            about["key"] = k
        return user_error(error, step=self.label, where=self.node.where, method=method, **about)

    def method(self, name: str) -> str:
        """How a method of the combiner is named to its author."""
        return combiner_method(self.combiner, name) if self.combiner is not None else ""

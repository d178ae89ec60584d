"""The life cycle of a grouping's combiner: load it from its node, set it up, tear it down."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tidegate.runners.engine.errors.attribution import combiner_method, guarded
from tidegate.runners.engine.life_cycle import LifeCycle
from tidegate.sdk.authoring.combine import CombineFn, WithArguments
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey


def load_combiner(node: GroupByKey | CombinePerKey) -> CombineFn[Any, Any, Any] | None:
    """The node's combiner with its extra arguments bound; None for a GroupByKey."""
    if isinstance(node, GroupByKey):
        return None
    combiner: CombineFn[Any, Any, Any] = node.fn.load()
    if node.params:
        consts = node.consts.load() if node.consts is not None else ()
        args = tuple(consts[int(param.ref)] for param in node.params if param.keyword is None)
        kwargs = {param.keyword: consts[int(param.ref)] for param in node.params if param.keyword is not None}
        return WithArguments(combiner, args, kwargs)
    return combiner


def set_up(combiner: CombineFn[Any, Any, Any] | None, node: GroupByKey | CombinePerKey, life: LifeCycle) -> None:
    """Call the combiner's `setup`. An error from it names the step."""
    if combiner is not None:
        life.set_up(node.label, partial(_call, combiner, combiner.setup, node, "setup"))


def tear_down(combiner: CombineFn[Any, Any, Any] | None, node: GroupByKey | CombinePerKey, life: LifeCycle) -> None:
    """Call the combiner's `teardown`. An error from it names the step."""
    if combiner is not None:
        life.tear_down(node.label, partial(_call, combiner, combiner.teardown, node, "teardown"))


def _call(
    combiner: CombineFn[Any, Any, Any], call: Callable[[], object], node: GroupByKey | CombinePerKey, method: str
) -> None:
    guarded(call, step=node.label, where=node.where, method=combiner_method(combiner, method))

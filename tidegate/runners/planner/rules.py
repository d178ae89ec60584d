"""The rules a plan follows, each a small function of the portable pipeline that gives its reason."""

from __future__ import annotations

from tidegate.runners.plan import Path
from tidegate.sdk.portable.model import (
    AssignWindows,
    CombinePerKey,
    Flatten,
    GroupByKey,
    Node,
    ParDo,
    Pipeline,
)
from tidegate.sdk.windowing.assigners import Sessions, is_merging
from tidegate.sdk.windowing.strategy import TimestampCombiner, WindowingStrategy
from tidegate.sdk.windowing.triggers import AfterWatermark, DefaultTrigger, is_data_driven


def element_wise(node: Node) -> bool:
    """Whether a node fuses into a chain: it looks at one element at a time and keeps nothing."""
    match node:
        case AssignWindows():
            return True
        case ParDo():
            return not node.stateful
        case _:
            return False


def at_most_one(node: Node) -> bool:
    """Whether each element gives at most one result on the main output, as far as the node tells.

    Where an element is in several windows that is one result for each: no more than a grouping would keep of it.
    """
    match node:
        case ParDo():
            return node.form in ("map", "map_tuple", "filter") and not node.sees_window
        case _:
            return isinstance(node, AssignWindows)


def needs_key(node: Node) -> bool:
    """Whether equal keys must meet at this node."""
    match node:
        case GroupByKey():
            return True
        case CombinePerKey():
            return True
        case ParDo():
            return node.stateful
        case _:
            return False


def lift(node: CombinePerKey, windowing: WindowingStrategy, *, bounded: bool) -> tuple[bool, str]:
    """Whether parts may be combined before the exchange because the result can't show it, and why (not).

    SEMANTICS, Combining: (a) bounded input, no data-driven trigger, no evictor; or (b) a bare DefaultTrigger or
    AfterWatermark, no lateness, END_OF_WINDOW, a non-merging assigner, no evictor, no late-data output.
    """
    if not node.in_parts:
        return False, f"{node.name} is a plain callable, called once with all values"
    if windowing.evictor is not None:
        return False, "the evictor must see single elements"
    if bounded:
        if is_data_driven(windowing.trigger, late=False):
            return False, "the trigger counts or looks at elements"
        return True, "the input is bounded"
    bare = windowing.trigger in (DefaultTrigger(), AfterWatermark())
    if not bare:
        return False, "early or late panes would show it"
    if windowing.allowed_lateness.micros or node.late_tag is not None:
        return False, "late elements would show it"
    if windowing.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW:
        return False, "the timestamp combiner looks at elements"
    if is_merging(windowing.assigner):
        return False, "windows merge"
    return True, "only the on-time pane is emitted"


def grouping_path(
    windowing: WindowingStrategy, late_tag: str | None, *, bounded: bool, streaming: bool
) -> tuple[Path, str]:
    """Which way a grouping is executed, and why."""
    if windowing.evictor is not None:
        return "general", "an evictor"
    if is_data_driven(windowing.trigger, late=streaming or not bounded):
        return "general", "a data-driven trigger"
    if windowing.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW:
        return "general", "the timestamp combiner looks at elements"
    if bounded and not streaming:
        if isinstance(windowing.assigner, Sessions):
            return "sessions", "bounded input: sessions merge in sorted order"
        if is_merging(windowing.assigner):
            return "general", "windows merge by the author's rule"
        return "table", "bounded input: one table, fired when it ends"
    if late_tag is not None or windowing.allowed_lateness.micros:
        return "general", "late data"
    if windowing.trigger not in (DefaultTrigger(), AfterWatermark()):
        return "general", "early or late panes"
    if isinstance(windowing.assigner, Sessions):
        return "live_sessions", "only the on-time pane of each session is emitted"
    if is_merging(windowing.assigner):
        return "general", "windows merge by the author's rule"
    return "window_major", "only the on-time pane is emitted"


def order_shows(node: Node, windowing: WindowingStrategy) -> bool:
    """Whether the order of one key's elements can show in the result (SEMANTICS, Bounded input)."""
    match node:
        case ParDo():
            return node.stateful
        case GroupByKey() | CombinePerKey():
            return windowing.evictor is not None or is_data_driven(windowing.trigger, late=False)
        case _:
            return False


def partitioned_by_key(pipeline: Pipeline, collection: str) -> str | None:
    """The label of the grouping that already partitioned `collection` by its present key; None if none did.

    Steps that keep keys (`MapValues` and its like, filters) keep the partitioning; all parts of a Flatten must have
    it from groupings, each by the same hash of the key.
    """

    def walk(id: str) -> str | None:
        node = pipeline.producer(id)
        match node:
            case GroupByKey():
                return node.label
            case CombinePerKey(key="first"):
                return node.label
            case ParDo(keeps_key=True) | AssignWindows():
                return walk(node.inputs[0]) if id == node.output() else None
            case Flatten():
                found = [walk(part) for part in node.inputs]
                return found[0] if found and all(found) else None
            case _:
                return None

    return walk(collection)

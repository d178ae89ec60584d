"""The planner's rules: pure functions of the portable pipeline, some of which also return a reason."""

from __future__ import annotations

from tidegate.runners.plan import Path
from tidegate.sdk.errors import counted
from tidegate.sdk.portable.async_calls import AsyncCalls
from tidegate.sdk.portable.model import (
    FLAT_FORMS,
    AssignWindows,
    CombinePerKey,
    Flatten,
    GroupByKey,
    Lookup,
    Node,
    ParDo,
    Pipeline,
)
from tidegate.sdk.windowing.assigners import Sessions, is_merging
from tidegate.sdk.windowing.strategy import TimestampCombiner, WindowingStrategy
from tidegate.sdk.windowing.triggers import AfterWatermark, DefaultTrigger, is_data_driven


def element_wise(node: Node) -> bool:
    """Whether a node can be fused into a chain: it processes single elements, at once, and is stateless."""
    match node:
        case AssignWindows():
            return True
        case ParDo():
            return not node.stateful and node.calls is None
        case _:
            return False


def at_most_one(node: Node) -> bool:
    """Whether the node is known to emit at most one result per element on its main output.

    An element in several windows counts once for each, as it does in a grouping.
    """
    return may_fold(node) and not (isinstance(node, ParDo) and node.form in FLAT_FORMS)


def may_fold(node: Node) -> bool:
    """Whether the loop of a node may end in the tables of a grouping: the node is not called once for each window."""
    match node:
        case ParDo():
            return not node.sees_window
        case _:
            return isinstance(node, AssignWindows)


def describe_calls(calls: AsyncCalls) -> str:
    """How a step calls out: `up to 100 at a time, in the order of the elements`."""
    how = "in the order of the elements" if calls.ordered else "as they return, but never across a watermark"
    parts = [f"up to {calls.capacity:,} at a time", f"results {how}"]
    if calls.timeout is not None:
        parts.append(f"timeout {calls.timeout}")
    if calls.retry is not None and calls.retry.attempts > 1:
        parts.append(f"up to {calls.retry.attempts} attempts")
    if calls.cache is not None:
        parts.append(
            f"{counted(calls.cache.size, 'result')} cached" + (f" for {calls.cache.ttl}" if calls.cache.ttl else "")
        )
    if calls.batch is not None:
        parts.append(f"up to {counted(calls.batch.size, 'key')} in a call")
    return ", ".join(parts)


def needs_key(node: Node) -> bool:
    """Whether all elements of a key must be processed by the same task of this node."""
    match node:
        case GroupByKey():
            return True
        case CombinePerKey() | Lookup():
            return True
        case ParDo():
            return node.stateful
        case _:
            return False


def lift(node: CombinePerKey, windowing: WindowingStrategy, *, bounded: bool) -> tuple[bool, str]:
    """Whether parts may be combined before the exchange, because that can't change the result; and the reason.

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
    """The path by which a grouping is executed, and the reason."""
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
    """Whether the order of a key's elements can affect the result (SEMANTICS, Bounded input)."""
    match node:
        case ParDo():
            return node.stateful
        case GroupByKey() | CombinePerKey():
            return windowing.evictor is not None or is_data_driven(windowing.trigger, late=False)
        case _:
            return False


def partitioned_by_key(pipeline: Pipeline, collection: str, partitioned: frozenset[str] = frozenset()) -> str | None:
    """The label of the grouping by whose keys `collection` is still partitioned; None if there is none.

    Steps that preserve keys (such as `MapValues` and filters) preserve the partitioning. The result of a Flatten is
    partitioned if all its inputs are, since every grouping partitions by the same hash. The collections `partitioned`
    are partitioned by key when they are read, and then the steps count that tag pairs for a CoGroupByKey.
    """

    def walk(id: str) -> str | None:
        if id in partitioned:
            return id
        node = pipeline.producer(id)
        match node:
            case GroupByKey() | CombinePerKey(key="first") | Lookup():
                return node.label
            case ParDo(keeps_key=True) | AssignWindows():
                return walk(node.inputs[0]) if id == node.output() else None
            case ParDo() if partitioned and _tags_pairs(pipeline, node):
                return walk(node.inputs[0])
            case Flatten():
                found = [walk(part) for part in node.inputs]
                return found[0] if found and all(found) else None
            case _:
                return None

    return walk(collection)


def _tags_pairs(pipeline: Pipeline, node: ParDo) -> bool:
    """Whether a step only tells a CoGroupByKey from which of its collections a pair is."""
    return all(
        isinstance(reader, Flatten)
        and all(
            isinstance(group, CombinePerKey) and group.cogroups and group.composite == node.composite
            for group in pipeline.consumers(reader.output())
        )
        for reader in pipeline.consumers(node.output())
    ) and any(pipeline.consumers(node.output()))

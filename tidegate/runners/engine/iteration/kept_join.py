"""Joins of what a round changes with what is the same in all rounds: each element meets the kept ones at once.

If all is in the global window, a join makes neither pairs with numbers nor groups (`with_joins`): its first step, Tag,
is left out, and its last, Pairs, meets the kept ones, in the loop that it is part of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.runners.engine.checks.exchange import ExchangeCheck
from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.errors.attribution import located, rethrow, user_error
from tidegate.runners.engine.grouping.batch_table import ONLY_PANE
from tidegate.runners.engine.iteration.solution import by_window
from tidegate.runners.engine.loop_tables import JoinTables, Kept, KeptTables
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.plan import Edge, Plan, Step
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.data.block import Block, Same, keys_of
from tidegate.sdk.data.keys import check_keys
from tidegate.sdk.errors import KeyEncodingError
from tidegate.sdk.portable.model import CombinePerKey, ParDo
from tidegate.sdk.user_code.body import find_body
from tidegate.sdk.windowing.assigners import is_global_assigner
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, window_end


class KeptJoin(Operator):
    """Emits a group for each element that has changed: its key, and the lists of its value and of the kept ones."""

    def __init__(self, node: CombinePerKey, context: Context, main: str, kept: JoinTables) -> None:
        self._node = node
        self._context = context
        self._main = main
        self._kept = kept
        self._first = kept.changing == 0
        self._inner = len(node.needs) == 2
        self._crossing = ExchangeCheck(node, context)

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        self._crossing.check(block)
        for window, part in by_window(block):
            groups = self._groups(part.values, self._kept.by_window.get(window, {}))
            self._context.count(self._node.label, "elements_out", len(groups))
            yield self._main, Block(groups, window_end(window) - 1, Same((window,)), ONLY_PANE)

    def _groups(self, values: Sequence[Any], kept: Mapping[Any, Sequence[Any]]) -> list[tuple[Any, Any]]:
        """The groups of pairs of a key, and of the number of a collection and a value."""
        node, get = self._node, kept.get
        key = None
        try:
            check_keys(keys_of(values))
            if self._inner and self._first:
                return [(key, ([x], known)) for key, (_, x) in values if (known := get(key)) is not None]
            if self._inner:
                return [(key, (known, [x])) for key, (_, x) in values if (known := get(key)) is not None]
            if self._first:
                return [(key, ([x], get(key, []))) for key, (_, x) in values]
            return [(key, (get(key, []), [x])) for key, (_, x) in values]
        except KeyEncodingError as error:
            rethrow(located(error, node.label, node.where))
        except Exception as error:
            rethrow(user_error(error, step=node.label, where=node.where, key=key))


class JoinInput(Operator):
    """Emits pairs of a key and a value that has changed as they are, in the window that they are in, once it has
    checked the keys. They meet the kept ones in the next step (`meeting`), and are counted as the groups that a
    `KeptJoin` would emit. `tag` is the link left out."""

    def __init__(self, node: CombinePerKey, context: Context, main: str, kept: JoinTables, tag: Link) -> None:
        self._node = node
        self._context = context
        self._main = main
        self._tag = tag
        self._known = kept.by_window.get(GLOBAL_WINDOW, {})
        self._inner = len(node.needs) == 2
        self._crossing = ExchangeCheck(node, context)

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        self._crossing.check(block)
        keys = self._keys(block.values)
        try:
            check_keys(keys)
        except KeyEncodingError as error:
            rethrow(located(error, self._node.label, self._node.where))
        self._context.count(self._tag.label, "elements_out", len(block))
        groups = sum(map(self._known.__contains__, keys)) if self._inner else len(block)
        self._context.count(self._node.label, "elements_out", groups)
        for window, part in by_window(block):
            yield self._main, Block(part.values, window_end(window) - 1, Same((window,)), ONLY_PANE)

    def _keys(self, values: Sequence[Any]) -> Sequence[Any]:
        """The keys of pairs; the author's error for the first element that is not a pair."""
        try:
            return keys_of(values)
        except (TypeError, ValueError):
            for element in values:
                try:
                    _, _ = element
                except (TypeError, ValueError) as error:
                    tag = self._tag
                    rethrow(user_error(error, step=tag.label, where=tag.where, element=element))
            raise


def meeting(pairs: Link, node: CombinePerKey, context: Context) -> Link:
    """The link that emits the pairs of a join, from what has changed instead of from groups."""
    kept = context.tables.kept[node.label]
    assert isinstance(kept, JoinTables)
    function = _kept_rights if kept.changing == 0 else _kept_lefts
    return replace(
        pairs,
        fn=function,
        body=find_body(function),
        params=(Param("element"), Param("const", ref="0"), Param("const", ref="1")),
        consts=(kept.by_window.get(GLOBAL_WINDOW, {}).get, () if len(node.needs) == 2 else (None,)),
    )


def _kept_rights(pair: Any, kept: Any, otherwise: Any) -> Iterator[Any]:
    key, left = pair
    for right in kept(key, otherwise):
        yield key, (left, right)


def _kept_lefts(pair: Any, kept: Any, otherwise: Any) -> Iterator[Any]:
    key, right = pair
    for left in kept(key, otherwise):
        yield key, (left, right)


@dataclass(frozen=True, slots=True)
class JoinedSteps:
    """Steps of a graph, and the edges between them; `entries` has, by a step that was left out, the one that takes its
    input."""

    plan: Plan
    steps: tuple[Step, ...]
    edges: tuple[Edge, ...]
    entries: Mapping[int, int]


def with_joins(joined: JoinedSteps, kept: Mapping[str, Kept], left: Collection[str]) -> JoinedSteps:
    """The steps in which a join with what is kept is a step of the nodes Tag and Group, a `JoinInput`, and the first
    link of the step that reads it, which begins with the nodes Tag, Group and Pairs. Other groupings of one collection
    that changes have Tag in their loop. `left` are the collections that leave the graph."""
    for group in joined.steps:
        match kept.get(group.label):
            case JoinTables(changing=int(changing)) if (tagging := _tagging(joined, group, changing, left)) is not None:
                windowing = joined.plan.pipeline.collection(group.head.inputs[0]).windowing
                if is_global_assigner(windowing.assigner):
                    joined = _with_join(joined, group, tagging, left)
            case KeptTables(changing=int(changing)) if (tagging := _tagging(joined, group, changing, left)) is not None:
                if len(tagging.nodes) == 1:
                    grouped = replace(group, nodes=(tagging.tail, group.tail))
                    joined = _without(joined, tagging, {group.id: grouped}, group.id)
    return joined


def _tagging(joined: JoinedSteps, group: Step, changing: int, left: Collection[str]) -> Step | None:
    """The step that adds the number of the changing collection to the values of a CoGroupByKey; None if it is not in
    this graph, or something else reads it."""
    sources = [edge.source for edge in joined.edges if edge.target == group.id]
    step = next((step for step in joined.steps if [step.id] == sources), None)
    if step is None or step.tail.output() in left or len(list(joined.plan.outputs(step.id))) != 1:
        return None
    match step.tail:
        case ParDo(form="map", consts=consts) if consts is not None and consts.load() == (changing,):
            return step
    return None


def _with_join(joined: JoinedSteps, group: Step, tagging: Step, left: Collection[str]) -> JoinedSteps:
    tag, out = tagging.tail, list(joined.plan.outputs(group.id))
    if len(out) != 1 or out[0] not in joined.edges or group.tail.output() in left:
        return joined
    (reader,) = (step for step in joined.steps if step.id == out[0].target)
    if not _reads_alone(joined.plan, reader):
        return joined
    replaced = {
        group.id: replace(group, nodes=(tag, group.tail)),
        reader.id: replace(reader, nodes=(tag, group.tail, *reader.nodes)),
    }
    return _without(joined, tagging, replaced, group.id)


def _without(joined: JoinedSteps, tagging: Step, replaced: dict[int, Step], group: int) -> JoinedSteps:
    """The steps, of which some are replaced, without Tag, the last node of a step. What it read goes to the group."""
    steps, plan, entries = {step.id: step for step in joined.steps} | replaced, joined.plan, joined.entries
    (out,) = plan.outputs(tagging.id)
    if len(tagging.nodes) > 1:
        before = steps[tagging.id] = replace(tagging, nodes=tagging.nodes[:-1])
        moved: dict[Edge, Edge | None] = {out: replace(out, collection=before.outputs[0])}
    else:
        del steps[tagging.id]
        moved = {out: None} | {edge: replace(edge, target=group) for edge in plan.inputs(tagging.id)}
        entries = {**entries, tagging.id: group}
    plan = replace(plan, edges=_moved(plan.edges, moved))
    return JoinedSteps(plan, tuple(steps.values()), _moved(joined.edges, moved), entries)


def _reads_alone(plan: Plan, reader: Step) -> bool:
    """Whether the step reads nothing but the groups of a join, of which its first node makes pairs."""
    head = reader.head
    return isinstance(head, ParDo) and head.form == "flat_map" and len(list(plan.inputs(reader.id))) == 1


def _moved(edges: Sequence[Edge], moved: Mapping[Edge, Edge | None]) -> tuple[Edge, ...]:
    now = [moved.get(edge, edge) for edge in edges]
    return tuple(edge for edge in now if edge is not None)

"""Builds the operator that executes a step of the plan.

Each kind of operator is imported when a step needs it, since a process that starts imports all it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tidegate.runners.engine.checks.exchange import ExchangeCheck
from tidegate.runners.engine.elementwise.chain import Chain, ClockedChain
from tidegate.runners.engine.elementwise.fused_node import Link, load_link
from tidegate.runners.engine.loop_tables import JoinTables
from tidegate.runners.engine.operator import Context, Emitted, KeyedOperator, Operator
from tidegate.runners.plan import Phase, Plan, SolutionUpdate, Step
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.async_calls import AsyncCalls
from tidegate.sdk.portable.model import (
    AssignWindows,
    CombinePerKey,
    Feedback,
    GroupByKey,
    Iterate,
    KeyOf,
    Lookup,
    ParDo,
    Reshuffle,
    side_inputs,
)
from tidegate.sdk.user_code.user_fn import UserFn

if TYPE_CHECKING:
    from tidegate.runners.engine.iteration.rounds import MakeGraph


class Pass(Operator):
    """A Reshuffle: emits its blocks unchanged; `--checks` applies as for any exchange."""

    def __init__(self, node: Reshuffle, context: Context) -> None:
        self.main = node.output()
        self.crossing = ExchangeCheck(node, context)

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        self.crossing.check(block)
        yield self.main, block


def build(
    step: Step,
    plan: Plan,
    context: Context,
    sides: dict[str, Callable[[Any], Any]] | None = None,
    *,
    make_graph: MakeGraph | None = None,
) -> Operator:
    """The operator of a step that is neither a source nor a sink. Unpickles the author's functions.

    `make_graph` makes the graphs of a loop's rounds. `sides` are the views of the step's side inputs by `side_id`, if
    an outer operator fills them. With None, a step with side inputs is wrapped in a `SideInputOperator`, which does.
    """
    if sides is None and side_inputs(step.head):
        return _with_side_inputs(step, plan, context)
    if isinstance(step.tail, Iterate):
        loop = plan.loop(step.label)
        if loop.regions:
            from tidegate.runners.engine.iteration.results import LoopResults

            return LoopResults(loop.node, context)
        from tidegate.runners.engine.iteration.operator import LoopOperator

        assert make_graph is not None
        return LoopOperator(loop, context, make_graph)
    if isinstance(step.tail, Feedback):
        from tidegate.runners.engine.iteration.feedback import FeedbackHead

        fed_back = {edge.collection for edge in plan.inputs(step.id) if plan.feeds_back(edge)}
        return FeedbackHead(step.tail, fed_back, context)
    if isinstance(step.tail, SolutionUpdate):
        from tidegate.runners.engine.iteration.update import UpdateOperator

        return UpdateOperator(step.tail, context)
    if isinstance(step.tail, Lookup):
        from tidegate.runners.engine.iteration.lookup import LookupOperator

        return LookupOperator(step.tail, context)
    links = tuple(load_link(node, plan.pipeline) for node in step.nodes if isinstance(node, (ParDo, AssignWindows)))
    match step.nodes:
        case (ParDo(), CombinePerKey() as joined, _, *_):
            from tidegate.runners.engine.iteration.kept_join import meeting

            links = (meeting(links[1], joined, context), *links[2:])
    main = step.outputs[0]
    match step.tail:
        case GroupByKey() | CombinePerKey() as node:
            return _grouping(step, node, links, plan, context, sides)
        case ParDo(stateful=True):
            return _stateful(step, links, plan, context, sides)
        case ParDo(calls=AsyncCalls() as calls):
            return _awaiting(step, links, calls, plan, context)
        case ParDo() | AssignWindows():
            reads_clock = any(param.kind == "clock" for link in links for param in link.params)
            chain = ClockedChain if reads_clock else Chain
            return chain(links, context, main, exits=_exits(step, plan), sides=sides)
        case Reshuffle() as node:
            return Pass(node, context)
        case other:
            raise AssertionError(f"{other.kind} has no operator: the runner executes it")


def load_operators() -> None:
    """Import the operators that most steps need. A process calls it before it forks others, so that they share the
    modules, and none of them imports a module that has been replaced on disk since the run began."""
    for name in _OPERATORS:
        import_module(f"tidegate.runners.engine.{name}")


_OPERATORS: Final = (
    "grouping.batch_table",
    "grouping.global_combine",
    "grouping.operator",
    "grouping.sessions.batch",
    "grouping.sessions.streaming",
    "grouping.window_table",
    "ordering.time_ordered",
    "side_inputs.operator",
    "side_inputs.view",
    "stateful.operator",
    "windowing.operator",
)


def _stateful(
    step: Step,
    links: tuple[Link, ...],
    plan: Plan,
    context: Context,
    sides: dict[str, Callable[[Any], Any]] | None,
) -> Operator:
    from tidegate.runners.engine.stateful.operator import StatefulOperator

    (link,) = links
    bounded, exits = step.in_time_order, _exits(step, plan)
    stateful = StatefulOperator(link, context, step.outputs[0], bounded=bounded, exits=exits, sides=sides)
    return _in_time_order(stateful, "first", context, link) if bounded else _wrapped(stateful, link.label, context)


def _awaiting(step: Step, links: tuple[Link, ...], calls: AsyncCalls, plan: Plan, context: Context) -> Operator:
    from tidegate.runners.engine.asynchronous.operator import AsyncOperator, ClockedAsyncOperator

    (link,) = links
    awaiting = ClockedAsyncOperator if calls.cache is not None and calls.cache.ttl is not None else AsyncOperator
    return awaiting(link, context, step.outputs[0], exits=_exits(step, plan))


def _grouping(
    step: Step,
    node: GroupByKey | CombinePerKey,
    links: tuple[Link, ...],
    plan: Plan,
    context: Context,
    sides: dict[str, Callable[[Any], Any]] | None,
) -> Operator:
    """The operator of a grouping, for the path that the planner has chosen."""
    phase, path, main = step.phase, step.path, step.outputs[0]
    assert phase is not None
    assert path is not None
    windowing = plan.pipeline.collection(node.inputs[0]).windowing
    match path, node:
        case (("table" | "window_major"), CombinePerKey(key="none")):
            assert not links
            return _global_combine(path, node, phase, context, main)
        case "table", CombinePerKey() if (kept := context.tables.kept.get(node.label)) is not None:
            from tidegate.runners.engine.grouping.kept_tables import kept_grouping
            from tidegate.runners.engine.grouping.operator import TableOperator
            from tidegate.runners.engine.iteration.kept_join import JoinInput, KeptJoin

            if isinstance(kept, JoinTables):
                return JoinInput(node, context, main, kept, *links) if links else KeptJoin(node, context, main, kept)
            return TableOperator(links, kept_grouping(node, context, main, kept), sides=sides)
        case "table", _:
            from tidegate.runners.engine.grouping.batch_table import Grouping
            from tidegate.runners.engine.grouping.operator import TableOperator

            return TableOperator(links, Grouping(node, phase, context, main), sides=sides)
        case "window_major", _:
            from tidegate.runners.engine.grouping.operator import WindowTableOperator
            from tidegate.runners.engine.grouping.window_table import WindowGrouping

            grouping = WindowGrouping(node, phase, context, main)
            operator = WindowTableOperator(links, grouping, sides=sides)
            return operator if links or phase == "parts" else _wrapped(operator, node.label, context)
        case "sessions", _:
            from tidegate.runners.engine.grouping.sessions.batch import BatchSessions

            assert not links
            return BatchSessions(node, phase, windowing, context, main)
        case "live_sessions", _:
            from tidegate.runners.engine.grouping.sessions.streaming import StreamingSessions

            assert not links
            sessions = StreamingSessions(node, phase, windowing, context, main)
            return (
                sessions
                if isinstance(node, CombinePerKey) and node.key == "none"
                else _wrapped(sessions, node.label, context)
            )
    from tidegate.runners.engine.windowing.operator import WindowOperator

    assert not links
    late = _exits(step, plan).get((node.label, node.late_tag)) if node.late_tag is not None else None
    windowed = WindowOperator(node, phase, windowing, context, main, late)
    if not step.in_time_order:
        by_key = phase != "parts" and not (isinstance(node, CombinePerKey) and node.key == "none")
        return _wrapped(windowed, node.label, context) if by_key else windowed
    key = "first" if isinstance(node, GroupByKey) else node.key
    return _in_time_order(windowed, key, context, node)


def _global_combine(path: str, node: CombinePerKey, phase: Phase, context: Context, main: str) -> Operator:
    if path == "table":
        from tidegate.runners.engine.grouping.global_combine import GlobalCombine

        return GlobalCombine(node, phase, context, main)
    from tidegate.runners.engine.grouping.window_table import WindowedGlobalCombine

    return WindowedGlobalCombine(node, phase, context, main)


def _in_time_order(operator: Operator, key: KeyOf, context: Context, of: Link | GroupByKey | CombinePerKey) -> Operator:
    from tidegate.runners.engine.ordering.time_ordered import TimeOrderedOperator

    return TimeOrderedOperator(operator, key, context, of.label, of.where)


def _wrapped(operator: KeyedOperator, label: str, context: Context) -> Operator:
    return operator if context.wrap_keyed is None else context.wrap_keyed(label, operator)


def _with_side_inputs(step: Step, plan: Plan, context: Context) -> Operator:
    """The operator of a step whose first node has side inputs, wrapped so that elements wait for those."""
    from tidegate.runners.engine.side_inputs.operator import SideInputOperator
    from tidegate.runners.engine.side_inputs.view import SideArguments, side_views

    head = step.head
    assert isinstance(head, (ParDo, CombinePerKey))
    views = side_views(head, plan.pipeline, context)
    key: KeyOf | None = "first" if isinstance(head, ParDo) and head.stateful else None
    sides: dict[str, Callable[[Any], Any]] = {view.id: view.view for view in views}
    set_window = None
    if isinstance(head, CombinePerKey):
        combiner = SideArguments(head, sides)
        set_window = combiner.set_main_window
        key = "first" if step.phase == "merge" and head.key == "element" else head.key
        step = replace(step, nodes=(replace(head, fn=UserFn.of(combiner), params=(), consts=None),))
    lateness = plan.pipeline.collection(head.inputs[0]).windowing.allowed_lateness.micros
    inner = build(step, plan, context, sides)
    return SideInputOperator(inner, views, context, step=head.label, lateness=lateness, set_window=set_window, key=key)


def _exits(step: Step, plan: Plan) -> dict[tuple[str, str], str]:
    """The additional outputs that are read, by the label of the node that emits them and their tag."""
    read = {edge.collection for edge in plan.outputs(step.id)} | plan.results
    return {
        (node.label, output.tag): output.collection
        for node in step.nodes
        for output in node.outputs[1:]
        if output.collection in read
    }

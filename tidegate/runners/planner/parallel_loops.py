"""Loops whose rounds all tasks run: the steps of a body become steps of the plan, in regions that run again.

What a round leaves is stored behind the exchange of the step that reads it in the next one, as between any two regions;
a collection that is the same in all rounds is stored behind its exchange once.

>>> import tidegate as tg
>>> from tidegate.runners.planner import Traits, plan
>>> p = tg.Pipeline()
>>> sums = p | tg.Create([("a", 1)]) | tg.Iterate(lambda x: x | "sum" >> tg.CombinePerKey(sum), rounds=2)
>>> planned = plan(p.portable(), Traits(parallel=True, blocking=True, parallel_loops=True))
>>> [(edge.turn, edge.collection, edge.into, edge.exchange.routing) for edge in planned.edges if edge.turn]
[('start', 'Create', 'Iterate~before', 'forward'), ('back', 'Iterate/sum', 'Iterate~before', 'forward'), \
('last', 'Iterate/sum', 'Iterate~left', 'forward')]
>>> planned.loops[0].regions
(1,)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from tidegate.runners.plan import Decision, Edge, Exchange, Loop, Plan, Step, Turn, left_as
from tidegate.runners.planner.loops import body_of, with_kept_tables
from tidegate.runners.planner.rewrite import emitted_as
from tidegate.sdk.portable.loop_variable import LoopVariable
from tidegate.sdk.portable.model import Create, Iterate, Output, Pipeline, Reshuffle

PlanBody: TypeAlias = Callable[[Pipeline, frozenset[str]], Plan]
"""Plans the body of a loop, of which these collections are read outside it."""

_READ_AGAIN: Final = Exchange("forward", "blocking", "each round reads it again")
_IN_ONE_REGION: Final = "its input and its result are in one region"
_RESULT: Final = Exchange("forward", "blocking", "the result of the rounds")


def with_parallel_loops(plan: Plan, plan_body: PlanBody) -> Plan:
    """The plan in which all tasks run the rounds of each loop for which this is possible."""
    for loop in plan.loops:
        why_not = _why_in_one_task(plan, loop.node)
        body = None if why_not else _body(plan, loop.node, plan_body)
        if body is None or not body.steps:
            note = Decision(loop.node.label, "one task runs all rounds", why_not or "its body has no step")
            plan = replace(plan, decisions=(*plan.decisions, note))
        else:
            plan = _spliced(plan, body)
    return plan


def lacks_stored_input(plan: Plan) -> bool:
    """Whether all tasks could run a loop if the exchanges around it were blocking."""
    return any(_why_in_one_task(plan, loop.node) == _IN_ONE_REGION for loop in plan.loops)


def _why_in_one_task(plan: Plan, node: Iterate) -> str:
    """Why one task runs a loop; "" if all can."""
    (step,) = (step for step in plan.steps if step.tail is node)
    if node.rounds == 0:
        return "there are none"
    if any(variable.form != "all" for variable in node.variables):
        return "the solution is a table in its memory"
    if not all(edge.exchange is not None and edge.exchange.mode == "blocking" for edge in plan.inputs(step.id)):
        return _IN_ONE_REGION
    return ""


# -- the body


@dataclass(frozen=True, slots=True)
class _Body:
    """A loop with the plan of its body, in which an empty source stands for each collection that it reads. `unchanged`
    are the variables that each round returns as it takes them."""

    loop: Loop
    unchanged: tuple[LoopVariable, ...]

    @property
    def node(self) -> Iterate:
        return self.loop.node

    @property
    def steps(self) -> list[Step]:
        """The steps that do something in a round."""
        return [step for step in self.loop.plan.steps if not step.is_source]

    def start_of(self, collection: str) -> tuple[str, LoopVariable | None]:
        """The collection outside the body that is read for one that the body reads, and the variable if rounds change
        it."""
        variable = next((each for each in self.node.variables if each.before == collection), None)
        if variable is None:
            return collection, None
        return variable.start, None if variable in self.unchanged else variable


def _body(plan: Plan, node: Iterate, plan_body: PlanBody) -> _Body:
    unchanged = tuple(variable for variable in node.variables if variable.after == variable.before)
    body, _ = body_of(node, plan.pipeline)
    body, results = _emitting(body, node)
    changing = {variable.before for variable in node.variables if variable not in unchanged}
    constants = frozenset(
        out.collection for each in body.nodes if isinstance(each, Create) for out in each.outputs
    ) - frozenset(changing)
    planned = plan_body(body, frozenset(part for parts in results.values() for part in parts))
    return _Body(Loop(node, with_kept_tables(planned, constants), results), unchanged)


def _emitting(body: Pipeline, node: Iterate) -> tuple[Pipeline, Mapping[str, tuple[str, ...]]]:
    """The body with a step for each result that it returns as it reads it, so that the body's steps emit all results;
    and for each result the collections that they emit for it."""
    read = {out.collection for each in body.nodes if isinstance(each, Create) for out in each.outputs}
    unchanged = {variable.after for variable in node.variables if variable.after == variable.before}
    others = {*node.again, *node.gives} | ({node.until} if node.until is not None else set())
    others |= {variable.after for variable in node.variables if variable.after != variable.before}
    results = {}
    passed: dict[str, str] = {}
    for result in node.results:
        if result in unchanged and result not in others:
            continue
        parts = tuple(emitted_as(body, result))
        passed |= {part: f"{node.label}~{part}" for part in parts if part in read}
        results[result] = tuple(passed.get(part, part) for part in parts)
    relays = tuple(
        Reshuffle(label=id, where=node.where, composite=node.label, inputs=(part,), outputs=(Output("main", id),))
        for part, id in passed.items()
    )
    collections = tuple(replace(body.collection(part), id=id) for part, id in passed.items())
    return replace(body, nodes=(*body.nodes, *relays), collections=(*body.collections, *collections)), results


# -- the plan with the steps of the body


def _spliced(plan: Plan, body: _Body) -> Plan:
    """The plan with the steps of a body in front of the loop's step, which only emits the results."""
    (tail,) = (step for step in plan.steps if step.tail is body.node)
    inner = body.loop.plan
    moved = body.steps
    steps_at = {step.id: tail.id + at for at, step in enumerate(moved)}
    stages = sorted({step.stage for step in moved})
    first_stage = 1 + max(step.stage for step in plan.steps)
    stages_at = {stage: first_stage + at for at, stage in enumerate(stages)}

    def shifted(step: int) -> int:
        return step + len(moved) if step >= tail.id else step

    steps = (
        *plan.steps[: tail.id],
        *(replace(step, id=steps_at[step.id], stage=stages_at[step.stage]) for step in moved),
        *(replace(step, id=shifted(step.id)) for step in plan.steps[tail.id :]),
    )
    feeding = {edge.collection: edge.source for edge in plan.inputs(tail.id)}
    edges = [
        replace(edge, source=shifted(edge.source), target=shifted(edge.target))
        for edge in plan.edges
        if edge.target != tail.id
    ]
    renumbered = _numbers_without(plan, tail.id)
    edges = [edge if edge.files is None else replace(edge, files=renumbered[edge.files]) for edge in edges]
    edges += _edges_of_body(body, feeding, steps_at)
    edges += _edges_of_results(body, feeding, steps_at, shifted(tail.id))
    first = plan.region_of(tail.stage)
    regions = [
        tuple(stages_at[stage] for stage in region if stage in stages_at)
        for region in inner.regions
        if not stages_at.keys().isdisjoint(region)
    ]
    of_loop = tuple(range(first, first + len(regions)))
    loops = [
        replace(body.loop, regions=of_loop)
        if loop.node is body.node
        else replace(loop, regions=tuple(each + len(regions) if each >= first else each for each in loop.regions))
        for loop in plan.loops
    ]
    known = {collection.id for collection in plan.pipeline.collections}
    collections = tuple(each for each in inner.pipeline.collections if each.id not in known)
    pipeline = replace(plan.pipeline, collections=(*plan.pipeline.collections, *collections))
    note = Decision(body.node.label, "all tasks run its rounds", "its input is bounded and stored")
    return Plan(
        pipeline,
        steps,
        tuple(_sharing_files(edges, steps, shifted(tail.id))),
        (*plan.regions[:first], *regions, *plan.regions[first:]),
        (*plan.decisions, note, *inner.decisions),
        loops=(*loops, *inner.loops),
        results=plan.results | inner.results,
    )


def _numbers_without(plan: Plan, target: int) -> dict[int, int]:
    """The numbers of a plan's edges once those into a step are left out."""
    kept = [number for number, edge in enumerate(plan.edges) if edge.target != target]
    return {before: now for now, before in enumerate(kept)}


def _edges_of_body(body: _Body, feeding: Mapping[str, int], steps_at: Mapping[int, int]) -> Iterator[Edge]:
    """The edges into the steps of a body."""
    inner = body.loop.plan
    for edge in inner.edges:
        source, target = inner.steps[edge.source], steps_at[edge.target]
        if not source.is_source:
            yield replace(edge, source=steps_at[edge.source], target=target)
            continue
        exchange = edge.exchange
        if exchange is None or _relays(body, edge):
            exchange = _READ_AGAIN
        stored = replace(edge, target=target, exchange=replace(exchange, mode="blocking"), into=edge.collection)
        start, variable = body.start_of(edge.collection)
        if variable is None:
            yield replace(stored, collection=start, source=feeding[start])
            continue
        yield replace(stored, collection=start, source=feeding[start], turn="start")
        for part in body.loop.results[variable.after]:
            yield replace(stored, collection=part, source=steps_at[_maker(inner, part)], turn="back")


def _relays(body: _Body, edge: Edge) -> bool:
    """Whether an edge leads to a step that returns what it reads, as a result of the round."""
    step = body.loop.plan.steps[edge.target]
    return step.label == f"{body.node.label}~{edge.collection}"


def _edges_of_results(
    body: _Body, feeding: Mapping[str, int], steps_at: Mapping[int, int], tail: int
) -> Iterator[Edge]:
    """The edges from the body into the step that emits the results."""
    node, inner = body.node, body.loop.plan
    turns: list[tuple[str, Turn]] = [(variable.after, "last") for variable in node.variables]
    turns += [(result, "all") for result in node.gives]
    for at, ((result, turn), out) in enumerate(zip(turns, node.outputs, strict=True)):
        into = left_as(out.collection)
        if at < len(node.variables) and node.variables[at] in body.unchanged:
            start = node.variables[at].start
            yield Edge(start, feeding[start], tail, _RESULT, into=into)
            continue
        for part in body.loop.results[result]:
            yield Edge(part, steps_at[_maker(inner, part)], tail, _RESULT, into=into, turn=turn)


def _maker(plan: Plan, collection: str) -> int:
    """The step that emits a collection."""
    return next(step.id for step in plan.steps if collection in _emitted(step))


def _emitted(step: Step) -> set[str]:
    return {*step.outputs} | (set() if step.phase == "parts" else {out.collection for out in step.tail.outputs})


def _sharing_files(edges: list[Edge], steps: tuple[Step, ...], tail: int) -> Iterator[Edge]:
    """The edges, of which those that read the last round's result read the files that another round would read, if
    as many tasks would read them and none of the elements twice."""
    gathered = {
        steps[edge.target].stage for edge in edges if edge.exchange is not None and edge.exchange.routing == "gather"
    }
    for edge in edges:
        if edge.target == tail and edge.turn == "last" and steps[tail].stage not in gathered:
            for number, other in enumerate(edges):
                assert edge.exchange is not None
                if (
                    (other.collection, other.source, other.turn) == (edge.collection, edge.source, "back")
                    and other.exchange is not None
                    and other.exchange.routing in ("forward", "hash", "rebalance")
                    and steps[other.target].stage not in gathered
                ):
                    shared = replace(other.exchange, reason=edge.exchange.reason)
                    edge = replace(edge, exchange=shared, files=number)
                    break
        yield edge

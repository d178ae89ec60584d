"""Loops whose rounds all tasks run: the steps of a body become steps of the plan, in regions that run again.

What a round leaves is stored behind the exchange of the step that reads it in the next one, as between any two regions;
a collection that is the same in all rounds is stored behind its exchange once. A variable that stays partitioned by key
crosses an exchange only at its start. Each task keeps its part of a solution.

>>> import tidegate as tg
>>> from tidegate.runners.planner import Traits, plan
>>> p = tg.Pipeline()
>>> start = p | tg.Create([("a", 1)]).with_output_types(tuple[str, int])
>>> sums = start | tg.Iterate(lambda x: x | "sum" >> tg.CombinePerKey(sum), rounds=2)
>>> planned = plan(p.portable(), Traits(parallel=True, blocking=True, parallel_loops=True))
>>> [(edge.turn, edge.collection, edge.into, edge.exchange.routing) for edge in planned.edges if edge.turn]
[('start', 'Create', 'Iterate~before', 'hash'), ('back', 'Iterate/sum', 'Iterate~before', 'forward'), \
('last', 'Iterate/sum', 'Iterate~left', 'forward')]
>>> planned.loops[0].regions
(1,)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from tidegate.runners.plan import (
    Decision,
    Edge,
    Exchange,
    Loop,
    Plan,
    SolutionUpdate,
    Step,
    Turn,
    changes_of,
    left_as,
    left_for,
)
from tidegate.runners.planner import rules
from tidegate.runners.planner.loops import body_of, with_kept_tables
from tidegate.runners.planner.partitioned_variables import partitioned_variables
from tidegate.runners.planner.rewrite import emitted_as
from tidegate.runners.planner.single_elements import works_on_single_elements
from tidegate.sdk.portable.loop_variable import LoopVariable
from tidegate.sdk.portable.model import Create, Iterate, Lookup, Node, Output, Pipeline, Reshuffle

PlanBody: TypeAlias = Callable[[Pipeline, frozenset[str], frozenset[str]], Plan]
"""Plans the body of a loop, of which some collections are read outside it, and some are partitioned by key."""

_READ_AGAIN: Final = Exchange("forward", "blocking", "each round reads it again")
_IN_ONE_REGION: Final = "its input and its result are in one region"
_RESULT: Final = Exchange("forward", "blocking", "the result of the rounds")
_STARTS_BY_KEY: Final = Exchange("hash", "blocking", "it stays partitioned by key in all rounds")
_STARTS_IN_PLACE: Final = Exchange("forward", "blocking", "it is partitioned by key already")


def with_parallel_loops(plan: Plan, plan_body: PlanBody, *, costly_rounds: bool = False) -> Plan:
    """The plan in which all tasks run the rounds of each loop for which this is possible. `costly_rounds`: not those
    of a loop that has nothing to divide."""
    for loop in plan.loops:
        why_not = _why_in_one_task(plan, loop.node)
        if costly_rounds and not why_not and works_on_single_elements(loop.node, plan.pipeline):
            why_not = "each has one element to work on"
        body = None if why_not else _body(plan, loop.node, plan_body)
        if body is not None:
            why_not = _why_not_in_parts(body)
        if body is None or why_not:
            plan = replace(plan, decisions=(*plan.decisions, _in_one_task(loop, why_not)))
        else:
            plan = _spliced(plan, body)
    return plan


def with_loops_in_one_task(plan: Plan, why: str) -> Plan:
    """The plan with the reason why one task runs the rounds of each of its loops."""
    return replace(plan, decisions=(*plan.decisions, *(_in_one_task(loop, why) for loop in plan.loops)))


def _in_one_task(loop: Loop, why: str) -> Decision:
    return Decision(loop.node.label, "one task runs all rounds", why)


def lacks_stored_input(plan: Plan) -> bool:
    """Whether all tasks could run a loop if the exchanges around it were blocking."""
    return any(_why_in_one_task(plan, loop.node) == _IN_ONE_REGION for loop in plan.loops)


def _why_in_one_task(plan: Plan, node: Iterate) -> str:
    """Why one task runs a loop; "" if all can."""
    (step,) = (step for step in plan.steps if step.tail is node)
    if node.rounds == 0:
        return "there are none"
    solutions = {variable.before for variable in node.variables if variable.form == "solution"}
    if any(isinstance(each, Lookup) and each.inputs[1] in solutions for each in _within_loops(node)):
        return "a loop within it looks up its solution"
    if not all(edge.exchange is not None and edge.exchange.mode == "blocking" for edge in plan.inputs(step.id)):
        return _IN_ONE_REGION
    return ""


def _within_loops(node: Iterate) -> Iterator[Node]:
    """The nodes of the loops within a loop."""
    for each in node.body:
        if isinstance(each, Iterate):
            yield from each.body
            yield from _within_loops(each)


def _why_not_in_parts(body: _Body) -> str:
    """Why the tasks that run a body can't keep its variables in parts; "" if they can."""
    if not body.steps:
        return "its body has no step"
    gathered = _gathered_stages(body.loop.plan)
    if any(isinstance(step.tail, Lookup) and step.stage in gathered for step in body.steps):
        return "one task has all keys of its solution"
    return ""


def _gathered_stages(plan: Plan) -> frozenset[int]:
    """The stages of a plan that have one task."""
    return frozenset(
        plan.steps[edge.target].stage
        for edge in plan.edges
        if edge.exchange is not None and edge.exchange.routing == "gather"
    )


# -- the body


@dataclass(frozen=True, slots=True)
class _Body:
    """A loop with the plan of its body, in which an empty source stands for each collection that it reads. `unchanged`
    are the variables that each round returns as it takes them. `partitioned`: those that stay partitioned by key, as a
    round finds them."""

    loop: Loop
    unchanged: tuple[LoopVariable, ...]
    partitioned: frozenset[str]

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
    unchanged = tuple(each for each in node.variables if each.after == each.before and not each.drives)
    body, _ = body_of(node, plan.pipeline)
    body, results = _emitting(_updating(body, node), node)
    changing = [variable for variable in node.variables if variable not in unchanged]
    constants = frozenset(
        out.collection for each in body.nodes if isinstance(each, Create) for out in each.outputs
    ) - frozenset(variable.before for variable in changing)
    read = frozenset(part for parts in results.values() for part in parts)
    left = {variable.before: results[left_for(node, variable)] for variable in changing if variable.form != "solution"}
    partitioned = partitioned_variables(body, left)
    planned = plan_body(body, read, partitioned)
    gathered = _gathered_stages(planned)
    if any(planned.steps[_maker(planned, part)].stage in gathered for before in partitioned for part in left[before]):
        partitioned = frozenset()  # one task has all of its keys
        planned = plan_body(body, read, partitioned)
    return _Body(Loop(node, with_kept_tables(planned, constants), results), unchanged, partitioned)


def _updating(body: Pipeline, node: Iterate) -> Pipeline:
    """The body with the step that updates the solution, if the loop has one."""
    for variable in node.variables:
        if variable.form == "solution":
            changes = changes_of(node)
            update = SolutionUpdate(
                label=f"{node.label}~update",
                where=node.where,
                composite=node.label,
                inputs=(variable.after, variable.before),
                outputs=(Output("main", changes),),
                loop=node.label,
                merge=node.merge,
                changed=node.changed,
            )
            updates = body.collection(variable.after)
            known = (*body.collections, replace(updates, id=changes))
            if all(each.id != variable.before for each in known):  # no step looks it up
                known = (*known, replace(updates, id=variable.before))
            return replace(body, nodes=(*body.nodes, update), collections=known)
    return body


def _emitting(body: Pipeline, node: Iterate) -> tuple[Pipeline, Mapping[str, tuple[str, ...]]]:
    """The body with a step for each result that it returns as it reads it, so that the body's steps emit all results;
    and for each result the collections that they emit for it."""
    read = {out.collection for each in body.nodes if isinstance(each, Create) for out in each.outputs}
    wanted = [
        left_for(node, variable)
        for variable in node.variables
        if variable.form != "solution" and (variable.after != variable.before or variable.drives)
    ]
    wanted += [*node.again, *node.gives, *([] if node.until is None else [node.until])]
    if any(variable.form == "solution" for variable in node.variables):
        wanted.append(changes_of(node))
    results = {}
    passed: dict[str, str] = {}
    for result in dict.fromkeys(wanted):
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
    edges += _edges_of_body(plan, body, feeding, steps_at)
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
    notes = [Decision(body.node.label, "all tasks run its rounds", "its input is bounded and stored")]
    notes += [
        Decision(body.node.label, f"{before} stays where it is", "each round leaves it partitioned by key")
        for before in sorted(body.partitioned)
    ]
    return Plan(
        pipeline,
        steps,
        tuple(_sharing_files(edges, steps, shifted(tail.id))),
        (*plan.regions[:first], *regions, *plan.regions[first:]),
        (*plan.decisions, *notes, *inner.decisions),
        loops=(*loops, *inner.loops),
        results=plan.results | inner.results,
    )


def _numbers_without(plan: Plan, target: int) -> dict[int, int]:
    """The numbers of a plan's edges once those into a step are left out."""
    kept = [number for number, edge in enumerate(plan.edges) if edge.target != target]
    return {before: now for now, before in enumerate(kept)}


def _edges_of_body(plan: Plan, body: _Body, feeding: Mapping[str, int], steps_at: Mapping[int, int]) -> Iterator[Edge]:
    """The edges into the steps of a body."""
    inner = body.loop.plan
    gathered = _gathered_stages(plan)

    def by_key(start: str) -> Exchange:
        """The exchange of the start of what is partitioned by key."""
        source = plan.steps[feeding[start]]
        in_place = rules.partitioned_by_key(plan.pipeline, start) is not None and source.stage not in gathered
        return _STARTS_IN_PLACE if in_place else _STARTS_BY_KEY

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
        first = replace(stored, collection=start, source=feeding[start], turn="start")
        if variable.before in body.partitioned and edge.exchange is None:
            first = replace(first, exchange=by_key(start))
        yield first
        for part in body.loop.results[left_for(body.node, variable)]:
            yield replace(stored, collection=part, source=steps_at[_maker(inner, part)], turn="back")
    for variable in body.node.variables:
        if variable.form == "solution":
            start, update = variable.start, steps_at[_maker(inner, changes_of(body.node))]
            yield Edge(start, feeding[start], update, by_key(start), into=variable.before, turn="solution")


def _relays(body: _Body, edge: Edge) -> bool:
    """Whether an edge leads to a step that returns what it reads, as a result of the round."""
    step = body.loop.plan.steps[edge.target]
    return step.label == f"{body.node.label}~{edge.collection}"


def _edges_of_results(
    body: _Body, feeding: Mapping[str, int], steps_at: Mapping[int, int], tail: int
) -> Iterator[Edge]:
    """The edges from the body into the step that emits the results."""
    node, inner = body.node, body.loop.plan
    turns: list[tuple[str, Turn]] = [(left_for(node, variable), "last") for variable in node.variables]
    turns += [(result, "all") for result in node.gives]
    for at, ((result, turn), out) in enumerate(zip(turns, node.outputs, strict=True)):
        into = left_as(out.collection)
        if at < len(node.variables) and node.variables[at] in body.unchanged:
            start = node.variables[at].start
            yield Edge(start, feeding[start], tail, _RESULT, into=into)
            continue
        if at < len(node.variables) and node.variables[at].form == "solution":
            update = steps_at[_maker(inner, changes_of(node))]
            yield Edge(node.variables[at].before, update, tail, _RESULT, into=into, turn="solution")
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

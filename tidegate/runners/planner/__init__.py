"""Plans a portable pipeline, in small pure passes. Records each decision and its reason for `explain`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidegate.runners.plan import RELATION, Decision, Loop, Plan
from tidegate.runners.planner.cut import Traits, cut
from tidegate.runners.planner.feedback import flattened
from tidegate.runners.planner.loops import body_of, unrolled, with_inputs_of_steps, with_kept_tables
from tidegate.runners.planner.own_functions import with_own_functions
from tidegate.runners.planner.parallel_loops import lacks_stored_input, with_loops_in_one_task, with_parallel_loops
from tidegate.runners.planner.rewrite import drop_dead, emitted_as
from tidegate.runners.planner.validate import validate
from tidegate.sdk.portable.model import Feedback, Iterate, Pipeline, Relate
from tidegate.sdk.relational.relations import described

__all__ = ["Traits", "plan", "validate"]


def plan(pipeline: Pipeline, traits: Traits) -> Plan:
    """Plan a pipeline for a runner with these traits. Raises BuildError for an invalid pipeline."""
    validate(pipeline)
    return _planned(pipeline, traits, frozenset())


def _planned(
    pipeline: Pipeline,
    traits: Traits,
    results: frozenset[str],
    partitioned: frozenset[str] = frozenset(),
    *,
    repeated: bool = False,
) -> Plan:
    """The plan of a pipeline, or of the body of a loop if it is `repeated`."""
    live, dropped = drop_dead(pipeline, results) if traits.drops_unread else (pipeline, ())
    live = flattened(live)
    fed_back = frozenset(node.after for node in live.nodes if isinstance(node, Feedback))
    live, relations = _lowered(with_own_functions(unrolled(live)), results | fed_back)
    live = with_inputs_of_steps(live)
    made = cut(live, traits, dropped, results, partitioned)
    made = replace(made, loops=tuple(_loops(live, traits)), decisions=(*relations, *made.decisions))
    if not traits.parallel_loops:
        why = "it is within another loop" if repeated else _why_in_one_task(pipeline, traits)
        return with_loops_in_one_task(made, why)
    if not made.loops:
        return made
    if not traits.blocking and lacks_stored_input(made):
        return _planned(pipeline, replace(traits, blocking=True), results, partitioned)
    of_bodies = replace(traits, blocking=False, parallel_loops=False)
    return with_parallel_loops(
        made,
        lambda body, read, partitioned: _planned(body, of_bodies, read, partitioned, repeated=True),
        costly_rounds=traits.costly_rounds,
    )


def _relations(pipeline: Pipeline) -> Iterator[Decision]:
    """What the relational steps compute. They are replaced by other nodes, of which the last has the step's label."""
    for node in pipeline.nodes:
        if isinstance(node, Relate):
            yield Decision(node.label, RELATION, described(node.relation, pipeline.collection(node.output()).schema))


def _lowered(pipeline: Pipeline, results: frozenset[str]) -> tuple[Pipeline, tuple[Decision, ...]]:
    """The pipeline without relational steps, and what these compute after all rewrites."""
    if not any(isinstance(node, Relate) for node in pipeline.nodes):
        return pipeline, ()
    from tidegate.runners.planner.relational.lower import lower  # half the import time of the planner
    from tidegate.runners.planner.relational.rewrites import rewritten

    pipeline = rewritten(pipeline, results)
    return lower(pipeline), tuple(_relations(pipeline))


def _loops(pipeline: Pipeline, traits: Traits) -> Iterator[Loop]:
    """The loops of a pipeline, with the plans of their bodies. One task runs a body, over bounded input."""
    inner = replace(traits, parallel=False, streaming=False, blocking=False, parallel_loops=False)
    for node in pipeline.nodes:
        if isinstance(node, Iterate):
            body, results = body_of(node, pipeline)
            parts = {result: tuple(emitted_as(body, result)) for result in node.results}
            constants = frozenset(node.inputs) - {variable.before for variable in node.variables}
            yield Loop(node, with_kept_tables(_planned(body, inner, results, repeated=True), constants), parts)


def _why_in_one_task(pipeline: Pipeline, traits: Traits) -> str:
    """Why one task runs the rounds of any loop of a pipeline, on a runner that runs no region again."""
    if not traits.parallel:
        return "one process: there are no other tasks"
    if traits.streaming:
        return "bounded input runs as a stream, in which no region runs again"
    for node in pipeline.nodes:
        if isinstance(node, Feedback):
            return f"{node.label!r} lets the pipeline run as a stream, in which no region runs again"
    for node in pipeline.nodes:
        if not all(pipeline.collection(out.collection).bounded for out in node.outputs):
            return f"{node.label!r} is unbounded, and in a stream no region runs again"
    return "the runner runs no region again"

"""Checks that need all of the pipeline: broken references, cycles, groupings that could never emit a result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidegate.sdk.errors import BuildError
from tidegate.sdk.portable.integrity import check_references, with_bodies
from tidegate.sdk.portable.model import (
    CombinePerKey,
    Create,
    Feedback,
    Flatten,
    GroupByKey,
    Iterate,
    Node,
    Output,
    Pipeline,
    Relate,
)
from tidegate.sdk.portable.seal import located
from tidegate.sdk.portable.values import Values
from tidegate.sdk.relational.relations import Aggregate, Compute, Join, Rank, SortLimit
from tidegate.sdk.windowing.strategy import can_fire_twice, compatible, why_not_unbounded_group


def validate(pipeline: Pipeline) -> None:
    """Raise BuildError, naming the step and its line, for an invalid pipeline."""
    check_references(pipeline)
    whole = _with_bodies(pipeline)
    for node in whole.nodes:
        try:
            _check_node(whole, node)
        except BuildError as error:
            raise located(error, node.label, node.where) from None


def _with_bodies(pipeline: Pipeline) -> Pipeline:
    """The pipeline with the nodes of loops' bodies among the others, and sources in place of the loop variables."""
    nodes: list[Node] = []
    collections = list(pipeline.collections)
    for node in with_bodies(pipeline.nodes):
        nodes.append(node)
        match node:
            case Iterate():
                variables = [each.before for each in node.variables]
            case Feedback(before=before):
                variables = [before]
            case _:
                continue
        collections += node.collections
        nodes += (
            Create(label=before, where=node.where, outputs=(Output("main", before),), values=Values((), 0))
            for before in variables
        )
    return replace(pipeline, nodes=tuple(nodes), collections=tuple(collections))


def _check_node(pipeline: Pipeline, node: Node) -> None:
    match node:
        case GroupByKey() | CombinePerKey():
            source = pipeline.collection(node.inputs[0])
            reason = None if source.bounded else why_not_unbounded_group(source.windowing)
            if reason:
                raise BuildError(reason)
        case Relate():
            _check_relation(pipeline, node)
        case Flatten():
            first = pipeline.collection(node.inputs[0])
            for other in node.inputs[1:]:
                reason = compatible(first.windowing, pipeline.collection(other).windowing)
                if reason:
                    raise BuildError(f"{first.id!r} and {other!r} can't be flattened: {reason}")
        case _:
            pass


def _check_relation(pipeline: Pipeline, node: Relate) -> None:
    """Check a relation against the schemas of its inputs and of its output, and against the panes that it reads."""
    from tidegate.sdk.relational.relation_binding import bound_relation, fields_of  # imports every operation

    inputs = [pipeline.collection(used) for used in node.inputs]
    schemas = [each.schema for each in inputs]
    made = pipeline.collection(node.output())
    fields = fields_of(node.relation, schemas)
    if bound_relation(node.relation, schemas) != node.relation or (fields is not None and fields != made.schema):
        raise BuildError("the relation doesn't fit the schemas of its inputs and output: build the pipeline again")
    if isinstance(node.relation, Compute):
        return
    for used in node.inputs:
        for before in groupings_before(pipeline, used):
            if can_fire_twice(pipeline.collection(before.inputs[0]).windowing):
                raise BuildError(
                    f"this step reads the panes of {before.label!r}, of which a window may have several, so it would "
                    "count rows again: give the windows before that step the trigger tg.AfterWatermark() and no "
                    "allowed lateness"
                )


def groupings_before(pipeline: Pipeline, collection: str) -> Iterator[Node]:
    """The nearest upstream groupings whose panes reach a collection, perhaps mapped or assigned to other windows."""
    node = pipeline.producer(collection)
    match node:
        case GroupByKey() | CombinePerKey() | Relate(relation=Aggregate() | Rank() | SortLimit() | Join(within=None)):
            yield node
            return
    for used in dict.fromkeys(node.inputs):
        yield from groupings_before(pipeline, used)

"""Loops: the plan of a body, which one task runs round after round; and loops over unbounded input, unrolled.

>>> import tidegate as tg
>>> p = tg.Pipeline()
>>> halved = p | tg.Create([8]) | tg.Iterate(lambda x: x | "half" >> tg.Map(lambda n: n // 2), rounds=2)
>>> (loop,) = [node for node in p.portable().nodes if isinstance(node, Iterate)]
>>> body, read = body_of(loop, p.portable())
>>> [node.label for node in body.nodes], sorted(read)
(['Iterate~before', 'Iterate/half'], ['Iterate/half'])
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeGuard

from tidegate.runners.plan import Decision, Plan, with_round
from tidegate.runners.planner.rewrite import drop_dead, emitted_as
from tidegate.sdk.portable.integrity import reads
from tidegate.sdk.portable.model import (
    Collection,
    CombinePerKey,
    Create,
    Flatten,
    Iterate,
    Node,
    Output,
    ParDo,
    Pipeline,
    Reshuffle,
)
from tidegate.sdk.portable.values import Values

_NONE: Final = Values((), 0, pickle.dumps((), 5))


def body_of(loop: Iterate, outer: Pipeline) -> tuple[Pipeline, frozenset[str]]:
    """The body as a pipeline, in which empty sources stand for the collections that it reads; and the collections of
    the body that are read outside it. A result of Flatten stands for what is flattened."""
    inside = {collection.id: collection for collection in loop.collections}
    made = {out.collection for node in loop.body for out in node.outputs}
    used = {*loop.results, *(id for node in loop.body for id in reads(node))}
    known = {collection.id: collection for collection in outer.collections}
    sources = [
        Create(label=id, where=loop.where, composite=loop.label, outputs=(Output("main", id),), values=_NONE)
        for id in sorted(used - made)
    ]
    collections = (*(inside.get(id) or known[id] for id in sorted(used - made)), *(inside[id] for id in sorted(made)))
    body = replace(outer, nodes=(*sources, *loop.body), collections=collections)
    body, _ = drop_dead(body, frozenset(loop.results))
    return body, frozenset(part for result in loop.results for part in emitted_as(body, result))


def with_kept_tables(body: Plan, constants: frozenset[str]) -> Plan:
    """The plan of a body in which each CoGroupByKey of constants and of what a round changes keeps the constants: they
    are grouped once, and each round adds a table of its own."""
    steps = []
    decisions = list(body.decisions)
    for step in body.steps:
        inputs = {edge.collection for edge in body.inputs(step.id) if edge.side is None}
        kept = tuple(sorted(inputs & constants))
        match step.tail:
            case CombinePerKey(cogroups=True, key="first") if (
                step.path == "table" and len(step.nodes) == 1 and kept and len(kept) < len(inputs)
            ):
                steps.append(replace(step, kept=kept))
                decisions.append(
                    Decision(step.label, f"keeps a table of {', '.join(kept)}", "it is the same in all rounds")
                )
            case _:
                steps.append(step)
    return replace(body, steps=tuple(steps), decisions=tuple(decisions))


def with_inputs_of_steps(pipeline: Pipeline) -> Pipeline:
    """The pipeline with a step between each loop and a Flatten whose result it reads, so that each of the loop's inputs
    is what one step emits."""
    read = {id for node in pipeline.nodes if isinstance(node, Iterate) for id in node.inputs}
    flattened = {id for id in read if isinstance(pipeline.producer(id), Flatten)}
    if not flattened:
        return pipeline
    nodes: list[Node] = []
    collections = list(pipeline.collections)
    for node in pipeline.nodes:
        if not flattened.isdisjoint(out.collection for out in node.outputs):
            id, parts = node.output(), f"{node.output()}~flattened"
            collections.append(replace(pipeline.collection(id), id=parts))
            nodes.append(replace(node, label=parts, outputs=(Output("main", parts),)))
            nodes.append(
                Reshuffle(
                    label=node.label,
                    where=node.where,
                    composite=node.composite,
                    inputs=(parts,),
                    outputs=(Output("main", id),),
                )
            )
        else:
            nodes.append(node)
    return replace(pipeline, nodes=tuple(nodes), collections=tuple(collections))


# -- unrolling


def unrolled(pipeline: Pipeline) -> Pipeline:
    """The pipeline with the bodies of loops over unbounded input written out, a copy for each round."""
    known = {collection.id: collection for collection in pipeline.collections}
    if not any(_is_of_stream(node, known) for node in pipeline.nodes):
        return pipeline
    nodes: list[Node] = []
    collections = list(pipeline.collections)
    for node in pipeline.nodes:
        if _is_of_stream(node, known):
            more, inner = _unroll(node)
            nodes += more
            collections += inner
        else:
            nodes.append(node)
    return replace(pipeline, nodes=tuple(nodes), collections=tuple(collections))


def _is_of_stream(node: Node, collections: Mapping[str, Collection]) -> TypeGuard[Iterate]:
    """Whether a node is a loop over unbounded input. Such a loop has a number of rounds, and no condition."""
    return isinstance(node, Iterate) and not all(collections[out.collection].bounded for out in node.outputs)


def _unroll(loop: Iterate) -> tuple[list[Node], list[Collection]]:
    """The nodes that a loop stands for, and the collections that they add."""
    nodes: list[Node] = []
    collections: list[Collection] = []
    inside = {collection.id: collection for collection in loop.collections}
    current = {variable.before: variable.start for variable in loop.variables}
    given: list[list[str]] = [[] for _ in loop.gives]
    for number in range(1, loop.rounds + 1):
        names = {id: f"{id}~{number}" for id in inside} | current
        for node in loop.body:
            copied = _copy(node, names, number)
            if _is_of_stream(node, inside) and isinstance(copied, Iterate):
                more, inner = _unroll(copied)
                nodes += more
                collections += inner
            else:
                nodes.append(copied)
        collections += [replace(inside[id], id=names[id]) for id in inside if id not in current]
        current = {variable.before: names.get(variable.after, variable.after) for variable in loop.variables}
        for parts, result in zip(given, loop.gives, strict=True):
            parts.append(names.get(result, result))
    results = [*([id] for id in current.values()), *given]
    for position, (out, parts) in enumerate(zip(loop.outputs, results, strict=True)):
        label = loop.label if position == 0 else out.collection
        nodes.append(_result(loop, label, tuple(parts), replace(out, tag="main")))
    return nodes, collections


def _result(loop: Iterate, label: str, parts: tuple[str, ...], out: Output) -> Node:
    """The node that makes a collection of the loop of those that rounds have made; of none, if there is no round."""
    if not parts:
        return Create(label=label, where=loop.where, composite=loop.composite, outputs=(out,), values=_NONE)
    return Flatten(label=label, where=loop.where, composite=loop.composite, inputs=parts, outputs=(out,))


def _copy(node: Node, names: Mapping[str, str], number: int) -> Node:
    """The copy of a node of the body for a round."""
    copied = replace(
        node,
        label=f"{node.label}~{number}",
        inputs=tuple(names.get(id, id) for id in node.inputs),
        outputs=tuple(replace(out, collection=names[out.collection]) for out in node.outputs),
    )
    match copied:
        case ParDo() | CombinePerKey():
            sides = tuple(
                replace(ref, collection=names.get(ref.collection, ref.collection)) for ref in copied.side_inputs
            )
            copied = replace(copied, side_inputs=sides)
        case Iterate():
            return _copy_loop(copied, names, number)
        case _:
            pass
    return with_round(copied, number) if isinstance(copied, ParDo) else copied


def _copy_loop(loop: Iterate, names: Mapping[str, str], number: int) -> Iterate:
    """The copy of a loop in the body: its own collections and steps need names of this round, too."""
    inner = {collection.id: f"{collection.id}~{number}" for collection in loop.collections}
    names = {**names, **inner}

    def name(id: str) -> str:
        return names.get(id, id)

    body = []
    for node in loop.body:
        copied = _copy(node, names, number)
        body.append(_keep_round(node, copied))
    return replace(
        loop,
        variables=tuple(
            replace(each, start=name(each.start), before=name(each.before), after=name(each.after))
            for each in loop.variables
        ),
        body=tuple(body),
        collections=tuple(replace(each, id=inner[each.id]) for each in loop.collections),
        again=tuple(map(name, loop.again)),
        until=None if loop.until is None else name(loop.until),
        gives=tuple(map(name, loop.gives)),
    )


def _keep_round(node: Node, copied: Node) -> Node:
    """The copy of a step of an inner loop, whose functions ask for the round of that loop."""
    if isinstance(node, ParDo) and isinstance(copied, ParDo):
        return replace(copied, params=node.params, callbacks=node.callbacks)
    return copied

"""Whether a pipeline hangs together: labels and collections are unique, and everything is made before it is used.

A pipeline built by a script always does; one read from a file, or rewritten by a pass, has to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from tidegate.sdk.errors import BuildError
from tidegate.sdk.portable.model import (
    CombinePerKey,
    Create,
    DeadLetters,
    Flatten,
    GroupByKey,
    Node,
    ParDo,
    Pipeline,
    Read,
    TestStream,
    Write,
    side_inputs,
)

E = TypeVar("E", bound=BuildError)


def check_references(pipeline: Pipeline) -> None:
    """Raise BuildError, naming the step, unless every collection is made once, by an earlier step than its readers."""
    known: set[str] = set()
    for collection in pipeline.collections:
        if collection.id in known:
            raise BuildError(f"two collections have the id {collection.id!r}")
        known.add(collection.id)
    _check_labels(pipeline)
    makers = _makers(pipeline, known)
    for collection in pipeline.collections:
        if collection.id not in makers:
            raise BuildError(f"no step makes the collection {collection.id!r}")
    _check_order(pipeline, makers)
    for node in pipeline.nodes:
        _check_shape(node)


def reads(node: Node) -> Iterator[str]:
    """Every collection a node reads, side inputs too."""
    yield from node.inputs
    for ref in side_inputs(node):
        yield ref.collection


def _check_labels(pipeline: Pipeline) -> None:
    labels: set[str] = set()
    for node in pipeline.nodes:
        if node.label in labels:
            raise BuildError(f"two steps are labelled {node.label!r}")
        labels.add(node.label)


def _makers(pipeline: Pipeline, known: set[str]) -> dict[str, Node]:
    """Which node makes which collection."""
    makers: dict[str, Node] = {}
    for node in pipeline.nodes:
        for out in node.outputs:
            if out.collection in makers:
                raise BuildError(
                    f"two steps make {out.collection!r}: {makers[out.collection].label!r} and {node.label!r}"
                )
            if out.collection not in known:
                raise _at(
                    node,
                    BuildError(f"step {node.label!r} makes {out.collection!r}, which is not among the collections"),
                )
            makers[out.collection] = node
    return makers


def _check_order(pipeline: Pipeline, makers: dict[str, Node]) -> None:
    done: set[str] = set()
    for node in pipeline.nodes:
        for used in reads(node):
            maker = makers.get(used)
            if maker is None:
                raise _at(node, BuildError(f"step {node.label!r} reads {used!r}, which no step makes"))
            if maker.label not in done:
                cycle = _cycle(node, makers)
                if cycle:
                    raise _at(node, BuildError(f"the steps form a cycle: {' → '.join(map(repr, cycle))}"))
                raise _at(
                    node,
                    BuildError(
                        f"step {node.label!r} stands before step {maker.label!r}, whose output {used!r} it reads"
                    ),
                )
        done.add(node.label)


def _cycle(start: Node, makers: dict[str, Node]) -> list[str]:
    """The labels along a way from `start` back to itself, as elements go; [] if there is none."""
    came_from: dict[str, Node] = {}
    ahead = [start]
    while ahead:
        node = ahead.pop()
        for used in reads(node):
            before = makers.get(used)
            if before is None:
                continue
            if before.label == start.label:
                way = [start.label]
                while node.label != start.label:
                    way.append(node.label)
                    node = came_from[node.label]
                return [*way, start.label]
            if before.label not in came_from:
                came_from[before.label] = node
                ahead.append(before)
    return []


def _check_shape(node: Node) -> None:
    """The number of inputs and outputs of each kind, and that a call's parameters point at something."""
    match node:
        case Create() | Read():
            fits = not node.inputs and len(node.outputs) == 1
        case TestStream():
            fits = not node.inputs and bool(node.outputs)
        case Write():
            fits = len(node.inputs) == 1 and not node.outputs
        case Flatten():
            fits = bool(node.inputs) and len(node.outputs) == 1
        case ParDo() | GroupByKey() | CombinePerKey():
            fits = len(node.inputs) == 1 and bool(node.outputs)
        case _:
            fits = len(node.inputs) == len(node.outputs) == 1
    if not fits:
        given = f"{len(node.inputs)} inputs and {len(node.outputs)} outputs"
        raise _at(node, BuildError(f"step {node.label!r} has {given}, which a {node.kind} can't have"))
    tags = [out.tag for out in node.outputs]
    if len(set(tags)) < len(tags):
        raise _at(node, BuildError(f"step {node.label!r} has two outputs with one tag"))
    further: str | None = None
    match node:
        case ParDo(dead_letters=DeadLetters(tag=tag)):
            further = tag
        case GroupByKey(late_tag=tag) | CombinePerKey(late_tag=tag):
            further = tag
        case _:
            pass
    if further is not None and further not in tags:
        raise _at(node, BuildError(f"step {node.label!r} has no output for what it sends to {further!r}"))
    if isinstance(node, (ParDo, CombinePerKey)):
        for param in node.params:
            if param.kind == "side" and not (param.ref.isdecimal() and int(param.ref) < len(node.side_inputs)):
                raise _at(
                    node, BuildError(f"step {node.label!r} asks for side input {param.ref!r}, which it doesn't have")
                )


def _at(node: Node, error: E) -> E:
    error.args = (f"{error}\n  applied at {node.where}",)
    return error

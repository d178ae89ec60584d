"""Checking that a pipeline is consistent: labels and collections are unique, and each is produced before it is read.

A pipeline built by a script always is; one read from a file, or rewritten by a planner pass, has to be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import TypeVar

from tidegate.sdk.errors import BuildError
from tidegate.sdk.portable.model import (
    Collection,
    CombinePerKey,
    Create,
    DeadLetters,
    Feedback,
    Flatten,
    GroupByKey,
    Iterate,
    Lookup,
    Node,
    ParDo,
    Pipeline,
    Read,
    Relate,
    TestStream,
    Write,
    side_inputs,
)
from tidegate.sdk.relational.relations import Join

E = TypeVar("E", bound=BuildError)


def check_references(pipeline: Pipeline) -> None:
    """Raise BuildError, naming the step, unless each collection is produced once, by a step before its readers."""
    known: set[str] = set()
    loops = [node for node in with_bodies(pipeline.nodes) if isinstance(node, Iterate)]
    for collection in (*pipeline.collections, *inner_collections(pipeline.nodes)):
        if collection.id in known:
            raise BuildError(f"two collections have the id {collection.id!r}")
        known.add(collection.id)
    _check_labels(pipeline)
    solutions = {variable.before for loop in loops for variable in loop.variables if variable.form == "solution"}
    for node in with_bodies(pipeline.nodes):
        if isinstance(node, Lookup) and (len(node.inputs) != 2 or node.inputs[1] not in solutions):
            raise _at(node, BuildError(f"step {node.label!r} looks up what is not the solution of a loop"))
    _check_nodes(pipeline.nodes, pipeline.collections, set())


def _check_nodes(nodes: tuple[Node, ...], collections: tuple[Collection, ...], outer: Set[str]) -> None:
    """Check the nodes of a pipeline, or of a body, to which the collections `outer` come from elsewhere."""
    known = {collection.id for collection in collections}
    producers = _producers(nodes, known)
    for collection in collections:
        if collection.id not in producers and collection.id not in outer:
            raise BuildError(f"no step makes the collection {collection.id!r}")
    _check_order(nodes, producers, outer)
    for node in nodes:
        _check_shape(node)
        match node:
            case Iterate():
                _check_loop(node)
            case Feedback():
                _check_feedback(node)
            case _:
                pass


def _check_loop(loop: Iterate) -> None:
    """Check the ids of a loop's variables and results, and the nodes of its body."""
    before = [variable.before for variable in loop.variables]
    made = {out.collection for node in loop.body for out in node.outputs}
    inside = {collection.id for collection in loop.collections}
    for used in loop.results:
        if used not in inside and used not in loop.inputs:
            raise _at(loop, BuildError(f"step {loop.label!r} takes {used!r} from its body, which doesn't make it"))
    for variable in loop.variables:
        if variable.start not in loop.inputs or variable.before not in inside - made:
            raise _at(loop, BuildError(f"step {loop.label!r} doesn't read its loop variable {variable.name!r}"))
    if len(set(before)) < len(before) or loop.rounds < 0:
        raise _at(loop, BuildError(f"step {loop.label!r} has two loop variables with one id, or less than no rounds"))
    for variable in loop.variables:
        if variable.form == "changes" and not any(
            each.form == "solution" and each.after == variable.after for each in loop.variables
        ):
            raise _at(loop, BuildError(f"step {loop.label!r} has no solution that changes {variable.name!r}"))
    _check_solutions(loop)
    _check_nodes(loop.body, loop.collections, {*before, *loop.inputs})


def _check_feedback(loop: Feedback) -> None:
    """Check the ids of what goes round and of what leaves, and the nodes of the body."""
    made = {out.collection for node in loop.body for out in node.outputs}
    inside = {collection.id for collection in loop.collections}
    for used in (loop.after, *loop.gives):
        if used not in made and used != loop.before:
            raise _at(loop, BuildError(f"step {loop.label!r} takes {used!r} from its body, which doesn't make it"))
    if loop.before not in inside - made or loop.max_backlog < 0 or (loop.max_hops is not None and loop.max_hops < 0):
        raise _at(loop, BuildError(f"step {loop.label!r} doesn't read what it feeds back, or has a limit below 0"))
    _check_nodes(loop.body, loop.collections, {loop.before, *loop.inputs})


def _check_solutions(loop: Iterate) -> None:
    """Check that only lookups read the loop's solutions."""
    solutions = {variable.before for variable in loop.variables if variable.form == "solution"}
    for node in with_bodies(loop.body):
        match node:
            case Lookup(inputs=(used, _)):
                read = {used}
            case Iterate():
                read = {*(variable.start for variable in node.variables), *node.results}
            case _:
                read = set(reads(node))
        if read & solutions:
            raise _at(node, BuildError(f"step {node.label!r} reads the solution of {loop.label!r} without a lookup"))
    if solutions & set(loop.results):
        raise _at(loop, BuildError(f"step {loop.label!r} takes its solution from its body, which doesn't make it"))


def reads(node: Node) -> Iterator[str]:
    """The collections that a node reads, including side inputs."""
    yield from node.inputs
    for ref in side_inputs(node):
        yield ref.collection


def with_bodies(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes, each loop followed by those of its body."""
    for node in nodes:
        yield node
        if isinstance(node, (Iterate, Feedback)):
            yield from with_bodies(node.body)


def inner_collections(nodes: Iterable[Node]) -> Iterator[Collection]:
    """The collections that exist in the bodies of loops alone."""
    for node in with_bodies(nodes):
        if isinstance(node, (Iterate, Feedback)):
            yield from node.collections


def _check_labels(pipeline: Pipeline) -> None:
    labels: set[str] = set()
    for node in with_bodies(pipeline.nodes):
        if node.label in labels:
            raise BuildError(f"two steps are labelled {node.label!r}")
        labels.add(node.label)


def _producers(nodes: tuple[Node, ...], known: set[str]) -> dict[str, Node]:
    """The producer of each collection."""
    producers: dict[str, Node] = {}
    for node in nodes:
        for out in node.outputs:
            if out.collection in producers:
                raise BuildError(
                    f"two steps make {out.collection!r}: {producers[out.collection].label!r} and {node.label!r}"
                )
            if out.collection not in known:
                raise _at(
                    node,
                    BuildError(f"step {node.label!r} makes {out.collection!r}, which is not among the collections"),
                )
            producers[out.collection] = node
    return producers


def _check_order(nodes: tuple[Node, ...], producers: dict[str, Node], outer: Set[str]) -> None:
    done: set[str] = set()
    for node in nodes:
        for used in reads(node):
            if used in outer:
                continue
            producer = producers.get(used)
            if producer is None:
                raise _at(node, BuildError(f"step {node.label!r} reads {used!r}, which no step makes"))
            if producer.label not in done:
                cycle = _cycle(node, producers)
                if cycle:
                    raise _at(node, BuildError(f"the steps form a cycle: {' → '.join(map(repr, cycle))}"))
                raise _at(
                    node,
                    BuildError(
                        f"step {node.label!r} comes before step {producer.label!r}, whose output {used!r} it reads"
                    ),
                )
        done.add(node.label)


def _cycle(start: Node, producers: dict[str, Node]) -> list[str]:
    """The labels along a cycle through `start`, in the direction of the elements; [] if there is none."""
    reader_of: dict[str, Node] = {}
    pending = [start]
    while pending:
        node = pending.pop()
        for used in reads(node):
            producer = producers.get(used)
            if producer is None:
                continue
            if producer.label == start.label:
                path = [start.label]
                while node.label != start.label:
                    path.append(node.label)
                    node = reader_of[node.label]
                return [*path, start.label]
            if producer.label not in reader_of:
                reader_of[producer.label] = node
                pending.append(producer)
    return []


def _check_shape(node: Node) -> None:
    """Check the number of inputs and outputs, and that tags and parameters refer to outputs and side inputs."""
    match node:
        case Create() | Read():
            fits = not node.inputs and len(node.outputs) == 1
        case TestStream():
            fits = not node.inputs and bool(node.outputs)
        case Write():
            fits = len(node.inputs) == 1 and not node.outputs
        case Iterate():
            fits = bool(node.variables) and len(node.outputs) == len(node.variables) + len(node.gives)
        case Feedback():
            fits = bool(node.inputs) and len(node.outputs) == len(node.gives) + (node.max_hops is not None)
        case Flatten():
            fits = bool(node.inputs) and len(node.outputs) == 1
        case Lookup():
            fits = len(node.inputs) == 2 and len(node.outputs) == 1
        case Relate(relation=Join()):
            fits = len(node.inputs) == len(node.reads) == 2 and len(node.outputs) == 1
        case Relate():
            fits = len(node.inputs) == len(node.reads) == 1 and bool(node.outputs)
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
    required: str | None = None
    match node:
        case ParDo(dead_letters=DeadLetters(tag=tag)):
            required = tag
        case GroupByKey(late_tag=tag) | CombinePerKey(late_tag=tag) | Relate(late_tag=tag):
            required = tag
        case _:
            pass
    if required is not None and required not in tags:
        raise _at(node, BuildError(f"step {node.label!r} has no output {required!r}, to which it sends elements"))
    if isinstance(node, (ParDo, CombinePerKey)):
        for param in node.params:
            if param.kind == "side" and not (param.ref.isdecimal() and int(param.ref) < len(node.side_inputs)):
                raise _at(
                    node, BuildError(f"step {node.label!r} refers to side input {param.ref!r}, which it doesn't have")
                )


def _at(node: Node, error: E) -> E:
    error.args = (f"{error}\n  applied at {node.where}",)
    return error

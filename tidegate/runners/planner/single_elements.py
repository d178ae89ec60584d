"""Collections of at most one element: a loop over those alone has nothing that several tasks could divide."""

from __future__ import annotations

from tidegate.sdk.portable.model import (
    FLAT_FORMS,
    AssignWindows,
    Collection,
    CombinePerKey,
    Create,
    Iterate,
    Node,
    ParDo,
    Pipeline,
    Reshuffle,
)
from tidegate.sdk.windowing.assigners import is_global_assigner


def works_on_single_elements(loop: Iterate, outer: Pipeline) -> bool:
    """Whether each step of a body reads at most one element in a round, beside side inputs."""
    collections = {each.id: each for each in (*outer.collections, *loop.collections)}
    inside = {variable.before for variable in loop.variables}
    inside |= {out.collection for node in loop.body for out in node.outputs}
    single = {variable.before for variable in loop.variables if _is_single(outer, variable.start)}
    for node in loop.body:
        if not all(id in single or (id not in inside and _is_single(outer, id)) for id in node.inputs):
            return False
        if _adds_none(node) or _makes_one(node, collections[node.inputs[0]]):
            single.add(node.output())
    return all(variable.before in single and variable.after in single for variable in loop.variables)


def _is_single(pipeline: Pipeline, id: str) -> bool:
    """Whether a collection has at most one element, as far as its steps show."""
    node = pipeline.producer(id)
    if isinstance(node, Create):
        return node.values.count <= 1
    if not node.inputs or id != node.output():
        return False
    return _makes_one(node, pipeline.collection(node.inputs[0])) or (
        _adds_none(node) and _is_single(pipeline, node.inputs[0])
    )


def _adds_none(node: Node) -> bool:
    """Whether a step emits at most one element for each that it reads."""
    match node:
        case ParDo():
            return node.form not in FLAT_FORMS and not node.stateful
        case _:
            return isinstance(node, (AssignWindows, Reshuffle)) and len(node.inputs) == 1


def _makes_one(node: Node, read: Collection) -> bool:
    """Whether a step emits one element, whatever it reads."""
    return (
        isinstance(node, CombinePerKey)
        and node.key == "none"
        and len(node.inputs) == 1
        and is_global_assigner(read.windowing.assigner)
    )

"""Checks that need all of the pipeline: broken references, cycles, groupings that could never emit a result."""

from __future__ import annotations

from tidegate.sdk.errors import BuildError
from tidegate.sdk.portable.integrity import check_references
from tidegate.sdk.portable.model import (
    CombinePerKey,
    Flatten,
    GroupByKey,
    Node,
    Pipeline,
)
from tidegate.sdk.portable.seal import located
from tidegate.sdk.windowing.strategy import compatible, why_not_unbounded_group


def validate(pipeline: Pipeline) -> None:
    """Raise BuildError, naming the step and its line, for an invalid pipeline."""
    check_references(pipeline)
    for node in pipeline.nodes:
        try:
            _check_node(pipeline, node)
        except BuildError as error:
            raise located(error, node.label, node.where) from None


def _check_node(pipeline: Pipeline, node: Node) -> None:
    match node:
        case GroupByKey() | CombinePerKey():
            source = pipeline.collection(node.inputs[0])
            reason = None if source.bounded else why_not_unbounded_group(source.windowing)
            if reason:
                raise BuildError(reason)
        case Flatten():
            first = pipeline.collection(node.inputs[0])
            for other in node.inputs[1:]:
                reason = compatible(first.windowing, pipeline.collection(other).windowing)
                if reason:
                    raise BuildError(f"{first.id!r} and {other!r} can't be flattened: {reason}")
        case _:
            pass

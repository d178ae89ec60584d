"""Passes that rewrite the portable pipeline and preserve its meaning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidegate.sdk.portable.effects import has_effects
from tidegate.sdk.portable.model import Flatten, Node, Pipeline, side_inputs


def emitted_as(pipeline: Pipeline, collection: str) -> Iterator[str]:
    """The collections that steps emit of which a collection consists: those that are flattened, or itself."""
    match pipeline.producer(collection):
        case Flatten(inputs=parts):
            for part in parts:
                yield from emitted_as(pipeline, part)
        case _:
            yield collection


def drop_dead(pipeline: Pipeline, results: frozenset[str] = frozenset()) -> tuple[Pipeline, tuple[Node, ...]]:
    """The pipeline without the nodes whose results no node reads; and those nodes. `results` are read elsewhere.

    A ParDo that isn't pure or a loop and all of its inputs stay even so, since the author's functions may have side
    effects.
    """
    needed = set(results)
    live: list[Node] = []
    dropped: list[Node] = []
    for node in reversed(pipeline.nodes):
        if has_effects(node) or any(out.collection in needed for out in node.outputs):
            live.append(node)
            needed.update(node.inputs, (ref.collection for ref in side_inputs(node)))
        else:
            dropped.append(node)
    if not dropped:
        return pipeline, ()
    kept = needed.union(out.collection for node in live for out in node.outputs)
    collections = tuple(c for c in pipeline.collections if c.id in kept)
    return replace(pipeline, nodes=tuple(reversed(live)), collections=collections), tuple(reversed(dropped))

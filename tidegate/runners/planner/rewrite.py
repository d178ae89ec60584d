"""Passes that rewrite the portable pipeline and keep its meaning."""

from __future__ import annotations

from dataclasses import replace

from tidegate.sdk.portable.model import Node, ParDo, Pipeline, Write, side_inputs


def drop_dead(pipeline: Pipeline) -> tuple[Pipeline, tuple[Node, ...]]:
    """Without the nodes whose results nobody reads; also what was dropped.

    A ParDo stays, since the author's function may have effects, and so does all it needs.
    """
    needed: set[str] = set()
    kept: list[Node] = []
    dropped: list[Node] = []
    for node in reversed(pipeline.nodes):
        if isinstance(node, (ParDo, Write)) or any(out.collection in needed for out in node.outputs):
            kept.append(node)
            needed.update(node.inputs, (ref.collection for ref in side_inputs(node)))
        else:
            dropped.append(node)
    if not dropped:
        return pipeline, ()
    made = {out.collection for node in kept for out in node.outputs}
    collections = tuple(c for c in pipeline.collections if c.id in made)
    return replace(pipeline, nodes=tuple(reversed(kept)), collections=collections), tuple(reversed(dropped))

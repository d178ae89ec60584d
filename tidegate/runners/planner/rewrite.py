"""Passes that rewrite the portable pipeline and preserve its meaning."""

from __future__ import annotations

from dataclasses import replace

from tidegate.sdk.portable.model import Iterate, Node, ParDo, Pipeline, Write, side_inputs


def drop_dead(pipeline: Pipeline, results: frozenset[str] = frozenset()) -> tuple[Pipeline, tuple[Node, ...]]:
    """The pipeline without the nodes whose results no node reads; and those nodes. `results` are read elsewhere.

    A ParDo or a loop and all of its inputs stay even so, since the author's functions may have side effects.
    """
    needed = set(results)
    live: list[Node] = []
    dropped: list[Node] = []
    for node in reversed(pipeline.nodes):
        if isinstance(node, (ParDo, Write, Iterate)) or any(out.collection in needed for out in node.outputs):
            live.append(node)
            needed.update(node.inputs, (ref.collection for ref in side_inputs(node)))
        else:
            dropped.append(node)
    if not dropped:
        return pipeline, ()
    outputs = {out.collection for node in live for out in node.outputs}
    collections = tuple(c for c in pipeline.collections if c.id in outputs)
    return replace(pipeline, nodes=tuple(reversed(live)), collections=collections), tuple(reversed(dropped))

"""Feedback loops in a plan: the steps of a body stand among the others, behind the head of their loop.

>>> import tidegate as tg
>>> p = tg.Pipeline()
>>> def halve(numbers):
...     half = numbers | "half" >> tg.Map(lambda n: n // 2)
...     return tg.Round(half | "more" >> tg.Filter(bool), out=half)
>>> halved = p | "numbers" >> tg.Create([8]) | "loop" >> tg.Feedback(halve)
>>> [node.label for node in flattened(p.portable()).nodes]
['numbers', 'loop~head', 'loop/half', 'loop/more', 'loop']
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.sdk.portable.model import MAIN, Collection, Feedback, Flatten, Node, Output, Pipeline


def flattened(pipeline: Pipeline) -> Pipeline:
    """The pipeline with the head of each feedback loop, which emits what its body takes, and the nodes of the body."""
    nodes: list[Node] = []
    collections = list(pipeline.collections)
    for node in pipeline.nodes:
        if isinstance(node, Feedback):
            nodes += _nodes(node, collections)
        else:
            nodes.append(node)
    return replace(pipeline, nodes=tuple(nodes), collections=tuple(collections))


def _nodes(loop: Feedback, collections: list[Collection]) -> list[Node]:
    """The nodes of a loop. Those that follow read what leaves it, which ends with the loop's input."""
    collections += loop.collections
    outputs = [Output(MAIN, loop.before)]
    leaving = loop.outputs
    if loop.max_hops is not None:
        *leaving_body, too_far = loop.outputs
        leaving = tuple(leaving_body)
        outputs.append(too_far)
    head = replace(
        loop,
        label=f"{loop.label}~head",
        inputs=loop.inputs[:1],
        outputs=tuple(outputs),
        body=(),
        collections=(),
        gives=(),
    )
    ends = [
        Flatten(
            label=loop.label if position == 0 else out.collection,
            where=loop.where,
            composite=loop.composite,
            inputs=(gives,),
            outputs=(replace(out, tag=MAIN),),
        )
        for position, (out, gives) in enumerate(zip(leaving, loop.gives, strict=True))
    ]
    return [head, *loop.body, *ends]

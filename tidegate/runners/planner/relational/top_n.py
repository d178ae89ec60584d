"""Limits numbered ranks to what is read of them: below `WHERE n <= 3`, ROW_NUMBER keeps three rows a group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tidegate.sdk.portable.model import Pipeline, Relate, side_inputs
from tidegate.sdk.relational.binding import may_fail
from tidegate.sdk.relational.expressions import Call, Column, Literal, Tree
from tidegate.sdk.relational.reader_conditions import conjuncts
from tidegate.sdk.relational.relations import Compute, Rank, trees_of


def limit_ranks(pipeline: Pipeline, results: frozenset[str]) -> Pipeline:
    """The pipeline whose ranks keep only elements with numbers that the one filter reading them lets through.

    Between both may be projections and filters that can't fail: one that can has to see every element. The filter
    stays.
    """
    readers = Counter(results)
    for node in pipeline.nodes:
        readers.update((*node.inputs, *(ref.collection for ref in side_inputs(node))))
    found: list[tuple[str, int]] = []
    for node in pipeline.nodes:
        match node:
            case Relate(relation=Compute(where=where)) if where is not None:
                found += _limits(pipeline, node.inputs[0], _least(_bounds(where)), readers)
    limits = _least(found)
    if not limits:
        return pipeline
    nodes = [
        replace(node, relation=replace(node.relation, limit=min(node.relation.limit, limits[node.label])))
        if isinstance(node, Relate) and isinstance(node.relation, Rank) and node.label in limits
        else node
        for node in pipeline.nodes
    ]
    return replace(pipeline, nodes=tuple(nodes))


def _limits(pipeline: Pipeline, used: str, bounds: dict[str, int], readers: Counter[str]) -> Iterator[tuple[str, int]]:
    """The label and limit of the rank whose numbers a collection has in a column with a bound, if there is one."""
    while bounds and readers[used] == 1:
        match pipeline.producer(used):
            case Relate(relation=Rank(number=str(number)), label=label) if number in bounds:
                yield label, bounds[number]
                return
            case Relate(relation=Compute(columns=columns) as compute, inputs=(inner,)):
                if any(map(may_fail, trees_of(compute))):
                    return
                if columns is not None:
                    copies = [(each.tree.name, each.name) for each in columns if isinstance(each.tree, Column)]
                    bounds = _least((name, bounds[copy]) for name, copy in copies if copy in bounds)
                used = inner
            case _:
                return


def _bounds(condition: Tree) -> Iterator[tuple[str, int]]:
    """Columns that are at most a number where a condition is true, by its parts before the first that may fail."""
    for part in conjuncts(condition):
        if may_fail(part):
            return
        match part:
            case Call(operation="less_or_equal" | "equal", arguments=(Column(name=name), Literal(value=int(most)))):
                yield name, max(most, 0)
            case Call(operation="less", arguments=(Column(name=name), Literal(value=int(end)))):
                yield name, max(end - 1, 0)
            case Call(operation="greater_or_equal" | "equal", arguments=(Literal(value=int(most)), Column(name=name))):
                yield name, max(most, 0)
            case Call(operation="greater", arguments=(Literal(value=int(end)), Column(name=name))):
                yield name, max(end - 1, 0)


def _least(limits: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The least of the limits that each name has."""
    found: dict[str, int] = {}
    for name, limit in limits:
        found[name] = min(limit, found.get(name, limit))
    return found

"""The driver assigns the splits of sources and the elements of `Create`s to partitions.

It lists the splits of each source once, so that all tasks see the same list. The elements of a small `Create` are sent
with the task specification; those of a large one are written to a file, of which each task reads its part.

>>> list(balanced([7, 1, 1, 5], 2))  # split sizes are known: equal sums
[[0], [1, 2, 3]]
>>> list(balanced([7, None, 1, 5], 2))  # else round-robin
[[0, 2], [1, 3]]
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from tidegate.runners.engine.sources.discovery import all_splits
from tidegate.runners.engine.sources.source_step import source_step
from tidegate.runners.plan import Plan
from tidegate.runners.spark.plan.artifacts import CLOSURE_BYTES, Artifact, Artifacts
from tidegate.runners.spark.plan.task_spec import Inputs
from tidegate.runners.spark.task_io.sources import encode_elements
from tidegate.sdk.portable.model import Create, Read
from tidegate.sdk.portable.values import Values


def assign_inputs(plan: Plan, partitions: int, artifacts: Artifacts, exclude: Container[int] = ()) -> Inputs:
    """List the splits of every source step not in `exclude`, and assign its input to partitions.

    Raises the errors of the source, naming the step.
    """
    inputs = Inputs({}, {}, {})
    for step in plan.steps:
        match step.head:
            case _ if step.id in exclude:
                pass
            case Read() as node:
                splits = all_splits(source_step(node), partitions)
                assigned = balanced([split.size for split in splits], partitions)
                inputs.splits[step.id] = [[splits[number] for number in numbers] for numbers in assigned]
            case Create() as node:
                encoded = [encode_elements(elements) for elements in _slices(node, partitions)]
                if sum(len(piece) for pieces in encoded for piece in pieces) <= CLOSURE_BYTES:
                    inputs.elements[step.id] = [pickle.dumps(pieces, 5) for pieces in encoded]
                else:
                    inputs.files[step.id] = _write_file(encoded, artifacts)
    return inputs


def _write_file(encoded: list[list[bytes]], artifacts: Artifacts) -> tuple[Artifact, list[list[int]]]:
    """Write the pieces of all partitions to one file. Returns it with the offsets of each partition's pieces."""
    path = artifacts.new_file()
    offsets = []
    with path.open("wb") as file:
        for pieces in encoded:
            ends = [file.tell()]
            for piece in pieces:
                file.write(piece)
                ends.append(file.tell())
            offsets.append(ends)
    return artifacts.publish(path), offsets


def without_values(plan: Plan) -> Plan:
    """The plan as tasks need it: without the values of `Create`s, which have been assigned to partitions."""
    no_values = Values((), 0, pickle.dumps((), 5))
    steps = tuple(
        replace(step, nodes=(replace(step.head, values=no_values),)) if isinstance(step.head, Create) else step
        for step in plan.steps
    )
    nodes = tuple(replace(n, values=no_values) if isinstance(n, Create) else n for n in plan.pipeline.nodes)
    return replace(plan, pipeline=replace(plan.pipeline, nodes=nodes), steps=steps, decisions=())


_PLAIN: Final = frozenset({int, float, complex, str, bytes, bool, type(None)})


def all_plain(values: Sequence[Any]) -> bool:
    """Whether any process can unpickle these values: they are plain data, or tuples of it."""
    if isinstance(values, range):
        return True
    for _ in range(4):
        kinds = set(map(type, values)) - _PLAIN
        if not kinds:
            return True
        if kinds != {tuple}:
            return False
        values = list(chain.from_iterable([value for value in values if type(value) is tuple]))
    return False


def _slices(node: Create, partitions: int) -> Iterator[Any]:
    elements = node.values.load()
    length = -(-len(elements) // partitions)
    for partition in range(partitions):
        yield elements[partition * length : (partition + 1) * length]


def balanced(sizes: Sequence[int | None], partitions: int) -> Iterator[list[int]]:
    """Assign splits to partitions: balanced by size if all sizes are known, else round-robin. Yields the numbers of
    each partition's splits, in order."""
    if any(size is None for size in sizes):
        for partition in range(partitions):
            yield list(range(partition, len(sizes), partitions))
        return
    known = [size or 0 for size in sizes]
    loads = [(0, 0, partition) for partition in range(partitions)]
    assigned: list[list[int]] = [[] for _ in range(partitions)]
    for number in sorted(range(len(known)), key=lambda number: (-known[number], number)):
        size, count, partition = heapq.heappop(loads)
        assigned[partition].append(number)
        heapq.heappush(loads, (size + known[number], count + 1, partition))
    for numbers in assigned:
        yield sorted(numbers)

"""Splits and created elements, assigned to partitions by the driver.

The driver lists the splits of each source once, so that all tasks read the same ones. A small `Create` travels with the
task specification; a large one is written to a file, and each task reads its own part of it.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from tidegate.runners.engine.errors.attribution import guarded
from tidegate.runners.plan import Plan
from tidegate.runners.spark.plan.artifacts import CLOSURE_BYTES, Artifact, Artifacts
from tidegate.runners.spark.plan.task_spec import Inputs
from tidegate.runners.spark.task_io.sources import encode_share
from tidegate.sdk.connectors.sources import Source
from tidegate.sdk.portable.model import Create, Read, Values


def assign_inputs(plan: Plan, partitions: int, artifacts: Artifacts, besides: Container[int] = ()) -> Inputs:
    """Look at every source, and give each partition its share; `besides` are steps that tasks do not read.

    Raises what looking raises, naming the step.
    """
    inputs = Inputs({}, {}, {})
    for step in plan.steps:
        match step.head:
            case _ if step.id in besides:
                pass
            case Read() as node:
                source: Source[Any] = node.source.load()
                splits = guarded(source.splits, partitions, step=node.label, where=node.where, method="splits")
                shares = balanced([split.size for split in splits], partitions)
                inputs.splits[step.id] = [[splits[at] for at in share] for share in shares]
            case Create() as node:
                shared = [encode_share(share) for share in _slices(node, partitions)]
                if sum(map(sum, ([len(part) for part in share] for share in shared))) <= CLOSURE_BYTES:
                    inputs.elements[step.id] = [pickle.dumps(share, 5) for share in shared]
                else:
                    inputs.files[step.id] = _filed(shared, artifacts)
    return inputs


def _filed(shared: list[list[bytes]], artifacts: Artifacts) -> tuple[Artifact, list[list[int]]]:
    path = artifacts.new()
    places = []
    with path.open("wb") as file:
        for share in shared:
            ends = [file.tell()]
            for piece in share:
                file.write(piece)
                ends.append(file.tell())
            places.append(ends)
    return artifacts.give(path), places


def without_values(plan: Plan) -> Plan:
    """The plan as tasks need it: the values of `Create` have been dealt out."""
    nothing = Values((), 0, pickle.dumps((), 5))
    steps = tuple(
        replace(step, nodes=(replace(step.head, values=nothing),)) if isinstance(step.head, Create) else step
        for step in plan.steps
    )
    nodes = tuple(replace(n, values=nothing) if isinstance(n, Create) else n for n in plan.pipeline.nodes)
    return replace(plan, pipeline=replace(plan.pipeline, nodes=nodes), steps=steps, decisions=())


_PLAIN: Final = frozenset({int, float, complex, str, bytes, bool, type(None)})


def all_plain(values: Sequence[Any]) -> bool:
    """Whether pickle carries these values to any process: plain data, in tuples perhaps."""
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
    share = -(-len(elements) // partitions)
    for partition in range(partitions):
        yield elements[partition * share : (partition + 1) * share]


def balanced(sizes: Sequence[int | None], partitions: int) -> Iterator[list[int]]:
    """Which of some parts each partition gets, in order: by size where all are known, else in turn."""
    if any(size is None for size in sizes):
        for partition in range(partitions):
            yield list(range(partition, len(sizes), partitions))
        return
    known = [size or 0 for size in sizes]
    held = [(0, 0, partition) for partition in range(partitions)]
    given: list[list[int]] = [[] for _ in range(partitions)]
    for number in sorted(range(len(known)), key=lambda at: (-known[at], at)):
        size, count, partition = heapq.heappop(held)
        given[partition].append(number)
        heapq.heappush(held, (size + known[number], count + 1, partition))
    for part in given:
        yield sorted(part)

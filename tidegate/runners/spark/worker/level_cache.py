"""What a worker keeps of a loop from round to round: functions that are set up, and what is the same in all rounds.

Spark runs the tasks of a round in any of its workers, so each keeps what it has once read, by partition. A worker keeps
that of one loop: a task of anything else drops it.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Final, TypeAlias

from tidegate.runners.engine.errors.attribution import close_all, quietly
from tidegate.runners.engine.iteration.rounds import group_once
from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.engine.life_cycle import OncePerLoop
from tidegate.runners.engine.loop_tables import Kept, LoopTables
from tidegate.runners.engine.memory.gauge import SAMPLE, mean_size
from tidegate.runners.engine.operator import Context
from tidegate.runners.plan import Edge, Step
from tidegate.runners.spark.plan.artifacts import Artifact, read_payload
from tidegate.runners.spark.plan.task_spec import TaskSpec
from tidegate.runners.spark.shuffle.row_codec import Row, decode, reassembled, row_checksum
from tidegate.sdk.authoring.combine import CombineFn, PairwiseFn
from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import CombinePerKey, Iterate, Node, ParDo

Elements: TypeAlias = tuple[int, Block | KeyedBatch]
"""Elements, with the number of the edge on which they have come."""


@dataclass(slots=True)
class Constants:
    """A partition's part of what is the same in all rounds: the tables of steps that group it once, by label, and the
    other elements, or None if they exceed the memory budget."""

    tables: dict[str, Kept]
    elements: list[Elements] | None
    checksums: Counter[int]
    size: int


@dataclass(slots=True)
class LevelCache:
    """What a worker keeps of a level in the body of a loop."""

    spec: TaskSpec
    loop: str
    constant: frozenset[int]
    """The numbers of the edges from which all rounds read the same."""
    steps: tuple[Step, ...]
    life: OncePerLoop = field(default_factory=OncePerLoop)
    _parts: dict[int, Constants] = field(default_factory=dict)

    @property
    def tears_down(self) -> bool:
        """Whether a function of the level has something to tear down."""
        return any(_tears_down(node) for step in self.steps for node in step.nodes)

    def begin(self, partition: int, rows: Iterator[Row], context: Context) -> tuple[Context, Iterator[Elements], Begun]:
        """Begin a round in a partition with its rows, those of constants first.

        Returns the context for the operators, the constant elements that they have to be given, and the other rows.
        """
        known = self._parts.pop(partition, None)
        if known is not None and known.elements is not None:
            rest = Begun(_others(rows, self.constant), known.checksums, whole=True)
            elements = iter(known.elements)
        else:
            held, rest = self._hold(rows, context.memory_budget // 4)
            if known is None:
                known = self._read(held, rest, context) if rest.whole else Constants({}, None, rest.checksums, 0)
            kept = known.elements
            elements = self._decoded(held, known.tables) if kept is None else iter(kept)
        self._keep(partition, known, context.memory_budget // 2)
        return replace(context, life=self.life, tables=LoopTables(known.tables)), elements, rest

    def _hold(self, rows: Iterator[Row], budget: int) -> tuple[list[Row], Begun]:
        """The rows of constants, as far as they fit in the budget, and the others."""
        held: list[Row] = []
        checksums: Counter[int] = Counter()
        size = 0
        for row in rows:
            if row[1] not in self.constant:
                return held, Begun(chain((row,), rows), checksums, whole=True)
            _, number, src, seq, left, data = row
            held.append(row)
            checksums[number] += row_checksum(src, seq, data)
            size += len(data)
            if size > budget and not left:
                return held, Begun(rows, checksums, whole=False)
        return held, Begun(iter(()), checksums, whole=True)

    def _read(self, held: list[Row], rest: Begun, context: Context) -> Constants:
        """Group what is grouped once, and decode the rest if it may be kept."""
        tables, checksums = self._tables(held, context), rest.checksums
        if any(map(_may_change_values, self.steps)):
            return Constants(tables, None, checksums, _size_of(tables))
        elements: list[Elements] = []
        size = 0
        for number, some in self._decoded(held, tables):
            values = some.values
            size += len(values) * (16 + mean_size(islice(values, SAMPLE)))
            elements.append((number, some))
            if size > context.memory_budget // 4:
                return Constants(tables, None, checksums, _size_of(tables))
        return Constants(tables, elements, checksums, size + _size_of(tables))

    def _tables(self, held: list[Row], context: Context) -> dict[str, Kept]:
        """The tables of the steps that group constants once; none of those that exceed their share of the budget."""
        keeping = [step for step in self.steps if step.kept]
        found: dict[str, Kept] = {}
        for step in keeping:
            inputs = {
                collection: (
                    some
                    for number in self._into(step, collection)
                    for _, some in self._decoded([row for row in held if row[1] == number], {})
                )
                for collection in step.kept
            }
            part = replace(context, memory_budget=max(1, context.memory_budget // (4 * len(keeping))))
            tables = group_once(step, inputs, part)
            if tables is not None:
                found[step.label] = tables
        return found

    def _into(self, step: Step, collection: str) -> list[int]:
        edges = self.spec.edges
        return [at for at in self.constant if (edges[at].target, edges[at].received) == (step.id, collection)]

    def _decoded(self, held: list[Row], tables: Mapping[str, Kept]) -> Iterator[Elements]:
        """The elements of rows, but those that are in tables."""
        numbers = dict.fromkeys(number for _, number, *_ in held)
        for number in numbers:
            if not keeps(self.spec, self.spec.edges[number], tables):
                rows = ((src, seq, left, data) for _, at, src, seq, left, data in held if at == number)
                for data in reassembled(rows):
                    for some in decode(data):
                        yield number, some

    def _keep(self, partition: int, part: Constants, budget: int) -> None:
        """Keep a partition's part, and drop those that were used least recently if they are too many."""
        self._parts[partition] = part
        while len(self._parts) > 1 and sum(each.size for each in self._parts.values()) > budget:
            del self._parts[next(iter(self._parts))]


@dataclass(slots=True)
class Begun:
    """The rows of a round that are left to process, and the checksums of those that are not; unless `whole`, there are
    further rows of constants among the former."""

    rows: Iterator[Row]
    checksums: Counter[int]
    whole: bool


def keeps(spec: TaskSpec, edge: Edge, tables: Mapping[str, Kept]) -> bool:
    """Whether the elements of an edge are in the tables that a step keeps."""
    step = spec.plan.steps[edge.target]
    return edge.received in step.kept and step.label in tables


def _others(rows: Iterator[Row], constant: frozenset[int]) -> Iterator[Row]:
    """The rows behind those of constants."""
    for row in rows:
        if row[1] not in constant:
            yield row
            yield from rows


def _size_of(tables: Mapping[str, Kept]) -> int:
    """An estimate of the bytes of tables."""
    size = 0
    for table in tables.values():
        for groups in table.by_window.values():
            size += len(groups) * (100 + mean_size(islice(groups.items(), SAMPLE)))
    return size


def _may_change_values(step: Step) -> bool:
    """Whether a step combines by a function of two values, which may change the first of them."""
    return isinstance(step.tail, CombinePerKey) and isinstance(step.tail.fn.load(), PairwiseFn)


def _tears_down(node: Node) -> bool:
    match node:
        case ParDo() | CombinePerKey():
            teardown = getattr(type(node.fn.load()), "teardown", None)
            return teardown not in (None, DoFn.teardown, CombineFn.teardown)
        case Iterate():
            return any(map(_tears_down, node.body))
        case _:
            return False


# -- the caches of this process

_caches: Final[dict[int, LevelCache]] = {}
"""By level."""
_of: Final[list[tuple[str, str]]] = []
"""The run and the loop to which they belong."""


def level_cache(run_id: str, loop: str, level: int, payload: bytes | Artifact) -> LevelCache:
    """What this worker keeps of a level in the body of a loop."""
    if [(run_id, loop)] != _of:
        drop_caches(run_id)
        _of[:] = [(run_id, loop)]
    if level not in _caches:
        spec: TaskSpec = pickle.loads(read_payload(payload))
        steps = tuple(spec.levels.steps(spec.plan, level))
        ids = {step.id for step in steps}
        constant = frozenset(
            number for number, edge in enumerate(spec.edges) if edge.target in ids and spec.levels.is_constant(edge)
        )
        _caches[level] = LevelCache(spec, loop, constant, steps)
    return _caches[level]


def drop_caches(run_id: str, *, failed: bool = False) -> None:
    """Tear down the functions of a loop, and drop all that is kept of it. Errors are those of the run, unless the loop
    is another run's, or has `failed`."""
    ends = [cache.life.end for cache in _caches.values()]
    quiet = failed or not ends or _of[0][0] != run_id
    _caches.clear()
    _of.clear()
    if quiet:
        for end in ends:
            quietly(end)
    else:
        close_all(ends)


def worker_name() -> str:
    """A name of this process, unlike that of others."""
    return f"{socket.gethostname()}:{os.getpid()}"

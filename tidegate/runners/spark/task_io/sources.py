"""Where a run's elements come from: splits dealt out by the driver, and the values of `Create`.

The driver looks at each source once, so that all tasks read the same splits. Few values of a `Create` travel with the
work; many are a file, of which each task reads its own part.
"""

from __future__ import annotations

import pickle
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, Final

from tidegate.runners.engine.errors.attribution import guarded, rethrow, user_error
from tidegate.runners.engine.sources.created import created
from tidegate.runners.engine.sources.split_reader import SplitReader
from tidegate.runners.engine.time.clock import SystemClock
from tidegate.runners.plan import Plan, Step
from tidegate.runners.spark.plan.artifacts import CLOSURE_BYTES, Artifact, Artifacts, path_of
from tidegate.runners.spark.shuffle.partitioner import shares_of
from tidegate.runners.spark.shuffle.row_codec import blocks_of, encode_blocks
from tidegate.sdk.connectors.sources import Source, Split
from tidegate.sdk.data.block import BLOCK_SIZE, Block
from tidegate.sdk.data.coders import decode_columns, encode_columns
from tidegate.sdk.portable.model import Create, Read, Values

_PIECE: Final = 50_000


@dataclass(frozen=True, slots=True)
class Inputs:
    """What partitions read, by step: for each partition the splits of a source, or the elements of a `Create`."""

    splits: dict[int, list[list[Split]]]
    elements: dict[int, list[bytes]]
    files: dict[int, tuple[Artifact, list[list[int]]]]
    """Of a `Create` with many elements: a file, and for each partition where its pieces begin, and where they end."""

    def of_steps(self, steps: Container[int]) -> Inputs:
        """What these steps read."""
        splits, elements, files = (
            {id: share for id, share in shares.items() if id in steps}
            for shares in (self.splits, self.elements, self.files)
        )
        return Inputs(splits, elements, files)  # type: ignore[arg-type]


def deal_out(plan: Plan, partitions: int, artifacts: Artifacts, besides: Container[int] = ()) -> Inputs:
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
                shares = shares_of([split.size for split in splits], partitions)
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


def read_elements(step: Step, inputs: Inputs, partition: int) -> Iterator[Block]:
    """A partition's elements of a `Create`."""
    if step.id in inputs.elements:
        for piece in pickle.loads(inputs.elements[step.id][partition]):
            yield from decode_share(piece)
    elif step.id in inputs.files:
        artifact, places = inputs.files[step.id]
        ends = places[partition]
        with open(path_of(artifact), "rb") as file:
            file.seek(ends[0])
            for start, end in pairwise(ends):
                yield from decode_share(file.read(end - start))


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


def encode_share(elements: Any) -> list[bytes]:
    """A partition's elements of a `Create`, in pieces."""
    if isinstance(elements, range):
        return [encode_columns((elements,))]
    return [encode_blocks([created(elements[start : start + _PIECE])]) for start in range(0, len(elements), _PIECE)]


def decode_share(data: Any) -> Iterator[Block]:
    """Blocks of what `encode_share` gave."""
    match decode_columns(data):
        case (range() as elements,):
            yield Block(elements)
        case columns:
            yield from blocks_of(columns)


def read_splits(step: Step, splits: list[Split]) -> Iterator[Block]:
    """The elements of some splits, one after another."""
    node = step.head
    assert isinstance(node, Read)
    source: Source[Any] = node.source.load()
    for split in splits:
        reader = SplitReader(node, source, split, SystemClock())
        try:
            while not reader.ended:
                block = reader.poll(BLOCK_SIZE)
                if len(block):
                    yield block
        except Exception as error:
            rethrow(user_error(error, step=node.label, where=node.where, method="read"))
        finally:
            reader.close()

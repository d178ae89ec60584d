"""The inputs of a task: the splits assigned to its partition, and the elements of `Create`s."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from tidegate.runners.engine.sources.rate_limit import RateLimiter
from tidegate.runners.engine.sources.source_step import source_step
from tidegate.runners.engine.sources.split_reader import SplitReader
from tidegate.runners.engine.time.clock import SystemClock
from tidegate.runners.exchange.block_codec import blocks_of
from tidegate.runners.plan import Step
from tidegate.runners.spark.plan.artifacts import artifact_path
from tidegate.runners.spark.plan.task_spec import Inputs
from tidegate.runners.spark.shuffle.row_codec import encode_blocks
from tidegate.sdk.connectors.sources import Split
from tidegate.sdk.data.block import BLOCK_SIZE, Block
from tidegate.sdk.data.coders import decode_columns, encode_columns

_PIECE_ELEMENTS: Final = 50_000


def read_elements(step: Step, inputs: Inputs, partition: int) -> Iterator[Block]:
    """The elements of a `Create` for one partition."""
    if step.id in inputs.elements:
        for piece in pickle.loads(inputs.elements[step.id][partition]):
            yield from decode_elements(piece)
    elif step.id in inputs.files:
        artifact, offsets = inputs.files[step.id]
        with open(artifact_path(artifact), "rb") as file:
            file.seek(offsets[partition][0])
            for start, end in pairwise(offsets[partition]):
                yield from decode_elements(file.read(end - start))


def encode_elements(elements: Any) -> list[bytes]:
    """Encode the elements of a `Create` for one partition, in pieces."""
    if isinstance(elements, range):
        return [encode_columns((elements,))]
    return [
        encode_blocks([Block.of_elements(elements[start : start + _PIECE_ELEMENTS])])
        for start in range(0, len(elements), _PIECE_ELEMENTS)
    ]


def decode_elements(data: Any) -> Iterator[Block]:
    """Decode a piece that `encode_elements` returned."""
    match decode_columns(data):
        case (range() as elements,):
            yield Block(elements)
        case columns:
            yield from blocks_of(columns)


def read_splits(step: Step, splits: list[Split], partitions: int, *, inline: bool) -> Iterator[Block]:
    """The elements of these splits, one split after another. The `partitions` of the step share its rate limit.
    `inline`: as for SourceStep."""
    source, clock = source_step(step.head, inline=inline), SystemClock()
    limiter = None if source.rate_limit is None else RateLimiter(source.rate_limit / partitions, clock.monotonic())
    for split in splits:
        yield from SplitReader(source, split, clock).blocks(BLOCK_SIZE, limiter)

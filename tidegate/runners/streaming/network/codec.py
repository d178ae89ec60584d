"""Items of a channel as bytes and back: all blocks and events that are sent together are one pickle of columns.

Large buffers that values offer (arrays do) stand behind
the pickle, each at a multiple of 16 bytes, and the values that are read keep them: nothing is copied on either side.

    count of buffers, u32 · length of the pickle, u64 · length of each buffer, u64 · pickle · buffers
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from tidegate.runners.exchange.block_codec import BLOCK_COLUMNS, block_columns, block_of
from tidegate.runners.streaming.protocol.stream_items import Event, Item
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.coders import decode_columns, encode_columns_apart
from tidegate.sdk.errors import RunError

Buffer: TypeAlias = bytes | bytearray | memoryview

_HEAD: Final = struct.Struct("<I4xQ")
_ALIGN: Final = 16


def encode_items(items: Sequence[Item]) -> list[Buffer]:
    """The items as buffers to be sent one after another.

    PicklingError, naming the part at fault, if an element can't be pickled; whoever knows the step adds it.
    """
    columns: list[Any] = ["".join(["b" if isinstance(item, Block) else "e" for item in items])]
    for item in items:
        if isinstance(item, Block):
            columns += block_columns(item)
        else:
            columns.append(item)
    pickled, apart = encode_columns_apart(tuple(columns))
    if not apart:
        return [_HEAD.pack(0, len(pickled)), pickled]
    lengths = [buffer.nbytes for buffer in apart]
    head = _HEAD.pack(len(apart), len(pickled)) + struct.pack(f"<{len(apart)}Q", *lengths)
    parts: list[Buffer] = [head, pickled]
    at = len(head) + len(pickled)
    for buffer in apart:
        parts += [bytes(-at % _ALIGN), buffer]
        at += -at % _ALIGN + buffer.nbytes
    return parts


def decode_items(data: memoryview, *, own: bool) -> list[Item]:
    """The items back. `own`: the memory is theirs to keep; else whatever is to be kept is copied.

    RunError if the data is damaged, or a value can't be rebuilt.
    """
    try:
        count, size = _HEAD.unpack_from(data)
        if count and not own:
            data = memoryview(bytearray(data))
        lengths = struct.unpack_from(f"<{count}Q", data, _HEAD.size)
        at = _HEAD.size + 8 * count
        pickled, at = data[at : at + size], at + size
        apart = []
        for length in lengths:
            at += -at % _ALIGN
            apart.append(data[at : at + length])
            at += length
        if at != data.nbytes:
            raise ValueError(f"{data.nbytes} bytes instead of {at}")
    except (struct.error, ValueError) as error:
        raise RunError(f"a frame of elements is damaged: {error}") from error
    columns = decode_columns(pickled, apart)
    try:
        return list(_items(columns))
    except (TypeError, ValueError, IndexError) as error:
        raise RunError(f"a frame of elements is damaged: its columns do not fit together: {error}") from error


def copied(block: Block) -> Block:
    """The same elements, which share nothing that can change with those of `block`. PicklingError as above."""
    (copy,) = decode_items(memoryview(b"".join(encode_items([block]))), own=False)
    assert isinstance(copy, Block)
    return copy


def _items(columns: tuple[Any, ...]) -> Iterator[Item]:
    kinds, *rest = columns
    at = 0
    for kind in kinds:
        if kind == "e":
            if not isinstance(event := rest[at], Event):
                raise ValueError(f"a {type(event).__name__} stands where a mark or a barrier does")
            yield event
            at += 1
            continue
        yield block_of(*rest[at : at + BLOCK_COLUMNS])
        at += BLOCK_COLUMNS

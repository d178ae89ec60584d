"""The encoding of channel items: all blocks and events that are sent together are one pickle of columns.

Large buffers of values (of arrays, for example) follow the pickle, each aligned to 16 bytes. Decoded values refer to
them, so that no buffer is copied on either side.

    count of buffers, u32 · length of the pickle, u64 · length of each buffer, u64 · pickle · buffers
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from tidegate.runners.exchange.block_codec import BLOCK_COLUMNS, block_columns, block_of
from tidegate.runners.streaming.protocol.stream_items import Event, Item
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.coders import decode_columns, encode_columns_out_of_band
from tidegate.sdk.errors import RunError

Buffer: TypeAlias = bytes | bytearray | memoryview

_HEAD: Final = struct.Struct("<I4xQ")
_ALIGN: Final = 16


def encode_items(items: Sequence[Item]) -> list[Buffer]:
    """The items as buffers, to be sent in this order.

    PicklingError, naming the offending part, if an element can't be pickled; the caller adds the step.
    """
    columns: list[Any] = ["".join(["b" if isinstance(item, Block) else "e" for item in items])]
    for item in items:
        if isinstance(item, Block):
            columns += block_columns(item)
        else:
            columns.append(item)
    pickled, apart = encode_columns_out_of_band(tuple(columns))
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


def decode_items(data: memoryview, *, owned: bool) -> list[Item]:
    """Decode items. Unless the memory is `owned` by them, buffers that they refer to are copied.

    RunError if the data is damaged, or a value can't be unpickled.
    """
    try:
        count, size = _HEAD.unpack_from(data)
        if count and not owned:
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
            raise ValueError(f"it has {data.nbytes} bytes, not {at}")
    except (struct.error, ValueError) as error:
        raise RunError(f"a frame of elements is damaged: {error}") from error
    columns = decode_columns(pickled, apart)
    try:
        return list(_items(columns))
    except (TypeError, ValueError, IndexError) as error:
        raise RunError(f"a frame of elements is damaged: its columns do not match: {error}") from error


def copied(block: Block) -> Block:
    """A deep copy of a block. PicklingError as of `encode_items`."""
    (copy,) = decode_items(memoryview(b"".join(encode_items([block]))), owned=False)
    assert isinstance(copy, Block)
    return copy


def _items(columns: tuple[Any, ...]) -> Iterator[Item]:
    kinds, *rest = columns
    at = 0
    for kind in kinds:
        if kind == "e":
            if not isinstance(event := rest[at], Event):
                raise ValueError(f"there is a {type(event).__name__} in place of an event")
            yield event
            at += 1
            continue
        yield block_of(*rest[at : at + BLOCK_COLUMNS])
        at += BLOCK_COLUMNS

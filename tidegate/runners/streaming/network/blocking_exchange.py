"""Blocking exchanges: the results of a region on disk, in one subpartition for each consumer.

A subpartition is a file of frames with checksums. It gets its final name when it is complete, so that the output of a
task that died is never read. Frames are not compressed: zlib takes several times as long as encoding, even at level 1.
What is broadcast is stored once, in the subpartition of the first consumer.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final
from zlib import crc32

from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.plan import Edge
from tidegate.runners.streaming.network.codec import decode_items, encode_items
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import RunError, write_failure
from tidegate.sdk.private_files import owner_only

_HEAD: Final = struct.Struct("<QI")


class SubpartitionWriter:
    """The sending end of a blocking channel. `round`: of the loop in whose body the sender is; 0 for none."""

    def __init__(self, directory: Path, channel: ChannelId, attempt: int, round: int = 0) -> None:
        self.channel = channel
        self._final = directory / subpartition_file(channel, round)
        self._path = directory / f"{self._final.name}.{attempt}"
        self._file: BinaryIO | None = None

    def write(self, block: Block) -> None:
        """Append elements. RunError when the disk is full; PicklingError for what can't be pickled."""
        parts = encode_items([block])
        size = check = 0
        for part in parts:
            size += len(part)
            check = crc32(part, check)
        with self._as_run_error():
            if self._file is None:
                self._file = open(self._path, "wb", opener=owner_only)  # noqa: SIM115
            self._file.write(_HEAD.pack(size, check))
            self._file.writelines(parts)

    def finish(self) -> None:
        """Complete the file. RunError when the disk is full."""
        with self._as_run_error():
            if self._file is None:
                self._final.unlink(missing_ok=True)  # an earlier attempt may have had elements for this channel
                return
            self._file.close()
            os.replace(self._path, self._final)

    def abandon(self) -> None:
        """Remove the incomplete file."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # flushing fails on a full disk
                self._file.close()
            self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _as_run_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = write_failure(error, "another --temp_dir", self._path)
            raise RunError(f"the result of a step can't be stored for the steps that read it: {why}") from error


class SubpartitionTarget:
    """A subpartition as the target of a partitioner. Watermarks are not stored."""

    def __init__(self, writer: SubpartitionWriter) -> None:
        self._writer = writer

    def add(self, block: Block, now: int) -> None:
        self._writer.write(block)

    def send_status(self, status: CollectionStatus, now: int) -> None:
        return


class SubpartitionReader:
    """The receiving end: the blocks that a finished task has written, then the status that ends the collection.

    `stored`: the channel for which they were written, if not this one; `rounds`: in which rounds of a loop, 0 for none.
    """

    blocked = False

    def __init__(
        self, directory: Path, channel: ChannelId, stored: ChannelId | None = None, rounds: Sequence[int] = (0,)
    ) -> None:
        self.id = channel
        self._frames: Iterator[Block] = (
            block for round in rounds for block in _frames(directory / subpartition_file(stored or channel, round))
        )
        self._ended = False

    @property
    def ready(self) -> bool:
        """Whether there is an item to take."""
        return not self._ended

    def next_is(self, kind: type) -> bool:
        """Whether the next item is of this class. Unless it has been read, it counts as a block."""
        return kind is Block

    def take(self) -> Block | CollectionStatus:
        """The next block, or the status that ends the collection."""
        block = next(self._frames, None)
        if block is not None:
            return block
        self._ended = True
        return CollectionStatus(ended=True)

    def pass_through(self, function: Callable[[Iterator[Block]], Iterator[Block]]) -> None:
        """Have a function return the blocks that are taken, from those that are stored."""
        self._frames = function(self._frames)

    def blocks(self) -> Iterator[Block]:
        """The blocks that are left."""
        return self._frames

    def skip(self) -> None:
        """Skip the blocks: the restored state of the task includes them."""
        self._frames = iter(())


def stored_channel(channel: ChannelId, edge: Edge) -> ChannelId:
    """The channel for which the blocks of a blocking channel are written: of a broadcast, the one to the first task."""
    number = channel.edge if edge.files is None else edge.files
    broadcast = edge.exchange is not None and edge.exchange.routing == "broadcast"
    return replace(channel, edge=number, target=0 if broadcast else channel.target)


def subpartition_file(channel: ChannelId, round: int = 0) -> str:
    """The name of a channel's file, in a round of a loop or outside loops; there is none if nothing was written."""
    name = f"run-{channel.edge}.{channel.source}.{channel.target}"
    return f"{name}-{round}" if round else name


def _frames(path: Path) -> Iterator[Block]:
    if not path.exists():
        return
    with path.open("rb") as file:
        while head := file.read(_HEAD.size):
            if len(head) < _HEAD.size:
                raise RunError(f"{path} is damaged: it is truncated")
            size, check = _HEAD.unpack(head)
            data = file.read(size)
            if len(data) < size or crc32(data) != check:
                raise RunError(f"{path} is damaged: checksum mismatch")
            for item in decode_items(memoryview(data), owned=True):
                assert isinstance(item, Block)
                yield item

"""SolutionLog: what rounds have replaced in one task's part of a solution, in a file that outlives the workers.

The file begins with the whole part as a round has left it, or with nothing, if no round has stored the whole. After
that, each round appends what it has replaced. If a round fails, what it has appended is cut off.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final
from zlib import crc32

from tidegate.runners.streaming.network.codec import decode_items, encode_items
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import RunError, write_failure
from tidegate.sdk.private_files import owner_only

_HEAD: Final = struct.Struct("<QIQ")
"""The size of a frame, its checksum, and the round that wrote it."""


class SolutionLog:
    """The file of one part. `read` it before the first round that it is for."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = f"solution-{name}"
        self._file: BinaryIO | None = None
        self.base = 0
        """The round whose whole part the file begins with; 0 for none."""
        self.elements = 0
        """How many elements rounds have appended to that."""

    def find(self, done: int) -> None:
        """Choose the file that the rounds that are `done` have written."""
        self.base = max((base for base in self._bases() if base <= done), default=0)

    def read(self, done: int) -> Iterator[Block]:
        """What the rounds that are `done` have written, in order."""
        self.elements = 0
        with self._path(self.base).open("rb") if self._path(self.base).exists() else contextlib.nullcontext() as file:
            for round, data in _frames(file):
                if round > done:
                    return
                for item in decode_items(memoryview(data), owned=True):
                    assert isinstance(item, Block)
                    if round > self.base:
                        self.elements += len(item)
                    yield item

    def open(self, done: int) -> None:
        """Go on after the rounds that are `done`: what others have written is removed."""
        with self._as_run_error():
            path = self._path(self.base)
            end = _length(path, done)
            self._file = open(path, "ab", opener=owner_only)  # noqa: SIM115
            self._file.truncate(end)
            for base in self._bases():
                if base != self.base:
                    self._path(base).unlink()

    def append(self, round: int, block: Block) -> None:
        """Note pairs that a round has replaced. RunError when the disk is full."""
        assert self._file is not None
        self.elements += len(block)
        with self._as_run_error():
            self._file.write(_frame(round, block))

    def flush(self) -> None:
        """Let what has been appended outlive this process. RunError when the disk is full."""
        assert self._file is not None
        with self._as_run_error():
            self._file.flush()

    def rewrite(self, done: int, blocks: Iterable[Block]) -> None:
        """Begin a file with the whole part, as the rounds that are `done` have left it. RunError when the disk is
        full."""
        self.close()
        path = self._path(done)
        with self._as_run_error():
            with open(unfinished := path.with_name(f"{path.name}.new"), "wb", opener=owner_only) as file:
                for block in blocks:
                    file.write(_frame(done, block))
            os.replace(unfinished, path)
        self.base, self.elements = done, 0
        self.open(done)

    def close(self) -> None:
        """Close the file, which stays."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # flushing fails on a full disk
                self._file.close()
            self._file = None

    def _bases(self) -> list[int]:
        """The rounds with whose whole part a file begins, 0 for none."""
        prefix = f"{self._name}-"
        names = [path.name.removeprefix(prefix) for path in self._directory.glob(f"{prefix}*")]
        return [int(name) for name in names if name.isdigit()]

    def _path(self, base: int) -> Path:
        return self._directory / f"{self._name}-{base}"

    @contextlib.contextmanager
    def _as_run_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = write_failure(error, "another --temp_dir", self._path(self.base))
            raise RunError(f"what a round has changed in a solution can't be stored: {why}") from error


def _frame(round: int, block: Block) -> bytes:
    data = b"".join(encode_items([block]))
    return _HEAD.pack(len(data), crc32(data), round) + data


def _frames(file: BinaryIO | None) -> Iterator[tuple[int, bytes]]:
    """The whole frames of a file, with their rounds. A frame that has been cut off is that of a round that failed."""
    while file is not None and len(head := file.read(_HEAD.size)) == _HEAD.size:
        size, check, round = _HEAD.unpack(head)
        data = file.read(size)
        if len(data) < size:
            return
        if crc32(data) != check:
            raise RunError(f"{file.name} is damaged: checksum mismatch")
        yield round, data


def _length(path: Path, done: int) -> int:
    """How many bytes the rounds that are `done` have written."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        end = 0
        for round, data in _frames(file):
            if round > done:
                break
            end += _HEAD.size + len(data)
    return end

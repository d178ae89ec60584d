"""The interface between the sink of files and the formats: how elements become the contents of one file.

A `FileFormat` is a frozen, picklable description. Each attempt of a task makes a factory of writers from it, and a
`FileWriter` for each file. A writer holds elements in memory until the attempt flushes it, and only then needs its
file open, because an attempt may write to thousands of files in turn with few of them open.

There are two families. In a format that `appends`, a file that was closed can be opened again to continue it, and the
files of several tasks are joined byte by byte (lines of text). A file of any other format is finished in one go (its
index is at the end, as in Parquet), and joining such files means reading and writing them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, ClassVar


class FileWriter(ABC):
    """The contents of one file. The attempt that made it opens and closes the file."""

    buffered: int = 0
    """About how many bytes of elements are in memory, not in the file."""

    @property
    def head(self) -> int:
        """The size in bytes of what precedes the first element, for formats that append."""
        return 0

    @property
    def foot(self) -> int:
        """The size in bytes of what follows the last element, for formats that append."""
        return 0

    @abstractmethod
    def add(self, values: Sequence[Any]) -> None:
        """Buffers elements. Raises WriteError, naming the element, for one that the format can't represent."""

    @abstractmethod
    def begin(self, file: BinaryIO) -> None:
        """Called when the file has been created, before anything is flushed."""

    def resume(self, file: BinaryIO) -> None:
        """Called when the file has been opened again after `suspend`, to append; only for formats that append."""
        raise NotImplementedError

    @abstractmethod
    def flush(self) -> None:
        """Writes the buffered elements into the open file."""

    def suspend(self) -> None:
        """Called before the file is closed for a while; only for formats that append."""
        raise NotImplementedError

    @abstractmethod
    def finish(self) -> None:
        """Flushes, and completes the contents of the open file."""

    @abstractmethod
    def discard(self) -> None:
        """Releases resources of a file that will not be finished."""


class FileFormat(ABC):
    """A file format and its options. Subclasses are frozen dataclasses."""

    name: ClassVar[str]
    """The name in `explain`, such as "csv"."""

    transform: ClassVar[str]
    """The transform that errors of `check` name."""

    appends: ClassVar[bool] = False
    """True if a closed file can be continued, and files joined byte by byte."""

    @property
    def buffer_bytes(self) -> int:
        """A writer is flushed when it has buffered this much."""
        return 1 << 18

    @abstractmethod
    def check(self, path: str) -> None:
        """Raises BuildError if the options are wrong or a package is missing. `path` is the name of a file."""

    @abstractmethod
    def writers(self, sink: str) -> Callable[[], FileWriter]:
        """A factory of writers for one attempt. `sink` is the name by which errors refer to the output."""

    @abstractmethod
    def empty(self) -> bytes:
        """The contents of a file without elements."""

    def join(self, parts: Sequence[Callable[[], BinaryIO]], target: BinaryIO, sink: str) -> None:
        """Writes the elements of several files, in order, as one file; only for formats that don't append."""
        raise NotImplementedError

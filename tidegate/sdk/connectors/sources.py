"""The interface of sources: a source is divided into splits, and a reader reads a split in batches.

A `Source` is a frozen, picklable description of data, without open files or connections. The runner calls `splits`
once to divide it into parts that can be read independently, on different machines, and assigns the splits to tasks. A
task opens a `Reader` for a split and reads one `Batch` after another. Between batches, the reader returns its
`position`, which a checkpoint stores: a new reader in another process resumes from it with the next element. This is
enough for exactly-once reading: after a failure, the runner resumes from the positions of the last checkpoint.

Bounded and unbounded sources differ in one respect: the batches of an unbounded reader never have `end`. A reader
never blocks to wait for new data: it returns an empty batch, with `wait` as a hint when to read again.

    class Numbers(SimpleSource[int]):          # the simplest way, for bounded data in one split
        def generate(self, split, position):
            for n in range(position or 0, 10):
                yield n + 1, n                 # where to resume after the element, and the element
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from tidegate.sdk.data.block import Block

T_co = TypeVar("T_co", covariant=True)

Position: TypeAlias = Any
"""A reader's position in its split: None (the start) or a small value that survives JSON (numbers, strings, lists and
dicts of them), so that checkpoints are readable."""


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a source that is read by one reader at a time.

    `id` is unique within the source, stable, and readable in logs. `size` is the approximate number of bytes (None:
    unknown), by which runners balance load and assign several small splits to one task. `payload` is defined by the
    connector and must be picklable.
    """

    id: str
    size: int | None = None
    payload: Any = None


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of `Reader.read`: elements, then at most one watermark.

    `watermark` (µs) asserts that the split has no more elements with an earlier timestamp; it must not decrease.
    `idle`: the split does not hold back the watermark until its next batch with elements. `end`: these are the last
    elements of the split. `wait` (seconds) is how long a runner should wait before it reads again; it is ignored if
    there are elements.
    """

    block: Block
    watermark: int | None = None
    idle: bool = False
    end: bool = False
    wait: float = 0.0


class Reader(ABC, Generic[T_co]):
    """Reads a split from a position on. Used by one thread at a time.

    `now()` is processing time (µs since 1970). The runner sets it before the first `read`, so that tests can control
    the clock of readers.
    """

    now: Callable[[], int] = staticmethod(lambda: time.time_ns() // 1000)

    @abstractmethod
    def read(self, limit: int) -> Batch:
        """The next elements, at most `limit`; fewer, or none, if no more are available now.

        Raises ReadError, naming the place, for data that can't be read. Not called again after `end`.
        """

    @abstractmethod
    def position(self) -> Position:
        """The position directly after the last element read. Must be cheap: it is called at every checkpoint."""

    def close(self) -> None:
        """Releases the reader's resources. Called once, also after an error."""


class Source(ABC, Generic[T_co]):
    """Reads elements from an external system. Subclasses are frozen dataclasses, or otherwise picklable and
    immutable."""

    bounded: bool = True
    """Whether the data is finite."""

    forks_safely: bool = True
    """Whether a process with an open reader can be forked. False for client libraries with threads of their own: the
    streaming runner then writes checkpoints of that process's state in small steps, instead of in a forked child."""

    replayable: bool = True
    """False if elements can't be read a second time: after a failure, those that were in progress are lost. Runners say
    so when a run starts, and `explain` does."""

    @property
    def name(self) -> str:
        """The name shown in `explain`, graphs and errors."""
        return type(self).__name__

    @property
    def element_type(self) -> Any:
        """The type of the elements; `Any` if unknown."""
        return Any

    def check(self) -> None:
        """Called when the pipeline is built. Raises BuildError if reading can't work, for example because no file
        matches or a package is missing. Should be quick, and must leave nothing open."""

    def local_files(self) -> Sequence[str]:
        """Files of the local file system that readers open. Readers on other machines must be able to access them."""
        return ()

    @abstractmethod
    def splits(self, desired: int) -> list[Split]:
        """The splits, in order: about `desired` (at least 1) of them, if the data can be divided that way.

        A pure function of `desired` and the data: another call returns the same ids for the same parts. Raises
        ReadError if the source can't be inspected.
        """

    @abstractmethod
    def reader(self, split: Split, position: Position = None) -> Reader[T_co]:
        """A reader of `split`, from its start or from a position returned by an earlier reader of this split."""


class SimpleSource(Source[T_co]):
    """A bounded source implemented by a generator that can start at any position.

    It has one split, unless `splits` is overridden. Elements have no timestamps; a later step can assign them.
    """

    def splits(self, desired: int) -> list[Split]:
        return [Split("all")]

    @abstractmethod
    def generate(self, split: Split, position: Position) -> Iterator[tuple[Position, T_co]]:
        """Yields `(position, element)`: the position from which to resume after the element, and the element. Starts at
        `position` (None: the start of the split). Release resources in a `finally`."""

    def reader(self, split: Split, position: Position = None) -> Reader[T_co]:
        return _GeneratorReader(self.generate(split, position), position)


class _GeneratorReader(Reader[T_co]):
    def __init__(self, items: Iterator[tuple[Position, T_co]], position: Position) -> None:
        self._items = items
        self._position = position

    def read(self, limit: int) -> Batch:
        values: list[T_co] = []
        for position, value in self._items:
            values.append(value)
            self._position = position
            if len(values) >= limit:
                return Batch(Block.of(values))
        return Batch(Block.of(values), end=True)

    def position(self) -> Position:
        return self._position

    def close(self) -> None:
        close = getattr(self._items, "close", None)
        if close is not None:
            close()

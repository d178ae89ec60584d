"""What a connector that reads implements: a source gives splits, a reader gives blocks.

A `Source` is a frozen, picklable description of where data is: it holds no open file and no connection. The runner
asks it once for its `splits`, parts that can be read independently and on different machines, and deals them out.
Whoever gets a split opens a `Reader` on it and asks for one `Batch` after another. Between two batches the reader
can say its `position`: kept in a checkpoint, it lets a new reader, in another process, give exactly the elements
that the first had not yet given. That is all a runner needs for exactly-once reading: on failure it goes back to
the positions of the last checkpoint.

Bounded and unbounded sources differ in one thing: the batches of an unbounded reader never have `end`. A reader
never blocks for new data: where there is none at the moment it gives an empty batch, with `wait` as a hint when to
ask again.

    class Numbers(SimpleSource[int]):          # the short way, for bounded data in one piece
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
"""Where in its split a reader is: None (the start) or a small value that survives JSON (numbers, strings, lists and
dicts of them), so that a checkpoint can be read by people."""


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a source that is read by one reader at a time.

    `id` is unique within the source, stable, and readable in logs; `size` is about how many bytes it holds (None:
    not known), so that runners can balance, and give several small splits to one task, one after another;
    `payload` is the connector's own, picklable.
    """

    id: str
    size: int | None = None
    payload: Any = None


@dataclass(frozen=True, slots=True)
class Batch:
    """What one call of `Reader.read` gives: elements, then at most one watermark.

    `watermark` (µs) says that this split gives no more elements with an earlier timestamp; it must not go back.
    `idle`: until the next batch with elements the split holds back nobody's watermark. `end`: the split is
    exhausted, these are its last elements. `wait` (seconds) is how long a runner does well to wait before it asks
    again; only heeded when there are no elements.
    """

    block: Block
    watermark: int | None = None
    idle: bool = False
    end: bool = False
    wait: float = 0.0


class Reader(ABC, Generic[T_co]):
    """Reads one split from one position on. Used by one thread at a time.

    `now()` is processing time (µs since 1970); the runner sets it before the first `read`, so that a test's clock
    drives the readers that go by it.
    """

    now: Callable[[], int] = staticmethod(lambda: time.time_ns() // 1000)

    @abstractmethod
    def read(self, limit: int) -> Batch:
        """The next at most `limit` elements; fewer, or none, when that is what is there.

        Raises ReadError, naming the place, for data that can't be read. Not called again after `end`.
        """

    @abstractmethod
    def position(self) -> Position:
        """Where a new reader resumes: directly after the last element given. Cheap; called at every checkpoint."""

    def close(self) -> None:
        """Releases what the reader holds. Called once, also after an error."""


class Source(ABC, Generic[T_co]):
    """Where elements come from. Subclasses are frozen dataclasses, or otherwise picklable and unchanging."""

    bounded: bool = True
    """Whether reading ends."""

    @property
    def name(self) -> str:
        """For people: in `explain`, graphs and errors."""
        return type(self).__name__

    @property
    def element_type(self) -> Any:
        """The type of the elements, `Any` when it is not known."""
        return Any

    def check(self) -> None:
        """Called when the pipeline is built. Raises BuildError when reading can't work: no file matches, a missing
        package. Should be quick, and must leave nothing open."""

    def local_files(self) -> Sequence[str]:
        """Files of this machine's file system that readers open: those on other machines have to find them too."""
        return ()

    @abstractmethod
    def splits(self, desired: int) -> list[Split]:
        """The parts, in order: about `desired` (at least 1) of them if the data can be cut that way.

        A pure function of `desired` and the data: asked again, it gives the same ids for the same parts. Raises
        ReadError when the source can't be looked at.
        """

    @abstractmethod
    def reader(self, split: Split, position: Position = None) -> Reader[T_co]:
        """A reader of `split`, from its start or from a position that an earlier reader of this split gave."""


class SimpleSource(Source[T_co]):
    """A bounded source written as one generator that can start anywhere.

    One split, unless `splits` is overridden. Elements have no timestamps; attach them in a step behind.
    """

    def splits(self, desired: int) -> list[Split]:
        return [Split("all")]

    @abstractmethod
    def generate(self, split: Split, position: Position) -> Iterator[tuple[Position, T_co]]:
        """Yields `(position, element)`: the element, and where to resume after it. Starts behind `position`
        (None: at the split's start). What it holds open it releases in a `finally`."""

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

"""The interface of sources: a source is divided into splits, and a reader reads a split in batches.

A `Source` is a frozen, picklable description of data, without open files or connections. The runner calls `splits`
once to divide it into parts that can be read independently, on different machines, and assigns the splits to tasks. A
task opens a `Reader` for a split and reads one `Batch` after another. Between batches, the reader returns its
`position`, which a checkpoint stores: a new reader in another process resumes from it with the next element. This is
enough for exactly-once reading: after a failure, the runner resumes from the positions of the last checkpoint.

Bounded and unbounded sources differ in one respect: the batches of an unbounded reader never have `end`. A reader
never blocks to wait for new data: it returns an empty batch, with `wait` as a hint when to read again. An `AsyncReader`
may wait, because it runs on an event loop beside the task.

A source whose splits are not all known at the start, such as a folder that new files appear in, returns a
`SplitEnumerator`. The runner asks it for new splits while the job runs, and checkpoints its state.

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
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from tidegate.sdk import moved
from tidegate.sdk.data.block import Block

if TYPE_CHECKING:
    import pyarrow

    from tidegate.sdk.relational.expressions import Tree

T_co = TypeVar("T_co", covariant=True)

Position: TypeAlias = Any
"""A reader's position in its split: None (the start) or a small value that survives JSON (numbers, strings, lists and
dicts of them), so that checkpoints are readable."""


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a source that is read by one reader at a time.

    `id` is unique within the source, stable, and readable in logs. `size` is the approximate number of bytes (None:
    unknown), by which runners balance load and assign several small splits to one task. `payload` is defined by the
    connector and must be picklable. `bounded` says whether the split has an end (None: as the source); an unbounded
    source may have bounded splits, such as the files of a folder that is followed, and tasks read those one by one.
    """

    id: str
    size: int | None = None
    payload: Any = None
    bounded: bool | None = None

    def __setstate__(self, state: Sequence[Any]) -> None:
        """Restore a pickled split, also one that was stored before splits had all of today's fields."""
        moved.set_fields(self, state)


@dataclass(frozen=True, slots=True)
class Columns:
    """Elements as columns. A reader may return them in a batch instead of a block; `rows` makes the elements of them.

    `rows` must be picklable and return one element for each row. The elements have no timestamps; `tg.Read` with
    `timestamp` assigns them.
    """

    batch: pyarrow.RecordBatch
    rows: Callable[[pyarrow.RecordBatch], list[Any]]

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @property
    def values(self) -> list[Any]:
        """The rows as elements."""
        return self.rows(self.batch)

    def block(self) -> Block:
        """The rows as a block."""
        return Block.of(self.values)


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of a reader's `read`: elements, then at most one watermark.

    `watermark` (µs) asserts that the split has no more elements with an earlier timestamp; it must not decrease.
    `idle`: the split does not hold back the watermark until its next batch with elements. `end`: these are the last
    elements of the split. `wait` (seconds) is how long a runner should wait before it reads again; it is ignored if
    there are elements.

    `holds_watermark`: elements with any timestamps may follow in the split, as they do where it has another file to
    read after this one; so the timestamps that the author's function assigns do not advance the watermark yet.
    """

    block: Block | Columns
    watermark: int | None = None
    idle: bool = False
    end: bool = False
    wait: float = 0.0
    holds_watermark: bool = False


class Reader(ABC, Generic[T_co]):
    """Reads a split from a position on. Used by one thread at a time.

    `now()` is processing time (µs since 1970). The runner sets it before the first `read`, so that tests can control
    the clock of readers.
    """

    now: Callable[[], int] = staticmethod(lambda: time.time_ns() // 1000)

    @abstractmethod
    def read(self, limit: int) -> Batch:
        """The next elements, at most `limit`; fewer, or none, if no more are available now.

        Raises ReadError, naming the place, for data that can't be read, and PositionLost if the position to resume from
        no longer exists. Not called again after `end`.
        """

    @abstractmethod
    def position(self) -> Position:
        """The position directly after the last element read. Must be cheap: it is called at every checkpoint."""

    def close(self) -> None:
        """Releases the reader's resources. Called once, also after an error."""


class AsyncReader(ABC, Generic[T_co]):
    """Reads a split from a position on, with asyncio.

    Its methods run on one event loop, in a thread of the process that reads; the loop is shared by all readers of the
    process. While a batch is processed, the next one may already be read: the runner remembers the position of each
    batch. `now()` is as for `Reader`.
    """

    now: Callable[[], int] = staticmethod(lambda: time.time_ns() // 1000)

    @abstractmethod
    async def read(self, limit: int) -> Batch:
        """The next elements, at most `limit`, as `Reader.read`; but it may wait for them. It is cancelled if the task
        ends or fails meanwhile."""

    @abstractmethod
    def position(self) -> Position:
        """The position directly after the last element read. Called after each `read`."""

    async def close(self) -> None:
        """Releases the reader's resources. Called once, also after an error."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """The result of `SplitEnumerator.discover`: new splits, and when to look again (seconds).

    `end`: no split will follow. A source ends when its enumerator and all its splits have ended.
    """

    splits: Sequence[Split] = ()
    wait: float = 1.0
    end: bool = False


class SplitEnumerator(ABC):
    """Finds the splits of a source while the job runs. Used by one thread at a time, in one process of the job."""

    @abstractmethod
    def discover(self, limit: int) -> Discovery:
        """Look once: at most `limit` splits that no earlier call has returned, in the order in which to read them.

        It may block: it never runs on the thread that processes elements. A look that returns `limit` splits is
        followed by another one as soon as those are being read. The splits of the first look are the backlog, and so
        are those of the looks directly after it for as long as each returns `limit` splits: they hold back the
        watermark until they are read. A split that is found later holds it back only from its first element on.
        """

    @abstractmethod
    def state(self) -> Position:
        """What a new enumerator needs, in order to return every split that this one has not returned yet, and no other.

        A value that survives JSON, and that doesn't grow forever: checkpoints store it. Called after each `discover`.
        """

    def close(self) -> None:  # noqa: B027
        """Releases the enumerator's resources. Called once, also after an error."""


class Source(ABC, Generic[T_co]):
    """Reads elements from an external system. Subclasses are frozen dataclasses, or otherwise picklable and
    immutable."""

    bounded: bool = True
    """Whether the data is finite. A source that can both read what there is and follow it has a field for this."""

    forks_safely: bool = True
    """Whether a process with an open reader can be forked. False for client libraries with threads of their own: the
    streaming runner then writes checkpoints of that process's state in small steps, instead of in a forked child."""

    replayable: bool = True
    """False if elements can't be read a second time: after a failure, those that were in progress are lost. Runners say
    so when a run starts, and `explain` does."""

    takes_columns: bool = False
    """Whether `scan` can leave fields out of the elements, which have those of the element type's schema."""

    takes_conditions: bool = False
    """Whether `scan` can leave out elements by conditions."""

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
        """The splits, in order: about `desired` (at least 1) of them, if the data can be divided that way. Not called
        if the source has an enumerator.

        A pure function of `desired` and the data: another call returns the same ids for the same parts. Raises
        ReadError if the source can't be inspected.
        """

    def enumerator(self, state: Position = None) -> SplitEnumerator | None:
        """An enumerator that finds splits while the job runs, or None if `splits` returns all there are.

        `state` is None, or what an earlier enumerator of this job returned from `state`.
        """
        return None

    @abstractmethod
    def reader(self, split: Split, position: Position = None) -> Reader[T_co] | AsyncReader[T_co]:
        """A reader of `split`, from its start or from a position returned by an earlier reader of this split.

        Raises PositionLost if the position no longer exists.
        """

    def scan(self, columns: tuple[str, ...] | None, conditions: tuple[Tree, ...]) -> Source[Any]:
        """This source for steps that read only these fields of the elements (None: all), if it `takes_columns`.

        If it `takes_conditions`, elements for which one of the `conditions` is not true may be left out
        (sdk/relational/reader_conditions.py). Splits and positions must be those of this source, so that a changed
        query resumes from them.
        """
        raise NotImplementedError

    def split_again(self, split: Split, position: Position, desired: int) -> list[Split] | None:
        """The rest of a split from `position` on, divided into about `desired` splits; None if it can't be divided.

        Called when a job resumes with more tasks than it has open splits. Each new split is read from its start, so its
        payload says where that is; the new ids must differ from those of all other splits of the source.
        """
        return None


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

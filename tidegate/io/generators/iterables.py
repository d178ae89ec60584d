"""`FromIterable`: the elements of a Python iterable, as a bounded source or, read in a thread, as a live one."""

from __future__ import annotations

import inspect
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar, Unpack

from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import BuildError, PositionLost, counted, shorten
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.primitives import Read, ReadOptions
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.typehints.compatibility import element_of_iterable
from tidegate.sdk.typehints.signatures import signature_of
from tidegate.sdk.user_code.user_fn import name_of

T = TypeVar("T")

AHEAD: Final = 1000
"""The greatest number of elements that the thread of a live iterable reads ahead."""

WAIT: Final = 0.02
"""Seconds until a live iterable that has no element now is read again."""


class FromIterable(PTransform[Pipeline, PCollection[T]]):
    """The elements of the iterable that `fn` returns, in order. A `TimestampedValue` sets its element's timestamp.

    `fn` is called where the pipeline runs, once for each attempt to read. A run that resumes knows only how many
    elements have been read, so `fn` must return the same elements in the same order each time: a file, a seeded
    generator, pages of an archive, but not the messages of a queue. If `fn` has a parameter, it is called with the
    number of elements to skip, and returns the others; if it has none, its first elements are read again and dropped.

    - `bounded=False`: the source is live. The iterable is read in a thread of its own, so that it may block until its
      next element comes.

    Other keyword arguments are those of `tg.Read`. Raises BuildError if `fn` is not a function; PositionLost when
    resuming, if the iterable ends before the element to resume at.
    """

    def __init__(
        self,
        fn: Callable[[], Iterable[T]] | Callable[[int], Iterable[T]],
        *,
        bounded: bool = True,
        name: str | None = None,
        **options: Unpack[ReadOptions],
    ) -> None:
        check_factory(fn, "FromIterable", "an iterable")
        self.label = name
        self.read: Read[T] = Read(IterableSource(fn, bounded), name="Read", **options)

    def expand(self, input: Pipeline) -> PCollection[T]:
        return input | self.read


@dataclass(frozen=True)
class IterableSource(Source[Any]):
    """The iterable is the only split; a position is the number of its elements that have been read."""

    fn: Callable[..., Iterable[Any]]
    bounded: bool = True

    @property
    def name(self) -> str:
        return f"iterable {name_of(self.fn)}"

    @property
    def element_type(self) -> Any:
        return element_of_iterable(signature_of(self.fn).result)

    def splits(self, desired: int) -> list[Split]:
        return [Split("all")]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return (_IteratorReader if self.bounded else _LiveReader)(self.fn, position or 0)


class _IteratorReader(Reader[Any]):
    """Reads the iterator in the calling thread."""

    def __init__(self, fn: Callable[..., Iterable[Any]], count: int) -> None:
        self._fn = fn
        self._count = count
        self._iterator: Iterator[Any] | None = None

    def read(self, limit: int) -> Batch:
        if self._iterator is None:
            self._iterator = resumed(self._fn, self._count)
        elements = list(itertools.islice(self._iterator, limit))
        self._count += len(elements)
        return Batch(Block.of_elements(elements), end=len(elements) < limit)

    def position(self) -> Position:
        return self._count

    def close(self) -> None:
        close_iterator(self._iterator)


class _LiveReader(Reader[Any]):
    """Reads the iterator in a thread, at most `AHEAD` elements ahead."""

    def __init__(self, fn: Callable[..., Iterable[Any]], count: int) -> None:
        self._fn = fn
        self._count = count
        self._thread: threading.Thread | None = None
        self._ahead: deque[Any] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._ended = False
        self._error: BaseException | None = None

    def read(self, limit: int) -> Batch:
        if self._thread is None:
            # Only now: the process may have forked since the reader was made.
            self._thread = threading.Thread(
                target=self._iterate, args=(self._count,), name=f"tidegate-{name_of(self._fn)}", daemon=True
            )
            self._thread.start()
        with self._changed:
            elements = [self._ahead.popleft() for _ in range(min(limit, len(self._ahead)))]
            ended = self._ended and not self._ahead
            if ended and self._error is not None and not elements:
                raise self._error
            self._changed.notify()
        self._count += len(elements)
        return Batch(Block.of_elements(elements), end=ended and self._error is None, wait=WAIT)

    def position(self) -> Position:
        return self._count

    def close(self) -> None:
        """Make the thread end at its next element: an iterator that waits for one can't be interrupted."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _iterate(self, count: int) -> None:
        iterator = None
        try:
            iterator = resumed(self._fn, count)
            for element in iterator:
                with self._changed:
                    self._changed.wait_for(lambda: len(self._ahead) < AHEAD or self._closed)
                    if self._closed:
                        return
                    self._ahead.append(element)
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._ended = True
            close_iterator(iterator)


def check_factory(fn: Any, of: str, what: str) -> None:
    """Raise BuildError if `fn` is not a function that can be called without arguments or with one."""
    if not callable(fn):
        advice = (
            "; tg.Create(values) emits the elements of a collection" if isinstance(fn, list | tuple | range) else ""
        )
        raise BuildError(
            f"{of} needs a function that returns {what}, not {shorten(fn, 60)}: a run may have to start again, "
            f"and an iterator can be read only once{advice}"
        )
    if (parameters := _required_parameters(fn)) > 1:
        raise BuildError(
            f"{of}: {name_of(fn)} has {parameters} parameters. It is called without arguments, or, if it has one "
            "parameter, with the number of elements to skip"
        )


def resumed(fn: Callable[..., Iterable[Any]], count: int) -> Iterator[Any]:
    """The iterator of `fn`, after its first `count` elements."""
    if requires_skip(fn):
        return iter(fn(count))
    iterator = iter(fn())
    found = sum(1 for _ in itertools.islice(iterator, count))
    if found < count:
        raise too_short(fn, found, count)
    return iterator


def requires_skip(fn: Any) -> bool:
    """Whether a function is called with the number of elements to skip."""
    return _required_parameters(fn) > 0


def too_short(fn: Any, found: int, count: int) -> PositionLost:
    """The error for an iterable that ends before the position to resume at."""
    return PositionLost(
        f"{name_of(fn)} yielded {counted(found, 'element')}, but {count:,} had been read before: a run can only resume "
        "if the function returns the same elements each time"
    )


def close_iterator(iterator: Any) -> None:
    """Close an iterator that can be closed, such as a generator."""
    if (close := getattr(iterator, "close", None)) is not None:
        close()


def _required_parameters(fn: Any) -> int:
    """The number of arguments that a function requires."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # a built-in without a signature
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(1 for each in parameters if each.kind in positional and each.default is each.empty)

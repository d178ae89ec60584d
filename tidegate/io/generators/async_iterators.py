"""`FromAsyncIterator`: what an asynchronous iterator yields, as a live source."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack

from tidegate.io.generators.iterables import AHEAD, check_factory, requires_skip, too_short
from tidegate.sdk.connectors.sources import AsyncReader, Batch, Position, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.primitives import Read, ReadOptions
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.user_code.user_fn import name_of

T = TypeVar("T")


class FromAsyncIterator(PTransform[Pipeline, PCollection[T]]):
    """The elements of the asynchronous iterator that `fn` returns, in order. A `TimestampedValue` sets its element's
    timestamp.

    The iterator runs on an event loop beside the task, so it may wait for its next element. `fn` is called and resumed
    as that of `FromIterable`: it must yield the same elements in the same order each time; if it has a parameter, it is
    called with the number of elements to skip.

    Other keyword arguments are those of `tg.Read`. Raises BuildError if `fn` is not a function; PositionLost when
    resuming, if the iterator ends before the element to resume at.
    """

    def __init__(
        self,
        fn: Callable[[], AsyncIterable[T]] | Callable[[int], AsyncIterable[T]],
        *,
        name: str | None = None,
        **options: Unpack[ReadOptions],
    ) -> None:
        check_factory(fn, "FromAsyncIterator", "an asynchronous iterator")
        self.label = name
        self.read: Read[T] = Read(AsyncIteratorSource(fn), name="Read", **options)

    def expand(self, input: Pipeline) -> PCollection[T]:
        return input | self.read


@dataclass(frozen=True)
class AsyncIteratorSource(Source[Any]):
    """The only split is the iterator; a position is how many of its elements have been read."""

    fn: Callable[..., AsyncIterable[Any]]

    bounded = False
    forks_safely = False

    @property
    def name(self) -> str:
        return f"async iterator {name_of(self.fn)}"

    def splits(self, desired: int) -> list[Split]:
        return [Split("all")]

    def reader(self, split: Split, position: Position = None) -> AsyncReader[Any]:
        return _AsyncIteratorReader(self.fn, position or 0)


class _AsyncIteratorReader(AsyncReader[Any]):
    """A coroutine reads the iterator at most `AHEAD` elements ahead: a read that is cancelled loses none."""

    def __init__(self, fn: Callable[..., AsyncIterable[Any]], count: int) -> None:
        self._fn = fn
        self._count = count
        self._ahead: deque[Any] = deque()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    async def read(self, limit: int) -> Batch:
        if self._task is None:
            self._task = asyncio.ensure_future(self._iterate(self._count))
        async with self._changed:
            await self._changed.wait_for(lambda: self._ahead or self._ended)
            elements = [self._ahead.popleft() for _ in range(min(limit, len(self._ahead)))]
            self._changed.notify_all()
        if not elements:
            await self._task  # which has ended, perhaps with the author's error
        self._count += len(elements)
        return Batch(Block.of_elements(elements), end=not elements)

    def position(self) -> Position:
        return self._count

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _iterate(self, count: int) -> None:
        iterator: AsyncIterator[Any] | None = None
        found = 0
        try:
            skips = requires_skip(self._fn)
            iterator = aiter(self._fn(count) if skips else self._fn())
            async for element in iterator:
                if not skips and found < count:
                    found += 1
                    continue
                async with self._changed:
                    await self._changed.wait_for(lambda: len(self._ahead) < AHEAD)
                    self._ahead.append(element)
                    self._changed.notify_all()
            if not skips and found < count:
                raise too_short(self._fn, found, count)
        finally:
            if (close := getattr(iterator, "aclose", None)) is not None:
                await close()
            async with self._changed:
                self._ended = True
                self._changed.notify_all()

"""Runs `AsyncReader`s on the event loop of the process, and adapts them to `Reader`.

The adapter reads one batch ahead; its position is that of the last batch it has returned.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from tidegate.runners.engine.event_loop import acquire_loop, release_loop
from tidegate.sdk.connectors.sources import AsyncReader, Batch, Position, Reader
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import ReadError

_FIRST_WAIT: Final = 0.001
_LONGEST_WAIT: Final = 0.1
"""The seconds after which a reader without a batch is polled again if nothing wakes the engine; doubled each time."""
_CLOSE_TIMEOUT: Final = 30.0


class AsyncReaderAdapter(Reader[Any]):
    """An `AsyncReader` as a `Reader` that never blocks. Another thread calls `wake` when a batch has arrived."""

    def __init__(self, reader: AsyncReader[Any], position: Position, wake: Callable[[], None] | None = None) -> None:
        self._reader = reader
        self._position = position
        self._wake = wake
        self._loop = acquire_loop()
        self._next: Future[tuple[Batch, Position]] | None = None
        self._idle = False
        self._seconds = _FIRST_WAIT

    @property
    def ready(self) -> bool:
        """Whether a batch, or an error, has arrived."""
        return self._next is not None and self._next.done()

    def read(self, limit: int) -> Batch:
        if self._next is None:
            self._next = self._begin(limit)
        if not self._next.done():
            wait, self._seconds = self._seconds, min(2 * self._seconds, _LONGEST_WAIT)
            return Batch(Block.of([]), idle=self._idle, wait=wait)
        batch, self._position = self._next.result()
        self._seconds = _FIRST_WAIT
        self._idle = batch.idle
        self._next = None if batch.end else self._begin(limit)
        return batch

    def position(self) -> Position:
        return self._position

    def wait(self, seconds: float) -> None:
        """Wait for the next batch, but at most `seconds`."""
        if self._next is not None and not self._next.done():
            done = threading.Event()
            self._next.add_done_callback(lambda _: done.set())
            done.wait(seconds)

    def close(self) -> None:
        try:
            if self._next is not None:
                self._next.cancel()
            closing = asyncio.run_coroutine_threadsafe(self._reader.close(), self._loop)
            try:
                closing.result(_CLOSE_TIMEOUT)
            except TimeoutError:
                if closing.done():
                    raise
                raise ReadError(f"the reader's close has not returned within {_CLOSE_TIMEOUT:g} s") from None
        finally:
            release_loop()

    def _begin(self, limit: int) -> Future[tuple[Batch, Position]]:
        future = asyncio.run_coroutine_threadsafe(self._read(limit), self._loop)
        if self._wake is not None:
            wake = self._wake
            future.add_done_callback(lambda _: wake())
        return future

    async def _read(self, limit: int) -> tuple[Batch, Position]:
        self._reader.now = self.now
        batch = await self._reader.read(limit)
        return batch, self._reader.position()

"""Runs `AsyncReader`s on an event loop beside the engine, and adapts them to `Reader`.

One thread per process runs the event loop of all its readers. It is started by the process that reads, and ends with
the last reader, so a process that has none can be forked. The adapter reads one batch ahead; its position is that of
the last batch it has returned.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from tidegate.sdk.connectors.sources import AsyncReader, Batch, Position, Reader
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import ReadError

T = TypeVar("T")

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
        self._thread = _acquire()
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
            closing = self._thread.start(self._reader.close())
            try:
                closing.result(_CLOSE_TIMEOUT)
            except TimeoutError:
                if closing.done():
                    raise
                raise ReadError(f"the reader's close has not returned within {_CLOSE_TIMEOUT:g} s") from None
        finally:
            _release(self._thread)

    def _begin(self, limit: int) -> Future[tuple[Batch, Position]]:
        future = self._thread.start(self._read(limit))
        if self._wake is not None:
            wake = self._wake
            future.add_done_callback(lambda _: wake())
        return future

    async def _read(self, limit: int) -> tuple[Batch, Position]:
        self._reader.now = self.now
        batch = await self._reader.read(limit)
        return batch, self._reader.position()


class _LoopThread:
    """A thread that runs an event loop. `users`: how many adapters need it."""

    def __init__(self) -> None:
        self.users = 0
        self.process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="tidegate-async-readers", daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """Cancel all that runs, and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_TIMEOUT)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


_lock = threading.Lock()
_shared: list[_LoopThread] = []


def _acquire() -> _LoopThread:
    """The event loop's thread of this process; one that a parent process had before a fork does not count."""
    with _lock:
        if not _shared or _shared[0].process != os.getpid():
            _shared[:] = [_LoopThread()]
        _shared[0].users += 1
        return _shared[0]


def _release(thread: _LoopThread) -> None:
    with _lock:
        thread.users -= 1
        if thread.users or thread not in _shared:
            return
        _shared.remove(thread)
    thread.stop()

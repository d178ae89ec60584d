"""The event loop that calls and asynchronous readers of a process share, in a thread that exists while it is used.

It is started by the process that first uses it: a thread does not survive a fork. For a fork it can be suspended: the
loop stops between two callbacks, its thread ends, and another one continues it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class LoopThread:
    """A thread that runs an event loop. Its methods are called by one other thread."""

    def __init__(self) -> None:
        import asyncio

        self.loop = asyncio.new_event_loop()
        self.users = 0
        self._lock = threading.Lock()
        self._stopped = self._suspended = self._left = False
        """Whether the loop is to end; whether its thread is; and whether that has noticed the latter."""
        self._thread = self._start()

    def stop(self) -> None:
        """Cancel all that runs, and end the loop, which has no users any more."""
        with self._lock:
            self._stopped = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_PATIENCE)

    def suspend(self, patience: float) -> None:
        """End the thread, unless one of the author's functions keeps it busy for longer than `patience` (s)."""
        with self._lock:
            self._suspended = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        deadline = time.monotonic() + patience
        self._thread.join(patience)
        task = f"/proc/self/task/{self._thread.native_id}"
        while not self._thread.is_alive() and os.path.exists(task) and time.monotonic() < deadline:
            time.sleep(0)  # the system ends a thread a little later than Python does

    def resume(self) -> None:
        """Continue after `suspend`."""
        with self._lock:
            self._suspended = False
            left, self._left = self._left, False
        if left:
            self._thread.join()
            self._thread = self._start()

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name="tidegate-event-loop", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        import asyncio

        asyncio.set_event_loop(self.loop)
        while True:
            self.loop.run_forever()
            with self._lock:
                if self._stopped:
                    break
                if self._suspended:
                    self._left = True
                    return
        try:
            if tasks := asyncio.all_tasks(self.loop):
                for task in tasks:
                    task.cancel()
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=_CANCELLING))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()


_lock: Final = threading.Lock()
_threads: Final[dict[int, LoopThread]] = {}
"""The thread of this process, by its id: a forked child inherits the entry of its parent."""
_PATIENCE: Final = 5.0
"""How long (s) to wait for a loop that one of the author's functions blocks."""
_CANCELLING: Final = 1.0
"""How long (s) a cancelled task of the author's may take to end."""
_BRIEFLY: Final = 0.02
"""How long (s) a checkpoint waits for it: then it is written without a fork."""


def acquire_loop() -> AbstractEventLoop:
    """The event loop of this process. The caller releases it."""
    with _lock:
        thread = _threads.get(os.getpid())
        if thread is None:
            thread = _threads[os.getpid()] = LoopThread()
        thread.users += 1
        return thread.loop


def release_loop() -> None:
    """Stop using the loop; the last user ends its thread."""
    with _lock:
        thread = _threads[os.getpid()]
        thread.users -= 1
        if not thread.users:
            del _threads[os.getpid()]
            thread.stop()


@contextmanager
def suspended_loop(patience: float = _BRIEFLY) -> Iterator[None]:
    """A context in which the loop's thread does not exist, if it can be ended within `patience` (s), so that the
    process may fork."""
    thread = _threads.get(os.getpid())
    if thread is None:
        yield
        return
    thread.suspend(patience)
    try:
        yield
    finally:
        thread.resume()

"""The event loop that all operators of a process share: in a thread that exists only while one of them uses it.

It is started by the first call, in the process that makes the call: a thread does not survive a fork.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Final


class LoopThread:
    """A thread that runs an event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.users = 0
        self._thread = threading.Thread(target=self._run, name="tidegate-calls", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, which no operator uses any more."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        loop = self.loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


_lock: Final = threading.Lock()
_threads: Final[dict[int, LoopThread]] = {}
"""The thread of this process, by its id: a forked child inherits the entry of its parent."""
_PATIENCE: Final = 5.0
"""How long (s) to wait for a loop that one of the author's functions blocks."""


def acquire_loop() -> asyncio.AbstractEventLoop:
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

"""The two ends of calls: the operator's thread submits them and takes what the event loop's thread has reported."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidegate.runners.engine.asynchronous.outcomes import Item
from tidegate.sdk.portable.async_calls import AsyncCalls

if TYPE_CHECKING:
    import asyncio

    from tidegate.runners.engine.asynchronous.call_runner import CallRunner


class Caller(Protocol):
    """Makes the calls of one operator, which alone uses it."""

    @property
    def has_items(self) -> bool:
        """Whether `take` would return anything."""

    def submit(self, calls: list[tuple[int, Any]]) -> None:
        """Begin calls, each with its id and the argument of the function."""

    def take(self) -> list[Item]:
        """What has been reported since the last call."""

    def close(self) -> None:
        """Cancel the calls in flight, and run the author's `teardown`."""


class LoopCaller:
    """Makes calls on the event loop of this process. `wake` is called by the loop's thread when there is an item."""

    def __init__(self, fn: Any, calls: AsyncCalls, label: str, wake: Callable[[], None]) -> None:
        self._fn = fn
        self._calls = calls
        self._label = label
        self._wake = wake
        self._items: deque[Item] = deque()
        self._woken = False
        """Whether `wake` has been called since the last `take`."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: CallRunner | None = None

    @property
    def has_items(self) -> bool:
        return bool(self._items)

    def submit(self, calls: list[tuple[int, Any]]) -> None:
        if self._runner is None:
            self._start()
        assert self._loop is not None
        assert self._runner is not None
        self._loop.call_soon_threadsafe(self._runner.begin, calls)

    def take(self) -> list[Item]:
        self._woken = False  # before the items are taken, so that a later one wakes again
        taken = []
        while self._items:
            taken.append(self._items.popleft())
        return taken

    def close(self) -> None:
        if self._loop is None or self._runner is None:
            return
        import asyncio

        from tidegate.runners.engine.event_loop import release_loop

        closing = asyncio.run_coroutine_threadsafe(self._runner.close(), self._loop)
        self._loop = self._runner = None
        try:
            closing.result(_PATIENCE)
        except TimeoutError:
            closing.cancel()  # a call ignores its cancellation, and ends with the process
        finally:
            release_loop()

    def _start(self) -> None:
        from tidegate.runners.engine.asynchronous.call_runner import CallRunner
        from tidegate.runners.engine.asynchronous.daemon_threads import DaemonThreads
        from tidegate.runners.engine.event_loop import acquire_loop

        threads = None if self._calls.awaits else DaemonThreads(self._calls.capacity, "tidegate-call")
        self._runner = CallRunner(self._fn, self._calls, self._label, threads, self._report)
        self._loop = acquire_loop()

    def _report(self, item: Item) -> None:
        self._items.append(item)
        if not self._woken:
            self._woken = True
            self._wake()


_PATIENCE: Final = 10.0
"""How long (s) to wait for the cancellation of calls and the author's `teardown`."""

"""A background thread for work that waits for a disk or a network, so that a process's event loop does not.

The thread exists only while there is work, because a process with several threads can't be forked safely: before a fork
the loop stops it between two steps (`halt`), and starts it again afterwards (`resume`).

>>> def upload():
...     yield  # between two steps
...     return "uploaded"
>>> outcome(upload())
'uploaded'
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Steps: TypeAlias = Generator[None, None, T]
"""Work in steps, each of which may take long. Its result is the generator's return value. Abandoned work is closed
between two steps."""


class PendingWork(Protocol[T_co]):
    """Work that has been begun."""

    def poll(self) -> T_co | None:
        """The result, None until the work is done. Raises the work's error, if it failed. Never waits."""

    def abandon(self) -> None:
        """Abandon the work: the current step is its last. Work that has not begun never does."""


class Work(Protocol):
    """Does work in the background, in order."""

    def begin(self, steps: Steps[T]) -> PendingWork[T]:
        """Do this work after all earlier work. OSError if no thread can be started."""


def outcome(steps: Steps[T]) -> T:
    """Do the work at once, in this thread; returns its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


class BackgroundWork(Generic[T]):
    """A piece of work in the queue of a background thread. `done`: finished, failed or abandoned."""

    __slots__ = ("_background", "_error", "_on_end", "_result", "_steps", "abandoned", "done")

    def __init__(self, steps: Steps[T], background: Background, on_end: Callable[[], None] | None) -> None:
        self._steps = steps
        self._background = background
        self._on_end = on_end
        self._result: T | None = None
        self._error: BaseException | None = None
        self.abandoned = False
        self.done = False

    def poll(self) -> T | None:
        """The result, None until the work is done. Raises the work's error, if it failed."""
        if self._error is not None:
            raise self._error
        return self._result

    def abandon(self) -> None:
        """Abandon the work: the current step is its last. Work that has not begun never does."""
        self._background.drop(self)

    def step(self) -> bool:
        """Do the next step; returns whether it was the last."""
        try:
            if self.abandoned:
                self._steps.close()
            else:
                next(self._steps)
                return False
        except StopIteration as end:
            self._result = end.value
        except BaseException as error:  # raised by `poll`
            self._error = error
        if self._on_end is not None:
            self._on_end()
        self.done = True
        return True


class Background:
    """A queue of work, done in order by a thread that calls `wake` after each piece. Its methods may only be called by
    the thread that begins the work."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._queue: deque[BackgroundWork[Any]] = deque()
        self._thread: threading.Thread | None = None
        self._running = False
        self._halted = False

    def begin(self, steps: Steps[T], on_end: Callable[[], None] | None = None) -> BackgroundWork[T]:
        """Do this work after all earlier work. Either thread calls `on_end` when it is done or abandoned.

        OSError if no thread can be started.
        """
        work = BackgroundWork(steps, self, on_end)
        with self._lock:
            self._queue.append(work)
            try:
                self._start()
            except RuntimeError as error:
                self._queue.remove(work)
                if on_end is not None:
                    on_end()
                raise OSError(f"no thread can be started to store files: {error}") from error
        return work

    def drop(self, work: BackgroundWork[Any]) -> None:
        """Abandon a piece of work."""
        with self._lock:
            if work not in self._queue or work.abandoned:
                return
            work.abandoned = True
            if self._running and work is self._queue[0]:
                return  # the thread closes it after the current step
            self._queue.remove(work)
        work.step()

    def halt(self) -> bool:
        """Stop the thread after its current step; returns whether it has stopped, so that this process may fork."""
        with self._lock:
            self._halted = True
            if self._running:
                return False
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()  # it has left its loop
        return True

    def resume(self) -> None:
        """Continue after a halt."""
        with self._lock:
            self._halted = False
            self._start()

    def join(self, timeout: float) -> None:
        """Wait until all work is done, for at most `timeout` seconds."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _start(self) -> None:
        """Start the thread if it is needed. The caller holds the lock."""
        if self._queue and not self._running and not self._halted:
            thread = threading.Thread(target=self._work, name="tidegate-background", daemon=True)
            thread.start()
            self._thread, self._running = thread, True

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._halted or not self._queue:
                    self._running = False
                    break
                work = self._queue[0]
            if work.step():
                with self._lock:
                    self._queue.popleft()
                self._wake()
        self._wake()

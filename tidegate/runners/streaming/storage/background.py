"""Work that waits for a disk or a network, done beside a process's loop: by one thread, one piece after another.

The thread exists only while there is something to do, because a process with several threads can't be forked safely:
whoever is about to fork stops it between two steps (`halt`), and lets it go on afterwards (`resume`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Work in steps, each of which may take long. Its result is what the generator returns. Work that is given up is closed
between two steps."""


def outcome(steps: Steps[T]) -> T:
    """Do the work here and now; its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


class BackgroundWork(Generic[T]):
    """A piece of work that has been begun."""

    __slots__ = ("_background", "_error", "_over", "_result", "_steps", "abandoned", "done")

    def __init__(self, steps: Steps[T], background: Background, over: Callable[[], None] | None) -> None:
        self._steps = steps
        self._background = background
        self._over = over
        self._result: T | None = None
        self._error: BaseException | None = None
        self.abandoned = False
        self.done = False

    def poll(self) -> T | None:
        """Its result, None as long as it is not done; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._result

    def abandon(self) -> None:
        """Nobody wants it any more: its present step is its last, and if it has yet to begin, it never does."""
        self._background.drop(self)

    def step(self) -> bool:
        """Do the next step; whether that was the last."""
        try:
            if self.abandoned:
                self._steps.close()
            else:
                next(self._steps)
                return False
        except StopIteration as end:
            self._result = end.value
        except BaseException as error:  # for whoever asks what came of it
            self._error = error
        if self._over is not None:
            self._over()
        self.done = True
        return True


class Background:
    """Pieces of work, in order. Only the thread that begins them may call this; the one that does them calls `wake`
    when there is news."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._queue: deque[BackgroundWork[Any]] = deque()
        self._thread: threading.Thread | None = None
        self._running = False
        self._halted = False

    def begin(self, steps: Steps[T], over: Callable[[], None] | None = None) -> BackgroundWork[T]:
        """Do this after everything that was begun before. Some thread calls `over` once it is done or given up.

        OSError if no thread can be started.
        """
        doing = BackgroundWork(steps, self, over)
        with self._lock:
            self._queue.append(doing)
            try:
                self._go_on()
            except RuntimeError as error:
                self._queue.remove(doing)
                if over is not None:
                    over()
                raise OSError(f"there is no thread for what is to be stored: {error}") from error
        return doing

    def drop(self, doing: BackgroundWork[Any]) -> None:
        """Give up a piece of work."""
        with self._lock:
            if doing not in self._queue or doing.abandoned:
                return
            doing.abandoned = True
            if self._running and doing is self._queue[0]:
                return  # the thread hears of it after the step it is at
            self._queue.remove(doing)
        doing.step()

    def halt(self) -> bool:
        """Stop the thread after its present step; whether it has stopped, so that this process may be forked."""
        with self._lock:
            self._halted = True
            if self._running:
                return False
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()  # it has left its loop
        return True

    def resume(self) -> None:
        """Go on after a halt."""
        with self._lock:
            self._halted = False
            self._go_on()

    def join(self, patience: float) -> None:
        """Wait until everything is done, for at most `patience` seconds."""
        if self._thread is not None:
            self._thread.join(patience)

    def _go_on(self) -> None:
        """Start the thread if it is needed; the lock is held."""
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
                doing = self._queue[0]
            if doing.step():
                with self._lock:
                    self._queue.popleft()
                self._wake()
        self._wake()

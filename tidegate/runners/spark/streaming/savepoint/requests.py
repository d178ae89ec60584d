"""Requests for savepoints, which other threads make and the query serves between two batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.sdk.errors import RunError


@dataclass(slots=True)
class _Request:
    directory: str
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None


class SavepointRequests:
    """The requests of one query. `at_stop`: where the author's options ask for one if the input has not ended;
    `at_end`: where one is asked for in any case."""

    def __init__(self, at_stop: str | None) -> None:
        self.at_end: str | None = None
        self._at_stop = at_stop
        self._waiting: deque[_Request] = deque()
        self._closed = False
        self._lock = threading.Lock()

    @property
    def waiting(self) -> bool:
        """Whether there are requests to be served."""
        return bool(self._waiting)

    def take(self, directory: str) -> Exception | None:
        """Ask for a savepoint, and wait for it. Returns the error if it could not be taken."""
        request = _Request(directory)
        with self._lock:
            if self._closed:
                return RunError(_TOO_LATE)
            self._waiting.append(request)
        request.done.wait()
        return request.error

    def serve(self, take: Callable[[str], None]) -> bool:
        """Take the savepoints that are asked for, by `take`, which raises the error of one that fails. Returns whether
        there were any."""
        served = self.waiting
        while self._waiting:
            request = self._waiting[0]
            try:
                take(request.directory)
            except Exception as error:
                request.error = error
            self._waiting.popleft()
            request.done.set()
        return served

    def last(self, *, ended: bool) -> str | None:
        """Where to take a savepoint at the end of the query, if anywhere. `ended`: all input has ended."""
        return self.at_end or (None if ended else self._at_stop)

    def close(self) -> None:
        """The query is over: requests that have not been served fail."""
        with self._lock:
            self._closed = True
        for request in self._waiting:
            request.error = RunError(_TOO_LATE)
            request.done.set()
        self._waiting.clear()


_TOO_LATE = "the run ended before it was complete"

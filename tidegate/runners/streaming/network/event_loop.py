"""The event loop of a process: it waits for sockets, sends what links have queued, and calls handlers.

Every process of a job and of a session uses it, so that all treat a closed connection alike:

- Before each wait, the loop sends what the links have queued. A socket that takes no more is watched for writing, too.
- A handler is called when its source is readable. A link's handler is also called when the other end is gone, even if
  sending has revealed that: `Link.receive` still yields the messages that arrived before.
- When the handler of a closed link returns, the loop stops watching the link. Its owner closes the socket.
- A handler is not called for a source that another handler of the same round has unregistered.

>>> from tidegate.runners.streaming.network.framing import CONTROL
>>> link, peer = (Link(end) for end in pair())
>>> loop = EventLoop()
>>> loop.register(link, lambda: print([bytes(body) for _, body, _ in link.receive()]))
>>> loop.register(peer, lambda: None)
>>> peer.post(CONTROL, [b"hello"])
>>> loop.poll(timeout=None)
[b'hello']
>>> peer.close()
>>> link.post(CONTROL, [b"nobody receives this"])
>>> loop.poll(timeout=None)
[]
>>> link.closed
True
>>> link.close()
>>> loop.close()
"""

from __future__ import annotations

import contextlib
import selectors
import signal
from collections.abc import Callable
from typing import Final, Protocol

from tidegate.runners.streaming.network.framing import Link, pair

_READ: Final = selectors.EVENT_READ
_READ_AND_WRITE: Final = selectors.EVENT_READ | selectors.EVENT_WRITE


class HasFileno(Protocol):
    """A socket, or anything else with a descriptor."""

    def fileno(self) -> int: ...


class EventLoop:
    """Calls a handler for each readable source, and `on_wake` after a `wake` or a signal; one thread runs it."""

    def __init__(self, on_wake: Callable[[], None] = lambda: None) -> None:
        self._on_wake = on_wake
        self._selector = selectors.DefaultSelector()
        self._handlers: dict[object, Callable[[], None]] = {}
        self._links: dict[Link, int] = {}
        self._woken, self._waker = pair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self.register(self._woken, self._handle_wake)

    def register(self, source: HasFileno, handle: Callable[[], None]) -> None:
        """Watch a source. Its handler must read at least a part of what has arrived."""
        self._selector.register(source, _READ)
        self._handlers[source] = handle
        if isinstance(source, Link):
            self._links[source] = _READ

    def unregister(self, source: HasFileno) -> None:
        """Stop watching a source, closed or not. No effect if it is not watched."""
        if self._handlers.pop(source, None) is not None:
            self._selector.unregister(source)
            if isinstance(source, Link):
                del self._links[source]

    def poll(self, timeout: float | None) -> None:
        """One round: send, wait for at most `timeout` seconds, and call handlers."""
        closed = self._send()
        wait = 0.0 if closed else timeout
        readable = [key.fileobj for key, events in self._selector.select(wait) if events & _READ]
        for source in (*closed, *readable):
            handle = self._handlers.get(source)
            if handle is not None:
                handle()
                if isinstance(source, Link) and source.closed:
                    self.unregister(source)

    def _send(self) -> list[Link]:
        """Send what the sockets take now; returns the links whose other end is gone."""
        closed = []
        for link, watched in self._links.items():
            if link.waiting:
                link.push()
            if link.closed:
                closed.append(link)
                continue
            events = _READ_AND_WRITE if link.waiting else _READ
            if events != watched:
                self._selector.modify(link, events)
                self._links[link] = events
        return closed

    def wake(self) -> None:
        """End the current wait, or the next; any thread may call this."""
        with contextlib.suppress(OSError):  # the buffer is full, so the loop wakes anyway; or the loop is closed
            self._waker.send(b"x")

    def wake_on_signal(self, number: int) -> None:
        """Have a signal wake the loop instead of what it does by default."""
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(number, lambda *_: None)

    def _handle_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        self._on_wake()

    def close(self) -> None:
        """Release the loop's own descriptors; also in a forked child, which must not change what the parent watches."""
        self._selector.close()
        self._woken.close()
        self._waker.close()

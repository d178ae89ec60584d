"""A wake-up call for a loop that waits in a selector."""

from __future__ import annotations

from tidegate.runners.streaming.network.framing import pair


class Waker:
    """Wakes a loop that waits with a selector, from another thread or a signal. A selector takes it as it is."""

    def __init__(self) -> None:
        self._woken, self._waker = pair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)

    @property
    def signals(self) -> int:
        """The descriptor for `signal.set_wakeup_fd`."""
        return self._waker.fileno()

    def fileno(self) -> int:
        """What becomes readable."""
        return self._woken.fileno()

    def wake(self) -> None:
        """Wake it. Any thread may."""
        try:
            self._waker.send(b"x")
        except OSError:  # full: the sleeper wakes anyway; closed: nobody sleeps any more
            pass

    def heard(self) -> None:
        """It is awake."""
        try:
            while self._woken.recv(4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Nobody sleeps any more."""
        self._woken.close()
        self._waker.close()

"""A server outside the pipeline that answers calls when the test releases them, and records them."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from pathlib import Path


class CallServer:
    """Answers each line `n` with `n * 2`, once it is `released`. Records the process and number of each call."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "calls")
        self.asked: list[tuple[int, int]] = []
        """The id of the process and the number of each call, in the order in which they arrived."""
        self.max_in_flight = 0
        """The greatest number of calls of one process that waited at the same time."""
        self._waiting: dict[int, int] = {}
        self._changed = threading.Condition()
        self._released = False
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.path)
        self._socket.listen(256)
        threading.Thread(target=self._accept, daemon=True).start()

    def release(self) -> None:
        """Answer the waiting calls, and later ones immediately."""
        with self._changed:
            self._released = True
            self._changed.notify_all()

    def hold(self) -> None:
        """Make later calls wait."""
        with self._changed:
            self._released = False

    def calls(self) -> list[tuple[int, int]]:
        """The calls so far."""
        with self._changed:
            return list(self.asked)

    def close(self) -> None:
        self.release()
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("r") as lines, suppress(OSError):  # the caller may have been killed
            if not (line := lines.readline()):
                return
            pid, number = map(int, line.split())
            with self._changed:
                self.asked.append((pid, number))
                self._waiting[pid] = self._waiting.get(pid, 0) + 1
                self.max_in_flight = max(self.max_in_flight, self._waiting[pid])
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._released)
                self._waiting[pid] -= 1
            connection.sendall(f"{2 * number}\n".encode())


async def ask(path: str, pid: int, number: int) -> int:
    """Ask the server."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(f"{pid} {number}\n".encode())
        return int(await reader.readline())
    finally:
        writer.close()

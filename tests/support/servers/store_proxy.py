"""A proxy in front of an object store, which a test makes unreachable."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import Literal

Fault = Literal["refuses", "hangs", "answers 503"]


class StoreProxy:
    """Passes connections on to a port of this machine, unless there is a fault."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._fault: Fault | None = None
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def fail(self, fault: Fault) -> None:
        """Break all connections; new ones meet the fault."""
        self._fault = fault
        if fault == "refuses":
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        self._break_all()

    def recover(self) -> None:
        """Pass new connections on again."""
        fault, self._fault = self._fault, None
        if fault == "refuses":
            self._listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        self._break_all()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._break_all()

    def _break_all(self) -> None:
        with self._lock:
            for each in self._connections:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            with self._lock:
                self._connections.add(connection)
            try:
                match self._fault:
                    case "hangs":
                        while connection.recv(1 << 16):
                            pass
                    case "answers 503":
                        connection.recv(1 << 16)
                        connection.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    case _:
                        with socket.create_connection(("127.0.0.1", self._target)) as target:
                            _forward(connection, target)
            finally:
                with self._lock:
                    self._connections.discard(connection)


def _forward(one: socket.socket, other: socket.socket) -> None:
    """Pass data on in both directions until one side closes."""
    ends = {one: other, other: one}
    while True:
        for ready in select.select(list(ends), [], [])[0]:
            data = ready.recv(1 << 16)
            if not data:
                return
            ends[ready].sendall(data)

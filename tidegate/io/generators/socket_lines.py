"""`ReadFromSocket`: lines that a server sends over TCP."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from dataclasses import dataclass
from typing import Any, Final, Unpack

from tidegate.io.byte_streams import PIECE, DecodeErrors
from tidegate.io.generators.lines import MAX_LINE_BYTES, LineBuffer, check_lines
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import BuildError, ReadError
from tidegate.sdk.metrics import ENGINE, Metrics
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.primitives import Read, ReadOptions
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.time import SECOND, Duration, DurationLike

_WAIT: Final = 0.02
"""Seconds until a connection on which nothing has arrived is read again."""


class ReadFromSocket(PTransform[Pipeline, PCollection[str]]):
    """The lines that a server sends over a TCP connection to `host` and `port`, until it closes the connection.

    **At most once**: a server doesn't send a line again. Lines that had been received but not processed when a run
    failed or was stopped, and lines that are sent while no run is connected, are lost. To prevent this, let the
    server write to a file (`TailFile`) or to a log that can be read again.

    - `reconnect`: how long to wait before connecting again after the connection could not be made, broke or was closed.
      A line that was cut off is dropped, and counted as `partial_lines`; connections after the first are counted as
      `reconnects`. None: a connection that can't be made or breaks is an error, and one that is closed ends the source.
    - `connect_timeout`: how long a connection may take to be made.
    - `encoding`, `errors`: as in `ReadFromText`, for encodings in which a line ends with the byte 10, as in ASCII.
    - `max_line_bytes`: a line without an end within so many bytes is an error.

    Other keyword arguments are those of `tg.Read`. Raises BuildError for arguments that make no address; ReadError when
    running.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        reconnect: DurationLike | None = None,
        connect_timeout: DurationLike = 10,
        encoding: str = "utf-8",
        errors: DecodeErrors = "strict",
        max_line_bytes: int = MAX_LINE_BYTES,
        name: str | None = None,
        **options: Unpack[ReadOptions],
    ) -> None:
        if not isinstance(host, str) or not host:
            raise BuildError(f"ReadFromSocket: host is a name or an address, not {host!r}")
        if type(port) is not int or not 0 < port < 1 << 16:
            raise BuildError(f"ReadFromSocket: port is a number from 1 to 65535, not {port!r}")
        for what, duration in (("reconnect", reconnect), ("connect_timeout", connect_timeout)):
            if duration is not None and Duration.of(duration).micros <= 0:
                raise BuildError(f"ReadFromSocket: {what} must be positive, but is {duration!r}")
        self.label = name
        source = SocketSource(
            host,
            port,
            None if reconnect is None else Duration.of(reconnect).micros / SECOND,
            Duration.of(connect_timeout).micros / SECOND,
            encoding,
            errors,
            max_line_bytes,
        )
        self.read: Read[str] = Read(source, name="Read", **options)

    def expand(self, input: Pipeline) -> PCollection[str]:
        return input | self.read


@dataclass(frozen=True)
class SocketSource(Source[str]):
    """See `ReadFromSocket` for what the fields mean; durations are in seconds."""

    host: str
    port: int
    reconnect: float | None = None
    connect_timeout: float = 10.0
    encoding: str = "utf-8"
    errors: DecodeErrors = "strict"
    max_line_bytes: int = MAX_LINE_BYTES

    bounded = False
    replayable = False

    @property
    def name(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"socket {host}:{self.port}"

    @property
    def element_type(self) -> type[str]:
        return str

    def check(self) -> None:
        check_lines("ReadFromSocket", self.encoding, self.errors, self.max_line_bytes)

    def splits(self, desired: int) -> list[Split]:
        return [Split("all")]

    def reader(self, split: Split, position: Position = None) -> Reader[str]:
        return _SocketReader(self)


class _SocketReader(Reader[str]):
    """Connects at the first `read`. There is no position: nothing can be read again."""

    def __init__(self, source: SocketSource) -> None:
        self._source = source
        self._connection: _Connection | None = None
        self._buffer = self._new_buffer()
        self._retry_at = 0.0
        self._has_connected = False
        self._connections = 0

    def read(self, limit: int) -> Batch:
        if self._buffer.has_line:
            return Batch(Block.of(self._buffer.take(limit)))
        if (wait := self._retry_at - time.monotonic()) > 0:
            return Batch(Block.of([]), wait=wait)
        try:
            data = self._receive()
        except OSError as error:
            return self._broken(error)
        if data is None:
            return Batch(Block.of([]), wait=_WAIT)
        if not data:
            return self._closed()
        self._buffer.add(data)
        return Batch(Block.of(self._buffer.take(limit)))

    def position(self) -> Position:
        return None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _receive(self) -> bytes | None:
        """The bytes that have arrived; None if there are none, b"" if the server has closed the connection."""
        if self._connection is None:
            self._connection = _Connection(self._source)
        if not self._connection.is_open():
            return None
        if not self._has_connected:
            self._has_connected = True
            self._connections += 1
            if self._connections > 1:
                Metrics.counter(ENGINE, "reconnects").inc()
        return self._connection.receive()

    def _closed(self) -> Batch:
        """Handle the end of the connection, which the server has closed."""
        if self._source.reconnect is None:
            self.close()
            return Batch(Block.of(self._buffer.take_rest()), end=True)
        self._wait_to_reconnect("the server closed the connection")
        return Batch(Block.of([]), wait=self._source.reconnect)

    def _broken(self, error: OSError) -> Batch:
        """Handle a connection that could not be made, or was lost."""
        what = f"{'the connection was lost' if self._has_connected else 'could not connect'}: {_describe(error)}"
        if self._source.reconnect is None:
            advice = "" if self._has_connected else ". To wait for the server, say reconnect=1"
            raise ReadError(f"{self._source.name}: {what}{advice}") from error
        self._wait_to_reconnect(what)
        return Batch(Block.of([]), wait=self._source.reconnect)

    def _wait_to_reconnect(self, what: str) -> None:
        assert self._source.reconnect is not None
        import logging

        logging.getLogger("tidegate").warning(
            "%s: %s; connecting again in %g s", self._source.name, what, self._source.reconnect
        )
        if len(self._buffer):
            Metrics.counter(ENGINE, "partial_lines").inc()
        self.close()
        self._buffer = self._new_buffer()
        self._has_connected = False
        self._retry_at = time.monotonic() + self._source.reconnect

    def _new_buffer(self) -> LineBuffer:
        source = self._source
        return LineBuffer(source.encoding, source.errors, source.max_line_bytes, source.name)


class _Connection:
    """A connection that is made and read without blocking, except for the lookup of the host's addresses."""

    def __init__(self, source: SocketSource) -> None:
        self._addresses = socket.getaddrinfo(source.host, source.port, type=socket.SOCK_STREAM)
        self._timeout = source.connect_timeout
        self._socket: socket.socket | None = None
        self._is_open = False
        self._deadline = 0.0

    def is_open(self) -> bool:
        """Whether the connection has been made; False while it is being made. OSError if no address accepts it."""
        if self._is_open:
            return True
        if self._socket is None:
            self._begin()
            return False
        if self._is_settled(self._socket):
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._is_open = not code
        elif time.monotonic() >= self._deadline:
            code = errno.ETIMEDOUT
        else:
            return False
        if code:
            self.close()
            if not self._addresses:
                raise OSError(code, os.strerror(code))
        return self._is_open

    def receive(self) -> bytes | None:
        """The bytes that have arrived; None if there are none, b"" if the server has closed the connection."""
        assert self._socket is not None
        try:
            return self._socket.recv(PIECE)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Close the connection, or stop connecting."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _begin(self) -> None:
        """Begin to connect to the next address that does not refuse immediately."""
        while True:
            family, kind, protocol, _, address = self._addresses.pop(0)
            self._socket = socket.socket(family, kind, protocol)
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._deadline = time.monotonic() + self._timeout
            code = self._socket.connect_ex(address)
            if code in (0, errno.EINPROGRESS):
                return
            self.close()
            if not self._addresses:
                raise OSError(code, os.strerror(code))

    @staticmethod
    def _is_settled(connecting: socket.socket) -> bool:
        """Whether an attempt to connect has succeeded or failed."""
        poll = select.poll()
        poll.register(connecting, select.POLLOUT)
        return bool(poll.poll(0))


def _describe(error: OSError) -> Any:
    return error.strerror or str(error)

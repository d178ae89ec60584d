"""Framed messages over a non-blocking socket: sending queues a message, receiving yields the messages read so far.

A frame is `kind, u8 · length, u32 · body`. A long message is cut into pieces, without being copied: a frame announces
its length, and the pieces follow. Short urgent messages (credit) are sent between two pieces, so that a large block
does not delay other channels.

The receiver validates its input: a frame that no `Link` sends is a `WireError`, the length of a message is bounded, and
memory for a long one is allocated as its bytes arrive, not when its length is announced.

>>> link, peer = (Link(end) for end in pair())
>>> link.post(CONTROL, [b"one, ", b"in two parts"])
>>> link.post(CREDIT, [b"urgent"], urgent=True)
>>> link.push()
>>> [(kind == CREDIT, bytes(body)) for kind, body, _ in peer.receive()]
[(True, b'urgent'), (False, b'one, in two parts')]
>>> link.close()
>>> list(peer.receive()), peer.closed
([], True)
>>> peer.close()
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Any, Final, TypeAlias

from tidegate.sdk.errors import RunError

Buffer: TypeAlias = bytes | bytearray | memoryview

CONTROL: Final = 1
"""A pickled message of a protocol: coordinator and worker, client and job, client and session."""
FRAME: Final = 2
"""The name of a channel, and items that are sent through it (see `codec`)."""
CREDIT: Final = 3
"""How many more blocks may be sent through a channel."""

PIECE: Final = 1 << 20
"""Bytes of a piece. A message of at most `_MAX_FRAME` bytes is one frame."""
LONGEST: Final = 1 << 36
"""Bytes of the longest message that a link accepts by default."""

_HEAD: Final = struct.Struct("<B3xI")
_LONG_SIZE: Final = struct.Struct("<Q")
_LONG: Final = 0x80
"""Added to the kind of a long message in the frame that announces it."""
_PIECE_KIND: Final = 0x7F
"""The kind of a piece."""
_MAX_FRAME: Final = 128 << 10
_BUFFER_SIZE: Final = 256 << 10
_FIRST_ALLOCATION: Final = 16 << 20
"""Bytes that are allocated for a long message when it is announced; doubled whenever they are full."""
_MAX_READS: Final = 8
"""How often `receive` reads the socket before other sockets have their turn."""
_MAX_JOINED: Final = 4 << 10
"""Messages up to this many bytes are joined into one buffer; the parts of longer ones are not copied."""
_BATCH_BUFFERS: Final = 64
_BATCH_BYTES: Final = 4 << 20


_KINDS: Final = frozenset({CONTROL, FRAME, CREDIT})


class WireError(RunError):
    """Invalid data has arrived: a frame out of order, a message of an unknown kind or class."""


class Link:
    """One end of a connection. It is `closed` once the other end is gone; messages still in the queue are dropped.

    `longest`: the length limit of received messages, in bytes.
    """

    def __init__(self, sock: socket.socket, *, longest: int = LONGEST) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._longest = longest
        self.closed = False
        self._frames: deque[list[Buffer]] = deque()
        self._urgent: deque[Buffer] = deque()
        self._batch: list[Buffer] = []
        self.unsent = 0
        """Bytes in the queue."""
        self._buffer = bytearray(_BUFFER_SIZE)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._long_kind = 0
        self._long = memoryview(b"")
        self._long_size = 0
        self._long_end = 0
        self._piece = 0

    def fileno(self) -> int:
        """For selectors; -1 once the link is closed from this side."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close this end."""
        self.drop()
        self._sock.close()

    def drop(self) -> None:
        """Stop sending, and mark the link as closed. The socket stays open until `close`."""
        self.closed = True
        self._batch.clear()
        self._frames.clear()
        self._urgent.clear()
        self.unsent = 0

    # -- sending

    @property
    def waiting(self) -> bool:
        """Whether messages are in the queue."""
        return bool(self._batch or self._frames or self._urgent)

    def post(self, kind: int, parts: Sequence[Buffer], *, urgent: bool = False) -> None:
        """Queue a message that consists of these parts; `push` sends it. The parts must not change any more.

        An urgent message, which must be short, overtakes the others; those stay in order.
        """
        if self.closed:
            return
        size = sum(memoryview(part).nbytes for part in parts)
        if size <= _MAX_JOINED:
            frame = b"".join((_HEAD.pack(kind, size), *parts))
            self.unsent += len(frame)
            if urgent:
                self._urgent.append(frame)
            else:
                self._frames.append([frame])
        elif size <= _MAX_FRAME:
            self.unsent += _HEAD.size + size
            self._frames.append([_HEAD.pack(kind, size), *parts])
        else:
            self.unsent += _HEAD.size * (1 - -size // PIECE) + _LONG_SIZE.size + size
            self._frames.append([_HEAD.pack(kind | _LONG, _LONG_SIZE.size) + _LONG_SIZE.pack(size)])
            self._frames.extend(_pieces(parts))

    def push(self) -> None:
        """Send as much of the queue as the socket takes now."""
        while not self.closed:
            if not self._batch:
                self._fill()
                if not self._batch:
                    return
            try:
                sent = self._sock.sendmsg(self._batch)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # the other end is gone; its owner learns why from the end of the process
                self.drop()
                return
            self._remove_sent(sent)

    def wait_until_sent(self) -> None:
        """Send the whole queue, blocking until it is sent or the other end is gone."""
        self.push()
        while self.waiting and not self.closed:
            self._poll(select.POLLOUT, None)
            self.push()

    def wait(self, timeout: float | None) -> bool:
        """Wait until data arrives or queued messages can be sent, at most `timeout` seconds; whether that was so."""
        return self._poll(select.POLLIN | (select.POLLOUT if self.waiting else 0), timeout)

    def _poll(self, events: int, timeout: float | None) -> bool:
        poll = select.poll()
        poll.register(self._sock, events)
        return bool(poll.poll(None if timeout is None else max(0.0, timeout) * 1000))

    def _fill(self) -> None:
        batch = self._batch
        batch.extend(self._urgent)
        self._urgent.clear()
        size = 0
        while self._frames and len(batch) < _BATCH_BUFFERS and size < _BATCH_BYTES:
            frame = self._frames.popleft()
            batch += frame
            size += sum(len(part) for part in frame)

    def _remove_sent(self, count: int) -> None:
        batch = self._batch
        self.unsent -= count
        for at, part in enumerate(batch):
            if count < len(part):
                batch[at] = memoryview(part)[count:]
                del batch[:at]
                return
            count -= len(part)
        batch.clear()

    # -- receiving

    def receive(self) -> Iterator[tuple[int, memoryview, bool]]:
        """The messages that have arrived: kind, body, and whether the receiver owns the memory of the body.

        A body that the receiver does not own is valid until the next message is read. A caller that stops early gets
        the other messages from the next call. Sets `closed` if the other end is gone. WireError if the data is
        invalid; message boundaries are lost then, so the caller must drop the link.
        """
        yield from self._parse()
        for _ in range(_MAX_READS):
            direct = self._piece if self._start == self._end else 0
            if direct:
                into = self._long[self._long_end : self._long_end + direct]
            else:
                self._compact()
                into = self._view[self._end :]
            try:
                count = self._sock.recv_into(into)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                count = 0
            if not count:
                self.drop()
                return
            full = count == len(into)
            if direct:
                yield from self._advance(count)
            else:
                self._end += count
                yield from self._parse()
            if not full:
                return

    def _compact(self) -> None:
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start:
            rest = self._end - self._start
            self._buffer[:rest] = self._buffer[self._start : self._end]
            self._start, self._end = 0, rest

    def _parse(self) -> Iterator[tuple[int, memoryview, bool]]:
        while True:
            available = self._end - self._start
            if self._piece:
                count = min(self._piece, available)
                if not count:
                    return
                self._long[self._long_end : self._long_end + count] = self._view[self._start : self._start + count]
                self._start += count
                yield from self._advance(count)
                continue
            if available < _HEAD.size:
                return
            kind, length = _HEAD.unpack_from(self._buffer, self._start)
            if kind == _PIECE_KIND:
                self._begin_piece(length)
                self._start += _HEAD.size
                continue
            if kind & _LONG and self._long_size:
                raise WireError("a long message is announced before the previous one is complete")
            if kind & ~_LONG not in _KINDS:
                raise WireError(f"a frame has the unknown kind {kind}")
            if length > _MAX_FRAME or (kind & _LONG and length != _LONG_SIZE.size):
                raise WireError(f"a frame of kind {kind} can't have {length} bytes")
            if available < _HEAD.size + length:
                return
            body = self._view[self._start + _HEAD.size : self._start + _HEAD.size + length]
            self._start += _HEAD.size + length
            if kind & _LONG:
                self._begin_long(kind & ~_LONG, _LONG_SIZE.unpack(body)[0])
            else:
                yield kind, body, False

    def _begin_long(self, kind: int, size: int) -> None:
        if not _MAX_FRAME < size <= self._longest:
            raise WireError(
                f"a long message of {size} bytes is announced, but {_MAX_FRAME} to {self._longest} are allowed"
            )
        self._long_kind, self._long_size, self._long_end = kind, size, 0
        self._long = memoryview(bytearray(min(size, _FIRST_ALLOCATION)))

    def _begin_piece(self, size: int) -> None:
        end = self._long_end + size
        if not 0 < size <= PIECE or end > self._long_size:
            left = self._long_size - self._long_end
            raise WireError(f"a piece of {size} bytes arrived where {left} bytes of a long message were missing")
        if end > len(self._long):
            larger = memoryview(bytearray(min(self._long_size, max(end, 2 * len(self._long)))))
            larger[: self._long_end] = self._long[: self._long_end]
            self._long = larger
        self._piece = size

    def _advance(self, count: int) -> Iterator[tuple[int, memoryview, bool]]:
        self._piece -= count
        self._long_end += count
        if self._long_end == self._long_size:
            body, self._long = self._long, memoryview(b"")
            self._long_size = self._long_end = 0
            yield self._long_kind, body, True


def unpickled(kind: int, body: memoryview, expected: type | UnionType) -> Any:
    """A protocol message of one of the `expected` classes. WireError for anything else."""
    if kind != CONTROL:
        raise WireError(f"a frame of kind {kind} arrived where a protocol message was expected")
    try:
        message = pickle.loads(body)
    except Exception as error:
        raise WireError(f"a message can't be unpickled: {type(error).__name__}: {error}") from error
    if not isinstance(message, expected):
        raise WireError(f"a message of the class {type(message).__qualname__} is not allowed here")
    return message


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a new connection."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def _pieces(parts: Sequence[Buffer]) -> Iterator[list[Buffer]]:
    """The pieces of a long message, as frames; a piece may span several parts."""
    frame: list[Buffer] = []
    size = 0
    for part in parts:
        view = memoryview(part).cast("B")
        while len(view):
            chunk = view[: PIECE - size]
            frame.append(chunk)
            size += len(chunk)
            view = view[len(chunk) :]
            if size == PIECE:
                yield [_HEAD.pack(_PIECE_KIND, size), *frame]
                frame, size = [], 0
    if frame:
        yield [_HEAD.pack(_PIECE_KIND, size), *frame]

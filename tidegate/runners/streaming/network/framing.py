"""Framed messages over a socket, without ever blocking: what is sent waits in a queue, what comes is read as it comes.

A frame is `kind, u8 · length, u32 · body`. A longer message is cut into pieces without being copied: a frame that says
how long it will be, then the pieces. Small messages that are urgent (credit) pass between two pieces, so that a large
block under way holds up no other channel.

The receiver believes nothing that it can check: a frame that no `Link` sends is a `WireError`, a message may be of a
bounded length, and memory for a long one is taken as its bytes arrive, not as they are announced.
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
"""A channel's items (see `codec`), behind the channel's name."""
CREDIT: Final = 3
"""How many more blocks a channel takes."""

PIECE: Final = 1 << 20
"""Bytes of a piece. A message of at most `_WHOLE` bytes is one frame."""
LONGEST: Final = 1 << 36
"""Bytes of the longest message that a link takes unless it is made for shorter ones."""

_HEAD: Final = struct.Struct("<B3xI")
_TOTAL: Final = struct.Struct("<Q")
_LONG: Final = 0x80
"""Added to a message's kind in the frame that announces it."""
_MORE: Final = 0x7F
"""The kind of a piece."""
_WHOLE: Final = 128 << 10
_SPACE: Final = 256 << 10
_AT_FIRST: Final = 16 << 20
"""Bytes of memory that a long message is given before any of it is there; doubled whenever they are full."""
_READS: Final = 8
"""How often a socket is read before others have their turn."""
_JOINED: Final = 4 << 10
"""Buffers shorter than this in all are copied together rather than sent side by side."""
_BATCH_BUFFERS: Final = 64
_BATCH_BYTES: Final = 4 << 20


_KINDS: Final = frozenset({CONTROL, FRAME, CREDIT})


class WireError(RunError):
    """Something has arrived that the other end can't have meant: a frame out of order, a message of no known kind."""


class Link:
    """One end of a connection. `closed`: the other end is gone; what was still to be sent is dropped.

    `longest`: how many bytes a message that arrives may have.
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
        """Bytes that are still to be sent."""
        self._space = bytearray(_SPACE)
        self._view = memoryview(self._space)
        self._start = self._end = 0
        self._long_kind = 0
        self._long = memoryview(b"")
        self._long_size = 0
        self._long_at = 0
        self._piece = 0

    def fileno(self) -> int:
        """For selectors; -1 once the link is closed from this side."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close this end."""
        self.drop()
        self._sock.close()

    def drop(self) -> None:
        """Have no more to do with the other end: nothing more is sent to it. The socket stays until `close`."""
        self.closed = True
        self._batch.clear()
        self._frames.clear()
        self._urgent.clear()
        self.unsent = 0

    # -- sending

    @property
    def waiting(self) -> bool:
        """Whether something is still to be sent."""
        return bool(self._batch or self._frames or self._urgent)

    def post(self, kind: int, parts: Sequence[Buffer], *, urgent: bool = False) -> None:
        """Put a message, its parts one after another, in the queue; `push` sends it.

        What is not urgent keeps its order. An urgent message must be short. The parts must not change any more.
        """
        if self.closed:
            return
        size = sum(memoryview(part).nbytes for part in parts)
        if size <= _JOINED:
            frame = b"".join((_HEAD.pack(kind, size), *parts))
            self.unsent += len(frame)
            if urgent:
                self._urgent.append(frame)
            else:
                self._frames.append([frame])
        elif size <= _WHOLE:
            self.unsent += _HEAD.size + size
            self._frames.append([_HEAD.pack(kind, size), *parts])
        else:
            self.unsent += _HEAD.size * (1 - -size // PIECE) + _TOTAL.size + size
            self._frames.append([_HEAD.pack(kind | _LONG, _TOTAL.size) + _TOTAL.pack(size)])
            self._frames.extend(_pieces(parts))

    def push(self) -> None:
        """Send what the socket takes now."""
        while not self.closed:
            if not self._batch:
                self._fill()
                if not self._batch:
                    return
            try:
                sent = self._sock.sendmsg(self._batch)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # the other end is gone: its own end tells why
                self.drop()
                return
            self._sent(sent)

    def wait_until_sent(self) -> None:
        """Send all that waits, however long the other end takes; for whoever has nothing else to do."""
        self.push()
        while self.waiting and not self.closed:
            self._poll(select.POLLOUT, None)
            self.push()

    def wait(self, timeout: float | None) -> bool:
        """Until something has come, or what waits can be sent, at most `timeout` seconds; whether it did."""
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

    def _sent(self, count: int) -> None:
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
        """The messages that have come: kind, body, and whether the body's memory is the receiver's to keep.

        If it is not, the body is valid until the next message is asked for. Who stops asking finds the rest at the next
        call. Sets `closed` where the other end is gone. WireError if what has come is no message; the rest of it can't
        be told from other bytes then, so whoever hears it drops the link.
        """
        yield from self._parse()
        for _ in range(_READS):
            direct = self._piece if self._start == self._end else 0
            if direct:
                into = self._long[self._long_at : self._long_at + direct]
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
                yield from self._advanced(count)
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
            self._space[:rest] = self._space[self._start : self._end]
            self._start, self._end = 0, rest

    def _parse(self) -> Iterator[tuple[int, memoryview, bool]]:
        while True:
            there = self._end - self._start
            if self._piece:
                count = min(self._piece, there)
                if not count:
                    return
                self._long[self._long_at : self._long_at + count] = self._view[self._start : self._start + count]
                self._start += count
                yield from self._advanced(count)
                continue
            if there < _HEAD.size:
                return
            kind, length = _HEAD.unpack_from(self._space, self._start)
            if kind == _MORE:
                self._begin_piece(length)
                self._start += _HEAD.size
                continue
            if kind & _LONG and self._long_size:
                raise WireError("a long message is announced in the middle of another")
            if kind & ~_LONG not in _KINDS:
                raise WireError(f"a frame of kind {kind}, which there is not")
            if length > _WHOLE or (kind & _LONG and length != _TOTAL.size):
                raise WireError(f"a frame of kind {kind} has {length} bytes")
            if there < _HEAD.size + length:
                return
            body = self._view[self._start + _HEAD.size : self._start + _HEAD.size + length]
            self._start += _HEAD.size + length
            if kind & _LONG:
                self._begin_long(kind & ~_LONG, _TOTAL.unpack(body)[0])
            else:
                yield kind, body, False

    def _begin_long(self, kind: int, size: int) -> None:
        if not _WHOLE < size <= self._longest:
            raise WireError(f"a long message of {size} bytes is announced; it may have {_WHOLE} to {self._longest}")
        self._long_kind, self._long_size, self._long_at = kind, size, 0
        self._long = memoryview(bytearray(min(size, _AT_FIRST)))

    def _begin_piece(self, size: int) -> None:
        end = self._long_at + size
        if not 0 < size <= PIECE or end > self._long_size:
            left = self._long_size - self._long_at
            raise WireError(f"a piece of {size} bytes came where {left} bytes of a long message are left")
        if end > len(self._long):
            wider = memoryview(bytearray(min(self._long_size, max(end, 2 * len(self._long)))))
            wider[: self._long_at] = self._long[: self._long_at]
            self._long = wider
        self._piece = size

    def _advanced(self, count: int) -> Iterator[tuple[int, memoryview, bool]]:
        self._piece -= count
        self._long_at += count
        if self._long_at == self._long_size:
            whole, self._long = self._long, memoryview(b"")
            self._long_size = self._long_at = 0
            yield self._long_kind, whole, True


def unpickled(kind: int, body: memoryview, expected: type | UnionType) -> Any:
    """A message of a protocol: one of the `expected` classes. WireError if it is not, or can't be read at all."""
    if kind != CONTROL:
        raise WireError(f"a frame of kind {kind} came where only messages of a protocol do")
    try:
        message = pickle.loads(body)
    except Exception as error:
        raise WireError(f"a message can't be read: {type(error).__name__}: {error}") from error
    if not isinstance(message, expected):
        raise WireError(f"a message is of the class {type(message).__qualname__}, which nobody may send here")
    return message


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a new connection."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def _pieces(parts: Sequence[Buffer]) -> Iterator[list[Buffer]]:
    """Frames of a long message, cut across its parts."""
    frame: list[Buffer] = []
    size = 0
    for part in parts:
        view = memoryview(part).cast("B")
        while len(view):
            taken = view[: PIECE - size]
            frame.append(taken)
            size += len(taken)
            view = view[len(taken) :]
            if size == PIECE:
                yield [_HEAD.pack(_MORE, size), *frame]
                frame, size = [], 0
    if frame:
        yield [_HEAD.pack(_MORE, size), *frame]

"""Messages of any size over real sockets arrive complete and in order, and sending never blocks."""

from __future__ import annotations

import itertools
import pickle
import random
import socket
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidegate.runners.streaming.network.framing import CONTROL, CREDIT, FRAME, PIECE, Link, WireError, pair, unpickled


def links() -> tuple[Link, Link]:
    one, other = pair()
    return Link(one), Link(other)


def received(link: Link) -> list[tuple[int, bytes]]:
    return [(kind, bytes(body)) for kind, body, _ in link.receive()]


def transfer(sender: Link, receiver: Link) -> list[tuple[int, bytes]]:
    """Send and receive all waiting messages in turns, so that neither end ever blocks."""
    found = []
    while sender.waiting:
        sender.push()
        found += received(receiver)
    while receiver.wait(0):
        found += received(receiver)
    return found


sizes = st.sampled_from([0, 1, 100, 4096, 128 << 10, (128 << 10) + 1, PIECE, PIECE + 1, 3 * PIECE + 17])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(sizes, min_size=1, max_size=3), max_size=5), st.integers(0, 1000))
def test_messages_arrive_complete_and_in_order(shapes: list[list[int]], seed: int) -> None:
    ours, theirs = links()
    source = random.Random(seed)
    messages = [(CONTROL + n % 3, [source.randbytes(size) for size in shape]) for n, shape in enumerate(shapes)]
    for kind, parts in messages:
        ours.post(kind, parts)
    assert transfer(ours, theirs) == [(kind, b"".join(parts)) for kind, parts in messages]
    ours.close()
    theirs.close()


def test_sending_never_blocks_and_nothing_is_lost_when_the_other_end_is_slow() -> None:
    ours, theirs = links()
    for n in range(2000):
        ours.post(FRAME, [n.to_bytes(4, "big"), bytes(1000)])
        ours.push()
    assert ours.waiting
    assert [int.from_bytes(body[:4], "big") for _, body in transfer(ours, theirs)] == list(range(2000))
    ours.close()
    theirs.close()


@pytest.mark.parametrize("size", [0, 10, 5_000, (128 << 10) + 1, PIECE, PIECE + 1, 3 * PIECE, 5 * PIECE + 7])
def test_a_link_counts_the_bytes_that_it_has_not_sent_yet(size: int) -> None:
    left, right = pair()
    link = Link(left)
    link.post(FRAME, [bytes(size // 3), bytes(size - size // 3)])
    link.post(CREDIT, [b"credit"], urgent=True)
    unsent, arrived = link.unsent, 0
    while link.waiting:
        link.push()
        arrived += len(right.recv(1 << 20))
        assert link.unsent >= 0
    while arrived < unsent:
        arrived += len(right.recv(1 << 20))
    right.setblocking(False)
    with pytest.raises(BlockingIOError):
        right.recv(1)
    assert (arrived, link.unsent) == (unsent, 0)
    right.close()
    link.close()


def test_credit_overtakes_a_long_message_that_is_being_sent() -> None:
    ours, theirs = links()
    ours.post(FRAME, [bytes(40 * PIECE)])
    ours.push()
    ours.post(CREDIT, [b"credit"], urgent=True)
    kinds = [kind for kind, _ in transfer(ours, theirs)]
    assert kinds == [CREDIT, FRAME]
    ours.close()
    theirs.close()


def test_a_long_message_is_sent_without_being_copied() -> None:
    ours, theirs = links()
    data = bytearray(3 * PIECE)
    ours.post(FRAME, [data])
    with pytest.raises(BufferError):  # the link still refers to it, which it would not if it had copied it
        data.clear()
    assert transfer(ours, theirs) == [(FRAME, bytes(data))]
    ours.close()
    theirs.close()


def test_the_memory_of_a_long_message_belongs_to_the_receiver() -> None:
    ours, theirs = links()
    ours.post(FRAME, [b"a" * 10])
    ours.post(FRAME, [b"b" * 2 * PIECE])
    bodies = []
    while len(bodies) < 2:
        ours.push()
        bodies += [(owned, body if owned else bytes(body)) for _, body, owned in theirs.receive()]
    ours.post(FRAME, [b"c" * 1000])
    ours.push()
    received(theirs)
    assert [(owned, bytes(body[:3])) for owned, body in bodies] == [(False, b"aaa"), (True, b"bbb")]
    ours.close()
    theirs.close()


def test_a_receiver_that_stops_early_gets_the_remaining_messages_from_the_next_call() -> None:
    ours, theirs = links()
    for n in range(3):
        ours.post(CONTROL, [bytes([n])])
    ours.push()
    assert bytes(next(theirs.receive())[1]) == b"\0"
    assert received(theirs) == [(CONTROL, b"\1"), (CONTROL, b"\2")]
    ours.close()
    theirs.close()


def test_messages_sent_before_the_other_end_closed_are_still_received() -> None:
    ours, theirs = links()
    ours.post(CONTROL, [b"last words"])
    ours.push()
    ours.close()
    assert received(theirs) == [(CONTROL, b"last words")]
    assert received(theirs) == []
    assert theirs.closed
    theirs.close()


def test_sending_to_a_closed_end_drops_the_waiting_messages() -> None:
    ours, theirs = links()
    theirs.close()
    ours.post(CONTROL, [b"anybody?"])
    ours.push()
    assert ours.closed
    assert not ours.waiting
    ours.close()


def test_messages_that_the_network_cuts_anywhere_are_reassembled() -> None:
    one, other = pair()
    link = Link(other)
    writer, tap = links()
    writer.post(CONTROL, [b"first"])
    writer.post(FRAME, [b"x" * (PIECE + 5)])
    writer.post(CONTROL, [b"last"])
    stream = bytearray()
    while writer.waiting:
        writer.push()
        stream += receive_bytes(tap)
    one.setblocking(True)
    found = []
    steps = itertools.cycle([1, 3, 7, 11, 64_000])
    while stream:
        step = next(steps)
        one.sendall(stream[:step])
        del stream[:step]
        found += received(link)
    assert found == [(CONTROL, b"first"), (FRAME, b"x" * (PIECE + 5)), (CONTROL, b"last")]
    for end in (writer, tap, link):
        end.close()
    one.close()


def receive_bytes(link: Link) -> bytes:
    """The received bytes."""
    sock = socket.socket(fileno=socket.dup(link.fileno()))
    found = b""
    with sock:
        while True:
            try:
                found += sock.recv(1 << 20)
            except BlockingIOError:
                return found


def frame(kind: int, body: bytes = b"", *, length: int | None = None) -> bytes:
    """A frame as bytes; `length` is the length that it declares."""
    return struct.pack("<B3xI", kind, len(body) if length is None else length) + body


def announcement(size: int, kind: int = CONTROL) -> bytes:
    return frame(kind | 0x80, size.to_bytes(8, "little"))


def piece(size: int) -> bytes:
    return frame(0x7F, bytes(size))


LONG = 3 * PIECE
INVALID_STREAMS = {
    "an unknown kind": frame(9),
    "a piece without an announcement": piece(7),
    "a piece of no bytes": announcement(LONG) + piece(0),
    "a piece that is too large": announcement(LONG) + frame(0x7F, length=PIECE + 1),
    "more pieces than were announced": announcement(PIECE + 1) + piece(PIECE) + piece(2),
    "a long message in another": announcement(LONG) + announcement(LONG),
    "an announcement of three bytes": frame(CONTROL | 0x80, b"abc"),
    "a short message that is announced": announcement(3),
    "more bytes than any message may have": announcement(1 << 40),
    "a long message in one frame": frame(CONTROL, length=1 << 31),
    "a piece that is announced": announcement(LONG, 0x7F),
}


def receive_stream(stream: bytes, **how: Any) -> list[tuple[int, bytes]]:
    """The messages of these bytes, which arrive in arbitrary pieces. Raises WireError as `receive` does."""
    one, other = pair()
    link = Link(other, **how)
    one.setblocking(False)
    found = []
    try:
        while stream:
            stream = stream[one.send(stream) :]
            found += received(link)
    finally:
        link.close()
        one.close()
    return found


@pytest.mark.parametrize("stream", INVALID_STREAMS.values(), ids=INVALID_STREAMS.keys())
def test_a_stream_that_no_link_sends_is_refused(stream: bytes) -> None:
    with pytest.raises(WireError):
        receive_stream(stream)


def test_nothing_is_received_after_an_invalid_frame() -> None:
    one, other = pair()
    link = Link(other)
    with one:
        one.sendall(frame(CONTROL, b"good") + frame(9) + frame(CONTROL, b"also good"))
        found = link.receive()
        assert bytes(next(found)[1]) == b"good"
        for again in (found, link.receive(), link.receive()):
            with pytest.raises(WireError, match="unknown kind 9"):
                next(again)
    link.close()


def test_announcing_a_long_message_allocates_little_memory() -> None:
    one, other = pair()
    link = Link(other)
    tracemalloc.start()
    with one:
        one.sendall(announcement(8 << 30) + piece(1000))
        assert received(link) == []
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20
    link.close()


def test_a_message_longer_than_the_limit_of_the_link_is_refused() -> None:
    assert receive_stream(announcement(PIECE) + piece(PIECE), longest=PIECE) == [(CONTROL, bytes(PIECE))]
    with pytest.raises(WireError, match=f"{PIECE + 1} bytes is announced"):
        receive_stream(announcement(PIECE + 1), longest=PIECE)


def test_a_message_larger_than_its_first_buffer_arrives_complete_along_with_urgent_ones() -> None:
    ours, theirs = links()
    data = random.Random(1).randbytes(40 << 20)
    ours.post(FRAME, [data])
    ours.push()
    ours.post(CREDIT, [b"credit"], urgent=True)
    assert transfer(ours, theirs) == [(CREDIT, b"credit"), (FRAME, data)]
    ours.close()
    theirs.close()


frames = st.one_of(
    st.builds(frame, st.integers(0, 255), st.binary(max_size=40)),
    st.builds(lambda kind, length: frame(kind, length=length), st.integers(0, 255), st.integers(0, 2**32 - 1)),
    st.builds(announcement, st.integers(0, 2**64 - 1), st.integers(0, 127)),
    st.builds(announcement, st.integers(128 << 10, 2 * PIECE)),
    st.builds(piece, st.integers(0, 5) | st.sampled_from([PIECE - 1, PIECE])),
    st.binary(max_size=40),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(frames, max_size=8).map(b"".join))
@example(announcement(PIECE) + frame(CREDIT, b"in between") + piece(PIECE))
def test_any_bytes_are_received_as_messages_or_raise_a_wire_error(stream: bytes) -> None:
    try:
        found = receive_stream(stream)
    except WireError:
        return
    assert all(kind in (CONTROL, FRAME, CREDIT) for kind, _ in found)
    assert sum(len(body) for _, body in found) <= len(stream)


@settings(deadline=None)
@given(st.binary(max_size=200) | st.builds(lambda data, at: pickle.dumps((data,))[:at], st.text(), st.integers(0, 30)))
def test_a_body_that_is_no_message_of_an_expected_class_is_a_wire_error(body: bytes) -> None:
    with pytest.raises(WireError):
        unpickled(CONTROL, memoryview(body), Link)


def test_only_messages_of_a_protocol_are_unpickled() -> None:
    body = memoryview(pickle.dumps(17))
    assert unpickled(CONTROL, body, int) == 17
    with pytest.raises(WireError, match="kind 2 arrived where"):
        unpickled(FRAME, body, int)
    with pytest.raises(WireError, match="of the class int is not allowed here"):
        unpickled(CONTROL, body, str | bytes)

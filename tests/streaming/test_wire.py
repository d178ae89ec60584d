"""Messages over real sockets: whole, in order, never blocking, whatever their size."""

from __future__ import annotations

import itertools
import random
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.runners.streaming.wire import CONTROL, CREDIT, FRAME, PIECE, Link, pair


def links() -> tuple[Link, Link]:
    one, other = pair()
    return Link(one), Link(other)


def received(link: Link) -> list[tuple[int, bytes]]:
    return [(kind, bytes(body)) for kind, body, _ in link.receive()]


def carried(sender: Link, receiver: Link) -> list[tuple[int, bytes]]:
    """All that waits at the sender, by turns: neither ever waits for the other."""
    found = []
    while sender.waiting:
        sender.push()
        found += received(receiver)
    while receiver.wait(0):
        found += received(receiver)
    return found


sizes = st.sampled_from([0, 1, 100, 4096, 128 << 10, (128 << 10) + 1, PIECE, PIECE + 1, 3 * PIECE + 17])


@settings(max_examples=30)
@given(st.lists(st.lists(sizes, min_size=1, max_size=3), max_size=5), st.integers(0, 1000))
def test_messages_arrive_whole_and_in_order(shapes: list[list[int]], seed: int) -> None:
    ours, theirs = links()
    source = random.Random(seed)
    messages = [(CONTROL + n % 3, [source.randbytes(size) for size in shape]) for n, shape in enumerate(shapes)]
    for kind, parts in messages:
        ours.post(kind, parts)
    assert carried(ours, theirs) == [(kind, b"".join(parts)) for kind, parts in messages]
    ours.close()
    theirs.close()


def test_sending_never_blocks_and_nothing_is_lost_when_the_other_end_is_slow() -> None:
    ours, theirs = links()
    for n in range(2000):
        ours.post(FRAME, [n.to_bytes(4, "big"), bytes(1000)])
        ours.push()
    assert ours.waiting
    assert [int.from_bytes(body[:4], "big") for _, body in carried(ours, theirs)] == list(range(2000))
    ours.close()
    theirs.close()


def test_credit_passes_what_is_long_and_still_to_be_sent() -> None:
    ours, theirs = links()
    ours.post(FRAME, [bytes(40 * PIECE)])
    ours.push()
    ours.post(CREDIT, [b"credit"], urgent=True)
    kinds = [kind for kind, _ in carried(ours, theirs)]
    assert kinds == [CREDIT, FRAME]
    ours.close()
    theirs.close()


def test_a_long_message_is_sent_without_being_copied() -> None:
    ours, theirs = links()
    data = bytearray(3 * PIECE)
    ours.post(FRAME, [data])
    with pytest.raises(BufferError):  # it is held, where a copy would have let it go
        data.clear()
    assert carried(ours, theirs) == [(FRAME, bytes(data))]
    ours.close()
    theirs.close()


def test_the_memory_of_a_long_message_is_the_receivers() -> None:
    ours, theirs = links()
    ours.post(FRAME, [b"a" * 10])
    ours.post(FRAME, [b"b" * 2 * PIECE])
    kept = []
    while len(kept) < 2:
        ours.push()
        kept += [(own, body if own else bytes(body)) for _, body, own in theirs.receive()]
    ours.post(FRAME, [b"c" * 1000])
    ours.push()
    received(theirs)
    assert [(own, bytes(body[:3])) for own, body in kept] == [(False, b"aaa"), (True, b"bbb")]
    ours.close()
    theirs.close()


def test_who_stops_asking_finds_the_rest_at_the_next_call() -> None:
    ours, theirs = links()
    for n in range(3):
        ours.post(CONTROL, [bytes([n])])
    ours.push()
    assert bytes(next(theirs.receive())[1]) == b"\0"
    assert received(theirs) == [(CONTROL, b"\1"), (CONTROL, b"\2")]
    ours.close()
    theirs.close()


def test_what_was_sent_before_the_other_end_closed_is_still_read() -> None:
    ours, theirs = links()
    ours.post(CONTROL, [b"last words"])
    ours.push()
    ours.close()
    assert received(theirs) == [(CONTROL, b"last words")]
    assert received(theirs) == []
    assert theirs.closed
    theirs.close()


def test_sending_to_an_end_that_is_gone_drops_what_waits() -> None:
    ours, theirs = links()
    theirs.close()
    ours.post(CONTROL, [b"anybody?"])
    ours.push()
    assert ours.closed
    assert not ours.waiting
    ours.close()


def test_messages_cut_anywhere_by_the_network_are_put_together() -> None:
    one, other = pair()
    link = Link(other)
    writer, tap = links()
    writer.post(CONTROL, [b"first"])
    writer.post(FRAME, [b"x" * (PIECE + 5)])
    writer.post(CONTROL, [b"last"])
    stream = bytearray()
    while writer.waiting:
        writer.push()
        stream += drained(tap)
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


def drained(link: Link) -> bytes:
    """What has come, as it is on the wire."""
    sock = socket.socket(fileno=socket.dup(link.fileno()))
    found = b""
    with sock:
        while True:
            try:
                found += sock.recv(1 << 20)
            except BlockingIOError:
                return found

"""The event loop: which handlers it calls, what it sends, and how it treats closed connections."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tidegate.runners.streaming.network.event_loop import EventLoop
from tidegate.runners.streaming.network.framing import CONTROL, Link, pair

LONG = 60.0


@pytest.fixture
def link_pair() -> Iterator[tuple[Link, Link]]:
    link, peer = (Link(end) for end in pair())
    yield link, peer
    link.close()
    peer.close()


@pytest.fixture
def make_loop() -> Iterator[Callable[..., EventLoop]]:
    loops: list[EventLoop] = []

    def make(on_wake: Callable[[], None] = lambda: None) -> EventLoop:
        loops.append(EventLoop(on_wake))
        return loops[-1]

    yield make
    for loop in loops:
        loop.close()


def receive_into(received: list[bytes], link: Link) -> None:
    received += (bytes(body) for _, body, _ in link.receive())


def test_a_message_longer_than_the_socket_takes_is_sent_while_the_loop_waits(
    link_pair: tuple[Link, Link], make_loop: Callable[..., EventLoop]
) -> None:
    link, peer = link_pair
    loop, received = make_loop(), []
    loop.register(link, partial(receive_into, received, link))
    loop.register(peer, lambda: None)
    peer.post(CONTROL, [bytes(8 << 20)])
    while not received:
        loop.poll(LONG)
    assert [len(body) for body in received] == [8 << 20]
    assert not peer.waiting


def test_a_writable_link_alone_does_not_call_its_handler(
    link_pair: tuple[Link, Link], make_loop: Callable[..., EventLoop]
) -> None:
    link, _ = link_pair
    loop, calls = make_loop(), []
    loop.register(link, lambda: calls.append("handled"))
    link.post(CONTROL, [bytes(8 << 20)])
    loop.poll(0)
    assert link.waiting
    assert not calls


def test_the_last_messages_of_a_peer_are_received_even_if_sending_reveals_that_it_left(
    link_pair: tuple[Link, Link], make_loop: Callable[..., EventLoop]
) -> None:
    link, peer = link_pair
    loop, received = make_loop(), []
    loop.register(link, partial(receive_into, received, link))
    peer.post(CONTROL, [b"last words"])
    peer.push()
    peer.close()
    link.post(CONTROL, [b"too late"])
    loop.poll(None)
    assert link.closed
    assert received == [b"last words"]


def test_the_handler_of_a_closed_link_is_called_once(
    link_pair: tuple[Link, Link], make_loop: Callable[..., EventLoop]
) -> None:
    link, peer = link_pair
    loop, calls = make_loop(), []

    def handle() -> None:
        calls.append(list(link.receive()))

    loop.register(link, handle)
    peer.close()
    for _ in range(3):
        loop.poll(0)
    assert link.closed
    assert calls == [[]]


def test_the_handler_of_a_link_that_its_owner_dropped_is_called_without_waiting(
    link_pair: tuple[Link, Link], make_loop: Callable[..., EventLoop]
) -> None:
    link, _ = link_pair
    loop, calls = make_loop(), []
    loop.register(link, lambda: calls.append(link.closed))
    link.drop()
    loop.poll(None)
    assert calls == [True]


def test_a_handler_is_not_called_for_a_source_that_an_earlier_one_has_unregistered(
    make_loop: Callable[..., EventLoop],
) -> None:
    loop, calls = make_loop(), []
    ends = [pair(), pair()]
    for at, (ours, theirs) in enumerate(ends):

        def handle(at: int = at) -> None:
            calls.append(at)
            for end, _ in ends:
                loop.unregister(end)

        loop.register(ours, handle)
        theirs.send(b"x")
    loop.poll(LONG)
    loop.poll(0)
    assert len(calls) == 1
    for pairs in ends:
        for end in pairs:
            end.close()


def test_a_closed_source_can_be_unregistered_and_its_descriptor_registered_again(
    make_loop: Callable[..., EventLoop],
) -> None:
    loop, received = make_loop(), []
    link, peer = (Link(end) for end in pair())
    loop.register(link, lambda: None)
    number = link.fileno()
    link.close()
    peer.close()
    loop.unregister(link)
    loop.unregister(link)
    link, peer = (Link(end) for end in pair())
    assert number in (link.fileno(), peer.fileno())
    loop.register(link, partial(receive_into, received, link))
    loop.register(peer, lambda: None)
    peer.post(CONTROL, [b"hello"])
    loop.poll(LONG)
    assert received == [b"hello"]
    link.close()
    peer.close()


def test_another_thread_wakes_the_loop(make_loop: Callable[..., EventLoop]) -> None:
    calls: list[str] = []
    loop = make_loop(lambda: calls.append("woken"))
    thread = threading.Thread(target=loop.wake)
    thread.start()
    loop.poll(None)
    thread.join()
    assert calls == ["woken"]


def test_many_wake_ups_before_a_poll_call_on_wake_once(make_loop: Callable[..., EventLoop]) -> None:
    calls: list[str] = []
    loop = make_loop(lambda: calls.append("woken"))
    for _ in range(100_000):  # more than the socket's buffer holds
        loop.wake()
    loop.poll(None)
    loop.poll(0)
    assert calls == ["woken"]


def test_a_signal_wakes_the_loop(make_loop: Callable[..., EventLoop]) -> None:
    calls: list[str] = []
    loop = make_loop(lambda: calls.append("woken"))
    before, descriptor = signal.getsignal(signal.SIGUSR1), signal.set_wakeup_fd(-1)
    try:
        loop.wake_on_signal(signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
        loop.poll(None)
    finally:
        signal.set_wakeup_fd(descriptor)
        signal.signal(signal.SIGUSR1, before)
    assert calls == ["woken"]


def test_waking_a_closed_loop_has_no_effect() -> None:
    loop = EventLoop()
    loop.close()
    loop.wake()

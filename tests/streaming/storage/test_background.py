"""Blocking storage work runs beside an event loop, in a thread that exists only while it is needed."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import pytest

from tests.support.streaming.threads import new_threads
from tidegate.runners.streaming.storage.background import Background

LONG = 60.0


class Loop:
    """An event loop that the background thread wakes when it has results."""

    def __init__(self) -> None:
        self._woken = threading.Event()
        self.background = Background(self._woken.set)

    def until(self, reached: Any) -> None:
        """Wait until a condition holds, checking it on each wake-up."""
        while not reached():
            assert self._woken.wait(LONG), "nothing has happened"
            self._woken.clear()


class Gate:
    """Blocks a step of work until the test opens it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def pass_through(self) -> None:
        self.reached.set()
        assert self.open.wait(LONG)


def immediate(value: Any, done: list[Any]) -> Generator[None, None, Any]:
    done.append(value)
    return value
    yield


def gated(gate: Gate, done: list[Any]) -> Generator[None, None, str]:
    """Two steps, the first of which waits at a gate."""
    gate.pass_through()
    try:
        yield
    except GeneratorExit:
        done.append("rolled back")
        raise
    done.append("done")
    return "done"


def test_work_is_done_in_order_and_each_piece_returns_its_result() -> None:
    loop, done = Loop(), list[Any]()
    handles = [loop.background.begin(immediate(n, done)) for n in range(5)]
    loop.until(lambda: all(handle.done for handle in handles))
    assert done == [handle.poll() for handle in handles] == [0, 1, 2, 3, 4]


def test_beginning_work_does_not_wait_for_it() -> None:
    loop, gate, done = Loop(), Gate(), list[Any]()
    handle = loop.background.begin(gated(gate, done))
    assert gate.reached.wait(LONG)
    assert (handle.done, handle.poll()) == (False, None)
    gate.open.set()
    loop.until(lambda: handle.done)
    assert handle.poll() == "done"


def test_an_exception_is_raised_by_poll_and_later_work_is_still_done() -> None:
    def fails() -> Generator[None, None, int]:
        raise ConnectionError("nobody there")
        yield

    loop, done = Loop(), list[Any]()
    first, second = loop.background.begin(fails()), loop.background.begin(immediate(2, done))
    loop.until(lambda: second.done)
    with pytest.raises(ConnectionError, match="nobody there"):
        first.poll()
    assert done == [2]


def test_abandoned_work_never_begins_or_is_rolled_back_after_its_current_step() -> None:
    loop, gate, done, ended = Loop(), Gate(), list[Any](), list[str]()
    begun = loop.background.begin(gated(gate, done), lambda: ended.append("begun"))
    waiting = loop.background.begin(immediate("waiting", done), lambda: ended.append("waiting"))
    remaining = loop.background.begin(immediate("remaining", done), lambda: ended.append("remaining"))
    assert gate.reached.wait(LONG)
    begun.abandon()
    waiting.abandon()
    assert ended == ["waiting"]
    gate.open.set()
    loop.until(lambda: remaining.done)
    assert done == ["rolled back", "remaining"]
    assert ended == ["waiting", "begun", "remaining"]
    assert begun.poll() is None


def test_work_ends_at_once_with_an_error_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    loop, done = Loop(), list[Any]()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", full)
        with pytest.raises(OSError, match="can't start new thread"):
            loop.background.begin(immediate(1, done), lambda: done.append("ended"))
    assert done == ["ended"]
    handle = loop.background.begin(immediate(2, done))
    loop.until(lambda: handle.done)
    assert done == ["ended", 2]


def test_the_thread_ends_without_work_and_a_new_one_does_later_work() -> None:
    loop, done = Loop(), list[Any]()
    new = new_threads()
    for n in range(2):
        handle = loop.background.begin(immediate(n, done))
        loop.until(lambda handle=handle: handle.done)
        loop.until(loop.background.halt)
        assert new() == []
        loop.background.resume()
    assert done == [0, 1]


def test_a_halt_takes_effect_between_two_steps_and_the_rest_is_done_after_resume() -> None:
    loop, gate, done = Loop(), Gate(), list[Any]()
    new = new_threads()
    handle = loop.background.begin(gated(gate, done))
    assert gate.reached.wait(LONG)
    assert not loop.background.halt()
    gate.open.set()
    loop.until(loop.background.halt)
    later = loop.background.begin(immediate("later", done))
    assert new() == []
    assert (done, handle.done) == ([], False)
    loop.background.resume()
    loop.until(lambda: later.done)
    assert done == ["done", "later"]


def test_join_waits_for_all_work_or_until_its_timeout() -> None:
    loop, gate, done = Loop(), Gate(), list[Any]()
    loop.background.begin(gated(gate, done))
    loop.background.begin(immediate("after it", done))
    assert gate.reached.wait(LONG)
    loop.background.join(0.0)
    assert done == []
    gate.open.set()
    loop.background.join(LONG)
    assert done == ["done", "after it"]

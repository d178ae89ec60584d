"""Blocking storage work runs beside an event loop, in a thread that exists only while it is needed."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import pytest

from tidegate.runners.streaming.storage.background import Background

PATIENCE = 60.0


class Loop:
    """An event loop that is woken when there are results."""

    def __init__(self) -> None:
        self._woken = threading.Event()
        self.background = Background(self._woken.set)

    def until(self, reached: Any) -> None:
        """Wait until something holds, looking at it whenever there is news."""
        while not reached():
            assert self._woken.wait(PATIENCE), "there is no news"
            self._woken.clear()


class Gate:
    """Work that stands still until it is let through."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def pass_through(self) -> None:
        self.reached.set()
        assert self.open.wait(PATIENCE)


def at_once(value: Any, done: list[Any]) -> Generator[None, None, Any]:
    done.append(value)
    return value
    yield


def through(gate: Gate, done: list[Any]) -> Generator[None, None, str]:
    """Two steps, the first of which waits at a gate."""
    gate.pass_through()
    try:
        yield
    except GeneratorExit:
        done.append("undone")
        raise
    done.append("through")
    return "through"


def test_work_is_done_in_order_and_each_tells_what_came_of_it() -> None:
    loop, done = Loop(), list[Any]()
    doings = [loop.background.begin(at_once(n, done)) for n in range(5)]
    loop.until(lambda: all(doing.done for doing in doings))
    assert done == [doing.poll() for doing in doings] == [0, 1, 2, 3, 4]


def test_who_begins_work_does_not_wait_for_it() -> None:
    loop, gate, done = Loop(), Gate(), list[Any]()
    doing = loop.background.begin(through(gate, done))
    assert gate.reached.wait(PATIENCE)
    assert (doing.done, doing.poll()) == (False, None)
    gate.open.set()
    loop.until(lambda: doing.done)
    assert doing.poll() == "through"


def test_what_is_raised_is_told_to_whoever_asks_and_what_follows_is_done() -> None:
    def fails() -> Generator[None, None, int]:
        raise ConnectionError("nobody there")
        yield

    loop, done = Loop(), list[Any]()
    first, second = loop.background.begin(fails()), loop.background.begin(at_once(2, done))
    loop.until(lambda: second.done)
    with pytest.raises(ConnectionError, match="nobody there"):
        first.poll()
    assert done == [2]


def test_what_is_given_up_before_it_begins_never_does_and_what_has_begun_is_undone_after_its_step() -> None:
    loop, gate, done, over = Loop(), Gate(), list[Any](), list[str]()
    begun = loop.background.begin(through(gate, done), lambda: over.append("begun"))
    waiting = loop.background.begin(at_once("waiting", done), lambda: over.append("waiting"))
    wanted = loop.background.begin(at_once("wanted", done), lambda: over.append("wanted"))
    assert gate.reached.wait(PATIENCE)
    begun.abandon()
    waiting.abandon()
    assert over == ["waiting"]
    gate.open.set()
    loop.until(lambda: wanted.done)
    assert done == ["undone", "wanted"]
    assert over == ["waiting", "begun", "wanted"]
    assert begun.poll() is None


def test_work_for_which_there_is_no_thread_is_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    loop, done = Loop(), list[Any]()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", full)
        with pytest.raises(OSError, match="can't start new thread"):
            loop.background.begin(at_once(1, done), lambda: done.append("over"))
    assert done == ["over"]
    doing = loop.background.begin(at_once(2, done))
    loop.until(lambda: doing.done)
    assert done == ["over", 2]


def test_the_thread_ends_when_there_is_nothing_to_do_and_another_takes_up_what_comes_then() -> None:
    loop, done = Loop(), list[Any]()
    before = threading.active_count()
    for n in range(2):
        doing = loop.background.begin(at_once(n, done))
        loop.until(lambda doing=doing: doing.done)
        loop.until(loop.background.halt)
        assert threading.active_count() == before
        loop.background.resume()
    assert done == [0, 1]


def test_a_halt_comes_between_two_steps_and_the_rest_is_done_when_it_is_over() -> None:
    loop, gate, done = Loop(), Gate(), list[Any]()
    before = threading.active_count()
    doing = loop.background.begin(through(gate, done))
    assert gate.reached.wait(PATIENCE)
    assert not loop.background.halt()
    gate.open.set()
    loop.until(loop.background.halt)
    later = loop.background.begin(at_once("later", done))
    assert threading.active_count() == before
    assert (done, doing.done) == ([], False)
    loop.background.resume()
    loop.until(lambda: later.done)
    assert done == ["through", "later"]


def test_whoever_ends_waits_for_all_that_has_been_begun_or_no_longer_than_it_likes() -> None:
    loop, gate, done = Loop(), Gate(), list[Any]()
    loop.background.begin(through(gate, done))
    loop.background.begin(at_once("after it", done))
    assert gate.reached.wait(PATIENCE)
    loop.background.join(0.0)
    assert done == []
    gate.open.set()
    loop.background.join(PATIENCE)
    assert done == ["through", "after it"]

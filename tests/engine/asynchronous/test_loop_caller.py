"""Calls in the threads of this process: they are made when there is a call, and gone when the last operator closes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.engine.asynchronous.caller import LoopCaller
from tidegate.runners.engine.asynchronous.loop_thread import suspended_loop
from tidegate.runners.engine.asynchronous.outcomes import Completed
from tidegate.runners.streaming.model.fork_safety import can_fork
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.async_calls import AsyncCalls

PATIENCE = 30.0


class Called:
    """A caller, and what it has reported."""

    def __init__(self, fn: Any, **settings: Any) -> None:
        self.woken = threading.Event()
        self.caller = LoopCaller(fn, AsyncCalls(**{"capacity": 4, "awaits": True, **settings}), "step", self.woken.set)
        self.results: dict[int, Any] = {}
        self.metrics = MetricCells()

    def wait(self, count: int) -> dict[int, Any]:
        """The results, once there are so many."""
        while len(self.results) < count:
            assert self.woken.wait(PATIENCE), "nothing was reported"
            self.woken.clear()
            for item in self.caller.take():
                match item:
                    case Completed(id=id, outcome=outcome):
                        self.results[id] = outcome.result()
                    case MetricCells():
                        self.metrics.merge(item)
        return self.results


@contextmanager
def calling(fn: Any, **settings: Any) -> Iterator[Called]:
    called = Called(fn, **settings)
    try:
        yield called
    finally:
        called.caller.close()


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tidegate-call")]


async def negated(x: int) -> int:
    return -x


def test_results_come_from_another_thread() -> None:
    async def where(_: Any) -> str:
        return threading.current_thread().name

    with calling(where) as called:
        assert own_threads() == []  # the first call starts it
        called.caller.submit([(0, None)])
        assert called.wait(1) == {0: "tidegate-calls"}
    assert own_threads() == []


def test_operators_share_a_thread_that_ends_with_the_last() -> None:
    with calling(negated) as first:
        with calling(negated) as second:
            first.caller.submit([(0, 1)])
            second.caller.submit([(0, 2)])
            assert (first.wait(1), second.wait(1)) == ({0: -1}, {0: -2})
            assert own_threads() == ["tidegate-calls"]
        first.caller.submit([(1, 3)])
        assert first.wait(2) == {0: -1, 1: -3}
    assert own_threads() == []


def test_plain_functions_run_in_as_many_threads_as_there_are_calls_up_to_the_capacity() -> None:
    together = threading.Barrier(3)

    def meet(x: int) -> int:
        together.wait(PATIENCE)
        return x

    with calling(meet, awaits=False, capacity=3) as called:
        called.caller.submit([(id, id) for id in range(3)])
        assert called.wait(3) == {0: 0, 1: 1, 2: 2}
        called.caller.submit([(id, id) for id in range(3, 9)])
        assert len(called.wait(9)) == 9
        assert len(own_threads()) <= 4  # with that of the loop


def test_metrics_of_plain_functions_count() -> None:
    def counting(x: int) -> int:
        tg.Metrics.counter("mine", "seen").inc()
        return x

    with calling(counting, awaits=False) as called:
        called.caller.submit([(0, 0), (1, 1)])
        called.wait(2)
    assert sum(n for key, n in called.metrics.counters.items() if (key.step, key.name) == ("step", "seen")) == 2


def test_a_plain_function_that_hangs_does_not_hold_up_the_end() -> None:
    begun, never = threading.Event(), threading.Event()

    def hang(_: Any) -> None:
        begun.set()
        never.wait()

    with calling(hang, awaits=False) as called:
        called.caller.submit([(0, None)])
        assert begun.wait(PATIENCE)
    never.set()


def test_a_stop_iteration_of_a_plain_function_is_its_error() -> None:
    with calling(next, awaits=False) as called:
        called.caller.submit([(0, iter([]))])
        with pytest.raises((StopIteration, RuntimeError)):
            called.wait(1)


def test_a_client_belongs_to_the_loop_that_awaits_it() -> None:
    class Client(tg.AsyncFunction[int, bool]):
        loop: Any = None

        def setup(self) -> None:
            self.loop = asyncio.get_running_loop()

        async def __call__(self, argument: int, /) -> bool:
            return asyncio.get_running_loop() is self.loop

    with calling(Client()) as called:
        called.caller.submit([(0, 0)])
        assert called.wait(1) == {0: True}


# ---- forks


def test_the_thread_is_gone_for_a_fork_and_calls_in_flight_go_on_after_it() -> None:
    opened = asyncio.Event()
    alone = can_fork()  # not if pytest or another test has threads

    async def waiting(x: int) -> int:
        if x:
            opened.set()
        await opened.wait()
        return x

    with calling(waiting) as called:
        called.caller.submit([(0, 0)])
        for round in range(20):
            with suspended_loop():
                assert own_threads() == []
                if alone:
                    assert can_fork()
                    child = os.fork()
                    if child == 0:
                        os._exit(round)
                    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == round
            assert own_threads() == ["tidegate-calls"]
        with suspended_loop():
            called.caller.submit([(1, 1)])
        assert called.wait(2) == {0: 0, 1: 1}


def test_a_function_that_keeps_the_loop_busy_is_not_waited_for() -> None:
    begun, ends = threading.Event(), threading.Event()

    async def busy(x: int) -> int:
        if x == 0:
            begun.set()
            ends.wait(PATIENCE)
        return x

    with calling(busy) as called:
        called.caller.submit([(0, 0)])
        assert begun.wait(PATIENCE)
        before = time.monotonic()
        with suspended_loop():
            assert own_threads() == ["tidegate-calls"]
            assert not can_fork()
        assert time.monotonic() - before < PATIENCE
        ends.set()
        called.caller.submit([(1, 1)])
        assert called.wait(2) == {0: 0, 1: 1}


def test_a_loop_without_users_is_not_started_for_a_fork() -> None:
    with suspended_loop():
        assert own_threads() == []
    assert own_threads() == []

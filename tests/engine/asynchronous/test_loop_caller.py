"""Calls on threads of this process, which start with the first call and end when the last operator closes."""

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
from tidegate.runners.engine.asynchronous.outcomes import Completed
from tidegate.runners.engine.event_loop import suspended_loop
from tidegate.runners.streaming.model.fork_safety import can_fork
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.async_calls import AsyncCalls

TIMEOUT = 30.0


class RecordingCaller:
    """A caller, and the results and metrics that it has reported."""

    def __init__(self, fn: Any, **settings: Any) -> None:
        self.woken = threading.Event()
        self.caller = LoopCaller(fn, AsyncCalls(**{"capacity": 4, "awaits": True, **settings}), "step", self.woken.set)
        self.results: dict[int, Any] = {}
        self.metrics = MetricCells()

    def wait(self, count: int) -> dict[int, Any]:
        """Wait for `count` results, and return them."""
        while len(self.results) < count:
            assert self.woken.wait(TIMEOUT), "nothing was reported"
            self.woken.clear()
            for item in self.caller.take():
                match item:
                    case Completed(id=id, outcome=outcome):
                        self.results[id] = outcome.result()
                    case MetricCells():
                        self.metrics.merge(item)
        return self.results


@contextmanager
def recording_caller(fn: Any, **settings: Any) -> Iterator[RecordingCaller]:
    recording = RecordingCaller(fn, **settings)
    try:
        yield recording
    finally:
        recording.caller.close()


def call_threads() -> list[str]:
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith(("tidegate-call", "tidegate-event-loop"))
    ]


async def negated(x: int) -> int:
    return -x


def test_results_come_from_another_thread() -> None:
    async def where(_: Any) -> str:
        return threading.current_thread().name

    with recording_caller(where) as recording:
        assert call_threads() == []  # the first call starts it
        recording.caller.submit([(0, None)])
        assert recording.wait(1) == {0: "tidegate-event-loop"}
    assert call_threads() == []


def test_operators_share_a_thread_that_ends_with_the_last() -> None:
    with recording_caller(negated) as first:
        with recording_caller(negated) as second:
            first.caller.submit([(0, 1)])
            second.caller.submit([(0, 2)])
            assert (first.wait(1), second.wait(1)) == ({0: -1}, {0: -2})
            assert call_threads() == ["tidegate-event-loop"]
        first.caller.submit([(1, 3)])
        assert first.wait(2) == {0: -1, 1: -3}
    assert call_threads() == []


def test_plain_functions_run_in_one_thread_per_call_up_to_the_capacity() -> None:
    barrier = threading.Barrier(3)

    def meet(x: int) -> int:
        barrier.wait(TIMEOUT)
        return x

    with recording_caller(meet, awaits=False, capacity=3) as recording:
        recording.caller.submit([(id, id) for id in range(3)])
        assert recording.wait(3) == {0: 0, 1: 1, 2: 2}
        recording.caller.submit([(id, id) for id in range(3, 9)])
        assert len(recording.wait(9)) == 9
        assert len(call_threads()) <= 4  # including the thread of the loop


def test_metrics_of_plain_functions_are_reported() -> None:
    def counting(x: int) -> int:
        tg.Metrics.counter("mine", "seen").inc()
        return x

    with recording_caller(counting, awaits=False) as recording:
        recording.caller.submit([(0, 0), (1, 1)])
        recording.wait(2)
    assert sum(n for key, n in recording.metrics.counters.items() if (key.step, key.name) == ("step", "seen")) == 2


def test_closing_does_not_wait_for_a_plain_function_that_hangs() -> None:
    started, released = threading.Event(), threading.Event()

    def hang(_: Any) -> None:
        started.set()
        released.wait()

    with recording_caller(hang, awaits=False) as recording:
        recording.caller.submit([(0, None)])
        assert started.wait(TIMEOUT)
    released.set()


def test_a_stop_iteration_of_a_plain_function_is_reported() -> None:
    with recording_caller(next, awaits=False) as recording:
        recording.caller.submit([(0, iter([]))])
        with pytest.raises((StopIteration, RuntimeError)):
            recording.wait(1)


def test_setup_and_calls_run_on_the_same_loop() -> None:
    class Client(tg.AsyncFunction[int, bool]):
        loop: Any = None

        def setup(self) -> None:
            self.loop = asyncio.get_running_loop()

        async def __call__(self, argument: int, /) -> bool:
            return asyncio.get_running_loop() is self.loop

    with recording_caller(Client()) as recording:
        recording.caller.submit([(0, 0)])
        assert recording.wait(1) == {0: True}


# ---- forks


def test_the_thread_ends_for_a_fork_and_calls_in_flight_continue_after_it() -> None:
    opened = asyncio.Event()
    single_threaded = can_fork()  # false if pytest or another test runs threads

    async def waiting(x: int) -> int:
        if x:
            opened.set()
        await opened.wait()
        return x

    with recording_caller(waiting) as recording:
        recording.caller.submit([(0, 0)])
        for round in range(20):
            with suspended_loop(TIMEOUT):
                assert call_threads() == []
                if single_threaded:
                    assert can_fork()
                    child = os.fork()
                    if child == 0:
                        os._exit(round)
                    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == round
            assert call_threads() == ["tidegate-event-loop"]
        with suspended_loop(TIMEOUT):
            recording.caller.submit([(1, 1)])
        assert recording.wait(2) == {0: 0, 1: 1}


def test_suspending_the_loop_does_not_wait_for_a_function_that_blocks_it() -> None:
    started, released = threading.Event(), threading.Event()

    async def busy(x: int) -> int:
        if x == 0:
            started.set()
            released.wait(TIMEOUT)
        return x

    with recording_caller(busy) as recording:
        recording.caller.submit([(0, 0)])
        assert started.wait(TIMEOUT)
        before = time.monotonic()
        with suspended_loop():
            assert call_threads() == ["tidegate-event-loop"]
            assert not can_fork()
        assert time.monotonic() - before < TIMEOUT
        released.set()
        recording.caller.submit([(1, 1)])
        assert recording.wait(2) == {0: 0, 1: 1}


def test_a_loop_without_users_is_not_started_for_a_fork() -> None:
    with suspended_loop():
        assert call_threads() == []
    assert call_threads() == []

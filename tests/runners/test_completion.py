"""Latches: signals interrupt a wait, whichever thread receives them, and leave the latch usable."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from tidegate.runners import completion as latch_module
from tidegate.runners.completion import Latch

TIMEOUT = 10.0


def test_a_latch_is_closed_until_it_is_opened() -> None:
    latch = Latch()
    assert not latch.wait(0)
    assert not latch.wait(0.001)
    assert not latch.wait(-1)
    latch.open()
    assert latch.opened
    assert latch.wait(0)
    assert latch.wait()


def test_opening_a_latch_releases_all_waiting_threads() -> None:
    latch, barrier = Latch(), threading.Barrier(4)
    released: list[bool] = []

    def wait() -> None:
        barrier.wait(TIMEOUT)
        released.append(latch.wait(TIMEOUT))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    barrier.wait(TIMEOUT)
    latch.open()
    for thread in threads:
        thread.join(TIMEOUT)
    assert released == [True] * 3


@contextmanager
def raising_keyboard_interrupt(signum: int) -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    handler = signal.signal(signum, interrupt)
    try:
        yield
    finally:
        signal.signal(signum, handler)


def test_a_signal_that_another_thread_receives_interrupts_a_wait() -> None:
    latch, received = Latch(), threading.Event()
    reading, writing = os.pipe()

    def receive() -> None:
        select.select([reading], [], [], 0.05)  # until the main thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        if not received.wait(TIMEOUT):  # the main thread would wait forever
            latch.open()

    receiver = threading.Thread(target=receive)
    with raising_keyboard_interrupt(signal.SIGUSR1):
        receiver.start()
        with pytest.raises(KeyboardInterrupt):
            latch.wait()
        received.set()
    receiver.join()
    os.close(reading)
    os.close(writing)
    assert not latch.opened


class InterruptingTrace:
    """Opens a latch before one instruction of its `wait`, and raises KeyboardInterrupt before a later one."""

    def __init__(self, latch: Latch, opens: int, raises: int) -> None:
        self.latch = latch
        self.opens = opens
        self.raises = raises
        self.instruction = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.instruction += 1
            if self.instruction == self.opens:
                self.latch.open()
            if self.instruction == self.raises:
                raise KeyboardInterrupt
        return self


def interrupted(tracing: InterruptingTrace) -> bool:
    """Whether the trace has interrupted a wait; False if the wait had ended before."""
    previous = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 requires it before settrace
    sys.settrace(tracing)
    try:
        tracing.latch.wait(0.001)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(previous)
    return False


def test_an_interrupt_at_any_instruction_of_a_wait_does_not_block_other_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latch_module, "_POLL_INTERVAL", 0.005)
    interrupts = opens = 0
    more = True
    while more:
        opens += 1
        more = False
        for raises in range(opens, 1000):
            latch = Latch()
            results: list[bool] = []
            second = threading.Thread(target=lambda latch=latch, results=results: results.append(latch.wait(TIMEOUT)))
            second.start()
            if not interrupted(InterruptingTrace(latch, opens, raises)):
                break
            interrupts += 1
            more = True
            second.join()
            assert results == [True]
            assert latch.wait(TIMEOUT)
        if not latch.opened:
            latch.open()
        second.join()
    assert interrupts > 100

"""Waiting for an end: signals are heard whichever thread they wake, and wherever they interrupt."""

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

SOON = 10.0


def test_it_is_shut_until_it_is_opened() -> None:
    latch = Latch()
    assert not latch.wait(0)
    assert not latch.wait(0.001)
    assert not latch.wait(-1)
    latch.open()
    assert latch.opened
    assert latch.wait(0)
    assert latch.wait()


def test_all_who_wait_go_on() -> None:
    latch, waiting = Latch(), threading.Barrier(4)
    passed: list[bool] = []

    def wait() -> None:
        waiting.wait(SOON)
        passed.append(latch.wait(SOON))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    waiting.wait(SOON)
    latch.open()
    for thread in threads:
        thread.join(SOON)
    assert passed == [True] * 3


@contextmanager
def raising_at(signum: int) -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signum, interrupt)
    try:
        yield
    finally:
        signal.signal(signum, before)


def test_a_signal_that_wakes_another_thread_is_heard() -> None:
    latch, heard = Latch(), threading.Event()
    reading, writing = os.pipe()

    def take_it() -> None:
        select.select([reading], [], [], 0.05)  # by then the main thread sleeps
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        if not heard.wait(SOON):  # then it would sleep for ever
            latch.open()

    other = threading.Thread(target=take_it)
    with raising_at(signal.SIGUSR1):
        other.start()
        with pytest.raises(KeyboardInterrupt):
            latch.wait()
        heard.set()
    other.join()
    os.close(reading)
    os.close(writing)
    assert not latch.opened


class Interrupting:
    """Opens a latch before one instruction of its `wait`, and raises KeyboardInterrupt before a later one."""

    def __init__(self, latch: Latch, opens: int, raises: int) -> None:
        self.latch = latch
        self.opens = opens
        self.raises = raises
        self.at = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.at += 1
            if self.at == self.opens:
                self.latch.open()
            if self.at == self.raises:
                raise KeyboardInterrupt
        return self


def interrupted(tracing: Interrupting) -> bool:
    """Whether a wait has been interrupted; False where it was over before."""
    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 wants it before
    sys.settrace(tracing)
    try:
        tracing.latch.wait(0.001)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_whoever_is_interrupted_anywhere_keeps_nobody_from_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latch_module, "_POLL_INTERVAL", 0.005)
    interrupts = opens = 0
    going_on = True
    while going_on:
        opens += 1
        going_on = False
        for raises in range(opens, 1000):
            latch = Latch()
            beside: list[bool] = []
            other = threading.Thread(target=lambda latch=latch, beside=beside: beside.append(latch.wait(SOON)))
            other.start()
            if not interrupted(Interrupting(latch, opens, raises)):
                break
            interrupts += 1
            going_on = True
            other.join()
            assert beside == [True]
            assert latch.wait(SOON)
        if not latch.opened:
            latch.open()
        other.join()
    assert interrupts > 100

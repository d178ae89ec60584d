"""A test that waits for ever fails after a time, and says where it waited."""

from __future__ import annotations

import signal
import sys
import threading

import pytest

from tests.conftest import time_limit


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no alarm")
def test_a_wait_without_an_end_fails_and_the_limit_of_the_test_around_it_stays(
    capfd: pytest.CaptureFixture[str],
) -> None:
    outer = signal.getsignal(signal.SIGALRM)
    left = signal.getitimer(signal.ITIMER_REAL)
    never = threading.Event()
    with (
        pytest.raises(pytest.fail.Exception, match=r"^this one has taken longer than 0\.01 s"),
        time_limit(0.01, "this one"),
    ):
        never.wait(60)
    assert "test_a_wait_without_an_end_fails" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGALRM) is outer
    assert left[0] == 0 or 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= left[0]

"""Waits for a stream that runs in the background: for a limited time, with an error that says for what."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tidegate.sdk.runner import PipelineResult, PipelineState

PATIENCE: Final = 600.0
"""How long (s) a wait lasts at most."""


def wait_until(result: PipelineResult, condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds while the stream runs."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert result.wait_until_finish(0.05) is PipelineState.RUNNING, f"the stream has ended; waited for {what}"
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s for {what}"


def wait_for_end(result: PipelineResult) -> PipelineState:
    """Wait until the stream has ended. Returns its state; raises the error of a stream that has failed."""
    state = result.wait_until_finish(PATIENCE)
    assert state.ended, f"waited {PATIENCE:.0f} s for the end of the stream"
    return state

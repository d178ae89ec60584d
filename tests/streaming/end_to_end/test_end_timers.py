"""Timers that go on after the end of input: whoever stops the run does not wait for all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.sdk.runner import PipelineState

TICK = tg.EventTimer("tick")
ENDLESS = 10**12


class Ticking(tg.DoFn):
    """Ticks on each second; tells by a pipe when it has ticked a hundred times, and leaves a file when it is closed."""

    def __init__(self, folder: Path) -> None:
        self.pipe, self.closed = folder / "pipe", folder / "closed"
        self.ticks = 0

    def process(self, pair: Any, tick: Any = tg.DoFn.TimerParam(TICK)) -> None:
        tick.set(1000)

    @tg.on_timer(TICK)
    def ticked(self, at: Any = tg.DoFn.TimestampParam, tick: Any = tg.DoFn.TimerParam(TICK)) -> Iterator[Any]:
        self.ticks += 1
        if self.ticks == 100:
            self.pipe.write_text("ticking")
        if self.ticks % 50 == 0:
            yield at
        tick.set(at + 1)

    def teardown(self) -> None:
        self.closed.touch()


def begun(folder: Path, *flags: str) -> tg.PipelineResult:
    """A run with a live source that ends by itself."""
    pipeline = tg.Pipeline(options=list(flags))
    instants = pipeline | tg.PeriodicImpulse(60, start=0, stop=120)
    _ = instants | tg.WithKeys(lambda instant: "k") | tg.ParDo(Ticking(folder)) | tg.Map(lambda at: at)
    return pipeline.run()


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_cancelling_a_run_acts_between_two_timers(tmp_path: Path, runner: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    own = ["--workers", "1"] if runner == "streaming" else []
    result = begun(tmp_path, "--runner", runner, "--max_end_timers", str(ENDLESS), *own)
    assert (tmp_path / "pipe").read_text() == "ticking"
    assert result.cancel() is PipelineState.CANCELLED
    assert (tmp_path / "closed").exists()  # it was closed, and not killed


def test_a_stop_takes_its_checkpoint_between_two_timers_and_the_next_run_goes_on_there(tmp_path: Path) -> None:
    from tidegate.runners.streaming.result import StreamingResult

    os.mkfifo(tmp_path / "pipe")
    flags = ["--runner", "streaming", "--workers", "1", "--checkpoint_dir", str(tmp_path / "checkpoints")]
    result = begun(tmp_path, *flags, "--max_end_timers", str(ENDLESS))
    assert isinstance(result, StreamingResult)
    assert (tmp_path / "pipe").read_text() == "ticking"
    result.stop()
    assert result.wait_until_finish() is PipelineState.DONE
    # A hundred timers and more have fired: none is left of the ten that may.
    again = begun(tmp_path, *flags, "--max_end_timers", "10")
    assert again.wait_until_finish() is PipelineState.DONE
    assert again.metrics().counter("dropped_timers") == 1

"""Timers that continue after the end of input: stopping the run does not wait for all of them."""

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
    """Ticks on each second; writes to a pipe after a hundred ticks, and creates a file when it is closed."""

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


def begin_run(folder: Path, *flags: str) -> tg.PipelineResult:
    """A run with a live source that ends by itself."""
    pipeline = tg.Pipeline(options=list(flags))
    instants = pipeline | tg.PeriodicImpulse(60, start=0, stop=120)
    _ = instants | tg.WithKeys(lambda instant: "k") | tg.ParDo(Ticking(folder)) | tg.Map(lambda at: at)
    return pipeline.run()


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_cancelling_a_run_takes_effect_between_two_timers(tmp_path: Path, runner: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    workers = ["--workers", "1"] if runner == "streaming" else []
    result = begin_run(tmp_path, "--runner", runner, "--max_end_timers", str(ENDLESS), *workers)
    assert (tmp_path / "pipe").read_text() == "ticking"
    assert result.cancel() is PipelineState.CANCELLED
    assert (tmp_path / "closed").exists()  # it was closed rather than killed


def test_a_stop_takes_its_checkpoint_between_two_timers_from_which_the_next_run_resumes(tmp_path: Path) -> None:
    from tidegate.runners.streaming.result import StreamingResult

    os.mkfifo(tmp_path / "pipe")
    flags = ["--runner", "streaming", "--workers", "1", "--checkpoint_dir", str(tmp_path / "checkpoints")]
    result = begin_run(tmp_path, *flags, "--max_end_timers", str(ENDLESS))
    assert isinstance(result, StreamingResult)
    assert (tmp_path / "pipe").read_text() == "ticking"
    result.stop()
    assert result.wait_until_finish() is PipelineState.DONE
    # More than ten timers have fired before the stop, so that the next run may fire none.
    second = begin_run(tmp_path, *flags, "--max_end_timers", "10")
    assert second.wait_until_finish() is PipelineState.DONE
    assert second.metrics().counter("dropped_timers") == 1

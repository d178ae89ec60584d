"""A stream moves by savepoints from the streaming runner to a real Spark and back, and rescales there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.spark.live_numbers import build, lines
from tests.support.spark.stream_runs import wait_for_end, wait_until
from tidegate.runners.checkpoint.matching import ResumeError
from tidegate.runners.checkpoint.storage.factory import open_storage
from tidegate.runners.streaming.checkpoint.inspect import entries, opened
from tidegate.sdk.errors import RunError
from tidegate.sdk.runner import PipelineResult, PipelineState

COUNT = 400


class Moves:
    """Runs of one stream, which all write to the same files. Its numbers are there as far as a gate is open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._gate = folder / "gate"
        self._out = folder / "out"

    def run(self, number: int, *flags: str) -> PipelineResult:
        """Start a run, with the numbers below `number`."""
        self.open(number)
        pipeline = tg.Pipeline(options=[*flags, "--temp_dir", str(self._folder)])
        build(pipeline, str(self._out), COUNT, str(self._gate))
        return pipeline.run()

    def open(self, number: int) -> None:
        """Open the gate further. The file appears complete."""
        part = self._gate.with_suffix(".part")
        part.write_text(str(number))
        part.rename(self._gate)

    def wait_for(self, result: PipelineResult, text: str) -> None:
        """Wait until a line that ends so has been written."""
        wait_until(result, lambda: any(line.endswith(text) for line in self.lines()), f"a line that ends in {text!r}")

    def lines(self) -> list[str]:
        return lines(self._out)


@pytest.fixture
def complete(tmp_path: Path) -> list[str]:
    """The lines of a run that never stops."""
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    build(pipeline, str(tmp_path / "direct"), COUNT)
    pipeline.run().wait_until_finish()
    return lines(tmp_path / "direct")


def test_a_stream_moves_to_spark_and_back_as_if_it_had_never_stopped(
    spark_session: Any, tmp_path: Path, complete: list[str]
) -> None:
    """At each move windows are open, timers are pending, and splits are half read. On Spark it rescales, too."""
    moves = Moves(tmp_path)
    first, second, third, meanwhile = (str(tmp_path / name) for name in ("first", "second", "third", "meanwhile"))
    native = ["--runner", "streaming", "--checkpoint_interval", "200ms"]
    spark = ["--runner", "spark", "--spark_trigger_interval", "100ms"]

    result = moves.run(110, *native, "--workers", "2")
    moves.wait_for(result, "at 100")
    result.stop(savepoint=first)
    assert wait_for_end(result) is PipelineState.DONE

    checkpoint = ["--spark_checkpoint_dir", str(tmp_path / "checkpoint"), "--spark_partitions", "2"]
    result = moves.run(160, *spark, *checkpoint, "--from_savepoint", first, "--spark_savepoint_dir", second)
    moves.wait_for(result, "at 150")
    result.savepoint(meanwhile)
    moves.open(210)
    moves.wait_for(result, "at 200")
    result.stop()
    assert wait_for_end(result) is PipelineState.DONE
    with pytest.raises(RunError, match="the run ended before it was complete"):
        result.savepoint(meanwhile)

    rescaled = ["--spark_partitions", "5", "--from_savepoint", second]
    result = moves.run(260, *spark, *rescaled)
    moves.wait_for(result, "at 250")
    result.stop(savepoint=third)
    assert wait_for_end(result) is PipelineState.DONE

    result = moves.run(COUNT, *native, "--workers", "3", "--from_savepoint", third)
    assert wait_for_end(result) is PipelineState.DONE
    assert moves.lines() == complete

    manifest, _ = opened(open_storage(third), third)
    assert {part.parallelism for part in manifest.tasks} == {5}
    counts = {entry.key: entry.value for entry in entries(open_storage(third), manifest) if entry.step == "track"}
    assert set(counts) == {f"k{n}" for n in range(7)}
    manifest, _ = opened(open_storage(meanwhile), meanwhile)
    assert sorted(position for part in manifest.tasks for each in part.splits for _, position in each.current) == [
        160,
        161,
    ]

    other = tg.Pipeline(options=[*spark, *rescaled])
    _ = other | "tick" >> tg.PeriodicImpulse(1) | tg.Map(print)
    with pytest.raises(ResumeError, match=r"savepoint .* holds state that no step claims: .*'track'"):
        other.run()

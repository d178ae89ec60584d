"""The example of alerts: the output for a scripted stream, and the same output when the run is stopped and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tests.support.example_scripts import EXAMPLES, lines_of, load_example, tidegate_command
from tidegate.testing import TestPipeline, TestStream, assert_that, equal_to

alerts = load_example("alerts")


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_heat_and_silence_are_reported_when_they_begin_and_when_they_end(runner: str) -> None:
    def at(second: int, celsius: float) -> tg.TimestampedValue[object]:
        return tg.TimestampedValue(("kiln", alerts.Reading("kiln", celsius)), second)

    script = TestStream()
    for second, celsius in enumerate([80, 90, 91, 92, 93, 80]):
        script = script.add_elements([at(second, celsius)]).advance_watermark_to(second)
    script = script.advance_watermark_to(10).add_elements([at(10, 70)]).advance_watermark_to_infinity()
    p = TestPipeline(options=["--runner", runner])
    lines = p | script | tg.ParDo(alerts.Watch(85.0, 2.0)) | tg.Map(alerts.as_line)
    assert_that(
        lines,
        equal_to(
            [
                "00:00:03 kiln: 92.0 °C, and above 85 for 2 s",
                "00:00:05 kiln: has cooled down to 80.0 °C",
                "00:00:07 kiln: silent for 2 s",
                "00:00:10 kiln: reports again",
                "00:00:12 kiln: silent for 2 s",
            ]
        ),
    )
    p.run()


def test_each_mean_is_written_once_when_the_run_is_stopped_and_resumed(tmp_path: Path) -> None:
    command = ["run", EXAMPLES / "alerts.py", "--runner", "streaming", "--workers", "2", "--run_for", "1.5"]
    command += ["--checkpoint_dir", tmp_path / "checkpoints", "--checkpoint_interval", "0.2"]
    command += ["--output", tmp_path / "out/watch", "--every", "0.02", "--window", "1"]
    seen = 0
    for _ in range(2):
        tidegate_command(*command)
        means = [line.rpartition(":")[0] for line in lines_of(tmp_path / "out/watch-means")]
        assert len(means) == len(set(means)) > seen  # one per window and machine
        seen = len(means)

"""Open windows of a stopped stream fire only if no later run could restore them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import tidegate as tg

CENTURY = tg.Duration.of(timedelta(days=36525))
MAX_POLLS = 600
"""Number of polls, of 0.1 s each, after which a run without output counts as failed."""


def output_of_stopped_run(folder: Path, *options: str) -> list[str]:
    """The output of a run that was stopped while its only window was open."""
    reached = folder / "seen"
    p = tg.Pipeline(options=[*options])
    _ = (
        p
        | tg.PeriodicImpulse(3600)
        | tg.Map(lambda _: 1)
        | "window opened" >> tg.Map(lambda n: reached.touch() or n)
        | tg.WindowInto(tg.FixedWindows(CENTURY))
        | tg.CombineGlobally(sum).without_defaults()
        | tg.Map(str)
        | tg.io.WriteToText(str(folder / "out"))
    )
    result = p.run()
    for _ in range(MAX_POLLS):
        if reached.exists():
            break
        result.wait_until_finish(0.1)
    result.stop()
    assert result.wait_until_finish(60).ended
    return [line for path in folder.glob("out*") if path.is_file() for line in path.read_text().split()]


@pytest.mark.parametrize("retained", [False, True])
@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_a_stop_fires_open_windows_only_if_no_checkpoint_is_retained(
    tmp_path: Path, runner: str, retained: bool
) -> None:
    options = ["--runner", runner]
    if retained and runner == "streaming":
        options += ["--checkpoint_dir", str(tmp_path / "checkpoints")]
    drained = runner == "streaming" and not retained
    assert (output_of_stopped_run(tmp_path, *options) != []) == drained

"""Open windows of a stopped stream don't fire, unless no later run could continue with them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import tidegate as tg

CENTURY = tg.Duration.of(timedelta(days=36525))
PATIENCE = 600
"""Polls, of 0.1 s each, until a run that gives nothing has failed."""


def stopped(folder: Path, *options: str) -> list[str]:
    """The output of a run that was stopped while its only window was open."""
    seen = folder / "seen"
    p = tg.Pipeline(options=[*options])
    _ = (
        p
        | tg.PeriodicImpulse(3600)
        | tg.Map(lambda _: 1)
        | "see" >> tg.Map(lambda n: seen.touch() or n)
        | tg.WindowInto(tg.FixedWindows(CENTURY))
        | tg.CombineGlobally(sum).without_defaults()
        | tg.Map(str)
        | tg.io.WriteToText(str(folder / "out"))
    )
    result = p.run()
    for _ in range(PATIENCE):
        if seen.exists():
            break
        result.wait_until_finish(0.1)
    result.stop()
    assert result.wait_until_finish(60).ended
    return [line for path in folder.glob("out*") if path.is_file() for line in path.read_text().split()]


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_a_stop_closes_no_window_unless_the_runner_has_checkpoints_and_none_of_them_will_stay(
    tmp_path: Path, runner: str, keeps: bool
) -> None:
    options = ["--runner", runner]
    if keeps and runner == "streaming":
        options += ["--checkpoint_dir", str(tmp_path / "checkpoints")]
    drained = runner == "streaming" and not keeps
    assert (stopped(tmp_path, *options) != []) == drained

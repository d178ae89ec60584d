"""A loop counts each round once, in its result, its metrics and its output, also if a worker dies in a round."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.example_scripts import lines_of


@pytest.mark.parametrize("mode", ["batch", "streaming"])
def test_a_worker_that_dies_in_a_round_changes_nothing(mode: str, tmp_path: Path) -> None:
    died = tmp_path / "died"

    def plus_one(n: int, number: int = tg.DoFn.RoundParam) -> int:
        if number == 3 and n >= 100 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        tg.Metrics.counter("mine", "calls").inc()
        return n + 1

    def step(before: Any) -> Any:
        new = before | tg.Reshuffle() | "plus one" >> tg.Map(plus_one)
        seen = new | tg.Map(lambda n, number=tg.DoFn.RoundParam: f"{number}: {n}")
        return tg.Round(new, out={"seen": seen})

    p = tg.Pipeline("streaming", {"mode": mode, "workers": 2, "checkpoint_interval": "20ms"})
    loop = p | tg.Create([1, 100]) | tg.Iterate(step, rounds=5)
    _ = loop.result | tg.Map(str) | "result" >> tg.io.WriteToText(str(tmp_path / "result"))
    _ = loop.out["seen"] | "seen" >> tg.io.WriteToText(str(tmp_path / "seen"))
    result = p.run()
    result.wait_until_finish()
    assert died.exists()
    assert sorted(lines_of(tmp_path / "result")) == ["105", "6"]
    seen = [f"{number}: {n + number}" for number in range(1, 6) for n in (1, 100)]
    assert sorted(lines_of(tmp_path / "seen")) == sorted(seen)
    assert result.metrics().counter("rounds") == 5
    assert result.metrics().counter("calls") == 10

"""The live table of a run whose runner reports how its stages spend their time."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from tidegate.cli.progress import Display, StageTimes
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey, MetricResults
from tidegate.sdk.portable.model import Pipeline
from tidegate.sdk.portable.seal import this_environment
from tidegate.sdk.runner import PipelineResult, PipelineState, StageProgress


def test_stage_times_are_percentages_of_the_time_since_the_last_sample() -> None:
    times = StageTimes()
    times.sample([StageProgress(("read", "map"), 1.0, 3.0, 0.0), StageProgress(("sum",), 1.0, 0.0, 1.0, 90.0)])
    assert times.by_step == {
        "read": ("25%", "75%", "0%", ""),
        "map": ("25%", "75%", "0%", ""),
        "sum": ("50%", "0%", "50%", "90.0 s"),
    }
    times.sample([StageProgress(("read", "map"), 4.0, 3.0, 1.0, 7200.0)])
    assert times.by_step["map"] == ("75%", "0%", "25%", "2 h")


def test_times_without_a_new_report_do_not_change_and_those_of_a_restart_count_from_it() -> None:
    times = StageTimes()
    times.sample([StageProgress(("s",), 3.0, 1.0, 0.0)])
    times.sample([StageProgress(("s",), 3.0, 1.0, 0.0)])
    assert times.by_step["s"][0] == "75%"
    times.sample([StageProgress(("s",), 1.0, 1.0, 0.0)])
    assert times.by_step["s"][0] == "75%"
    times.sample([StageProgress(("s",), 1.0, 3.0, 0.0)])
    assert times.by_step["s"][0] == "0%"


class Busy(PipelineResult):
    state = PipelineState.RUNNING

    def wait_until_finish(self, timeout: float | None = None) -> PipelineState:
        return self.state

    def cancel(self) -> PipelineState:
        return self.state

    def metrics(self) -> MetricResults:
        cells = MetricCells()
        for step in ("read", "drawn elsewhere"):
            cells.count(MetricKey(step, ENGINE, "elements_out"), 1234)
        cells.count(MetricKey("", ENGINE, "checkpoints_failed"))
        last = {"": 3, "_size": 1500, "_duration": 0.25, "_alignment": 0.0123, "_pause": 0.0}
        cells.gauges = {MetricKey("", ENGINE, f"checkpoint{name}"): value for name, value in last.items()}
        cells.gauges[MetricKey("", ENGINE, "sources_paused")] = 1
        return MetricResults(cells)

    def stages(self) -> list[StageProgress]:
        return [StageProgress(("read",), 1.0, 0.0, 3.0, 5.25)]


def test_the_table_has_busy_idle_and_held_back_times_and_the_lag() -> None:
    display = Display(Pipeline((), (), this_environment(), name="p"))
    display.follow(Busy())
    display._sample()
    printed: Any = StringIO()
    Console(file=printed, width=100).print(display._table(40))
    lines = printed.getvalue().splitlines()
    assert lines[1].split() == ["step", "elements", "per", "second", "busy", "idle", "held", "back", "behind"]
    assert lines[3].split() == ["read", "1,234", "0", "25%", "0%", "75%", "5.2", "s"]
    assert lines[2].split() == ["drawn", "elsewhere", "1,234", "0"]
    last = "checkpoint 3: 1,500 bytes in 0.25 s, alignment 0.01 s, 1 failed, sources paused until commits are done"
    assert " ".join(" ".join(lines[4:]).split()) == last


def test_the_table_is_plain_for_a_runner_without_stage_times() -> None:
    display = Display(Pipeline((), (), this_environment(), name="p"))
    result = Busy()
    result.stages = list  # type: ignore[method-assign, assignment]
    display.follow(result)
    display._sample()
    printed: Any = StringIO()
    Console(file=printed, width=100).print(display._table(40))
    assert printed.getvalue().splitlines()[1].split() == ["step", "elements", "per", "second"]

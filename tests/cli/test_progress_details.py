"""The progress of a run shows the rounds of loops, and calls of other services in flight with their durations."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from tidegate.cli.progress import Display
from tidegate.sdk.metrics import ENGINE, DistributionResult, MetricCells, MetricKey, in_round
from tidegate.sdk.portable.model import Pipeline
from tidegate.sdk.portable.seal import this_environment


def displayed(cells: MetricCells) -> tuple[str, str]:
    """The line and the table of a run with these metrics."""
    display = Display(Pipeline((), (), this_environment(), name="p"))
    display.watch(cells)
    display._sample()
    out: Any = StringIO()
    Console(file=out, width=100).print(display._table(40))
    return display._line(), out.getvalue()


def metrics_with_calls(in_flight: int) -> MetricCells:
    cells = MetricCells()
    cells.count(MetricKey("ask", ENGINE, "elements_out"), 7)
    cells.count(MetricKey("ask", ENGINE, "calls_in_flight"), in_flight)
    cells.distributions[MetricKey("ask", ENGINE, "call_seconds")] = DistributionResult(4, 2.0, 0.1, 1.25)
    return cells


def test_calls_in_flight_are_shown_with_their_durations() -> None:
    for text in displayed(metrics_with_calls(1200)):
        assert "1,200 calls of 'ask' in flight, 0.5 s each, 1.2 s at most" in " ".join(text.split())


def test_calls_are_not_mentioned_when_there_are_none() -> None:
    for text in displayed(metrics_with_calls(0)):
        assert "calls" not in text


def test_the_last_round_of_a_loop_is_shown_with_what_it_has_left() -> None:
    cells = metrics_with_calls(0)
    for number, left in ((1, 5), (12, 1_240), (3, 7)):
        of_round = MetricCells()
        of_round.count(MetricKey("loop", ENGINE, "fed_back"), left)
        cells.merge(of_round)
        cells.merge(in_round(of_round, number))
    for text in displayed(cells):
        assert "round 12 of 'loop' left 1,240 elements" in " ".join(text.split())

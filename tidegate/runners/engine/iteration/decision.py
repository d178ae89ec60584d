"""Whether a loop has another round: a pure function of what a round has emitted (SEMANTICS, Iterations).
And the metrics of its rounds, and of how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final, Literal, TypeAlias

from tidegate.runners.engine.errors.attribution import located
from tidegate.sdk.errors import RunError, counted
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey, in_round
from tidegate.sdk.portable.model import Iterate

Decision: TypeAlias = Literal["again", "over", "unmet"]
"""Another round; the end; or the end since there are no more rounds, although the loop's condition is not met."""

ROUNDS: Final = "rounds"
CONVERGED: Final = "converged"
NOT_CONVERGED: Final = "not_converged"
"""The counters of a loop's rounds and, for each of its runs, of how it ended."""

FED_BACK: Final = "fed_back"
SECONDS: Final = "seconds"
"""The counter of the elements that rounds leave for the next, and the gauge of a round's duration."""

ROUNDS_KEPT: Final = 1_000
"""Of how many rounds, the first ones, each has metrics of its own."""


def decide(loop: Iterate, done: int, emitted: Mapping[str, int]) -> Decision:
    """Whether there is a round after the first `done`, of which the last emitted so many elements of each collection.

    Elements of all windows and all tasks count together: the loop is over for all of them at once. Of a variable, the
    elements that the next round would find count as those of `before`.
    """
    if done:
        if any(variable.drives and not emitted[variable.before] for variable in loop.variables):
            return "over"
        if any(not emitted[collection] for collection in loop.again):
            return "over"
        if loop.until is not None and emitted[loop.until]:
            return "over"
    return decide_by_number(loop, done)


def decide_by_number(loop: Iterate, done: int) -> Decision:
    """Whether there is a round after the first `done`, of which the last has not met the loop's condition. There may be
    more of them than the loop has, if it is restored and has had more."""
    if done < loop.rounds:
        return "again"
    return "unmet" if loop.has_condition else "over"


def count_round(
    total: MetricCells,
    loop: Iterate,
    number: int,
    fed_back: int,
    seconds: float,
    metrics: MetricCells | None = None,
    labels: Set[str] = frozenset(),
) -> None:
    """Add a round's metrics to those of the run, and keep them by round as well. `metrics`: those of all steps, of
    which these `labels` are in the body."""
    cells = MetricCells()
    cells.count(MetricKey(loop.label, ENGINE, FED_BACK), fed_back)
    total.merge(cells)
    if number <= ROUNDS_KEPT:
        if metrics is not None:
            cells.merge(metrics.of_steps(labels))
        cells.gauges[MetricKey(loop.label, ENGINE, SECONDS)] = seconds
        total.merge(in_round(cells, number))
    if metrics is not None:
        total.merge(metrics)


def count_end(total: MetricCells, loop: Iterate, rounds: int, decision: Decision) -> None:
    """Add how a loop ended to the metrics of the run."""
    total.count(MetricKey(loop.label, ENGINE, ROUNDS), rounds)
    total.count(MetricKey(loop.label, ENGINE, CONVERGED if decision == "over" else NOT_CONVERGED))


def not_met(loop: Iterate, done: int) -> BaseException:
    """The error of a strict loop that is over although its condition is not met."""
    return located(
        RunError(
            f"the loop was over after {counted(done, 'round')}, and its condition was not met: give it more rounds or "
            "another condition, or leave out strict=True to take what the last round gave"
        ),
        loop.label,
        loop.where,
    )

"""Element counts per step during a run: each task adds its counts to an accumulator when it ends.

Only classic sessions have accumulators; over Connect the counts are updated at the end of each action. Live counts are
approximate, as a retried task counts twice. The exact metrics of an action replace them when it is over.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey

_accumulators: Final[weakref.WeakKeyDictionary[Any, Any]] = weakref.WeakKeyDictionary()
"""One accumulator per SparkContext, with the counts of all runs: Spark never frees an accumulator."""


class LiveCounts:
    """The counts of one run. `exact` has the metrics of completed actions, `displayed` those that the user sees."""

    def __init__(self, spark: Any, run_id: str, exact: MetricCells, displayed: MetricCells) -> None:
        self._run_id = run_id
        self._exact = exact
        self._displayed = displayed
        self._in_exact: dict[str, int] = {}
        context = getattr(spark, "_sc", None)
        self.accumulator = None if context is None else _accumulator(context)

    def refresh(self) -> None:
        """Display the exact counts plus those that tasks of the current action have reported."""
        counters = dict(self._exact.counters)
        for label, n in self._reported().items():
            key = MetricKey(label, ENGINE, "elements_out")
            counters[key] = counters.get(key, 0) + n - self._in_exact.get(label, 0)
        self._displayed.counters = counters

    def end_action(self) -> None:
        """Call this when an action has ended and its metrics are in `exact`."""
        self._in_exact = dict(self._reported())
        self.refresh()

    def close(self) -> None:
        """Remove the run's counts from the accumulator."""
        if self.accumulator is not None:
            self.accumulator.value.pop(self._run_id, None)

    def _reported(self) -> dict[str, int]:
        return {} if self.accumulator is None else dict(self.accumulator.value.get(self._run_id, {}))


def _accumulator(context: Any) -> Any:
    """A SparkContext's accumulator of `{run: {label: count}}`."""
    found = _accumulators.get(context)
    if found is None:
        from pyspark.accumulators import AccumulatorParam

        class Param(AccumulatorParam[dict[str, dict[str, int]]]):
            """Defined inside a function so that it is pickled by value: a worker unpickles it without Tidegate."""

            def zero(self, value: Any) -> Any:
                return {}

            def addInPlace(self, value1: Any, value2: Any) -> Any:
                for run, counts in value2.items():
                    sums = value1.setdefault(run, {})
                    for label, n in counts.items():
                        sums[label] = sums.get(label, 0) + n
                return value1

        found = _accumulators[context] = context.accumulator({}, Param())
    return found

"""Elements per step while a run goes on: tasks add what they have counted to an accumulator as they end.

Only a classic session has accumulators; over Connect counts come with the end of each action. What is shown so is for
whoever looks on: a task that is done again counts again, and when an action is over its exact metrics take the place.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey

_accumulators: Final[weakref.WeakKeyDictionary[Any, Any]] = weakref.WeakKeyDictionary()
"""One of each SparkContext, which never forgets any: for each run the counts of its steps."""


class LiveCounts:
    """The counts of one run. `exact` are the metrics of actions that are over, `shown` what people see."""

    def __init__(self, spark: Any, run_id: str, exact: MetricCells, shown: MetricCells) -> None:
        self._run_id = run_id
        self._exact = exact
        self._shown = shown
        self._before: dict[str, int] = {}
        context = getattr(spark, "_sc", None)
        self.accumulator = None if context is None else _accumulator(context)

    def refresh(self) -> None:
        """Show what tasks have told by now."""
        counters = dict(self._exact.counters)
        for label, n in self._reported().items():
            key = MetricKey(label, ENGINE, "elements_out")
            counters[key] = counters.get(key, 0) + n - self._before.get(label, 0)
        self._shown.counters = counters

    def settle(self) -> None:
        """An action is over, and `exact` has its metrics."""
        self._before = dict(self._reported())
        self.refresh()

    def close(self) -> None:
        """The run is over."""
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
            """A class inside a function is pickled whole: a worker needs no Tidegate to read it."""

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

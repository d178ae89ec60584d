"""Metrics: the counters, distributions, gauges and string sets that an author's code updates.

A metric is attributed to the step that is running. Fused steps run inside one generated function, so the step is
derived from the line which that function is executing. This costs nothing unless a metric is updated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from types import FrameType
from typing import Any, Final

GENERATED: Final = "<tidegate:"
"""The prefix of the file names of generated functions; the engine registers their lines in `STEP_OF_LINE`."""

STEP_OF_LINE: Final[dict[str, dict[int, str]]] = {}


@dataclass(frozen=True, slots=True, order=True)
class MetricKey:
    """Identifies a metric: the step's label path, and the author's namespace and name."""

    step: str
    namespace: str
    name: str

    def __reduce__(self) -> tuple[Any, ...]:
        return MetricKey, (self.step, self.namespace, self.name)  # ten times as fast as a frozen dataclass's own


@dataclass(frozen=True, slots=True)
class DistributionResult:
    """The count, sum, minimum and maximum of a distribution's values."""

    count: int = 0
    sum: int | float = 0
    min: int | float | None = None
    max: int | float | None = None

    @property
    def mean(self) -> float:
        """The mean; NaN if there are no values."""
        return self.sum / self.count if self.count else float("nan")

    def __str__(self) -> str:
        if not self.count:
            return "count 0"
        return f"count {self.count}, sum {self.sum}, min {self.min}, max {self.max}, mean {self.mean:g}"


@dataclass(slots=True)
class MetricCells:
    """The metrics of a run, or of one of its tasks; `merge` combines those of several tasks."""

    counters: dict[MetricKey, int] = field(default_factory=dict)
    distributions: dict[MetricKey, DistributionResult] = field(default_factory=dict)
    gauges: dict[MetricKey, Any] = field(default_factory=dict)
    string_sets: dict[MetricKey, set[str]] = field(default_factory=dict)

    def count(self, key: MetricKey, n: int = 1) -> None:
        """Add `n` to a counter."""
        self.counters[key] = self.counters.get(key, 0) + n

    def merge(self, other: MetricCells) -> None:
        """Add another task's metrics to these; its gauges replace those of the same key."""
        for key, n in other.counters.items():
            self.count(key, n)
        for key, d in other.distributions.items():
            self.distributions[key] = merge_distributions(self.distributions.get(key, DistributionResult()), d)
        self.gauges.update(other.gauges)
        for key, strings in other.string_sets.items():
            self.string_sets.setdefault(key, set()).update(strings)

    def copy(self) -> MetricCells:
        """A consistent copy, even while another thread updates the metrics: copying a dict is atomic."""
        return MetricCells(
            self.counters.copy(),
            self.distributions.copy(),
            self.gauges.copy(),
            {key: strings.copy() for key, strings in self.string_sets.copy().items()},
        )

    def of_steps(self, labels: Set[str]) -> MetricCells:
        """The metrics of some steps."""
        return MetricCells(
            *({key: value for key, value in table.items() if key.step in labels} for table in self.tables)
        )

    def by_key(self, key_of: Callable[[MetricKey], MetricKey]) -> MetricCells:
        """The same metrics under other keys."""
        return MetricCells(*({key_of(key): value for key, value in table.items()} for table in self.tables))

    @property
    def tables(self) -> tuple[dict[MetricKey, Any], ...]:
        """Counters, distributions, gauges and string sets."""
        return self.counters, self.distributions, self.gauges, self.string_sets


ROUND: Final = "@round "
"""Stands between a step's label and the number of a round, in keys of metrics of one round."""


def in_round(cells: MetricCells, number: int) -> MetricCells:
    """The metrics as those of one round of a loop, which `MetricResults.by_round` returns."""
    return cells.by_key(lambda key: MetricKey(f"{key.step}{ROUND}{number}", key.namespace, key.name))


def merge_distributions(a: DistributionResult, b: DistributionResult) -> DistributionResult:
    """The distribution of the values of both."""
    lows = [x for x in (a.min, b.min) if x is not None]
    highs = [x for x in (a.max, b.max) if x is not None]
    return DistributionResult(
        a.count + b.count, a.sum + b.sum, min(lows) if lows else None, max(highs) if highs else None
    )


_cells: Final[ContextVar[MetricCells | None]] = ContextVar("tidegate_metric_cells", default=None)
_step: Final[ContextVar[str]] = ContextVar("tidegate_step", default="")


@contextmanager
def collecting(cells: MetricCells) -> Iterator[MetricCells]:
    """A context in which the metrics updated by this thread, or by this asyncio task, are stored in `cells`."""
    before = _cells.get()
    _cells.set(cells)
    try:
        yield cells
    finally:
        _cells.set(before)


class in_step:
    """A context that attributes metrics to this step, for code outside generated functions, such as combiners.

    It is a class because it is entered several times for each block, and a generator would cost three times as much.
    """

    __slots__ = ("_before", "_label")

    def __init__(self, label: str) -> None:
        self._label = label

    def __enter__(self) -> None:
        self._before = _step.get()
        _step.set(self._label)

    def __exit__(self, *raised: object) -> None:
        _step.set(self._before)


def current_step(frame: FrameType | None) -> str:
    """The step that is running, found by walking up the stack from `frame`."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(GENERATED):
            found = STEP_OF_LINE.get(file, {}).get(frame.f_lineno)
            if found is not None:
                return found
        frame = frame.f_back
    return _step.get()


class _Metric:
    __slots__ = ("name", "namespace")

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name

    def _key(self) -> MetricKey:
        return MetricKey(_step.get() or current_step(sys._getframe(2)), self.namespace, self.name)


class Counter(_Metric):
    """An integer to which updates are added."""

    __slots__ = ()

    def inc(self, n: int = 1) -> None:
        """Add `n`."""
        if (cells := _cells.get()) is not None:
            cells.count(self._key(), n)

    def dec(self, n: int = 1) -> None:
        """Subtract `n`."""
        self.inc(-n)


class Distribution(_Metric):
    """The count, sum, minimum and maximum of numbers."""

    __slots__ = ()

    def update(self, value: int | float) -> None:
        """Add a number."""
        if (cells := _cells.get()) is not None:
            key = self._key()
            cells.distributions[key] = merge_distributions(
                cells.distributions.get(key, DistributionResult()), DistributionResult(1, value, value, value)
            )


class Gauge(_Metric):
    """The latest value."""

    __slots__ = ()

    def set(self, value: int | float) -> None:
        """Set the value."""
        if (cells := _cells.get()) is not None:
            cells.gauges[self._key()] = value


class StringSet(_Metric):
    """The set of distinct strings added."""

    __slots__ = ()

    def add(self, value: str) -> None:
        """Add a string."""
        if (cells := _cells.get()) is not None:
            cells.string_sets.setdefault(self._key(), set()).add(value)


class Metrics:
    """Creates metrics: `Metrics.counter(namespace, name).inc()` in any function of the author's that runs in a step."""

    @staticmethod
    def counter(namespace: str | type, name: str) -> Counter:
        """A counter; if the namespace is a class, its qualified name is used."""
        return Counter(_namespace(namespace), name)

    @staticmethod
    def distribution(namespace: str | type, name: str) -> Distribution:
        """A distribution."""
        return Distribution(_namespace(namespace), name)

    @staticmethod
    def gauge(namespace: str | type, name: str) -> Gauge:
        """A gauge."""
        return Gauge(_namespace(namespace), name)

    @staticmethod
    def string_set(namespace: str | type, name: str) -> StringSet:
        """A set of strings."""
        return StringSet(_namespace(namespace), name)


@dataclass(frozen=True, slots=True)
class MetricResult:
    """A metric's value during or after a run."""

    key: MetricKey
    value: Any

    def __str__(self) -> str:
        return f"{self.key.step}: {self.key.namespace}.{self.key.name} = {_words(self.value)}"


ENGINE: Final = "tidegate"
"""The namespace of the engine's own metrics: `elements_out`, `dropped_late`, `dropped_closed`, …"""


@lru_cache(4096)
def engine_key(step: str, name: str) -> MetricKey:
    """The key of one of the engine's own metrics, which may be counted with every block."""
    return MetricKey(step, ENGINE, name)


FILES_WRITTEN: Final = "files_written"
"""The engine's counter of files that a step has made visible."""

LAST_FILE: Final = "last_file"
"""The engine's gauge with the name of the last such file."""


class MetricResults:
    """The metrics of a run when they were read: `query(name=…, step=…)`, or `counter(name)` for the sum over all
    steps."""

    def __init__(self, cells: MetricCells) -> None:
        self._cells = cells.copy()  # another thread may still be running the pipeline

    def __repr__(self) -> str:
        return f"<metrics {'; '.join(f'{m.key.step}: {m.key.namespace}.{m.key.name}={m.value!r}' for m in self.all())}>"

    def __str__(self) -> str:
        """A line for each metric."""
        return "\n".join(map(str, self.all())) or "no metrics"

    def all(self) -> Iterator[MetricResult]:
        """Every metric, ordered by step, namespace and name."""
        found = [MetricResult(key, value) for table in self._cells.tables for key, value in table.items()]
        yield from sorted((result for result in found if ROUND not in result.key.step), key=lambda result: result.key)

    def by_round(self, step: str) -> dict[int, MetricResults]:
        """The metrics of a loop, or of a step in its body, by the number of the round. `step` is its label path, or the
        path's last parts if no path is that.

        Of a loop these are `fed_back`, how many elements a round left for the next, and `seconds`. A loop within a loop
        has rounds of its own: the counters of all of its runs are added up, and `seconds` are of the last. Metrics are
        kept by round for the first 1,000 rounds; `query` has the totals of all rounds.
        """
        exact: dict[int, MetricCells] = {}
        by_last_parts: dict[int, MetricCells] = {}
        for kind, table in enumerate(self._cells.tables):
            for key, value in table.items():
                label, is_of_round, number = key.step.rpartition(ROUND)
                if is_of_round and (label == step or label.endswith("/" + step)):
                    found = exact if label == step else by_last_parts
                    cells = found.setdefault(int(number), MetricCells())
                    cells.tables[kind][MetricKey(label, key.namespace, key.name)] = value
        chosen = exact or by_last_parts
        return {number: MetricResults(chosen[number]) for number in sorted(chosen)}

    def query(
        self, name: str | None = None, *, namespace: str | type | None = None, step: str | None = None
    ) -> list[MetricResult]:
        """The metrics with the given name, namespace and step; a step matches by label path or by its last parts."""
        return [
            result
            for result in self.all()
            if (name is None or result.key.name == name)
            and (namespace is None or result.key.namespace == _namespace(namespace))
            and (step is None or result.key.step == step or result.key.step.endswith("/" + step))
        ]

    def counter(self, name: str, *, namespace: str | type | None = None, step: str | None = None) -> int:
        """The sum of the counters with this name; 0 if there are none."""
        keys = {result.key for result in self.query(name, namespace=namespace, step=step)}
        return sum(n for key, n in self._cells.counters.items() if key in keys)


def _words(value: Any) -> str:
    """A metric's value as text."""
    match value:
        case set():
            return ", ".join(sorted(value))
        case _:
            return str(value)


def _namespace(namespace: str | type) -> str:
    return namespace if isinstance(namespace, str) else f"{namespace.__module__}.{namespace.__qualname__}"

"""Metrics as JSON, for manifests and job records.

A checkpoint stores the metrics of a running task with its state. Manifests and job records hold the metrics of tasks
that have ended, which have no state files.
"""

from __future__ import annotations

from typing import Any

from tidegate.sdk.metrics import DistributionResult, MetricCells, MetricKey


def metrics_out(cells: MetricCells) -> dict[str, Any]:
    """Convert metrics to JSON fields. Drops gauges of other types than number, bool and string."""
    return {
        "counters": [[*_key_fields(key), n] for key, n in sorted(cells.counters.items())],
        "distributions": [
            [*_key_fields(key), d.count, d.sum, d.min, d.max]
            for key, d in sorted(cells.distributions.items(), key=_by_key)
        ],
        "gauges": [
            [*_key_fields(key), value]
            for key, value in sorted(cells.gauges.items(), key=_by_key)
            if type(value) in (bool, int, float, str)
        ],
        "string_sets": [
            [*_key_fields(key), sorted(strings)] for key, strings in sorted(cells.string_sets.items(), key=_by_key)
        ],
    }


def metrics_in(fields: Any) -> MetricCells:
    """Parse the fields that `metrics_out` made. Raises ValueError, TypeError or KeyError if they are malformed."""
    return MetricCells(
        {MetricKey(step, namespace, name): int(n) for step, namespace, name, n in fields["counters"]},
        {
            MetricKey(step, namespace, name): DistributionResult(count, total, smallest, largest)
            for step, namespace, name, count, total, smallest, largest in fields["distributions"]
        },
        {MetricKey(step, namespace, name): value for step, namespace, name, value in fields["gauges"]},
        {MetricKey(step, namespace, name): set(strings) for step, namespace, name, strings in fields["string_sets"]},
    )


def _key_fields(key: MetricKey) -> list[str]:
    return [key.step, key.namespace, key.name]


def _by_key(item: tuple[MetricKey, Any]) -> MetricKey:
    return item[0]

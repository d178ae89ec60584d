"""What tasks have counted, as JSON: of bounded history that is over before there are checkpoints to hold it."""

from __future__ import annotations

from typing import Any

from tidegate.sdk.metrics import DistributionResult, MetricCells, MetricKey


def metrics_out(cells: MetricCells) -> dict[str, Any]:
    """As lists of lists. Of gauges only numbers and strings are kept: the others are the author's own values."""
    return {
        "counters": [[*_name(key), n] for key, n in sorted(cells.counters.items())],
        "distributions": [
            [*_name(key), d.count, d.sum, d.min, d.max] for key, d in sorted(cells.distributions.items(), key=_by_key)
        ],
        "gauges": [
            [*_name(key), value]
            for key, value in sorted(cells.gauges.items(), key=_by_key)
            if type(value) in (bool, int, float, str)
        ],
        "string_sets": [
            [*_name(key), sorted(strings)] for key, strings in sorted(cells.string_sets.items(), key=_by_key)
        ],
    }


def metrics_in(fields: Any) -> MetricCells:
    """The same back. ValueError, TypeError or KeyError for what `metrics_out` has not made."""
    return MetricCells(
        {MetricKey(step, namespace, name): int(n) for step, namespace, name, n in fields["counters"]},
        {
            MetricKey(step, namespace, name): DistributionResult(count, total, least, most)
            for step, namespace, name, count, total, least, most in fields["distributions"]
        },
        {MetricKey(step, namespace, name): value for step, namespace, name, value in fields["gauges"]},
        {MetricKey(step, namespace, name): set(strings) for step, namespace, name, strings in fields["string_sets"]},
    )


def _name(key: MetricKey) -> list[str]:
    return [key.step, key.namespace, key.name]


def _by_key(item: tuple[MetricKey, Any]) -> MetricKey:
    return item[0]

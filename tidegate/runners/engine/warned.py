"""What a run warns of when it is over: in the author's log, or on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from tidegate.runners.engine.timers import DROPPED_TIMERS, FULL_KEYS
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey

LOGGER: Final = "tidegate"
"""The logger that an author may configure. Without a handler, warnings go to stderr."""


def warn_of(metrics: MetricCells, max_end_timers: int) -> None:
    """Say once for each step whose timers went on after the end of input that some of them were dropped."""
    for text in warnings(metrics, max_end_timers):
        logging = sys.modules.get("logging")
        if logging is not None and (logger := logging.getLogger(LOGGER)).hasHandlers():
            logger.warning("%s", text)
        else:
            print(f"tidegate: warning: {text}", file=sys.stderr, flush=True)


def warnings(metrics: MetricCells, max_end_timers: int) -> Iterator[str]:
    """The lines of `warn_of`."""
    for key, keys in sorted(metrics.counters.items(), key=lambda item: item[0].step):
        if (key.namespace, key.name) == (ENGINE, FULL_KEYS) and keys:
            dropped = metrics.counters.get(MetricKey(key.step, ENGINE, DROPPED_TIMERS), 0)
            yield (
                f"step {key.step!r} went on setting timers after the end of its input, for {keys:,} "
                f"{'key' if keys == 1 else 'keys'}: {max_end_timers:,} fired for each, and {dropped:,} were dropped "
                "(dropped_timers). Have its timers stop, put it into windows that end, or raise --max_end_timers"
            )

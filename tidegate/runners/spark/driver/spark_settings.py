"""Spark's own settings during a run, and how many tasks a session runs at once."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from tidegate.runners.plan import Plan
from tidegate.runners.spark.catalyst.sources import NativeRows
from tidegate.runners.spark.plan.levels import assign_levels
from tidegate.runners.spark.task_io.frames import dataframe_sources

if TYPE_CHECKING:
    from tidegate.runners.spark.plan.options import SparkOptions

_BATCH_BYTES: Final = 4 << 20
"""The longest Arrow batch that Spark sends to a worker, unless a single row is longer."""


def parallelism(spark: Any) -> int:
    """How many tasks the session runs at once. Connect does not reveal this, so the driver's cores count there."""
    context = getattr(spark, "_sc", None)
    return max(2, context.defaultParallelism if context is not None else os.cpu_count() or 1)


def _settings_of(spark: Any, plan: Plan, options: SparkOptions) -> dict[str, str]:
    """Spark's settings for a run of a plan."""
    settings = {"spark.sql.execution.arrow.maxBytesPerBatch": str(_BATCH_BYTES)}
    native = any(isinstance(source, NativeRows) for source in dataframe_sources(plan).values())
    if not native or assign_levels(plan).count > 1:
        # Adaptive execution would replan at each shuffle, which takes time and could not improve the levels' plans.
        settings["spark.sql.adaptive.enabled"] = "false"
    if native:
        settings |= AS_WRITTEN
    if native and spark.conf.get(_SHUFFLE_PARTITIONS, _MANY) == _MANY:
        settings[_SHUFFLE_PARTITIONS] = str(options.spark_partitions or parallelism(spark))
    return settings


AS_WRITTEN: Final = {
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.subexpressionElimination.skipForShortcutExpr": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
}
"""Spark evaluates an expression that may fail only for the rows and branches that have it, decimals have the digits
that results of their operations have on every runner, and times the text that patterns say."""
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_MANY: Final = "200"
"""Spark's default, which is for large clusters."""
_active_runs: Final[weakref.WeakKeyDictionary[Any, tuple[int, dict[str, str | None]]]] = weakref.WeakKeyDictionary()
"""The number of active runs of each session, and the settings it had before them."""
settings_lock: Final = threading.Lock()
"""Held by whoever changes a session's settings, or needs them as they are."""


@contextlib.contextmanager
def spark_settings(spark: Any, plan: Plan, options: SparkOptions) -> Iterator[None]:
    """Set Spark's settings for a run of a plan; restore the session's own when its last active run ends."""
    settings = _settings_of(spark, plan, options)
    with settings_lock:
        runs, before = _active_runs.get(spark) or (0, {})
        now = {name: spark.conf.get(name, None) for name in settings}
        settings = {name: value for name, value in settings.items() if now[name] != value}
        before = {name: now[name] for name in settings} | before
        _active_runs[spark] = runs + 1, before
        for name, value in settings.items():
            spark.conf.set(name, value)
    try:
        yield
    finally:
        with settings_lock:
            runs, before = _active_runs.pop(spark)
            if runs > 1:
                _active_runs[spark] = runs - 1, before
            else:
                _restore(spark, before)


def _restore(spark: Any, before: dict[str, str | None]) -> None:
    with contextlib.suppress(Exception):  # the session may have been stopped
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)

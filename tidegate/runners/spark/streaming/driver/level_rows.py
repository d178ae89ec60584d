"""The streaming DataFrame of a job: from ticks through a stateful operator for each level to the tasks' reports."""

from __future__ import annotations

from typing import Any

from tidegate.runners.spark.streaming.driver.ticks import SOURCE, register_ticks
from tidegate.runners.spark.streaming.job import StreamJob
from tidegate.runners.spark.streaming.processor import level_processor
from tidegate.runners.spark.streaming.rows import TICK, schema
from tidegate.sdk.user_code.redefined_classes import dumps


def rows_of_levels(spark: Any, job: StreamJob, paths: tuple[str, ...], due: str, succeeded: Any) -> Any:
    """The rows that the last level sends. `paths`: entries of the workers' `sys.path`. `due`: where it is noted when a
    batch is due. `succeeded`: Spark's counter of the tasks that have succeeded, if there is one."""
    payload = dumps(job)
    keys = ", ".join(map(str, job.keys))
    register_ticks(spark)
    rows = (
        spark.readStream.format(SOURCE)
        .options(tasks=job.tasks, due=due)
        .load()
        .selectExpr(
            f"element_at(array({keys}), number + 1) AS target",
            f"{TICK} AS kind",
            *(f"0 AS `{name}`" for name in ("edge", "src", "seq", "left")),
            "CAST(CAST(instant AS string) AS binary) AS data",
        )
    )
    for level in range(job.levels.count):
        rows = rows.groupBy("target").transformWithState(
            statefulProcessor=level_processor(name_of_level(job, level), paths, payload, level, succeeded),
            outputStructType=schema(),
            outputMode="Append",
            timeMode="None",
        )
    return rows


def name_of_level(job: StreamJob, level: int) -> str:
    """The steps of a level, as Spark's UI shows them."""
    return " + ".join(step.label for step in job.levels.steps(job.plan, level, 0))[:200]

"""The Spark runner's own flags."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from tidegate.sdk.options.model import RunnerOptions
from tidegate.sdk.options.option_types import Wait
from tidegate.sdk.time import Duration


class SparkOptions(RunnerOptions):
    """Flags of `--runner spark`."""

    runner: str = "spark"
    spark_master: str = Field("local[*]", description="the master to connect to, unless a session exists")
    spark_remote: str | None = Field(None, description="a Spark Connect endpoint, such as sc://host:15002")
    spark_partitions: int = Field(
        0, ge=0, description="tasks of each level (0: Spark's default parallelism, as many as it has cores)"
    )
    spark_conf: list[str] = Field([], description="a setting of a new session, name=value; repeatable")
    spark_native: Literal["on", "off"] = Field(
        "on", description="whether Spark itself computes steps of expressions and SQL; off: all steps run in workers"
    )
    spark_commit_dir: Path | None = Field(
        None,
        description="directory of the commit log: the next run completes a commit during which a driver died",
    )
    spark_archive: str | None = Field(
        None, description="a packed environment (.tar.gz) sent to the workers, which run its bin/python"
    )
    spark_checkpoint_dir: str | None = Field(
        None,
        description="folder or URL of the state of an unbounded pipeline, which continues from there when it is run "
        "again (none: a temporary one, on a local master)",
    )
    spark_trigger_interval: Wait = Field(
        Duration.of(1), description="how often an unbounded pipeline runs a batch (0: one right after another)"
    )
    spark_batch_elements: int = Field(
        1_000_000, ge=1, description="how many elements a task of an unbounded pipeline reads from a source in a batch"
    )
    spark_savepoint_dir: str | None = Field(
        None,
        description="folder or URL to which an unbounded pipeline writes a savepoint when it stops before its input "
        "has ended, as after Ctrl-C and --run_for",
    )
    from_savepoint: str | None = Field(
        None, description="begin an unbounded pipeline with the state of this savepoint or checkpoint"
    )
    allow_dropped_state: bool = Field(False, description="begin even if no step claims some of that state")
    max_parallelism: int = Field(
        128, ge=1, le=32768, description="key groups, the most tasks that a stream's state can ever be divided among"
    )
    worker_python: str | None = Field(None, description="the workers' interpreter (local masters: this one)")

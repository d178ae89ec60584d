"""The Spark runner's own flags."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from tidegate.sdk.options.model import RunnerOptions


class SparkOptions(RunnerOptions):
    """Flags of `--runner spark`."""

    runner: str = "spark"
    spark_master: str = Field("local[*]", description="the master to connect to, if no session is there")
    spark_remote: str | None = Field(None, description="a Spark Connect endpoint, such as sc://host:15002")
    spark_partitions: int = Field(
        0, ge=0, description="tasks of each level (0: Spark's default parallelism, as many as it has cores)"
    )
    spark_conf: list[str] = Field([], description="settings of a session that is made, name=value; repeatable")
    spark_commit_dir: Path | None = Field(
        None,
        description="where the driver notes what it commits: the next run finishes a commit in which a driver died",
    )
    spark_archive: str | None = Field(
        None, description="a packed environment (.tar.gz) that is sent to the workers; its bin/python runs them"
    )
    worker_python: str | None = Field(None, description="the workers' interpreter (local masters: this one)")

"""What the driver asks Spark about jobs, and tells it about them."""

from __future__ import annotations

from typing import Any

from tidegate.runners.spark.driver.progress import Progress

GROUP = "spark.jobGroup.id"


def groups(session: Any, actions: int) -> list[str | None]:
    """The groups in which the jobs of actions run."""
    found = []
    with Progress(session, None) as progress:
        for number in range(actions):
            with progress.action(f"action {number}"):
                found.append(session.sparkContext.getLocalProperty(GROUP))
    return found


def test_each_action_asks_only_about_its_own_jobs(spark_session: Any) -> None:
    """Spark keeps a thousand jobs that are over, and a loop has thousands of actions."""
    found = groups(spark_session, 3)
    assert len(set(found)) == 3
    assert None not in found
    assert spark_session.sparkContext.getLocalProperty(GROUP) is None


def test_the_group_of_the_users_program_stays(spark_session: Any) -> None:
    context = spark_session.sparkContext
    context.setLocalProperty(GROUP, "mine")
    try:
        assert groups(spark_session, 2) == ["mine", "mine"]
        assert context.getLocalProperty(GROUP) == "mine"
    finally:
        context.setLocalProperty(GROUP, None)

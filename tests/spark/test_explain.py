"""`tidegate explain --runner spark`, and the amount of data sent to Spark."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tidegate as tg
from tidegate.cli import app
from tidegate.runners.planner import Traits, plan
from tidegate.runners.spark.driver.split_assignment import assign_inputs, without_values
from tidegate.runners.spark.plan.artifacts import Artifacts
from tidegate.runners.spark.plan.levels import assign_levels
from tidegate.runners.spark.plan.task_spec import TaskSpec, numbered_edges

JOB = """
import tidegate as tg

def pipeline(options: tg.PipelineOptions) -> tg.Pipeline:
    p = tg.Pipeline(options=options)
    numbers = p | "numbers" >> tg.Create(range(500))
    total = numbers | "total" >> tg.CombineGlobally(sum)
    names = p | "names" >> tg.Create([(n, str(n)) for n in range(7)])
    shares = numbers | "share" >> tg.Map(
        lambda x, total, names: (names[x % 7], x / total), tg.AsSingleton(total), tg.AsDict(names)
    )
    shares | "per name" >> tg.CombinePerKey(sum) | "print" >> tg.Map(print)
    return p
"""

EXPLAINED = """\
On Spark: 2 actions, 4 levels, 2 shuffles, 4 partitions (--spark_partitions)

Action 0, which computes side inputs
  Level 0, a task for each partition
    [0] numbers
    [1] total (parts)
    · persisted for action 1, freed at the end: 'numbers'
  ══ shuffle: rows of blocks, by target partition, sorted
  Level 1, one task
    [2] total (merge)
    · to the driver, which groups it as a side input: 'total'

Action 1
  ══ persisted elements of 'numbers', in place
  Level 2, a task for each partition
    [4] share
    [5] per name (parts)
  ══ shuffle: rows of blocks, by target partition, sorted
  Level 3, a task for each partition
    [6] per name (merge)
    [7] print

Side inputs
  0 of 'share': singleton of 'total', computed
  1 of 'share': dict of 'names', 7 elements from the driver
  · sent in the closure up to a total of 1 MB, else as a file that each worker opens once
  · a dict or multimap above 8 MB is a memory-mapped file; workers load only the values they look up
"""


@pytest.mark.parametrize(
    ("runner", "expected"), [(["--runner", "spark", "--spark_partitions", "4"], EXPLAINED), ([], None)]
)
def test_explain_describes_how_spark_runs_the_plan(runner: list[str], expected: str | None, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    result = CliRunner().invoke(app, ["explain", str(tmp_path / "job.py"), *runner])
    assert result.exit_code == 0, result.output
    before, found, after = result.output.partition("\nOn Spark: ")
    assert before.startswith("Plan of")
    assert (found + after)[1:] == (expected or "")


def closures(p: tg.Pipeline, partitions: int) -> list[int]:
    """The number of bytes sent to the tasks of each level."""
    planned = plan(p.sealed(), Traits(parallel=True, blocking=True))
    planned_without_values = without_values(planned)
    levels = assign_levels(planned)
    inputs = assign_inputs(planned, partitions, Artifacts(None, local=True))
    spec = TaskSpec(
        planned_without_values, levels, numbered_edges(planned_without_values), inputs, partitions, None, None, False
    )
    return [len(pickle.dumps(spec.of_level(level), 5)) for level in range(levels.count)]


def test_ten_nested_diamonds_stay_small() -> None:
    p = tg.Pipeline()
    pairs: Any = p | tg.Create(range(10)) | tg.Map(lambda x: (x, x))
    for depth in range(10):
        left = pairs | f"left {depth}" >> tg.CombinePerKey(sum) | f"one {depth}" >> tg.MapTuple(lambda k, v: (k, v))
        right = pairs | f"right {depth}" >> tg.MapTuple(lambda k, v: (k, v))
        pairs = (left, right) | f"both {depth}" >> tg.Flatten() | f"meet {depth}" >> tg.CombinePerKey(max)
    assert sum(closures(p, 8)) < 1_000_000


def test_two_thousand_files_in_two_hundred_partitions_stay_small(tmp_path: Path) -> None:
    for number in range(2_000):
        (tmp_path / f"part-{number:05d}").write_text(f"line {number}\n")
    p = tg.Pipeline()
    lines = p | tg.io.ReadFromText(str(tmp_path / "part-*"))
    _ = lines | tg.Map(lambda line: (line, 1)) | tg.CombinePerKey(sum) | tg.Map(print)
    reading, counting = closures(p, 200)
    assert reading < 500_000
    assert counting < 50_000

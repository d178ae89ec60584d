"""Properties of tasks and workers: steps run once, repeated tasks emit the same rows, environments are checked."""

from __future__ import annotations

import gc
import itertools
import pickle
import shutil
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate._version import __version__
from tidegate.runners.planner import Traits, plan
from tidegate.runners.spark.driver.split_assignment import assign_inputs, without_values
from tidegate.runners.spark.driver.worker_env import WorkerReport, problems_with, query_worker
from tidegate.runners.spark.plan.artifacts import Artifacts
from tidegate.runners.spark.plan.levels import assign_levels
from tidegate.runners.spark.plan.task_spec import TaskSpec, numbered_edges
from tidegate.runners.spark.shuffle.row_codec import RESULT
from tidegate.runners.spark.worker import run
from tidegate.runners.spark.worker.task import LevelTask
from tidegate.sdk.errors import UnsupportedError


def logged(x: Any, path: str, name: str) -> Any:
    with Path(path).open("a") as file:
        file.write(f"{name}\n")
    return x


def test_every_step_runs_once_with_any_forks_and_joins(flags: list[str], tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    p = tg.Pipeline(options=flags)
    pairs = p | tg.Create(range(10)) | "source" >> tg.Map(logged, log, "source") | tg.Map(lambda x: (x, x))
    for depth in range(4):
        left = pairs | f"left {depth}" >> tg.CombinePerKey(sum) | f"one {depth}" >> tg.Map(logged, log, f"left {depth}")
        right = pairs | f"right {depth}" >> tg.Map(logged, log, f"right {depth}")
        joined = (left, right) | f"both {depth}" >> tg.Flatten()
        pairs = joined | f"meet {depth}" >> tg.CombinePerKey(max)
    _ = pairs | "end" >> tg.Map(logged, log, "end")
    p.run()
    names = (tmp_path / "log").read_text().splitlines()
    assert len(names) == 10 * (1 + 4 * 2 + 1)
    assert {names.count(name) for name in names} == {10}


def work_of(build: Any, partitions: int) -> TaskSpec:
    p = tg.Pipeline()
    build(p)
    planned = plan(p.sealed(), Traits(parallel=True, blocking=True))
    planned_without_values = without_values(planned)
    inputs = assign_inputs(planned, partitions, Artifacts(None, local=True))
    return TaskSpec(
        planned_without_values,
        assign_levels(planned),
        numbered_edges(planned_without_values),
        inputs,
        partitions,
        1 << 20,
        None,
        False,
    )


def test_a_repeated_task_emits_the_same_rows() -> None:
    def build(p: tg.Pipeline) -> None:
        words = p | tg.Create([f"w{n % 50}" for n in range(5_000)])
        stamped = words | tg.Map(lambda word: tg.TimestampedValue((word, len(word)), int(word[1:])))
        windowed = stamped | tg.WindowInto(tg.SlidingWindows(20, 5))
        _ = windowed | "sums" >> tg.CombinePerKey(sum) | "a" >> tg.Map(print)
        _ = windowed | "groups" >> tg.GroupByKey() | "b" >> tg.Map(print)
        _ = words | tg.Reshuffle() | "c" >> tg.Map(print)

    payload = pickle.dumps(work_of(build, 3), 5)

    def rows() -> list[dict[str, Any]]:
        batches = LevelTask(pickle.loads(payload), "run", 0, 1).run(iter(()))
        return [row for batch in batches for row in batch.to_pylist() if row["edge"] != RESULT]

    first = rows()
    assert len({(row["edge"], row["seq"]) for row in first}) == len(first)
    assert {row["target"] for row in first} == {0, 1, 2}
    assert rows() == first


def test_values_of_a_create_are_only_sent_to_tasks_that_read_them() -> None:
    spec = work_of(lambda p: p | tg.Create([str(n) * 300 for n in range(5_000)]) | tg.Map(print), 2)
    ((_, path), places) = next(iter(spec.inputs.files.values()))
    assert len(places) == 2
    assert Path(path).stat().st_size > 1 << 20
    assert len(pickle.dumps(spec.of_level(0), 5)) < 20_000
    assert not spec.of_level(1).inputs.files
    shutil.rmtree(Path(path).parent)


HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        (WorkerReport(HERE, __version__, "3.1", "2.3.3", "python"), None),
        (WorkerReport(HERE, "", "", "", "python"), None),
        (WorkerReport("3.9", __version__, "3.1", "2.3.3", "python"), f"it is 3.9 and here it is {HERE}"),
        (WorkerReport(HERE, __version__, "3.1", "3.0.1", "python"), "does not work with its pandas 3.0.1"),
    ],
)
def test_problems_of_a_workers_environment_are_described(report: WorkerReport, problem: str | None) -> None:
    problems = problems_with(report)
    assert (problem is None) == (problems == [])
    assert problem is None or problem in problems[0]


def test_a_worker_without_pyarrow_is_refused_with_its_interpreter_and_the_flag_to_change_it() -> None:
    class Conf:
        def get(self, name: str, default: str = "") -> str:
            return {"spark.sql.execution.pyspark.python": "/opt/python"}.get(name, default)

    class Bare:
        conf = Conf()

        def range(self, *_: int) -> Any:
            raise RuntimeError("ModuleNotFoundError: No module named 'pyarrow'")

    with pytest.raises(UnsupportedError, match=r"\(/opt/python\) lacks pyarrow, .* with --worker_python, or send"):
        query_worker(Bare())


def test_objects_that_outlive_a_task_are_excluded_from_most_garbage_collections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "_tasks", itertools.count(1))

    class Collectable:
        pass

    survivor = Collectable()
    survivor.me = survivor  # type: ignore[attr-defined]
    reference = weakref.ref(survivor)
    try:
        run._exclude_from_collections()
        del survivor
        gc.collect()
        assert reference() is not None
        for _ in range(63):
            run._exclude_from_collections()
        gc.collect()
        assert reference() is None
    finally:
        gc.unfreeze()

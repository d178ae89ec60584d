"""Several tasks of a job exceed their memory budget, and each spills to files of its own."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.run_and_collect import collect
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.memory.spill import PARTITIONS, Spill
from tidegate.runners.streaming.worker.spill_directories import clear_spilled, spill_directory
from tidegate.sdk.data.keys import partition_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

KEYS = 1_500
NUMBERS = range(10_000)


def flags(workers: int, *extra: str, budget: str = "20KB") -> list[str]:
    return [
        "--runner",
        "streaming",
        "--workers",
        str(workers),
        "--memory_budget",
        budget,
        "--block_size",
        "200",
        *extra,
    ]


def keyed(number: int) -> tuple[int, int]:
    return number * 7919 % KEYS, number


def sorted_values(pair: tuple[int, Iterable[int]]) -> tuple[int, list[int]]:
    key, values = pair
    return key, sorted(values)


def groups(numbers: Iterable[int] = NUMBERS) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for number in numbers:
        found.setdefault(keyed(number)[0], []).append(number)
    return found


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_group_is_complete(workers: int) -> None:
    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        return {"out": p | tg.Create(NUMBERS) | tg.Map(keyed) | tg.GroupByKey() | tg.Map(sorted_values)}

    found = collect(build, options=flags(workers))
    assert found.result.metrics().counter("spills") > workers
    assert Counter(key for key, _ in found.values("out")) == Counter(range(KEYS))
    assert dict(found.values("out")) == groups()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_sum_is_complete(workers: int) -> None:
    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        return {"out": p | tg.Create(NUMBERS) | tg.Map(keyed) | tg.CombinePerKey(sum)}

    found = collect(build, options=flags(workers))
    assert found.result.metrics().counter("spills") > workers
    assert sorted(found.values("out")) == [(key, sum(values)) for key, values in sorted(groups().items())]


def stamped(number: int) -> Any:
    return tg.TimestampedValue(("few"[number % 3], number), -number)


class InOrder(tg.DoFn):
    """Emits the elements of a key that are not in the order of their timestamps."""

    LAST = tg.ValueStateSpec("last")

    def process(self, pair: tuple[str, int], last: Any = tg.DoFn.StateParam(LAST)) -> Iterable[tuple[str, int, Any]]:
        before = last.read()
        last.write(pair[1])
        if before is not None and before != pair[1] + 3:
            yield pair[0], pair[1], before


@pytest.mark.parametrize("workers", [2, 3])
def test_the_elements_of_each_key_are_sorted_by_time(workers: int) -> None:
    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        pairs = p | tg.Create(range(20_000)) | tg.Map(stamped)
        wrong = pairs | "in order" >> tg.ParDo(InOrder())
        return {"wrong": wrong, "grouped": pairs | tg.GroupByKey() | tg.Map(sorted_values)}

    found = collect(build, options=flags(workers))
    assert found.result.metrics().counter("spills", step="in order") > workers
    assert found.values("wrong") == []
    assert dict(found.values("grouped")) == {key: list(range(at, 20_000, 3)) for at, key in enumerate("few")}


@pytest.mark.parametrize("workers", [1, 2])
def test_every_session_is_complete(workers: int) -> None:
    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        visits = p | tg.Create(NUMBERS) | tg.Map(lambda n: tg.TimestampedValue(keyed(n), n // KEYS * 100))
        return {"out": visits | tg.WindowInto(tg.Sessions(50)) | tg.CombinePerKey(sum)}

    found = collect(build, options=flags(workers))
    assert found.result.metrics().counter("spills") > workers
    assert sorted(found.values("out")) == sorted(keyed(number) for number in NUMBERS)


class KillsWorkerOnce(tg.DoFn):
    """Kills its worker once, when half of the results have been emitted."""

    def __init__(self, marker: str) -> None:
        self.marker = marker
        self.seen = 0

    def process(self, pair: Any) -> Iterable[Any]:
        self.seen += 1
        if self.seen == KEYS // 2 and not Path(self.marker).exists():
            Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield pair


def test_a_restart_does_not_read_files_spilled_before(tmp_path: Path) -> None:
    marker, temporary = tmp_path / "died", tmp_path / "temporary"
    temporary.mkdir()

    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        grouped = p | tg.Create(NUMBERS) | tg.Map(keyed) | tg.GroupByKey() | tg.Map(sorted_values)
        return {"out": grouped | tg.ParDo(KillsWorkerOnce(str(marker))) | tg.Reshuffle()}

    options = flags(1, "--restart_delay", "0.01", "--exchange", "blocking", "--temp_dir", str(temporary))
    found = collect(build, options=options)
    assert marker.exists()
    assert dict(found.values("out")) == groups()
    assert len(found.values("out")) == KEYS
    assert list(temporary.iterdir()) == []


def test_each_attempt_of_each_task_has_a_directory_of_its_own(tmp_path: Path) -> None:
    tasks = [(0, 0, 1), (0, 1, 1), (0, 0, 2), (1, 0, 1), (10, 0, 1)]
    made = {spill_directory(tmp_path, TaskId(stage, index), attempt) for stage, index, attempt in tasks}
    assert len(made) == 5
    assert spill_directory(tmp_path, TaskId(0, 0), 1) in made
    assert sorted(tmp_path.iterdir()) == sorted(made)


def test_files_spilled_by_earlier_attempts_are_deleted_but_not_the_results_of_regions(tmp_path: Path) -> None:
    (spill_directory(tmp_path, TaskId(0, 0), 1) / "file").touch()
    (tmp_path / "run-0.0.0").touch()
    clear_spilled(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run-0.0.0"]


@pytest.mark.parametrize("workers", [2, 4, 32])
def test_the_keys_of_one_task_are_spread_over_all_partitions(tmp_path: Path, workers: int) -> None:
    spill = Spill(lambda: tmp_path, True, lambda pair: pair, 1_000_000)
    spill.write(None, {key: [key] for key in range(6_000 * workers) if partition_of(key, workers) == workers - 1})
    sizes = [partition.bytes for partition in spill.files.values()]
    assert len(sizes) == PARTITIONS
    assert max(sizes) < 2 * min(sizes)


def test_a_spill_does_not_overwrite_an_existing_file(tmp_path: Path) -> None:
    first, second = (Spill(lambda: tmp_path, True, lambda pair: pair, 1_000) for _ in range(2))
    first.write(None, {1: [1]})
    (path,) = tmp_path.iterdir()
    number = int(path.name.rpartition("-")[2])
    for ahead in range(1, 3):
        path.with_name(f"{path.name.rpartition('-')[0]}-{number + ahead}").touch()
    with pytest.raises(tg.RunError, match="can't be spilled to disk"):
        second.write(None, {1: [1]})

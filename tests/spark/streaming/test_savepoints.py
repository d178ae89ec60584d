"""Savepoints of streams on Spark, written and read by the tasks of batches in this process: rescaling and moves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tidegate as tg
from tests.support.spark.live_numbers import LiveNumbers, Track, keyed, lines
from tests.support.spark.micro_batches import Batches, MicroBatches
from tests.support.spark.stream_runs import wait_for_end
from tidegate.cli.state import state
from tidegate.runners.checkpoint.matching import ResumeError
from tidegate.runners.spark.streaming.savepoint.opening import Savepoint
from tidegate.runners.spark.streaming.savepoint.storing import new_target, store_savepoint
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import ENGINE, MetricKey
from tidegate.sdk.runner import PipelineState

COUNT = 400


def with_sum(pair: tuple[str, int], sums: Any, names: Any) -> str:
    """A pair beside the sum of its key in the window, and the name of its key."""
    return f"{names[pair[0]]} {pair} of {sums.get(pair[0])}"


def first_of(pair: tuple[str, list[int]]) -> str:
    """The least of a key's numbers, and how many there are."""
    return f"{pair[0]} {min(pair[1])} {len(pair[1])}"


async def doubled(pair: tuple[str, int]) -> str:
    """What a service outside would answer."""
    return f"{pair[0]} {2 * pair[1]}"


@dataclass(frozen=True)
class Named:
    """A number with its key."""

    key: str
    n: int


def halves(pairs: Any) -> Any:
    """Half of each key's sum in a window."""
    return pairs | "add" >> tg.CombinePerKey(sum) | "halve" >> tg.MapTuple(lambda key, n: (key, n // 2))


def build(pipeline: tg.Pipeline, folder: Path, *, divided: int = 3, span: int = 90) -> None:
    """Windows, sessions, a stateful step with timers, a side input, calls, a loop and a step of expressions, each
    written to files of its own."""
    pairs = pipeline | "read" >> tg.Read(LiveNumbers(COUNT, divided=divided)) | "keyed" >> tg.Map(keyed)
    fixed = pairs | "minutes" >> tg.WindowInto(tg.FixedWindows(span))
    sums = fixed | "sum" >> tg.CombinePerKey(sum)
    names = pipeline | "names" >> tg.Create([f"k{n}" for n in range(7)]) | "upper" >> tg.Map(lambda k: (k, k.upper()))
    beside = fixed | "beside" >> tg.Map(with_sum, tg.AsDict(sums), tg.AsDict(names))
    gaps = tg.WindowInto(tg.Sessions(8))
    sessions = pairs | tg.Filter(lambda pair: pair[1] % 41 > 20) | gaps | "group" >> tg.GroupByKey()
    calls = pairs | "call" >> tg.AsyncMap(doubled)
    tracked = pairs | "track" >> tg.ParDo(Track())
    looped = fixed | "loop" >> tg.Iterate(halves, rounds=2)
    rows = fixed | "rows" >> tg.MapTuple(Named).with_output_types(Named)
    greatest = rows | "columns" >> tg.GroupBy("key").agg(greatest=tg.fn.max("n"), n=tg.fn.count())
    for name, collection in {
        "sums": sums | tg.Map(repr),
        "beside": beside,
        "sessions": sessions | tg.Map(first_of),
        "tracked": tracked,
        "called": calls,
        "looped": looped | "loop text" >> tg.Map(repr),
        "greatest": greatest | "row text" >> tg.Map(repr),
    }.items():
        _ = collection | f"write {name}" >> tg.io.WriteToText(str(folder / name))


def sealed(folder: Path, **shape: int) -> tuple[Any, Any]:
    """The pipeline, and its options."""
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    build(pipeline, folder, **shape)
    return pipeline.sealed(), pipeline.options


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of a run that never stops."""
    folder = tmp_path_factory.mktemp("direct")
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    build(pipeline, folder)
    pipeline.run().wait_until_finish()
    return lines(folder)


def begun(tasks: int, folder: Path, **shape: int) -> Batches:
    """A job that has run three batches of 20 elements per task."""
    batches = MicroBatches(tasks, elements=20).batches(*sealed(folder, **shape))
    for _ in range(3):
        assert not batches.batch()
    return batches


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("before", "after"), [(2, 5), (3, 3), (5, 2)])
def test_a_job_goes_on_with_another_number_of_tasks(
    before: int, after: int, tmp_path: Path, complete: list[str]
) -> None:
    begun(before, tmp_path / "out").savepoint(tmp_path / "savepoint")
    early = lines(tmp_path / "out")
    runner = MicroBatches(after, elements=20)
    later = runner.batches(*sealed(tmp_path / "out"), savepoint=tmp_path / "savepoint", run="later")
    later.run()
    assert 0 < len(early) < len(complete)
    assert lines(tmp_path / "out") == complete
    assert later.metrics.counters[MetricKey("read", ENGINE, "elements_out")] == COUNT


@pytest.mark.sampled(2)
@pytest.mark.parametrize("workers", [3, 1])
def test_the_streaming_runner_goes_on_from_a_savepoint_of_spark(
    workers: int, tmp_path: Path, complete: list[str]
) -> None:
    begun(2, tmp_path / "out").savepoint(tmp_path / "savepoint")
    flags = ["--workers", str(workers), "--from_savepoint", str(tmp_path / "savepoint"), "--temp_dir", str(tmp_path)]
    pipeline = tg.Pipeline(options=["--runner", "streaming", *flags])
    build(pipeline, tmp_path / "out")
    assert wait_for_end(pipeline.run()) is PipelineState.DONE
    assert lines(tmp_path / "out") == complete


def test_the_command_shows_a_savepoint_of_spark(tmp_path: Path) -> None:
    begun(2, tmp_path / "out").savepoint(tmp_path / "savepoint")
    shown = CliRunner().invoke(state, [str(tmp_path / "savepoint")], catch_exceptions=False).output
    assert "savepoint 1 of job run (run run)" in shown
    assert "stateful  track: cells (count: " in shown
    assert "timers (quiet: event)" in shown
    assert "read: 0 of 3 splits are finished, 3 in progress" in shown
    values = CliRunner().invoke(state, [str(tmp_path / "savepoint"), "--values"], catch_exceptions=False).output
    assert '"step": "track"' in values
    assert '"key": "k3"' in values


def test_a_job_runs_on_after_savepoints_of_which_the_last_in_a_folder_counts(
    tmp_path: Path, complete: list[str]
) -> None:
    batches = begun(2, tmp_path / "out")
    batches.savepoint(tmp_path / "savepoint")
    before = Savepoint(str(tmp_path / "savepoint"))
    batches.batch()
    batches.savepoint(tmp_path / "savepoint")
    after = Savepoint(str(tmp_path / "savepoint"))
    assert (before.manifest.checkpoint, after.manifest.checkpoint) == (1, 2)
    read = [[part.splits for part in each.manifest.tasks] for each in (before, after)]
    assert read[0] != read[1]
    batches.run()
    assert lines(tmp_path / "out") == complete


def test_files_of_a_repeated_attempt_are_removed_and_missing_ones_are_an_error(tmp_path: Path) -> None:
    batches = begun(2, tmp_path / "out")
    folder = tmp_path / "savepoint" / "chk-000001"
    folder.mkdir(parents=True)
    (folder / "0.0.1.dead.task").write_bytes(b"an attempt that did not live")
    batches.savepoint(tmp_path / "savepoint")
    assert not (folder / "0.0.1.dead.task").exists()
    job = replace(batches.job, savepoint=replace(new_target(str(tmp_path / "savepoint")), folder="chk-000001"))
    next(folder.glob("*.task")).unlink()
    with pytest.raises(RunError, match=r"its file chk-000001/.* is missing: the workers see another folder"):
        store_savepoint(job, batches._reports, batches.metrics)


def changed(pipeline: tg.Pipeline, folder: Path) -> None:
    """The pipeline, with groups instead of sums."""
    pairs = pipeline | "read" >> tg.Read(LiveNumbers(COUNT, divided=3)) | "keyed" >> tg.Map(keyed)
    groups = pairs | "minutes" >> tg.WindowInto(tg.FixedWindows(90)) | "sum" >> tg.GroupByKey()
    _ = groups | tg.Map(repr) | tg.io.WriteToText(str(folder))


def test_a_step_that_keeps_other_state_now_is_refused(tmp_path: Path) -> None:
    begun(2, tmp_path / "out").savepoint(tmp_path / "savepoint")
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    changed(pipeline, tmp_path / "out")
    with pytest.raises(ResumeError, match=r"the state of 'sum' in savepoint .* is .*: give the step another name"):
        MicroBatches(2).batches(pipeline.sealed(), pipeline.options, savepoint=tmp_path / "savepoint")
    with pytest.raises(ResumeError, match="there is no savepoint in"):
        MicroBatches(2).batches(pipeline.sealed(), pipeline.options, savepoint=tmp_path / "elsewhere")

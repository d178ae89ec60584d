"""A changed pipeline under the Spark checkpoint of the one before: it goes on if it fits, or is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.spark.live_numbers import LiveNumbers, keyed
from tests.support.spark.local_folder import LocalFolder
from tests.support.spark.micro_batches import MicroBatches
from tidegate.runners.checkpoint.matching import ResumeError
from tidegate.runners.spark.streaming.driver.checkpoint import Checkpoint
from tidegate.sdk.errors import OptionsError

Change = Callable[[tg.Pipeline], Any]


def original(pipeline: tg.Pipeline) -> Any:
    pairs = pipeline | "read" >> tg.Read(LiveNumbers(10)) | "keyed" >> tg.Map(keyed)
    return pairs | tg.WindowInto(tg.FixedWindows(10)) | "sum" >> tg.CombinePerKey(sum) | "text" >> tg.Map(repr)


def with_another_function(pipeline: tg.Pipeline) -> Any:
    pairs = pipeline | "read" >> tg.Read(LiveNumbers(10)) | "keyed" >> tg.Map(lambda number: (str(number), number))
    return pairs | tg.WindowInto(tg.FixedWindows(10)) | "sum" >> tg.CombinePerKey(sum) | "text" >> tg.Map(str)


def with_another_combiner(pipeline: tg.Pipeline) -> Any:
    pairs = pipeline | "read" >> tg.Read(LiveNumbers(10)) | "keyed" >> tg.Map(keyed)
    return pairs | tg.WindowInto(tg.FixedWindows(10)) | "sum" >> tg.CombinePerKey(max) | "text" >> tg.Map(repr)


def with_another_name(pipeline: tg.Pipeline) -> Any:
    pairs = pipeline | "read" >> tg.Read(LiveNumbers(10)) | "keyed" >> tg.Map(keyed)
    return pairs | tg.WindowInto(tg.FixedWindows(10)) | "total" >> tg.CombinePerKey(sum) | "text" >> tg.Map(repr)


def with_another_level(pipeline: tg.Pipeline) -> Any:
    pairs = pipeline | "read" >> tg.Read(LiveNumbers(10)) | "spread" >> tg.Reshuffle() | "keyed" >> tg.Map(keyed)
    return pairs | tg.WindowInto(tg.FixedWindows(10)) | "sum" >> tg.CombinePerKey(sum) | "text" >> tg.Map(repr)


def with_nothing_of_it(pipeline: tg.Pipeline) -> Any:
    return pipeline | "other" >> tg.Read(LiveNumbers(10)) | "text" >> tg.Map(repr)


def checkpoint(path: Path, build: Change, **given: Any) -> Checkpoint:
    """The checkpoint in a folder, opened by a pipeline."""
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    _ = build(pipeline) | "write" >> tg.io.WriteToText("out")
    job = MicroBatches(1).batches(pipeline.sealed(), pipeline.options).job
    folder: Any = LocalFolder(path)
    opened = Checkpoint(folder, job.plan, job.levels, run="run", asked=given.pop("asked", None), default=2, **given)
    opened.record()
    return opened


def begun(path: Path) -> None:
    """A checkpoint, with state of one batch."""
    checkpoint(path, original)
    LocalFolder(path).write("spark/commits/0", b"")


def test_a_pipeline_whose_steps_keep_the_same_state_goes_on(tmp_path: Path) -> None:
    begun(tmp_path)
    again = checkpoint(tmp_path, with_another_function)
    assert (again.goes_on, again.tasks, again.max_parallelism, again.savepoint) == (True, 2, 128, None)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            with_another_combiner,
            r"the state of 'sum~parts' in --spark_checkpoint_dir .* and the step is now .*: give the step another name",
        ),
        (with_another_name, r"'total' is new, 'sum~parts' is gone, 'sum' is gone. .* write a savepoint"),
        (with_another_level, r"'spread' is new, .*'sum' was in level 1 and is in level 2, .* write a savepoint"),
    ],
    ids=["state", "name", "level"],
)
def test_what_does_not_fit_is_refused_by_the_name_of_the_step(tmp_path: Path, change: Change, why: str) -> None:
    begun(tmp_path)
    with pytest.raises(ResumeError, match=f"(?s){why}"):
        checkpoint(tmp_path, change)


def test_another_pipeline_and_other_numbers_are_refused(tmp_path: Path) -> None:
    begun(tmp_path)
    with pytest.raises(OptionsError, match="belongs to another pipeline"):
        checkpoint(tmp_path, with_nothing_of_it)
    with pytest.raises(OptionsError, match=r"run with --spark_partitions 2, or .*--from_savepoint"):
        checkpoint(tmp_path, original, asked=5)
    with pytest.raises(OptionsError, match="give --max_parallelism 128"):
        checkpoint(tmp_path, original, max_parallelism=64)


def test_a_checkpoint_of_the_first_format_goes_on_if_nothing_has_changed(tmp_path: Path) -> None:
    begun(tmp_path)
    known = json.loads(LocalFolder(tmp_path).read("tidegate.json"))
    older = {"format": 1, **{name: known[name] for name in ("run", "tasks", "shape")}}
    LocalFolder(tmp_path).write("tidegate.json", json.dumps(older).encode())
    with pytest.raises(OptionsError, match="whose steps differ"):
        checkpoint(tmp_path, with_another_name)
    assert checkpoint(tmp_path, original).goes_on
    with pytest.raises(ResumeError, match="'total' is new"):
        checkpoint(tmp_path, with_another_name)


def test_a_job_that_failed_before_its_first_batch_begins_from_its_savepoint_again(tmp_path: Path) -> None:
    assert checkpoint(tmp_path, original, savepoint="/saved", asked=5).savepoint == "/saved"
    assert checkpoint(tmp_path, original).savepoint == "/saved"
    LocalFolder(tmp_path).write("spark/offsets/0", b"")
    assert checkpoint(tmp_path, original).tasks == 5
    LocalFolder(tmp_path).write("spark/commits/0", b"")
    assert checkpoint(tmp_path, original, savepoint="/other").savepoint is None

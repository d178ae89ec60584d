"""TestPipeline and assert_that, on complete pipelines."""

from __future__ import annotations

import gc
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.sdk.connectors.sources import Batch, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.testing import (
    PaneRecorder,
    TestPipeline,
    TestStream,
    assert_that,
    equal_to,
    equal_to_per_window,
    fired,
    is_empty,
    is_not_empty,
    test_pipeline,
)


def failure(pipeline: TestPipeline) -> AssertionError:
    with pytest.raises(AssertionError) as caught:
        pipeline.run()
    return caught.value


def last_line(error: BaseException) -> str:
    return traceback.extract_tb(error.__traceback__)[-1].line or ""


def test_a_failing_assertion_ends_at_its_line() -> None:
    pipeline = TestPipeline()
    assert_that(pipeline | tg.Create([1]), equal_to([2]))  # here
    error = failure(pipeline)
    assert type(error) is AssertionError
    assert last_line(error).endswith("# here")
    assert f"at {__file__}:" in str(error)
    assert "'Create' fails the assertion" in str(error)


def test_an_assertion_in_a_function_shows_who_called_it() -> None:
    def check(pcoll: Any) -> None:
        assert_that(pcoll, is_empty())  # inside

    pipeline = TestPipeline()
    check(pipeline | tg.Create([1]))  # called
    error = failure(pipeline)
    lines = [frame.line or "" for frame in traceback.extract_tb(error.__traceback__)]
    assert lines[-1].endswith("# inside")
    assert any(line.endswith("# called") for line in lines)


def test_an_assertion_inside_a_composite_ends_at_its_line() -> None:
    class Checked(tg.PTransform[Any, Any]):
        def expand(self, input: Any) -> Any:
            assert_that(input, is_empty())  # in expand
            return input

    pipeline = TestPipeline()
    _ = pipeline | tg.Create([1]) | Checked()
    assert last_line(failure(pipeline)).endswith("# in expand")


def test_all_failing_assertions_are_reported() -> None:
    pipeline = TestPipeline()
    numbers = pipeline | tg.Create([1, 2])
    assert_that(numbers, equal_to([1, 2]))
    assert_that(numbers, equal_to([1]), "first")  # first
    assert_that(numbers | tg.Filter(lambda n: n > 2), is_not_empty(), "second")
    error = failure(pipeline)
    assert str(error).startswith("2 of 3 assertions fail\n1) first: 'Create'")
    assert "\n2) second: 'Filter(<lambda>)'" in str(error)
    assert last_line(error).endswith("# first")


def test_an_empty_collection_is_checked() -> None:
    pipeline = TestPipeline()
    assert_that(pipeline | tg.Create([]), equal_to([1]))
    assert "expected 1 element, found 0" in str(failure(pipeline))


def test_the_error_of_a_failing_pipeline_takes_precedence_over_assertions() -> None:
    pipeline = TestPipeline()
    broken = pipeline | tg.Create([0]) | tg.Map(lambda n: 1 // n)
    assert_that(broken, equal_to([5]))
    with pytest.raises(tg.UserCodeError, match="ZeroDivisionError"):
        pipeline.run()


def test_an_error_in_the_with_block_is_raised_and_the_pipeline_does_not_run() -> None:
    pipeline = TestPipeline()

    def build() -> None:
        with pipeline:
            assert_that(pipeline | tg.Create([1]), is_empty())
            _ = 1 // 0

    with pytest.raises(ZeroDivisionError):
        build()
    assert not pipeline.has_run


def test_a_matcher_may_capture_unpicklable_values() -> None:
    lock, seen = threading.Lock(), []

    def matcher(values: list[Any]) -> None:
        with lock:
            seen.extend(values)

    with TestPipeline() as pipeline:
        assert_that(pipeline | tg.Create([1, 2]), matcher)
    assert seen == [1, 2]


def test_elements_of_classes_made_in_a_test_keep_their_identity() -> None:
    @dataclass(frozen=True)
    class Local:
        n: int

    with TestPipeline() as pipeline:
        assert_that(pipeline | tg.Create([1]) | tg.Map(Local), equal_to([Local(1)]))


def test_an_element_that_cannot_be_pickled_is_an_error() -> None:
    pipeline = TestPipeline(options={"checks": "off"})
    assert_that(pipeline | tg.Create([1]) | tg.Map(lambda n: threading.Lock()), is_empty())
    with pytest.raises(tg.RunError, match="can't be recorded: it can't be pickled"):
        pipeline.run()


def test_elements_in_several_windows_count_once_unless_windows_are_compared() -> None:
    with TestPipeline() as pipeline:
        stamped = pipeline | tg.Create([tg.TimestampedValue("a", 7)])
        sliding = stamped | tg.WindowInto(tg.SlidingWindows(10, 5))
        assert_that(sliding, equal_to(["a"]))
        assert_that(sliding, equal_to_per_window({(0, 10): ["a"], (5, 15): ["a"]}))
        assert_that(sliding, equal_to([fired("a", (0, 10)), fired("a", (5, 15))]), panes=True)


def test_assertions_do_not_affect_later_steps() -> None:
    with TestPipeline() as pipeline:
        numbers = pipeline | tg.Create([3, 1])
        assert_that(numbers, equal_to([1, 3]))
        assert_that(numbers | tg.CombineGlobally(sum), equal_to([4]))


def test_assertions_on_a_stream_see_all_elements() -> None:
    with TestPipeline() as pipeline:
        stream = pipeline | TestStream().add_elements([1]).advance_watermark_to(10).add_elements([2]).add_elements([3])
        assert_that(stream, equal_to([1, 2, 3]))


@dataclass(frozen=True)
class Forever(Source[int]):
    """Reads three numbers, and never ends."""

    @property
    def bounded(self) -> bool:
        return False

    def splits(self, desired: int) -> list[Split]:
        return [Split("all")]

    def reader(self, split: Split, position: Any = None) -> Reader[int]:
        return Counting()


class Counting(Reader[int]):
    n = 0

    def read(self, limit: int) -> Batch:
        self.n += 1
        return Batch(Block.of([self.n] if self.n < 4 else []), wait=0.001)

    def position(self) -> int:
        return self.n


def test_a_pipeline_with_a_duration_is_checked_when_it_has_stopped() -> None:
    with TestPipeline(options={"run_for": "100ms"}) as pipeline:
        assert_that(pipeline | tg.Read(Forever()), equal_to([1, 2, 3]))


def test_a_pipeline_that_does_not_end_is_cancelled_and_fails() -> None:
    pipeline = TestPipeline(timeout=0.05)
    assert_that(pipeline | tg.Read(Forever()), equal_to([1, 2, 3]))
    assert "had not ended after 0.05 s" in str(failure(pipeline))
    assert pipeline.result.state.ended


def test_a_pipeline_may_run_twice() -> None:
    pipeline = TestPipeline()
    assert_that(pipeline | tg.Create([1]), equal_to([1]))
    pipeline.run()
    pipeline.run()


def test_assert_that_refuses_invalid_arguments() -> None:
    with pytest.raises(tg.BuildError, match="TestPipeline"):
        assert_that(tg.Pipeline() | tg.Create([1]), equal_to([1]))
    with pytest.raises(tg.BuildError, match="PCollection, not list"):
        assert_that([1], equal_to([1]))  # type: ignore[arg-type]
    with pytest.raises(tg.BuildError, match="matcher"):
        assert_that(TestPipeline() | tg.Create([1]), [1])


def test_the_default_runner_applies_to_test_pipelines_that_name_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_pipeline, "default_runner", "no such runner")
    for options in (None, {"checks": "off"}, ["--checks=off"]):
        pipeline = TestPipeline(options=options)
        _ = pipeline | tg.Create([1])
        with pytest.raises(tg.OptionsError, match="no such runner"):
            pipeline.run()
    for named in (
        TestPipeline("direct"),
        TestPipeline(options={"runner": "direct"}),
        TestPipeline(options=["--runner=direct"]),
    ):
        assert_that(named | tg.Create([1]), equal_to([1]))
        named.run()


# ---- recorders


def test_a_recorder_returns_values_timestamps_windows_and_panes() -> None:
    recorder = PaneRecorder()
    with tg.Pipeline() as pipeline:
        stamped = pipeline | tg.Create([tg.TimestampedValue(("k", 1), 3)])
        _ = stamped | tg.WindowInto(tg.FixedWindows(10)) | tg.GroupByKey() | recorder
    [record] = recorder.records()
    assert record.value == ("k", [1])
    assert record.timestamp == tg.Timestamp(9.999999)
    assert record.window == tg.IntervalWindow(0, 10)
    assert (record.timing, record.index) == (tg.Timing.ON_TIME, 0)
    assert recorder.per_key() == {"k": [fired([1], (0, 10), "on_time", 0)]}


def test_reading_a_recorder_before_the_run_is_an_error() -> None:
    recorder = PaneRecorder()
    with pytest.raises(tg.BuildError, match="run the pipeline"):
        recorder.records()
    _ = tg.Pipeline() | tg.Create([1]) | recorder
    with pytest.raises(tg.BuildError, match="run the pipeline"):
        recorder.records()


def test_a_recorder_records_one_collection() -> None:
    recorder = PaneRecorder()
    numbers = tg.Pipeline() | tg.Create([1])
    _ = numbers | recorder
    with pytest.raises(tg.BuildError, match="create one for each"):
        _ = numbers | recorder


def test_a_recorder_without_references_is_no_error_and_leaves_no_files(tmp_path: Path) -> None:
    pipeline = tg.Pipeline(options={"temp_dir": tmp_path})
    _ = pipeline | tg.Create([1]) | PaneRecorder()
    gc.collect()
    assert pipeline.run().state.ended
    del pipeline, _
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_recorded_files_are_removed_with_their_recorder(tmp_path: Path) -> None:
    def run() -> Iterator[int]:
        with TestPipeline(options={"temp_dir": tmp_path}) as pipeline:
            assert_that(pipeline | tg.Create([1]), equal_to([1]))
            yield len(list(tmp_path.iterdir()))

    assert list(run()) == [1]
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_recorder_that_is_given_a_label_is_the_one_that_is_asked() -> None:
    recorder = PaneRecorder()
    with TestPipeline() as pipeline:
        pipeline | tg.Create([1]) | "label" >> recorder
    assert recorder.values() == [1]
    assert recorder.label == "label"

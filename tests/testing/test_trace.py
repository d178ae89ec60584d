"""Traces of a run, step by step, and the page that draws them. Recording does not change the output."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.cli import app
from tidegate.runners.engine.operator import Operator
from tidegate.sdk.errors import BuildError, RunError, UserCodeError
from tidegate.testing import PaneRecorder, TestPipeline, TestStream, Trace, assert_that, equal_to, trace
from tidegate.testing.trace.model import Traced
from tidegate.testing.trace.sampling import MOST_DRAWN, Sample
from tidegate.testing.trace.watcher import MOST_FIRINGS, Watcher
from tidegate.testing.trace.window_tracker import MOST_KEYS, MOST_PER_KEY

MINUTE = 60
EARLY_AND_LATE = tg.AfterWatermark(
    early=tg.Repeatedly(tg.AfterProcessingTime(MINUTE)), late=tg.Repeatedly(tg.AfterCount(1))
)


def at(key: str, value: int, minute: float) -> tg.TimestampedValue:
    return tg.TimestampedValue((key, value), minute * MINUTE)


def scores() -> TestStream:
    """Elements that are early, on time, late and dropped, for windows of ten minutes with two minutes of lateness."""
    return (
        TestStream()
        .add_elements([at("a", 5, 1), at("b", 3, 4)])
        .advance_processing_time(MINUTE)
        .advance_watermark_to(6 * MINUTE)
        .add_elements([at("a", 7, 5)])
        .advance_watermark_to(10 * MINUTE)
        .advance_processing_time(MINUTE)
        .add_elements([at("a", 2, 9)])
        .advance_watermark_to(12 * MINUTE)
        .add_elements([at("a", 9, 3), at("a", 1, 13)])
        .advance_watermark_to_infinity()
    )


def traced(windows: Any, stream: TestStream | None = None, step: Any = None, **parts: Any) -> Traced:
    pipeline = tg.Pipeline(name="test")
    windowed = pipeline | (stream or scores()) | tg.WindowInto(windows, **parts)
    _ = windowed | "step" >> (step or tg.CombinePerKey(sum)) | tg.Map(lambda element: None)
    return trace(pipeline).step("step")


def fixed() -> Traced:
    return traced(
        tg.FixedWindows(10 * MINUTE), trigger=EARLY_AND_LATE, accumulation=tg.ACCUMULATING, allowed_lateness=2 * MINUTE
    )


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


# ---- the contents of a trace


def test_a_trace_has_every_pane_with_its_timing_value_and_moment() -> None:
    step = fixed()
    assert [(f.timing, f.value, f.index, f.at.clock // 1_000_000) for f in step.of_key("'a'")] == [
        ("early", "5", 0, MINUTE),
        ("on_time", "12", 1, MINUTE),
        ("late", "14", 2, 2 * MINUTE),
        ("on_time", "1", 0, 2 * MINUTE),
    ]
    assert [(f.timing, f.value) for f in step.of_key("'b'")] == [("early", "3"), ("on_time", "3")]


def test_a_trace_beside_and_behind_a_feedback_loop_has_what_a_run_gives() -> None:
    pipeline = tg.Pipeline(name="test")
    counted = (
        pipeline
        | tg.Create([3])
        | tg.Feedback(
            lambda n: tg.Round(n | "less" >> tg.Map(lambda x: x - 1) | "left" >> tg.Filter(lambda x: x > 0), out=n)
        )
    )
    _ = counted | tg.WithKeys(lambda n: n % 2) | "behind" >> tg.CombinePerKey(sum) | "show" >> tg.Map(str)
    pairs = pipeline | "pairs" >> tg.Create([("a", 1), ("b", 2)]) | tg.WindowInto(tg.FixedWindows(60))
    _ = pairs | "beside" >> tg.GroupByKey() | "print" >> tg.Map(str)
    found = trace(pipeline)
    assert sorted(found.step("behind").keys) == ["0", "1"]
    counts = [found.step(step).counts for step in ("behind", "beside")]
    assert [(each["elements"], each["panes"], each["dropped_late"]) for each in counts] == [(3, 2, 0), (2, 2, 0)]


def test_elements_are_classified_by_the_watermark_and_the_state_of_their_windows() -> None:
    assert [(a.value, a.standing) for a in fixed().arrivals] == [
        ("5", "in time"),
        ("3", "in time"),
        ("7", "behind"),
        ("2", "late"),
        ("9", "dropped late"),
        ("1", "in time"),
    ]


def test_a_window_is_open_from_its_first_element_to_its_expiration() -> None:
    step = fixed()
    first = step.windows[0]
    assert (first.start, first.end, first.opened.event) == (0, 600_000_000, 1)
    expiration = next(moment for moment, micros in step.watermark if micros == 12 * MINUTE * 1_000_000)
    assert first.closed is not None
    assert first.closed.event == expiration.event


def test_a_trace_has_each_advance_of_the_watermark_until_the_end_of_time() -> None:
    advances = [micros // 1_000_000 for _, micros in fixed().watermark]
    assert advances[:3] == [6 * MINUTE, 10 * MINUTE, 12 * MINUTE]
    assert advances[3] > 1e12
    assert len(advances) == 4


def test_late_and_dropped_elements_are_counted() -> None:
    counts = fixed().counts
    assert (counts["elements"], counts["panes"], counts["late"], counts["dropped_late"]) == (6, 6, 1, 1)


def test_a_growing_session_is_a_chain_of_windows_each_merged_into_the_next() -> None:
    stream = TestStream().add_elements([at("a", 1, 0), at("a", 2, 1), at("a", 3, 8)]).advance_watermark_to(9 * MINUTE)
    step = traced(tg.Sessions(2 * MINUTE), stream, tg.GroupByKey())
    assert [(w.start, w.end, w.into) for w in step.windows] == [
        (0, 120_000_000, 1),
        (0, 180_000_000, None),
        (480_000_000, 600_000_000, None),
    ]
    assert [(f.value, f.window) for f in step.firings] == [("[1, 2]", 1), ("[3]", 2)]


def test_elements_after_the_trigger_has_finished_are_marked_as_dropped() -> None:
    pipeline = tg.Pipeline(options=["--allow_unsafe_triggers"])
    stream = TestStream().add_elements([("a", 1), ("a", 2), ("a", 3)])
    window = tg.WindowInto(tg.GlobalWindows(), trigger=tg.AfterCount(2), accumulation=tg.DISCARDING)
    _ = pipeline | stream | window | tg.GroupByKey() | tg.Map(lambda element: None)
    (step,) = trace(pipeline).steps
    assert [a.standing for a in step.arrivals] == ["in time", "in time", "dropped closed"]
    assert step.counts["dropped_closed"] == 1


def test_elements_on_the_late_data_output_are_marked_as_dropped_late() -> None:
    pipeline = tg.Pipeline()
    stream = TestStream().advance_watermark_to(20 * MINUTE).add_elements([at("a", 1, 3), at("a", 2, 25)])
    out = pipeline | stream | tg.WindowInto(tg.FixedWindows(600)) | tg.GroupByKey().with_late_data("late")
    recorder = PaneRecorder()
    _ = out.late | recorder
    _ = out.main | tg.Map(lambda element: None)
    (step,) = trace(pipeline).steps
    assert [a.standing for a in step.arrivals] == ["dropped late", "in time"]
    assert [f.value for f in step.firings] == ["[2]"]


def test_an_element_is_traced_as_it_enters_the_grouping_and_not_the_fused_loop_before_it() -> None:
    pipeline = tg.Pipeline()
    sums = pipeline | tg.Create(["x", "yy"]) | tg.Map(lambda word: (word, len(word))) | tg.CombinePerKey(sum)
    _ = sums | tg.Map(lambda element: None)
    total = pipeline | "n" >> tg.Create([1, 2]) | "total" >> tg.CombineGlobally(sum)
    _ = total | "read" >> tg.Map(lambda element: None)
    first, second = trace(pipeline).steps
    assert [(first.keys[a.key], a.value) for a in first.arrivals] == [("'x'", "1"), ("'yy'", "2")]
    assert [(a.key, a.value) for a in second.arrivals] == [(-1, "1"), (-1, "2")]
    assert second.keys == ()


class Odd:
    def __repr__(self) -> str:
        raise ValueError("no")


SUM = tg.ValueStateSpec("sum")
QUIET = tg.EventTimer("quiet")


class Alarm(tg.DoFn):
    def process(
        self, element: Any, total: Any = tg.DoFn.StateParam(SUM), quiet: Any = tg.DoFn.TimerParam(QUIET)
    ) -> Any:
        total.write((total.read() or 0) + element[1])
        quiet.set(9 * MINUTE)
        yield element[0], total.read()

    @tg.on_timer(QUIET)
    def when_quiet(self, key: Any = tg.DoFn.KeyParam) -> Any:
        yield key, "quiet"


def test_the_trace_of_a_stateful_step_has_its_elements_and_its_output() -> None:
    stream = TestStream().add_elements([at("a", 5, 1), at("a", 2, 2)]).advance_watermark_to(9.5 * MINUTE)
    step = traced(tg.FixedWindows(600), stream, tg.ParDo(Alarm()))
    assert [(f.value, f.timing, step.keys[f.key]) for f in step.firings] == [
        ("5", "unknown", "'a'"),
        ("7", "unknown", "'a'"),
        ("'quiet'", "unknown", "'a'"),
    ]


# ---- recording changes nothing


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 40)), min_size=1, max_size=4),
            st.integers(0, 45),
        ),
        max_size=12,
    ),
    st.sampled_from([tg.FixedWindows(10), tg.SlidingWindows(10, 5), tg.Sessions(4)]),
)
def test_a_traced_run_has_the_same_output_as_an_untraced_one(events: list[Any], windows: Any) -> None:
    def run(traced: bool) -> tuple[list[Any], Trace | None]:
        stream, watermark = TestStream(), 0
        for event in events:
            if isinstance(event, int):
                watermark = max(watermark, event)
                stream = stream.advance_watermark_to(watermark)
            else:
                stream = stream.add_elements([tg.TimestampedValue((k, v), t) for k, v, t in event])
        pipeline = tg.Pipeline()
        grouped = (
            pipeline
            | stream
            | tg.WindowInto(windows, trigger=EARLY_AND_LATE, accumulation=tg.DISCARDING, allowed_lateness=5)
            | "step" >> tg.GroupByKey()
        )
        recorder = PaneRecorder()
        _ = grouped | recorder
        trace_ = trace(pipeline) if traced else None
        if not traced:
            pipeline.run().wait_until_finish()
            return recorder.records(), None
        assert trace_ is not None
        return [(f.timing, f.index, f.value) for f in trace_.step("step").firings], trace_

    plain, _ = run(False)
    drawn, trace_ = run(True)
    assert drawn == [(r.timing.value, r.index, repr(r.value[1])) for r in plain]
    assert trace_ is not None
    step = trace_.step("step")
    dropped = sum(a.standing.startswith("dropped") for a in step.arrivals)
    assert dropped == step.counts["dropped_late"] + step.counts["dropped_closed"]
    assert all(w.closed is not None for w in step.windows)


def test_a_watcher_forwards_every_event_of_operators() -> None:
    public = {name for name, _ in inspect.getmembers(Operator, inspect.isfunction) if not name.startswith("_")}
    assert public <= set(vars(Watcher)), "a watcher must forward events that it does not record"


# ---- long runs


def test_a_sample_is_spread_evenly_over_all_offered_items() -> None:
    sample: Sample[int] = Sample(8)
    for n in range(100):
        sample.offer(lambda n=n: n)  # type: ignore[misc]
    assert sample.kept == list(range(0, 100, sample.every))
    assert len(sample.kept) <= 8


def test_a_sample_of_weighted_items_is_spread_evenly() -> None:
    sample: Sample[int] = Sample(64)
    place, weights = 0, [1] * 500 + [3] * 500 + [10] * 500
    for weight in weights:
        sample.offer(lambda place=place: place, weight)  # type: ignore[misc]
        place += weight
    assert len(sample.kept) <= 64
    gaps = [after - before for before, after in pairwise(sample.kept)]
    assert all(abs(gap - sample.every) <= 10 for gap in gaps)


@pytest.fixture(scope="module")
def steady() -> Traced:
    """200,000 elements of seven keys in turn, one per 10 ms of event time, in windows of one second."""
    pipeline = tg.Pipeline(options=["--mode", "streaming"])
    elements = [tg.TimestampedValue((f"k{n % 7}", n), n / 100) for n in range(200_000)]
    windowed = pipeline | tg.Create(elements) | tg.WindowInto(tg.FixedWindows(1))
    _ = windowed | tg.CombinePerKey(sum) | tg.Map(lambda element: None)
    (step,) = trace(pipeline).steps
    return step


def test_a_steady_rate_is_drawn_as_a_straight_line_in_a_long_run(steady: Traced) -> None:
    assert steady.counts["elements"] == 200_000
    per_event = 2000 / steady.arrivals[-1].at.event
    assert steady.arrivals[-1].timestamp > 1900 * 10**6
    for arrival in steady.arrivals:
        assert abs(arrival.timestamp / 10**6 - arrival.at.event * per_event) < 2000 * 0.02


def test_the_drawn_elements_of_a_long_run_are_spread_evenly_over_time_and_keys(steady: Traced) -> None:
    tenths = Counter(arrival.timestamp // (200 * 10**6) for arrival in steady.arrivals)
    assert set(tenths) == set(range(10))
    assert max(tenths.values()) < 1.5 * min(tenths.values())
    by_key = Counter(arrival.key for arrival in steady.arrivals)
    assert len(by_key) == 7
    assert max(by_key.values()) < 3 * min(by_key.values())


def test_the_page_of_a_long_run_is_bounded(steady: Traced) -> None:
    assert 500 < len(steady.arrivals) <= MOST_DRAWN
    assert len(steady.firings) <= MOST_FIRINGS
    assert steady.every["element"] >= 200_000 / len(steady.arrivals) / 2
    assert len(Trace("steady", (steady,)).html()) < 1_000_000


def test_a_long_run_with_many_keys_is_sampled_and_the_trace_has_the_rate() -> None:
    pipeline = tg.Pipeline(options=["--mode", "streaming"])
    elements = [tg.TimestampedValue((n // 2 % 100 if n % 2 else 0, n), n) for n in range(3000)]
    _ = pipeline | tg.Create(elements) | tg.WindowInto(tg.FixedWindows(100)) | tg.GroupByKey() | tg.Map(lambda e: None)
    (step,) = trace(pipeline).steps
    assert len(step.keys) == MOST_KEYS
    assert step.counts["keys"] == 100
    assert step.counts["elements"] == 3000
    assert sum(a.key == 0 for a in step.arrivals) <= MOST_PER_KEY
    assert len(step.arrivals) <= MOST_DRAWN
    assert step.every["element"] > 1


def test_values_are_shortened_and_a_repr_that_raises_is_replaced() -> None:
    pipeline = tg.Pipeline()
    _ = pipeline | tg.Create([("a", Odd()), ("a", "x" * 5000)]) | tg.GroupByKey() | tg.Map(lambda element: None)
    (step,) = trace(pipeline).steps
    assert step.arrivals[0].value == "<Odd whose repr raised ValueError>"
    assert len(step.arrivals[1].value) == 100


# ---- running


def test_a_traced_test_pipeline_checks_its_assertions() -> None:
    pipeline = TestPipeline()
    counted = pipeline | tg.Create(["a", "b", "a"]) | tg.CombinePerElement(len)
    assert_that(counted, equal_to([("a", 2)]))
    with pytest.raises(AssertionError, match=r"\('b', 1\)"):
        trace(pipeline)


def test_the_error_of_the_run_is_raised() -> None:
    pipeline = tg.Pipeline()
    _ = pipeline | tg.Create([("a", 1)]) | tg.GroupByKey() | "bad" >> tg.Map(lambda pair: 1 // 0)
    with pytest.raises(UserCodeError, match="bad"):
        trace(pipeline)


def test_elements_that_are_no_pairs_are_refused_as_in_any_other_run() -> None:
    pipeline = tg.Pipeline()
    _ = pipeline | tg.Create([("a", 1), 3]) | tg.Map(lambda e: e) | tg.GroupByKey() | tg.Map(lambda element: None)
    with pytest.raises(RunError, match="pairs"):
        trace(pipeline)


def test_only_a_pipeline_can_be_traced() -> None:
    with pytest.raises(BuildError, match="trace takes a Pipeline, not list"):
        trace([])  # type: ignore[arg-type]


def test_the_error_of_an_unknown_step_lists_the_traced_ones() -> None:
    pipeline = tg.Pipeline()
    _ = pipeline | tg.Create([("a", 1)]) | "mine" >> tg.GroupByKey() | tg.Map(lambda element: None)
    trace_ = trace(pipeline)
    assert trace_.step("mine").label == "mine"
    with pytest.raises(KeyError, match="the traced steps are: mine"):
        trace_.step("other")


# ---- the page


def test_the_page_is_self_contained_and_has_the_data_of_the_trace(tmp_path: Path) -> None:
    pipeline = tg.Pipeline(name="a </script> & <b>")
    _ = pipeline | tg.Create([("<i>", "</script>")]) | tg.GroupByKey() | tg.Map(lambda element: None)
    trace(pipeline).save(tmp_path / "trace.html")
    page = (tmp_path / "trace.html").read_text(encoding="utf-8")
    assert "<title>a &lt;/script&gt; &amp; &lt;b&gt;</title>" in page
    assert not re.search(r'(src|href)="|url\(["\']?http|@import', page)
    assert "@@" not in page
    (step,) = data_of(page)["steps"]
    assert step["keys"] == ["'<i>'"]
    assert step["arrivals"][0][3:] == [None, "'</script>'", "in time"]


def test_the_ends_of_time_are_null_on_the_page() -> None:
    pipeline = tg.Pipeline()
    _ = pipeline | scores() | tg.WindowInto(tg.FixedWindows(600)) | tg.GroupByKey() | tg.Map(lambda element: None)
    (step,) = data_of(trace(pipeline).html())["steps"]
    assert step["watermark"][-1][2] is None
    assert step["windows"][0][2:4] == [0, 600]
    assert step["firings"][0][9] == "on_time"


def test_the_page_of_a_pipeline_without_groupings_has_no_steps() -> None:
    pipeline = tg.Pipeline()
    _ = pipeline | tg.Create([1]) | tg.Map(lambda element: None)
    trace_ = trace(pipeline)
    assert trace_.steps == ()
    assert data_of(trace_.html())["steps"] == []


@pytest.mark.filterwarnings("error::tidegate.TidegateWarning")
def test_groupings_without_a_reader_are_traced() -> None:
    pipeline = tg.Pipeline()
    timed = pipeline | tg.Create([tg.TimestampedValue(("a", n), n) for n in (5, 70)])
    windowed = timed | tg.WindowInto(tg.FixedWindows(60))
    windowed | "group" >> tg.GroupByKey()
    windowed | "sum" >> tg.CombinePerKey(sum) | "regroup" >> tg.GroupByKey()
    trace_ = trace(pipeline)
    assert [(step.label, step.counts["panes"]) for step in trace_.steps] == [("group", 2), ("sum", 2), ("regroup", 2)]


# ---- the command

JOB = """\
import tidegate as tg


def pipeline() -> tg.Pipeline:
    p = tg.Pipeline(name="job")
    ages = [tg.TimestampedValue(("a", n), n) for n in range(20)]
    sums = p | tg.Create(ages) | tg.WindowInto(tg.FixedWindows(10)) | tg.CombinePerKey(sum)
    sums | tg.Map(lambda pair: 1 // (pair[1] - BAD))
    return p
"""


def command(tmp_path: Path, bad: int, *flags: str) -> Any:
    script = tmp_path / "job.py"
    script.write_text(JOB.replace("BAD", str(bad)), encoding="utf-8")
    return CliRunner().invoke(app, ["trace", str(script), "-o", str(tmp_path / "out.html"), *flags])


def test_the_command_writes_the_page_and_prints_counts(tmp_path: Path) -> None:
    result = command(tmp_path, -1, "--mode", "streaming")
    assert result.exit_code == 0, result.output
    assert "CombinePerKey(sum): 20 elements, 2 panes" in result.output
    data = data_of((tmp_path / "out.html").read_text(encoding="utf-8"))
    assert data["error"] is None
    assert [firing[3] for firing in data["steps"][0]["firings"]] == ["45", "145"]


def test_the_command_traces_a_grouping_without_a_reader(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB.replace("    sums |", "    # sums |"), encoding="utf-8")
    result = CliRunner().invoke(app, ["trace", str(script), "-o", str(tmp_path / "out.html")])
    assert result.exit_code == 0, result.output
    assert "CombinePerKey(sum): 20 elements, 2 panes" in result.output
    assert "does nothing" not in result.output


def test_a_failing_run_is_drawn_up_to_its_failure(tmp_path: Path) -> None:
    result = command(tmp_path, 145)
    assert result.exit_code == 1
    assert "integer division" in result.output
    data = data_of((tmp_path / "out.html").read_text(encoding="utf-8"))
    assert "ZeroDivisionError" in data["error"]
    assert len(data["steps"][0]["arrivals"]) == 20


@dataclass(frozen=True)
class Bid:
    item: str
    price: int


def test_a_relational_step_is_traced_under_its_own_name_with_what_it_computes() -> None:
    p = tg.Pipeline()
    stream = TestStream().add_elements([Bid("a", 1), Bid("a", 5)], timestamp=3).advance_watermark_to_infinity()
    bids = p | stream.with_output_types(Bid) | tg.WindowInto(tg.FixedWindows(60))
    most = bids | "most" >> tg.GroupBy("item").agg(price=tg.fn.max("price"))
    most | tg.Map(str)
    (step,) = trace(p).steps
    assert step.label == "most"
    assert step.facts[0] == ("computes", "Aggregate max(price) as price by item → item string not null, price bigint")
    assert step.counts["elements"] == 2


def test_no_page_is_written_for_a_refused_pipeline(tmp_path: Path) -> None:
    result = command(tmp_path, -1, "--no_such_flag")
    assert result.exit_code == 2
    assert not (tmp_path / "out.html").exists()

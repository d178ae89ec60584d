"""`collect`, `head` and `show` run only the steps upstream of a collection."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.testing import TestStream


def numbers(p: tg.Pipeline, count: int = 10) -> tg.PCollection[int]:
    return p | tg.Create(range(count))


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_collect_returns_the_elements_of_a_collection(runner: str) -> None:
    squares = numbers(tg.Pipeline()) | tg.Map(lambda n: n * n)
    sums = squares | tg.Map(lambda n: (n % 2, n)) | tg.CombinePerKey(sum)
    assert squares.collect(runner=runner) == [n * n for n in range(10)]
    assert sorted(sums.collect(runner=runner)) == [(0, 120), (1, 165)]


@pytest.mark.xdist_group("spark")
def test_collect_and_head_work_on_spark(spark_session: Any) -> None:
    sums = numbers(tg.Pipeline("spark")) | tg.Map(lambda n: (n % 2, n)) | tg.CombinePerKey(sum)
    assert sorted(sums.collect()) == [(0, 20), (1, 25)]
    assert len(sums.head(1)) == 1


def test_collect_writes_no_sink_and_runs_no_other_branch(tmp_path: Path) -> None:
    def fails(n: int) -> int:
        raise AssertionError("not for this collection")

    p = tg.Pipeline()
    source = numbers(p)
    source | tg.io.WriteToText(str(tmp_path / "out"))
    source | tg.Map(fails)
    assert source.collect() == list(range(10))
    assert not list(tmp_path.iterdir())
    assert not p.has_run


def test_side_inputs_upstream_of_a_collection_are_run() -> None:
    p = tg.Pipeline()
    factor = p | "factor" >> tg.Create([3])
    assert (numbers(p, 3) | tg.Map(lambda n, by: n * by, tg.AsSingleton(factor))).collect() == [0, 3, 6]


def test_head_does_not_change_the_pipeline() -> None:
    with tg.Pipeline() as p:
        evens = numbers(p) | tg.Filter(lambda n: n % 2 == 0)
        labels = [node.label for node in p.portable().nodes]
        assert evens.head(2) == [0, 2]
        assert [node.label for node in p.portable().nodes] == labels
        counted = evens | tg.combiners.Count.Globally()
        counted | tg.Map(lambda n: n)
    assert counted.collect() == [5]
    assert p.result.metrics().counter("elements_out", step="Create") == 10


def counting_calls(path: Path) -> Any:
    """Return a function that returns its argument, and one that returns the number of its calls."""

    def identity(element: Any) -> Any:
        with path.open("a") as file:
            file.write(".")
        return element

    return identity, lambda: len(path.read_text())


def test_head_evaluates_no_more_elements_than_it_returns(tmp_path: Path) -> None:
    for n in (1, 3, 50):
        identity, calls = counting_calls(tmp_path / f"noted {n}")
        assert (numbers(tg.Pipeline(), 100_000) | tg.Map(identity)).head(n) == list(range(n))
        assert calls() == n


def test_head_of_a_source_reads_no_more_elements_than_it_returns(tmp_path: Path) -> None:
    identity, calls = counting_calls(tmp_path / "noted")

    class Counted(tg.io.SimpleSource[int]):
        def generate(self, split: tg.io.Split, position: tg.io.Position) -> Any:
            for n in range(position or 0, 100_000):
                yield n + 1, identity(n)

    assert (tg.Pipeline() | tg.Read(Counted())).head(1) == [0]
    assert calls() == 1


def test_head_stops_within_a_step_that_emits_many_elements(tmp_path: Path) -> None:
    numbers_counter, groups_counter = counting_calls(tmp_path / "after"), counting_calls(tmp_path / "group")
    many_numbers = tg.Pipeline() | tg.Create([1]) | tg.FlatMap(lambda n: range(10_000)) | tg.Map(numbers_counter[0])
    groups = numbers(tg.Pipeline(), 3_000) | tg.Map(lambda n: (n, 1)) | tg.GroupByKey() | tg.Map(groups_counter[0])
    assert many_numbers.head(1) == [0]
    assert len(groups.head(1)) == 1
    assert numbers_counter[1]() < 100
    assert groups_counter[1]() < 100


def test_head_of_a_filter_reads_until_it_has_found_enough_elements(tmp_path: Path) -> None:
    identity, calls = counting_calls(tmp_path / "noted")
    assert (numbers(tg.Pipeline(), 100_000) | tg.Map(identity) | tg.Filter(lambda n: n > 500)).head(2) == [501, 502]
    assert 502 < calls() <= 1_100


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_head_of_a_shorter_collection_returns_all_of_it(runner: str) -> None:
    assert numbers(tg.Pipeline(runner), 3).head(5) == [0, 1, 2]


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_head_of_an_unbounded_collection_ends_the_run(runner: str) -> None:
    ticks = tg.Pipeline(runner) | tg.PeriodicImpulse(start=0, interval=0.001) | tg.Map(lambda at: at.micros)
    assert ticks.head(3) == [0, 1_000, 2_000]


def test_an_unbounded_collection_is_collected_only_with_run_for() -> None:
    ticks = tg.Pipeline() | tg.PeriodicImpulse(start=0, interval=0.001)
    with pytest.raises(tg.BuildError, match=r"unbounded.*collect\(run_for=10\).*head\(n\)"):
        ticks.collect()
    assert ticks.collect(run_for=0.2)[0] == tg.Timestamp(0)


def test_more_elements_than_the_limit_are_an_error() -> None:
    source = numbers(tg.Pipeline())
    with pytest.raises(tg.RunError, match=r"'Create'\) has more than 9 elements.*head\(n\).*limit="):
        source.collect(limit=9)
    assert source.collect(limit=10) == source.collect(limit=None) == list(range(10))
    for wrong in (0, -1, True, "3"):
        with pytest.raises(tg.BuildError, match="whole number of at least 1"):
            source.collect(limit=wrong)  # type: ignore[arg-type]
        with pytest.raises(tg.BuildError, match="whole number of at least 1"):
            source.head(wrong)  # type: ignore[arg-type]


def test_collect_includes_window_information_on_request() -> None:
    p = tg.Pipeline()
    timed = p | tg.Create([tg.TimestampedValue("a", 1), tg.TimestampedValue("b", 61)])
    counts = timed | tg.WindowInto(tg.FixedWindows(60)) | tg.combiners.Count.PerElement()
    first, second = counts.collect(include_window_info=True)
    assert (first.value, first.windows) == (("a", 1), (tg.IntervalWindow(0, 60),))
    assert (second.value, second.windows) == (("b", 1), (tg.IntervalWindow(60, 120),))
    assert second.pane.timing is tg.Timing.ON_TIME


def test_a_test_stream_can_be_collected() -> None:
    stream = TestStream().add_elements([tg.TimestampedValue(1, 5)]).advance_watermark_to_infinity()
    assert (tg.Pipeline() | stream).collect(run_for=60) == [1]


def test_head_writes_no_checkpoints_or_metrics(tmp_path: Path) -> None:
    options = {"runner": "streaming", "checkpoint_dir": str(tmp_path / "job"), "metrics_file": str(tmp_path / "m")}
    ticks = tg.Pipeline(options=options) | tg.PeriodicImpulse(start=0, interval=0.001)
    assert ticks.head(1) == ticks.head(1) == [tg.Timestamp(0)]
    assert not list(tmp_path.iterdir())


def test_show_prints_elements_and_only_informative_columns(capsys: pytest.CaptureFixture[str]) -> None:
    p = tg.Pipeline()
    timed = p | tg.Create([tg.TimestampedValue("[red]a", 1), tg.TimestampedValue("b", 61)])
    windowed = timed | tg.WindowInto(tg.FixedWindows(60)) | tg.combiners.Count.PerElement()
    tg.show(timed | tg.combiners.Count.Globally())
    assert capsys.readouterr().out.split() == [
        "Count.Globally", "element", "─" * 7, "2", "1", "element"
    ]  # fmt: skip
    tg.show(timed, n=1)
    assert capsys.readouterr().out.split() == [
        "Create", "element", "timestamp", "─" * 31, "'[red]a'", "1970-01-01T00:00:01Z",
        "the", "first", "element,", "of", "more",
    ]  # fmt: skip
    tg.show(windowed)
    output = capsys.readouterr().out
    assert "window" in output
    assert "on_time, only" not in output


def test_show_of_a_pipeline_shows_the_collections_that_no_step_reads(capsys: pytest.CaptureFixture[str]) -> None:
    p = tg.Pipeline()
    source = numbers(p, 2)
    source | "plus" >> tg.Map(lambda n: n + 10)
    source | "minus" >> tg.Map(lambda n: n - 10)
    tg.show(p)
    output = capsys.readouterr().out
    assert [name for name in ("Create", "plus", "minus") if name in output] == ["plus", "minus"]
    with pytest.raises(tg.BuildError, match="show takes collections and pipelines, not 3"):
        tg.show(3)  # type: ignore[arg-type]


def test_reprs_describe_pipelines_collections_results_and_panes() -> None:
    p = tg.Pipeline(name="tea")
    words = p | tg.Create(["a"])
    windowed = words | tg.WindowInto(tg.FixedWindows(60))
    assert repr(p) == "<Pipeline 'tea': 2 steps, not run>"
    assert repr(words) == "<PCollection 'Create' of str: bounded>"
    assert repr(windowed) == "<PCollection 'WindowInto(FixedWindows)' of str: bounded, FixedWindows(60s)>"
    windowed | tg.Map(len)
    assert repr(p.run()) == "<PipelineResult DONE>"
    assert repr(p) == "<Pipeline 'tea': 3 steps, run: DONE>"
    pane = tg.PaneInfo(is_first=True, is_last=False, timing=tg.Timing.LATE, index=3, nonspeculative_index=1)
    assert repr(pane) == "<pane late, index 3, nonspeculative index 1, first>"


def test_a_script_that_only_collects_is_not_warned_about_an_unused_pipeline(tmp_path: Path) -> None:
    script = tmp_path / "look.py"
    script.write_text("import tidegate as tg\np = tg.Pipeline()\nprint((p | tg.Create([1, 2])).collect())\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[1, 2]\n", "")


def test_collect_reads_the_flags_of_its_script(tmp_path: Path) -> None:
    script = tmp_path / "look.py"
    script.write_text("import tidegate as tg\np = tg.Pipeline()\nprint((p | tg.Create([1, 2])).collect())\n")
    done = subprocess.run([sys.executable, str(script), "--colour", "red"], capture_output=True, text=True)
    assert done.stderr.startswith("error: unknown flag --colour")
    assert done.stdout == ""


def test_a_script_that_a_command_runs_can_use_head_before_the_pipeline_runs(tmp_path: Path) -> None:
    script = tmp_path / "look.py"
    script.write_text(
        "import tidegate as tg\nwith tg.Pipeline() as p:\n    made = p | tg.Create([1, 2])\n"
        "    print('looked', made.head(1))\n    made | tg.Map(print)\n"
    )
    command = [sys.executable, "-m", "tidegate", "run", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "looked [1]\n1\n2\n"


def test_show_takes_the_number_of_elements_as_a_second_argument(capsys: pytest.CaptureFixture[str]) -> None:
    source = numbers(tg.Pipeline())
    tg.show(source, 3)
    positional = capsys.readouterr().out
    tg.show(source, n=3)
    assert positional == capsys.readouterr().out
    assert "the first 3, of more" in positional
    with pytest.raises(tg.BuildError, match="whole number of at least 1"):
        tg.show(source, 0)


@pytest.mark.parametrize(
    ("name", "alternative"),
    [
        ("show", "tg.show(pcoll, n=3)"),
        ("take", "pcoll.head(3)"),
        ("map", "pcoll | tg.Map(f)"),
        ("groupByKey", "pcoll | tg.GroupByKey(), or tg.GroupBy(...)"),
    ],
)
def test_methods_known_from_other_libraries_are_refused_with_the_alternative(name: str, alternative: str) -> None:
    source = numbers(tg.Pipeline())
    with pytest.raises(AttributeError) as caught:
        getattr(source, name)
    assert str(caught.value) == f"a PCollection has no {name}; write {alternative}"
    assert not hasattr(source, "colect")


def test_the_error_for_head_of_a_pipeline_shows_how_to_select_a_step() -> None:
    p = tg.Pipeline()
    numbers(p)
    with pytest.raises(AttributeError, match=r'a Pipeline has no head; write p\["label"\]\.head\(3\)'):
        p.head  # type: ignore[attr-defined]  # noqa: B018


def pipeline() -> tg.Pipeline:
    """A pipeline whose collections are not in variables of the test."""

    def split(words: tg.PCollection[str]) -> tg.PCollection[str]:
        return words | "words" >> tg.FlatMap(str.split) | "long" >> tg.Filter(lambda word: len(word) > 1)

    def parse(word: str) -> Any:
        yield tg.TaggedOutput("bad", word) if word == "tea" else word.upper()

    p = tg.Pipeline()
    lines = p | "read" >> tg.Create(["a tea", "in boston"])
    parsed = (
        lines | "split" >> tg.ptransform_fn(split)() | "parse" >> tg.FlatMap(parse).with_outputs("bad", main="good")
    )
    parsed.good | "print" >> tg.Map(lambda word: None)
    return p


def test_the_output_of_a_step_is_found_by_its_label() -> None:
    p = pipeline()
    assert p["read"].collect() == ["a tea", "in boston"]
    assert p["split/words"].collect() == p["words"].collect() == ["a", "tea", "in", "boston"]
    assert p["split"].collect() == p["long"].collect() == ["tea", "in", "boston"]
    assert p["parse:bad"].collect() == ["tea"]
    assert p["read"].element_type is str


def test_a_label_that_names_no_collection_is_refused_with_the_existing_labels() -> None:
    p = pipeline()
    with pytest.raises(tg.BuildError, match="there is no step 'prase'; did you mean 'parse'"):
        p["prase"]
    with pytest.raises(tg.BuildError, match=r"there is no step 'zzz'; there are: 'read', .*'split'.*'parse:bad'"):
        p["zzz"]
    with pytest.raises(tg.BuildError, match="there is no step 'read': nothing has been applied yet"):
        tg.Pipeline()["read"]
    with pytest.raises(tg.BuildError, match=r"found by their labels, as in p\['count'\], not by 0"):
        p[0]  # type: ignore[index]
    with pytest.raises(TypeError, match="not iterable"):
        list(p)  # type: ignore[call-overload]
    with pytest.raises(tg.BuildError, match=r"not 'split': p\['split'\] is the output"):
        tg.show(p, "split")  # type: ignore[call-overload]


def test_a_sink_has_no_output_and_an_ambiguous_end_of_a_label_is_refused(tmp_path: Path) -> None:
    p = tg.Pipeline()
    for name in ("one", "two"):

        def composite(input: tg.Pipeline, n: int) -> Any:
            return input | "make" >> tg.Create([n])

        p | name >> tg.ptransform_fn(composite)(len(name))
    p["one/make"] | "write" >> tg.io.WriteToText(str(tmp_path / "out"))
    with pytest.raises(tg.BuildError, match="several steps end in 'make': write one of 'one/make', 'two/make'"):
        p["make"]
    with pytest.raises(tg.BuildError, match="the step 'write' returns no collection"):
        p["write"]

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
def test_collect_gives_the_elements_of_a_collection(runner: str) -> None:
    squares = numbers(tg.Pipeline()) | tg.Map(lambda n: n * n)
    sums = squares | tg.Map(lambda n: (n % 2, n)) | tg.CombinePerKey(sum)
    assert squares.collect(runner=runner) == [n * n for n in range(10)]
    assert sorted(sums.collect(runner=runner)) == [(0, 120), (1, 165)]


@pytest.mark.xdist_group("spark")
def test_spark_collects_too(spark_session: Any) -> None:
    sums = numbers(tg.Pipeline("spark")) | tg.Map(lambda n: (n % 2, n)) | tg.CombinePerKey(sum)
    assert sorted(sums.collect()) == [(0, 20), (1, 25)]
    assert len(sums.head(1)) == 1


def test_looking_writes_no_sink_and_runs_no_other_branch(tmp_path: Path) -> None:
    def fails(n: int) -> int:
        raise AssertionError("not for this collection")

    p = tg.Pipeline()
    source = numbers(p)
    source | tg.io.WriteToText(str(tmp_path / "out"))
    source | tg.Map(fails)
    assert source.collect() == list(range(10))
    assert not list(tmp_path.iterdir())
    assert not p.has_run


def test_side_inputs_lead_to_a_collection_too() -> None:
    p = tg.Pipeline()
    factor = p | "factor" >> tg.Create([3])
    assert (numbers(p, 3) | tg.Map(lambda n, by: n * by, tg.AsSingleton(factor))).collect() == [0, 3, 6]


def test_looking_leaves_the_pipeline_as_it_is() -> None:
    with tg.Pipeline() as p:
        evens = numbers(p) | tg.Filter(lambda n: n % 2 == 0)
        before = [node.label for node in p.portable().nodes]
        assert evens.head(2) == [0, 2]
        assert [node.label for node in p.portable().nodes] == before
        counted = evens | tg.combiners.Count.Globally()
        counted | tg.Map(lambda n: n)
    assert counted.collect() == [5]
    assert p.result.metrics().counter("elements_out", step="Create") == 10


def noting(path: Path) -> Any:
    """A function that returns its argument, and one that returns how often the first was called."""

    def note(element: Any) -> Any:
        with path.open("a") as file:
            file.write(".")
        return element

    return note, lambda: len(path.read_text())


def test_head_evaluates_no_more_elements_than_it_gives(tmp_path: Path) -> None:
    for n in (1, 3, 50):
        note, calls = noting(tmp_path / f"noted {n}")
        assert (numbers(tg.Pipeline(), 100_000) | tg.Map(note)).head(n) == list(range(n))
        assert calls() == n


def test_head_of_a_source_reads_as_little_of_it(tmp_path: Path) -> None:
    note, calls = noting(tmp_path / "noted")

    class Counted(tg.io.SimpleSource[int]):
        def generate(self, split: tg.io.Split, position: tg.io.Position) -> Any:
            for n in range(position or 0, 100_000):
                yield n + 1, note(n)

    assert (tg.Pipeline() | tg.Read(Counted())).head(1) == [0]
    assert calls() == 1


def test_head_of_what_many_elements_come_of_stops_among_them(tmp_path: Path) -> None:
    after, of_group = noting(tmp_path / "after"), noting(tmp_path / "group")
    many = tg.Pipeline() | tg.Create([1]) | tg.FlatMap(lambda n: range(10_000)) | tg.Map(after[0])
    groups = numbers(tg.Pipeline(), 3_000) | tg.Map(lambda n: (n, 1)) | tg.GroupByKey() | tg.Map(of_group[0])
    assert many.head(1) == [0]
    assert len(groups.head(1)) == 1
    assert after[1]() < 100
    assert of_group[1]() < 100


def test_head_of_a_filter_reads_on_until_it_has_found_enough(tmp_path: Path) -> None:
    note, calls = noting(tmp_path / "noted")
    assert (numbers(tg.Pipeline(), 100_000) | tg.Map(note) | tg.Filter(lambda n: n > 500)).head(2) == [501, 502]
    assert 502 < calls() <= 1_100


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_head_of_a_collection_that_is_shorter_is_all_of_it(runner: str) -> None:
    assert numbers(tg.Pipeline(runner), 3).head(5) == [0, 1, 2]


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_head_of_an_unbounded_collection_ends_the_run(runner: str) -> None:
    ticks = tg.Pipeline(runner) | tg.PeriodicImpulse(start=0, interval=0.001) | tg.Map(lambda at: at.micros)
    assert ticks.head(3) == [0, 1_000, 2_000]


def test_an_unbounded_collection_is_collected_for_a_time_only() -> None:
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


def test_window_information_comes_on_request() -> None:
    p = tg.Pipeline()
    timed = p | tg.Create([tg.TimestampedValue("a", 1), tg.TimestampedValue("b", 61)])
    counts = timed | tg.WindowInto(tg.FixedWindows(60)) | tg.combiners.Count.PerElement()
    first, second = counts.collect(include_window_info=True)
    assert (first.value, first.windows) == (("a", 1), (tg.IntervalWindow(0, 60),))
    assert (second.value, second.windows) == (("b", 1), (tg.IntervalWindow(60, 120),))
    assert second.pane.timing is tg.Timing.ON_TIME


def test_a_test_stream_can_be_looked_into() -> None:
    stream = TestStream().add_elements([tg.TimestampedValue(1, 5)]).advance_watermark_to_infinity()
    assert (tg.Pipeline() | stream).collect(run_for=60) == [1]


def test_looking_leaves_the_checkpoints_of_a_job_alone(tmp_path: Path) -> None:
    options = {"runner": "streaming", "checkpoint_dir": str(tmp_path / "job"), "metrics_file": str(tmp_path / "m")}
    ticks = tg.Pipeline(options=options) | tg.PeriodicImpulse(start=0, interval=0.001)
    assert ticks.head(1) == ticks.head(1) == [tg.Timestamp(0)]
    assert not list(tmp_path.iterdir())


def test_show_prints_elements_and_only_the_columns_that_say_something(capsys: pytest.CaptureFixture[str]) -> None:
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
    shown = capsys.readouterr().out
    assert "window" in shown
    assert "on_time, only" not in shown


def test_show_of_a_pipeline_shows_what_no_step_reads(capsys: pytest.CaptureFixture[str]) -> None:
    p = tg.Pipeline()
    source = numbers(p, 2)
    source | "plus" >> tg.Map(lambda n: n + 10)
    source | "minus" >> tg.Map(lambda n: n - 10)
    tg.show(p)
    shown = capsys.readouterr().out
    assert [name for name in ("Create", "plus", "minus") if name in shown] == ["plus", "minus"]
    with pytest.raises(tg.BuildError, match="show takes collections and pipelines, not 3"):
        tg.show(3)  # type: ignore[arg-type]


def test_reprs_say_what_a_reader_wants_to_know() -> None:
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


def test_a_script_that_only_looks_has_used_its_pipeline(tmp_path: Path) -> None:
    script = tmp_path / "look.py"
    script.write_text("import tidegate as tg\np = tg.Pipeline()\nprint((p | tg.Create([1, 2])).collect())\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[1, 2]\n", "")


def test_a_look_obeys_the_flags_of_its_script(tmp_path: Path) -> None:
    script = tmp_path / "look.py"
    script.write_text("import tidegate as tg\np = tg.Pipeline()\nprint((p | tg.Create([1, 2])).collect())\n")
    done = subprocess.run([sys.executable, str(script), "--colour", "red"], capture_output=True, text=True)
    assert done.stderr.startswith("error: unknown flag --colour")
    assert done.stdout == ""


def test_a_command_lets_its_script_look_before_the_pipeline_runs(tmp_path: Path) -> None:
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
    by_place = capsys.readouterr().out
    tg.show(source, n=3)
    assert by_place == capsys.readouterr().out
    assert "the first 3, of more" in by_place
    with pytest.raises(tg.BuildError, match="whole number of at least 1"):
        tg.show(source, 0)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("show", "tg.show(pcoll, n=3)"),
        ("take", "pcoll.head(3)"),
        ("map", "pcoll | tg.Map(f)"),
        ("groupByKey", "pcoll | tg.GroupByKey(), or tg.GroupBy(...)"),
    ],
)
def test_methods_of_collections_elsewhere_are_answered_with_what_to_write(name: str, instead: str) -> None:
    source = numbers(tg.Pipeline())
    with pytest.raises(AttributeError) as caught:
        getattr(source, name)
    assert str(caught.value) == f"a PCollection has no {name}; write {instead}"
    assert not hasattr(source, "colect")


def test_looking_methods_of_a_pipeline_say_how_a_step_is_named() -> None:
    p = tg.Pipeline()
    numbers(p)
    with pytest.raises(AttributeError, match=r'a Pipeline has no head; write p\["label"\]\.head\(3\)'):
        p.head  # type: ignore[attr-defined]  # noqa: B018


def pipeline() -> tg.Pipeline:
    """A pipeline whose collections are in no variable of the test."""

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


def test_a_label_that_names_no_collection_is_refused_with_those_there_are() -> None:
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


def test_a_sink_has_no_output_and_labels_that_end_alike_are_told_apart(tmp_path: Path) -> None:
    p = tg.Pipeline()
    for name in ("one", "two"):

        def both(input: tg.Pipeline, n: int) -> Any:
            return input | "make" >> tg.Create([n])

        p | name >> tg.ptransform_fn(both)(len(name))
    p["one/make"] | "write" >> tg.io.WriteToText(str(tmp_path / "out"))
    with pytest.raises(tg.BuildError, match="several steps end in 'make': write one of 'one/make', 'two/make'"):
        p["make"]
    with pytest.raises(tg.BuildError, match="the step 'write' returns no collection"):
        p["write"]

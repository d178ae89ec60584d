"""SEMANTICS, Keys, outputs, delivery: an output belongs to the step that declares it, even if others share its tag."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.support.stream_scripts import Watermark, to_test_stream
from tidegate.testing import TestPipeline, assert_that, equal_to

SEEN = tg.ValueStateSpec("seen")


class Tagging(tg.DoFn):
    """Emits each element on the main output and its name to `side`, per element and at the end of the bundle."""

    def __init__(self, name: str) -> None:
        self.name = name

    def process(self, element: Any) -> Iterator[Any]:
        yield element
        yield tg.TaggedOutput("side", (self.name, element))

    def finish_bundle(self) -> Iterator[Any]:
        yield tg.TaggedOutput("side", (self.name, "end"))


class Restamping(Tagging):
    """The same with new timestamps, for which elements leave the loop of a fused chain and return to it."""

    def process(self, element: Any) -> Iterator[Any]:
        yield tg.TimestampedValue(element, 5)
        yield tg.TaggedOutput("side", tg.TimestampedValue((self.name, element), 7))


class Remembering(Tagging):
    """The same with state."""

    def process(self, element: Any, seen: Any = tg.DoFn.StateParam(SEEN)) -> Iterator[Any]:
        yield from super().process(element)


def tagging(name: str) -> Callable[[Any], list[Any]]:
    return lambda element: [element, tg.TaggedOutput("side", (name, element))]


@pytest.mark.parametrize("kind", [tagging, Tagging, Restamping, Remembering], ids=lambda kind: kind.__name__)
def test_a_tag_of_one_step_is_not_that_of_a_later_step(runner: str, kind: Callable[[str], Any]) -> None:
    pipeline = TestPipeline(runner)
    elements = [("k", 1), ("k", 2)]
    first = pipeline | tg.Create(elements) | "first" >> tg.ParDo(kind("first")).with_outputs("side")
    second = first.main | "second" >> tg.ParDo(kind("second")).with_outputs("side")
    assert_that(second.main, equal_to(elements), label="main")
    assert_that(
        second.side | tg.Filter(lambda pair: pair[1] != "end") | tg.Distinct(),
        equal_to([("second", element) for element in elements]),
        label="side",
    )
    assert_that(second.side | tg.Keys() | tg.Distinct(), equal_to(["second"]), label="names")
    pipeline.run()


def test_a_tag_of_one_step_may_be_what_the_next_calls_its_main_output(runner: str) -> None:
    pipeline = TestPipeline(runner)
    first = pipeline | tg.Create([1]) | "first" >> tg.FlatMap(tagging("first")).with_outputs("side", main="m")
    second = first.m | "second" >> tg.FlatMap(lambda x: [x, tg.TaggedOutput("m", -x)]).with_outputs("m", main="side")
    assert_that(second.side, equal_to([1]), label="main")
    assert_that(second.m, equal_to([-1]), label="tagged")
    pipeline.run()


def test_dead_letters_are_those_of_their_own_step(runner: str) -> None:
    pipeline = TestPipeline(runner)
    good, _ = pipeline | tg.Create([0, 1, 2]) | "first" >> tg.Map(lambda x: 6 // x).with_exception_handling()
    better, bad = good | "second" >> tg.Map(lambda x: 6 // (x - 3)).with_exception_handling()
    assert_that(better, equal_to([2]), label="good")
    assert_that(bad | tg.Keys(), equal_to([3]), label="bad")
    result = pipeline.run()
    assert result.metrics().counter("dead_letters", step="first") == 1
    assert result.metrics().counter("dead_letters", step="second") == 1


def test_a_tag_that_is_also_that_of_later_dead_letters_stays_apart(runner: str) -> None:
    pipeline = TestPipeline(runner)
    first = (
        pipeline
        | tg.Create([0, 1])
        | tg.FlatMap(lambda x: [x, tg.TaggedOutput("bad", x)]).with_outputs("bad", main="m")
    )
    good, bad = first.m | tg.Map(lambda x: 1 // x).with_exception_handling()
    assert_that(good, equal_to([1]), label="good")
    assert_that(bad | tg.Keys(), equal_to([0]), label="bad")
    pipeline.run()


def test_a_further_output_that_is_read_as_a_side_input_alone_is_whole(runner: str) -> None:
    pipeline = TestPipeline(runner)
    made = pipeline | tg.Create([1, 2]) | "first" >> tg.FlatMap(tagging("first")).with_outputs("side")
    _ = made.main | tg.Map(lambda x: x)
    seen = pipeline | "one" >> tg.Create([0]) | tg.Map(lambda x, side: sorted(side), tg.AsList(made.side))
    assert_that(seen, equal_to([[("first", 1), ("first", 2)]]))
    pipeline.run()


def test_dead_letters_that_are_read_as_a_side_input_alone_are_whole(runner: str) -> None:
    pipeline = TestPipeline(runner)
    good, bad = pipeline | tg.Create([0, 1]) | "first" >> tg.Map(lambda x: 1 // x).with_exception_handling()
    _ = good | "second" >> tg.Map(lambda x: 1 // (x - 1)).with_exception_handling()
    seen = pipeline | "one" >> tg.Create([0]) | tg.Map(lambda x, side: [e for e, _ in side], tg.AsList(bad))
    assert_that(seen, equal_to([[0]]))
    pipeline.run()


def test_late_data_is_that_of_its_own_grouping(stream_runner: str) -> None:
    pipeline = TestPipeline(stream_runner)
    windowed = (
        pipeline
        | to_test_stream([("a", 1), Watermark(10), ("late for the first", 2), ("b", 12)])
        | tg.WindowInto(tg.FixedWindows(10))
    )
    first = windowed | "first" >> tg.GroupByKey().with_late_data("late")
    second = first.main | "second" >> tg.GroupByKey().with_late_data("late")
    assert_that(second.late, equal_to([]), label="late")
    assert_that(
        second.main | tg.Map(lambda pair: (pair[0], [list(values) for values in pair[1]])),
        equal_to([("k", [["a"]]), ("k", [["b"]])]),
        label="main",
    )
    pipeline.run()

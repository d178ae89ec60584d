"""Code that is easily written but rarely intended is refused, or causes a warning, when built or first run."""

from __future__ import annotations

import functools
import operator
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tidegate.testing import TestPipeline, assert_that, equal_to


def generated(x: Any) -> Iterator[Any]:
    yield x


class Generates:
    def __call__(self, x: Any) -> Iterator[Any]:
        yield x


def shouted(x: str) -> str:
    return x.upper()


def maybe_shouted(x: str) -> str | None:
    return x.upper() or None


def as_record(x: str) -> dict[str, str]:
    return {"x": x}


def unannotated(x):  # type: ignore[no-untyped-def]
    return x


class Shout(tg.DoFn):
    def process(self, element: str) -> str:  # type: ignore[override]
        return element.upper()


def pairs(p: tg.Pipeline) -> Any:
    return p | tg.Create([("a", 1), ("a", 2), ("b", 3)])


REFUSED: dict[str, tuple[Callable[[tg.Pipeline], Any], str]] = {
    "Map of a generator function": (
        lambda p: pairs(p) | tg.Map(generated),
        "generated is a generator function (it has a yield), so each result would be a generator. "
        "To emit what it yields as elements, write tg.FlatMap(generated)",
    ),
    "Map of a partial of one": (lambda p: pairs(p) | tg.Map(functools.partial(generated)), "tg.FlatMap("),
    "Map of an object whose call is one": (lambda p: pairs(p) | tg.Map(Generates()), "is a generator function"),
    "MapTuple of one": (lambda p: pairs(p) | tg.MapTuple(generated), "write tg.FlatMapTuple(generated)"),
    "MapValues of one": (lambda p: pairs(p) | tg.MapValues(generated), "write tg.FlatMapValues(generated)"),
    "Filter by one": (lambda p: pairs(p) | tg.Filter(generated), "a generator is always true"),
    "WithKeys by one": (lambda p: pairs(p) | tg.WithKeys(generated), "so each result would be a generator"),
    "FlatMap annotated as str": (
        lambda p: p | tg.Create(["a"]) | tg.FlatMap(shouted),
        "FlatMap(shouted) emits the items of what shouted returns, which is a str: its characters would be the "
        "elements. Return a list, such as [text], or use tg.Map",
    ),
    "FlatMap annotated as str or None": (
        lambda p: p | tg.Create(["a"]) | tg.FlatMap(maybe_shouted),
        "its characters would be the elements",
    ),
    "FlatMap of a method of str": (lambda p: p | tg.Create(["a"]) | tg.FlatMap(str.upper), "which is a str"),
    "FlatMap annotated as dict": (
        lambda p: p | tg.Create(["a"]) | tg.FlatMap(as_record),
        "which is a dict[str, str]: its keys would be the elements",
    ),
    "process annotated as str": (lambda p: p | tg.Create(["a"]) | tg.ParDo(Shout()), "its characters would be"),
    "a step without a pipeline": (
        lambda p: tg.Create([1]) | tg.Map(str),
        "Create has not been applied to anything, so Map(str) can't follow it: begin with the pipeline, `p |",
    ),
    "the truth of a collection": (lambda p: not pairs(p), "is neither true nor false"),
    "the length of a collection": (lambda p: len(pairs(p)), "has no length: its contents are known only while"),
    "a search in a collection": (lambda p: 1 in pairs(p), "can't be searched with `in`"),
    "the items of a collection": (lambda p: list(pairs(p)), "can't be iterated"),
    "a step where a combiner is wanted": (
        lambda p: pairs(p) | tg.CombinePerKey(tg.GroupByKey()),
        "GroupByKey is a step: apply it to the collection with |",
    ),
    "a family that needs arguments": (
        lambda p: pairs(p) | tg.CombinePerKey(tg.combiners.Top),
        "write CombinePerKey(Top.PerKey(…))",
    ),
    "a function of two values as combiner": (
        lambda p: pairs(p) | tg.CombinePerKey(lambda a, b: a + b),
        "it takes 2. If it combines two values, and may be applied to its own results, write "
        "CombinePerKey(tg.associative(lambda a, b: …))",
    ),
    "an operator as combiner": (
        lambda p: pairs(p) | tg.CombinePerKey(operator.mul),
        "CombinePerKey(tg.associative(mul))",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_code_that_is_rarely_intended_is_refused_when_the_pipeline_is_built(case: str) -> None:
    write, message = REFUSED[case]
    with pytest.raises(tg.BuildError, match=re.escape(message)):
        write(tg.Pipeline())


@pytest.mark.parametrize(
    "combiner",
    [tg.combiners.Mean.PerKey(), tg.combiners.Mean.Globally(), tg.combiners.Mean],
    ids=["PerKey", "Globally", "family"],
)
def test_a_combining_step_is_accepted_as_a_combiner(combiner: Any) -> None:
    with TestPipeline() as p:
        assert_that(pairs(p) | tg.CombinePerKey(combiner), equal_to([("a", 1.5), ("b", 3.0)]))


def test_a_combining_step_with_arguments_is_accepted_as_a_combiner_with_them() -> None:
    with TestPipeline() as p:
        assert_that(pairs(p) | tg.CombinePerKey(tg.combiners.Top.Of(1)), equal_to([("a", [2]), ("b", [3])]))


@pytest.mark.parametrize(
    "fn", [operator.mul, lambda a, b: a * b, lambda values: functools.reduce(operator.mul, values)]
)
@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_associative_accepts_a_function_of_two_values_or_of_all_values(runner: str, fn: Any) -> None:
    numbers = [(n % 3, n) for n in range(1, 40)]
    products: dict[int, int] = {}
    for key, n in numbers:
        products[key] = products.get(key, 1) * n
    with TestPipeline(runner) as p:
        assert_that(p | tg.Create(numbers) | tg.CombinePerKey(tg.associative(fn)), equal_to(products.items()))


def test_a_combiner_with_extra_arguments_is_not_mistaken_for_a_function_of_two_values() -> None:
    with TestPipeline() as p:
        total = p | tg.Create([1, 2]) | tg.CombineGlobally(lambda values, factor: sum(values) * factor, 10)
        assert_that(total, equal_to([30]))


@pytest.mark.parametrize("value", ["text", b"data", {"key": 1}], ids=["str", "bytes", "dict"])
@pytest.mark.parametrize("runner", ["direct", "streaming"])
@pytest.mark.parametrize("form", ["FlatMap", "process", "stateful", "with dead letters", "after a step"])
def test_one_value_where_several_are_expected_is_an_error_that_names_the_element(
    form: str, runner: str, value: Any
) -> None:
    p = TestPipeline(runner)
    values = p | tg.Create([value])
    match form:
        case "FlatMap":
            _ = values | "several" >> tg.FlatMap(unannotated)
        case "process":
            _ = values | "several" >> tg.ParDo(ReturnsOneValue())
        case "stateful":
            _ = values | tg.WithKeys("k") | "several" >> tg.ParDo(ReturnsWithState())
        case "with dead letters":
            _ = values | "several" >> tg.FlatMap(unannotated).with_exception_handling()
        case "after a step":
            _ = values | tg.Map(unannotated) | "several" >> tg.FlatMap(unannotated) | tg.Map(unannotated)
    with pytest.raises(tg.UserCodeError) as caught:
        p.run()
    message = str(caught.value)
    assert f"TypeError: it returned the {type(value).__name__} {value!r}" in message
    assert "would be the elements. Return a list" in message
    assert "in step 'several'" in message
    assert repr(value) in message.partition("element:")[2]


class ReturnsOneValue(tg.DoFn):
    def process(self, element):  # type: ignore[no-untyped-def]
        return element


class ReturnsWithState(tg.DoFn):
    def process(self, element, seen=tg.DoFn.StateParam(tg.ValueStateSpec("seen"))):  # type: ignore[no-untyped-def]  # noqa: B008
        return element[1]


def test_windows_with_gaps_cause_a_warning_at_their_line() -> None:
    p = tg.Pipeline()
    with pytest.warns(tg.TidegateWarning, match=r"SlidingWindows\(5, 10\) leaves gaps: of each 10 s") as caught:
        _ = pairs(p) | tg.WindowInto(tg.SlidingWindows(5, 10))
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("timestamp", "unit"), [(1_700_000_000_000, "milliseconds, divide it by 1,000"), (1.7e12, "milliseconds")]
)
def test_a_timestamp_in_milliseconds_causes_a_warning_at_its_line(timestamp: float, unit: str) -> None:
    with pytest.warns(tg.TidegateWarning, match=re.escape(f"in the year 55840; if it is in {unit}")) as caught:
        stamped = eval(compile("tg.TimestampedValue(1, timestamp)", f"{timestamp}.py", "eval"))  # has its own file name
    assert caught[0].filename == f"{timestamp}.py"
    assert stamped.micros == 1_700_000_000_000_000_000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _ = [eval(compile("tg.TimestampedValue(1, timestamp)", f"{timestamp}.py", "eval")) for _ in range(3)]


def test_a_timestamp_in_nanoseconds_is_refused() -> None:
    with pytest.raises(ValueError, match="past the end of time; if they are nanoseconds, divide them by 1,000"):
        tg.TimestampedValue(1, 1.7e18)


@pytest.mark.parametrize("timestamp", [99_999_999_999, -1e12, tg.Timestamp(10**12), 0])
def test_other_timestamps_cause_no_warning(timestamp: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tg.TimestampedValue(1, timestamp).micros == tg.Timestamp.of(timestamp).micros


def test_a_column_of_timestamps_in_milliseconds_causes_a_warning() -> None:
    from tidegate.sdk.data.timestamps import element_column

    for times in ([1, 1_700_000_000_000], [0.5, 1.7e12], [0.5] * 5000 + [1.7e12]):
        line = f"column of {len(times)} {times[0]}"
        with pytest.warns(tg.TidegateWarning, match="if it is in milliseconds"):
            column, span = eval(
                compile("element_column(times)", line, "eval"), {"element_column": element_column, "times": times}
            )
        assert column[-1] == span[1] == 1_700_000_000_000_000_000


@pytest.mark.parametrize(
    "step",
    [
        tg.combiners.Top.Of(1),
        tg.combiners.Count.Globally(),
        tg.combiners.Latest.Globally(),
        tg.combiners.Mean.Globally(),
    ],
    ids=lambda step: step.default_label(),
)
def test_the_combiners_of_the_library_emit_nothing_for_empty_windows(step: Any) -> None:
    with TestPipeline() as p:
        numbers = p | tg.Create([tg.TimestampedValue(n, n) for n in (1, 2, 35)])
        assert_that(
            numbers | tg.WindowInto(tg.FixedWindows(10)) | step | tg.Map(lambda _: "pane"), equal_to(["pane"] * 2)
        )


def test_a_pipeline_whose_steps_are_all_dropped_causes_a_warning() -> None:
    p = tg.Pipeline(name="idle")
    counts = p | tg.Create(["a", "b"]) | "count" >> tg.CombinePerElement(len)
    with pytest.warns(tg.TidegateWarning, match="'idle' does nothing: no step reads what 'count' makes") as caught:
        p.run()
    assert caught[0].filename == __file__
    assert sorted(counts.collect()) == [("a", 1), ("b", 1)]


def test_a_pipeline_with_a_used_step_causes_no_warning_about_dropped_steps() -> None:
    with tg.Pipeline() as p:
        elements = p | tg.Create(["a"])
        elements | tg.CombinePerElement(len)
        elements | tg.Map(str.upper)
    assert p.result.state is tg.PipelineState.DONE


@pytest.mark.filterwarnings("error")
def test_a_loop_whose_steps_are_none_of_the_authors_functions_is_not_dropped_and_causes_no_warning() -> None:
    p = tg.Pipeline()
    p | tg.Create([("a", 1)]) | "loop" >> tg.Iterate(lambda pairs: pairs | tg.Reshuffle(), rounds=3)
    result = p.run()
    result.wait_until_finish()
    assert result.metrics().counter("rounds", step="loop") == 3

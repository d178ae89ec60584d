"""SEMANTICS, Iterations I2 to I8: rounds, their numbers and state, constants, several variables, and what leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import tidegate as tg
from tidegate.testing import PaneRecorder, TestPipeline, TestStream, assert_that, equal_to, is_empty

PAIRS = [("a", 1), ("b", 2)]


class Ranks(NamedTuple):
    low: Any
    high: Any


class Numbered(tg.DoFn):
    """Adds a line to a file for each life-cycle call and pairs of a value and the number of its round."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def setup(self) -> None:
        self.note("setup")

    def teardown(self) -> None:
        self.note("teardown")

    def finish_bundle(self) -> None:
        self.note("finish_bundle")

    def process(self, element: Any, number: int = tg.DoFn.RoundParam) -> Iterator[Any]:
        yield element[0], element[1] * 10 + number

    def note(self, what: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{what} {os.getpid()}\n")


class Total(tg.DoFn):
    """Adds the values of a key up, and emits the sum when the window expires."""

    total = tg.CombiningStateSpec("total", sum)

    def process(self, element: Any, total: Any = tg.DoFn.StateParam(total)) -> None:
        total.add(element[1])

    @tg.on_window_expiration
    def end(
        self, key: str = tg.DoFn.KeyParam, total: Any = tg.DoFn.StateParam(total), n: int = tg.DoFn.RoundParam
    ) -> Iterator[Any]:
        yield key, total.read() + 100 * n


def test_a_function_gets_the_number_of_the_innermost_loop_s_round(runner: str) -> None:
    number = tg.DoFn.RoundParam
    with TestPipeline(runner) as p:
        start = p | tg.Create([""])

        def inner(text: Any) -> Any:
            return text | tg.Map(lambda t, n=number: f"{t}{n}")

        def outer(text: Any) -> Any:
            return text | tg.Iterate(inner, rounds=2) | tg.Map(lambda t, n=number: f"{t}{'abc'[n - 1]}")

        assert_that(start | tg.Iterate(outer, rounds=3), equal_to(["12a12b12c"]))
        assert_that(start | "none" >> tg.Iterate(outer, rounds=0), equal_to([""]))


def test_setup_runs_once_in_each_worker_and_bundles_end_in_each_round(tmp_path: Path, runner: str) -> None:
    with TestPipeline(runner) as p:
        found = p | tg.Create(PAIRS) | tg.Iterate(lambda x: x | tg.ParDo(Numbered(tmp_path / "calls")), rounds=3)
        assert_that(found, equal_to([("a", 1123), ("b", 2123)]))
    lines = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    for worker in {worker for _, worker in lines}:
        calls = [call for call, each in lines if each == worker]
        assert (calls[0], calls[-1]) == ("setup", "teardown")
        assert (calls.count("setup"), calls.count("teardown")) == (1, 1)
    assert [call for call, _ in lines].count("finish_bundle") >= 3


def test_setup_runs_once_for_a_loop_within_a_loop(tmp_path: Path, runner: str) -> None:
    def outer(pairs: Any) -> Any:
        return pairs | tg.Iterate(lambda x: x | tg.ParDo(Numbered(tmp_path / "calls")), rounds=2)

    with TestPipeline(runner) as p:
        assert_that(p | tg.Create(PAIRS) | tg.Iterate(outer, rounds=2), equal_to([("a", 11212), ("b", 21212)]))
    lines = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    for worker in {worker for _, worker in lines}:
        calls = [call for call, each in lines if each == worker]
        assert (calls[0], calls[-1]) == ("setup", "teardown")
        assert (calls.count("setup"), calls.count("teardown")) == (1, 1)


def test_state_begins_anew_in_each_round_and_windows_expire_in_each(runner: str) -> None:
    with TestPipeline(runner) as p:
        found = p | tg.Create([*PAIRS, ("a", 5)]) | tg.Iterate(lambda x: x | tg.ParDo(Total()), rounds=2)
        assert_that(found, equal_to([("a", 306), ("b", 302)]))


def test_steps_that_depend_on_no_variable_run_once(tmp_path: Path, runner: str) -> None:
    calls = tmp_path / "calls"

    def noted(pair: Any) -> Any:
        with calls.open("a") as file:
            file.write("x")
        return pair

    with TestPipeline(runner) as p:
        links = p | "links" >> tg.Create([("a", "b"), ("b", "a")])
        start = p | tg.Create(PAIRS)

        def step(ranks: Any) -> Any:
            kept = links | "noted" >> tg.Map(noted).with_output_types(tuple[str, str])
            joined = (kept, ranks) | tg.CoGroupByKey()
            return joined | tg.Map(lambda group: (group[1][0][0], group[1][1][0] + 1)).with_output_types(
                tuple[str, int]
            )

        found = start | tg.Iterate(step, rounds=4)
        assert_that(found, equal_to([("a", 5), ("b", 6)]))
    assert calls.read_text() == "xx"


def test_all_variables_change_at_once(runner: str) -> None:
    with TestPipeline(runner) as p:
        low, high = p | "low" >> tg.Create([1]), p | "high" >> tg.Create([10])
        swapped = (low, high) | tg.Iterate(lambda both: (both[1], both[0] | tg.Map(lambda n: n + 1)), rounds=3)
        assert_that(swapped[0], equal_to([11]))
        assert_that(swapped[1], equal_to([3]))
        by_name = {"low": low, "high": high} | "dict" >> tg.Iterate(
            lambda both: {"low": both["high"], "high": both["low"]}, rounds=1
        )
        assert_that(by_name["low"], equal_to([10]))
        named = Ranks(low, high) | "named" >> tg.Iterate(lambda both: Ranks(both.high, both.low), rounds=1)
        assert isinstance(named, Ranks)
        assert_that(named.high, equal_to([1]))


def test_a_body_may_return_the_entries_of_a_dict_in_any_order(runner: str) -> None:
    def body(x: dict[str, Any]) -> dict[str, Any]:
        return {"b": x["a"], "a": x["b"] | tg.Map(lambda n: n + 1)}

    with TestPipeline(runner) as p:
        start = {"a": p | "one" >> tg.Create([1]), "b": p | "ten" >> tg.Create([10])}
        found = start | tg.Iterate(body, rounds=3)
        assert_that(found["a"], equal_to([12]), label="a")
        assert_that(found["b"], equal_to([2]), label="b")


def test_out_holds_what_all_rounds_gave(runner: str) -> None:
    def step(x: Any) -> Any:
        seen = x | tg.Map(lambda n, number=tg.DoFn.RoundParam: (number, n))
        return tg.Round(x | "next" >> tg.Map(lambda n: n + 1), out={"seen": seen, "before": x})

    with TestPipeline(runner) as p:
        found = p | tg.Create([tg.TimestampedValue(5, 3)]) | tg.Iterate(step, rounds=3)
        assert_that(found.result, equal_to([8]))
        assert_that(found.out["before"], equal_to([5, 6, 7]))
        recorder = PaneRecorder()
        _ = found.out["seen"] | recorder
    records = recorder.records()
    assert [record.value for record in records] == [(1, 5), (2, 6), (3, 7)]
    assert {record.timestamp for record in records} == {tg.Timestamp(3)}


def test_a_flattened_collection_can_be_start_constant_and_result(runner: str) -> None:
    with TestPipeline(runner) as p:
        one, two = p | "one" >> tg.Create([1]), p | "two" >> tg.Create([2])
        both = (one, two) | tg.Flatten()
        grown = both | tg.Iterate(lambda x: (x, both) | "more" >> tg.Flatten(), rounds=2)
        assert_that(grown, equal_to([1, 1, 1, 2, 2, 2]))
        assert_that(both, equal_to([1, 2]))


def test_a_round_joins_the_windows_of_constants(runner: str) -> None:
    with TestPipeline(runner) as p:
        windows = tg.WindowInto(tg.FixedWindows(10))
        links = p | "links" >> tg.Create([tg.TimestampedValue(("a", n), n) for n in (1, 5, 25)]) | "a" >> windows
        start = p | "start" >> tg.Create([tg.TimestampedValue(("a", 0), at) for at in (3, 14)]) | "b" >> windows

        def step(before: Any) -> Any:
            grouped = (links, before) | tg.CoGroupByKey()
            return grouped | tg.MapValues(lambda group: sum(group[0]) + sum(group[1])).with_output_types(
                tuple[str, int]
            )

        assert_that(start | tg.Iterate(step, rounds=3), equal_to([("a", 18), ("a", 0), ("a", 75)]))


def test_the_body_of_an_empty_loop_runs_too(runner: str) -> None:
    with TestPipeline(runner) as p:
        nothing = p | tg.Create([]).with_output_types(int)
        assert_that(nothing | tg.Iterate(lambda x: x | tg.Map(lambda n: n + 1), rounds=2), is_empty())
        counted = nothing | "count" >> tg.Iterate(lambda x: x | tg.combiners.Count.Globally(), rounds=2)
        assert_that(counted, equal_to([1]))


def test_rounds_of_a_stream_are_those_of_its_unrolling(stream_runner: str) -> None:
    stream = TestStream().add_elements([tg.TimestampedValue(("a", 1), 1)]).advance_watermark_to(12)
    with TestPipeline(stream_runner) as p:
        windowed = (
            p
            | stream.add_elements([tg.TimestampedValue(("a", 5), 15)]).advance_watermark_to_infinity()
            | tg.WindowInto(tg.FixedWindows(10))
        )

        def step(x: Any) -> Any:
            summed = x | tg.CombinePerKey(sum)
            new = summed | tg.Map(lambda pair, n=tg.DoFn.RoundParam: (pair[0], pair[1] + n))
            return tg.Round(new, out={"seen": summed})

        found = windowed | tg.Iterate(step, rounds=3)
        assert_that(found.result, equal_to([("a", 7), ("a", 11)]))
        assert_that(found.out["seen"], equal_to([("a", 1), ("a", 2), ("a", 4), ("a", 5), ("a", 6), ("a", 8)]))


def test_a_loop_over_bounded_data_keeps_its_condition_in_a_loop_over_a_stream(stream_runner: str) -> None:
    stream = TestStream().add_elements([tg.TimestampedValue(0, 1)]).advance_watermark_to_infinity()

    def doubled(x: Any) -> Any:
        new = x | "double" >> tg.Map(lambda n: 2 * n)
        return tg.Round(new, again=new | "small" >> tg.Filter(lambda n: n < 100), out={"all": new})

    with TestPipeline(stream_runner) as p:
        few = p | "few" >> tg.Create([3, 5])

        def step(x: Any) -> Any:
            numbered = few | "number" >> tg.Map(lambda n, r=tg.DoFn.RoundParam: n + r)
            inner = numbered | "inner" >> tg.Iterate(doubled, rounds=20)
            held = tg.AsList(inner.out["all"])
            ends = tg.AsList(inner.result)
            return x | "add" >> tg.Map(lambda n, ends, of_all: n + sum(ends) + len(of_all), ends, held)

        found = p | stream | tg.Iterate(step, rounds=2)
        # Of 4 and 6, there are 128 and 192 after 5 rounds; of 5 and 7, 160 and 224.
        assert_that(found, equal_to([128 + 192 + 10 + 160 + 224 + 10]))


def test_a_loop_with_a_solution_is_one_in_a_loop_over_a_stream(stream_runner: str) -> None:
    stream = TestStream().add_elements([tg.TimestampedValue(0, 1)]).advance_watermark_to_infinity()

    def lowered(solution: Any, work: Any) -> Any:
        less = work | "less" >> tg.MapTuple(lambda key, n: (key, n - 2)).with_output_types(tuple[str, int])
        return less | "left" >> tg.Filter(lambda pair: pair[1] > 0)

    with TestPipeline(stream_runner) as p:
        pairs = p | "pairs" >> tg.Create([("a", 5), ("b", 2)]).with_output_types(tuple[str, int])

        def step(x: Any) -> Any:
            numbered = pairs | "number" >> tg.Map(
                lambda pair, r=tg.DoFn.RoundParam: (pair[0], pair[1] + r)
            ).with_output_types(tuple[str, int])
            least = (numbered, numbered) | "inner" >> tg.IterateDelta(lowered, merge=min)
            return x | "add" >> tg.Map(lambda n, least: n + sum(v for _, v in least), tg.AsList(least))

        found = p | stream | tg.Iterate(step, rounds=2)
        assert_that(found, equal_to([2 + 1 + 1 + 2]))


def test_a_join_with_a_constant_counts_each_pair_that_it_makes(runner: str) -> None:
    pipeline = TestPipeline(runner)
    known = pipeline | "known" >> tg.Create([(1, "a"), (1, "b"), (2, "c")])

    def body(pairs: Any) -> Any:
        return pairs | tg.Join.inner(known) | tg.MapTuple(lambda key, both: (key, both[0] + 1)) | tg.Distinct()

    found = pipeline | tg.Create([(1, 0), (1, 5), (3, 7)]) | tg.Iterate(body, rounds=2)
    assert_that(found, equal_to([(1, 2), (1, 7)]))
    assert pipeline.run().metrics().counter("elements_out", step="Iterate/Join.inner/Pairs") == 8

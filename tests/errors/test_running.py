"""The exact messages about errors during a run, which name the step, the method and the element."""

# ruff: noqa: E731
from __future__ import annotations

import sys
import threading
import traceback
from collections import UserList, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tidegate as tg
from tests.support.failing_pipelines import error_message, run_to_failure


class Fails(tg.DoFn):
    """Raises in one of its methods."""

    def __init__(self, method: str) -> None:
        self.method = method

    def fail(self, method: str) -> None:
        if method == self.method:
            raise OSError("disk full")

    def setup(self) -> None:
        self.fail("setup")

    def start_bundle(self) -> None:
        self.fail("start_bundle")

    def process(self, element: int) -> list[int]:
        self.fail("process")
        return [element]

    def finish_bundle(self) -> None:
        self.fail("finish_bundle")

    def teardown(self) -> None:
        self.fail("teardown")


class FailsLater(tg.DoFn):
    """Its methods are generators that raise after they have yielded an element."""

    def __init__(self, method: str) -> None:
        self.method = method

    def process(self, element: int) -> Iterator[int]:
        yield element
        if self.method == "process":
            raise OSError("disk full")

    def finish_bundle(self) -> Iterator[int]:
        yield 1
        if self.method == "finish_bundle":
            raise OSError("disk full")


@pytest.mark.parametrize("method", ["setup", "start_bundle", "finish_bundle", "teardown"])
def test_the_error_of_a_life_cycle_method_names_the_method(method: str) -> None:
    assert error_message(lambda p: p | tg.Create([7]) | "save" >> tg.ParDo(Fails(method))) == (
        f"UserCodeError: OSError: disk full\n  in step 'save', applied at HERE\n  while calling {method}"
    )


@pytest.mark.parametrize("dofn", [Fails("process"), FailsLater("process")])
def test_the_error_of_process_names_the_element(dofn: tg.DoFn) -> None:
    assert error_message(lambda p: p | tg.Create([7]) | "save" >> tg.ParDo(dofn)) == (
        "UserCodeError: OSError: disk full\n  in step 'save', applied at HERE\n  while calling process\n  element: 7"
    )


def test_the_error_of_a_generator_names_the_method() -> None:
    assert error_message(lambda p: p | tg.Create([7]) | "save" >> tg.ParDo(FailsLater("finish_bundle"))) == (
        "UserCodeError: OSError: disk full\n  in step 'save', applied at HERE\n  while calling finish_bundle"
    )


def test_the_cause_is_the_authors_exception_with_only_the_authors_frames() -> None:
    error = run_to_failure(lambda p: p | tg.Create([7]) | "save" >> tg.ParDo(Fails("process")))
    assert isinstance(error.__cause__, OSError)
    names = [frame.name for frame in traceback.extract_tb(error.__cause__.__traceback__)]
    assert names == ["process", "fail"]


def test_a_failed_teardown_does_not_hide_the_error_of_the_run() -> None:
    class Both(tg.DoFn):
        def process(self, element: int) -> None:
            raise OSError("disk full")

        def teardown(self) -> None:
            raise OSError("and then this")

    assert "OSError: disk full" in error_message(lambda p: p | tg.Create([7]) | "save" >> tg.ParDo(Both()))


def test_every_step_is_torn_down_even_if_one_teardown_fails(tmp_path: Any) -> None:
    class Marks(tg.DoFn):
        def __init__(self, name: str, fails: bool) -> None:
            self.name = name
            self.fails = fails

        def process(self, element: int) -> list[int]:
            return [element]

        def teardown(self) -> None:
            (tmp_path / self.name).touch()
            if self.fails:
                raise OSError(f"{self.name} can't close")

    def build(p: tg.Pipeline) -> None:
        first = (
            p | tg.Create([7]) | "first" >> tg.ParDo(Marks("first", True)) | "second" >> tg.ParDo(Marks("second", True))
        )
        _ = first | tg.Reshuffle() | "third" >> tg.ParDo(Marks("third", False))

    assert "OSError: first can't close\n  in step 'first'" in error_message(build)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second", "third"]


class FailingSum(tg.CombineFn[int, int, int]):
    """Raises in one of its methods."""

    def __init__(self, method: str) -> None:
        self.method = method

    def fail(self, method: str) -> None:
        if method == self.method:
            raise OSError("disk full")

    def setup(self) -> None:
        self.fail("setup")

    def create_accumulator(self) -> int:
        self.fail("create_accumulator")
        return 0

    def add_input(self, accumulator: int, element: int) -> int:
        self.fail("add_input")
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        self.fail("merge_accumulators")
        return sum(accumulators)

    def compact(self, accumulator: int) -> int:
        self.fail("compact")
        return accumulator

    def extract_output(self, accumulator: int) -> int:
        self.fail("extract_output")
        return accumulator

    def teardown(self) -> None:
        self.fail("teardown")


PER_KEY = {
    "setup": "",
    "create_accumulator": "\n  element: ('a', 1)",
    "add_input": "\n  element: ('a', 1)",
    "extract_output": "\n  key: 'a'",
    "teardown": "",
}


@pytest.mark.parametrize("method", PER_KEY)
def test_the_error_of_a_combiner_per_key_names_the_method(method: str) -> None:
    def build(p: tg.Pipeline) -> None:
        _ = p | tg.Create([("a", 1), ("a", 2)]) | "add up" >> tg.CombinePerKey(FailingSum(method)) | tg.Map(str)

    assert error_message(build) == (
        "UserCodeError: OSError: disk full\n  in step 'add up', applied at HERE\n"
        f"  while calling FailingSum.{method}{PER_KEY[method]}"
    )


GLOBALLY = {"setup": "", "create_accumulator": "", "add_input": "\n  element: 1", "extract_output": "", "teardown": ""}


@pytest.mark.parametrize("method", GLOBALLY)
def test_the_error_of_a_global_combiner_names_the_method(method: str) -> None:
    def build(p: tg.Pipeline) -> None:
        _ = p | tg.Create([1, 2]) | "add up" >> tg.CombineGlobally(FailingSum(method)) | tg.Map(str)

    assert error_message(build) == (
        "UserCodeError: OSError: disk full\n  in step 'add up', applied at HERE\n"
        f"  while calling FailingSum.{method}{GLOBALLY[method]}"
    )


@pytest.mark.parametrize("method", ["merge_accumulators", "compact"])
@pytest.mark.parametrize("keyed", [True, False])
def test_checks_all_calls_the_methods_that_only_merging_partial_results_uses(method: str, keyed: bool) -> None:
    def build(p: tg.Pipeline) -> None:
        if keyed:
            _ = p | tg.Create([("a", 1), ("a", 2)]) | "add up" >> tg.CombinePerKey(FailingSum(method)) | tg.Map(str)
        else:
            _ = p | tg.Create([1, 2]) | "add up" >> tg.CombineGlobally(FailingSum(method)) | tg.Map(str)

    assert error_message(build, checks="all") == (
        f"UserCodeError: OSError: disk full\n  in step 'add up', applied at HERE\n  while calling FailingSum.{method}"
    )


def test_the_error_of_a_plain_callable_names_the_key() -> None:
    assert error_message(
        lambda p: p | tg.Create([("a", 0)]) | "ratio" >> tg.CombinePerKey(lambda vs: 1 / vs[0]) | tg.Map(str)
    ) == ("UserCodeError: ZeroDivisionError: division by zero\n  in step 'ratio', applied at HERE\n  key: 'a'")


def test_the_error_of_a_global_plain_callable_names_the_step() -> None:
    assert error_message(
        lambda p: p | tg.Create([0]) | "ratio" >> tg.CombineGlobally(lambda vs: 1 / vs[0]) | tg.Map(str)
    ) == ("UserCodeError: ZeroDivisionError: division by zero\n  in step 'ratio', applied at HERE")


def test_the_error_of_a_sum_of_unsuitable_elements_names_the_element() -> None:
    assert error_message(lambda p: p | tg.Create([("a", "b")]) | "add up" >> tg.CombinePerKey(sum) | tg.Map(str)) == (
        "UserCodeError: TypeError: unsupported operand type(s) for +: 'int' and 'str'\n"
        "  in step 'add up', applied at HERE\n  while calling SumFn.add_input\n  element: ('a', 'b')"
    )


def any_of(value: Any) -> Callable[[int], Any]:
    """A function of an element that returns `value` and has no informative annotation."""
    return lambda _: value


@pytest.mark.parametrize("value", [3, "ab", "abc", (1, 2, 3), None, {1: 2, 3: 4}])
@pytest.mark.parametrize("checks", ["sample", "all"])
def test_elements_that_are_not_pairs_cannot_be_grouped(value: Any, checks: str) -> None:
    build = lambda p: p | tg.Create([0]) | tg.Map(any_of(value)) | "group" >> tg.GroupByKey() | tg.Map(str)
    assert error_message(build, checks=checks) == (
        f"RunError: this step takes pairs (key, value), but got {value!r}. tg.WithKeys(fn) makes pairs, with the key "
        "that fn returns for an element\n  in step 'group', applied at HERE"
    )


class Entry(NamedTuple):
    key: Any
    value: Any


ENTRIES = [Entry("a", 1), Entry("b", 2)] * 1000
"""More than are checked, so that the loop that fails is the one for all others."""


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Entry("a", "one"), "unsupported operand type(s) for +: 'int' and 'str'"),
        ((1, 2, 3), "this step takes pairs (key, value), but got (1, 2, 3). "),
        (Entry([1], 1), "a key of type list has no canonical encoding: [1]"),
        (
            tg.TimestampedValue(tg.TimestampedValue(("b", 1), 5), 6),
            "this step takes pairs (key, value), but got TimestampedValue(('b', 1), 1970-01-01T00:00:05Z). ",
        ),
    ],
)
@pytest.mark.parametrize("at", [0, 1500, 2000])
def test_the_error_of_a_grouping_shows_the_element_that_was_created(bad: Any, message: str, at: int) -> None:
    build = lambda p: p | tg.Create([*ENTRIES[:at], bad, *ENTRIES[at:]]) | "add" >> tg.CombinePerKey(sum) | tg.Map(str)
    error = error_message(build, checks="off")
    assert message in error
    assert ("UserCodeError" not in error) or error.endswith(f"element: {bad!r}")


class Rows(tg.io.Source[Any], tg.io.Reader[Any]):
    """A source of one block, and its reader."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows = rows

    def splits(self, desired: int) -> list[tg.io.Split]:
        return [tg.io.Split("0", None, None)]

    def reader(self, split: tg.io.Split, position: Any = None) -> tg.io.Reader[Any]:
        return self

    def read(self, limit: int) -> tg.io.Batch:
        return tg.io.Batch(tg.io.Block.of(self.rows), end=True)

    def position(self) -> Any:
        return None


class Generated(Sequence[Any]):
    """A sequence of pairs that are made when they are read."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, at: Any) -> Any:
        return [("a", 1), ("b", "two"), ("a", 3)][at]


@pytest.mark.parametrize("rows", [Generated(), UserList(Generated()), tuple(Generated()), deque(Generated())], ids=type)
def test_the_error_of_a_grouping_shows_the_element_in_any_sequence_that_a_reader_returns(rows: Any) -> None:
    build = lambda p: p | tg.Read(Rows(rows)) | "add" >> tg.CombinePerKey(sum) | tg.Map(str)
    assert error_message(build, checks="off").endswith("element: ('b', 'two')")


def test_the_error_of_a_grouping_shows_the_pair_that_a_grouping_has_emitted() -> None:
    pairs = [("a", 1), ("b", 2), ("a", 3)]
    build = lambda p: p | tg.Create(pairs) | tg.GroupByKey() | "add" >> tg.CombinePerKey(sum) | tg.Map(str)
    assert error_message(build, checks="off").endswith("element: ('a', [1, 3])")


class Counts(tg.DoFn):
    def process(self, element: Any, count: Any = tg.DoFn.StateParam(tg.CombiningStateSpec("count", sum))) -> Any:  # noqa: B008
        count.add(1)
        return [count.read()]


@pytest.mark.parametrize("value", [3, "ab", "abc", (1, 2, 3), None, {1: 2, 3: 4}])
@pytest.mark.parametrize("checks", ["sample", "all"])
def test_elements_that_are_not_pairs_have_no_state(value: Any, checks: str) -> None:
    build = lambda p: p | tg.Create([0]) | tg.Map(any_of(value)) | "count" >> tg.ParDo(Counts()) | tg.Map(str)
    assert error_message(build, checks=checks) == (
        f"RunError: this step takes pairs (key, value), but got {value!r}. tg.WithKeys(fn) makes pairs, with the key "
        "that fn returns for an element\n  in step 'count', applied at HERE"
    )


@pytest.mark.parametrize("value", [3, (1, 2, 3), None])
def test_elements_that_are_not_pairs_have_no_state_on_the_streaming_runner(value: Any) -> None:
    p = tg.Pipeline(runner="streaming")
    _ = p | tg.Create([0]) | tg.Map(any_of(value)) | "count" >> tg.ParDo(Counts()) | tg.Map(str)
    with pytest.raises(tg.RunError, match=r"takes pairs \(key, value\), but got .*tg\.WithKeys.*\n  in step 'count'"):
        p.run()


NAN = (
    "KeyEncodingError: a key of type float has no canonical encoding: nan: NaN does not equal itself, so it can't "
    "be grouped; drop or replace it before grouping\n  in step 'group', applied at HERE"
)


def test_nan_cannot_be_a_key() -> None:
    keys = [(float(n), n) for n in range(3000)]
    assert error_message(lambda p: p | tg.Create([(float("nan"), 1)]) | "group" >> tg.GroupByKey() | tg.Map(str)) == NAN
    build = lambda p: p | tg.Create([*keys, (float("nan"), 1)]) | "group" >> tg.GroupByKey() | tg.Map(str)
    assert error_message(build) == NAN


@pytest.mark.parametrize("checks", ["sample", "all", "off"])
def test_a_list_cannot_be_a_key(checks: str) -> None:
    build = lambda p: p | tg.Create([0]) | tg.Map(any_of(([1], 2))) | "group" >> tg.GroupByKey() | tg.Map(str)
    assert error_message(build, checks=checks) == (
        "KeyEncodingError: a key of type list has no canonical encoding: [1]: it can change; use tuple(key)\n"
        "  in step 'group', applied at HERE"
    )


class ComparedByIdentity:
    """Instances are compared by identity."""


class LosesState:
    """Loses its contents when pickled."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LosesState) and self.x == other.x

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, int]:
        return {"x": 0}

    def __repr__(self) -> str:
        return f"LosesState({self.x})"


def test_a_value_may_be_nan_or_compare_by_identity() -> None:
    for value in (float("nan"), ComparedByIdentity(), [ComparedByIdentity()], (float("nan"),)):
        pipeline = tg.Pipeline(options={"checks": "all"})
        _ = pipeline | tg.Create([("a", value)]) | tg.GroupByKey() | tg.Map(str)
        assert pipeline.run().state is tg.PipelineState.DONE


def test_an_element_that_is_changed_by_pickling_is_refused() -> None:
    build = lambda p: (
        p | tg.Create([5]) | tg.Map(lambda x: ("a", LosesState(x))) | "group" >> tg.GroupByKey() | tg.Map(str)
    )
    assert error_message(build) == (
        "CheckError: the element ('a', LosesState(5)) comes back as ('a', LosesState(0)) after pickling: "
        "it does not survive an exchange\n  in step 'group', applied at HERE"
    )


@pytest.mark.parametrize("checks", ["sample", "off"])
@pytest.mark.parametrize("step", [tg.FlatMap, tg.ParDo])
def test_the_error_of_a_flat_map_that_returns_a_number_shows_the_number(step: Any, checks: str) -> None:
    assert error_message(lambda p: p | tg.Create([3]) | "expand" >> step(lambda x: x + 1), checks=checks) == (
        "UserCodeError: TypeError: this step's function must return an iterable or None, and returned 4 (int); "
        "for one result per element use tg.Map\n  in step 'expand', applied at HERE\n  element: 3"
    )


def test_the_error_of_a_map_tuple_of_an_element_that_is_no_tuple_says_so() -> None:
    build = lambda p: p | tg.Create([0]) | tg.Map(any_of(5)) | "add" >> tg.MapTuple(lambda a, b: a + b)
    assert error_message(build) == (
        "UserCodeError: TypeError: this step's function takes the items of a tuple, and the element is int\n"
        "  in step 'add', applied at HERE\n  element: 5"
    )


def test_the_error_of_an_undeclared_tag_shows_how_to_declare_it() -> None:
    odd = lambda x: tg.TaggedOutput("odd", x)
    assert error_message(lambda p: p | tg.Create([3]) | "sort" >> tg.Map(odd) | tg.Map(str)) == (
        "RunError: this step emitted an output tagged 'odd', but declares none: add .with_outputs('odd')\n"
        "  in step 'sort', applied at HERE"
    )
    assert error_message(
        lambda p: (p | tg.Create([3]) | "sort" >> tg.Map(odd).with_outputs("even")).even | tg.Map(str)
    ) == (
        "RunError: this step emitted an output tagged 'odd', but declares 'even': add .with_outputs('odd')\n"
        "  in step 'sort', applied at HERE"
    )


def test_a_tagged_output_inside_a_timestamped_value_is_refused() -> None:
    def build(p: tg.Pipeline) -> None:
        wrong = lambda x: tg.TimestampedValue(tg.TaggedOutput("odd", x) if x == 3 else x, 1)
        _ = p | tg.Create([1, 2, 3]) | "sort" >> tg.Map(wrong).with_outputs("odd")

    from tidegate.runners.direct import DirectRunner

    for block_size in (1, 3):
        assert error_message(build, DirectRunner(block_size=block_size)) == (
            "RunError: this step emitted a TaggedOutput inside another wrapper: TaggedOutput('odd', 3). "
            "Put the tag outside\n"
            "  in step 'sort', applied at HERE"
        )


def append(values: list[int]) -> list[int]:
    values.append(2)
    return values


def append_and_yield(values: list[int]) -> Iterator[int]:
    values.append(2)
    yield 1


@pytest.mark.parametrize(
    "step",
    [
        tg.Map(append),
        tg.FlatMap(append),
        tg.FlatMap(append_and_yield),
        tg.Filter(append),
        tg.Map(append).with_exception_handling(),
        tg.FlatMap(append_and_yield).with_exception_handling(),
        tg.Filter(lambda values: append(values) == 0).with_exception_handling(),
    ],
    ids=["map", "flat_map", "generator", "filter", "map caught", "generator caught", "filter caught"],
)
def test_an_element_that_a_step_changes_is_reported(step: Any) -> None:
    assert error_message(lambda p: p | tg.Create([[1]]) | "change" >> step) == (
        "CheckError: the element was changed from [1] to [1, 2]: elements are shared between steps, so they must not "
        "be changed in place. Make a new value instead\n  in step 'change', applied at HERE"
    )


def locked(x: int) -> Any:
    return "a", {"lock": threading.Lock()}


@pytest.mark.parametrize(
    "step",
    [tg.GroupByKey(), tg.Reshuffle(), tg.CombineGlobally(len), tg.CombinePerKey(len)],
    ids=["group", "reshuffle", "globally", "per key"],
)
def test_an_element_that_cannot_be_pickled_is_refused_at_an_exchange(step: Any) -> None:
    message = error_message(lambda p: p | tg.Create([1]) | tg.Map(locked) | "cross" >> step | tg.Map(str))
    assert message.startswith("CheckError: the element ('a', {'lock': <unlocked _thread.lock object at ")
    assert "can't be sent to another worker: value[1]['lock'], <unlocked _thread.lock object" in message
    assert message.endswith("of type lock: cannot pickle '_thread.lock' object\n  in step 'cross', applied at HERE")


def wrong(x: int) -> int:
    return str(x)  # type: ignore[return-value]


def test_the_error_of_a_runtime_type_check_names_value_and_type() -> None:
    assert error_message(lambda p: p | tg.Create([1]) | "typed" >> tg.Map(wrong), type_check="runtime") == (
        "CheckError: the step returned '1', but its annotation says int\n  in step 'typed', applied at HERE"
    )


class KeepsFirst(tg.CombineFn[int, list[int], int]):
    """Not associative: a merge keeps only the first accumulator."""

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, accumulator: list[int], element: int) -> list[int]:
        return [*accumulator, element]

    def merge_accumulators(self, accumulators: Iterable[list[int]]) -> list[int]:
        return next(iter(accumulators))

    def extract_output(self, accumulator: list[int]) -> int:
        return sum(accumulator)


def test_checks_all_reports_a_combiner_that_is_not_associative() -> None:
    keyed = lambda p: p | tg.Create([("a", 1), ("a", 2)]) | "add up" >> tg.CombinePerKey(KeepsFirst()) | tg.Map(str)
    assert error_message(keyed, checks="all") == (
        "CheckError: KeepsFirst returns 3 for 2 inputs of key 'a' combined at once, but 1 when they are combined in 2 "
        "parts and merged: other runners combine in parts, so both must agree\n  in step 'add up', applied at HERE"
    )
    overall = lambda p: p | tg.Create([1, 2]) | "add up" >> tg.CombineGlobally(KeepsFirst()) | tg.Map(str)
    assert error_message(overall, checks="all") == (
        "CheckError: KeepsFirst returns 3 for 2 inputs combined at once, but 1 when they are combined in 2 parts and "
        "merged: other runners combine in parts, so both must agree\n  in step 'add up', applied at HERE"
    )


def test_more_dead_letters_than_the_threshold_fail_the_run() -> None:
    def build(p: tg.Pipeline) -> None:
        _ = p | tg.Create([1, 0, 0, 0]) | "divide" >> tg.Map(lambda x: 1 / x).with_exception_handling(threshold=0.5)

    assert error_message(build) == (
        "RunError: 3 of 4 elements failed in this bundle, more than the threshold of 50% that with_exception_handling "
        "allows\n  in step 'divide', applied at HERE"
    )


def test_the_threshold_counts_elements_whose_timestamps_were_set_by_an_earlier_step() -> None:
    def build(p: tg.Pipeline) -> None:
        stamped = p | tg.Create([1, 0, 0, 0]) | "stamp" >> tg.Map(lambda x: tg.TimestampedValue(x, 1))
        _ = stamped | "divide" >> tg.Map(lambda x: 1 / x).with_exception_handling(threshold=0.5)

    assert "RunError: 3 of 4 elements failed in this bundle" in error_message(build)


def test_as_many_dead_letters_as_the_threshold_do_not_fail_the_run() -> None:
    pipeline = tg.Pipeline()
    _ = pipeline | tg.Create([1, 0]) | tg.Map(lambda x: 1 / x).with_exception_handling(threshold=0.5)
    assert pipeline.run().state is tg.PipelineState.DONE


def test_a_stop_iteration_raised_by_author_code_is_an_error() -> None:
    assert error_message(lambda p: p | tg.Create([1]) | "first" >> tg.Map(lambda x: next(iter([])))) == (
        "UserCodeError: StopIteration: \n  in step 'first', applied at HERE\n  element: 1"
    )


def test_the_error_of_a_tidegate_call_in_author_code_names_the_step() -> None:
    assert error_message(lambda p: p | tg.Create([0]) | "cut" >> tg.Map(lambda x: tg.FixedWindows(x))) == (
        "UserCodeError: BuildError: FixedWindows: size must be longer than 0 (at least one microsecond), not 0\n"
        "  in step 'cut', applied at HERE\n  element: 0"
    )


class EmitsPlain(tg.DoFn):
    def process(self, element: int) -> None:
        return None

    def finish_bundle(self) -> list[int]:
        return [1]


def test_a_plain_value_from_finish_bundle_needs_the_global_window() -> None:
    build = lambda p: p | tg.Create([1]) | tg.WindowInto(tg.FixedWindows(5)) | "late" >> tg.ParDo(EmitsPlain())
    assert error_message(build) == (
        "RunError: finish_bundle returned 1: outside the global window it must return tg.WindowedValue\n"
        "  in step 'late', applied at HERE"
    )


def test_an_element_whose_repr_fails_is_reported_by_its_type() -> None:
    class FailingRepr:
        def __repr__(self) -> str:
            raise ValueError("no")

    assert error_message(lambda p: p | tg.Create([FailingRepr()]) | "divide" >> tg.Map(lambda x: 1 / 0)) == (
        "UserCodeError: ZeroDivisionError: division by zero\n  in step 'divide', applied at HERE\n"
        "  element: <FailingRepr whose repr raised ValueError>"
    )


def test_a_long_element_is_abbreviated() -> None:
    error = run_to_failure(lambda p: p | tg.Create(["x" * 5000]) | "divide" >> tg.Map(lambda x: 1 / 0))
    assert isinstance(error, tg.UserCodeError)
    assert error.element is not None
    assert len(error.element) == 120
    assert error.element.endswith("…")


def test_the_element_is_the_failing_steps_own_input() -> None:
    def build(p: tg.Pipeline) -> None:
        chain = p | tg.Create([1, 2, 3]) | tg.Map(lambda x: x * 10) | tg.Filter(lambda x: x > 10)
        chain = chain | tg.FlatMap(lambda x: [x, x + 1]) | tg.WindowInto(tg.FixedWindows(5))
        _ = chain | "divide" >> tg.Map(lambda x: 1 / (x - 21)) | tg.Map(str) | tg.Map(len)

    assert error_message(build).endswith("in step 'divide', applied at HERE\n  element: 21")


def test_the_error_of_a_stop_iteration_inside_a_generator_names_the_step() -> None:
    assert error_message(
        lambda p: p | tg.Create([1]) | "pieces" >> tg.FlatMap(lambda x: (next(iter([])) for _ in range(2)))
    ) == (
        "UserCodeError: RuntimeError: generator raised StopIteration\n  in step 'pieces', applied at HERE\n  element: 1"
    )


def test_a_system_exit_in_a_step_is_a_failure() -> None:
    assert error_message(lambda p: p | tg.Create([1]) | "leave" >> tg.Map(lambda x: sys.exit(0))) == (
        "UserCodeError: SystemExit: 0\n  in step 'leave', applied at HERE\n  element: 1"
    )
    assert error_message(
        lambda p: p | tg.Create([1]) | "leave" >> tg.CombineGlobally(lambda values: sys.exit(0)) | tg.Map(print)
    ) == ("RunError: the pipeline's own code called sys.exit(0)")


class FailingStr(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


def raise_unprintable(element: Any) -> Any:
    raise FailingStr


def test_an_exception_that_cannot_be_printed_is_reported() -> None:
    assert error_message(lambda p: p | tg.Create([1]) | "mute" >> tg.Map(raise_unprintable)) == (
        "UserCodeError: FailingStr: <an exception whose text raised ValueError>\n"
        "  in step 'mute', applied at HERE\n  element: 1"
    )


def test_a_dead_letter_contains_only_the_authors_frames() -> None:
    def check(letter: tuple[int, tuple[str, str, list[str]]]) -> None:
        element, (kind, text, lines) = letter
        assert (element, kind) == (1, "FailingStr")
        assert text == "<FailingStr whose repr raised ValueError>"
        assert [line for line in lines if "File" in line] == [
            f'  File "{__file__}", line {raise_unprintable.__code__.co_firstlineno + 1}, in raise_unprintable'
        ]

    with tg.Pipeline() as p:
        _, bad = p | tg.Create([1]) | tg.Map(raise_unprintable).with_exception_handling()
        bad | tg.Map(check)
    assert p.result.metrics().counter("dead_letters") == 1


def test_the_error_of_an_invalid_temporary_directory_names_it(tmp_path: Path) -> None:
    path = tmp_path / "nowhere"
    assert error_message(
        lambda p: p | tg.Create(range(5000)) | tg.Map(lambda n: (n, n)) | tg.GroupByKey() | tg.Map(print),
        memory_budget="1k",
        temp_dir=path,
    ) == (f"RunError: can't spill to --temp_dir {path}: No such file or directory")

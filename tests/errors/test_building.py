"""The exact messages about errors while a pipeline is built."""

from __future__ import annotations

import functools
import re
import threading
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.failing_pipelines import error_message, run_to_failure
from tidegate.sdk.options.registry import runner_names

A_LOCK = threading.Lock()


class Cache:
    def __init__(self) -> None:
        self.parts = {"a": [threading.Lock()]}


class Slotted:
    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Keeps(tg.DoFn):
    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def process(self, element: int) -> list[int]:
        return [element]


def test_a_closure_over_a_lock_names_step_variable_and_type() -> None:
    guard = threading.Lock()
    assert error_message(lambda p: p | tg.Create([1]) | "guarded" >> tg.Map(lambda x: (guard, x))) == (
        "PicklingError: <lambda> can't be pickled: it captures variable 'guard' of type _thread.lock. "
        "Create it inside the function or in DoFn.setup()\n  in step 'guarded', applied at HERE"
    )


def test_a_global_lock_names_the_global() -> None:
    assert error_message(lambda p: p | tg.Create([1]) | "guarded" >> tg.Map(lambda x: (A_LOCK, x))) == (
        "PicklingError: <lambda> can't be pickled: it captures variable 'A_LOCK' of type _thread.lock. "
        "Create it inside the function or in DoFn.setup()\n  in step 'guarded', applied at HERE"
    )


def test_a_file_open_for_writing_names_the_variable(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        assert error_message(lambda p: p | tg.Create([1]) | "log" >> tg.Map(lambda x: out.write(str(x)))) == (
            "PicklingError: <lambda> can't be pickled: it captures variable 'out' of type _io.TextIOWrapper. "
            "Create it inside the function or in DoFn.setup()\n  in step 'log', applied at HERE"
        )


def test_a_lock_deep_inside_an_object_is_found() -> None:
    cache = Cache()
    assert error_message(lambda p: p | tg.Create([1]) | "look up" >> tg.Map(lambda x: (cache, x))) == (
        "PicklingError: <lambda> can't be pickled: it captures variable 'cache', whose cache.parts['a'][0] is of type "
        "_thread.lock. Create it inside the function or in DoFn.setup()\n  in step 'look up', applied at HERE"
    )


def test_a_lock_in_a_slot_is_found() -> None:
    slotted = Slotted()
    assert "it captures variable 'slotted', whose slotted.lock is of type _thread.lock." in error_message(
        lambda p: p | tg.Create([1]) | "look up" >> tg.Map(lambda x: (slotted, x))
    )


def test_the_message_about_a_lock_captured_by_another_function_names_that_function() -> None:
    guard = threading.Lock()

    def inner(x: int) -> Any:
        return guard, x

    assert (
        "<lambda> can't be pickled: it captures variable 'guard' of type _thread.lock (through 'inner')."
        in error_message(lambda p: p | tg.Create([1]) | "guarded" >> tg.Map(lambda x: inner(x)))
    )


def test_a_lock_as_a_default_names_the_parameter() -> None:
    def inner(x: int, guard: Any = A_LOCK) -> Any:
        return x

    assert "inner can't be pickled: it captures variable 'guard' of type _thread.lock." in error_message(
        lambda p: p | tg.Create([1]) | "inner" >> tg.Map(inner)
    )


def test_a_lock_in_an_attribute_of_a_dofn_names_the_attribute() -> None:
    assert error_message(lambda p: p | tg.Create([1]) | tg.ParDo(Keeps(threading.Lock()))) == (
        "PicklingError: Keeps can't be pickled: self.kept is of type _thread.lock. "
        "Create it inside the function or in DoFn.setup()\n  in step 'ParDo(Keeps)', applied at HERE"
    )


def test_a_lock_as_extra_argument_is_named_by_its_position() -> None:
    assert error_message(lambda p: p | tg.Create([1]) | "extra" >> tg.Map(lambda x, a, b: x, 1, A_LOCK)) == (
        "PicklingError: extra arguments can't be pickled: item [1] is of type _thread.lock. "
        "Create it inside the function or in DoFn.setup()\n  in step 'extra', applied at HERE"
    )


def test_a_lock_bound_by_a_partial_is_found() -> None:
    assert "partial(<lambda>) can't be pickled: self.args[0] is of type _thread.lock." in error_message(
        lambda p: p | tg.Create([1]) | "bound" >> tg.Map(functools.partial(lambda guard, x: x, A_LOCK))
    )


def test_a_lock_captured_by_a_combiner_names_the_variable() -> None:
    guard = threading.Lock()
    assert error_message(
        lambda p: p | tg.Create([1]) | "most" >> tg.CombineGlobally(lambda values: (guard, max(values)))
    ) == (
        "PicklingError: <lambda> can't be pickled: it captures variable 'guard' of type _thread.lock. "
        "Create it inside the function or in DoFn.setup()\n  in step 'most', applied at HERE"
    )


def length(text: str) -> int:
    return len(text)


def test_a_type_clash_between_steps_names_both_types() -> None:
    assert error_message(lambda p: p | tg.Create([1]) | tg.Map(length)) == (
        "TypeCheckError: Map(length) takes str, but its input holds int: int given where str is wanted. "
        "If the annotation is wrong, correct it, or use .with_input_types(...)\n"
        "  in step 'Map(length)', applied at HERE"
    )


def test_grouping_elements_that_cannot_be_pairs_is_refused() -> None:
    assert error_message(lambda p: p | tg.Create([1]) | tg.GroupByKey()) == (
        "TypeCheckError: GroupByKey takes pairs (key, value), but its input holds int: "
        "int given where tuple[Any, Any] is wanted. tg.WithKeys(fn) makes pairs, with the key that fn returns for an "
        "element\n  in step 'GroupByKey', applied at HERE"
    )


class Remembers(tg.DoFn):
    def process(self, element: Any, seen: Any = tg.DoFn.StateParam(tg.ValueStateSpec("seen"))) -> Any:  # noqa: B008
        return [element]


class Waits(tg.DoFn):
    LATER = tg.EventTimer("later")

    def process(self, element: Any, later: Any = tg.DoFn.TimerParam(LATER)) -> None:
        later.set(1)

    @tg.on_timer(LATER)
    def fires(self) -> None: ...


class Expires(tg.DoFn):
    def process(self, element: Any) -> None: ...

    @tg.on_window_expiration
    def over(self) -> None: ...


class Asks(tg.DoFn):
    def process(self, element: Any, key: Any = tg.DoFn.KeyParam) -> None: ...


@pytest.mark.parametrize("elements", [[1], ["ab"], [(1, 2, 3)], [None]], ids=repr)
@pytest.mark.parametrize(
    ("dofn", "reason"),
    [
        (Remembers(), "has state or timers for each key"),
        (Waits(), "has state or timers for each key"),
        (Expires(), "has state or timers for each key"),
        (Asks(), "asks for the key of its elements"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_step_that_needs_keys_refuses_elements_that_cannot_be_pairs(
    dofn: tg.DoFn, reason: str, elements: list[Any]
) -> None:
    message = error_message(lambda p: p | tg.Create(elements) | "keyed" >> tg.ParDo(dofn))
    name = type(dofn).__name__
    assert message.startswith(f"TypeCheckError: ParDo({name}) {reason}, so it takes pairs (key, value), but its input")
    assert message.endswith(
        "tg.WithKeys(fn) makes pairs, with the key that fn returns for an element\n  in step 'keyed', applied at HERE"
    )


def test_a_step_that_needs_keys_accepts_pairs_and_elements_that_may_be_pairs() -> None:
    p = tg.Pipeline()
    _ = p | "pairs" >> tg.Create([("a", 1)]) | "remember" >> tg.ParDo(Remembers())
    anything = p | "numbers" >> tg.Create([1]) | tg.Map(lambda n: n)
    assert isinstance(anything | "remember anything" >> tg.ParDo(Remembers()), tg.PCollection)


def test_collections_of_two_pipelines_cannot_be_combined() -> None:
    other = tg.Pipeline() | tg.Create([1])
    assert error_message(lambda p: (p | tg.Create([1]), other) | tg.Flatten()) == (
        "BuildError: Flatten: PCollections of two different pipelines"
    )


def test_a_label_that_is_already_used_is_refused() -> None:
    def build(p: tg.Pipeline) -> None:
        ones = p | tg.Create([1])
        _ = ones | "text" >> tg.Map(str)
        _ = ones | "text" >> tg.Map(str)

    assert error_message(build) == (
        "BuildError: another step is already labelled 'text': give this one a label of its own\n"
        "  in step 'text', applied at HERE"
    )


def test_the_error_of_iterating_a_collection_says_what_to_do_instead() -> None:
    assert error_message(lambda p: list(p | tg.Create([1]))) == (
        "BuildError: PCollection('Create') can't be iterated: it exists only while the pipeline runs. "
        "Apply a transform, such as tg.Map(print). To get several collections from a step, add "
        ".with_exception_handling() or .with_outputs(...) to it"
    )


class AsksInSetup(tg.DoFn):
    def setup(self, round: Any = tg.DoFn.RoundParam) -> None:
        pass

    def process(self, element: int) -> Iterable[int]:
        yield element


class AsksAtTheEnd(tg.DoFn):
    COUNT = tg.CombiningStateSpec("count", sum)

    def process(self, element: int) -> Iterable[int]:
        yield element

    def finish_bundle(self, *, count: Any = tg.DoFn.StateParam(COUNT)) -> None:
        pass


class TakesAPath(tg.DoFn):
    def start_bundle(self, path: str) -> None:  # type: ignore[override]
        pass

    def process(self, element: int) -> Iterable[int]:
        yield element


class StartsAt(tg.CombineFn[int, Any, Any]):
    def create_accumulator(self, at: Any = tg.DoFn.TimestampParam) -> Any:
        return at

    def add_input(self, accumulator: Any, element: int) -> Any:
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        return next(iter(accumulators))

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator


def at_what_time(value: Any, at: Any = tg.DoFn.TimestampParam) -> Any:
    return value


_TO_ELEMENTS = "put it into the elements by a tg.Map in front"
_OF_MANY = (
    "at_what_time: parameter 'at' asks for tg.DoFn.TimestampParam, and a combiner is called for many elements: "
    + _TO_ELEMENTS
)
_OF_ONE = (
    "at_what_time: parameter 'at' asks for tg.DoFn.TimestampParam, and it is called with an element only: "
    + _TO_ELEMENTS
)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda ones: ones | tg.ParDo(AsksInSetup()),
            "AsksInSetup.setup: parameter 'round' asks for tg.DoFn.RoundParam, and setup is called once per worker, "
            "for no element: ask for it in process\n  in step 'ParDo(AsksInSetup)', applied at HERE",
        ),
        (
            lambda ones: ones | tg.ParDo(AsksAtTheEnd()),
            "AsksAtTheEnd.finish_bundle: parameter 'count' asks for tg.DoFn.StateParam('count'), and finish_bundle is "
            "called after the elements of a bundle, for no element: ask for it in process\n"
            "  in step 'ParDo(AsksAtTheEnd)', applied at HERE",
        ),
        (
            lambda ones: ones | tg.ParDo(TakesAPath()),
            "TakesAPath.start_bundle: nothing is passed to start_bundle, so parameter 'path' would have no value: pass "
            "it to the constructor of TakesAPath\n  in step 'ParDo(TakesAPath)', applied at HERE",
        ),
        (
            lambda ones: ones | tg.CombineGlobally(StartsAt()),
            "StartsAt.create_accumulator: parameter 'at' asks for tg.DoFn.TimestampParam, and a combiner is called for "
            f"many elements: {_TO_ELEMENTS}",
        ),
        (lambda ones: ones | tg.CombineGlobally(at_what_time), _OF_MANY),
        (lambda ones: ones | tg.CombinePerKey(tg.associative(at_what_time)), _OF_MANY),
        (lambda ones: ones | tg.CombineValues(at_what_time), _OF_MANY),
        (lambda ones: ones | tg.GroupBy(at_what_time), _OF_ONE),
        (lambda ones: ones | tg.AsyncMap(str, key=at_what_time), _OF_ONE),
        (lambda ones: ones | tg.combiners.Top.Of(1, key=at_what_time), _OF_ONE),
    ],
)
def test_nothing_is_injected_where_no_element_is_handled(build: Callable[[Any], Any], message: str) -> None:
    assert error_message(lambda p: build(p | tg.Create([1]))) == f"BuildError: {message}"


class Misspelt(tg.DoFn):
    def proces(self, element: int) -> Iterable[int]:
        yield element


@pytest.mark.parametrize(
    ("build", "advice"),
    [
        (lambda p: p | tg.Create([1]) | tg.ParDo(Misspelt()), "no process method: rename proces to process"),
        (lambda p: p | tg.Create([(1, 2)]) | tg.CombinePerKey("sum"), "not str: write sum, without quotes"),
        (
            lambda p: (p | tg.Create([1]) | tg.Map(int).with_exception_handling()).good,
            "no attribute 'good': it is a pair, so write `good, bad = ...`",
        ),
        (
            lambda p: tg.TimestampedValue(1, "2026-01-01"),  # type: ignore[arg-type]
            "not str: datetime.fromisoformat(text) reads one from text",
        ),
    ],
    ids=["method", "combiner", "pair", "timestamp"],
)
def test_an_error_says_what_was_probably_meant(build: Callable[[tg.Pipeline], Any], advice: str) -> None:
    with pytest.raises((tg.BuildError, AttributeError, TypeError), match=re.escape(advice)):
        build(tg.Pipeline())


def test_a_value_that_is_no_transform_is_refused() -> None:
    assert error_message(lambda p: p | tg.Create([1]) | 5) == (  # type: ignore[operator]
        "BuildError: 5 is not a transform: a step is a PTransform such as Map(f), or a function of a PCollection\n"
        "  applied at HERE"
    )


def test_a_pipeline_without_steps_is_refused() -> None:
    assert error_message(lambda p: None) == (
        "BuildError: this pipeline has no steps: apply one, such as `pipeline | tg.Create([1, 2, 3])`"
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda p: p | tg.Create([1]) | tg.ParDo(Keeps),
            "BuildError: ParDo takes an instance: Keeps(), not the class Keeps",
        ),
        (lambda p: p | tg.Create([1]) | tg.Map(5), "BuildError: Map takes a function, not 5"),
        (
            lambda p: p | tg.Create("abc"),
            "BuildError: Create takes an iterable of elements, not one str: put it in a list",
        ),
        (lambda p: p | tg.Create(5), "BuildError: Create takes an iterable of elements, not int"),
        (
            lambda p: p | tg.Create([1]) | tg.Map(str).with_exception_handling(tag=1),  # type: ignore[arg-type]
            "BuildError: tag, the name of the output for dead letters, is a non-empty string, not 1",
        ),
        (
            lambda p: p | tg.Create([1]) | tg.Map(str).with_outputs("a", main=1),  # type: ignore[arg-type]
            "BuildError: output tags are distinct non-empty strings, not (1, 'a')",
        ),
        (
            lambda p: p | tg.Create([1]) | "s" >> tg.Map(str).with_outputs("bad").with_exception_handling(),  # type: ignore[attr-defined]
            "BuildError: two outputs are named 'bad': name that of the dead letters with tag=…\n"
            "  in step 's', applied at HERE",
        ),
    ],
)
def test_invalid_arguments_of_steps_are_refused(build: Any, message: str) -> None:
    assert error_message(build) == message


def test_a_function_that_takes_no_element_is_refused() -> None:
    def nothing() -> int:
        return 1

    assert "nothing() can't be called with the element: too many positional arguments" in error_message(
        lambda p: p | tg.Create([1]) | tg.Map(nothing)
    )


def test_without_type_checks_types_are_not_compared_while_building() -> None:
    def text(element: int) -> str:
        return str(element)

    def length(element: int) -> int:
        return len(str(element))

    with tg.Pipeline(options=["--type_check=off"]) as p:
        p | tg.Create([1]) | tg.Map(text) | tg.Map(length)
    pipeline = tg.Pipeline(options={"type_check": "off"})
    numbers = pipeline | tg.Create([1])
    numbers | tg.GroupByKey()
    {"a": numbers, "b": numbers} | tg.CoGroupByKey()


@pytest.mark.parametrize("exc_class", [3, "ValueError", (), (ValueError, 3), int])
def test_exc_class_must_be_exception_classes(exc_class: Any) -> None:
    assert error_message(lambda p: p | tg.Create([1]) | tg.Map(str).with_exception_handling(exc_class=exc_class)) == (
        f"BuildError: exc_class is an exception class, or a tuple of them, not {exc_class!r}"
    )


def test_a_collection_in_a_closure_is_refused_with_what_to_do_instead() -> None:
    def build(p: tg.Pipeline) -> None:
        numbers = p | tg.Create([1])
        numbers | "pairs" >> tg.Map(lambda x: (x, numbers))

    assert error_message(build) == (
        "PicklingError: <lambda> can't be pickled: PCollection('Create') can't be used inside a function: it exists "
        "only while the pipeline runs. Pass its values as a side input, such as tg.Map(f, tg.AsList(pcoll))\n"
        "  in step 'pairs', applied at HERE"
    )


def test_a_pipeline_in_a_closure_is_refused() -> None:
    assert "<lambda> can't be pickled: a Pipeline can't be used inside a function" in error_message(
        lambda p: p | tg.Create([1]) | "all" >> tg.Map(lambda x: (x, p))
    )


@pytest.mark.parametrize("family", [tg.combiners.Count, tg.combiners.Count()])
def test_the_error_of_a_family_of_steps_used_as_a_step_lists_its_steps(family: Any) -> None:
    assert error_message(lambda p: p | tg.Create([1]) | family) == (
        "BuildError: Count is a family of steps: "
        "write Count.Globally(...) or Count.PerKey(...) or Count.PerElement(...)\n  applied at HERE"
    )


@pytest.mark.parametrize("name", ["", 3, b"label"])
def test_a_name_must_be_a_string_that_is_not_empty(name: Any) -> None:
    assert error_message(lambda p: p | tg.Create([1]) | tg.Map(str, name=name)) == (
        f"BuildError: a label is a non-empty string, not {name!r}"
    )


@pytest.mark.parametrize(
    ("runner", "message"),
    [
        (tg.Runner, "Runner is a class: write Runner()"),
        (7, "runner is a name or a Runner, not 7; there are: {}"),
        ("dirct", "there is no runner 'dirct'; there are: {}"),
    ],
)
def test_an_invalid_runner_is_refused(runner: Any, message: str) -> None:
    named = message.format(", ".join(runner_names()))  # tests of the contract name further ones
    assert error_message(lambda p: p | tg.Create([1]), runner) == f"OptionsError: {named}"


def test_invalid_options_are_refused() -> None:
    options: Any = 3
    with pytest.raises(tg.OptionsError, match=r"^options are PipelineOptions, a dict, or a list of flags, not 3$"):
        tg.Pipeline(options=options) | tg.Create([1]) | tg.Map(str)


def test_an_async_function_is_refused() -> None:
    async def double(x: int) -> int:
        return 2 * x

    with pytest.raises(tg.BuildError, match="Map takes an ordinary function: double is async, and nothing awaits it"):
        _ = tg.Pipeline() | tg.Create([1]) | tg.Map(double)


class LooksUp(tg.PTransform[tg.PCollection[int], tg.PCollection[int]]):
    """Its `expand` calls a function that raises."""

    def expand(self, input: tg.PCollection[int]) -> tg.PCollection[int]:
        return input | "before" >> tg.Map(abs) | table_of("sales")


class Outer(tg.PTransform[tg.PCollection[int], tg.PCollection[int]]):
    def expand(self, input: tg.PCollection[int]) -> tg.PCollection[int]:
        return input | "look up" >> LooksUp()


def table_of(name: str) -> Any:
    raise ValueError(f"no table {name}")


def test_the_error_of_an_exception_in_expand_names_the_composite_and_where_it_was_applied() -> None:
    assert error_message(lambda p: p | tg.Create([1]) | "rates" >> LooksUp()) == (
        "ExpandError: ValueError: no table sales\n  in step 'rates', applied at HERE\n"
        "  while the pipeline was being built"
    )


def test_an_exception_in_an_inner_expand_is_reported_once_with_the_full_label() -> None:
    assert error_message(lambda p: p | tg.Create([1]) | "rates" >> Outer()) == (
        "ExpandError: ValueError: no table sales\n  in step 'rates/look up', applied at HERE\n"
        "  while the pipeline was being built"
    )


def test_the_cause_of_an_error_in_expand_has_only_the_authors_frames() -> None:
    error = run_to_failure(lambda p: p | tg.Create([1]) | "rates" >> Outer())
    assert isinstance(error, tg.BuildError)
    assert isinstance(error.__cause__, ValueError)
    assert [frame.name for frame in traceback.extract_tb(error.__cause__.__traceback__)] == ["expand", "table_of"]


def test_the_error_of_an_exception_in_an_applied_function_names_the_function() -> None:
    def rates(input: tg.PCollection[int]) -> Any:
        return input | table_of("rates")

    assert error_message(lambda p: p | tg.Create([1]) | rates) == (
        "ExpandError: ValueError: no table rates\n  in step 'rates', applied at HERE\n"
        "  while the pipeline was being built"
    )


def test_a_composite_without_expand_is_refused() -> None:
    class Empty(tg.PTransform[Any, Any]):
        pass

    assert error_message(lambda p: p | tg.Create([1]) | "empty" >> Empty()) == (
        "ExpandError: NotImplementedError: Empty.expand is missing\n  in step 'empty', applied at HERE\n"
        "  while the pipeline was being built"
    )


def test_a_system_exit_in_expand_is_not_caught() -> None:
    def leave(input: tg.PCollection[int]) -> Any:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        _ = tg.Pipeline() | tg.Create([1]) | leave


def test_a_pipeline_that_has_not_run_has_no_result() -> None:
    p = tg.Pipeline()
    _ = p | tg.Create([1]) | tg.Map(abs)
    assert not p.has_run
    with pytest.raises(tg.BuildError, match=r"has no result: it has not run\. Call run\(\)"):
        _ = p.result
    assert p.run() is p.result


@pytest.mark.parametrize("step", [tg.Map, tg.FlatMap, tg.Filter])
def test_the_error_of_a_function_of_key_and_value_names_the_steps_that_unpack_pairs(step: Any) -> None:
    message = error_message(lambda p: p | tg.Create([("a", 1)]) | "pairs" >> step(lambda k, v: [k, v]))
    assert "missing a required argument: 'v'. An element is one argument" in message
    assert "tg.MapTuple or tg.FlatMapTuple unpacks it" in message


class AsksForWindow(tg.DoFn):
    def process(self, element: int, window: Any) -> list[int]:
        return [element]


@pytest.mark.parametrize(
    ("step", "parameter"),
    [
        (tg.Map(lambda x, window: x), "window=tg.DoFn.WindowParam"),
        (tg.Map(lambda x, timestamp: x), "timestamp=tg.DoFn.TimestampParam"),
        (tg.Filter(lambda x, pane: x), "pane=tg.DoFn.PaneInfoParam"),
        (tg.FlatMap(lambda x, key: [x]), "key=tg.DoFn.KeyParam"),
        (tg.Map(lambda x, window, pane: x), "window=tg.DoFn.WindowParam, pane=tg.DoFn.PaneInfoParam"),
        (tg.ParDo(AsksForWindow()), "window=tg.DoFn.WindowParam"),
    ],
)
def test_the_error_of_a_parameter_named_after_an_injected_value_shows_its_default(step: Any, parameter: str) -> None:
    message = error_message(lambda p: p | tg.Create([1]) | "asks" >> step)
    first = message.partition("\n")[0]
    assert first.endswith(f"'. Injection is requested by a default: write {parameter}")
    for part in parameter.split(", "):
        assert hasattr(tg.DoFn, part.rpartition(".")[2])

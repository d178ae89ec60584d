"""Elements that are changed in place, and what is no such thing: what `--checks` tell, word for word."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.support.failing_pipelines import error_message

MANNERS = (
    ": elements are shared between steps, so they must not be changed once they are emitted. "
    "Emit a copy, or build a new value instead"
)


def changed(before: str, after: str, step: str) -> str:
    """The whole message."""
    return (
        f"CheckError: the step emitted an element that was changed afterwards from {before} to {after}, by this step "
        f"or by one that received it{MANNERS}\n  in step {step!r}, applied at HERE"
    )


def growing(n: int) -> Iterator[list[int]]:
    buffer: list[int] = []
    for i in range(n):
        buffer.append(i)
        yield buffer


def cleared(n: int) -> Iterator[list[int]]:
    buffer = [n]
    yield buffer
    buffer.clear()


class Keeps(tg.DoFn):
    """Gives the same list for every element, after it has added to it."""

    def __init__(self) -> None:
        self.buffer: list[int] = []

    def process(self, element: int) -> Iterator[Any]:
        self.buffer.append(element)
        yield self.given(element)

    def given(self, element: int) -> Any:
        return self.buffer


class KeepsInPairs(Keeps):
    def given(self, element: int) -> Any:
        return "a", self.buffer


class KeepsStamped(Keeps):
    def given(self, element: int) -> Any:
        return tg.TimestampedValue(self.buffer, element)


class KeepsTagged(Keeps):
    def given(self, element: int) -> Any:
        return tg.TaggedOutput("other", self.buffer)


class GivesAtOnce(Keeps):
    def process(self, element: int) -> list[Any]:  # type: ignore[override]
        self.buffer.append(element)
        return [self.buffer]


class AtTheEnd(tg.DoFn):
    """Changes in finish_bundle what it has given before."""

    def __init__(self) -> None:
        self.buffer: list[int] = []

    def process(self, element: int) -> Iterator[list[int]]:
        self.buffer = [element]
        yield self.buffer

    def finish_bundle(self) -> None:
        self.buffer.append(9)


class EndsWith(tg.DoFn):
    """Changes in finish_bundle what it gives there."""

    def process(self, element: int) -> None:
        pass

    def finish_bundle(self) -> Iterator[list[int]]:
        buffer = [1]
        yield buffer
        buffer.append(2)


ONE: Any = tg.Create([2])
TWO: Any = tg.Create([1, 2])


@pytest.mark.parametrize("checks", ["sample", "all"])
@pytest.mark.parametrize(
    ("source", "step", "before", "after"),
    [
        (ONE, lambda: tg.FlatMap(growing), "[0]", "[0, 1]"),
        (ONE, lambda: tg.FlatMap(cleared), "[2]", "[]"),
        (TWO, lambda: tg.ParDo(Keeps()), "[1]", "[1, 2]"),
        (TWO, lambda: tg.ParDo(GivesAtOnce()), "[1]", "[1, 2]"),
        (TWO, lambda: tg.ParDo(KeepsInPairs()), "('a', [1])", "('a', [1, 2])"),
        (TWO, lambda: tg.ParDo(KeepsStamped()), "[1]", "[1, 2]"),
        (TWO, lambda: tg.ParDo(KeepsTagged()).with_outputs("other"), "[1]", "[1, 2]"),
        (ONE, lambda: tg.ParDo(AtTheEnd()), "[2]", "[2, 9]"),
        (ONE, lambda: tg.ParDo(EndsWith()), "[1]", "[1, 2]"),
    ],
    ids=["grows", "cleared", "kept", "kept, in a list", "in pairs", "stamped", "tagged", "at the end", "of the end"],
)
def test_what_is_changed_after_it_was_given_names_the_step_and_both_values(
    source: Any, step: Callable[[], Any], before: str, after: str, checks: str
) -> None:
    assert error_message(lambda p: p | source | "gather" >> step(), checks=checks) == changed(before, after, "gather")


def test_a_function_that_gives_its_own_list_again_is_found() -> None:
    def build(p: tg.Pipeline) -> None:
        seen: list[int] = []

        def note(element: int) -> list[int]:
            seen.append(element)
            return seen

        _ = p | TWO | "gather" >> tg.Map(note) | tg.Map(len)

    assert error_message(build) == changed("[1]", "[1, 2]", "gather")


@pytest.mark.parametrize("partial", [True, False])
def test_dead_letters_do_not_hide_that_an_element_was_changed(partial: bool) -> None:
    def build(p: tg.Pipeline) -> None:
        _ = p | ONE | "gather" >> tg.FlatMap(growing).with_exception_handling(partial=partial)

    assert error_message(build) == changed("[0]", "[0, 1]", "gather")


def test_a_later_step_that_changes_what_it_got_long_ago_is_told_with_the_step_that_gave_it() -> None:
    class Folds(tg.DoFn):
        def __init__(self) -> None:
            self.first: list[int] = []

        def process(self, element: list[int]) -> None:
            if not self.first:
                self.first = element
            else:
                self.first += element

    build = lambda p: p | TWO | "lists" >> tg.Map(lambda x: [x]) | "fold" >> tg.ParDo(Folds())  # noqa: E731
    assert error_message(build) == changed("[1]", "[1, 2]", "lists")


class KeepsByKey(tg.DoFn):
    """Stateful, and gives the same list for every element of a key."""

    SEEN = tg.BagStateSpec("seen")

    def __init__(self) -> None:
        self.buffer: list[int] = []

    def process(self, element: tuple[str, int], seen: Any = tg.DoFn.StateParam(SEEN)) -> Iterator[list[int]]:
        self.buffer.append(element[1])
        yield self.buffer


class TimesOut(tg.DoFn):
    """Changes in a timer's callback what it gives there."""

    DUE = tg.EventTimer("due")

    def process(self, element: tuple[str, int], due: Any = tg.DoFn.TimerParam(DUE)) -> None:
        due.set(element[1])

    @tg.on_timer(DUE)
    def ring(self) -> Iterator[list[int]]:
        buffer = [1]
        yield buffer
        buffer.append(2)


@pytest.mark.parametrize("dofn", [KeepsByKey(), TimesOut()], ids=["process", "timer"])
def test_a_stateful_step_that_changes_what_it_gave_is_named(dofn: tg.DoFn) -> None:
    pairs = tg.Create([("a", 1), ("a", 2)])
    assert error_message(lambda p: p | pairs | "gather" >> tg.ParDo(dofn)) == changed("[1]", "[1, 2]", "gather")


# -- what is left alone


class Replaces(tg.DoFn):
    """A buffer that is given and replaced, as it should be."""

    def __init__(self) -> None:
        self.buffer: list[int] = []

    def process(self, element: int) -> Iterator[list[int]]:
        self.buffer.append(element)
        if len(self.buffer) == 3:
            yield self.buffer
            self.buffer = []

    def finish_bundle(self) -> Iterator[list[int]]:
        yield self.buffer


def same_twice(element: int) -> Iterator[list[int]]:
    value = [element]
    yield value
    yield value


def copies(n: int) -> Iterator[list[int]]:
    buffer: list[int] = []
    for i in range(n):
        buffer.append(i)
        yield buffer[:]


FOREVER = [1]


@pytest.mark.parametrize("checks", ["sample", "all"])
@pytest.mark.parametrize(
    "steps",
    [
        (tg.ParDo(Replaces()),),
        (tg.FlatMap(same_twice),),
        (tg.FlatMap(copies),),
        (tg.Map(lambda x: FOREVER),),
        (tg.Map(lambda x: (x, ("deep", x))), tg.Map(lambda pair: pair), tg.FlatMap(lambda pair: [pair, pair])),
        (tg.Map(lambda x: [x]), tg.Map(lambda xs: xs), tg.Filter(bool)),
    ],
    ids=["replaced", "twice", "copies", "constant", "passed on", "a list passed on"],
)
def test_what_is_left_as_it_was_given_is_nothing_to_report(steps: Any, checks: str) -> None:
    pipeline = tg.Pipeline(options={"checks": checks})
    elements: Any = pipeline | tg.Create(range(250))
    for n, step in enumerate(steps):
        elements = elements | f"step {n}" >> step
    _ = elements | tg.Map(str)
    assert pipeline.run().state is tg.PipelineState.DONE


def test_without_checks_nothing_is_looked_at() -> None:
    pipeline = tg.Pipeline(options={"checks": "off"})
    _ = pipeline | TWO | tg.ParDo(Keeps())
    assert pipeline.run().state is tg.PipelineState.DONE


def test_a_step_with_more_results_than_are_held_is_found_by_those_that_make_room() -> None:
    build = lambda p: p | tg.Create(range(500)) | "gather" >> tg.ParDo(KeepsInPairs())  # noqa: E731
    assert error_message(build).startswith(
        "CheckError: the step emitted an element that was changed afterwards from ('a', [0]) to ('a', [0, "
    )


def test_a_step_whose_many_results_are_large_keeps_few_of_them() -> None:
    """Two hundred lists of a megabyte each, all held, would not go unnoticed."""

    def large(element: int) -> Iterator[list[bytes]]:
        for i in range(50):
            yield [bytes([i]) * (1 << 20)]

    pipeline = tg.Pipeline()
    _ = pipeline | tg.Create(range(4)) | tg.FlatMap(large) | tg.Map(len)
    tracemalloc.start()
    pipeline.run()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20 << 20


def test_a_combiner_that_adds_to_its_first_input_is_told_with_the_step_that_gave_it() -> None:
    class AddsUp(tg.CombineFn[list[int], list[int], list[int]]):
        def create_accumulator(self) -> list[int]:
            return []

        def add_input(self, accumulator: list[int], element: list[int]) -> list[int]:
            if not accumulator:
                return element
            accumulator.extend(element)
            return accumulator

        def merge_accumulators(self, accumulators: Iterable[list[int]]) -> list[int]:
            return [value for part in accumulators for value in part]

        def extract_output(self, accumulator: list[int]) -> list[int]:
            return accumulator

    build = lambda p: p | TWO | "lists" >> tg.Map(lambda x: ("k", [x])) | tg.CombinePerKey(AddsUp()) | tg.Map(str)  # noqa: E731
    assert error_message(build) == changed("('k', [1])", "('k', [1, 2])", "lists")

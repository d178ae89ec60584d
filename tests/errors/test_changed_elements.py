"""The exact messages of `--checks` about elements that were changed in place, and uses that are not reported."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

import tidegate as tg
from tests.support.failing_pipelines import error_message
from tidegate.runners.engine.checks.contracts import changed, snapshot

MANNERS = (
    ": elements are shared between steps, so they must not be changed once they are emitted. "
    "Emit a copy, or build a new value instead"
)


def changed_message(old: str, new: str, step: str) -> str:
    """The complete message."""
    return (
        f"CheckError: the step emitted an element that was changed afterwards from {old} to {new}, by this step "
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


class EmitsItsBuffer(tg.DoFn):
    """Adds each element to a list, and emits that same list every time."""

    def __init__(self) -> None:
        self.buffer: list[int] = []

    def process(self, element: int) -> Iterator[Any]:
        self.buffer.append(element)
        yield self.output_of(element)

    def output_of(self, element: int) -> Any:
        return self.buffer


class EmitsItsBufferInPairs(EmitsItsBuffer):
    def output_of(self, element: int) -> Any:
        return "a", self.buffer


class EmitsItsBufferInRows(EmitsItsBuffer):
    def output_of(self, element: int) -> Any:
        return tg.Row(day=date(2024, 2, 29), items=self.buffer)


class EmitsItsBufferTimestamped(EmitsItsBuffer):
    def output_of(self, element: int) -> Any:
        return tg.TimestampedValue(self.buffer, element)


class EmitsItsBufferTagged(EmitsItsBuffer):
    def output_of(self, element: int) -> Any:
        return tg.TaggedOutput("other", self.buffer)


class ReturnsItsBuffer(EmitsItsBuffer):
    def process(self, element: int) -> list[Any]:  # type: ignore[override]
        self.buffer.append(element)
        return [self.buffer]


class ChangesInFinishBundle(tg.DoFn):
    """Changes an emitted list in finish_bundle."""

    def __init__(self) -> None:
        self.buffer: list[int] = []

    def process(self, element: int) -> Iterator[list[int]]:
        self.buffer = [element]
        yield self.buffer

    def finish_bundle(self) -> None:
        self.buffer.append(9)


class EmitsInFinishBundle(tg.DoFn):
    """Changes a list in finish_bundle that it has emitted there."""

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
        (TWO, lambda: tg.ParDo(EmitsItsBuffer()), "[1]", "[1, 2]"),
        (TWO, lambda: tg.ParDo(ReturnsItsBuffer()), "[1]", "[1, 2]"),
        (TWO, lambda: tg.ParDo(EmitsItsBufferInPairs()), "('a', [1])", "('a', [1, 2])"),
        (
            TWO,
            lambda: tg.ParDo(EmitsItsBufferInRows()),
            "Row(day=datetime.date(2024, 2, 29), items=[1])",
            "Row(day=datetime.date(2024, 2, 29), items=[1, 2])",
        ),
        (TWO, lambda: tg.ParDo(EmitsItsBufferTimestamped()), "[1]", "[1, 2]"),
        (TWO, lambda: tg.ParDo(EmitsItsBufferTagged()).with_outputs("other"), "[1]", "[1, 2]"),
        (ONE, lambda: tg.ParDo(ChangesInFinishBundle()), "[2]", "[2, 9]"),
        (ONE, lambda: tg.ParDo(EmitsInFinishBundle()), "[1]", "[1, 2]"),
    ],
    ids=[
        "grows",
        "cleared",
        "kept",
        "kept, in a list",
        "in pairs",
        "in rows",
        "stamped",
        "tagged",
        "at the end",
        "of the end",
    ],
)
def test_the_error_of_an_element_changed_after_it_was_emitted_names_the_step_and_both_values(
    source: Any, step: Callable[[], Any], before: str, after: str, checks: str
) -> None:
    assert error_message(lambda p: p | source | "gather" >> step(), checks=checks) == changed_message(
        before, after, "gather"
    )


def test_a_function_that_returns_the_same_list_again_is_reported() -> None:
    def build(p: tg.Pipeline) -> None:
        seen: list[int] = []

        def note(element: int) -> list[int]:
            seen.append(element)
            return seen

        _ = p | TWO | "gather" >> tg.Map(note) | tg.Map(len)

    assert error_message(build) == changed_message("[1]", "[1, 2]", "gather")


@pytest.mark.parametrize("partial", [True, False])
def test_dead_letters_do_not_hide_a_changed_element(partial: bool) -> None:
    def build(p: tg.Pipeline) -> None:
        _ = p | ONE | "gather" >> tg.FlatMap(growing).with_exception_handling(partial=partial)

    assert error_message(build) == changed_message("[0]", "[0, 1]", "gather")


def test_an_element_changed_much_later_by_another_step_is_reported_for_the_step_that_emitted_it() -> None:
    class Folds(tg.DoFn):
        def __init__(self) -> None:
            self.first: list[int] = []

        def process(self, element: list[int]) -> None:
            if not self.first:
                self.first = element
            else:
                self.first += element

    build = lambda p: p | TWO | "lists" >> tg.Map(lambda x: [x]) | "fold" >> tg.ParDo(Folds())  # noqa: E731
    assert error_message(build) == changed_message("[1]", "[1, 2]", "lists")


class StatefulBuffer(tg.DoFn):
    """A stateful DoFn that emits the same list for every element."""

    SEEN = tg.BagStateSpec("seen")

    def __init__(self) -> None:
        self.buffer: list[int] = []

    def process(self, element: tuple[str, int], seen: Any = tg.DoFn.StateParam(SEEN)) -> Iterator[list[int]]:
        self.buffer.append(element[1])
        yield self.buffer


class ChangesInTimer(tg.DoFn):
    """Changes a list in a timer's callback that it has emitted there."""

    DUE = tg.EventTimer("due")

    def process(self, element: tuple[str, int], due: Any = tg.DoFn.TimerParam(DUE)) -> None:
        due.set(element[1])

    @tg.on_timer(DUE)
    def ring(self) -> Iterator[list[int]]:
        buffer = [1]
        yield buffer
        buffer.append(2)


@pytest.mark.parametrize("dofn", [StatefulBuffer(), ChangesInTimer()], ids=["process", "timer"])
def test_a_stateful_step_that_changes_an_emitted_list_is_reported(dofn: tg.DoFn) -> None:
    pairs = tg.Create([("a", 1), ("a", 2)])
    assert error_message(lambda p: p | pairs | "gather" >> tg.ParDo(dofn)) == changed_message("[1]", "[1, 2]", "gather")


# -- uses that are not reported


class ReplacesItsBuffer(tg.DoFn):
    """Emits a buffer and replaces it with a new one, as it should."""

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


CONSTANT = [1]


@pytest.mark.parametrize("checks", ["sample", "all"])
@pytest.mark.parametrize(
    "steps",
    [
        (tg.ParDo(ReplacesItsBuffer()),),
        (tg.FlatMap(same_twice),),
        (tg.FlatMap(copies),),
        (tg.Map(lambda x: CONSTANT),),
        (tg.Map(lambda x: (x, ("deep", x))), tg.Map(lambda pair: pair), tg.FlatMap(lambda pair: [pair, pair])),
        (tg.Map(lambda x: [x]), tg.Map(lambda xs: xs), tg.Filter(bool)),
    ],
    ids=["replaced", "twice", "copies", "constant", "passed on", "a list passed on"],
)
def test_elements_that_are_not_changed_are_not_reported(steps: Any, checks: str) -> None:
    pipeline = tg.Pipeline(options={"checks": checks})
    elements: Any = pipeline | tg.Create(range(250))
    for n, step in enumerate(steps):
        elements = elements | f"step {n}" >> step
    _ = elements | tg.Map(str)
    assert pipeline.run().state is tg.PipelineState.DONE


class Named(NamedTuple):
    day: date
    price: Decimal | list[int]


class WithAttributes(tuple[Any, ...]):
    """A tuple whose instances have attributes, too."""


def test_only_values_that_can_be_changed_are_held_as_their_pickles() -> None:
    at = tg.Timestamp(3)
    fixed = [Named(date(2024, 2, 29), Decimal(1)), tg.Row(n=1, inner=(at, frozenset("a"))), datetime.now(UTC)]
    assert list(map(snapshot, fixed)) == [None] * 3
    for value in (Named(date(2024, 2, 29), [1]), tg.Row(n=1, inner=([],)), WithAttributes("a"), [], {}):
        before = snapshot(value)
        assert before is not None
        assert not changed(before, value)


def test_without_checks_nothing_is_reported() -> None:
    pipeline = tg.Pipeline(options={"checks": "off"})
    _ = pipeline | TWO | tg.ParDo(EmitsItsBuffer())
    assert pipeline.run().state is tg.PipelineState.DONE


def test_a_change_is_found_when_elements_held_for_the_check_are_dropped() -> None:
    build = lambda p: p | tg.Create(range(500)) | "gather" >> tg.ParDo(EmitsItsBufferInPairs())  # noqa: E731
    assert error_message(build).startswith(
        "CheckError: the step emitted an element that was changed afterwards from ('a', [0]) to ('a', [0, "
    )


def test_few_large_elements_are_held_for_the_check() -> None:
    """Holding all two hundred lists of a megabyte each would exceed the limit."""

    def large(element: int) -> Iterator[list[bytes]]:
        for i in range(50):
            yield [bytes([i]) * (1 << 20)]

    pipeline = tg.Pipeline()
    _ = pipeline | tg.Create(range(4)) | tg.FlatMap(large) | tg.Map(len)
    tracemalloc.start()
    pipeline.run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20


def test_an_element_changed_by_a_combiner_is_reported_for_the_step_that_emitted_it() -> None:
    class ExtendsItsFirstInput(tg.CombineFn[list[int], list[int], list[int]]):
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

    def build(p: tg.Pipeline) -> None:
        pairs = p | TWO | "lists" >> tg.Map(lambda x: ("k", [x]))
        _ = pairs | tg.CombinePerKey(ExtendsItsFirstInput()) | tg.Map(str)

    assert error_message(build) == changed_message("('k', [1])", "('k', [1, 2])", "lists")

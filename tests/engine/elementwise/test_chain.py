"""A fused chain: the kinds of results that steps emit, the windows of elements, and the size of blocks."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tidegate as tg
from tests.support.operator_driver import context, operator, read
from tests.support.run_and_collect import collect
from tidegate.runners.direct import DirectRunner
from tidegate.runners.engine.elementwise.codegen import generate
from tidegate.runners.engine.elementwise.fused_node import load_link
from tidegate.runners.engine.elementwise.shape import Shape
from tidegate.runners.engine.factory import build as build_operator
from tidegate.runners.engine.loops.loop_tree import printed
from tidegate.runners.engine.operator import Context
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import AssignWindows, ParDo
from tidegate.sdk.windowing.window import GLOBAL_WINDOW

SECOND = 1_000_000
TEN = tg.FixedWindows(10)
LONG = 1_000

pytest.importorskip("numpy")  # blocks are split by window only if numpy is loaded


def output_of(write: Any, block_size: int = 2, **options: Any) -> list[Any]:
    """The output of the steps that `write` adds: values, seconds, and window starts in seconds."""
    found = collect(lambda p: {"out": write(p)}, DirectRunner(block_size=block_size), options or None).seen["out"]
    return [(each.value, each.micros / SECOND, each.window.start.micros // SECOND) for each in found]


def timestamped(*seconds: int) -> list[Any]:
    return [tg.TimestampedValue(second, second) for second in seconds]


def restamp(x: int) -> Any:
    return tg.TimestampedValue(x, x + 100)


@pytest.mark.parametrize("block_size", [1, 2, 7])
def test_an_element_restamped_after_a_grouping_is_in_the_window_of_its_new_timestamp(block_size: int) -> None:
    def write(p: tg.Pipeline) -> Any:
        grouped = (
            p | tg.Create(timestamped(1, 2, 3, 4, 5)) | tg.WindowInto(tg.FixedWindows(10)) | tg.CombinePerElement(len)
        )
        return grouped | tg.Map(lambda pair: restamp(pair[0]))

    assert output_of(write, block_size) == [(x, x + 100.0, 100) for x in (1, 2, 3, 4, 5)]


@pytest.mark.parametrize("block_size", [1, 2, 7])
def test_an_element_restamped_before_a_grouping_is_combined_in_its_new_window(block_size: int) -> None:
    def write(p: tg.Pipeline) -> Any:
        grouped = (
            p | tg.Create(timestamped(1, 2, 3, 4, 5)) | tg.WindowInto(tg.FixedWindows(10)) | tg.CombinePerElement(len)
        )
        moved = grouped | tg.Map(lambda pair: tg.TimestampedValue(("all", 1), pair[0] * 10))
        return moved | tg.CombinePerKey(sum)

    assert [(value, start) for value, _, start in output_of(write, block_size)] == [
        (("all", 1), start) for start in (10, 20, 30, 40, 50)
    ]


@pytest.mark.parametrize("size", [2, 4])
def test_the_loop_assigns_windows_once_per_window_only_if_elements_may_be_in_several(size: int) -> None:
    pipeline = tg.Pipeline()
    windowed = pipeline | tg.Create([1]) | tg.WindowInto(tg.SlidingWindows(size, 2)) | "again" >> tg.WindowInto(TEN)
    _ = windowed | tg.Map(lambda x: x)
    sealed = pipeline.sealed()
    links = tuple(load_link(node, sealed) for node in sealed.nodes if isinstance(node, (AssignWindows, ParDo)))
    assert ("extra[1]" in printed(generate(links, Shape(timed=True), None))) is (size > 2)
    assert "extra[0]" in printed(generate(links, Shape(timed=True, windows="derived", in_several=True), None))


def test_a_chain_may_be_longer_than_calls_can_be_nested() -> None:
    def write(p: tg.Pipeline) -> Any:
        values = p | tg.Create([1])
        for n in range(LONG):
            values |= f"{n}" >> tg.Map(lambda x: x + 1)
        return values

    assert [value for value, _, _ in output_of(write, 1)] == [LONG + 1]


@pytest.mark.parametrize("block_size", [1, 2, 7])
def test_an_element_for_which_the_assigner_has_no_window_is_dropped(block_size: int) -> None:
    results: list[Any] = []

    def write(p: tg.Pipeline) -> Any:
        windowed = p | tg.Create(timestamped(0, 1, 2, 3, 4, 5, 6)) | tg.WindowInto(tg.SlidingWindows(1, 3))
        return windowed | tg.Map(lambda x: tg.Metrics.counter("test", "results").inc() or x)

    assert output_of(write, block_size) == [(0, 0.0, 0), (3, 3.0, 3), (6, 6.0, 6)]
    found = collect(lambda p: {"out": write(p)}, DirectRunner(block_size=block_size))
    assert found.result.metrics().counter("results") == 3
    assert found.result.metrics().counter("elements_out", step="WindowInto(SlidingWindows)") == 3
    assert not results


@pytest.mark.parametrize("block_size", [1, 2, 7])
def test_an_element_restamped_to_a_time_without_a_window_is_dropped(block_size: int) -> None:
    def write(p: tg.Pipeline) -> Any:
        windowed = p | tg.Create(timestamped(0, 3, 6, 9, 12)) | tg.WindowInto(tg.SlidingWindows(1, 3))
        return windowed | tg.Map(lambda x: tg.TimestampedValue(x, x + x % 2))

    assert output_of(write, block_size) == [(0, 0.0, 0), (6, 6.0, 6), (12, 12.0, 12)]


def test_dead_letters_are_in_the_windows_of_the_element_that_failed() -> None:
    def write(p: tg.Pipeline) -> Any:
        windowed = p | tg.Create(timestamped(1, 12, 23)) | tg.WindowInto(tg.FixedWindows(10))
        _, bad = windowed | tg.Map(lambda x: 1 // 0).with_exception_handling()
        return bad | tg.Map(lambda letter: letter[0])

    assert output_of(write) == [(1, 1.0, 0), (12, 12.0, 10), (23, 23.0, 20)]


def test_a_tagged_output_may_wrap_a_timestamped_value_and_a_windowed_one() -> None:
    class EmitsTagged(tg.DoFn):
        def process(self, element: int) -> Iterator[Any]:
            yield tg.TaggedOutput("side", tg.TimestampedValue(element, 42))

        def finish_bundle(self) -> Iterator[Any]:
            window = tg.IntervalWindow(50, 60)
            yield tg.TaggedOutput("side", tg.WindowedValue("end", 55, (window,)))

    def write(p: tg.Pipeline) -> Any:
        return (
            p
            | tg.Create(timestamped(1))
            | tg.WindowInto(tg.FixedWindows(10))
            | tg.ParDo(EmitsTagged()).with_outputs("side")
        ).side

    assert output_of(write) == [(1, 42.0, 40), ("end", 55.0, 50)]


def test_results_of_finish_bundle_run_through_the_steps_after_it() -> None:
    class Buffers(tg.DoFn):
        def start_bundle(self) -> None:
            self.buffer: list[int] = []

        def process(self, element: int) -> None:
            self.buffer.append(element)

        def finish_bundle(self) -> list[int]:
            return self.buffer

    class Adds(Buffers):
        def finish_bundle(self) -> list[int]:
            return [sum(self.buffer)]

    def write(p: tg.Pipeline) -> Any:
        chain = p | tg.Create([1, 2, 3, 4, 5]) | "buffer" >> tg.ParDo(Buffers()) | tg.Map(lambda x: x * 10)
        return chain | "add" >> tg.ParDo(Adds()) | tg.Filter(lambda x: x > 100)

    assert [value for value, _, _ in output_of(write)] == [150]


def test_many_results_of_one_element_are_emitted_block_by_block() -> None:
    """The blocks are small, and a suspended operator has pulled no more from the author's generator."""
    pulled = []

    def numbers(x: int) -> Iterator[int]:
        for n in range(1_000_000):
            pulled.append(n)
            yield n

    pipeline = tg.Pipeline()
    _ = pipeline | tg.Create([1]) | tg.FlatMap(numbers) | tg.Map(lambda x: x + 1) | tg.Filter(lambda x: x % 2)
    found = plan(pipeline.portable(), Traits(parallel=False))
    operator = build_operator(
        found.steps[1], found, Context(1 << 30, lambda: pytest.fail("nothing is spilled"), block_size=10)
    )
    operator.open()
    blocks = operator.process(Block([1]), "Create")
    sizes = [len(next(blocks)[1]) for _ in range(5)]
    assert sizes == [10] * 5
    assert len(pulled) <= 102


@pytest.mark.parametrize("checks", ["sample", "all", "off"])
def test_extra_arguments_and_injected_parameters_reach_the_function(checks: str) -> None:
    def show(x: int, y: int, *, z: int, when: Any = tg.DoFn.TimestampParam, window: Any = tg.DoFn.WindowParam) -> Any:
        return x, y, z, when.seconds(), window.start.seconds()

    def write(p: tg.Pipeline) -> Any:
        return p | tg.Create(timestamped(7)) | tg.WindowInto(tg.FixedWindows(5)) | tg.Map(show, 2, z=3)

    assert [value for value, _, _ in output_of(write, checks=checks)] == [(7, 2, 3, 7.0, 5.0)]


def test_a_step_with_a_window_parameter_is_called_once_per_window() -> None:
    def write(p: tg.Pipeline) -> Any:
        windowed = p | tg.Create(timestamped(7)) | tg.WindowInto(tg.SlidingWindows(10, 5))
        return windowed | tg.Map(lambda x, w=tg.DoFn.WindowParam: w.start.seconds())

    assert output_of(write) == [(0.0, 7.0, 0), (5.0, 7.0, 5)]


# -- timestamps that differ within a block


def maybe_wrapped(pair: tuple[int, str]) -> Any:
    """Return the element unchanged, or in one of the wrappers that a step may emit."""
    n, kind = pair
    match kind:
        case "later":
            return tg.TimestampedValue(pair, 1000 + n)
        case "elsewhere":
            return tg.WindowedValue(pair, 2000 + n, (GLOBAL_WINDOW,))
        case _:
            return pair


TIMED = st.lists(
    st.tuples(
        st.tuples(st.integers(0, 40), st.sampled_from(["plain", "plain", "plain", "later", "elsewhere"])),
        st.integers(0, 15).map(lambda second: second * SECOND),
    ),
    max_size=30,
)


def in_blocks(timed: list[Any], size: int, *, span: bool, column: Callable[..., Any] = list) -> Iterator[Block]:
    for start in range(0, len(timed), size):
        values, times = (list(column) for column in zip(*timed[start : start + size], strict=True))
        yield Block(values, column(times), span=(min(times), max(times)) if span else None)


@given(TIMED, st.sampled_from([1, 3, 30]), st.sampled_from([0, 1, 2]))
def test_elements_keep_their_timestamps_beside_restamped_ones(timed: list[Any], size: int, extra_steps: int) -> None:
    def write(p: tg.Pipeline) -> Any:
        pairs = p | tg.Create([(1, "plain")]) | "step" >> tg.Map(maybe_wrapped)
        for _ in range(extra_steps):
            pairs = pairs | tg.Map(lambda pair: pair)
        return pairs

    step = operator(write, "step")
    found = [out[1:3] for block in in_blocks(timed, size, span=False) for out in read(step.process(block, "Create"))]
    moves = {"later": 1000, "elsewhere": 2000}
    assert found == [
        (pair, (moves[pair[1]] + pair[0]) * SECOND if pair[1] in moves else micros) for pair, micros in timed
    ]


@given(
    TIMED,
    st.sampled_from([1, 3, 30]),
    st.booleans(),
    st.sampled_from([list, partial(array, "q")]),
    st.sampled_from([1, 50]),
)
@example([((0, "plain"), 0), ((0, "plain"), 7 * SECOND)], 3, True, list, 1)
def test_elements_fold_into_the_windows_of_their_timestamps_in_any_kind_of_block(
    timed: list[Any], size: int, span: bool, column: Callable[..., Any], copies: int
) -> None:
    timed = [element for element in timed for _ in range(copies)]  # enough per window for splitting to pay off

    def write(p: tg.Pipeline) -> Any:
        pairs = p | tg.Create([(1, "plain")]) | "step" >> tg.Map(maybe_wrapped)
        return pairs | tg.WindowInto(tg.FixedWindows(7)) | tg.CombinePerElement(len) | tg.Map(repr)

    step = operator(write, "step", streaming=False)
    for block in in_blocks(timed, size * copies, span=span, column=column):
        assert not list(step.process(block, "Create"))
    found = Counter({(pair, windows[0].start.micros): n for _, (pair, n), _, windows in read(step.finish())})
    moves = {"later": 1000, "elsewhere": 2000}
    seconds = [moves[pair[1]] + pair[0] if pair[1] in moves else micros // SECOND for pair, micros in timed]
    assert found == Counter((pair, second // 7 * 7 * SECOND) for (pair, _), second in zip(timed, seconds, strict=True))


def sometimes_restamped(n: int) -> Any:
    return tg.TimestampedValue((0, n), 5) if n % 7 == 1 else (0, n)


@pytest.mark.parametrize("column", [list, partial(array, "q")], ids=["list", "array"])
def test_values_keep_their_order_when_a_step_restamps_some(column: Callable[..., Any]) -> None:
    def write(p: tg.Pipeline) -> Any:
        pairs = p | tg.Create([1]) | "step" >> tg.Map(sometimes_restamped) | tg.WindowInto(tg.FixedWindows(10))
        return pairs | tg.GroupByKey() | tg.Map(repr)

    step = operator(write, "step", streaming=False)
    times = [(11 if n % 2 else 1) * SECOND for n in range(1400)]
    assert not list(step.process(Block(list(range(1400)), column(times), span=(SECOND, 11 * SECOND)), "Create"))
    found = {windows[0].start.micros: values for _, (_, values), _, windows in read(step.finish())}
    assert found == {
        0: [n for n in range(1400) if n % 7 == 1 or n % 2 == 0],
        10 * SECOND: [n for n in range(1400) if n % 7 != 1 and n % 2],
    }


def test_checked_elements_leave_in_one_block_once_a_few_have_shown_that_results_carry_timestamps() -> None:
    step = operator(lambda p: p | tg.Create([1]) | "step" >> tg.Map(restamp), "step", world=context(checks="sample"))
    sizes = [len(block) for _, block in step.process(Block(list(range(600))), "Create")]
    assert sum(sizes) == 600
    assert sizes[-1] > 500

"""A step gives the same results for batches by key and for blocks, in memory and spilled."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.operator_driver import operator, read
from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.engine.operator import Context, Operator
from tidegate.sdk.data.block import Block, DerivedFrom, Each, Same
from tidegate.sdk.data.panes import NO_PANE
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.window import GLOBAL_WINDOW

LENIENT = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

Element = tuple[Any, Any, int]
"""Key, value, timestamp (µs)."""


class NumbersPerKey(tg.DoFn):
    """Emits each element with its number among those of its key."""

    COUNT = tg.ValueStateSpec("count")

    def process(
        self, pair: Any, count: Any = tg.DoFn.StateParam(COUNT), timestamp: Any = tg.DoFn.TimestampParam
    ) -> Iterable[Any]:
        n = count.read() or 0
        count.write(n + 1)
        yield pair[0], (n, pair[1], timestamp.micros)


STEPS: dict[str, Any] = {
    "state": tg.ParDo(NumbersPerKey()),
    "lists": tg.GroupByKey(),
    "callable": tg.CombinePerKey(lambda values: list(values)),
    "sums": tg.CombinePerKey(sum),
}
WINDOWS = [Same((GLOBAL_WINDOW,)), DerivedFrom(tg.GlobalWindows()), DerivedFrom(tg.FixedWindows(1e-5))]


def keyed_batch(elements: list[Element], windows: Any) -> KeyedBatch:
    by_key: dict[Any, list[Element]] = {}
    for element in elements:
        by_key.setdefault(element[0], []).append(element)
    flat = list(itertools.chain.from_iterable(by_key.values()))
    values, times = [v for _, v, _ in flat], [t for _, _, t in flat]
    return KeyedBatch(list(by_key), list(map(len, by_key.values())), values, times, windows, NO_PANE)


def block(elements: list[Element], windows: Any) -> Block:
    return Block([(k, v) for k, v, _ in elements], [t for _, _, t in elements], windows)


def step(name: str, folder: Path, budget: int) -> Operator:
    def make(p: tg.Pipeline) -> Any:
        return p | tg.Create([("a", 1)]) | "step" >> STEPS[name] | tg.Map(print)

    numbers = itertools.count()

    def directory() -> Path:
        created = folder / str(next(numbers))
        created.mkdir()
        return created

    return operator(make, "step", streaming=False, world=Context(budget, directory, block_size=4))


def result(op: Operator) -> dict[Any, list[Any]]:
    """The output of a step for each key and window, in order."""
    found: dict[Any, list[Any]] = {}
    for _, value, t, windows in [*read(op.on_watermark(MAX_MICROS)), *read(op.finish())]:
        found.setdefault((value[0], windows), []).append((value, t))
    return found


runs = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 40)), min_size=1))


@pytest.mark.parametrize("name", ["state", "lists", "callable", "sums"])
@pytest.mark.parametrize("budget", [1 << 26, 1])
@settings(max_examples=40, suppress_health_check=LENIENT)
@given(given_runs=runs, kinds=st.lists(st.tuples(st.booleans(), st.sampled_from([0, 0, 0, 2])), min_size=40))
def test_batches_by_key_give_the_same_results_as_blocks(
    name: str,
    budget: int,
    tmp_path_factory: Any,
    given_runs: list[list[Element]],
    kinds: list[tuple[bool, int]],
) -> None:
    windows = [WINDOWS[kind] for _, kind in kinds]
    in_memory = step(name, tmp_path_factory.mktemp("in_memory"), 1 << 26)
    mixed = step(name, tmp_path_factory.mktemp("mixed"), budget)
    for run, column, (by_key, _) in zip(given_runs, windows, kinds, strict=False):
        ordered = sorted(run, key=lambda element: element[0])
        assert not list(in_memory.process(block(ordered, column), "in"))
        emitted = (
            mixed.process_keyed(keyed_batch(run, column), "in") if by_key else mixed.process(block(run, column), "in")
        )
        assert not list(emitted)
    assert result(mixed) == result(in_memory)


def test_only_window_returns_the_one_window_of_all_elements() -> None:
    from tidegate.runners.engine.keyed_batch import only_window

    assert only_window(WINDOWS[0]) == only_window(WINDOWS[1]) == GLOBAL_WINDOW
    assert only_window(WINDOWS[2]) is None
    assert only_window(Each([(GLOBAL_WINDOW,)])) is None
    assert only_window(Same((GLOBAL_WINDOW, GLOBAL_WINDOW))) is None

"""All paths of a grouping give equal results."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.window_operators import (
    ASSIGNERS,
    EVICTORS,
    HERE,
    RESULTS,
    EventDriver,
    combine,
    context,
    elements_block,
    group,
    micros,
    read,
    strategies,
    streams,
)
from tests.support.window_reference_model import WindowReferenceModel
from tidegate.runners.engine.factory import build
from tidegate.runners.engine.grouping.window_table import MAX_BUNDLE_ENTRIES
from tidegate.runners.engine.operator import Context, Operator
from tidegate.runners.plan import Path as GroupingPath
from tidegate.runners.plan import Phase, Plan, Step
from tidegate.sdk.data.block import Block, DerivedFrom, Same
from tidegate.sdk.portable.model import AssignWindows, Collection, Environment, Output, Pipeline
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.assigners import element_dependent
from tidegate.sdk.windowing.assignment import assign
from tidegate.sdk.windowing.calendar import CalendarWindows
from tidegate.sdk.windowing.strategy import ACCUMULATING, DISCARDING, TimestampCombiner, WindowingStrategy
from tidegate.sdk.windowing.triggers import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    DefaultTrigger,
    Never,
    Repeatedly,
)

LENIENT = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

BARE = [DefaultTrigger(), AfterWatermark()]


def operator(
    path: GroupingPath,
    node: Any,
    strategy: WindowingStrategy,
    ctx: Context | None = None,
    *,
    phase: Phase = "whole",
    assigns: bool = False,
    ordered: bool = False,
) -> Operator:
    """The operator that the engine builds for a grouping; with `assigns`, its loop also assigns windows."""
    nodes: tuple[Any, ...] = (node,)
    if assigns:
        nodes = (
            AssignWindows(
                label="Window", where=HERE, inputs=("raw",), outputs=(Output("main", "in"),), windowing=strategy
            ),
            node,
        )
    pipeline = Pipeline(
        nodes=nodes,
        collections=(Collection("raw"), Collection("in", windowing=strategy), Collection("out")),
        environment=Environment("3.11", "0"),
    )
    step = Step(0, nodes, 0, phase, path, ordered)
    return build(step, Plan(pipeline, (step,), (), ((0,),)), ctx or context())


def grouping(name: str) -> Any:
    combiner = RESULTS[name][0]
    return group() if combiner is None else combine(combiner)


class DerivingDriver(EventDriver):
    """Feeds blocks whose windows are derived from the timestamps."""

    assigner: Any = None

    def flush(self, pending: list[Any]) -> list[Any]:
        if not pending:
            return []
        self.restart_operator()
        block = elements_block(pending)
        pending.clear()
        column = DerivedFrom(self.assigner)
        return read(self.operator.process(Block(block.values, block.timestamps, column), "in"))


def dropped(op: Operator) -> int:
    counters = op.context.metrics.counters  # type: ignore[attr-defined]
    return sum(n for key, n in counters.items() if key.name == "dropped_late")


@st.composite
def fired_on_time(draw: Any) -> tuple[WindowingStrategy, list[Any], frozenset[int]]:
    name = draw(st.sampled_from(["global", "fixed", "sliding", "cumulative", "days"]))
    assigner = CalendarWindows.days(1) if name == "days" else ASSIGNERS[name]
    strategy = WindowingStrategy(assigner, draw(st.sampled_from(BARE)), DISCARDING)
    events = draw(streams(strategy, clocks=False))
    if name == "days":
        day = 86_400_000_000 // 10
        events = [
            (kind, *(rest if kind == "watermark" and rest[0] == MAX_MICROS else [rest[0] * day]))
            if kind == "watermark"
            else (kind, rest[0], rest[1], rest[2] * day, assign(assigner)(rest[2] * day, None))
            for kind, *rest in events
        ]
    return strategy, events, frozenset(draw(st.sets(st.integers(0, len(events)))))


@settings(max_examples=200)
@given(fired_on_time(), st.sampled_from(sorted(RESULTS)), st.booleans(), st.booleans(), st.booleans())
def test_tables_fired_by_the_watermark_give_the_panes_of_the_general_path(
    case: Any, name: str, derived: bool, assigns: bool, restart: bool
) -> None:
    strategy, events, cuts = case
    _, result, identity = RESULTS[name]
    model = WindowReferenceModel(strategy, result, identity)
    expected = model.run(events)

    def make() -> Operator:
        return operator("window_major", grouping(name), strategy, ctx, assigns=assigns and derived)

    ctx = context()
    drive = (DerivingDriver if derived else EventDriver)(make(), cuts, make if restart else None)
    if derived:
        drive.assigner = strategy.assigner if not assigns else ASSIGNERS["global"]  # type: ignore[attr-defined]
    assert drive.run(events) == expected
    assert dropped(drive.operator) == len(model.late)
    general = (DerivingDriver if derived else EventDriver)(operator("general", grouping(name), strategy), cuts)
    if derived:
        general.assigner = strategy.assigner  # type: ignore[attr-defined]
    assert general.run(events) == expected


@settings(max_examples=60)
@given(fired_on_time(), st.sampled_from(["sum", "max", "mean", "list"]))
def test_partial_results_emitted_before_each_control_event_merge_to_the_same_panes(case: Any, name: str) -> None:
    strategy, events, cuts = case
    _, result, identity = RESULTS[name]
    node = grouping(name)
    parts = operator("window_major", node, strategy, phase="parts")
    merge = operator("window_major", node, strategy, phase="merge")
    out: list[Any] = []
    for i, event in enumerate(events):
        if event[0] == "element":
            list(parts.process(elements_block([event]), "in"))
            if i not in cuts:
                continue
        for _, block in parts.finish_bundle():
            out += read(merge.process(block, "in"))
        if event[0] == "watermark":
            assert not list(parts.on_watermark(event[1]))
            out += read(merge.on_watermark(event[1]))
    expected = WindowReferenceModel(strategy, result, identity).run(events)
    assert sorted(out, key=repr) == sorted(expected, key=repr)


def test_partial_results_of_very_many_keys_are_emitted_before_the_end_of_the_bundle() -> None:
    strategy = WindowingStrategy(ASSIGNERS["fixed"], DefaultTrigger(), DISCARDING)
    parts = operator("window_major", grouping("sum"), strategy, phase="parts")
    (window,) = assign(strategy.assigner)(0, None)
    keys = iter(range(2 * MAX_BUNDLE_ENTRIES))
    emitted_keys: list[int] = []
    while batch := list(islice(keys, 1000)):
        for _, emitted in parts.process(Block([(key, 1) for key in batch], 0, Same((window,))), "in"):
            emitted_keys += [key for key, _ in emitted.values]
        assert batch[-1] + 1 - len(emitted_keys) < MAX_BUNDLE_ENTRIES
    assert len(emitted_keys) >= MAX_BUNDLE_ENTRIES
    emitted_keys += [key for _, emitted in parts.finish_bundle() for key, _ in emitted.values]
    assert emitted_keys == list(range(2 * MAX_BUNDLE_ENTRIES))


@settings(max_examples=60)
@given(fired_on_time(), st.sampled_from(["sum", "mean", "list", "max"]), st.booleans())
def test_the_watermark_fires_a_combine_without_keys(case: Any, name: str, restart: bool) -> None:
    strategy, events, _ = case
    combiner, result, identity = RESULTS[name]
    node = combine(combiner, key="none")
    events = [("element", None, *event[2:]) if event[0] == "element" else event for event in events]
    op = operator("window_major", node, strategy)
    model = WindowReferenceModel(strategy, result, identity)
    out: list[Any] = []
    for event in events:
        if restart:
            state, op = op.snapshot(), operator("window_major", node, strategy, op.context)  # type: ignore[attr-defined]
            op.restore(state)
        if event[0] == "element":
            block = elements_block([event])
            emitted = op.process(Block([x for _, x in block.values], block.timestamps, block.windows), "in")
        else:
            emitted = op.on_watermark(event[1])
        for _, block in emitted:
            out += [(value, windows[0]) for value, windows in zip(block.values, block.window_list(), strict=True)]
    assert out == [(value, window) for _, value, window, _, _ in model.run(events)]
    assert dropped(op) == len(model.late)


@pytest.mark.parametrize("path", ["window_major", "general"])
def test_a_global_combine_of_empty_input_emits_its_default_once_when_input_ends(path: Any) -> None:
    strategy = WindowingStrategy()
    op = operator(path, combine(sum, key="none", default=True), strategy)
    assert not list(op.on_watermark(5))
    ((_, block),) = op.on_watermark(MAX_MICROS)
    assert (block.values, block.timestamps) == ([0], MAX_MICROS - 1)
    assert not list(op.finish())
    with_input = operator(path, combine(sum, key="none", default=True), strategy)
    list(with_input.process(Block([1, 2]), "in"))
    assert [block.values for _, block in with_input.on_watermark(MAX_MICROS)] == [[3]]
    assert not list(with_input.finish())


# ---- bounded input


@st.composite
def bounded(draw: Any, names: tuple[str, ...]) -> tuple[WindowingStrategy, list[Any], frozenset[int]]:
    trigger = st.sampled_from(
        [
            *BARE,
            Never(),
            AfterWatermark(early=AfterProcessingTime(1), late=AfterCount(1)),
            Repeatedly(AfterProcessingTime(1)),
        ]
    )
    strategy = WindowingStrategy(
        ASSIGNERS[draw(st.sampled_from(names))],
        draw(trigger),
        draw(st.sampled_from([DISCARDING, ACCUMULATING])),
        micros(draw(st.sampled_from([0, 5]))),
    )
    windows = assign(strategy.assigner)
    elements = draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.integers(0, 40)), max_size=20))
    events = [("element", key, x, t, windows(t, (key, x))) for key, x, t in elements]
    cuts = frozenset(draw(st.sets(st.integers(0, len(events)))))
    return strategy, [*events, ("watermark", MAX_MICROS)], cuts


@settings(max_examples=150)
@given(bounded(("sessions", "gaps")), st.sampled_from(sorted(RESULTS)), st.booleans())
def test_sessions_from_sorted_timestamps_equal_those_of_the_general_path(case: Any, name: str, derived: bool) -> None:
    strategy, events, cuts = case
    _, result, identity = RESULTS[name]
    drive: Any = EventDriver(operator("sessions", grouping(name), strategy), cuts)
    if derived and not element_dependent(strategy.assigner):
        drive = DerivingDriver(operator("sessions", grouping(name), strategy), cuts)
        drive.assigner = strategy.assigner
    expected = WindowReferenceModel(strategy, result, identity).run(events)
    assert drive.run(events) == expected
    general = EventDriver(operator("general", grouping(name), strategy), cuts)
    assert general.run(events) == expected


@settings(max_examples=80)
@given(bounded(("sessions", "gaps")), st.sampled_from([len, sum, sorted, None]))
def test_blocks_with_derived_windows_and_with_explicit_ones_may_alternate(case: Any, combiner: Any) -> None:
    strategy, events, cuts = case
    node = group() if combiner is None else combine(combiner)
    op = operator("sessions", node, strategy)
    for i, event in enumerate(events[:-1]):
        block = elements_block([event])
        if i in cuts and not element_dependent(strategy.assigner):
            block = Block(block.values, block.timestamps, DerivedFrom(strategy.assigner))
        list(op.process(block, "in"))
    expected = WindowReferenceModel(strategy, combiner or list, False).run(events)
    assert read(op.on_watermark(MAX_MICROS)) == expected


@settings(max_examples=80)
@given(bounded(("sessions", "gaps")), st.sampled_from(["sum", "mean", "max"]))
def test_sessions_combined_in_parts_are_merged_to_the_same_sessions(case: Any, name: str) -> None:
    strategy, events, cuts = case
    _, result, identity = RESULTS[name]
    node = grouping(name)
    merge = operator("sessions", node, strategy, phase="merge")
    for task in (0, 1):
        part = operator("sessions", node, strategy, phase="parts")
        for i, event in enumerate(events[:-1]):
            if (i in cuts) == bool(task):
                list(part.process(elements_block([event]), "in"))
        for _, block in part.on_watermark(MAX_MICROS):
            list(merge.process(block, "in"))
    out = read(merge.on_watermark(MAX_MICROS))
    assert sorted(out, key=repr) == sorted(WindowReferenceModel(strategy, result, identity).run(events), key=repr)


@settings(max_examples=100)
@given(bounded(("global", "fixed", "sliding", "cumulative")), st.sampled_from(sorted(RESULTS)))
def test_one_table_at_the_end_of_input_gives_the_panes_of_the_general_path(case: Any, name: str) -> None:
    strategy, events, cuts = case
    general = EventDriver(operator("general", grouping(name), strategy), cuts).run(events)
    table = operator("table", grouping(name), strategy)
    EventDriver(table, cuts).run(events[:-1])
    assert read(table.finish()) == general


@settings(max_examples=100)
@given(
    bounded(("global", "fixed", "sliding")), st.sampled_from(["sum", "max", "mean"]), st.sampled_from(TimestampCombiner)
)
def test_the_general_path_combines_in_parts_under_any_timestamp_combiner(
    case: Any, name: str, combiner: TimestampCombiner
) -> None:
    strategy, events, cuts = case
    strategy = replace(strategy, timestamp_combiner=combiner)
    _, result, identity = RESULTS[name]
    node = grouping(name)
    merge = operator("general", node, strategy, phase="merge")
    for task in (0, 1):
        part = operator("general", node, strategy, phase="parts")
        for i, event in enumerate(events[:-1]):
            if (i in cuts) == bool(task):
                list(part.process(elements_block([event]), "in"))
        for _, block in part.on_watermark(MAX_MICROS):
            list(merge.process(block, "in"))
    out = read(merge.on_watermark(MAX_MICROS))
    assert sorted(out, key=repr) == sorted(WindowReferenceModel(strategy, result, identity).run(events), key=repr)


@st.composite
def ordered(draw: Any) -> tuple[WindowingStrategy, list[Any], frozenset[int]]:
    strategy = draw(strategies(("global", "fixed", "sliding", "sessions")))
    strategy, windows = replace(strategy, evictor=draw(EVICTORS)), assign(strategy.assigner)
    elements = draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.integers(0, 30)), max_size=25))
    events = [("element", key, x, t, windows(t, (key, x))) for key, x, t in elements]
    return strategy, [*events, ("watermark", MAX_MICROS)], frozenset(draw(st.sets(st.integers(0, len(events)))))


def in_order(events: list[Any]) -> list[Any]:
    """Sort the elements by key, and within a key by timestamp."""
    keys = dict.fromkeys(event[1] for event in events[:-1])
    return [
        *[event for key in keys for event in sorted((e for e in events[:-1] if e[1] == key), key=lambda e: e[3])],
        events[-1],
    ]


@settings(max_examples=150)
@given(ordered(), st.sampled_from(sorted(RESULTS)), st.sampled_from([1, 3, 4096]))
def test_bounded_elements_are_processed_per_key_in_timestamp_order(case: Any, name: str, size: int) -> None:
    strategy, events, cuts = case
    _, result, identity = RESULTS[name]
    op = operator("general", grouping(name), strategy, context(block_size=size), ordered=True)
    out = EventDriver(op, cuts).run(events)
    assert out == WindowReferenceModel(strategy, result, identity, clock=None).run(in_order(events))


@settings(max_examples=15, suppress_health_check=LENIENT)
@given(ordered(), st.sampled_from(["sum", "group"]))
def test_order_and_sessions_are_the_same_when_input_spills(tmp_path: Path, case: Any, name: str) -> None:
    strategy, events, _ = case
    _, result, identity = RESULTS[name]
    ctx = context(memory_budget=1, temp_dir=tmp_path)
    out = EventDriver(operator("general", grouping(name), strategy, ctx, ordered=True), frozenset(range(99))).run(
        events
    )
    expected = WindowReferenceModel(strategy, result, identity, clock=None).run(in_order(events))
    assert Counter(map(repr, out)) == Counter(map(repr, expected))
    if strategy.assigner == ASSIGNERS["sessions"]:
        plain = WindowingStrategy(strategy.assigner)
        out = EventDriver(operator("sessions", grouping(name), plain, ctx), frozenset(range(99))).run(events)
        assert Counter(map(repr, out)) == Counter(map(repr, WindowReferenceModel(plain, result, identity).run(events)))


@pytest.mark.parametrize("path", ["sessions", "ordered"])
def test_a_key_too_large_for_memory_is_sorted_on_disk(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.runners.engine.memory.external_sort._RUN", 700)
    ctx = context(memory_budget=20_000, temp_dir=tmp_path)
    times = [i * 7919 % 5000 for i in range(5000)]
    blocks = [
        Block([("a", t) for t in part], part, DerivedFrom(ASSIGNERS["sessions" if path == "sessions" else "global"]))
        for part in (times[i : i + 100] for i in range(0, 5000, 100))
    ]
    if path == "sessions":
        op = operator("sessions", group(), WindowingStrategy(ASSIGNERS["sessions"]), ctx)
        expected = [times]
    else:
        strategy = WindowingStrategy(ASSIGNERS["global"], Repeatedly(AfterCount(1000)), DISCARDING)
        op = operator("general", group(), strategy, ctx, ordered=True)
        expected = [list(range(start, start + 1000)) for start in range(0, 5000, 1000)]
    for block in blocks:
        assert not list(op.process(block, "in"))
    assert ctx.metrics.counters
    out = read(op.on_watermark(MAX_MICROS))
    assert [pane[1] for pane in out] == expected
    assert not list(tmp_path.glob("run-*"))

"""Sessions fired by the watermark emit the panes of the general path, also restored, rescaled and evicted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine import test_rescale
from tests.engine.grouping.test_grouping_paths import BARE, DerivingDriver, dropped, grouping, operator
from tests.engine.state import test_tiered
from tests.engine.test_rescale import Make, as_events
from tests.support.window_operators import (
    ASSIGNERS,
    RESULTS,
    EventDriver,
    combine,
    context,
    group,
    micros,
    read,
    streams,
)
from tests.support.window_reference_model import WindowReferenceModel
from tidegate.runners.engine.grouping.sessions import streaming
from tidegate.runners.engine.operator import Operator
from tidegate.runners.engine.state.key_wakeups import KeyWakeups
from tidegate.sdk.data.block import Block, DerivedFrom
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.assigners import Sessions, element_dependent
from tidegate.sdk.windowing.strategy import AccumulationMode, WindowingStrategy

Case = tuple[WindowingStrategy, list[Any], frozenset[int]]
NAMES = ["count", *sorted(RESULTS)]


@pytest.fixture(
    params=[(3, 0, 0), (1 << 18, 4, 2), (1 << 18, 0, 0)],
    ids=["few buffered", "some buffered", "all buffered"],
    autouse=True,
)
def buffering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the limits of timestamps that are buffered before they are added to sessions."""
    for name, n in zip(("_MAX_BUFFERED", "_MIN_TIMES_PER_KEY", "_BLOCKS_UNBUFFERED"), request.param, strict=True):
        monkeypatch.setattr(streaming, name, n)


@st.composite
def sessions_on_time(draw: Any) -> Case:
    strategy = WindowingStrategy(
        ASSIGNERS[draw(st.sampled_from(["sessions", "gaps"]))],
        draw(st.sampled_from(BARE)),
        draw(st.sampled_from(AccumulationMode)),
    )
    events = draw(streams(strategy, max_size=40, clocks=False))
    return strategy, events, frozenset(draw(st.sets(st.integers(0, len(events)))))


def node_of(name: str) -> Any:
    return combine(len) if name == "count" else grouping(name)


def with_derived_windows(strategy: WindowingStrategy, operator: Operator) -> Operator:
    """Make the operator process blocks whose windows are derived from the timestamps."""
    process = operator.process
    column = DerivedFrom(strategy.assigner)
    operator.process = lambda block, collection: process(  # type: ignore[method-assign]
        Block(block.values, block.timestamps, column), collection
    )
    return operator


@settings(max_examples=200, deadline=None)
@given(sessions_on_time(), st.sampled_from(NAMES), st.booleans(), st.booleans(), st.sampled_from([1, 4096]))
def test_sessions_fired_by_the_watermark_are_those_of_the_general_path(
    case: Case, name: str, derived: bool, restart: bool, size: int
) -> None:
    strategy, events, cuts = case
    result, identity = (len, True) if name == "count" else RESULTS[name][1:]
    model = WindowReferenceModel(strategy, result, identity)
    expected = model.run(events)
    ctx = context(block_size=size)

    def make() -> Operator:
        return operator("live_sessions", node_of(name), strategy, ctx)

    kind = DerivingDriver if derived and not element_dependent(strategy.assigner) else EventDriver
    drive = kind(make(), cuts, make if restart else None)
    drive.assigner = strategy.assigner  # type: ignore[attr-defined]
    assert drive.run(events) == expected
    assert dropped(drive.operator) == len(model.late)
    assert drive.operator.hold() == MAX_MICROS
    general = EventDriver(operator("general", node_of(name), strategy), cuts)
    assert general.run(events) == expected
    assert dropped(general.operator) == len(model.late)


@settings(max_examples=60, deadline=None)
@given(sessions_on_time(), st.integers(1, 3))
def test_blocks_with_derived_windows_and_with_explicit_ones_may_alternate(case: Case, every: int) -> None:
    strategy, events, _ = case
    op = operator("live_sessions", combine(len), strategy)
    drives = [EventDriver(op, frozenset(range(99))), DerivingDriver(op, frozenset(range(99)))]
    drives[1].assigner = strategy.assigner  # type: ignore[attr-defined]
    out: list[Any] = []
    for i, event in enumerate(events):
        out += drives[0 if element_dependent(strategy.assigner) or i % every else 1].run([event])
    assert out == WindowReferenceModel(strategy, len, True).run(events)


def test_an_element_before_the_watermark_is_not_late_if_it_overlaps_a_later_session() -> None:
    strategy = WindowingStrategy(Sessions(micros(10)))
    op = operator("live_sessions", combine(len), strategy)
    windows = DerivedFrom(strategy.assigner)
    list(op.process(Block([("a", 0)], [20], windows), "in"))
    assert not list(op.on_watermark(25))
    # The first overlaps [20, 30) and extends it to [12, 30), which the second overlaps; the third overlaps no session.
    list(op.process(Block([("a", 0), ("a", 0), ("b", 0)], [12, 3, 12], windows), "in"))
    assert dropped(op) == 1
    assert [(row[1], row[2].start_micros, row[2].end_micros) for row in read(op.on_watermark(30))] == [(3, 3, 30)]


@pytest.mark.parametrize("name", ["count", "sum"])
def test_an_element_whose_session_ends_at_the_watermark_is_late(name: str) -> None:
    strategy = WindowingStrategy(Sessions(micros(10)))
    op = operator("live_sessions", node_of(name), strategy)
    assert not list(op.on_watermark(25))
    list(op.process(Block([("a", 1)], [15], DerivedFrom(strategy.assigner)), "in"))
    list(op.process(Block([("b", 1)], [16], DerivedFrom(strategy.assigner)), "in"))
    assert dropped(op) == 1
    assert [row[:2] for row in read(op.on_watermark(26))] == [("b", 1)]


def test_sessions_are_emitted_by_end_then_start_then_first_arrival_of_the_key() -> None:
    strategy = WindowingStrategy(Sessions(micros(10)))
    op = operator("live_sessions", group(), strategy)
    elements = [("c", 5), ("b", 0), ("a", 5), ("b", 5), ("a", 40), ("d", 5)]
    list(
        op.process(Block([(k, t) for k, t in elements], [t for _, t in elements], DerivedFrom(strategy.assigner)), "in")
    )
    assert [row[:2] for row in read(op.on_watermark(15))] == [("b", [0, 5]), ("c", [5]), ("a", [5]), ("d", [5])]
    assert [row[:2] for row in read(op.on_watermark(MAX_MICROS))] == [("a", [40])]


def test_the_watermark_visits_no_key_whose_sessions_have_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = WindowingStrategy(Sessions(micros(1000)))
    op: Any = operator("live_sessions", combine(sum), strategy)
    windows = DerivedFrom(strategy.assigner)
    visited: list[Any] = []
    original = KeyWakeups.pop_until

    def recording(self: KeyWakeups, now: int) -> list[Any]:
        found = original(self, now)
        visited.extend(found)
        return found

    monkeypatch.setattr(KeyWakeups, "pop_until", recording)
    list(op.process(Block([(k, 1) for k in range(100)], list(range(100)), windows), "in"))
    for t in range(100, 1000, 100):
        list(op.process(Block([(k, 1) for k in range(100)], [t + k for k in range(100)], windows), "in"))
        assert not list(op.on_watermark(t))
    assert not visited
    assert not list(op.on_watermark(1050))
    assert sorted(visited) == list(range(51))


# ---- state by key


@st.composite
def operators_and_events(draw: Any) -> tuple[Make, list[Any]]:
    strategy, events, _ = draw(sessions_on_time())
    name = draw(st.sampled_from(NAMES))
    element_windows = element_dependent(strategy.assigner) or draw(st.booleans())

    def make() -> Operator:
        op = operator("live_sessions", node_of(name), strategy)
        return op if element_windows else with_derived_windows(strategy, op)

    return make, as_events(events)


@settings(max_examples=80, deadline=None)
@given(operators_and_events(), test_rescale.ats, test_rescale.sizes)
def test_sessions_can_be_restored_by_any_number_of_tasks(case: Any, at: int, sizes: tuple[int, int]) -> None:
    assert test_rescale.run_rescaled(*case, at, sizes) == test_rescale.run_alone(*case)


@settings(max_examples=80, deadline=None)
@given(operators_and_events(), test_rescale.some_places)
def test_sessions_can_be_restored_from_incremental_snapshots(case: Any, places: frozenset[int]) -> None:
    from_incremental, from_full = test_rescale.runs_from_snapshots(*case, places)
    assert from_incremental == from_full


@pytest.mark.parametrize("batch", [1, 1 << 14], ids=["one at a time", "all"])
@settings(max_examples=80, deadline=None)
@given(case=operators_and_events(), budget=test_tiered.budgets, evictions=test_tiered.evictions)
def test_sessions_of_evicted_keys_fire(batch: int, case: Any, budget: int, evictions: frozenset[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.runners.engine.state.tiered.BATCH", batch)
        found, expected = test_tiered.tiered_and_resident_runs(*case, budget, evictions)
    assert found == expected


# ---- wakeups


ACTS = st.lists(
    st.tuples(st.just("set"), st.sampled_from("abcd"), st.integers(-30, 60))
    | st.tuples(st.just("forget"), st.sampled_from("abcd"), st.just(0))
    | st.tuples(st.just("passed"), st.just(""), st.integers(-30, 60)),
    max_size=30,
)


@given(ACTS, st.integers(1, 20))
def test_keys_wake_up_when_their_instantis_reached(acts: list[tuple[str, str, int]], width: int) -> None:
    wakeups = KeyWakeups(width)
    expected: dict[str, int] = {}
    for act, key, instant in acts:
        match act:
            case "set":
                wakeups.set(key, instant)
                expected[key] = min(instant, expected.get(key, instant))
            case "forget":
                wakeups.remove(key)
                expected.pop(key, None)
            case _:
                found = wakeups.pop_until(instant)
                assert sorted(found) == sorted(key for key, t in expected.items() if t <= instant)
                for key in found:
                    del expected[key]
    wakeups.clear()
    assert wakeups.pop_until(100) == []

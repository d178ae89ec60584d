"""A tiered operator with only a few keys in memory has the same output as with all keys in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.engine.stateful import test_timers as timers
from tests.engine.test_rescale import Make, Observation, answer, by_key, on_time, windowed
from tests.support.operator_driver import SECOND, Clock, Elements, Event, Watermark, operator_factory
from tests.support.window_operators import ASSIGNERS, RESULTS, combine, group, window_operator
from tidegate.runners.engine.grouping.accumulation import Buffer
from tidegate.runners.engine.rescale import merged, select_keys
from tidegate.runners.engine.state import tiered
from tidegate.runners.engine.state.tiered import Record, TieredOperator, Which, by_keys
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.assignment import assign
from tidegate.sdk.windowing.strategy import WindowingStrategy
from tidegate.sdk.windowing.window import GLOBAL_WINDOW

WHICH: tuple[Which, ...] = ("event", "clock", "hold")

BRIEF = tg.ValueStateSpec("brief", ttl=10)


class ExpiringValue(tg.DoFn):
    """Stores its last value with a short TTL."""

    def process(self, element: Any, brief: Any = tg.DoFn.StateParam(BRIEF)) -> Iterator[Any]:
        brief.write(element[1])
        yield element


def with_expiring_value(p: tg.Pipeline) -> Any:
    return p | tg.Create([("a", 1)]) | "step" >> tg.ParDo(ExpiringValue())


class DictStore:
    """A store of evicted keys in a dict."""

    def __init__(self) -> None:
        self.records: dict[Any, bytes] = {}
        self.instants: dict[Any, Any] = {}

    def load(self, keys: Sequence[Any]) -> list[bytes | None]:
        for key in keys:
            self.instants.pop(key, None)
        return [self.records.get(key) for key in keys]

    def save(self, records: Iterable[Record]) -> None:
        for key, data, instants in records:
            self.instants.pop(key, None)
            if data is None:
                self.records.pop(key, None)
            else:
                self.records[key] = data
                if instants is not None:
                    self.instants[key] = instants

    def due(self, which: Which, until: int, limit: int) -> list[Any]:
        found = [(at[WHICH.index(which)], repr(key), key) for key, at in self.instants.items()]
        return [key for at, _, key in sorted(found, key=lambda it: it[:2]) if at <= min(until, MAX_MICROS)][:limit]

    def first(self, which: Which) -> int | None:
        limit = MAX_MICROS - (which == "hold")
        return min((at for found in self.instants.values() if (at := found[WHICH.index(which)]) <= limit), default=None)

    def scan(self) -> Iterator[tuple[Any, bytes]]:
        yield from list(self.records.items())


def tiered_operator(make: Make, budget: int = 0) -> TieredOperator:
    return TieredOperator(make(), DictStore(), budget)  # type: ignore[arg-type]


def tiered_and_resident_runs(
    make: Make, events: list[Event], budget: int, evictions: frozenset[int]
) -> tuple[list[Observation], list[Observation]]:
    """Run a tiered operator, which evicts all keys after the events numbered in `evictions`, and one without tiers."""
    resident, operator = make(), tiered_operator(make, budget)
    resident.open()
    operator.open()
    found, expected = [], []
    for number, event in enumerate((*events, None)):
        found.append((by_key(answer(operator, event)), operator.hold()))
        expected.append((by_key(answer(resident, event)), resident.hold()))
        assert operator.next_clock() is not None or resident.next_clock() is None, (
            "the tiered operator has no next wake-up"
        )
        if number in evictions:
            operator.spill(list(operator.resident_keys()))
    return found, expected


budgets = st.sampled_from([0, 800, 1 << 20])
evictions = st.frozensets(st.integers(0, 20))


@pytest.fixture(params=[1, tiered.BATCH], ids=["one at a time", "all"], autouse=True)
def batch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of keys that are loaded at a time."""
    monkeypatch.setattr(tiered, "BATCH", request.param)


@settings(max_examples=120, deadline=None)
@given(windowed(), budgets, evictions)
def test_windows_of_evicted_keys_fire(case: Any, budget: int, evictions: frozenset[int]) -> None:
    found, expected = tiered_and_resident_runs(*case, budget, evictions)
    assert found == expected


@settings(max_examples=80, deadline=None)
@given(on_time(), budgets, evictions)
def test_tables_of_evicted_keys_fire(case: Any, budget: int, evictions: frozenset[int]) -> None:
    found, expected = tiered_and_resident_runs(*case, budget, evictions)
    assert found == expected


@settings(max_examples=120, deadline=None)
@given(timers.scripts, budgets, evictions)
def test_timers_of_evicted_keys_fire(events: Any, budget: int, evictions: frozenset[int]) -> None:
    found, expected = tiered_and_resident_runs(timers.step, [Clock(0), *events], budget, evictions)
    assert found == expected


@settings(max_examples=60, deadline=None)
@given(windowed(), st.integers(0, 12), budgets, budgets)
def test_a_snapshot_of_a_tiered_operator_can_be_restored_with_tiers_and_without(
    case: Any, at: int, budget: int, other_budget: int
) -> None:
    make, events = case
    original, operator = make(), tiered_operator(make, budget)
    for event in events[:at]:
        answer(original, event)
        answer(operator, event)
    state = operator.snapshot()
    with_tiers, without_tiers = tiered_operator(make, other_budget), make()
    with_tiers.restore(state)
    without_tiers.restore(
        merged([select_keys(state, lambda key: key == "a"), select_keys(state, lambda key: key != "a")])
    )
    for event in (*events[at:], None):
        expected = by_key(answer(original, event))
        assert by_key(answer(with_tiers, event)) == expected
        assert by_key(answer(without_tiers, event)) == expected


def contents(entries: Any) -> list[str]:
    """The contents of state entries as text, independent of the class that stores them."""

    def plain(stored: Any) -> Any:
        match stored:
            case tuple() | list():
                return [plain(part) for part in stored]
            case dict():
                return {key: plain(part) for key, part in stored.items()}
            case Buffer():
                return [plain(getattr(stored, name)) for name in Buffer.__slots__]
            case _:
                return stored

    return sorted(repr(plain(entry)) for entry in entries)


def captured_and_snapshotted(
    make: Make, events: list[Event], at: int, budget: int, reads: frozenset[int]
) -> tuple[dict[Any, list[str]], dict[Any, list[str]]]:
    """The state, by key, that a capture begun after `at` events writes, and a snapshot taken at that instant.

    The operator continues while the capture's pieces are read: one before each event numbered in `reads`, and the rest
    at the end.
    """
    operator = tiered_operator(make, budget)
    operator.open()
    for event in events[:at]:
        answer(operator, event)
    snapshot = by_keys(operator.inner.snapshot(list(operator.resident_keys())))
    pieces = operator.begin_capture(None).pieces()
    read: list[Any] = []
    for number, event in enumerate((*events[at:], None)):
        if number in reads:
            read.append(next(pieces, None))
        answer(operator, event)
    captured: dict[Any, Any] = {}
    for piece in (*read, *pieces):
        if piece is not None:
            piece.tables.pop(tiered.RESIDENT, None)
            for key, entries in by_keys(piece).items():
                assert key not in captured
                captured[key] = entries
    assert operator.capture is None
    return (
        {key: contents(captured.get(key, ())) for key in snapshot},
        {key: contents(entries) for key, entries in snapshot.items()},
    )


@settings(max_examples=120, deadline=None)
@given(windowed(), st.integers(0, 12), budgets, evictions)
def test_a_capture_has_the_windows_as_they_were_when_it_began(
    case: Any, at: int, budget: int, reads: frozenset[int]
) -> None:
    captured, snapshot = captured_and_snapshotted(*case, at, budget, reads)
    assert captured == snapshot


@settings(max_examples=120, deadline=None)
@given(on_time(), st.integers(0, 12), budgets, evictions)
def test_a_capture_has_the_tables_as_they_were_when_it_began(
    case: Any, at: int, budget: int, reads: frozenset[int]
) -> None:
    captured, snapshot = captured_and_snapshotted(*case, at, budget, reads)
    assert captured == snapshot


@settings(max_examples=120, deadline=None)
@given(timers.scripts, st.integers(0, 12), budgets, evictions)
def test_a_capture_has_the_timers_as_they_were_when_it_began(
    events: Any, at: int, budget: int, reads: frozenset[int]
) -> None:
    captured, snapshot = captured_and_snapshotted(timers.step, [Clock(0), *events], at, budget, reads)
    assert captured == snapshot


def test_only_as_many_keys_stay_in_memory_as_the_budget_allows() -> None:
    strategy = WindowingStrategy(ASSIGNERS["global"])
    operator = tiered_operator(lambda: window_operator(combine(RESULTS["sum"][0]), strategy), 200_000)
    windows = assign(strategy.assigner)(0, None)
    for start in range(0, 5_000, 100):
        answer(operator, Elements(tuple(((f"key {n}", 1), 0, windows) for n in range(start, start + 100))))
        assert len(operator.resident_keys()) < 1_000
    assert len(operator.snapshot()) == 5_000
    assert sum(value for _, (_, value), *_ in answer(operator, None)) == 5_000


def test_an_element_without_a_key_is_refused() -> None:
    operator = tiered_operator(lambda: window_operator(group(), WindowingStrategy(ASSIGNERS["global"])))
    with pytest.raises(Exception, match="pairs"):
        answer(operator, Elements(((7, 0, assign(ASSIGNERS["global"])(0, None)),)))


def test_cleared_state_is_deleted_from_the_store() -> None:
    make = lambda: window_operator(group(), WindowingStrategy(ASSIGNERS["fixed"]))  # noqa: E731
    operator = tiered_operator(make)
    answer(operator, Elements(((("a", 1), 3, assign(ASSIGNERS["fixed"])(3, None)),)))
    answer(operator, Watermark(5))
    assert isinstance(operator.cold, DictStore)
    assert list(operator.cold.records) == ["a"]
    answer(operator, Watermark(10))
    operator.spill(list(operator.resident_keys()))
    assert not operator.cold.records


def test_state_of_an_evicted_key_expires_after_its_ttl() -> None:
    """When the key is loaded again, its expiry is queued after those of keys that arrived later."""
    operator = tiered_operator(operator_factory(with_expiring_value, "step"), 1 << 20)
    answer(operator, Clock(0))
    answer(operator, Elements(((("old", 1), 0, (GLOBAL_WINDOW,)),)))
    operator.spill(["old"])
    answer(operator, Clock(5 * SECOND))
    answer(operator, Elements(((("new", 1), 0, (GLOBAL_WINDOW,)),)))
    assert operator.next_clock() == 10 * SECOND
    answer(operator, Clock(10 * SECOND))
    assert list(by_keys(operator.snapshot())) == ["new"]
    operator.spill(["old", "new"])
    assert operator.next_clock() == 15 * SECOND

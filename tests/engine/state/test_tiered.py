"""Operators of whose keys only a few are in memory give what they give with all of them there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.engine.stateful import test_timers as timers
from tests.engine.test_rescale import Make, answer, by_key, on_time, windowed
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


class Brief(tg.DoFn):
    """Keeps its last value for a short time."""

    def process(self, element: Any, brief: Any = tg.DoFn.StateParam(BRIEF)) -> Iterator[Any]:
        brief.write(element[1])
        yield element


def briefly(p: tg.Pipeline) -> Any:
    return p | tg.Create([("a", 1)]) | "step" >> tg.ParDo(Brief())


class DictCold:
    """The store as one would write it if all fitted in memory."""

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


def paged(make: Make, budget: int = 0) -> TieredOperator:
    return TieredOperator(make(), DictCold(), budget)  # type: ignore[arg-type]


def gives_the_same(make: Make, events: list[Event], budget: int, leaving: frozenset[int]) -> None:
    """Also where every key leaves memory after some events."""
    plain, some = make(), paged(make, budget)
    plain.open()
    some.open()
    for number, event in enumerate((*events, None)):
        assert by_key(answer(some, event)) == by_key(answer(plain, event)), event
        assert some.hold() == plain.hold()
        assert some.next_clock() == plain.next_clock() or some.next_clock() is not None
        if number in leaving:
            some.spill(list(some.resident_keys()))


budgets = st.sampled_from([0, 800, 1 << 20])
leavings = st.frozensets(st.integers(0, 20))


@pytest.fixture(params=[1, tiered.BATCH], ids=["one at a time", "all"], autouse=True)
def batch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many keys are woken at a time."""
    monkeypatch.setattr(tiered, "BATCH", request.param)


@settings(max_examples=120, deadline=None)
@given(windowed(), budgets, leavings)
def test_windows_whose_keys_sleep_fire_all_the_same(case: Any, budget: int, leaving: frozenset[int]) -> None:
    gives_the_same(*case, budget, leaving)


@settings(max_examples=80, deadline=None)
@given(on_time(), budgets, leavings)
def test_tables_whose_keys_sleep_fire_all_the_same(case: Any, budget: int, leaving: frozenset[int]) -> None:
    gives_the_same(*case, budget, leaving)


@settings(max_examples=120, deadline=None)
@given(timers.scripts, budgets, leavings)
def test_timers_of_keys_that_sleep_fire_all_the_same(events: Any, budget: int, leaving: frozenset[int]) -> None:
    gives_the_same(timers.step, [Clock(0), *events], budget, leaving)


@settings(max_examples=60, deadline=None)
@given(windowed(), st.integers(0, 12), budgets, budgets)
def test_a_snapshot_of_a_paged_operator_goes_on_anywhere(case: Any, at: int, budget: int, other: int) -> None:
    make, events = case
    plain, some = make(), paged(make, budget)
    for event in events[:at]:
        answer(plain, event)
        answer(some, event)
    state = some.snapshot()
    there, here = paged(make, other), make()
    there.restore(state)
    here.restore(merged([select_keys(state, lambda key: key == "a"), select_keys(state, lambda key: key != "a")]))
    for event in (*events[at:], None):
        expected = by_key(answer(plain, event))
        assert by_key(answer(there, event)) == expected
        assert by_key(answer(here, event)) == expected


def told(entries: Any) -> list[str]:
    """Stored state in words that show what is in it, whoever holds it."""

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


def takes_what_was_there(make: Make, events: list[Event], at: int, budget: int, looks: frozenset[int]) -> None:
    """Whatever happens before all has been looked up; `looks`: before which events a piece is."""
    some = paged(make, budget)
    some.open()
    for event in events[:at]:
        answer(some, event)
    there = by_keys(some.inner.snapshot(list(some.resident_keys())))
    pieces = some.begin_capture(None).pieces()
    taken: list[Any] = []
    for number, event in enumerate((*events[at:], None)):
        if number in looks:
            taken.append(next(pieces, None))
        answer(some, event)
    found: dict[Any, Any] = {}
    for piece in (*taken, *pieces):
        if piece is not None:
            piece.tables.pop(tiered.RESIDENT, None)
            for key, entries in by_keys(piece).items():
                assert key not in found
                found[key] = entries
    assert {key: told(found.get(key, ())) for key in there} == {key: told(entries) for key, entries in there.items()}
    assert some.capture is None


@settings(max_examples=120, deadline=None)
@given(windowed(), st.integers(0, 12), budgets, leavings)
def test_windows_are_taken_as_they_were(case: Any, at: int, budget: int, looks: frozenset[int]) -> None:
    takes_what_was_there(*case, at, budget, looks)


@settings(max_examples=120, deadline=None)
@given(on_time(), st.integers(0, 12), budgets, leavings)
def test_tables_are_taken_as_they_were(case: Any, at: int, budget: int, looks: frozenset[int]) -> None:
    takes_what_was_there(*case, at, budget, looks)


@settings(max_examples=120, deadline=None)
@given(timers.scripts, st.integers(0, 12), budgets, leavings)
def test_timers_are_taken_as_they_were(events: Any, at: int, budget: int, looks: frozenset[int]) -> None:
    takes_what_was_there(timers.step, [Clock(0), *events], at, budget, looks)


def test_only_as_many_keys_stay_in_memory_as_there_is_room_for() -> None:
    strategy = WindowingStrategy(ASSIGNERS["global"])
    some = paged(lambda: window_operator(combine(RESULTS["sum"][0]), strategy), 200_000)
    windows = assign(strategy.assigner)(0, None)
    for start in range(0, 5_000, 100):
        answer(some, Elements(tuple(((f"key {n}", 1), 0, windows) for n in range(start, start + 100))))
        assert len(some.resident_keys()) < 1_000
    assert len(some.snapshot()) == 5_000
    assert sum(value for _, (_, value), *_ in answer(some, None)) == 5_000


def test_a_key_that_cannot_be_found_is_an_error_as_ever() -> None:
    some = paged(lambda: window_operator(group(), WindowingStrategy(ASSIGNERS["global"])))
    with pytest.raises(Exception, match="pairs"):
        answer(some, Elements(((7, 0, assign(ASSIGNERS["global"])(0, None)),)))


def test_state_that_is_gone_is_gone_from_the_store_too() -> None:
    make = lambda: window_operator(group(), WindowingStrategy(ASSIGNERS["fixed"]))  # noqa: E731
    some = paged(make)
    answer(some, Elements(((("a", 1), 3, assign(ASSIGNERS["fixed"])(3, None)),)))
    answer(some, Watermark(5))
    assert isinstance(some.cold, DictCold)
    assert list(some.cold.records) == ["a"]
    answer(some, Watermark(10))
    some.spill(list(some.resident_keys()))
    assert not some.cold.records


def test_what_has_outlived_its_time_to_live_goes_in_time_though_its_key_has_slept() -> None:
    """Its date then stands behind those of keys that were there meanwhile."""
    some = paged(operator_factory(briefly, "step"), 1 << 20)
    answer(some, Clock(0))
    answer(some, Elements(((("old", 1), 0, (GLOBAL_WINDOW,)),)))
    some.spill(["old"])
    answer(some, Clock(5 * SECOND))
    answer(some, Elements(((("new", 1), 0, (GLOBAL_WINDOW,)),)))
    assert some.next_clock() == 10 * SECOND
    answer(some, Clock(10 * SECOND))
    assert list(by_keys(some.snapshot())) == ["new"]
    some.spill(["old", "new"])
    assert some.next_clock() == 15 * SECOND

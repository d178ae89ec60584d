"""State cells compared with plain Python: every kind, over keys and windows, with TTLs and snapshots."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.runners.checkpoint.state_files import pieces
from tidegate.runners.engine.rescale import overlaid
from tidegate.runners.engine.state.keyed_state import KeyedState
from tidegate.runners.engine.state.tables import StateTables
from tidegate.sdk.errors import CheckError
from tidegate.sdk.time import Timestamp

SPECS = (
    tg.ValueStateSpec("value"),
    tg.BagStateSpec("bag"),
    tg.SetStateSpec("set"),
    tg.MapStateSpec("map"),
    tg.OrderedListStateSpec("ordered"),
    tg.CombiningStateSpec("sum", sum),
    tg.CombiningStateSpec("max", max),
    tg.CombiningStateSpec("list", list),
)

small = st.integers(0, 3)
operation = st.one_of(
    st.tuples(st.just("value"), st.just("write"), small),
    st.tuples(st.just("bag"), st.just("add"), small),
    st.tuples(st.just("set"), st.sampled_from(["add", "discard"]), small),
    st.tuples(st.just("map"), st.just("put"), st.tuples(small, small)),
    st.tuples(st.just("map"), st.just("remove"), small),
    st.tuples(st.just("ordered"), st.just("add"), st.tuples(small, small)),
    st.tuples(st.just("ordered"), st.just("clear_range"), st.tuples(small, small)),
    st.tuples(st.sampled_from(["sum", "max", "list"]), st.just("add"), small),
    st.tuples(st.sampled_from([spec.name for spec in SPECS]), st.just("clear"), st.none()),
)
steps = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["w1", "w2"]), operation), max_size=40)


class Model:
    """A model in plain Python: one object per key, window and cell."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str, str], list[Any]] = {}

    def apply(self, key: str, window: str, cell: str, method: str, argument: Any) -> None:
        stored = self.values.setdefault((key, window, cell), [])
        match cell, method:
            case _, "clear":
                stored.clear()
            case "value", _:
                stored[:] = [argument]
            case "set", "add":
                if argument not in stored:
                    stored.append(argument)
            case "set", _:
                stored[:] = [value for value in stored if value != argument]
            case "map", "put":
                for pair in stored:
                    if pair[0] == argument[0]:
                        pair[1] = argument[1]
                        break
                else:
                    stored.append(list(argument))
            case "map", _:
                stored[:] = [pair for pair in stored if pair[0] != argument]
            case "ordered", "clear_range":
                stored[:] = [pair for pair in stored if not argument[0] <= pair[0] < argument[1]]
            case "ordered", _:
                stored.append(argument)
                stored.sort(key=lambda pair: pair[0])
            case _:
                stored.append(argument)

    def read(self, key: str, window: str, cell: str) -> Any:
        stored = self.values.get((key, window, cell), [])
        match cell:
            case "value":
                return stored[0] if stored else None
            case "sum":
                return sum(stored)
            case "max":
                return max(stored, default=None)
            case "map":
                return [tuple(pair) for pair in stored]
            case _:
                return list(stored)


def apply(tables: StateTables, key: str, window: str, cell: str, method: str, argument: Any) -> None:
    tables.enter(window)
    handle: Any = tables.cells[cell]
    handle.at(key)
    match method:
        case "clear":
            handle.clear()
        case "put" | "clear_range":
            getattr(handle, method)(*argument)
        case _ if cell == "ordered":
            handle.add(*argument)
        case _:
            getattr(handle, method)(argument)


def read(tables: StateTables, key: str, window: str, cell: str) -> Any:
    tables.enter(window)
    handle: Any = tables.cells[cell]
    handle.at(key)
    match cell:
        case "map":
            return list(handle.items())
        case "ordered":
            return [(int(at.seconds()), value) for at, value in handle.read()]
        case "bag" | "set" | "list":
            return list(handle.read())
        case _:
            return handle.read()


def contents_of(reader: Any) -> dict[tuple[str, str, str], Any]:
    return {(k, w, s.name): reader(k, w, s.name) for k in "ab" for w in ("w1", "w2") for s in SPECS}


@given(steps)
def test_cells_have_the_same_contents_as_plain_python(script: list[Any]) -> None:
    tables, model = StateTables(SPECS, expiring=False), Model()
    for key, window, (cell, method, argument) in script:
        apply(tables, key, window, cell, method, argument)
        model.apply(key, window, cell, method, argument)
    assert contents_of(lambda *at: read(tables, *at)) == contents_of(model.read)


@given(steps, steps)
def test_a_snapshot_shares_nothing_with_the_cells_and_restores_all_of_them(before: list[Any], after: list[Any]) -> None:
    tables, model = StateTables(SPECS, expiring=False), Model()
    for key, window, (cell, method, argument) in before:
        apply(tables, key, window, cell, method, argument)
        model.apply(key, window, cell, method, argument)
    saved = tables.snapshot()
    frozen = pickle.dumps(saved)
    for key, window, (cell, method, argument) in after:
        apply(tables, key, window, cell, method, argument)
    restored = StateTables(SPECS, expiring=False)
    restored.restore(saved, {}, 0)
    assert contents_of(lambda *at: read(restored, *at)) == contents_of(model.read)
    for key, window, (cell, method, argument) in after:
        apply(restored, key, window, cell, method, argument)
    assert pickle.loads(frozen) == saved, "the cells share objects with the snapshot"


@given(steps)
def test_a_cleared_cell_stores_nothing(script: list[Any]) -> None:
    tables = StateTables(SPECS, expiring=False)
    for key, window, (cell, method, argument) in script:
        apply(tables, key, window, cell, method, argument)
    for key in "ab":
        for window in ("w1", "w2"):
            for spec in SPECS:
                apply(tables, key, window, spec.name, "clear", None)
    assert all(not by_window for by_window in tables.snapshot().values())


def test_a_map_cell_supports_defaults_and_membership() -> None:
    tables = StateTables(SPECS, expiring=False)
    tables.enter("w")
    cell: Any = tables.cells["map"]
    cell.at("k")
    assert cell.get("x") is None
    assert cell.get("x", 7) == 7
    assert "x" not in cell
    cell.put("x", 1)
    assert cell.get("x", 7) == 1
    assert "x" in cell


def test_a_range_of_an_ordered_list_includes_its_start_and_excludes_its_end() -> None:
    tables = StateTables(SPECS, expiring=False)
    tables.enter("w")
    cell: Any = tables.cells["ordered"]
    cell.at("k")
    for at in (3, 1, 2, 1):
        cell.add(at, f"at {at}")
    assert list(cell.read_range(1, 3)) == [(Timestamp(1), "at 1"), (Timestamp(1), "at 1"), (Timestamp(2), "at 2")]


def test_a_value_read_from_a_combining_cell_does_not_change_with_later_inputs() -> None:
    tables = StateTables(SPECS, expiring=False)
    tables.enter("w")
    cell: Any = tables.cells["list"]
    cell.at("k")
    cell.add(1)
    given_before = cell.read()
    cell.add(2)
    assert given_before == [1]
    assert cell.read() == [1, 2]


TTL = (tg.ValueStateSpec("value", ttl=10), tg.BagStateSpec("bag", ttl=10))


def test_a_value_outlives_its_ttl_only_if_it_is_written_again() -> None:
    tables = StateTables(TTL, expiring=True)
    tables.enter("w")
    cell: Any = tables.cells["value"]
    for key in ("kept", "lost"):
        cell.at(key)
        cell.write(1)
    tables.sweep(9_999_999)
    cell.at("kept")
    cell.write(2)
    tables.sweep(10_000_000)
    seen = []
    for key in ("kept", "lost"):
        cell.at(key)
        seen.append(cell.read())
    assert seen == [2, None]
    assert tables.next_sweep() == 19_999_999


def test_reading_does_not_prolong_a_ttl_and_a_bag_expires_as_a_whole() -> None:
    tables = StateTables(TTL, expiring=True)
    tables.enter("w")
    cell: Any = tables.cells["bag"]
    cell.at("k")
    cell.add(1)
    tables.sweep(6_000_000)
    cell.at("k")
    cell.add(2)
    tables.sweep(12_000_000)
    cell.at("k")
    assert cell.read() == (1, 2)
    tables.sweep(16_000_000)
    cell.at("k")
    assert cell.read() == ()
    assert tables.next_sweep() is None


def test_the_expiry_times_of_a_ttl_survive_a_snapshot() -> None:
    tables = StateTables(TTL, expiring=True)
    tables.enter("w")
    cell: Any = tables.cells["value"]
    cell.at("k")
    cell.write(1)
    restored = StateTables(TTL, expiring=True)
    restored.restore(tables.snapshot(), tables.expiries(), 5)
    restored.sweep(10_000_000)
    assert restored.snapshot() == {"value": {}, "bag": {}}


def test_a_ttl_is_off_on_bounded_input() -> None:
    tables = StateTables(TTL, expiring=False)
    tables.enter("w")
    cell: Any = tables.cells["value"]
    cell.at("k")
    cell.write(1)
    tables.sweep(10**15)
    cell.at("k")
    assert cell.read() == 1
    assert tables.next_sweep() is None


def test_a_value_that_was_read_and_changed_in_place_is_reported_with_its_cell() -> None:
    tables = StateTables(SPECS, expiring=False)
    tables.enter("w")
    cell: Any = tables.watched["value"]
    cell.at("k")
    cell.write([1])
    cell.read()
    tables.verify()
    cell.read().append(2)
    with pytest.raises(
        CheckError, match=r"a value read from the state cell 'value' was changed from \[1\] to \[1, 2\]"
    ):
        tables.verify()
    tables.verify()


@pytest.mark.parametrize("ttl", [0, -1])
def test_a_ttl_must_be_positive(ttl: int) -> None:
    with pytest.raises(tg.BuildError, match="ttl must be longer than 0"):
        tg.ValueStateSpec("seen", ttl=ttl)


def test_a_cell_and_a_timer_need_names() -> None:
    with pytest.raises(tg.BuildError, match="a state cell needs a name"):
        tg.BagStateSpec("")
    with pytest.raises(tg.BuildError, match="a timer needs a name"):
        tg.EventTimer("")


@given(
    st.lists(steps, min_size=1, max_size=4),
    st.sampled_from([SPECS, SPECS[:1]]),
    st.booleans(),
    st.integers(1, 4),
    st.sets(st.sampled_from("ab")),
)
def test_incremental_snapshots_overlaid_in_order_are_the_full_state(
    epochs: list[list[Any]], specs: tuple[Any, ...], one_window: bool, collect_in: int, evicted: set[str]
) -> None:
    """In the epoch `collect_in`, the second window is collected and some keys are evicted."""
    tables = StateTables(specs, expiring=False)
    restored: Any = None
    windows = ["w1", "w2"]
    for number, script in enumerate([*epochs, []]):
        changed = tables.changed()
        assert (changed is None) == (restored is None)
        cells = tables.snapshot(changed)
        saved = KeyedState({name: dict(by_window) for name, by_window in cells.items()})
        if changed is not None:
            saved.keys = tables.replaced(changed)
            saved.windows = windows
        for piece, _ in pieces(saved):
            restored = overlaid(restored, pickle.loads(pickle.dumps(piece)))
        assert without_empty(restored.tables) == without_empty(tables.snapshot())
        names = [spec.name for spec in specs]
        for key, window, (cell, method, argument) in script:
            if cell in names:
                apply(tables, key, window if window in windows and not one_window else "w1", cell, method, argument)
        if number == collect_in:
            tables.collect("w2")
            windows = ["w1"]
            tables.evict(evicted)


def without_empty(tables: Any) -> Any:
    return {name: {window: table for window, table in by_window.items() if table} for name, by_window in tables.items()}


def test_a_key_that_was_only_read_has_not_changed() -> None:
    tables = StateTables(SPECS, expiring=False)
    tables.enter("w")
    value: Any = tables.cells["value"]
    for key in ("read", "written"):
        value.at(key)
        value.write(1)
    tables.changed()
    value.at("read")
    assert value.read() == 1
    value.at("written")
    value.write(2)
    value.write(3)
    value.at("new")
    value.write(4)
    changed = tables.changed()
    assert changed is not None
    assert [*changed] == ["written", "new"]
    assert tables.snapshot(changed)["value"] == {"w": {"written": 3, "new": 4}}


def test_a_cleared_key_is_reported_as_replaced_even_if_it_is_written_again() -> None:
    tables = StateTables(SPECS[:1], expiring=False)
    tables.enter("w")
    (cell,) = tables.cells.values()
    handle: Any = cell
    for key in ("gone", "again"):
        handle.at(key)
        handle.write(1)
    tables.changed()
    for key in ("gone", "again"):
        handle.at(key)
        handle.clear()
    handle.write(2)
    changed = tables.changed()
    assert changed is not None
    stored = tables.snapshot(changed)
    assert stored == {cell.name: {"w": {"again": 2}}}
    assert sorted(tables.replaced(changed)) == ["again", "gone"]


def test_a_change_in_a_collected_window_leaves_the_key_in_the_other_window() -> None:
    tables = StateTables(SPECS[:1], expiring=False)
    cell: Any = tables.cells["value"]
    tables.enter("left")
    cell.at("k")
    cell.write(1)
    tables.changed()
    first = KeyedState(tables.snapshot())
    tables.enter("over")
    cell.at("k")
    cell.write(2)
    tables.collect("over")
    changed = tables.changed()
    assert changed is not None
    second = KeyedState(tables.snapshot(changed), keys=tables.replaced(changed), windows=["left"])
    restored: Any = first
    for piece, _ in pieces(second):
        restored = overlaid(restored, piece)
    assert restored.tables == {"value": {"left": {"k": 1}}}

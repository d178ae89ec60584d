"""Rescaling: operators' snapshots are cut by key, merged, and overlaid with later incremental ones.

What is by key goes where its key goes. What is not follows a rule of its own: of watermarks the least counts, of
processing time and counters the greatest; side inputs are the same in every task, so those of the first are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tidegate.runners.engine.side_inputs.operator import Columns, SidesSnapshot, Waits
from tidegate.runners.engine.state.keyed_state import KeyedState, Tables, without
from tidegate.sdk.data.block import take_panes, take_timestamps
from tidegate.sdk.portable.model import KeyOf

Keeps: TypeAlias = Callable[[Any], bool]
"""Whether a key belongs here."""


def rescaled(snapshots: Sequence[Any], keeps: Keeps) -> Any:
    """The state of one task of a step, from the snapshots that all tasks of the step gave before.

    `keeps` must hold for each key in exactly one of the new tasks; where there is one, for every key. None where no
    snapshot has state.
    """
    return merged([part(snapshot, keeps) for snapshot in snapshots])


def part(snapshot: Any, keeps: Keeps) -> Any:
    """What a snapshot has of the keys that `keeps` holds for."""
    match snapshot:
        case None:
            return None
        case KeyedState():
            known: dict[Any, bool] = {}
            return KeyedState(
                {
                    name: {window: _kept(table, keeps, known) for window, table in tables.items()}
                    for name, tables in snapshot.tables.items()
                },
                snapshot.watermark,
                snapshot.clock,
                snapshot.serials,
                snapshot.any,
            )
        case SidesSnapshot(waiting=waiting):
            assert waiting is not None, "a later snapshot is first laid over an earlier one"
            return SidesSnapshot(
                _waits(waiting, snapshot.key, keeps),
                snapshot.key,
                snapshot.sides,
                snapshot.side_watermarks,
                snapshot.watermark,
                snapshot.inner_watermark,
                part(snapshot.inner, keeps),
            )
        case other:
            raise AssertionError(f"{type(other).__name__} is no operator's snapshot")


def merged(snapshots: Sequence[Any]) -> Any:
    """Snapshots of different tasks of one step as one, which may share data with them."""
    states = [snapshot for snapshot in snapshots if snapshot is not None]
    if not states:
        return None
    first = states[0]
    if len(states) == 1:
        return first
    match first:
        case KeyedState():
            serials: dict[str, int] = {}
            for state in states:
                for name, n in state.serials.items():
                    serials[name] = max(n, serials.get(name, n))
            return KeyedState(
                _all_tables([state.tables for state in states]),
                min(state.watermark for state in states),
                max((state.clock for state in states if state.clock is not None), default=None),
                serials,
                any(state.any for state in states),
            )
        case SidesSnapshot():
            return SidesSnapshot(
                [waits for state in states for waits in state.waiting],
                first.key,
                first.sides,
                first.side_watermarks,
                min(state.watermark for state in states),
                min(state.inner_watermark for state in states),
                merged([state.inner for state in states]),
            )
        case other:
            raise AssertionError(f"{type(other).__name__} is no operator's snapshot")


def overlaid(before: Any, later: Any) -> Any:
    """What a task's state is, from an earlier snapshot and one of what has changed since; `before` is used up.

    The keys of a window keep their order; new ones follow, in the order in which they were touched.
    """
    match before, later:
        case (None, _) | (_, None):
            return later
        case KeyedState(), KeyedState(keys=None):
            return later
        case KeyedState(), KeyedState():
            _overlay_tables(before.tables, later)
            before.watermark, before.clock, before.any = later.watermark, later.clock, later.any
            before.serials = later.serials
            return before
        case SidesSnapshot(), SidesSnapshot():
            return SidesSnapshot(
                before.waiting if later.waiting is None else later.waiting,
                later.key,
                {**before.sides, **later.sides},
                later.side_watermarks,
                later.watermark,
                later.inner_watermark,
                overlaid(before.inner, later.inner),
            )
        case _:
            raise AssertionError(f"a {type(later).__name__} can't be laid over a {type(before).__name__}")


def _kept(table: dict[Any, Any], keeps: Keeps, known: dict[Any, bool]) -> dict[Any, Any]:
    kept = {}
    for key, stored in table.items():
        here = known.get(key)
        if here is None:
            here = known[key] = keeps(key)
        if here:
            kept[key] = stored
    return kept


def _all_tables(parts: Sequence[dict[str, Tables]]) -> dict[str, Tables]:
    whole: dict[str, Tables] = {}
    for tables in parts:
        for name, by_window in tables.items():
            into = whole.setdefault(name, {})
            for window, table in by_window.items():
                known = into.get(window)
                into[window] = {**known, **table} if known else table
    return whole


def _overlay_tables(tables: dict[str, Tables], later: KeyedState) -> None:
    assert later.keys is not None
    alive = None if later.windows is None else {None, *later.windows}
    for name in {*tables, *later.tables}:
        by_window = tables.setdefault(name, {})
        changed = later.tables.get(name, {})
        for window in [] if alive is None else [window for window in by_window if window not in alive]:
            del by_window[window]
        for window, table in by_window.items() if later.keys else ():
            now = changed.get(window, {})
            without(table, [key for key in later.keys if key not in now])
        for window, now in changed.items():
            by_window.setdefault(window, {}).update(now)


def _waits(waiting: list[Waits], key: KeyOf | None, keeps: Keeps) -> list[Waits]:
    """What waits of these keys. Elements that come by no key are dealt out by the number of their block."""
    found = []
    for window, hold, blocks in waiting:
        kept = []
        for number, columns in enumerate(blocks):
            if key is None:
                if keeps(number):
                    kept.append(columns)
            elif (some := _of_keys(columns, key, keeps)) is not None:
                kept.append(some)
        if kept:
            found.append((window, hold, kept))
    return found


def _of_keys(columns: Columns, key: KeyOf, keeps: Keeps) -> Columns | None:
    values, timestamps, panes = columns
    match key:
        case "first":
            index = [i for i, (k, _) in enumerate(values) if keeps(k)]
        case "element":
            index = [i for i, k in enumerate(values) if keeps(k)]
        case "none":
            index = list(range(len(values))) if keeps(None) else []
    if len(index) == len(values):
        return columns
    if not index:
        return None
    return [values[i] for i in index], take_timestamps(timestamps, index), take_panes(panes, index)

"""Rescaling: filters snapshots of operators by key, merges them, and applies incremental snapshots to earlier ones.

Keyed state follows its key. Other state is merged by a rule for each kind: the minimum of watermarks, and the maximum
of processing times and counters. Side inputs are the same in every task, so those of the first snapshot are used.

>>> first = KeyedState({"sum": {None: {"a": 1, "b": 2}}}, watermark=7)
>>> second = KeyedState({"sum": {None: {"c": 3}}}, watermark=5)
>>> state = rescaled([first, second], lambda key: key in ("b", "c"))
>>> state.tables, state.watermark
({'sum': {None: {'b': 2, 'c': 3}}}, 5)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidegate.runners.engine.asynchronous.snapshot import AsyncSnapshot
from tidegate.runners.engine.iteration.backlog import BacklogSnapshot, MoreBacklog
from tidegate.runners.engine.iteration.snapshot import LoopSnapshot
from tidegate.runners.engine.side_inputs.operator import Columns, SidesSnapshot, Waits
from tidegate.runners.engine.state.keyed_state import KeyedState, Tables, without
from tidegate.sdk.data.block import take_panes, take_timestamps
from tidegate.sdk.portable.model import KeyOf

KeyFilter: TypeAlias = Callable[[Any], bool]
"""Whether a key is assigned to the task; asked of a `FormerTask`, whether that which has no key is."""


@dataclass(frozen=True, slots=True)
class FormerTask:
    """One of the tasks that stored the snapshots, by its index."""

    index: int


def rescaled(snapshots: Sequence[Any], keeps: KeyFilter) -> Any:
    """The state of one task of a step, from the snapshots of all tasks that the step had before.

    `keeps` must be true for each key in exactly one of the new tasks. Returns None if no snapshot has state.
    """
    return merged([select_keys(snapshot, keeps) for snapshot in snapshots])


def select_keys(snapshot: Any, keeps: KeyFilter) -> Any:
    """The snapshot, reduced to the keys for which `keeps` is true."""
    match snapshot:
        case None:
            return None
        case KeyedState():
            known: dict[Any, bool] = {}
            return KeyedState(
                {
                    name: {window: _select(table, keeps, known) for window, table in tables.items()}
                    for name, tables in snapshot.tables.items()
                },
                snapshot.watermark,
                snapshot.clock,
                snapshot.serials,
                snapshot.any,
            )
        case SidesSnapshot(waiting=waiting):
            assert waiting is not None, "an incremental snapshot is first laid over the one before"
            return SidesSnapshot(
                _select_waiting(waiting, snapshot.key, keeps),
                snapshot.key,
                snapshot.sides,
                snapshot.side_watermarks,
                snapshot.watermark,
                snapshot.inner_watermark,
                select_keys(snapshot.inner, keeps),
            )
        case AsyncSnapshot():
            return snapshot.select(keeps)
        case LoopSnapshot():
            return snapshot if keeps(None) else None
        case BacklogSnapshot(task=task):
            return snapshot if keeps(FormerTask(task)) else None
        case other:
            raise AssertionError(f"{type(other).__name__} is not a snapshot of an operator")


def merged(snapshots: Sequence[Any]) -> Any:
    """One snapshot from the snapshots of a step's tasks; it may share data with them."""
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
        case AsyncSnapshot():
            return AsyncSnapshot.merged(states)
        case BacklogSnapshot():
            blocks = [entry for state in states for entry in state.blocks]
            return BacklogSnapshot(blocks, min(state.watermark for state in states), first.task)
        case other:
            raise AssertionError(f"{type(other).__name__} is not a snapshot of an operator")


def overlaid(before: Any, later: Any) -> Any:
    """A task's state: an incremental snapshot applied to the one before it, `before`, which is changed in place.

    The keys of a window keep their order; new keys follow in the order in which they were touched.
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
        case BacklogSnapshot(), MoreBacklog():
            assert isinstance(before.blocks, list)
            before.blocks.extend(later.blocks)
            return before
        case (
            (AsyncSnapshot(), AsyncSnapshot())
            | (LoopSnapshot(), LoopSnapshot())
            | (BacklogSnapshot(), BacklogSnapshot())
        ):
            return later
        case _:
            raise AssertionError(f"a {type(later).__name__} can't be laid over a {type(before).__name__}")


def _select(table: dict[Any, Any], keeps: KeyFilter, known: dict[Any, bool]) -> dict[Any, Any]:
    selected = {}
    for key, stored in table.items():
        here = known.get(key)
        if here is None:
            here = known[key] = keeps(key)
        if here:
            selected[key] = stored
    return selected


def _all_tables(parts: Sequence[dict[str, Tables]]) -> dict[str, Tables]:
    union: dict[str, Tables] = {}
    for tables in parts:
        for name, by_window in tables.items():
            into = union.setdefault(name, {})
            for window, table in by_window.items():
                before = into.get(window)
                into[window] = {**before, **table} if before else table
    return union


def _overlay_tables(tables: dict[str, Tables], later: KeyedState) -> None:
    assert later.keys is not None
    live_windows = None if later.windows is None else {None, *later.windows}
    for name in {*tables, *later.tables}:
        by_window = tables.setdefault(name, {})
        changed = later.tables.get(name, {})
        if live_windows is not None:
            for window in [window for window in by_window if window not in live_windows]:
                del by_window[window]
        for window, table in by_window.items() if later.keys else ():
            now = changed.get(window, {})
            without(table, [key for key in later.keys if key not in now])
        for window, now in changed.items():
            by_window.setdefault(window, {}).update(now)


def _select_waiting(waiting: list[Waits], key: KeyOf | None, keeps: KeyFilter) -> list[Waits]:
    """The waiting elements of the selected keys. Without keys, whole blocks are assigned by their number."""
    found = []
    for window, hold, blocks in waiting:
        selected = []
        for number, columns in enumerate(blocks):
            if key is None:
                if keeps(number):
                    selected.append(columns)
            elif (some := _select_elements(columns, key, keeps)) is not None:
                selected.append(some)
        if selected:
            found.append((window, hold, selected))
    return found


def _select_elements(columns: Columns, key: KeyOf, keeps: KeyFilter) -> Columns | None:
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

"""Assigning windows: from a timestamp and an element to windows, for each assigner.

Authors see window objects (`window.py`) and `Timestamp`s. The engine works on *bounds*, pairs of `int` microseconds
`(start, end)`, through `assign_bounds` and `single_window`, and makes objects only for user code that asks. Bounds
saturate at the ends of time, and the windows of one element come in ascending order of (end, start).

>>> assign_bounds(SlidingWindows(Duration(4), Duration(2)))(3_000_000)
((0, 4000000), (2000000, 6000000))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidegate.sdk.errors import shorten
from tidegate.sdk.time import (
    MAX_MICROS,
    MIN_MICROS,
    Duration,
    DurationLike,
    Timestamp,
    clamp,
    duration_micros,
)
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.windowing.assigners import (
    GLOBAL_BOUNDS,
    Assigner,
    Bounds,
    BuiltinAssigner,
    CumulativeWindows,
    CustomAssigner,
    FixedWindows,
    GlobalWindows,
    GlobalWindowsSince,
    Merged,
    Sessions,
    SlidingWindows,
    WindowAssigner,
    is_global_assigner,
)
from tidegate.sdk.windowing.calendar import CalendarWindows, calendar_window
from tidegate.sdk.windowing.window import (
    GLOBAL_WINDOW,
    GlobalWindow,
    IntervalWindow,
    window_end,
)


def single_window(assigner: Assigner) -> Callable[[int], Bounds] | None:
    """From a timestamp to the bounds of its window, for assigners that give just one of fixed bounds; else None."""
    match assigner:
        case FixedWindows(size=size, offset=offset):
            return _fixed(size.micros, offset.micros)
        case CalendarWindows():
            return calendar_window(assigner)
    return None


def assign_bounds(assigner: Assigner) -> Callable[[int], tuple[Bounds, ...]]:
    """From a timestamp to the bounds of its windows, for assigners that look at nothing else.

    The global window's bounds are `GLOBAL_BOUNDS`. ValueError for an assigner that is `element_dependent`.
    """
    match assigner:
        case GlobalWindows():
            return lambda ts: (GLOBAL_BOUNDS,)
        case GlobalWindowsSince(since=since):
            landmark = since.micros
            return lambda ts: (GLOBAL_BOUNDS,) if ts >= landmark else ()
        case SlidingWindows(size=size, period=period, offset=offset):
            return _sliding(size.micros, period.micros, offset.micros)
        case CumulativeWindows(size=size, step=step, offset=offset):
            return _cumulative(size.micros, step.micros, offset.micros)
        case Sessions(gap=Duration(micros=gap)):
            last = MAX_MICROS - gap
            return lambda ts: ((ts, ts + gap if ts <= last else MAX_MICROS),)
    single = single_window(assigner)
    if single is None:
        raise ValueError(f"{assigner!r} does not assign windows by timestamp alone")
    return lambda ts: (single(ts),)


def assign_windows(assigner: BuiltinAssigner) -> Callable[[int], tuple[IntervalWindow | GlobalWindow, ...]]:
    """As `assign_bounds`, with objects in place of bounds."""
    bounds = assign_bounds(assigner)
    if is_global_assigner(assigner):
        return lambda ts: (GLOBAL_WINDOW,) if bounds(ts) else ()
    make = IntervalWindow.of_micros
    last: tuple[Bounds, ...] = ()
    made: tuple[IntervalWindow, ...] = ()

    def windows(ts: int) -> tuple[IntervalWindow, ...]:
        nonlocal last, made
        found = bounds(ts)
        if found != last:  # neighbours mostly share their windows
            last, made = found, tuple([make(start, end) for start, end in found])
        return made

    return windows


def assign(assigner: Assigner) -> Callable[[int, Any], tuple[Any, ...]]:
    """From a timestamp in microseconds and an element to its windows as objects, for any assigner but a merged one.

    What user code gives is checked as it is called: ValueError for a gap that is not longer than 0, TypeError for
    a window that has no end, no hash or no order.
    """
    match assigner:
        case Sessions(gap=UserFn() as gap):
            return _sessions_by_element(gap)
        case CustomAssigner(fn=fn):
            return _custom(fn)
        case Merged():
            raise ValueError("merged windows can't be assigned again: re-window with WindowInto")
    windows = assign_windows(assigner)
    return lambda ts, element: windows(ts)


def _fixed(size: int, offset: int) -> Callable[[int], Bounds]:
    low, high = MIN_MICROS + size, MAX_MICROS - size

    def window(ts: int) -> Bounds:
        start = ts - (ts - offset) % size
        if low <= start <= high:
            return start, start + size
        return clamp(start), clamp(start + size)

    return window


def _cached(compute: Callable[[int], tuple[int, int, tuple[Bounds, ...]]]) -> Callable[[int], tuple[Bounds, ...]]:
    """Cache the windows of the last timestamp, which most elements share with the one before.

    `compute` returns `(since, until, windows)`: all timestamps of [since, until) have these windows.
    """
    since, until = 0, 0
    cached: tuple[Bounds, ...] = ()

    def windows(ts: int) -> tuple[Bounds, ...]:
        nonlocal since, until, cached
        if not since <= ts < until:
            since, until, cached = compute(ts)
        return cached

    return windows


def _sliding(size: int, period: int, offset: int) -> Callable[[int], tuple[Bounds, ...]]:
    def windows(ts: int) -> tuple[int, int, tuple[Bounds, ...]]:
        last = ts - (ts - offset) % period  # the latest start that is not after ts
        first = last - (size - 1 - (ts - last)) // period * period  # the earliest start of a window that contains ts
        found = tuple([(clamp(start), clamp(start + size)) for start in range(first, last + 1, period)])
        until = min(last + period, first + size) if found else last + period
        return max(last, first - period + size), until, found

    return _cached(windows)


def _cumulative(size: int, step: int, offset: int) -> Callable[[int], tuple[Bounds, ...]]:
    def windows(ts: int) -> tuple[int, int, tuple[Bounds, ...]]:
        into = (ts - offset) % size
        start = ts - into
        since = ts - into % step
        ends = range(since + step, start + size + 1, step)
        # At the end of time several ends saturate to the same one, which makes one window.
        return since, since + step, tuple(dict.fromkeys([(clamp(start), clamp(end)) for end in ends]))

    return _cached(windows)


def _sessions_by_element(gap: UserFn) -> Callable[[int, Any], tuple[IntervalWindow, ...]]:
    gap_of: Callable[[Any], DurationLike] = gap.load()

    def windows(ts: int, element: Any) -> tuple[IntervalWindow, ...]:
        length = duration_micros(gap_of(element))
        if length <= 0:
            raise ValueError(f"the gap of a session must be longer than 0; {gap.name} returned {length / 1e6:g} s")
        return (IntervalWindow.of_micros(ts, clamp(ts + length)),)

    return windows


def _custom(fn: UserFn) -> Callable[[int, Any], tuple[Any, ...]]:
    assigner: WindowAssigner = fn.load()
    checked: set[type] = {IntervalWindow, GlobalWindow}

    def windows(ts: int, element: Any) -> tuple[Any, ...]:
        given = tuple(assigner.assign(Timestamp(micros=ts), element))
        for window in given:
            if type(window) not in checked:
                check_window_type(fn.name, window)
                checked.add(type(window))
        return given if len(given) < 2 else ascending(given)

    return windows


def check_window_type(assigner: str, window: Any) -> None:
    """Raise TypeError if `window`, which that assigner has returned, can't be a window."""
    window_end(window)
    try:
        hash(window)
        window < window  # noqa: B015  (whether it has an order)
    except TypeError as error:
        raise TypeError(
            f"{assigner} gave {shorten(window)}: a window must be hashable and ordered "
            f"(a dataclass: frozen=True, order=True): {error}"
        ) from error


def ascending(windows: Iterable[Any]) -> tuple[Any, ...]:
    """The distinct windows, sorted by (end, the order of their type)."""
    return tuple(sorted(sorted(set(windows)), key=window_end))

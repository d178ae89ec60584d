"""Merging windows: sessions that overlap, and those of an author's own assigner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidegate.sdk.errors import shorten
from tidegate.sdk.time import MIN_MICROS
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.windowing.assigners import (
    Assigner,
    Bounds,
    CustomAssigner,
    Sessions,
    WindowAssigner,
)
from tidegate.sdk.windowing.assignment import ascending, check_window_type
from tidegate.sdk.windowing.window import IntervalWindow, window_end


def merge_sessions(bounds: Iterable[Bounds]) -> list[Bounds]:
    """Unite bounds that overlap, and return them in ascending order. Bounds that only touch are not united.

    >>> merge_sessions([(5, 9), (0, 3), (2, 4), (4, 5)])
    [(0, 4), (4, 5), (5, 9)]
    """
    result: list[Bounds] = []
    first, past = 0, MIN_MICROS
    for start, end in sorted(bounds):
        if start < past:
            if end > past:
                past = end
                result[-1] = first, past
        else:
            first, past = start, end
            result.append((start, end))
    return result


def merge_windows(assigner: Assigner) -> Callable[[Iterable[Any]], list[tuple[Any, tuple[Any, ...]]]]:
    """For a merging assigner: from one key's windows to the pairs (merged window, the windows it replaces).

    Only changes are returned: no pair replaces a window by itself alone. Windows and pairs are in ascending
    order. ValueError for an assigner that does not merge, and when called for an author's `merge` that replaces a
    window it was not given, or one window twice.
    """
    match assigner:
        case Sessions():
            return _merge_intervals
        case CustomAssigner(fn=fn, merges=True):
            return _merge_custom(fn)
    raise ValueError(f"windows of {assigner!r} don't merge")


def _merge_intervals(windows: Iterable[IntervalWindow]) -> list[tuple[IntervalWindow, tuple[IntervalWindow, ...]]]:
    parts = sorted(set(windows), key=lambda window: window.start_micros)
    result = []
    at = 0
    for start, end in merge_sessions([(part.start_micros, part.end_micros) for part in parts]):
        behind = at
        while at < len(parts) and parts[at].start_micros < end:
            at += 1
        if at - behind > 1:
            result.append((IntervalWindow.of_micros(start, end), tuple(sorted(parts[behind:at]))))
    return result


def _merge_custom(fn: UserFn) -> Callable[[Iterable[Any]], list[tuple[Any, tuple[Any, ...]]]]:
    assigner: WindowAssigner = fn.load()

    def merge(windows: Iterable[Any]) -> list[tuple[Any, tuple[Any, ...]]]:
        given = ascending(windows)
        left = set(given)
        result = {}
        for united, replaced in assigner.merge(given):
            check_window_type(fn.name, united)
            parts = ascending(replaced)
            if united in result:
                raise ValueError(f"{fn.name}.merge gave {shorten(united)} twice: give its parts in one pair")
            for part in parts:
                if part not in left:
                    reason = "is in two pairs" if part in given else "was not among the windows it was given"
                    raise ValueError(f"{fn.name}.merge replaces {shorten(part)}, which {reason}")
                left.discard(part)
            if parts and parts != (united,):
                result[united] = parts
        for united in result:
            if united in left:
                raise ValueError(
                    f"{fn.name}.merge gave {shorten(united)}: list that window among the parts it replaces"
                )
        return sorted(result.items(), key=lambda pair: window_end(pair[0]))

    return merge

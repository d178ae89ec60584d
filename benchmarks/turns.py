"""Measures several ways to do the same work: each in turn, in processor time, and the best of its turns counts."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping


def best_of(turns: int, ways: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The least processor time (s) of each way. Ways take turns, so that other load affects all of them alike."""
    best = dict.fromkeys(ways, math.inf)
    for _ in range(turns):
        for name, work in ways.items():
            begun = time.process_time()
            work()
            best[name] = min(best[name], time.process_time() - begun)
    return best


def print_heading(rows: int, turns: int) -> None:
    """Print what the lines below show."""
    print(f"{rows:,} rows; load {os.getloadavg()[0]:.1f}; nanoseconds of processor time a row, best of {turns} turns")


def print_ratio(title: str, rows: int, best: Mapping[str, float]) -> None:
    """Print a line: the time by hand, the time of ours, and the ratio; above 1.0, ours is faster."""
    (by_hand, hand_seconds), (ours, seconds) = best.items()
    print(
        f"{title:32} {by_hand} {hand_seconds / rows * 1e9:7.0f}   {ours} {seconds / rows * 1e9:7.0f}   "
        f"ratio {hand_seconds / seconds:.2f}",
        flush=True,
    )

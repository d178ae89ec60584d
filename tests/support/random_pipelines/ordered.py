"""Steps whose result shows the order of a key's elements: data-driven triggers, evictors, state and timers.

Over bounded data that order is by timestamp, and ties are in none. So these steps begin by making values small and
stamping each with a time of its own: what has one timestamp then is one value, as often as it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import tidegate as tg

Due = Callable[[list[int]], bool]
"""Whether a trigger fires, given what arrived since it last did, the newest last."""

WHOLE = ("global",)
TENS = ("fixed", 10, 0)


def small_in_time(pair: tuple[int, int]) -> Any:
    """A pair whose value is small, at the second that is its value."""
    key, value = pair
    return tg.TimestampedValue((key, value % 97), value % 97)


def is_mark(value: int) -> bool:
    return value % 4 == 0


def difference(a: int, b: int) -> int:
    return b - a


def counted(n: int) -> Callable[[], Due]:
    return lambda: lambda new: len(new) == n


def far_from_the_last() -> Due:
    """More than 9 from the reference: the first value, and then each that fired."""
    reference: list[int] = []

    def due(new: list[int]) -> bool:
        if not reference:
            reference.append(new[0])
        if new[-1] - reference[0] <= 9:
            return False
        reference[0] = new[-1]
        return True

    return due


@dataclass(frozen=True)
class Strategy:
    """What a window step is given, and what that means: when it fires, and what a pane holds.

    `keeps`: how many elements an evictor leaves (None: all). `closes_empty`: the last pane comes even if it has
    nothing new, once there was an early one. `latest`: panes have the time of their newest element.
    """

    into: Callable[[], tg.WindowInto]
    windows: tuple[Any, ...]
    due: Callable[[], Due]
    accumulates: bool = False
    keeps: int | None = None
    closes_empty: bool = False
    latest: bool = False


MARK, THREE = tg.AfterElement(is_mark), tg.AfterCount(3)


def early(windows: Any, trigger: Any, accumulation: Any, **more: Any) -> Callable[[], tg.WindowInto]:
    return lambda: tg.WindowInto(windows, trigger, accumulation=accumulation, **more)


STRATEGIES: dict[str, Strategy] = {
    "counts": Strategy(early(tg.FixedWindows(10), tg.Repeatedly(THREE), tg.DISCARDING), TENS, counted(3)),
    "accumulated counts": Strategy(
        early(tg.SlidingWindows(20, 7), tg.Repeatedly(tg.AfterCount(2)), tg.ACCUMULATING),
        ("sliding", 20, 7, 0),
        counted(2),
        accumulates=True,
    ),
    "early counts": Strategy(
        early(tg.FixedWindows(10), tg.AfterWatermark(early=tg.AfterCount(2)), tg.ACCUMULATING),
        TENS,
        counted(2),
        accumulates=True,
        closes_empty=True,
    ),
    "early counts, discarded": Strategy(
        early(tg.FixedWindows(10), tg.AfterWatermark(early=tg.AfterCount(2)), tg.DISCARDING),
        TENS,
        counted(2),
        closes_empty=True,
    ),
    "marks": Strategy(
        early(tg.GlobalWindows(), tg.Repeatedly(MARK), tg.DISCARDING),
        WHOLE,
        lambda: lambda new: is_mark(new[-1]),
    ),
    "marks or counts": Strategy(
        early(tg.GlobalWindows(), tg.Repeatedly(tg.AfterAny(THREE, MARK)), tg.DISCARDING),
        WHOLE,
        lambda: lambda new: len(new) == 3 or is_mark(new[-1]),
    ),
    "marks and counts": Strategy(
        early(tg.FixedWindows(10), tg.Repeatedly(tg.AfterAll(THREE, MARK)), tg.DISCARDING),
        TENS,
        lambda: lambda new: len(new) >= 3 and any(map(is_mark, new)),
    ),
    "the last of more": Strategy(
        early(tg.FixedWindows(30), tg.Repeatedly(tg.AfterCount(4)), tg.ACCUMULATING, evictor=tg.KeepLast(2)),
        ("fixed", 30, 0),
        counted(4),
        accumulates=True,
        keeps=2,
    ),
    "count windows": Strategy(lambda: tg.WindowInto(tg.CountWindows(3)), WHOLE, counted(3), latest=True),
    "sliding count windows": Strategy(
        lambda: tg.WindowInto(tg.SlidingCountWindows(4, every=3)),
        WHOLE,
        counted(3),
        accumulates=True,
        keeps=4,
        latest=True,
    ),
    "punctuation windows": Strategy(
        lambda: tg.WindowInto(tg.PunctuationWindows(is_mark)), WHOLE, lambda: lambda new: is_mark(new[-1]), latest=True
    ),
    "delta windows": Strategy(
        lambda: tg.WindowInto(tg.DeltaWindows(9, difference)), WHOLE, far_from_the_last, latest=True
    ),
}


@dataclass(frozen=True)
class Pane:
    """The result of one firing; `newest` is the last new element, if there is one."""

    values: list[int]
    info: tg.PaneInfo
    newest: int | None


def panes(strategy: Strategy, values: Iterable[int]) -> Iterator[Pane]:
    """The panes of one key and window, whose values come in order."""
    due = strategy.due()
    held: list[int] = []
    new: list[int] = []
    index = 0

    def fire(last: bool) -> Pane:
        nonlocal index
        shown = held if strategy.accumulates else new
        kept = shown if strategy.keeps is None else shown[-strategy.keeps :]
        timing = tg.Timing.ON_TIME if last else tg.Timing.EARLY
        info = tg.PaneInfo(index == 0, last, timing, index, 0 if last else -1)
        index += 1
        return Pane(list(kept), info, new[-1] if new else None)

    for value in values:
        held.append(value)
        new.append(value)
        if due(new):
            yield fire(last=False)
            new = []
    if new or (strategy.closes_empty and index):
        yield fire(last=True)


class Remembers(tg.DoFn):
    """Folds each key's values in order, and gives the result at the window's end; their number when it expires."""

    FOLDED = tg.ValueStateSpec("folded")
    SEEN = tg.BagStateSpec("seen")
    END = tg.EventTimer("end")

    def process(
        self,
        pair: tuple[int, int],
        window: Any = tg.DoFn.WindowParam,
        folded: tg.ValueState[int] = tg.DoFn.StateParam(FOLDED),
        seen: tg.BagState[int] = tg.DoFn.StateParam(SEEN),
        end: tg.Timer = tg.DoFn.TimerParam(END),
    ) -> None:
        folded.write(fold(folded.read() or 0, pair[1]))
        seen.add(pair[1])
        end.set(window.max_timestamp())

    @tg.on_timer(END)
    def on_end(
        self, key: Any = tg.DoFn.KeyParam, folded: tg.ValueState[int] = tg.DoFn.StateParam(FOLDED)
    ) -> Iterator[tuple[int, int]]:
        yield key, folded.read() or 0

    @tg.on_window_expiration
    def on_expiry(
        self, key: Any = tg.DoFn.KeyParam, seen: tg.BagState[int] = tg.DoFn.StateParam(SEEN)
    ) -> Iterator[tuple[int, int]]:
        yield key, len(list(seen.read()))


def fold(so_far: int, value: int) -> int:
    """Not the same in another order."""
    return (so_far * 31 + value) % 1009

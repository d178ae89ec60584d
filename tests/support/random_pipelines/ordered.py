"""Steps whose result shows the order of a key's elements: data-driven triggers, evictors, state and timers.

Over bounded data that order is by timestamp, and undefined for equal timestamps. So these steps first reduce each value
to a small number and use it as the timestamp: elements of one timestamp then have equal values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import tidegate as tg

Fires = Callable[[list[int]], bool]
"""True if a trigger fires, given the elements since its last firing, the newest last."""

GLOBAL = ("global",)
TENS = ("fixed", 10, 0)


def small_in_time(pair: tuple[int, int]) -> Any:
    """A pair whose value is small, at the second that is its value."""
    key, value = pair
    return tg.TimestampedValue((key, value % 97), value % 97)


def is_mark(value: int) -> bool:
    return value % 4 == 0


def difference(a: int, b: int) -> int:
    return b - a


def counted(n: int) -> Callable[[], Fires]:
    return lambda: lambda new: len(new) == n


def far_from_the_last() -> Fires:
    """More than 9 from the reference: the first value, and then each that fired."""
    reference: list[int] = []

    def fires(new: list[int]) -> bool:
        if not reference:
            reference.append(new[0])
        if new[-1] - reference[0] <= 9:
            return False
        reference[0] = new[-1]
        return True

    return fires


@dataclass(frozen=True)
class Strategy:
    """A windowing strategy and its meaning: when it fires, and the contents of its panes.

    `keeps`: how many elements an evictor leaves (None: all). `closes_empty`: after an early pane, the last pane is
    emitted even if it has no new elements. `latest`: panes have the time of their newest element.
    """

    into: Callable[[], tg.WindowInto]
    windows: tuple[Any, ...]
    fires: Callable[[], Fires]
    accumulates: bool = False
    keeps: int | None = None
    closes_empty: bool = False
    latest: bool = False


MARK, THREE = tg.AfterElement(is_mark), tg.AfterCount(3)


def windowed(windows: Any, trigger: Any, accumulation: Any, **more: Any) -> Callable[[], tg.WindowInto]:
    return lambda: tg.WindowInto(windows, trigger, accumulation=accumulation, **more)


STRATEGIES: dict[str, Strategy] = {
    "counts": Strategy(windowed(tg.FixedWindows(10), tg.Repeatedly(THREE), tg.DISCARDING), TENS, counted(3)),
    "accumulated counts": Strategy(
        windowed(tg.SlidingWindows(20, 7), tg.Repeatedly(tg.AfterCount(2)), tg.ACCUMULATING),
        ("sliding", 20, 7, 0),
        counted(2),
        accumulates=True,
    ),
    "early counts": Strategy(
        windowed(tg.FixedWindows(10), tg.AfterWatermark(early=tg.AfterCount(2)), tg.ACCUMULATING),
        TENS,
        counted(2),
        accumulates=True,
        closes_empty=True,
    ),
    "early counts, discarded": Strategy(
        windowed(tg.FixedWindows(10), tg.AfterWatermark(early=tg.AfterCount(2)), tg.DISCARDING),
        TENS,
        counted(2),
        closes_empty=True,
    ),
    "marks": Strategy(
        windowed(tg.GlobalWindows(), tg.Repeatedly(MARK), tg.DISCARDING),
        GLOBAL,
        lambda: lambda new: is_mark(new[-1]),
    ),
    "marks or counts": Strategy(
        windowed(tg.GlobalWindows(), tg.Repeatedly(tg.AfterAny(THREE, MARK)), tg.DISCARDING),
        GLOBAL,
        lambda: lambda new: len(new) == 3 or is_mark(new[-1]),
    ),
    "marks and counts": Strategy(
        windowed(tg.FixedWindows(10), tg.Repeatedly(tg.AfterAll(THREE, MARK)), tg.DISCARDING),
        TENS,
        lambda: lambda new: len(new) >= 3 and any(map(is_mark, new)),
    ),
    "the last of more": Strategy(
        windowed(tg.FixedWindows(30), tg.Repeatedly(tg.AfterCount(4)), tg.ACCUMULATING, evictor=tg.KeepLast(2)),
        ("fixed", 30, 0),
        counted(4),
        accumulates=True,
        keeps=2,
    ),
    "count windows": Strategy(lambda: tg.WindowInto(tg.CountWindows(3)), GLOBAL, counted(3), latest=True),
    "sliding count windows": Strategy(
        lambda: tg.WindowInto(tg.SlidingCountWindows(4, every=3)),
        GLOBAL,
        counted(3),
        accumulates=True,
        keeps=4,
        latest=True,
    ),
    "punctuation windows": Strategy(
        lambda: tg.WindowInto(tg.PunctuationWindows(is_mark)), GLOBAL, lambda: lambda new: is_mark(new[-1]), latest=True
    ),
    "delta windows": Strategy(
        lambda: tg.WindowInto(tg.DeltaWindows(9, difference)), GLOBAL, far_from_the_last, latest=True
    ),
}


@dataclass(frozen=True)
class Pane:
    """The result of one firing; `newest` is the last new element, if there is one."""

    values: list[int]
    info: tg.PaneInfo
    newest: int | None


def panes(strategy: Strategy, values: Iterable[int]) -> Iterator[Pane]:
    """The panes of one key and window, from its values in order."""
    fires = strategy.fires()
    arrived: list[int] = []
    new: list[int] = []
    index = 0

    def fire(last: bool) -> Pane:
        nonlocal index
        contents = arrived if strategy.accumulates else new
        remaining = contents if strategy.keeps is None else contents[-strategy.keeps :]
        timing = tg.Timing.ON_TIME if last else tg.Timing.EARLY
        info = tg.PaneInfo(index == 0, last, timing, index, 0 if last else -1)
        index += 1
        return Pane(list(remaining), info, new[-1] if new else None)

    for value in values:
        arrived.append(value)
        new.append(value)
        if fires(new):
            yield fire(last=False)
            new = []
    if new or (strategy.closes_empty and index):
        yield fire(last=True)


class FoldInOrder(tg.DoFn):
    """Folds each key's values in order; emits the result at the end of the window and their number at its expiry."""

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
    """A fold whose result depends on the order."""
    return (so_far * 31 + value) % 1009

"""The elements that a run emitted, and patterns to compare them with.

A `Recorded` is an element with its value, timestamp, window and pane. A `Fired` is a pattern for one: the parts that it
leaves out may be anything. The repr of either is the call of `fired` that makes the pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from tidegate.sdk.data.panes import PaneInfo, Timing
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, SECOND, Timestamp, TimestampLike, timestamp_micros
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, IntervalWindow, window_end

TimingLike: TypeAlias = Timing | Literal["early", "on_time", "late", "unknown"]


class _Any:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return "ANY"


ANY: Final[Any] = _Any()
"""A wildcard for a part that doesn't matter: it equals everything, and can be used inside a value."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """An element that a run emitted. An element in several windows is recorded once for each.

    `window` is None if windows were not recorded.
    """

    value: Any
    timestamp: Timestamp
    window: Any
    pane: PaneInfo

    @property
    def timing(self) -> Timing:
        """Its pane's timing."""
        return self.pane.timing

    @property
    def index(self) -> int:
        """Its pane's index."""
        return self.pane.index

    def __repr__(self) -> str:
        parts = [repr(self.value)]
        if self.window is not None:
            parts.append(f"window={window_text(self.window)}")
        if self.window is None or self.timestamp.micros != window_end(self.window) - 1:
            parts.append(f"timestamp={time_text(self.timestamp.micros)}")
        pane = self.pane
        if pane.timing is not Timing.UNKNOWN:
            parts += [f"timing={pane.timing.value!r}", f"index={pane.index}"]
            if pane.nonspeculative_index not in (pane.index, -1):
                parts.append(f"nonspeculative_index={pane.nonspeculative_index}")
            parts.append(f"is_last={pane.is_last}")
        return f"fired({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Fired:
    """A pattern that equals every `Recorded` with the same parts, ignoring those that are ANY. `fired` makes one."""

    value: Any = ANY
    window: Any = ANY
    timing: Any = ANY
    index: Any = ANY
    timestamp: Any = ANY
    nonspeculative_index: Any = ANY
    is_first: Any = ANY
    is_last: Any = ANY

    def __eq__(self, other: object) -> bool:
        match other:
            case Fired():
                return all(getattr(self, name) is getattr(other, name) or getattr(self, name) == getattr(other, name)
                           for name in _PARTS)  # fmt: skip
            case Recorded(value=value, timestamp=timestamp, window=window, pane=pane):
                found = (
                    value, window, pane.timing, pane.index, timestamp,
                    pane.nonspeculative_index, pane.is_first, pane.is_last,
                )  # fmt: skip
                return all(_accepts(getattr(self, name), part) for name, part in zip(_PARTS, found, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # a pattern equals values with different hashes

    def __repr__(self) -> str:
        parts = [] if self.value is ANY else [repr(self.value)]
        for name in _PARTS[1:]:
            part = getattr(self, name)
            if part is not ANY:
                parts.append(f"{name}={_REPRS.get(name, repr)(part)}")
        return f"fired({', '.join(parts)})"


def fired(
    value: Any = ANY,
    window: Any = ANY,
    timing: TimingLike | Any = ANY,
    index: int | Any = ANY,
    timestamp: TimestampLike | Any = ANY,
    *,
    nonspeculative_index: int | Any = ANY,
    is_first: bool | Any = ANY,
    is_last: bool | Any = ANY,
) -> Fired:
    """A pattern for an element and its pane; parts that are left out may be anything.

    `window` is a window or `(start, end)`, with timestamps in any accepted form. `timing` is a `tg.Timing` or its name.
    """
    return Fired(
        value,
        window if window is ANY else as_window(window),
        timing if timing is ANY else _as_timing(timing),
        index,
        timestamp if timestamp is ANY else Timestamp.of(timestamp),
        nonspeculative_index,
        is_first,
        is_last,
    )


def early(value: Any = ANY, window: Any = ANY, index: int | Any = ANY, **parts: Any) -> Fired:
    """`fired` with timing EARLY; early panes have no non-speculative index."""
    return fired(value, window, Timing.EARLY, index, nonspeculative_index=-1, **parts)


def on_time(value: Any = ANY, window: Any = ANY, index: int | Any = ANY, **parts: Any) -> Fired:
    """`fired` with timing ON_TIME."""
    return fired(value, window, Timing.ON_TIME, index, **parts)


def late(value: Any = ANY, window: Any = ANY, index: int | Any = ANY, **parts: Any) -> Fired:
    """`fired` with timing LATE."""
    return fired(value, window, Timing.LATE, index, **parts)


def as_window(window: Any) -> Any:
    """Convert `(start, end)` to an IntervalWindow, or to the global window if it spans all of time."""
    match window:
        case (start, end):
            interval = IntervalWindow(start, end)
            if (interval.start_micros, interval.end_micros) == (MIN_MICROS, MAX_MICROS):
                return GLOBAL_WINDOW
            return interval
    window_end(window)
    return window


def window_text(window: Any) -> str:
    """A window in a form that `as_window` accepts, if it has one."""
    if type(window) is IntervalWindow:
        return f"({time_text(window.start_micros)}, {time_text(window.end_micros)})"
    return f"{window!r}()" if window is GLOBAL_WINDOW else repr(window)


def time_text(micros: int) -> str:
    """A time in seconds, or MIN_TIMESTAMP or MAX_TIMESTAMP."""
    if micros == MIN_MICROS:
        return "MIN_TIMESTAMP"
    if micros == MAX_MICROS:
        return "MAX_TIMESTAMP"
    seconds, rest = divmod(micros, SECOND)
    if not rest:
        return str(seconds)
    if abs(seconds) < 10**9 and timestamp_micros(micros / SECOND) == micros:
        return repr(micros / SECOND)
    return f"Timestamp(micros={micros})"


def _as_timing(timing: Any) -> Timing:
    match timing:
        case Timing():
            return timing
        case str() if timing in [t.value for t in Timing]:
            return Timing(timing)
    raise BuildError(f"a timing is one of {', '.join(repr(t.value) for t in Timing)}, not {shorten(timing)}")


def _accepts(pattern: Any, part: Any) -> bool:
    return pattern is ANY or same(pattern, part)


def same(a: Any, b: Any) -> bool:
    """True if two values are equal. Arrays are if all their items are equal; values whose comparison raises are not."""
    try:
        equal = a == b
        if isinstance(equal, bool):
            return equal
        every: Callable[[], Any] | None = getattr(equal, "all", None)
        return bool(every()) if every is not None else bool(equal)
    except Exception:
        return False


_PARTS: Final = ("value", "window", "timing", "index", "timestamp", "nonspeculative_index", "is_first", "is_last")
_REPRS: Final[dict[str, Callable[[Any], str]]] = {
    "window": window_text,
    "timing": lambda timing: repr(timing.value),
    "timestamp": lambda timestamp: time_text(timestamp.micros),
}

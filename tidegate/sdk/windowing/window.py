"""Windows themselves: what user code sees of them, and their encoding. `windows.py` says which element gets which.

A window is half open, `[start, end)`, or an object of an author's class with an `end`.
"""

from __future__ import annotations

from functools import total_ordering
from typing import TYPE_CHECKING, Any, Final

from tidegate.sdk import moved
from tidegate.sdk.errors import shorten
from tidegate.sdk.time import (
    MAX_TIMESTAMP,
    MIN_MICROS,
    MIN_TIMESTAMP,
    Timestamp,
    TimestampLike,
    format_micros,
    timestamp_micros,
)


class BoundedWindow:
    """The base of windows. A custom window type needs an `end`, and must be hashable, ordered
    and picklable: `@dataclass(frozen=True, order=True) class Trip(BoundedWindow): end: Timestamp; ...` is all of it.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def end(self) -> Timestamp: ...

    def max_timestamp(self) -> Timestamp:
        """The last instant inside: one microsecond before `end`."""
        return Timestamp(micros=window_end(self) - 1)


class _Interval(BoundedWindow):
    """An interval while it is being made: attributes can be set still, quicker than around a guard."""

    __slots__ = ("end_micros", "start_micros")
    start_micros: int
    end_micros: int


@total_ordering
class IntervalWindow(_Interval):
    """The time from `start` up to, not including, `end`. Ordered by (end, start). ValueError if it would be empty."""

    __slots__ = ()

    def __init__(self, start: TimestampLike, end: TimestampLike) -> None:
        first, past = timestamp_micros(start), timestamp_micros(end)
        if first >= past:
            raise ValueError(f"a window must end after it starts, not [{format_micros(first)}, {format_micros(past)})")
        _set(self, "start_micros", first)
        _set(self, "end_micros", past)

    @staticmethod
    def of_micros(start: int, end: int) -> IntervalWindow:
        """The same from microseconds, unchecked; the engine's way."""
        window: Any = _new(_Interval)
        window.start_micros = start
        window.end_micros = end
        window.__class__ = IntervalWindow
        return window  # type: ignore[no-any-return]

    @property
    def start(self) -> Timestamp:
        """The first instant inside."""
        return Timestamp.of_micros(self.start_micros)

    @property
    def end(self) -> Timestamp:
        """The first instant past it."""
        return Timestamp.of_micros(self.end_micros)

    def intersects(self, other: IntervalWindow) -> bool:
        """Whether the two windows have an instant in common; windows that only touch don't."""
        return self.start_micros < other.end_micros and other.start_micros < self.end_micros

    def union(self, other: IntervalWindow) -> IntervalWindow:
        """The smallest window that spans both."""
        return IntervalWindow.of_micros(
            min(self.start_micros, other.start_micros), max(self.end_micros, other.end_micros)
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a window can't be changed")

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is IntervalWindow
            and self.start_micros == other.start_micros
            and self.end_micros == other.end_micros
        )

    def __lt__(self, other: object) -> bool:
        if type(other) is not IntervalWindow:
            return NotImplemented
        return (self.end_micros, self.start_micros) < (other.end_micros, other.start_micros)

    def __hash__(self) -> int:
        return hash((self.start_micros, self.end_micros))

    def __reduce__(self) -> tuple[object, ...]:
        return IntervalWindow.of_micros, (self.start_micros, self.end_micros)

    def __repr__(self) -> str:
        return f"[{format_micros(self.start_micros)}, {format_micros(self.end_micros)})"


@total_ordering
class GlobalWindow(BoundedWindow):
    """The one window of `GlobalWindows`: all of time. Every call gives the same object."""

    __slots__ = ()

    def __new__(cls) -> GlobalWindow:
        return GLOBAL_WINDOW

    @property
    def start(self) -> Timestamp:
        """`MIN_TIMESTAMP`."""
        return MIN_TIMESTAMP

    @property
    def end(self) -> Timestamp:
        """`MAX_TIMESTAMP`, which the watermark reaches when input ends."""
        return MAX_TIMESTAMP

    def __eq__(self, other: object) -> bool:
        return self is other

    def __lt__(self, other: object) -> bool:
        return False if self is other else NotImplemented

    def __hash__(self) -> int:
        return 1

    def __reduce__(self) -> str:
        return "GLOBAL_WINDOW"

    def __repr__(self) -> str:
        return "GlobalWindow"


_new = object.__new__
_set = object.__setattr__
GLOBAL_WINDOW: Final = _new(GlobalWindow)


def window_end(window: Any) -> int:
    """The end of any window in microseconds; TypeError, naming the object, if it has none."""
    if type(window) is IntervalWindow:
        return window.end_micros
    try:
        return timestamp_micros(window.end)
    except (AttributeError, TypeError, ValueError) as error:
        raise TypeError(f"{shorten(window)} is not a window: it needs an `end` that is a Timestamp") from error


def window_order(window: Any) -> tuple[int, Any]:
    """The sort key of windows: their end, then the window's own order."""
    return window_end(window), window


def encode_window(window: Any) -> bytes:
    """A window as bytes, the same for equal windows.

    Bytes of built-in windows sort as the windows do. A window of a custom type is pickled without a memo,
    so that equal fields give equal bytes; its fields must not hold sets or objects that refer to themselves.
    """
    if type(window) is IntervalWindow:
        return b"\x01" + _sortable(window.end_micros) + _sortable(window.start_micros)
    if window is GLOBAL_WINDOW:
        return b"\x00"
    import io
    import pickle

    out = io.BytesIO(b"\x02")
    out.seek(1)
    pickler = pickle.Pickler(out, protocol=5)
    pickler.fast = True
    pickler.dump(window)
    return out.getvalue()


def decode_window(data: bytes) -> Any:
    """What `encode_window` encoded; ValueError for anything else."""
    match data[:1]:
        case b"\x00" if len(data) == 1:
            return GLOBAL_WINDOW
        case b"\x01" if len(data) == 17:
            return IntervalWindow.of_micros(_unsortable(data[9:]), _unsortable(data[1:9]))
        case b"\x02":
            return moved.loads(data[1:])
    raise ValueError(f"{shorten(data)} is not an encoded window")


def _sortable(micros: int) -> bytes:
    return (micros - MIN_MICROS).to_bytes(8, "big")


def _unsortable(data: bytes) -> int:
    return int.from_bytes(data, "big") + MIN_MICROS

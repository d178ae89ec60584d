"""The assigners that give an element its windows. Data, and pure functions over it.

Authors see window objects (`window_types.py`) and `Timestamp`s. The engine works on *bounds*, pairs of `int`
microseconds `(start, end)`, through `assign_bounds` and `single_window`, and makes objects only for user code
that asks. Rules: bounds saturate at the ends of time; the windows of one element come in ascending order of
(end, start).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.time import (
    MAX_MICROS,
    MIN_MICROS,
    Duration,
    DurationLike,
    Timestamp,
    TimestampLike,
    clamp,
    duration_micros,
)
from tidegate.sdk.user_code.keywords import Keywords
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.user_code.validation import any_timestamp, offset_within, positive_duration, put, user_function
from tidegate.sdk.windowing.calendar import CalendarWindows, calendar_window
from tidegate.sdk.windowing.window import (
    GLOBAL_WINDOW,
    BoundedWindow,
    GlobalWindow,
    IntervalWindow,
    decode_window,
    encode_window,
    window_end,
)

__all__ = [
    "GLOBAL_WINDOW",
    "BoundedWindow",
    "GlobalWindow",
    "IntervalWindow",
    "encode_window",
    "decode_window",
    "window_end",
    "GlobalWindows",
    "GlobalWindowsSince",
    "FixedWindows",
    "SlidingWindows",
    "CumulativeWindows",
    "Sessions",
    "CalendarWindows",
    "WindowAssigner",
    "CustomAssigner",
    "Merged",
    "Assigner",
    "BuiltinAssigner",
    "as_assigner",
    "is_merging",
    "is_global_assigner",
    "element_dependent",
    "may_give_none",
    "may_give_several",
    "merged",
    "Bounds",
    "GLOBAL_BOUNDS",
    "single_window",
    "assign_bounds",
    "assign_windows",
    "assign",
    "merge_sessions",
    "merge_windows",
]

Bounds: TypeAlias = tuple[int, int]
GLOBAL_BOUNDS: Final[Bounds] = (MIN_MICROS, MAX_MICROS)
_NO_OFFSET: Final = Duration(0)


@dataclass(frozen=True, slots=True)
class GlobalWindows(Keywords):
    """One window for everything, which ends at the end of time."""

    kind: Literal["global"] = field(default="global", kw_only=True, repr=False)


@dataclass(frozen=True, slots=True)
class GlobalWindowsSince:
    """The global window for elements from `since` on; no window for those before. `LandmarkWindows` is made of it."""

    since: Timestamp
    kind: Literal["global_since"] = field(default="global_since", kw_only=True, repr=False)

    if TYPE_CHECKING:

        def __init__(self, since: TimestampLike) -> None: ...

    def __post_init__(self) -> None:
        put(self, since=any_timestamp("GlobalWindowsSince", "since", self.since))


@dataclass(frozen=True, slots=True)
class FixedWindows(Keywords):
    """Windows of one `size`, one after another, starting at `offset` past the multiples of `size` since 1970.

    Seconds or any duration; BuildError for size <= 0 or abs(offset) >= size.
    """

    size: Duration
    offset: Duration = _NO_OFFSET
    kind: Literal["fixed"] = field(default="fixed", kw_only=True, repr=False)

    if TYPE_CHECKING:

        def __init__(self, size: DurationLike, offset: DurationLike = 0) -> None: ...

    def __post_init__(self) -> None:
        size = positive_duration("FixedWindows", "size", self.size)
        put(self, size=size, offset=offset_within("FixedWindows", self.offset, size, "size"))


@dataclass(frozen=True, slots=True)
class SlidingWindows(Keywords):
    """Windows of one `size` that start every `period`; a period longer than the size leaves gaps between them.

    Seconds or any duration; BuildError for size or period <= 0 or abs(offset) >= period.
    """

    size: Duration
    period: Duration
    offset: Duration = _NO_OFFSET
    kind: Literal["sliding"] = field(default="sliding", kw_only=True, repr=False)

    if TYPE_CHECKING:

        def __init__(self, size: DurationLike, period: DurationLike, offset: DurationLike = 0) -> None: ...

    def __post_init__(self) -> None:
        period = positive_duration("SlidingWindows", "period", self.period)
        put(
            self,
            size=positive_duration("SlidingWindows", "size", self.size),
            period=period,
            offset=offset_within("SlidingWindows", self.offset, period, "period"),
        )


@dataclass(frozen=True, slots=True)
class CumulativeWindows(Keywords):
    """Windows that share a start and grow by `step` until they are `size` long; then the next ones start.

    Seconds or any duration; BuildError for size or step <= 0, a size that is no multiple of step, or
    abs(offset) >= size.
    """

    size: Duration
    step: Duration
    offset: Duration = _NO_OFFSET
    kind: Literal["cumulative"] = field(default="cumulative", kw_only=True, repr=False)

    if TYPE_CHECKING:

        def __init__(self, size: DurationLike, step: DurationLike, offset: DurationLike = 0) -> None: ...

    def __post_init__(self) -> None:
        size = positive_duration("CumulativeWindows", "size", self.size)
        step = positive_duration("CumulativeWindows", "step", self.step)
        if size.micros % step.micros:
            raise BuildError(f"CumulativeWindows: size ({size!r}) must be a multiple of step ({step!r})")
        put(self, size=size, step=step, offset=offset_within("CumulativeWindows", self.offset, size, "size"))


@dataclass(frozen=True, slots=True)
class Sessions(Keywords):
    """A window per burst of activity: `[ts, ts + gap)`, merged per key while they overlap.

    `gap` is a duration, or a function from the element to one. Sessions that only touch stay apart, as in Beam.
    BuildError for gap <= 0.
    """

    gap: Duration | UserFn
    kind: Literal["sessions"] = field(default="sessions", kw_only=True, repr=False)

    if TYPE_CHECKING:

        def __init__(self, gap: DurationLike | UserFn | Callable[[Any], DurationLike]) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.gap, UserFn) or callable(self.gap):
            put(self, gap=user_function("Sessions", "gap", self.gap))
        else:
            put(self, gap=positive_duration("Sessions", "gap", self.gap))


class WindowAssigner(Keywords, ABC):
    """Base of an author's own assigner: define `assign`, and `merge` if its windows merge."""

    merges: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.merges = cls.merge is not WindowAssigner.merge

    @abstractmethod
    def assign(self, timestamp: Timestamp, element: Any) -> Iterable[BoundedWindow]:
        """The windows of one element as `WindowInto` sees it; none drops it."""

    def merge(self, windows: Sequence[Any]) -> Iterable[tuple[Any, Iterable[Any]]]:
        """What merges among one key's windows: pairs (the merged window, the given windows it replaces).

        `windows` are in ascending order. No window may be in two pairs; those in none stay as they are.
        """
        return ()


@dataclass(frozen=True, slots=True)
class CustomAssigner:
    """An author's `WindowAssigner` as data; `as_assigner` makes it. Equal only if it holds the same object."""

    fn: UserFn
    merges: bool
    kind: Literal["custom"] = field(default="custom", kw_only=True, repr=False)


@dataclass(frozen=True, slots=True)
class Merged:
    """A merging assigner after a grouping: windows are used as they are and never merge again."""

    assigner: Sessions | CustomAssigner
    kind: Literal["merged"] = field(default="merged", kw_only=True, repr=False)


BuiltinAssigner: TypeAlias = (
    GlobalWindows | GlobalWindowsSince | FixedWindows | SlidingWindows | CumulativeWindows | Sessions | CalendarWindows
)
Assigner: TypeAlias = BuiltinAssigner | CustomAssigner | Merged


def as_assigner(assigner: Assigner | WindowAssigner) -> Assigner:
    """An assigner in its data form; BuildError for anything that is not one."""
    match assigner:
        case (
            GlobalWindows()
            | GlobalWindowsSince()
            | FixedWindows()
            | SlidingWindows()
            | CumulativeWindows()
            | Sessions()
            | CalendarWindows()
            | CustomAssigner()
            | Merged()
        ):
            return assigner
        case WindowAssigner():
            return CustomAssigner(UserFn.of(assigner), merges=assigner.merges)
        case type():
            name = assigner.__name__
            raise BuildError(f"windows are assigned by an object, not by the class {name}: write {name}(...)")
    raise BuildError(
        f"{shorten(assigner)} does not assign windows: give FixedWindows(60), Sessions(600), … or a WindowAssigner"
    )


# ---- facts


def is_merging(assigner: Assigner) -> bool:
    """Whether windows of one key may merge in the next grouping."""
    match assigner:
        case Sessions():
            return True
        case CustomAssigner(merges=merges):
            return merges
    return False


def is_global_assigner(assigner: Assigner) -> bool:
    """Whether its only window is the global one."""
    return isinstance(assigner, (GlobalWindows, GlobalWindowsSince))


def element_dependent(assigner: Assigner) -> bool:
    """Whether windows may depend on more than the timestamp; after a merge they depend on the other elements."""
    match assigner:
        case Sessions(gap=gap):
            return isinstance(gap, UserFn)
        case CustomAssigner() | Merged():
            return True
    return False


def may_give_none(assigner: Assigner) -> bool:
    """Whether an element may get no window at all, which drops it."""
    match assigner:
        case GlobalWindowsSince() | CustomAssigner():
            return True
        case SlidingWindows(size=size, period=period):
            return period.micros > size.micros
    return False


def may_give_several(assigner: Assigner) -> bool:
    """Whether one element may get more than one window."""
    match assigner:
        case SlidingWindows(size=size, period=period):
            return size.micros > period.micros
        case CumulativeWindows(size=size, step=step):
            return size.micros > step.micros
        case CustomAssigner():
            return True
    return False


def merged(assigner: Assigner) -> Assigner:
    """The assigner after a grouping: a merging one is marked, the rest are as before."""
    return Merged(assigner) if isinstance(assigner, (Sessions, CustomAssigner)) and is_merging(assigner) else assigner


# ---- assignment


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


def _sliding(size: int, period: int, offset: int) -> Callable[[int], tuple[Bounds, ...]]:
    # All timestamps of [since, until) have the same windows, and most elements fall where the last one did.
    known: tuple[int, int, tuple[Bounds, ...]] = (0, 0, ())

    def windows(ts: int) -> tuple[Bounds, ...]:
        nonlocal known
        since, until, same = known
        if since <= ts < until:
            return same
        last = ts - (ts - offset) % period  # the latest start that is not after ts
        first = last - (size - 1 - (ts - last)) // period * period  # the earliest whose window still holds ts
        same = tuple([(clamp(start), clamp(start + size)) for start in range(first, last + 1, period)])
        known = max(last, first - period + size), min(last + period, first + size) if same else last + period, same
        return same

    return windows


def _cumulative(size: int, step: int, offset: int) -> Callable[[int], tuple[Bounds, ...]]:
    known: tuple[int, int, tuple[Bounds, ...]] = (0, 0, ())

    def windows(ts: int) -> tuple[Bounds, ...]:
        nonlocal known
        since, until, same = known
        if since <= ts < until:
            return same
        into = (ts - offset) % size
        start = ts - into
        since = ts - into % step
        ends = range(since + step, start + size + 1, step)
        # At the end of time several ends saturate to one, which is one window.
        same = tuple(dict.fromkeys([(clamp(start), clamp(end)) for end in ends]))
        known = since, since + step, same
        return same

    return windows


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
                _check_window_type(fn.name, window)
                checked.add(type(window))
        return given if len(given) < 2 else _ascending(given)

    return windows


def _check_window_type(assigner: str, window: Any) -> None:
    window_end(window)
    try:
        hash(window)
        window < window  # noqa: B015  (whether it has an order)
    except TypeError as error:
        raise TypeError(
            f"{assigner} gave {shorten(window)}: a window must be hashable and ordered "
            f"(a dataclass: frozen=True, order=True): {error}"
        ) from error


def _ascending(windows: Iterable[Any]) -> tuple[Any, ...]:
    """By (end, the type's own order), each once."""
    return tuple(sorted(sorted(set(windows)), key=window_end))


# ---- merging


def merge_sessions(bounds: Iterable[Bounds]) -> list[Bounds]:
    """Overlapping bounds united, in ascending order. Touching ones stay apart."""
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

    Only what changes is given: no pair replaces a window by itself alone. Windows and pairs are in ascending
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
        given = _ascending(windows)
        left = set(given)
        result = {}
        for whole, replaced in assigner.merge(given):
            _check_window_type(fn.name, whole)
            parts = _ascending(replaced)
            if whole in result:
                raise ValueError(f"{fn.name}.merge gave {shorten(whole)} twice: give its parts in one pair")
            for part in parts:
                if part not in left:
                    reason = "is in two pairs" if part in given else "was not among the windows it was given"
                    raise ValueError(f"{fn.name}.merge replaces {shorten(part)}, which {reason}")
                left.discard(part)
            if parts and parts != (whole,):
                result[whole] = parts
        for whole in result:
            if whole in left:
                raise ValueError(f"{fn.name}.merge gave {shorten(whole)}: list that window among the parts it replaces")
        return sorted(result.items(), key=lambda pair: window_end(pair[0]))

    return merge

"""The assigners that give an element its windows, as data; `assignment` and `window_merging` have what they compute."""

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
)
from tidegate.sdk.user_code.keywords import Keywords
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.user_code.validation import any_timestamp, offset_within, positive_duration, put, user_function
from tidegate.sdk.windowing.calendar import CalendarWindows
from tidegate.sdk.windowing.window import (
    BoundedWindow,
)

Bounds: TypeAlias = tuple[int, int]
GLOBAL_BOUNDS: Final[Bounds] = (MIN_MICROS, MAX_MICROS)
_NO_OFFSET: Final = Duration(0)


@dataclass(frozen=True, slots=True)
class GlobalWindows(Keywords):
    """One window for everything, which ends at the end of time."""

    kind: Literal["global"] = field(default="global", kw_only=True, repr=False)


@dataclass(frozen=True, slots=True)
class GlobalWindowsSince:
    """Assigns the global window to elements from `since` on, and none to earlier ones. Used by `LandmarkWindows`."""

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
    """Base class of custom assigners: define `assign`, and `merge` if the windows merge."""

    merges: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.merges = cls.merge is not WindowAssigner.merge

    @abstractmethod
    def assign(self, timestamp: Timestamp, element: Any) -> Iterable[BoundedWindow]:
        """The windows of one element as `WindowInto` sees it; none drops it."""

    def merge(self, windows: Sequence[Any]) -> Iterable[tuple[Any, Iterable[Any]]]:
        """The merges among one key's windows, as pairs (merged window, the given windows that it replaces).

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
    """Whether the assigner's only window is the global one."""
    return isinstance(assigner, (GlobalWindows, GlobalWindowsSince))


def element_dependent(assigner: Assigner) -> bool:
    """Whether windows may depend on more than the timestamp, as merged ones do on the other elements."""
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

"""Evictors: which elements a firing sees (`when="before"`) or leaves behind (`when="after"`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.time import Duration, DurationLike, Timestamp
from tidegate.sdk.user_code.keywords import Keywords
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.user_code.validation import any_number, one_of, positive_count, positive_duration, put, user_function

When: TypeAlias = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class KeepLast(Keywords):
    """Keeps the last `n` arrivals."""

    n: int
    when: When = "before"
    kind: Literal["keep_last"] = field(default="keep_last", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        positive_count("KeepLast", "n", self.n)
        one_of("KeepLast", "when", self.when, "before", "after")


@dataclass(frozen=True, slots=True)
class KeepRecent(Keywords):
    """Keeps what is stamped later than the greatest timestamp minus `duration`; BuildError for duration <= 0."""

    duration: Duration
    when: When = "before"
    kind: Literal["keep_recent"] = field(default="keep_recent", kw_only=True, repr=False)

    if TYPE_CHECKING:

        def __init__(self, duration: DurationLike, when: When = "before") -> None: ...

    def __post_init__(self) -> None:
        put(self, duration=positive_duration("KeepRecent", "duration", self.duration))
        one_of("KeepRecent", "when", self.when, "before", "after")


@dataclass(frozen=True, slots=True)
class KeepWithinDelta(Keywords):
    """Keeps elements for which `delta_fn(element, last arrival) < threshold`."""

    threshold: int | float
    delta_fn: UserFn
    when: When = "before"
    kind: Literal["keep_within_delta"] = field(default="keep_within_delta", kw_only=True, repr=False)

    if TYPE_CHECKING:

        def __init__(
            self, threshold: int | float, delta_fn: UserFn | Callable[[Any, Any], Any], when: When = "before"
        ) -> None: ...

    def __post_init__(self) -> None:
        any_number("KeepWithinDelta", "threshold", self.threshold)
        put(self, delta_fn=user_function("KeepWithinDelta", "delta_fn", self.delta_fn))
        one_of("KeepWithinDelta", "when", self.when, "before", "after")


class Evictor(Keywords, ABC):
    """Base class of custom evictors: define `keep`; set `when = "after"` to evict after each firing."""

    when: When = "before"

    @abstractmethod
    def keep(self, elements: Sequence[tuple[Any, Timestamp]]) -> Iterable[int]:
        """The positions in `elements` to keep; the rest is gone for good.

        `elements` are the window's, as (value, timestamp) in arrival order, and never none. Positions may come in
        any order: arrival order stays.
        """


@dataclass(frozen=True, slots=True)
class CustomEvictor:
    """An author's `Evictor` as data; `as_evictor` makes it."""

    fn: UserFn
    when: When = "before"
    kind: Literal["custom"] = field(default="custom", kw_only=True, repr=False)


AnyEvictor: TypeAlias = KeepLast | KeepRecent | KeepWithinDelta | CustomEvictor


def as_evictor(evictor: AnyEvictor | Evictor) -> AnyEvictor:
    """An evictor in its data form; BuildError for anything that is not one."""
    match evictor:
        case KeepLast() | KeepRecent() | KeepWithinDelta() | CustomEvictor():
            return evictor
        case Evictor():
            one_of(type(evictor).__name__, "when", evictor.when, "before", "after")
            return CustomEvictor(UserFn.of(evictor), evictor.when)
        case type():
            name = evictor.__name__
            raise BuildError(f"an evictor is an object, not the class {name}: write {name}(...)")
    raise BuildError(f"{shorten(evictor)} is not an evictor: give KeepLast(100), KeepRecent(60), … or an Evictor")


def keep(evictor: AnyEvictor) -> Callable[[Sequence[Any], Sequence[int]], list[int]]:
    """From the values and timestamps (microseconds) of a window, in arrival order, to the positions that stay.

    Positions are ascending. A custom evictor that gives a position that isn't there raises ValueError when called.
    """
    match evictor:
        case KeepLast(n=n):
            return lambda values, timestamps: list(range(max(0, len(values) - n), len(values)))
        case KeepRecent(duration=Duration(micros=length)):
            return lambda values, timestamps: _recent(timestamps, length)
        case KeepWithinDelta(threshold=threshold, delta_fn=fn):
            delta = fn.load()
            return lambda values, timestamps: [
                i for i, value in enumerate(values) if delta(value, values[-1]) < threshold
            ]
        case CustomEvictor(fn=fn):
            return _custom(fn)


def _recent(timestamps: Sequence[int], length: int) -> list[int]:
    if not timestamps:
        return []
    behind = max(timestamps) - length
    return [i for i, timestamp in enumerate(timestamps) if timestamp > behind]


def _custom(fn: UserFn) -> Callable[[Sequence[Any], Sequence[int]], list[int]]:
    evictor: Evictor = fn.load()

    def kept(values: Sequence[Any], timestamps: Sequence[int]) -> list[int]:
        if not values:
            return []
        elements = [(value, Timestamp(micros=micros)) for value, micros in zip(values, timestamps)]
        given = list(evictor.keep(elements))
        for position in given:
            if type(position) is not int or not 0 <= position < len(values):
                raise ValueError(
                    f"{fn.name}.keep must give positions from 0 to {len(values) - 1}, not {shorten(position)}"
                )
        return sorted(set(given))

    return kept

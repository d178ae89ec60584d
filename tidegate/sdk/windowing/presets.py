"""Whole strategies under one name: count, sliding-count, punctuation, delta and landmark windows.

Each works on global windows, fires repeatedly and stamps its panes with the latest timestamp in them. It stands
where an assigner stands, `WindowInto(CountWindows(100))`, and sets trigger, evictor and accumulation as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tidegate.sdk.time import Duration, DurationLike, Timestamp, TimestampLike
from tidegate.sdk.user_code.keywords import Keywords
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.user_code.validation import (
    any_number,
    any_timestamp,
    one_of,
    positive_count,
    positive_duration,
    put,
    user_function,
)
from tidegate.sdk.windowing.assigners import Assigner, GlobalWindows, GlobalWindowsSince
from tidegate.sdk.windowing.evictors import AnyEvictor, KeepLast
from tidegate.sdk.windowing.triggers import AfterCount, AfterDelta, AfterElement, EveryEventTime, Repeatedly, Trigger

Partial: TypeAlias = Literal["emit", "drop"]


@dataclass(frozen=True, slots=True)
class CountWindows(Keywords):
    """Every `n` elements of a key make one result. `partial` says what becomes of fewer at the end of input."""

    n: int
    partial: Partial = "emit"

    def __post_init__(self) -> None:
        positive_count("CountWindows", "n", self.n)
        one_of("CountWindows", "partial", self.partial, "emit", "drop")


@dataclass(frozen=True, slots=True)
class SlidingCountWindows(Keywords):
    """After every `every` elements of a key, a result over its last `n`."""

    n: int
    every: int

    def __post_init__(self) -> None:
        positive_count("SlidingCountWindows", "n", self.n)
        positive_count("SlidingCountWindows", "every", self.every)


@dataclass(frozen=True, slots=True)
class PunctuationWindows(Keywords):
    """A window ends with each element for which `predicate` holds, and holds that element."""

    predicate: UserFn

    if TYPE_CHECKING:

        def __init__(self, predicate: UserFn | Callable[[Any], Any]) -> None: ...

    def __post_init__(self) -> None:
        put(self, predicate=user_function("PunctuationWindows", "predicate", self.predicate))


@dataclass(frozen=True, slots=True)
class DeltaWindows(Keywords):
    """A window ends with the element for which `delta_fn(reference, element) > threshold`, which is the next
    reference; the first reference is the first element.
    """

    threshold: int | float
    delta_fn: UserFn

    if TYPE_CHECKING:

        def __init__(self, threshold: int | float, delta_fn: UserFn | Callable[[Any, Any], Any]) -> None: ...

    def __post_init__(self) -> None:
        any_number("DeltaWindows", "threshold", self.threshold)
        put(self, delta_fn=user_function("DeltaWindows", "delta_fn", self.delta_fn))


@dataclass(frozen=True, slots=True)
class LandmarkWindows(Keywords):
    """All since the instant `since`, emitted again whenever event time passes a multiple of `every` since 1970.

    Elements stamped before `since` are in no window.
    """

    since: Timestamp
    every: Duration

    if TYPE_CHECKING:

        def __init__(self, since: TimestampLike, every: DurationLike) -> None: ...

    def __post_init__(self) -> None:
        put(
            self,
            since=any_timestamp("LandmarkWindows", "since", self.since),
            every=positive_duration("LandmarkWindows", "every", self.every),
        )


Preset: TypeAlias = CountWindows | SlidingCountWindows | PunctuationWindows | DeltaWindows | LandmarkWindows


@dataclass(frozen=True, slots=True)
class PresetParts:
    """The strategy that a preset stands for."""

    assigner: Assigner
    trigger: Trigger
    accumulates: bool
    evictor: AnyEvictor | None = None
    partial: Partial = "emit"


def preset_parts(preset: Preset) -> PresetParts:
    """The assigner, trigger, accumulation and evictor of a preset."""
    match preset:
        case CountWindows(n=n, partial=partial):
            return PresetParts(GlobalWindows(), Repeatedly(AfterCount(n)), accumulates=False, partial=partial)
        case SlidingCountWindows(n=n, every=every):
            return PresetParts(GlobalWindows(), Repeatedly(AfterCount(every)), accumulates=True, evictor=KeepLast(n))
        case PunctuationWindows(predicate=predicate):
            return PresetParts(GlobalWindows(), Repeatedly(AfterElement(predicate)), accumulates=False)
        case DeltaWindows(threshold=threshold, delta_fn=delta_fn):
            return PresetParts(GlobalWindows(), Repeatedly(AfterDelta(threshold, delta_fn)), accumulates=False)
        case LandmarkWindows(since=since, every=every_time):
            return PresetParts(GlobalWindowsSince(since), EveryEventTime(every_time), accumulates=True)

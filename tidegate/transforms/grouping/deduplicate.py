"""Deduplicate and DeduplicatePerKey: drop an element, or a key, that repeats within a duration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from tidegate.sdk.authoring.dofn import DoFn, on_timer
from tidegate.sdk.authoring.state import EventTimer, ProcessingTimer, ValueStateSpec
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Map, ParDo
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.time import Duration, DurationLike

_SEEN = ValueStateSpec("seen")
_EVENT = EventTimer("forget")
_PROCESSING = ProcessingTimer("forget")


class _FirstByEventTime(DoFn):
    def __init__(self, duration: Duration) -> None:
        self.duration = duration

    def process(
        self,
        element: Any,
        timestamp: Any = DoFn.TimestampParam,
        window: Any = DoFn.WindowParam,
        seen: Any = DoFn.StateParam(_SEEN),
        forget: Any = DoFn.TimerParam(_EVENT),
    ) -> Iterable[Any]:
        if not seen.read():
            seen.write(True)
            if timestamp + self.duration <= window.max_timestamp():  # else the window expires first
                forget.set(timestamp + self.duration)
            yield element

    @on_timer(_EVENT)
    def forgotten(self, seen: Any = DoFn.StateParam(_SEEN)) -> None:
        seen.clear()


class _FirstByClock(DoFn):
    def __init__(self, duration: Duration) -> None:
        self.duration = duration

    def process(
        self,
        element: Any,
        now: Any = DoFn.ProcessingTimeParam,
        seen: Any = DoFn.StateParam(_SEEN),
        forget: Any = DoFn.TimerParam(_PROCESSING),
    ) -> Iterable[Any]:
        if not seen.read():
            seen.write(True)
            forget.set(now + self.duration)
            yield element

    @on_timer(_PROCESSING)
    def forgotten(self, seen: Any = DoFn.StateParam(_SEEN)) -> None:
        seen.clear()


class DeduplicatePerKey(PTransform[PCollection[Any], PCollection[Any]]):
    """Emit the first pair of each key (and window), and drop further ones until `duration` after it.

    `time` is the time domain of `duration`: event time, in which the watermark has to pass the end, or processing time.
    """

    def __init__(
        self, duration: DurationLike, time: Literal["event", "processing"] = "event", *, name: str | None = None
    ) -> None:
        self.duration = Duration.of(duration)
        if self.duration.micros <= 0:
            raise BuildError(f"{type(self).__name__}: the duration must be positive, and is {duration!r}")
        if time not in ("event", "processing"):
            raise BuildError(f"{type(self).__name__}: time is 'event' or 'processing', not {time!r}")
        self.time = time
        self.label = name

    def expand(self, input: PCollection[Any]) -> PCollection[Any]:
        first = _FirstByEventTime if self.time == "event" else _FirstByClock
        return input | ParDo(first(self.duration), name="First").with_output_types(input.element_type)


class Deduplicate(DeduplicatePerKey):
    """Emit the first of equal elements (in each window), and drop further ones until `duration` after it."""

    def expand(self, input: PCollection[Any]) -> PCollection[Any]:
        first = input | Map(_as_key, name="Key") | DeduplicatePerKey(self.duration, self.time, name="PerKey")
        return first | Map(_key_of, name="Element").with_output_types(input.element_type)


def _as_key(element: Any) -> tuple[Any, None]:
    return (element, None)


def _key_of(pair: tuple[Any, None]) -> Any:
    return pair[0]

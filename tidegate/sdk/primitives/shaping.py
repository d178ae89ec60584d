"""Steps that leave values unchanged: Flatten, Reshuffle and WindowInto."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.portable import model as portable
from tidegate.sdk.steps.transform import Transform, pipeline_of
from tidegate.sdk.typehints import hints
from tidegate.sdk.user_code.validation import warn
from tidegate.sdk.windowing.assigners import SlidingWindows
from tidegate.sdk.windowing.strategy import build_strategy, compatible, together

T = TypeVar("T")


class Flatten(Transform):
    """Merges several collections into one: `(a, b) | Flatten()`. Their windows, triggers and accumulation must be
    equal; the allowed lateness is the greatest of theirs."""

    def __ror__(self, pcolls: Iterable[PCollection[T]]) -> PCollection[T]:
        parts = tuple(pcolls)
        result: PCollection[T] = pipeline_of(parts, self).apply(self, parts)
        return result

    def expand(self, input: tuple[PCollection[Any], ...]) -> PCollection[Any]:
        if isinstance(input, PCollection):
            raise BuildError("Flatten takes several collections: write `(a, b) | tg.Flatten()`")
        first, *rest = input
        for other in rest:
            reason = compatible(first.windowing, other.windowing)
            if reason:
                raise BuildError(f"{first!r} and {other!r} can't be flattened: {reason}")
        pipeline = first.pipeline
        out = pipeline.collection(
            element_type=self.output_type or hints.union([p.element_type for p in input]),
            windowing=together([p.windowing for p in input]),
            bounded=all(p.is_bounded for p in input),
        )
        pipeline.add(portable.Flatten, [out], [p.id for p in input])
        return out


class Reshuffle(Transform):
    """Redistributes elements over the workers, with timestamps, windows and panes unchanged; prevents fusion."""

    def __call__(self, pcoll: PCollection[T]) -> PCollection[T]:
        result: PCollection[T] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: PCollection[T]) -> PCollection[T]:
        out = input.pipeline.collection(
            element_type=input.element_type, windowing=input.windowing, bounded=input.is_bounded
        )
        input.pipeline.add(portable.Reshuffle, [out], [input.id])
        return out


class WindowInto(Transform):
    """Assigns windows, and sets the trigger, evictor and accumulation of later groupings (SEMANTICS, Windows,
    Triggers).

    An element that is in several windows becomes one element per window, each of which is assigned windows again.
    """

    def __init__(
        self,
        assigner: Any,
        trigger: Any = None,
        evictor: Any = None,
        accumulation: Any = None,
        allowed_lateness: Any = None,
        timestamp_combiner: Any = None,
        *,
        name: str | None = None,
    ) -> None:
        self.assigner = assigner
        self.parts = {
            "trigger": trigger,
            "evictor": evictor,
            "accumulation": accumulation,
            "allowed_lateness": allowed_lateness,
            "timestamp_combiner": timestamp_combiner,
        }
        self.label = name

    def __call__(self, pcoll: PCollection[T]) -> PCollection[T]:
        result: PCollection[T] = pcoll.pipeline.apply(self, pcoll)
        return result

    def default_label(self) -> str:
        return f"WindowInto({type(self.assigner).__name__})"

    def expand(self, input: PCollection[T]) -> PCollection[T]:
        allow = input.pipeline.allows_unsafe_triggers
        strategy = build_strategy(self.assigner, **self.parts, inherited=input.windowing, allow_unsafe_triggers=allow)
        match strategy.assigner:
            case SlidingWindows(size=size, period=period) if period > size:
                warn(
                    f"SlidingWindows({size.seconds():g}, {period.seconds():g}) leaves gaps: of each "
                    f"{period.seconds():g} s, elements of {(period - size).seconds():g} s are in no window, and are "
                    "dropped. The period is how often a window begins: to have windows overlap, make it the smaller one"
                )
        out = input.pipeline.collection(element_type=input.element_type, windowing=strategy, bounded=input.is_bounded)
        input.pipeline.add(portable.AssignWindows, [out], [input.id], windowing=strategy)
        return out

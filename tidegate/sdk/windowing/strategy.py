"""WindowingStrategy: how a collection is windowed, triggered and accumulated; and what is refused when built.

Refusals raise `BuildError` saying what is wrong and what to do; the caller adds the step and its line. Questions a
caller asks about one more step (`why_not_…`, `compatible`) are answered with the reason, or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.time import Duration, DurationLike
from tidegate.sdk.user_code.validation import nonnegative_duration
from tidegate.sdk.windowing.assigners import (
    Assigner,
    CustomAssigner,
    GlobalWindows,
    Merged,
    WindowAssigner,
    as_assigner,
    is_global_assigner,
    is_merging,
    merged,
)
from tidegate.sdk.windowing.evictors import AnyEvictor, Evictor, as_evictor
from tidegate.sdk.windowing.presets import (
    CountWindows,
    DeltaWindows,
    LandmarkWindows,
    Partial,
    Preset,
    PunctuationWindows,
    SlidingCountWindows,
    preset_parts,
)
from tidegate.sdk.windowing.triggers import (
    DefaultTrigger,
    Trigger,
    can_finish_before_expiry,
    can_fire_before_end_of_time,
    contains_delta,
    continuation,
    fires_more_than_once,
    require_trigger,
)


class AccumulationMode(Enum):
    """Whether a pane contains what arrived since the last pane, or everything in its window."""

    DISCARDING = "discarding"
    ACCUMULATING = "accumulating"


DISCARDING: Final = AccumulationMode.DISCARDING
ACCUMULATING: Final = AccumulationMode.ACCUMULATING


class TimestampCombiner(Enum):
    """The timestamp of a pane; EARLIEST and LATEST range over what arrived, not late, since the last one."""

    END_OF_WINDOW = "end_of_window"
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class WindowingStrategy:
    """The windowing of a collection. `build_strategy` makes checked ones.

    `partial="drop"` drops what arrived since the last firing when a window expires (`CountWindows`).
    """

    assigner: Assigner = GlobalWindows()  # noqa: RUF009  (it can't be changed)
    trigger: Trigger = DefaultTrigger()  # noqa: RUF009
    accumulation: AccumulationMode = ACCUMULATING
    allowed_lateness: Duration = Duration(0)
    timestamp_combiner: TimestampCombiner = TimestampCombiner.END_OF_WINDOW
    evictor: AnyEvictor | None = None
    partial: Partial = "emit"


GLOBAL_DEFAULT: Final = WindowingStrategy()


def build_strategy(
    assigner: Assigner | WindowAssigner | Preset,
    trigger: Trigger | None = None,
    evictor: AnyEvictor | Evictor | None = None,
    accumulation: AccumulationMode | None = None,
    allowed_lateness: DurationLike | None = None,
    timestamp_combiner: TimestampCombiner | None = None,
    inherited: WindowingStrategy | None = None,
    allow_unsafe_triggers: bool = False,
) -> WindowingStrategy:
    """The strategy of a `WindowInto`. Raises BuildError for settings that contradict each other or are unsafe.

    Of `inherited`, the strategy of the input, only `allowed_lateness` has an effect: it is the minimum of the default.
    """
    match assigner:
        case CountWindows() | SlidingCountWindows() | PunctuationWindows() | DeltaWindows() | LandmarkWindows():
            return _from_preset(
                assigner,
                {"trigger": trigger, "evictor": evictor, "accumulation": accumulation},
                _lateness(allowed_lateness, inherited),
                timestamp_combiner,
            )
    windows = as_assigner(assigner)
    when = DefaultTrigger() if trigger is None else require_trigger(trigger)
    lateness = _lateness(allowed_lateness, inherited)
    if is_merging(windows) and contains_delta(when):
        raise BuildError(
            f"AfterDelta can't be used with windows that merge ({windows!r}): its reference element has no meaning "
            "across a merge. Use DeltaWindows, or windows that don't merge"
        )
    if not allow_unsafe_triggers:
        # The global window ends and expires at the same instant, whatever the lateness.
        grace = 0 if is_global_assigner(windows) else lateness.micros
        reason = can_finish_before_expiry(when, grace)
        if reason is not None:
            raise BuildError(f"unsafe trigger: {reason}. (--allow_unsafe_triggers lets it pass)")
    return WindowingStrategy(
        windows,
        when,
        _accumulation(accumulation, when),
        lateness,
        _combiner(timestamp_combiner, TimestampCombiner.END_OF_WINDOW),
        None if evictor is None else as_evictor(evictor),
    )


def _from_preset(
    preset: Preset, beside: dict[str, Any], lateness: Duration, combiner: TimestampCombiner | None
) -> WindowingStrategy:
    for name, value in beside.items():
        if value is not None:
            raise BuildError(
                f"{type(preset).__name__} is a whole strategy and brings its own {name}: leave {name}= out, or write "
                "WindowInto(GlobalWindows(), …) with the parts you want"
            )
    parts = preset_parts(preset)
    return WindowingStrategy(
        parts.assigner,
        parts.trigger,
        ACCUMULATING if parts.accumulates else DISCARDING,
        lateness,
        _combiner(combiner, TimestampCombiner.LATEST),
        parts.evictor,
        parts.partial,
    )


def _lateness(given: DurationLike | None, inherited: WindowingStrategy | None) -> Duration:
    if given is None:
        return inherited.allowed_lateness if inherited is not None else Duration(0)
    return nonnegative_duration("WindowInto", "allowed_lateness", given)


def _accumulation(given: object, trigger: Trigger) -> AccumulationMode:
    if isinstance(given, AccumulationMode):
        return given
    if given is not None:
        raise BuildError(f"accumulation must be tg.DISCARDING or tg.ACCUMULATING, not {shorten(given)}")
    if isinstance(trigger, DefaultTrigger):
        return ACCUMULATING
    if fires_more_than_once(trigger):
        raise BuildError(
            f"{trigger!r} can fire more than once per window: say what later panes hold, accumulation=tg.DISCARDING "
            "(what arrived since the last pane) or accumulation=tg.ACCUMULATING (all the window holds)"
        )
    return DISCARDING


def _combiner(given: object, default: TimestampCombiner) -> TimestampCombiner:
    if given is None:
        return default
    if isinstance(given, TimestampCombiner):
        return given
    names = ", ".join(combiner.name for combiner in TimestampCombiner)
    raise BuildError(f"timestamp_combiner must be one of tg.TimestampCombiner ({names}), not {shorten(given)}")


# ---- what follows


def after_grouping(strategy: WindowingStrategy) -> WindowingStrategy:
    """The strategy of what a grouping emits: windows that merge are marked merged, the trigger is the continuation,
    and nothing is evicted or dropped any more.
    """
    return replace(
        strategy,
        assigner=merged(strategy.assigner),
        trigger=continuation(strategy.trigger),
        evictor=None,
        partial="emit",
    )


def compatible(a: WindowingStrategy, b: WindowingStrategy) -> str | None:
    """Why two collections can't be flattened or co-grouped; None if they can: all is equal that shows in a grouping of
    both, but for `allowed_lateness` (see `together`)."""
    if a.assigner != b.assigner:
        return f"their windows differ: {a.assigner!r} and {b.assigner!r}. {_how_to_align(a.assigner, b.assigner)}"
    if a.trigger != b.trigger:
        return (
            f"their triggers differ: {a.trigger!r} and {b.trigger!r}. Give both the same WindowInto "
            "(a grouping changes the trigger of what it emits)"
        )
    shown: list[tuple[str, Any, Any]] = [
        ("evictors", a.evictor, b.evictor),
        ("timestamp combiners", a.timestamp_combiner.name, b.timestamp_combiner.name),
    ]
    if can_fire_twice(a) or can_fire_twice(b):
        shown.append(("accumulation modes", a.accumulation.name, b.accumulation.name))
    for what, one, other in shown:
        if one != other:
            return f"their {what} differ: {one} and {other}. Give both the same WindowInto"
    return None


def together(parts: Sequence[WindowingStrategy]) -> WindowingStrategy:
    """The strategy of the Flatten of compatible collections, with the largest allowed lateness of any of them.

    Beam uses the strategy of the first collection, so that the result depends on their order.
    """
    return replace(parts[0], allowed_lateness=max(part.allowed_lateness for part in parts))


def _how_to_align(a: Assigner, b: Assigner) -> str:
    match a, b:
        case (Merged(assigner=inner), other) | (other, Merged(assigner=inner)) if inner == other:
            return "One of them has been grouped, so its windows are merged already: apply WindowInto to it again"
        case CustomAssigner(), CustomAssigner():
            return "Assigners of your own are equal only if they are one object: make it once and use it for both"
    return "Apply the same WindowInto to both"


def is_global(strategy: WindowingStrategy) -> bool:
    """Whether all elements are in the global window."""
    return is_global_assigner(strategy.assigner)


def can_fire_twice(strategy: WindowingStrategy) -> bool:
    """Whether a window can emit several panes. If these accumulate, a further grouping counts values again."""
    if isinstance(strategy.trigger, DefaultTrigger):
        return strategy.allowed_lateness.micros > 0 and not is_global(strategy)
    return fires_more_than_once(strategy.trigger)


def why_not_unbounded_group(strategy: WindowingStrategy) -> str | None:
    """Why unbounded data can't be grouped: in the global window the trigger must be able to fire before time ends."""
    if not is_global(strategy) or can_fire_before_end_of_time(strategy.trigger):
        return None
    return (
        f"unbounded data in the global window with {strategy.trigger!r} would never emit anything: apply "
        "WindowInto(FixedWindows(…)) before it, or a trigger that fires as data comes, such as "
        "Repeatedly(AfterProcessingTime(60))"
    )


def why_not_side_input(strategy: WindowingStrategy) -> str | None:
    """Why a collection can't be a side input: which window of it an element sees must follow from a timestamp."""
    inner = strategy.assigner.assigner if isinstance(strategy.assigner, Merged) else strategy.assigner
    if not is_merging(inner):
        return None
    return (
        f"a side input can't have windows that merge ({inner!r}): no main window corresponds to one of them. "
        "Apply WindowInto(FixedWindows(…)) or WindowInto(GlobalWindows()) to the side collection"
    )


def why_not_stateful(strategy: WindowingStrategy) -> str | None:
    """Why a stateful DoFn can't run with this strategy: state is per window, and windows that may merge have none."""
    if not is_merging(strategy.assigner):
        return None
    return (
        f"a stateful DoFn can't run on windows that have yet to merge ({strategy.assigner!r}): group first, or "
        "apply WindowInto with windows that don't merge"
    )

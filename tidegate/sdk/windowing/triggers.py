"""Triggers: when a window emits what it holds. Data, and the facts about it that building and planning ask for.

The machine that runs them is the engine's. What each trigger means is in the table of SEMANTICS, Triggers; a
trigger that has *finished* closes its window for that key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.time import Duration, DurationLike
from tidegate.sdk.user_code.keywords import Keywords
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.user_code.validation import (
    any_number,
    nonnegative_duration,
    positive_count,
    positive_duration,
    put,
    user_function,
)

_NO_DELAY: Final = Duration(0)


class _Composable(Keywords):
    __slots__ = ()

    def or_finally(self, until: Trigger) -> OrFinally:
        """Fires like this trigger, until `until` is due: then it fires once more and is finished."""
        return OrFinally(self, until)  # type: ignore[arg-type]  # only triggers inherit this


@dataclass(frozen=True, slots=True)
class AfterWatermark(_Composable):
    """Fires when the watermark passes the end of the window; before that repeatedly as `early` does, and after it
    repeatedly as `late` does. Without `late`, it is finished after the on-time pane.
    """

    early: Trigger | None = None
    late: Trigger | None = None
    kind: Literal["after_watermark"] = field(default="after_watermark", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        for name, part in (("early", self.early), ("late", self.late)):
            if part is not None:
                _require_trigger("AfterWatermark", part, f"{name}=")


@dataclass(frozen=True, slots=True)
class DefaultTrigger(_Composable):
    """Fires when the watermark passes the window's end, then at every late element."""

    kind: Literal["default"] = field(default="default", kw_only=True, repr=False)


@dataclass(frozen=True, slots=True)
class AfterCount(_Composable):
    """Fires at the n-th element of the pane, then is finished."""

    n: int
    kind: Literal["after_count"] = field(default="after_count", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        positive_count("AfterCount", "n", self.n)


@dataclass(frozen=True, slots=True)
class AfterProcessingTime(_Composable):
    """Fires `delay` after the pane's first element by the wall clock, rounded up to a multiple of `align_to`;
    then is finished.
    """

    delay: Duration = _NO_DELAY
    align_to: Duration | None = None
    kind: Literal["after_processing_time"] = field(default="after_processing_time", kw_only=True, repr=False)

    if TYPE_CHECKING:

        def __init__(self, delay: DurationLike = 0, align_to: DurationLike | None = None) -> None: ...

    def __post_init__(self) -> None:
        put(self, delay=nonnegative_duration("AfterProcessingTime", "delay", self.delay))
        if self.align_to is not None:
            put(self, align_to=positive_duration("AfterProcessingTime", "align_to", self.align_to))


@dataclass(frozen=True, slots=True)
class EveryEventTime(_Composable):
    """Fires whenever the watermark has passed a multiple of `period` since 1970 and the pane has elements, and
    at the window's end; goes on.
    """

    period: Duration
    kind: Literal["every_event_time"] = field(default="every_event_time", kw_only=True, repr=False)

    if TYPE_CHECKING:

        def __init__(self, period: DurationLike) -> None: ...

    def __post_init__(self) -> None:
        put(self, period=positive_duration("EveryEventTime", "period", self.period))


@dataclass(frozen=True, slots=True)
class EveryProcessingTime(_Composable):
    """Fires whenever the wall clock has passed a multiple of `period` since 1970 and the pane has elements, and
    at the window's end; goes on.
    """

    period: Duration
    kind: Literal["every_processing_time"] = field(default="every_processing_time", kw_only=True, repr=False)

    if TYPE_CHECKING:

        def __init__(self, period: DurationLike) -> None: ...

    def __post_init__(self) -> None:
        put(self, period=positive_duration("EveryProcessingTime", "period", self.period))


@dataclass(frozen=True, slots=True)
class AfterElement(_Composable):
    """Fires at the first element for which `predicate` holds (punctuation), then is finished."""

    predicate: UserFn
    kind: Literal["after_element"] = field(default="after_element", kw_only=True, repr=False)

    if TYPE_CHECKING:

        def __init__(self, predicate: UserFn | Callable[[Any], Any]) -> None: ...

    def __post_init__(self) -> None:
        put(self, predicate=user_function("AfterElement", "predicate", self.predicate))


@dataclass(frozen=True, slots=True)
class AfterDelta(_Composable):
    """Fires when `delta_fn(reference, element) > threshold`, then is finished. The reference is the first
    element, then the one that fired. Not for merging windows.
    """

    threshold: int | float
    delta_fn: UserFn
    kind: Literal["after_delta"] = field(default="after_delta", kw_only=True, repr=False)

    if TYPE_CHECKING:

        def __init__(self, threshold: int | float, delta_fn: UserFn | Callable[[Any, Any], Any]) -> None: ...

    def __post_init__(self) -> None:
        any_number("AfterDelta", "threshold", self.threshold)
        put(self, delta_fn=user_function("AfterDelta", "delta_fn", self.delta_fn))


@dataclass(frozen=True, slots=True)
class Repeatedly(_Composable):
    """Fires whenever `trigger` does, which is then reset. Never finishes."""

    trigger: Trigger
    kind: Literal["repeatedly"] = field(default="repeatedly", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        _require_trigger("Repeatedly", self.trigger)


# Authors write the next three as `AfterAny(a, b)`; `dataclasses.replace` and readers of portable pipelines pass the
# same triggers as the tuple `parts=`.


@dataclass(frozen=True, slots=True, init=False, repr=False)
class AfterAny(_Composable):
    """Fires when one of its parts is due, then is finished."""

    parts: tuple[Trigger, ...]
    kind: Literal["after_any"] = field(default="after_any", kw_only=True)

    def __init__(
        self, *triggers: Trigger, parts: tuple[Trigger, ...] = (), kind: Literal["after_any"] = "after_any"
    ) -> None:
        put(self, parts=triggers or tuple(parts), kind=kind)
        self.__post_init__()

    def __post_init__(self) -> None:
        _require_parts("AfterAny", self.parts)

    def __repr__(self) -> str:
        return f"AfterAny({', '.join(map(repr, self.parts))})"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class AfterAll(_Composable):
    """Fires once each of its parts has been due, not necessarily at the same time; then is finished."""

    parts: tuple[Trigger, ...]
    kind: Literal["after_all"] = field(default="after_all", kw_only=True)

    def __init__(
        self, *triggers: Trigger, parts: tuple[Trigger, ...] = (), kind: Literal["after_all"] = "after_all"
    ) -> None:
        put(self, parts=triggers or tuple(parts), kind=kind)
        self.__post_init__()

    def __post_init__(self) -> None:
        _require_parts("AfterAll", self.parts)

    def __repr__(self) -> str:
        return f"AfterAll({', '.join(map(repr, self.parts))})"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class AfterEach(_Composable):
    """Fires as each of its parts does in turn, and is finished with the last. Only the last part may be a trigger that
    never finishes."""

    parts: tuple[Trigger, ...]
    kind: Literal["after_each"] = field(default="after_each", kw_only=True)

    def __init__(
        self, *triggers: Trigger, parts: tuple[Trigger, ...] = (), kind: Literal["after_each"] = "after_each"
    ) -> None:
        put(self, parts=triggers or tuple(parts), kind=kind)
        self.__post_init__()

    def __post_init__(self) -> None:
        _require_parts("AfterEach", self.parts)
        for part in self.parts[:-1]:
            if never_finishes(part):
                raise BuildError(
                    f"AfterEach: {part!r} never finishes, so the parts after it would never fire: "
                    "only the last part may be such a trigger"
                )

    def __repr__(self) -> str:
        return f"AfterEach({', '.join(map(repr, self.parts))})"


@dataclass(frozen=True, slots=True)
class OrFinally(_Composable):
    """Fires like `trigger`, until `until` is due: then it fires once more and is finished. Written
    `t.or_finally(u)`."""

    trigger: Trigger
    until: Trigger
    kind: Literal["or_finally"] = field(default="or_finally", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        _require_trigger("or_finally", self.trigger)
        _require_trigger("or_finally", self.until)

    def __repr__(self) -> str:
        return f"{self.trigger!r}.or_finally({self.until!r})"


@dataclass(frozen=True, slots=True)
class Never(_Composable):
    """Never fires: a window emits only when it expires."""

    kind: Literal["never"] = field(default="never", kw_only=True, repr=False)


Trigger: TypeAlias = (
    AfterWatermark
    | DefaultTrigger
    | AfterCount
    | AfterProcessingTime
    | EveryEventTime
    | EveryProcessingTime
    | AfterElement
    | AfterDelta
    | Repeatedly
    | AfterAny
    | AfterAll
    | AfterEach
    | OrFinally
    | Never
)


def require_trigger(value: object) -> Trigger:
    """The trigger; BuildError if it is something else, or a class in place of an object."""
    return _require_trigger("trigger", value)


def _require_trigger(owner: str, value: object, name: str = "") -> Trigger:
    if isinstance(value, _Composable):
        return value  # type: ignore[return-value]  # only triggers inherit it
    hint = f": write {value.__name__}(...)" if isinstance(value, type) and issubclass(value, _Composable) else ""
    raise BuildError(f"{owner}: {name}{shorten(value)} is not a trigger{hint}")


def _require_parts(owner: str, parts: tuple[object, ...]) -> None:
    if not parts:
        raise BuildError(f"{owner}: give at least one trigger")
    for part in parts:
        _require_trigger(owner, part)


# ---- what follows a grouping


def continuation(trigger: Trigger) -> Trigger:
    """The trigger of what a grouping under `trigger` emits (SEMANTICS, After a grouping; as in Beam)."""
    match trigger:
        case AfterCount() | AfterElement() | AfterDelta():
            return AfterCount(1)
        case AfterProcessingTime() | EveryEventTime() | EveryProcessingTime():
            return Repeatedly(AfterCount(1))
        case AfterWatermark(early=early, late=late):
            return AfterWatermark(early and continuation(early), late and continuation(late))
        case DefaultTrigger() | Never():
            return trigger
        case Repeatedly(trigger=inner):
            return Repeatedly(continuation(inner))
        case AfterAny(parts=parts):
            return AfterAny(*map(continuation, parts))
        case AfterAll(parts=parts):
            return AfterAll(*map(continuation, parts))
        case AfterEach(parts=parts):
            return Repeatedly(AfterAny(*map(continuation, parts)))
        case OrFinally(trigger=inner, until=until):
            return OrFinally(continuation(inner), continuation(until))


# ---- facts


class _Moment(IntEnum):
    """When something about a trigger can happen at the earliest. `and` of moments is their max, `or` their min."""

    BEFORE_END = 0
    AT_END = 1
    NEVER = 2


def _first_firing(trigger: Trigger) -> _Moment:
    match trigger:
        case AfterWatermark(early=early):
            return min(_Moment.AT_END, _first_firing(early)) if early else _Moment.AT_END
        case DefaultTrigger():
            return _Moment.AT_END
        case Repeatedly(trigger=inner):
            return _first_firing(inner)
        case AfterAny(parts=parts):
            return min(map(_first_firing, parts))
        case AfterAll(parts=parts):
            return max(map(_first_firing, parts))
        case AfterEach(parts=parts):
            return _first_firing(parts[0])
        case OrFinally(trigger=inner, until=until):
            return min(_first_firing(inner), _first_firing(until))
        case Never():
            return _Moment.NEVER
    return _Moment.BEFORE_END


def _finish(trigger: Trigger) -> _Moment:
    match trigger:
        case AfterWatermark(late=late):
            return _Moment.NEVER if late else _Moment.AT_END
        case DefaultTrigger() | EveryEventTime() | EveryProcessingTime() | Repeatedly() | Never():
            return _Moment.NEVER
        case AfterAny() | AfterAll():
            return _first_firing(trigger)  # it finishes by firing
        case AfterEach(parts=parts):
            return max(map(_finish, parts))
        case OrFinally(trigger=inner, until=until):
            return min(_finish(inner), _first_firing(until))
    return _Moment.BEFORE_END


def never_finishes(trigger: Trigger) -> bool:
    """Whether the trigger never finishes before its window expires."""
    return _finish(trigger) is _Moment.NEVER


def can_finish_before_expiry(trigger: Trigger, lateness_micros: int) -> str | None:
    """Why data may be lost: the trigger can finish while its window, `lateness_micros` past its end, still accepts
    elements. None if it can't. (Beam's rule of unsafe triggers.)
    """
    match _finish(trigger):
        case _Moment.BEFORE_END:
            hint = f"Repeatedly({trigger!r}), or .or_finally/AfterEach with a last part that goes on"
            if isinstance(trigger, (AfterCount, AfterProcessingTime, AfterElement, AfterDelta)):
                hint = f"Repeatedly({trigger!r})"
            return f"{trigger!r} can finish before its window ends; elements after that would be dropped. Use {hint}"
        case _Moment.AT_END if lateness_micros > 0:
            seconds = lateness_micros / 1e6
            fix = "late=AfterCount(1)" if isinstance(trigger, AfterWatermark) else "AfterWatermark(late=AfterCount(1))"
            return (
                f"{trigger!r} finishes at its window's end, but allowed_lateness lets elements come for {seconds:g} s "
                f"more; they would be dropped. Add {fix}, or set allowed_lateness=0"
            )
    return None


def fires_more_than_once(trigger: Trigger) -> bool:
    """Whether a window can emit several panes, so that the author has to choose an accumulation mode."""
    match trigger:
        case AfterWatermark(early=early, late=late):
            return any(part and _first_firing(part) is not _Moment.NEVER for part in (early, late))
        case DefaultTrigger() | EveryEventTime() | EveryProcessingTime():
            return True
        case Repeatedly(trigger=inner):
            return _first_firing(inner) is not _Moment.NEVER
        case AfterEach(parts=parts):
            return len(parts) > 1 or fires_more_than_once(parts[0])
        case OrFinally(trigger=inner):
            return fires_more_than_once(inner)
    return False


def can_fire_before_end_of_time(trigger: Trigger) -> bool:
    """Whether the trigger can fire in the global window before the end of the input. A grouping of unbounded input in
    the global window requires this."""
    return _first_firing(trigger) is _Moment.BEFORE_END


def is_data_driven(trigger: Trigger, *, late: bool = True) -> bool:
    """Whether the firings depend on the elements and their order of arrival.

    With `late=False`, the `late` part of an `AfterWatermark` is ignored: bounded input never reaches it.
    """
    match trigger:
        case AfterCount() | AfterElement() | AfterDelta():
            return True
        case AfterWatermark(early=early) if not late:
            return early is not None and is_data_driven(early, late=late)
    return any(is_data_driven(part, late=late) for part in parts_of(trigger))


def waits_for_watermark(trigger: Trigger) -> bool:
    """Whether it, or a part of it, fires because the watermark has advanced."""
    return isinstance(trigger, DefaultTrigger | AfterWatermark | EveryEventTime) or any(
        map(waits_for_watermark, parts_of(trigger))
    )


def contains_delta(trigger: Trigger) -> bool:
    """Whether the trigger contains an `AfterDelta`, whose reference element has no meaning after a merge."""
    return isinstance(trigger, AfterDelta) or any(map(contains_delta, parts_of(trigger)))


def parts_of(trigger: Trigger) -> tuple[Trigger, ...]:
    """The direct parts of a composite trigger, in order."""
    match trigger:
        case AfterWatermark(early=early, late=late):
            return tuple(part for part in (early, late) if part is not None)
        case Repeatedly(trigger=inner):
            return (inner,)
        case AfterAny(parts=parts) | AfterAll(parts=parts) | AfterEach(parts=parts):
            return parts
        case OrFinally(trigger=inner, until=until):
            return inner, until
    return ()

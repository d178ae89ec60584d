"""Declarations and interfaces of a DoFn's state cells and timers, which exist per key and window.

SEMANTICS, State and timers, has the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, overload

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.time import Duration, DurationLike, TimestampLike
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.user_code.validation import positive_duration

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
Input = TypeVar("Input", contravariant=True)
Result = TypeVar("Result", covariant=True)

CellKind: TypeAlias = Literal["value", "bag", "set", "map", "ordered_list", "combining"]
TimeDomain: TypeAlias = Literal["event", "processing"]


@dataclass(frozen=True, slots=True)
class StateSpec:
    """The declaration of a state cell. `ttl` is in processing time since the last write; not used on bounded input."""

    name: str
    cell: CellKind
    ttl: Duration | None = None
    combine_fn: UserFn | None = None


@dataclass(frozen=True, slots=True)
class TimerSpec:
    """The declaration of a timer, which may be set under any number of tags."""

    name: str
    domain: TimeDomain = "event"


def _spec(name: str, cell: CellKind, ttl: DurationLike | None, combine_fn: UserFn | None = None) -> StateSpec:
    if not name or not isinstance(name, str):
        raise BuildError(f"a state cell needs a name, a string; got {name!r}")
    if isinstance(ttl, type):
        raise BuildError(
            f"state cell {name!r}: a cell takes no type or coder, because it can contain any value: leave it out"
        )
    duration = None if ttl is None else positive_duration(f"state cell {name!r}", "ttl", ttl)
    return StateSpec(name, cell, duration, combine_fn)


def ValueStateSpec(name: str, ttl: DurationLike | None = None) -> StateSpec:
    """One value; until the first `write`, `read()` returns None, and `read(0)` returns 0."""
    return _spec(name, "value", ttl)


def BagStateSpec(name: str, ttl: DurationLike | None = None) -> StateSpec:
    """A list to which values are added until it is cleared."""
    return _spec(name, "bag", ttl)


def SetStateSpec(name: str, ttl: DurationLike | None = None) -> StateSpec:
    """A set."""
    return _spec(name, "set", ttl)


def MapStateSpec(name: str, ttl: DurationLike | None = None) -> StateSpec:
    """A map from key to value."""
    return _spec(name, "map", ttl)


def OrderedListStateSpec(name: str, ttl: DurationLike | None = None) -> StateSpec:
    """Values ordered by timestamp, read and cleared by range."""
    return _spec(name, "ordered_list", ttl)


def CombiningStateSpec(name: str, combine_fn: Any, ttl: DurationLike | None = None) -> StateSpec:
    """The result of a combiner for the values added so far."""
    from tidegate.sdk.authoring.combine import as_combine_fn

    return _spec(name, "combining", ttl, UserFn.of(as_combine_fn(combine_fn)))


def EventTimer(name: str) -> TimerSpec:
    """An event-time timer: it fires when the watermark passes its instant."""
    return _timer(name, "event")


def ProcessingTimer(name: str) -> TimerSpec:
    """A processing-time timer: it fires when the clock reaches its instant."""
    return _timer(name, "processing")


def _timer(name: str, domain: TimeDomain) -> TimerSpec:
    if not name or not isinstance(name, str):
        raise BuildError(f"a timer needs a name, a string; got {name!r}")
    return TimerSpec(name, domain)


class ValueState(Protocol[T]):
    """A value cell, as a DoFn uses it."""

    @overload
    def read(self) -> T | None: ...
    @overload
    def read(self, default: T) -> T:
        """The value, or `default` before the first write. The value must not be modified in place."""

    def write(self, value: T) -> None:
        """Replace the value."""

    def clear(self) -> None:
        """Remove the value."""


class BagState(Protocol[T]):
    """A bag cell, as a DoFn uses it."""

    def read(self) -> Iterable[T]:
        """All values, in the order in which they were added."""

    def add(self, value: T) -> None:
        """Add a value."""

    def clear(self) -> None:
        """Remove everything."""


class SetState(Protocol[T]):
    """A set cell, as a DoFn uses it."""

    def read(self) -> Iterable[T]:
        """The members."""

    def add(self, value: T) -> None:
        """Add a value."""

    def discard(self, value: T) -> None:
        """Remove a value if it is a member."""

    def __contains__(self, value: object) -> bool: ...

    def clear(self) -> None:
        """Remove everything."""


class MapState(Protocol[K, V]):
    """A map cell, as a DoFn uses it."""

    def get(self, key: K, default: V | None = None) -> V | None:
        """The value under `key`."""

    def put(self, key: K, value: V) -> None:
        """Set the value under `key`."""

    def remove(self, key: K) -> None:
        """Remove `key` if it is present."""

    def items(self) -> Iterable[tuple[K, V]]:
        """All pairs."""

    def __contains__(self, key: object) -> bool: ...

    def clear(self) -> None:
        """Remove everything."""


class OrderedListState(Protocol[T]):
    """An ordered list cell, as a DoFn uses it: values by timestamp, ties in the order in which they were added."""

    def read(self) -> Iterator[tuple[Any, T]]:
        """All pairs `(Timestamp, value)`, in order."""

    def read_range(self, start: TimestampLike, end: TimestampLike) -> Iterator[tuple[Any, T]]:
        """The pairs with `start <= timestamp < end`, in order."""

    def add(self, timestamp: TimestampLike, value: T) -> None:
        """Add a value."""

    def clear_range(self, start: TimestampLike, end: TimestampLike) -> None:
        """Remove the values with `start <= timestamp < end`."""

    def clear(self) -> None:
        """Remove everything."""


class CombiningState(Protocol[Input, Result]):
    """A combining cell, as a DoFn uses it."""

    def read(self) -> Result:
        """The result so far; without input, None if the combiner has no result for that (max, min)."""

    def add(self, value: Input) -> None:
        """Add an input."""

    def clear(self) -> None:
        """Remove all inputs."""


class Timer(Protocol):
    """A timer, as a DoFn uses it."""

    def set(self, at: TimestampLike, *, tag: str = "", output_timestamp: TimestampLike | None = None) -> None:
        """Set the timer `tag` to `at`, replacing an earlier setting."""

    def clear(self, *, tag: str = "") -> None:
        """Remove the timer `tag`."""


_METHODS: Final[dict[CellKind | Literal["timer"], tuple[str, ...]]] = {
    "value": ("read(default=None)", "write(value)", "clear()"),
    "bag": ("read()", "add(value)", "clear()"),
    "set": ("read()", "add(value)", "discard(value)", "clear()"),
    "map": ("get(key, default=None)", "put(key, value)", "remove(key)", "items()", "clear()"),
    "ordered_list": ("read()", "read_range(start, end)", "add(timestamp, value)", "clear_range(start, end)", "clear()"),
    "combining": ("read()", "add(value)", "clear()"),
    "timer": ("set(at, tag='', output_timestamp=None)", "clear(tag='')"),
}
_TITLES: Final[dict[CellKind | Literal["timer"], str]] = {
    "value": "a ValueState",
    "bag": "a BagState",
    "set": "a SetState",
    "map": "a MapState",
    "ordered_list": "an OrderedListState",
    "combining": "a CombiningState",
    "timer": "a timer",
}


def methods_of(spec: StateSpec | TimerSpec) -> frozenset[str]:
    """The names of the methods of the declared cell or timer."""
    return frozenset(method.partition("(")[0] for method in _METHODS[_kind(spec)])


def describe_methods(spec: StateSpec | TimerSpec) -> str:
    """The methods of the declared cell or timer, for messages: `a BagState has read(), add(value) and clear()`."""
    *first, last = _METHODS[_kind(spec)]
    return f"{_TITLES[_kind(spec)]} has {', '.join(first)} and {last}"


def _kind(spec: StateSpec | TimerSpec) -> CellKind | Literal["timer"]:
    return spec.cell if isinstance(spec, StateSpec) else "timer"


def parameter_of(value: object) -> str | None:
    """The default by which a parameter requests the cell or timer of a spec; None if `value` is not a spec."""
    match value:
        case StateSpec():
            return "tg.DoFn.StateParam(SPEC)"
        case TimerSpec():
            return "tg.DoFn.TimerParam(SPEC)"
    return None


def require_spec(value: object, kind: type[StateSpec] | type[TimerSpec], taker: str) -> None:
    """Raise BuildError unless `value` is a spec of this kind. `taker` is the function it was passed to."""
    if isinstance(value, kind):
        return
    made = "tg.ValueStateSpec('name')" if kind is StateSpec else "tg.EventTimer('name') or tg.ProcessingTimer('name')"
    what = "state cell" if kind is StateSpec else "timer"
    other = parameter_of(value)
    advice = f": write {other}" if other is not None else f", such as {made}"
    if getattr(value, "__module__", None) == __name__ and callable(value):
        advice = f": give it a name, as in tg.{getattr(value, '__name__', '')}('name')"
    raise BuildError(f"{taker} takes the spec of a {what}, not {shorten(value, 60)}{advice}")

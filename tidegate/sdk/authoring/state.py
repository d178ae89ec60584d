"""State cells and timers a DoFn declares; per key and window (SEMANTICS, State and timers)."""

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
    """The declaration of one cell. `ttl` counts processing time from the last write; off on bounded input."""

    name: str
    cell: CellKind
    ttl: Duration | None = None
    combine_fn: UserFn | None = None


@dataclass(frozen=True, slots=True)
class TimerSpec:
    """The declaration of a timer, with any number of dynamic tags."""

    name: str
    domain: TimeDomain = "event"


def _spec(name: str, cell: CellKind, ttl: DurationLike | None, combine_fn: UserFn | None = None) -> StateSpec:
    if not name or not isinstance(name, str):
        raise BuildError(f"a state cell needs a name, a string; got {name!r}")
    if isinstance(ttl, type):
        raise BuildError(
            f"state cell {name!r}: a cell takes no type and no coder, since it holds any value: leave it out"
        )
    life = None if ttl is None else positive_duration(f"state cell {name!r}", "ttl", ttl)
    return StateSpec(name, cell, life, combine_fn)


def ValueStateSpec(name: str, ttl: DurationLike | None = None) -> StateSpec:
    """One value; `read()` gives None until the first `write`, `read(0)` gives 0."""
    return _spec(name, "value", ttl)


def BagStateSpec(name: str, ttl: DurationLike | None = None) -> StateSpec:
    """A list that only grows, until cleared."""
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
    """The running result of a combiner."""
    from tidegate.sdk.authoring.combine import as_combine_fn

    return _spec(name, "combining", ttl, UserFn.of(as_combine_fn(combine_fn)))


def EventTimer(name: str) -> TimerSpec:
    """A timer on event time: due when the watermark passes its instant."""
    return _timer(name, "event")


def ProcessingTimer(name: str) -> TimerSpec:
    """A timer on the clock."""
    return _timer(name, "processing")


def _timer(name: str, domain: TimeDomain) -> TimerSpec:
    if not name or not isinstance(name, str):
        raise BuildError(f"a timer needs a name, a string; got {name!r}")
    return TimerSpec(name, domain)


class ValueState(Protocol[T]):
    """What a DoFn sees of a value cell."""

    @overload
    def read(self) -> T | None: ...
    @overload
    def read(self, default: T) -> T:
        """The value, and before the first write `default`, or None; it must not be changed in place."""

    def write(self, value: T) -> None:
        """Replace the value."""

    def clear(self) -> None:
        """Forget the value."""


class BagState(Protocol[T]):
    """What a DoFn sees of a bag cell."""

    def read(self) -> Iterable[T]:
        """All values in the order they were added."""

    def add(self, value: T) -> None:
        """Add one."""

    def clear(self) -> None:
        """Forget all."""


class SetState(Protocol[T]):
    """What a DoFn sees of a set cell."""

    def read(self) -> Iterable[T]:
        """The members."""

    def add(self, value: T) -> None:
        """Add one."""

    def discard(self, value: T) -> None:
        """Remove one if it is there."""

    def __contains__(self, value: object) -> bool: ...

    def clear(self) -> None:
        """Forget all."""


class MapState(Protocol[K, V]):
    """What a DoFn sees of a map cell."""

    def get(self, key: K, default: V | None = None) -> V | None:
        """The value under `key`."""

    def put(self, key: K, value: V) -> None:
        """Set the value under `key`."""

    def remove(self, key: K) -> None:
        """Remove `key` if it is there."""

    def items(self) -> Iterable[tuple[K, V]]:
        """All pairs."""

    def __contains__(self, key: object) -> bool: ...

    def clear(self) -> None:
        """Forget all."""


class OrderedListState(Protocol[T]):
    """What a DoFn sees of an ordered list cell: values by timestamp, ties in the order they were added."""

    def read(self) -> Iterator[tuple[Any, T]]:
        """All `(Timestamp, value)` in order."""

    def read_range(self, start: TimestampLike, end: TimestampLike) -> Iterator[tuple[Any, T]]:
        """Those with `start <= timestamp < end`."""

    def add(self, timestamp: TimestampLike, value: T) -> None:
        """Add one."""

    def clear_range(self, start: TimestampLike, end: TimestampLike) -> None:
        """Forget those with `start <= timestamp < end`."""

    def clear(self) -> None:
        """Forget all."""


class CombiningState(Protocol[Input, Result]):
    """What a DoFn sees of a combining cell."""

    def read(self) -> Result:
        """The combined result so far; None without input, for a combiner that gives nothing for none (max, min)."""

    def add(self, value: Input) -> None:
        """Add one input."""

    def clear(self) -> None:
        """Start anew."""


class Timer(Protocol):
    """What a DoFn sees of a timer."""

    def set(self, at: TimestampLike, *, tag: str = "", output_timestamp: TimestampLike | None = None) -> None:
        """Set, or move, the timer `tag` to `at`."""

    def clear(self, *, tag: str = "") -> None:
        """Remove the timer `tag`."""


_OFFERS: Final[dict[CellKind | Literal["timer"], tuple[str, ...]]] = {
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
    """The names of what a DoFn may call of the cell or timer that is declared so."""
    return frozenset(offer.partition("(")[0] for offer in _OFFERS[_kind(spec)])


def offers(spec: StateSpec | TimerSpec) -> str:
    """The same for messages: `a BagState has read(), add(value) and clear()`."""
    *first, last = _OFFERS[_kind(spec)]
    return f"{_TITLES[_kind(spec)]} has {', '.join(first)} and {last}"


def _kind(spec: StateSpec | TimerSpec) -> CellKind | Literal["timer"]:
    return spec.cell if isinstance(spec, StateSpec) else "timer"


def parameter_of(value: object) -> str | None:
    """How a parameter asks for the cell or timer that is declared so; None for what declares none."""
    match value:
        case StateSpec():
            return "tg.DoFn.StateParam(SPEC)"
        case TimerSpec():
            return "tg.DoFn.TimerParam(SPEC)"
    return None


def require_spec(value: object, kind: type[StateSpec] | type[TimerSpec], taker: str) -> None:
    """Raise BuildError for what is no spec of this kind. `taker` is what was given it."""
    if isinstance(value, kind):
        return
    made = "tg.ValueStateSpec('name')" if kind is StateSpec else "tg.EventTimer('name') or tg.ProcessingTimer('name')"
    what = "state cell" if kind is StateSpec else "timer"
    other = parameter_of(value)
    cure = f": write {other}" if other is not None else f", such as {made}"
    if getattr(value, "__module__", None) == __name__ and callable(value):
        cure = f": give it a name, as in tg.{getattr(value, '__name__', '')}('name')"
    raise BuildError(f"{taker} takes the spec of a {what}, not {shorten(value, 60)}{cure}")

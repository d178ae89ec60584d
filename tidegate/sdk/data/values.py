"""Values that a step may emit with a tag, a timestamp, or windows."""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar, final

from tidegate.sdk.data.panes import NO_PANE, PaneInfo
from tidegate.sdk.data.timestamps import element_micros
from tidegate.sdk.time import Timestamp, TimestampLike

T = TypeVar("T")


@final
class TimestampedValue(Generic[T]):
    """A value with its event time; SEMANTICS, Time, lists the accepted forms of `timestamp`.

    ValueError for the end of time, which no element may have.
    """

    __slots__ = ("micros", "value")

    def __init__(self, value: T, timestamp: TimestampLike) -> None:
        self.value = value
        # A fast path for plausible numbers of seconds, since one of these may be created per element.
        if timestamp.__class__ is float and -9e12 < timestamp < 1e11:
            self.micros = (timestamp * 1e6).__round__()  # faster than `round`, which looks the method up
        elif timestamp.__class__ is int and -9e12 < timestamp < 1e11:
            self.micros = timestamp * 1_000_000
        else:
            self.micros = element_micros(timestamp)

    @property
    def timestamp(self) -> Timestamp:
        """The event time."""
        return Timestamp.of_micros(self.micros)

    def __eq__(self, other: object) -> bool:
        return type(other) is TimestampedValue and (other.value, other.micros) == (self.value, self.micros)

    def __hash__(self) -> int:
        return hash((self.value, self.micros))

    def __repr__(self) -> str:
        from tidegate.sdk.time import format_micros

        return f"TimestampedValue({self.value!r}, {format_micros(self.micros)})"


@final
class TaggedOutput(Generic[T]):
    """A value for the output `tag`, which the step must declare with `.with_outputs(tag)`."""

    __slots__ = ("tag", "value")

    def __init__(self, tag: str, value: T) -> None:
        self.tag = tag
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is TaggedOutput and (other.tag, other.value) == (self.tag, self.value)

    def __hash__(self) -> int:
        return hash((self.tag, self.value))

    def __repr__(self) -> str:
        return f"TaggedOutput({self.tag!r}, {self.value!r})"


@final
class WindowedValue(Generic[T]):
    """A value with its timestamp, windows and pane, emitted by `finish_bundle` and compared by tests."""

    __slots__ = ("micros", "pane", "value", "windows")

    def __init__(self, value: T, timestamp: TimestampLike, windows: tuple[Any, ...], pane: PaneInfo = NO_PANE) -> None:
        self.value = value
        self.micros = element_micros(timestamp)
        self.windows = tuple(windows)
        self.pane = pane

    def __eq__(self, other: object) -> bool:
        return type(other) is WindowedValue and (other.value, other.micros, other.windows, other.pane) == (
            self.value,
            self.micros,
            self.windows,
            self.pane,
        )

    def __hash__(self) -> int:
        return hash((self.value, self.micros, self.windows))

    def __repr__(self) -> str:
        from tidegate.sdk.time import format_micros

        return f"WindowedValue({self.value!r}, {format_micros(self.micros)}, {self.windows!r}, {self.pane!r})"


SPECIAL: Final = frozenset({TimestampedValue, TaggedOutput, WindowedValue})
"""The classes whose instances are unwrapped between steps; `type(x) in SPECIAL` is a cheap test for them."""

"""The record of a traced grouping or stateful step: elements, windows, panes and watermarks, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from tidegate.sdk.time import MIN_MICROS

UNSTAMPED: Final = MIN_MICROS
"""The timestamp of elements that were given none."""

Standing: TypeAlias = Literal["in time", "behind", "late", "dropped late", "dropped closed", "no window"]
"""The status of an element on arrival (SEMANTICS, Lateness).

`behind` the watermark, but in a window that has not ended; `late`, in windows that have ended; dropped because its
windows have expired (`dropped late`) or because their trigger has finished (`dropped closed`); or in `no window`.
"""

Timing: TypeAlias = Literal["early", "on_time", "late", "unknown"]


@dataclass(frozen=True, slots=True)
class Moment:
    """When something happened: the number of the event at its step, and processing time (µs)."""

    event: int
    clock: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """An element that reached the step. `key` is a number in `Traced.keys`, -1 without keys; `timestamp` is in µs."""

    at: Moment
    key: int
    value: str
    timestamp: int
    standing: Standing


@dataclass(frozen=True, slots=True)
class Window:
    """A window of one key from its first element to its expiry, or to when it was merged `into` another (its number).

    Bounds are µs, None for a start or an end of time that it does not have. `closed` is None if the run ended first.
    """

    key: int
    name: str
    start: int | None
    end: int | None
    opened: Moment
    closed: Moment | None = None
    into: int | None = None


@dataclass(frozen=True, slots=True)
class Firing:
    """A pane of a key, or an element emitted by a stateful step. `window` is an index in `Traced.windows`, or None.

    `name`, `start` and `end` are the window's, as in `Window`; `timestamp` is in µs.
    """

    at: Moment
    key: int
    value: str
    timestamp: int
    window: int | None
    name: str
    start: int | None
    end: int | None
    timing: Timing
    index: int
    nonspeculative_index: int
    is_first: bool
    is_last: bool


@dataclass(frozen=True, slots=True)
class Traced:
    """The record of one step. For a long run it is a sample: one in `every` elements, windows or panes.

    `watermark` has (moment, µs) for each advance, `counts` the numbers of elements, dropped elements and panes, and
    `facts` a description of the step.
    """

    label: str
    where: str
    facts: tuple[tuple[str, str], ...]
    bounded: bool
    merging: bool
    keys: tuple[str, ...]
    arrivals: tuple[Arrival, ...]
    windows: tuple[Window, ...]
    firings: tuple[Firing, ...]
    watermark: tuple[tuple[Moment, int], ...]
    counts: dict[str, int] = field(default_factory=dict)
    every: dict[str, int] = field(default_factory=dict)

    def of_key(self, key: str) -> tuple[Firing, ...]:
        """The firings of a key, given as its repr."""
        number = self.keys.index(key)
        return tuple(firing for firing in self.firings if firing.key == number)

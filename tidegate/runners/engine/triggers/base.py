"""The trigger machine: what each trigger of a key and window remembers, and when it is due (SEMANTICS, Triggers).

A `Machine` is the code of one trigger and has no state of its own. What it remembers of one key and window is a list
beside it, a tree that mirrors the trigger: ints, bools and lists, and an AfterDelta's reference element in a tuple.
An event is `elements` (only if one arrived), then `due` once, then `fire` if that said so.

Most elements can't make a trigger due. `quiet` says how many may be taken in before it has to be asked again, so that
counting to a thousand costs one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from tidegate.sdk.time import MIN_MICROS

State: TypeAlias = list[Any]

FAR: Final = 1 << 64
"""Past every instant, and more than any count."""

WAIT: Final = 0
DUE: Final = 1
ON_TIME: Final = 2
"""What `due` says. ON_TIME: because the window's end has come, for AfterWatermark and DefaultTrigger, whose pane is
emitted even if it is empty once an early one has been."""


class Now:
    """What an event looks like from one window. Times are µs; `clock` is None where processing time has no meaning.

    `end` is the window's; `pane` is how many elements have arrived since the last firing.
    """

    __slots__ = ("clock", "end", "pane", "watermark")

    def __init__(self, watermark: int = MIN_MICROS, clock: int | None = None) -> None:
        self.watermark = watermark
        self.clock = clock
        self.end = 0
        self.pane = 0

    @property
    def ended(self) -> bool:
        """Whether the watermark has passed the window's end."""
        return self.watermark >= self.end


class Machine:
    """One trigger. The defaults are those of one that is never due."""

    __slots__ = ()

    def start(self, ended: bool, before: State | None = None) -> State:
        """Its state at the beginning. `ended`: it starts later than its window, whose end has passed.

        `before` is the state it had, if it starts anew: an AfterDelta keeps its reference.
        """
        return []

    def elements(self, state: State, n: int, x: Any, now: Now) -> None:
        """`n` elements have arrived, `x` the last; never more than 1 + `quiet`."""

    def due(self, state: State, now: Now) -> int:
        """WAIT, DUE or ON_TIME. Asked once per event; what latches does so here."""
        return WAIT

    def fire(self, state: State, now: Now) -> bool:
        """It was due, and the window fires: whether the trigger has finished."""
        return False

    def merge(self, states: Sequence[State], now: Now) -> State:
        """The state of a merged window; `now.end` is its end."""
        return []

    def quiet(self, state: State, now: Now) -> int:
        """How many elements can arrive without making it due, as long as no clock moves."""
        return FAR

    def event_time(self, state: State) -> int:
        """The watermark at which it may become due, the window's end aside."""
        return FAR

    def clock_time(self, state: State) -> int:
        """The processing time at which it may become due."""
        return FAR


def copied(state: Any) -> Any:
    """A copy of a state that shares no list with it. Reference elements stand in tuples, and are shared."""
    return [copied(part) for part in state] if type(state) is list else state

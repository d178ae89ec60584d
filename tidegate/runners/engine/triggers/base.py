"""Trigger state machines: the state of a trigger per key and window, and when it fires (SEMANTICS, Triggers).

A `TriggerStateMachine` is the code of one trigger and has no state itself. Its state for one key and window is a list
kept beside it, a tree of the trigger's shape: ints, bools and lists, with an AfterDelta's reference element in a tuple.
For each event the operator calls `on_elements` (only if elements arrived), then `should_fire` once, and `on_fire` if
that returned anything but WAIT.

Most elements can't make a trigger fire. `elements_until_recheck` returns how many may arrive before `should_fire` has
to be called again, so that counting to a thousand costs one call.

>>> from tidegate.runners.engine.triggers.leaf import AfterCount
>>> machine, context = AfterCount(3), TriggerContext()
>>> state = machine.start(ended=False)
>>> machine.elements_until_recheck(state, context)
2
>>> machine.on_elements(state, 3, "the last of three elements", context)
>>> machine.should_fire(state, context) == DUE
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from tidegate.sdk.time import MIN_MICROS

State: TypeAlias = list[Any]

FAR: Final = 1 << 64
"""Later than every instant, and more than any count."""

WAIT: Final = 0
DUE: Final = 1
ON_TIME: Final = 2
"""What `should_fire` returns. ON_TIME: the watermark passed the window's end, for AfterWatermark and DefaultTrigger;
their on-time pane is emitted even if it is empty, once an early pane has been."""


class TriggerContext:
    """An event as seen from one window. Times are µs; `clock` is None where processing time has no meaning.

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


class TriggerStateMachine:
    """One trigger. The defaults are those of a trigger that never fires."""

    __slots__ = ()

    def start(self, ended: bool, before: State | None = None) -> State:
        """The initial state. `ended`: the watermark has already passed the window's end.

        `before` is the previous state of a trigger that starts again: an AfterDelta keeps its reference element.
        """
        return []

    def on_elements(self, state: State, n: int, x: Any, now: TriggerContext) -> None:
        """`n` elements have arrived, the last of them `x`; never more than 1 + `elements_until_recheck`."""

    def should_fire(self, state: State, now: TriggerContext) -> int:
        """WAIT, DUE or ON_TIME. Called once per event; a latching trigger latches here."""
        return WAIT

    def on_fire(self, state: State, now: TriggerContext) -> bool:
        """The window fires, since `should_fire` was not WAIT. Returns whether the trigger has finished."""
        return False

    def on_merge(self, states: Sequence[State], now: TriggerContext) -> State:
        """The state of a merged window; `now.end` is its end."""
        return []

    def elements_until_recheck(self, state: State, now: TriggerContext) -> int:
        """How many elements can arrive before the trigger can fire, as long as neither clock moves."""
        return FAR

    def event_time(self, state: State) -> int:
        """The watermark at which the trigger may fire, apart from the window's end."""
        return FAR

    def clock_time(self, state: State) -> int:
        """The processing time at which the trigger may fire."""
        return FAR


def copied(state: Any) -> Any:
    """A copy of a state that shares no list with it; reference elements, which are in tuples, are shared."""
    return [copied(part) for part in state] if type(state) is list else state

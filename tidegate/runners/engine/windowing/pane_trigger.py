"""Evaluates the trigger of a grouping on panes, and decides when each pane is evaluated next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tidegate.runners.engine.operator import NEVER
from tidegate.runners.engine.triggers.base import DUE, ON_TIME, State, TriggerContext
from tidegate.runners.engine.triggers.factory import trigger_state_machine
from tidegate.runners.engine.windowing.pane_state import ActiveWindow, PaneState
from tidegate.runners.engine.windowing.window_wakeups import WindowWakeups
from tidegate.sdk.windowing.triggers import AfterProcessingTime, EveryEventTime, EveryProcessingTime, Trigger, parts_of


class Firing(NamedTuple):
    """A trigger has fired. `even_if_empty`: an on-time pane is emitted without elements, too; `finished`: the trigger
    will not fire again."""

    even_if_empty: bool
    finished: bool


_FIRINGS: Final = {
    (result, last): Firing(result == ON_TIME, last) for result in (DUE, ON_TIME) for last in (False, True)
}


class PaneTrigger:
    """A grouping's trigger, with its clocks and the wake-ups that it has asked for.

    Most elements cannot make a trigger fire: a pane is evaluated only once `recheck_at` elements have arrived, or when
    one of its wake-ups is due.

    >>> from tidegate.sdk.windowing.triggers import AfterCount, Repeatedly
    >>> trigger = PaneTrigger(Repeatedly(AfterCount(2)))
    >>> window = ActiveWindow("a window", start=0, end=60, lateness=0, watermark=0)
    >>> pane = trigger.start_pane(window, serial=0, contents=["first", "second"])
    >>> pane.recheck_at
    2
    >>> pane.unfired = 2
    >>> trigger.advance(window, pane, "second")
    Firing(even_if_empty=False, finished=False)
    >>> pane.reset()
    >>> trigger.schedule(window, "key", pane)
    >>> pane.recheck_at
    2
    >>> trigger.advance(window, pane) is None
    True
    """

    def __init__(self, trigger: Trigger) -> None:
        self.context: Final = TriggerContext()
        """The watermark and the clock, which the operator advances, and the window and pane under evaluation."""
        self.event_wakeups: Final[WindowWakeups[ActiveWindow]] = WindowWakeups()
        self.clock_wakeups: Final[WindowWakeups[ActiveWindow]] = WindowWakeups()
        self._machine: Final = trigger_state_machine(trigger)
        self._by_event_time: Final = _contains(trigger, EveryEventTime)
        self._by_clock: Final = _contains(trigger, AfterProcessingTime, EveryProcessingTime)
        self._first_recheck: int | None = None

    def advance_clock(self, micros: int) -> None:
        """Move processing time to `micros`; it never goes back."""
        context = self.context
        if context.clock is None:
            self._first_recheck = None  # triggers on processing time have come to life
        context.clock = micros if context.clock is None else max(micros, context.clock)

    def start_pane(self, window: ActiveWindow, serial: int, contents: Any) -> PaneState:
        """A pane that no elements have entered."""
        pane = PaneState(serial, contents, self._machine.start(False))
        if window.ended:
            pane.recheck_at = 1
        else:
            if self._first_recheck is None:
                self.context.end, self.context.pane = window.end, 0
                self._first_recheck = 1 + self._machine.elements_until_recheck(pane.trigger, self.context)
            pane.recheck_at = self._first_recheck
        return pane

    def observe(self, window: ActiveWindow, pane: PaneState, element: Any = None) -> None:
        """Report the elements that have arrived since the last evaluation, the last of them `element`."""
        context = self.context
        context.end = window.end
        context.pane = unfired = pane.unfired
        if unfired > pane.observed:
            self._machine.on_elements(pane.trigger, unfired - pane.observed, element, context)
            pane.observed = unfired

    def advance(self, window: ActiveWindow, pane: PaneState, element: Any = None) -> Firing | None:
        """Evaluate the trigger once, after an event; None if it does not fire."""
        self.observe(window, pane, element)
        result = self._machine.should_fire(pane.trigger, self.context)
        return _FIRINGS[result, self._machine.on_fire(pane.trigger, self.context)] if result else None

    def schedule(self, window: ActiveWindow, k: Any, pane: PaneState) -> None:
        """Decide after how many elements, and at which instants, a pane is evaluated next."""
        context, machine, state = self.context, self._machine, pane.trigger
        context.end = window.end
        context.pane = pane.observed
        pane.recheck_at = pane.observed + 1 + machine.elements_until_recheck(state, context)
        if self._by_clock:
            at = machine.clock_time(state)
            if at < pane.clock_wakeup:
                pane.clock_wakeup = at
                self.clock_wakeups.add(at, window, k)
        if self._by_event_time:
            at = machine.event_time(state)
            if at < pane.event_wakeup:
                pane.event_wakeup = at
                self.event_wakeups.add(at, window, k)

    def schedule_end(self, window: ActiveWindow) -> None:
        """Wake all keys of a window when it ends; once it has ended, when it expires."""
        self.event_wakeups.add_all(window.expiry if window.ended else window.end, window)

    def merge(self, into: ActiveWindow, states: Sequence[State]) -> State:
        """The trigger state of a merged window."""
        self.context.end = into.end
        return self._machine.on_merge(states, self.context)

    def event_time(self, state: State) -> int:
        """The watermark (µs) at which a pane with this trigger state is due; NEVER or more if it waits for none."""
        return self._machine.event_time(state) if self._by_event_time else NEVER

    def clock_time(self, state: State) -> int:
        """The same for processing time."""
        return self._machine.clock_time(state) if self._by_clock else NEVER


def _contains(trigger: Trigger, *kinds: type) -> bool:
    return isinstance(trigger, kinds) or any(_contains(part, *kinds) for part in parts_of(trigger))

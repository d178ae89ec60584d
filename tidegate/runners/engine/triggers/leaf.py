"""State machines of triggers that depend on elements and clocks, each named as its trigger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidegate.runners.engine.errors.attribution import UserCall
from tidegate.runners.engine.triggers.base import DUE, FAR, ON_TIME, WAIT, State, TriggerContext, TriggerStateMachine
from tidegate.sdk.user_code.user_fn import UserFn


class AfterCount(TriggerStateMachine):
    """State: [number of elements]."""

    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n

    def start(self, ended: bool, before: State | None = None) -> State:
        return [0]

    def on_elements(self, state: State, n: int, x: Any, now: TriggerContext) -> None:
        state[0] += n

    def should_fire(self, state: State, now: TriggerContext) -> int:
        return DUE if state[0] >= self.n else WAIT

    def on_fire(self, state: State, now: TriggerContext) -> bool:
        return True

    def on_merge(self, states: Sequence[State], now: TriggerContext) -> State:
        return [sum(state[0] for state in states)]

    def elements_until_recheck(self, state: State, now: TriggerContext) -> int:
        return max(0, self.n - 1 - int(state[0]))


class AfterProcessingTime(TriggerStateMachine):
    """State: [the instant at which it fires, FAR before the first element]."""

    __slots__ = ("align", "delay")

    def __init__(self, delay: int, align: int) -> None:
        self.delay = delay
        self.align = align

    def start(self, ended: bool, before: State | None = None) -> State:
        return [FAR]

    def on_elements(self, state: State, n: int, x: Any, now: TriggerContext) -> None:
        if state[0] == FAR and now.clock is not None:
            state[0] = -(-(now.clock + self.delay) // self.align) * self.align

    def should_fire(self, state: State, now: TriggerContext) -> int:
        return DUE if now.clock is not None and now.clock >= state[0] else WAIT

    def on_fire(self, state: State, now: TriggerContext) -> bool:
        return True

    def on_merge(self, states: Sequence[State], now: TriggerContext) -> State:
        return [min(state[0] for state in states)]

    def elements_until_recheck(self, state: State, now: TriggerContext) -> int:
        return 0 if state[0] == FAR and now.clock is not None else FAR

    def clock_time(self, state: State) -> int:
        return int(state[0])


class _Every(TriggerStateMachine):
    """State: [the next multiple of the period, FAR before the pane's first element; whether it has fired for the
    window's end].

    If it starts after its window's end, because another trigger fired, it does not fire for that end.
    """

    __slots__ = ("period",)

    def __init__(self, period: int) -> None:
        self.period = period

    def reading(self, now: TriggerContext) -> int | None:
        """The present time of the clock that the trigger depends on."""
        raise NotImplementedError

    def start(self, ended: bool, before: State | None = None) -> State:
        return [FAR, ended]

    def on_elements(self, state: State, n: int, x: Any, now: TriggerContext) -> None:
        reading = self.reading(now)
        if reading is not None and (state[0] == FAR or now.pane == n):
            state[0] = (reading // self.period + 1) * self.period

    def should_fire(self, state: State, now: TriggerContext) -> int:
        if now.ended and not state[1]:
            return DUE
        reading = self.reading(now)
        return DUE if now.pane and reading is not None and reading >= state[0] else WAIT

    def on_fire(self, state: State, now: TriggerContext) -> bool:
        state[0] = FAR
        state[1] = state[1] or now.ended
        return False

    def on_merge(self, states: Sequence[State], now: TriggerContext) -> State:
        return [min(state[0] for state in states), now.ended and any(state[1] for state in states)]

    def elements_until_recheck(self, state: State, now: TriggerContext) -> int:
        return 0 if state[0] == FAR or not now.pane else FAR


class EveryEventTime(_Every):
    __slots__ = ()

    def reading(self, now: TriggerContext) -> int | None:
        return now.watermark

    def event_time(self, state: State) -> int:
        return int(state[0])


class EveryProcessingTime(_Every):
    __slots__ = ()

    def reading(self, now: TriggerContext) -> int | None:
        return now.clock

    def clock_time(self, state: State) -> int:
        return int(state[0])


class AfterElement(TriggerStateMachine):
    """State: [whether the predicate is true for the latest element]."""

    __slots__ = ("predicate",)

    def __init__(self, predicate: UserFn) -> None:
        self.predicate: Callable[[Any], Any] = predicate.load()

    def start(self, ended: bool, before: State | None = None) -> State:
        return [False]

    def on_elements(self, state: State, n: int, x: Any, now: TriggerContext) -> None:
        try:
            state[0] = bool(self.predicate(x))
        except Exception as error:
            raise UserCall("the predicate of AfterElement") from error

    def should_fire(self, state: State, now: TriggerContext) -> int:
        holds, state[0] = state[0], False
        return DUE if holds else WAIT

    def on_fire(self, state: State, now: TriggerContext) -> bool:
        return True

    def on_merge(self, states: Sequence[State], now: TriggerContext) -> State:
        return [False]

    def elements_until_recheck(self, state: State, now: TriggerContext) -> int:
        return 0


class AfterDelta(TriggerStateMachine):
    """State: [(reference element,) or None before the first element; whether the latest is over the threshold]."""

    __slots__ = ("delta", "threshold")

    def __init__(self, threshold: int | float, delta_fn: UserFn) -> None:
        self.threshold = threshold
        self.delta: Callable[[Any, Any], Any] = delta_fn.load()

    def start(self, ended: bool, before: State | None = None) -> State:
        return [before[0] if before else None, False]

    def on_elements(self, state: State, n: int, x: Any, now: TriggerContext) -> None:
        if state[0] is None:
            state[0] = (x,)
            return
        try:
            over = bool(self.delta(state[0][0], x) > self.threshold)
        except Exception as error:
            raise UserCall("the delta_fn of AfterDelta") from error
        if over:
            state[:] = (x,), True

    def should_fire(self, state: State, now: TriggerContext) -> int:
        over, state[1] = state[1], False
        return DUE if over else WAIT

    def on_fire(self, state: State, now: TriggerContext) -> bool:
        return True

    def on_merge(self, states: Sequence[State], now: TriggerContext) -> State:
        raise AssertionError("AfterDelta is refused for windows that merge")

    def elements_until_recheck(self, state: State, now: TriggerContext) -> int:
        return 0


class DefaultTrigger(TriggerStateMachine):
    """State: [whether it has fired on time]."""

    __slots__ = ()

    def start(self, ended: bool, before: State | None = None) -> State:
        return [ended]

    def should_fire(self, state: State, now: TriggerContext) -> int:
        if not now.ended:
            return WAIT
        if not state[0]:
            return ON_TIME
        return DUE if now.pane else WAIT

    def on_fire(self, state: State, now: TriggerContext) -> bool:
        state[0] = True
        return False

    def on_merge(self, states: Sequence[State], now: TriggerContext) -> State:
        return [now.ended and any(state[0] for state in states)]

    def elements_until_recheck(self, state: State, now: TriggerContext) -> int:
        return 0 if now.ended else FAR

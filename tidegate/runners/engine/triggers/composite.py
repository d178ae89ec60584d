"""State machines of composite triggers, each named as its trigger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.runners.engine.triggers.base import DUE, FAR, ON_TIME, WAIT, State, TriggerContext, TriggerStateMachine


class AfterWatermark(TriggerStateMachine):
    """State: [whether it has fired on time, the state of `early` or None, the state of `late` or None, whether it
    started after its window's end].

    If it starts after its window's end, because another trigger fired, it fires at the next element.
    """

    __slots__ = ("early", "late")

    def __init__(self, early: TriggerStateMachine | None, late: TriggerStateMachine | None) -> None:
        self.early = early
        self.late = late

    def start(self, ended: bool, before: State | None = None) -> State:
        early = self.early.start(ended, before and before[1]) if self.early is not None else None
        return [False, early, before and before[2], ended]

    def on_elements(self, state: State, n: int, x: Any, now: TriggerContext) -> None:
        if state[0]:
            if self.late is not None:
                self.late.on_elements(state[2], n, x, now)
        elif self.early is not None and not now.ended:
            self.early.on_elements(state[1], n, x, now)

    def should_fire(self, state: State, now: TriggerContext) -> int:
        if state[0]:
            return self.late.should_fire(state[2], now) if self.late is not None else WAIT
        if now.ended:
            return ON_TIME if now.pane or not state[3] else WAIT
        return self.early.should_fire(state[1], now) if self.early is not None else WAIT

    def on_fire(self, state: State, now: TriggerContext) -> bool:
        if state[0]:
            assert self.late is not None
            self.late.on_fire(state[2], now)
        elif not now.ended:
            assert self.early is not None
            self.early.on_fire(state[1], now)
        elif self.late is None:
            return True
        else:
            state[0] = True
            state[2] = self.late.start(True, state[2])
        return False

    def on_merge(self, states: Sequence[State], now: TriggerContext) -> State:
        done = [state for state in states if state[0]]
        if done and now.ended:
            assert self.late is not None
            return [True, None, self.late.on_merge([state[2] for state in done], now), False]
        early = None
        if self.early is not None:
            waiting = [state[1] for state in states if not state[0]]
            early = self.early.on_merge(waiting, now) if waiting else self.early.start(now.ended)
        return [False, early, None, now.ended and all(state[3] for state in states)]

    def elements_until_recheck(self, state: State, now: TriggerContext) -> int:
        if state[0]:
            return self.late.elements_until_recheck(state[2], now) if self.late is not None else FAR
        if now.ended:
            return 0
        return self.early.elements_until_recheck(state[1], now) if self.early is not None else FAR

    def event_time(self, state: State) -> int:
        part = self.late if state[0] else self.early
        return part.event_time(state[2 if state[0] else 1]) if part is not None else FAR

    def clock_time(self, state: State) -> int:
        part = self.late if state[0] else self.early
        return part.clock_time(state[2 if state[0] else 1]) if part is not None else FAR


class Repeatedly(TriggerStateMachine):
    """State: [the inner state]. The inner trigger restarts when it has finished."""

    __slots__ = ("inner",)

    def __init__(self, inner: TriggerStateMachine) -> None:
        self.inner = inner

    def start(self, ended: bool, before: State | None = None) -> State:
        return [self.inner.start(ended, before and before[0])]

    def on_elements(self, state: State, n: int, x: Any, now: TriggerContext) -> None:
        self.inner.on_elements(state[0], n, x, now)

    def should_fire(self, state: State, now: TriggerContext) -> int:
        return self.inner.should_fire(state[0], now)

    def on_fire(self, state: State, now: TriggerContext) -> bool:
        if self.inner.on_fire(state[0], now):
            state[0] = self.inner.start(now.ended, state[0])
        return False

    def on_merge(self, states: Sequence[State], now: TriggerContext) -> State:
        return [self.inner.on_merge([state[0] for state in states], now)]

    def elements_until_recheck(self, state: State, now: TriggerContext) -> int:
        return self.inner.elements_until_recheck(state[0], now)

    def event_time(self, state: State) -> int:
        return self.inner.event_time(state[0])

    def clock_time(self, state: State) -> int:
        return self.inner.clock_time(state[0])


class AfterAny(TriggerStateMachine):
    """State: [the state of each part]. Every part is asked at every event, since some parts latch."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[TriggerStateMachine, ...]) -> None:
        self.parts = parts

    def start(self, ended: bool, before: State | None = None) -> State:
        return [part.start(ended, before and before[i]) for i, part in enumerate(self.parts)]

    def on_elements(self, state: State, n: int, x: Any, now: TriggerContext) -> None:
        for part, inner in zip(self.parts, state, strict=True):
            part.on_elements(inner, n, x, now)

    def should_fire(self, state: State, now: TriggerContext) -> int:
        return max([part.should_fire(inner, now) for part, inner in zip(self.parts, state, strict=True)])

    def on_fire(self, state: State, now: TriggerContext) -> bool:
        return True

    def on_merge(self, states: Sequence[State], now: TriggerContext) -> State:
        return [part.on_merge([state[i] for state in states], now) for i, part in enumerate(self.parts)]

    def elements_until_recheck(self, state: State, now: TriggerContext) -> int:
        return min([part.elements_until_recheck(inner, now) for part, inner in zip(self.parts, state, strict=True)])

    def event_time(self, state: State) -> int:
        return min([part.event_time(inner) for part, inner in zip(self.parts, state, strict=True)])

    def clock_time(self, state: State) -> int:
        return min([part.clock_time(inner) for part, inner in zip(self.parts, state, strict=True)])


class AfterAll(TriggerStateMachine):
    """State: [the states of the parts, which parts have latched]. A latched part is not asked again."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[TriggerStateMachine, ...]) -> None:
        self.parts = parts

    def start(self, ended: bool, before: State | None = None) -> State:
        return [
            [part.start(ended, before and before[0][i]) for i, part in enumerate(self.parts)],
            [False] * len(self.parts),
        ]

    def _waiting(self, state: State) -> list[tuple[TriggerStateMachine, State]]:
        inner, latched = state
        return [(part, inner[i]) for i, part in enumerate(self.parts) if not latched[i]]

    def on_elements(self, state: State, n: int, x: Any, now: TriggerContext) -> None:
        for part, inner in self._waiting(state):
            part.on_elements(inner, n, x, now)

    def should_fire(self, state: State, now: TriggerContext) -> int:
        inner, latched = state
        result = DUE
        for i, part in enumerate(self.parts):
            if not latched[i]:
                due = part.should_fire(inner[i], now)
                latched[i] = due != WAIT
                result = max(result, due)
        return result if all(latched) else WAIT

    def on_fire(self, state: State, now: TriggerContext) -> bool:
        return True

    def on_merge(self, states: Sequence[State], now: TriggerContext) -> State:
        return [
            [part.on_merge([state[0][i] for state in states], now) for i, part in enumerate(self.parts)],
            [any(state[1][i] for state in states) for i in range(len(self.parts))],
        ]

    def elements_until_recheck(self, state: State, now: TriggerContext) -> int:
        return min([part.elements_until_recheck(inner, now) for part, inner in self._waiting(state)], default=0)

    def event_time(self, state: State) -> int:
        return min([part.event_time(inner) for part, inner in self._waiting(state)], default=FAR)

    def clock_time(self, state: State) -> int:
        return min([part.clock_time(inner) for part, inner in self._waiting(state)], default=FAR)


class AfterEach(TriggerStateMachine):
    """State: [the index of the current part, the state of each part up to the current one]."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[TriggerStateMachine, ...]) -> None:
        self.parts = parts

    def start(self, ended: bool, before: State | None = None) -> State:
        states = before[1] if before else [None] * len(self.parts)
        return [0, [self.parts[0].start(ended, states[0]), *states[1:]]]

    def on_elements(self, state: State, n: int, x: Any, now: TriggerContext) -> None:
        turn, states = state
        self.parts[turn].on_elements(states[turn], n, x, now)

    def should_fire(self, state: State, now: TriggerContext) -> int:
        turn, states = state
        return self.parts[turn].should_fire(states[turn], now)

    def on_fire(self, state: State, now: TriggerContext) -> bool:
        turn, states = state
        if not self.parts[turn].on_fire(states[turn], now):
            return False
        turn += 1
        if turn == len(self.parts):
            return True
        state[0] = turn
        states[turn] = self.parts[turn].start(now.ended, states[turn])
        return False

    def on_merge(self, states: Sequence[State], now: TriggerContext) -> State:
        turn = max(state[0] for state in states)
        merged: list[State | None] = [None] * len(self.parts)
        merged[turn] = self.parts[turn].on_merge([state[1][turn] for state in states if state[0] == turn], now)
        return [turn, merged]

    def elements_until_recheck(self, state: State, now: TriggerContext) -> int:
        turn, states = state
        return self.parts[turn].elements_until_recheck(states[turn], now)

    def event_time(self, state: State) -> int:
        turn, states = state
        return self.parts[turn].event_time(states[turn])

    def clock_time(self, state: State) -> int:
        turn, states = state
        return self.parts[turn].clock_time(states[turn])


class OrFinally(TriggerStateMachine):
    """State: [the state of the trigger, the state of `until`, whether `until` was due]. `until` is not reset when
    the trigger fires."""

    __slots__ = ("inner", "until")

    def __init__(self, inner: TriggerStateMachine, until: TriggerStateMachine) -> None:
        self.inner = inner
        self.until = until

    def start(self, ended: bool, before: State | None = None) -> State:
        return [self.inner.start(ended, before and before[0]), self.until.start(ended, before and before[1]), False]

    def on_elements(self, state: State, n: int, x: Any, now: TriggerContext) -> None:
        self.inner.on_elements(state[0], n, x, now)
        self.until.on_elements(state[1], n, x, now)

    def should_fire(self, state: State, now: TriggerContext) -> int:
        inner, until = self.inner.should_fire(state[0], now), self.until.should_fire(state[1], now)
        state[2] = until != WAIT
        return max(inner, until)

    def on_fire(self, state: State, now: TriggerContext) -> bool:
        ends, state[2] = state[2], False
        return ends or self.inner.on_fire(state[0], now)

    def on_merge(self, states: Sequence[State], now: TriggerContext) -> State:
        return [
            self.inner.on_merge([state[0] for state in states], now),
            self.until.on_merge([state[1] for state in states], now),
            False,
        ]

    def elements_until_recheck(self, state: State, now: TriggerContext) -> int:
        return min(self.inner.elements_until_recheck(state[0], now), self.until.elements_until_recheck(state[1], now))

    def event_time(self, state: State) -> int:
        return min(self.inner.event_time(state[0]), self.until.event_time(state[1]))

    def clock_time(self, state: State) -> int:
        return min(self.inner.clock_time(state[0]), self.until.clock_time(state[1]))

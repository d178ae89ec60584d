"""The machines of triggers made of triggers, each under its trigger's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.runners.engine.triggers.base import DUE, FAR, ON_TIME, WAIT, Machine, Now, State


class AfterWatermark(Machine):
    """[whether it has fired on time, the state of `early` or None, the state of `late` or None, whether it started
    after its window's end].

    One that starts so late, because another trigger fired, is due with the next element.
    """

    __slots__ = ("early", "late")

    def __init__(self, early: Machine | None, late: Machine | None) -> None:
        self.early = early
        self.late = late

    def start(self, ended: bool, before: State | None = None) -> State:
        early = self.early.start(ended, before and before[1]) if self.early is not None else None
        return [False, early, before and before[2], ended]

    def elements(self, state: State, n: int, x: Any, now: Now) -> None:
        if state[0]:
            if self.late is not None:
                self.late.elements(state[2], n, x, now)
        elif self.early is not None and not now.ended:
            self.early.elements(state[1], n, x, now)

    def due(self, state: State, now: Now) -> int:
        if state[0]:
            return self.late.due(state[2], now) if self.late is not None else WAIT
        if now.ended:
            return ON_TIME if now.pane or not state[3] else WAIT
        return self.early.due(state[1], now) if self.early is not None else WAIT

    def fire(self, state: State, now: Now) -> bool:
        if state[0]:
            assert self.late is not None
            self.late.fire(state[2], now)
        elif not now.ended:
            assert self.early is not None
            self.early.fire(state[1], now)
        elif self.late is None:
            return True
        else:
            state[0] = True
            state[2] = self.late.start(True, state[2])
        return False

    def merge(self, states: Sequence[State], now: Now) -> State:
        done = [state for state in states if state[0]]
        if done and now.ended:
            assert self.late is not None
            return [True, None, self.late.merge([state[2] for state in done], now), False]
        early = None
        if self.early is not None:
            waiting = [state[1] for state in states if not state[0]]
            early = self.early.merge(waiting, now) if waiting else self.early.start(now.ended)
        return [False, early, None, now.ended and all(state[3] for state in states)]

    def quiet(self, state: State, now: Now) -> int:
        if state[0]:
            return self.late.quiet(state[2], now) if self.late is not None else FAR
        if now.ended:
            return 0
        return self.early.quiet(state[1], now) if self.early is not None else FAR

    def event_time(self, state: State) -> int:
        part = self.late if state[0] else self.early
        return part.event_time(state[2 if state[0] else 1]) if part is not None else FAR

    def clock_time(self, state: State) -> int:
        part = self.late if state[0] else self.early
        return part.clock_time(state[2 if state[0] else 1]) if part is not None else FAR


class Repeatedly(Machine):
    """[the inner state]; the inner trigger starts anew when it has finished."""

    __slots__ = ("inner",)

    def __init__(self, inner: Machine) -> None:
        self.inner = inner

    def start(self, ended: bool, before: State | None = None) -> State:
        return [self.inner.start(ended, before and before[0])]

    def elements(self, state: State, n: int, x: Any, now: Now) -> None:
        self.inner.elements(state[0], n, x, now)

    def due(self, state: State, now: Now) -> int:
        return self.inner.due(state[0], now)

    def fire(self, state: State, now: Now) -> bool:
        if self.inner.fire(state[0], now):
            state[0] = self.inner.start(now.ended, state[0])
        return False

    def merge(self, states: Sequence[State], now: Now) -> State:
        return [self.inner.merge([state[0] for state in states], now)]

    def quiet(self, state: State, now: Now) -> int:
        return self.inner.quiet(state[0], now)

    def event_time(self, state: State) -> int:
        return self.inner.event_time(state[0])

    def clock_time(self, state: State) -> int:
        return self.inner.clock_time(state[0])


class AfterAny(Machine):
    """[the state of each part]. Every part is asked at every event, since some latch."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Machine, ...]) -> None:
        self.parts = parts

    def start(self, ended: bool, before: State | None = None) -> State:
        return [part.start(ended, before and before[i]) for i, part in enumerate(self.parts)]

    def elements(self, state: State, n: int, x: Any, now: Now) -> None:
        for part, inner in zip(self.parts, state, strict=True):
            part.elements(inner, n, x, now)

    def due(self, state: State, now: Now) -> int:
        return max([part.due(inner, now) for part, inner in zip(self.parts, state, strict=True)])

    def fire(self, state: State, now: Now) -> bool:
        return True

    def merge(self, states: Sequence[State], now: Now) -> State:
        return [part.merge([state[i] for state in states], now) for i, part in enumerate(self.parts)]

    def quiet(self, state: State, now: Now) -> int:
        return min([part.quiet(inner, now) for part, inner in zip(self.parts, state, strict=True)])

    def event_time(self, state: State) -> int:
        return min([part.event_time(inner) for part, inner in zip(self.parts, state, strict=True)])

    def clock_time(self, state: State) -> int:
        return min([part.clock_time(inner) for part, inner in zip(self.parts, state, strict=True)])


class AfterAll(Machine):
    """[the states of the parts, which of them have latched]. A latched part is not asked any more."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Machine, ...]) -> None:
        self.parts = parts

    def start(self, ended: bool, before: State | None = None) -> State:
        return [
            [part.start(ended, before and before[0][i]) for i, part in enumerate(self.parts)],
            [False] * len(self.parts),
        ]

    def _waiting(self, state: State) -> list[tuple[Machine, State]]:
        inner, latched = state
        return [(part, inner[i]) for i, part in enumerate(self.parts) if not latched[i]]

    def elements(self, state: State, n: int, x: Any, now: Now) -> None:
        for part, inner in self._waiting(state):
            part.elements(inner, n, x, now)

    def due(self, state: State, now: Now) -> int:
        inner, latched = state
        said = DUE
        for i, part in enumerate(self.parts):
            if not latched[i]:
                due = part.due(inner[i], now)
                latched[i] = due != WAIT
                said = max(said, due)
        return said if all(latched) else WAIT

    def fire(self, state: State, now: Now) -> bool:
        return True

    def merge(self, states: Sequence[State], now: Now) -> State:
        return [
            [part.merge([state[0][i] for state in states], now) for i, part in enumerate(self.parts)],
            [any(state[1][i] for state in states) for i in range(len(self.parts))],
        ]

    def quiet(self, state: State, now: Now) -> int:
        return min([part.quiet(inner, now) for part, inner in self._waiting(state)], default=0)

    def event_time(self, state: State) -> int:
        return min([part.event_time(inner) for part, inner in self._waiting(state)], default=FAR)

    def clock_time(self, state: State) -> int:
        return min([part.clock_time(inner) for part, inner in self._waiting(state)], default=FAR)


class AfterEach(Machine):
    """[whose turn it is, the state of each part that has had or has its turn]."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Machine, ...]) -> None:
        self.parts = parts

    def start(self, ended: bool, before: State | None = None) -> State:
        states = before[1] if before else [None] * len(self.parts)
        return [0, [self.parts[0].start(ended, states[0]), *states[1:]]]

    def elements(self, state: State, n: int, x: Any, now: Now) -> None:
        turn, states = state
        self.parts[turn].elements(states[turn], n, x, now)

    def due(self, state: State, now: Now) -> int:
        turn, states = state
        return self.parts[turn].due(states[turn], now)

    def fire(self, state: State, now: Now) -> bool:
        turn, states = state
        if not self.parts[turn].fire(states[turn], now):
            return False
        turn += 1
        if turn == len(self.parts):
            return True
        state[0] = turn
        states[turn] = self.parts[turn].start(now.ended, states[turn])
        return False

    def merge(self, states: Sequence[State], now: Now) -> State:
        turn = max(state[0] for state in states)
        merged: list[State | None] = [None] * len(self.parts)
        merged[turn] = self.parts[turn].merge([state[1][turn] for state in states if state[0] == turn], now)
        return [turn, merged]

    def quiet(self, state: State, now: Now) -> int:
        turn, states = state
        return self.parts[turn].quiet(states[turn], now)

    def event_time(self, state: State) -> int:
        turn, states = state
        return self.parts[turn].event_time(states[turn])

    def clock_time(self, state: State) -> int:
        turn, states = state
        return self.parts[turn].clock_time(states[turn])


class OrFinally(Machine):
    """[the state of the trigger, that of `until`, whether `until` was due]. `until` runs on while the trigger fires."""

    __slots__ = ("inner", "until")

    def __init__(self, inner: Machine, until: Machine) -> None:
        self.inner = inner
        self.until = until

    def start(self, ended: bool, before: State | None = None) -> State:
        return [self.inner.start(ended, before and before[0]), self.until.start(ended, before and before[1]), False]

    def elements(self, state: State, n: int, x: Any, now: Now) -> None:
        self.inner.elements(state[0], n, x, now)
        self.until.elements(state[1], n, x, now)

    def due(self, state: State, now: Now) -> int:
        inner, until = self.inner.due(state[0], now), self.until.due(state[1], now)
        state[2] = until != WAIT
        return max(inner, until)

    def fire(self, state: State, now: Now) -> bool:
        ends, state[2] = state[2], False
        return ends or self.inner.fire(state[0], now)

    def merge(self, states: Sequence[State], now: Now) -> State:
        return [
            self.inner.merge([state[0] for state in states], now),
            self.until.merge([state[1] for state in states], now),
            False,
        ]

    def quiet(self, state: State, now: Now) -> int:
        return min(self.inner.quiet(state[0], now), self.until.quiet(state[1], now))

    def event_time(self, state: State) -> int:
        return min(self.inner.event_time(state[0]), self.until.event_time(state[1]))

    def clock_time(self, state: State) -> int:
        return min(self.inner.clock_time(state[0]), self.until.clock_time(state[1]))

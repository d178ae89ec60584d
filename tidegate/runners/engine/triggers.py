"""The trigger machine: what each trigger of a key and window remembers, and when it is due (SEMANTICS, Triggers).

A `Machine` is the code of one trigger and has no state of its own. What it remembers of one key and window is a list
beside it, a tree that mirrors the trigger: ints, bools and lists, and an AfterDelta's reference element in a tuple.
An event is `elements` (only if one arrived), then `due` once, then `fire` if that said so.

Most elements can't make a trigger due. `quiet` says how many may be taken in before it has to be asked again, so that
counting to a thousand costs one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from tidegate.sdk.functions import UserFn
from tidegate.sdk.time import MIN_MICROS
from tidegate.sdk.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterDelta,
    AfterEach,
    AfterElement,
    AfterProcessingTime,
    AfterWatermark,
    DefaultTrigger,
    EveryEventTime,
    EveryProcessingTime,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)

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


class UserCall(Exception):
    """A function of the author's raised (`__cause__`) while the engine asked it; the message says which function."""


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


def machine(trigger: Trigger) -> Machine:
    """The machine of a trigger; unpickles its functions."""
    match trigger:
        case AfterWatermark(early=early, late=late):
            return _AfterWatermark(
                _Repeatedly(machine(early)) if early is not None else None,
                _Repeatedly(machine(late)) if late is not None else None,
            )
        case DefaultTrigger():
            return _Default()
        case AfterCount(n=n):
            return _AfterCount(n)
        case AfterProcessingTime(delay=delay, align_to=align_to):
            return _AfterProcessingTime(delay.micros, align_to.micros if align_to is not None else 1)
        case EveryEventTime(period=period):
            return _EveryEventTime(period.micros)
        case EveryProcessingTime(period=period):
            return _EveryProcessingTime(period.micros)
        case AfterElement(predicate=predicate):
            return _AfterElement(predicate)
        case AfterDelta(threshold=threshold, delta_fn=delta_fn):
            return _AfterDelta(threshold, delta_fn)
        case Repeatedly(trigger=inner):
            return _Repeatedly(machine(inner))
        case AfterAny(parts=parts):
            return _AfterAny(tuple(map(machine, parts)))
        case AfterAll(parts=parts):
            return _AfterAll(tuple(map(machine, parts)))
        case AfterEach(parts=parts):
            return _AfterEach(tuple(map(machine, parts)))
        case OrFinally(trigger=inner, until=until):
            return _OrFinally(machine(inner), machine(until))
        case Never():
            return Machine()


def copied(state: Any) -> Any:
    """A copy of a state that shares no list with it. Reference elements stand in tuples, and are shared."""
    return [copied(part) for part in state] if type(state) is list else state


# ---- leaves


class _AfterCount(Machine):
    """[how many have arrived]."""

    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n

    def start(self, ended: bool, before: State | None = None) -> State:
        return [0]

    def elements(self, state: State, n: int, x: Any, now: Now) -> None:
        state[0] += n

    def due(self, state: State, now: Now) -> int:
        return DUE if state[0] >= self.n else WAIT

    def fire(self, state: State, now: Now) -> bool:
        return True

    def merge(self, states: Sequence[State], now: Now) -> State:
        return [sum(state[0] for state in states)]

    def quiet(self, state: State, now: Now) -> int:
        return max(0, self.n - 1 - int(state[0]))


class _AfterProcessingTime(Machine):
    """[the instant it waits for, FAR before the first element]."""

    __slots__ = ("align", "delay")

    def __init__(self, delay: int, align: int) -> None:
        self.delay = delay
        self.align = align

    def start(self, ended: bool, before: State | None = None) -> State:
        return [FAR]

    def elements(self, state: State, n: int, x: Any, now: Now) -> None:
        if state[0] == FAR and now.clock is not None:
            state[0] = -(-(now.clock + self.delay) // self.align) * self.align

    def due(self, state: State, now: Now) -> int:
        return DUE if now.clock is not None and now.clock >= state[0] else WAIT

    def fire(self, state: State, now: Now) -> bool:
        return True

    def merge(self, states: Sequence[State], now: Now) -> State:
        return [min(state[0] for state in states)]

    def quiet(self, state: State, now: Now) -> int:
        return 0 if state[0] == FAR and now.clock is not None else FAR

    def clock_time(self, state: State) -> int:
        return int(state[0])


class _Every(Machine):
    """[the next multiple of the period, FAR before the pane's first element; whether the window's end is behind it].

    One that starts after its window's end, because another trigger fired, does not fire for that end.
    """

    __slots__ = ("period",)

    def __init__(self, period: int) -> None:
        self.period = period

    def reading(self, now: Now) -> int | None:
        """The clock it goes by."""
        raise NotImplementedError

    def start(self, ended: bool, before: State | None = None) -> State:
        return [FAR, ended]

    def elements(self, state: State, n: int, x: Any, now: Now) -> None:
        reading = self.reading(now)
        if reading is not None and (state[0] == FAR or now.pane == n):
            state[0] = (reading // self.period + 1) * self.period

    def due(self, state: State, now: Now) -> int:
        if now.ended and not state[1]:
            return DUE
        reading = self.reading(now)
        return DUE if now.pane and reading is not None and reading >= state[0] else WAIT

    def fire(self, state: State, now: Now) -> bool:
        state[0] = FAR
        state[1] = state[1] or now.ended
        return False

    def merge(self, states: Sequence[State], now: Now) -> State:
        return [min(state[0] for state in states), now.ended and any(state[1] for state in states)]

    def quiet(self, state: State, now: Now) -> int:
        return 0 if state[0] == FAR or not now.pane else FAR


class _EveryEventTime(_Every):
    __slots__ = ()

    def reading(self, now: Now) -> int | None:
        return now.watermark

    def event_time(self, state: State) -> int:
        return int(state[0])


class _EveryProcessingTime(_Every):
    __slots__ = ()

    def reading(self, now: Now) -> int | None:
        return now.clock

    def clock_time(self, state: State) -> int:
        return int(state[0])


class _AfterElement(Machine):
    """[whether the predicate holds for the element in hand]."""

    __slots__ = ("predicate",)

    def __init__(self, predicate: UserFn) -> None:
        self.predicate: Callable[[Any], Any] = predicate.load()

    def start(self, ended: bool, before: State | None = None) -> State:
        return [False]

    def elements(self, state: State, n: int, x: Any, now: Now) -> None:
        try:
            state[0] = bool(self.predicate(x))
        except Exception as error:
            raise UserCall("the predicate of AfterElement") from error

    def due(self, state: State, now: Now) -> int:
        holds, state[0] = state[0], False
        return DUE if holds else WAIT

    def fire(self, state: State, now: Now) -> bool:
        return True

    def merge(self, states: Sequence[State], now: Now) -> State:
        return [False]

    def quiet(self, state: State, now: Now) -> int:
        return 0


class _AfterDelta(Machine):
    """[(the reference,) or None before the first element; whether the element in hand is over the threshold]."""

    __slots__ = ("delta", "threshold")

    def __init__(self, threshold: int | float, delta_fn: UserFn) -> None:
        self.threshold = threshold
        self.delta: Callable[[Any, Any], Any] = delta_fn.load()

    def start(self, ended: bool, before: State | None = None) -> State:
        return [before[0] if before else None, False]

    def elements(self, state: State, n: int, x: Any, now: Now) -> None:
        if state[0] is None:
            state[0] = (x,)
            return
        try:
            over = bool(self.delta(state[0][0], x) > self.threshold)
        except Exception as error:
            raise UserCall("the delta_fn of AfterDelta") from error
        if over:
            state[:] = (x,), True

    def due(self, state: State, now: Now) -> int:
        over, state[1] = state[1], False
        return DUE if over else WAIT

    def fire(self, state: State, now: Now) -> bool:
        return True

    def merge(self, states: Sequence[State], now: Now) -> State:
        raise AssertionError("AfterDelta is refused for windows that merge")

    def quiet(self, state: State, now: Now) -> int:
        return 0


class _Default(Machine):
    """[whether it has fired on time]."""

    __slots__ = ()

    def start(self, ended: bool, before: State | None = None) -> State:
        return [ended]

    def due(self, state: State, now: Now) -> int:
        if not now.ended:
            return WAIT
        if not state[0]:
            return ON_TIME
        return DUE if now.pane else WAIT

    def fire(self, state: State, now: Now) -> bool:
        state[0] = True
        return False

    def merge(self, states: Sequence[State], now: Now) -> State:
        return [now.ended and any(state[0] for state in states)]

    def quiet(self, state: State, now: Now) -> int:
        return 0 if now.ended else FAR


# ---- composites


class _AfterWatermark(Machine):
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


class _Repeatedly(Machine):
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


class _AfterAny(Machine):
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


class _AfterAll(Machine):
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


class _AfterEach(Machine):
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


class _OrFinally(Machine):
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

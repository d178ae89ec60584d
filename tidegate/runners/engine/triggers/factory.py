"""Builds the state machine of a trigger from the trigger that the author wrote."""

from __future__ import annotations

from tidegate.runners.engine.triggers import composite, leaf
from tidegate.runners.engine.triggers.base import TriggerStateMachine
from tidegate.sdk.windowing.triggers import (
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


def trigger_state_machine(trigger: Trigger) -> TriggerStateMachine:
    """The state machine of a trigger; unpickles the author's functions."""
    match trigger:
        case AfterWatermark(early=early, late=late):
            return composite.AfterWatermark(
                composite.Repeatedly(trigger_state_machine(early)) if early is not None else None,
                composite.Repeatedly(trigger_state_machine(late)) if late is not None else None,
            )
        case DefaultTrigger():
            return leaf.DefaultTrigger()
        case AfterCount(n=n):
            return leaf.AfterCount(n)
        case AfterProcessingTime(delay=delay, align_to=align_to):
            return leaf.AfterProcessingTime(delay.micros, align_to.micros if align_to is not None else 1)
        case EveryEventTime(period=period):
            return leaf.EveryEventTime(period.micros)
        case EveryProcessingTime(period=period):
            return leaf.EveryProcessingTime(period.micros)
        case AfterElement(predicate=predicate):
            return leaf.AfterElement(predicate)
        case AfterDelta(threshold=threshold, delta_fn=delta_fn):
            return leaf.AfterDelta(threshold, delta_fn)
        case Repeatedly(trigger=inner):
            return composite.Repeatedly(trigger_state_machine(inner))
        case AfterAny(parts=parts):
            return composite.AfterAny(tuple(map(trigger_state_machine, parts)))
        case AfterAll(parts=parts):
            return composite.AfterAll(tuple(map(trigger_state_machine, parts)))
        case AfterEach(parts=parts):
            return composite.AfterEach(tuple(map(trigger_state_machine, parts)))
        case OrFinally(trigger=inner, until=until):
            return composite.OrFinally(trigger_state_machine(inner), trigger_state_machine(until))
        case Never():
            return TriggerStateMachine()

"""From a trigger, as the author wrote it, to the machine that runs it."""

from __future__ import annotations

from tidegate.runners.engine import composite_triggers, leaf_triggers
from tidegate.runners.engine.machine import Machine
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


def machine(trigger: Trigger) -> Machine:
    """The machine of a trigger; unpickles its functions."""
    match trigger:
        case AfterWatermark(early=early, late=late):
            return composite_triggers.AfterWatermark(
                composite_triggers.Repeatedly(machine(early)) if early is not None else None,
                composite_triggers.Repeatedly(machine(late)) if late is not None else None,
            )
        case DefaultTrigger():
            return leaf_triggers.DefaultTrigger()
        case AfterCount(n=n):
            return leaf_triggers.AfterCount(n)
        case AfterProcessingTime(delay=delay, align_to=align_to):
            return leaf_triggers.AfterProcessingTime(delay.micros, align_to.micros if align_to is not None else 1)
        case EveryEventTime(period=period):
            return leaf_triggers.EveryEventTime(period.micros)
        case EveryProcessingTime(period=period):
            return leaf_triggers.EveryProcessingTime(period.micros)
        case AfterElement(predicate=predicate):
            return leaf_triggers.AfterElement(predicate)
        case AfterDelta(threshold=threshold, delta_fn=delta_fn):
            return leaf_triggers.AfterDelta(threshold, delta_fn)
        case Repeatedly(trigger=inner):
            return composite_triggers.Repeatedly(machine(inner))
        case AfterAny(parts=parts):
            return composite_triggers.AfterAny(tuple(map(machine, parts)))
        case AfterAll(parts=parts):
            return composite_triggers.AfterAll(tuple(map(machine, parts)))
        case AfterEach(parts=parts):
            return composite_triggers.AfterEach(tuple(map(machine, parts)))
        case OrFinally(trigger=inner, until=until):
            return composite_triggers.OrFinally(machine(inner), machine(until))
        case Never():
            return Machine()

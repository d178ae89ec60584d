"""When loops are over: `Settled`, once values hardly change, and `Empty`, once nothing is left to do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Number
from typing import Any

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Filter
from tidegate.sdk.primitives.elementwise import require_pairs
from tidegate.sdk.primitives.iteration import Until
from tidegate.sdk.windowing.triggers import AfterWatermark, DefaultTrigger, Trigger, fires_more_than_once
from tidegate.transforms.grouping.cogroup import CoGroupByKey


class Settled(Until):
    """A loop is over once a round has moved no value by more than `by`.

    The loop variable holds pairs of a key and a number, or a tuple, list, dict or NumPy array of numbers; other values
    have moved if they are no longer equal. A key that appears or goes has moved, and so has one whose number of values
    has changed, or whose values can't be paired, in any order, so that none of a pair has moved. NaN equals NaN. `of`
    names the loop variable that is compared, if there are several; those of a tuple are 1, 2, ….
    """

    def __init__(self, by: float = 0.0, *, of: str | int | None = None) -> None:
        if not isinstance(by, int | float) or not by >= 0:
            raise BuildError(f"Settled(by=…) takes a distance of at least 0, not {shorten(by)}")
        self.by = by
        self.of = of

    def again(self, before: PCollection[Any], after: PCollection[Any]) -> PCollection[Any]:
        for each in (before, after):
            require_pairs(each, "tg.Settled")
            if _fires_early(each.windowing.trigger):
                raise BuildError(
                    f"tg.Settled compares what a window holds, and {each.windowing.trigger!r} can fire more than once "
                    "for a window, with a part of that: apply WindowInto with the trigger tg.AfterWatermark(), or say "
                    "`until` by a collection of your own"
                )
        pairs: Any = (before, after)
        grouped: PCollection[Any] = pairs | CoGroupByKey(name="Settled")
        return grouped | Filter(_Moved(self.by), name="moved")


def _fires_early(trigger: Trigger) -> bool:
    """Whether a window can emit panes with a part of its elements. Of bounded input, none are late."""
    match trigger:
        case DefaultTrigger() | AfterWatermark(early=None):
            return False
    return fires_more_than_once(trigger)


class Empty(Until):
    """A loop is over once a round has left no element. `of` names the loop variable, if there are several."""

    def __init__(self, *, of: str | int | None = None) -> None:
        self.of = of

    def again(self, before: PCollection[Any], after: PCollection[Any]) -> PCollection[Any]:
        return after


@dataclass(frozen=True, slots=True)
class _Moved:
    """Whether the values of a key have moved by more than `by`."""

    by: float

    def __call__(self, grouped: tuple[Any, tuple[list[Any], list[Any]]]) -> bool:
        before, after = grouped[1]
        if len(before) != len(after):
            return True
        if not any(_differ(old, new, self.by) for old, new in zip(before, after, strict=True)):
            return False
        if set(map(type, chain(before, after))) <= {int, float}:  # in order, the most that any has moved is least
            pairs = zip(sorted(before, key=_nan_last), sorted(after, key=_nan_last), strict=True)
            return any(_differ(old, new, self.by) for old, new in pairs)
        with contextlib.suppress(Exception):  # most may fit in their order, if they have one
            before, after = sorted(before), sorted(after)
        return not _can_be_paired(before, after, lambda old, new: not _differ(old, new, self.by))


def _nan_last(number: float) -> tuple[bool, float]:
    return number != number, number


def _can_be_paired(some: Sequence[Any], others: Sequence[Any], fit: Callable[[Any, Any], bool]) -> bool:
    """Whether all values can be paired with others that fit. Finds a largest matching, by augmenting paths: the order
    of values, which may differ from run to run, makes a difference only to the time it takes."""
    place = {at: at for at, pair in enumerate(zip(some, others, strict=True)) if fit(*pair)}
    """Of each value that has a partner, which it is, by number."""
    for start in sorted(set(range(len(some))) - place.keys()):
        came: dict[int, int] = {}
        taken = {partner: at for at, partner in place.items()}
        waiting, free = [start], -1
        while waiting and free < 0:
            at = waiting.pop()
            for other in range(len(others)):
                if other not in came and fit(some[at], others[other]):
                    came[other] = at
                    if other not in taken:
                        free = other
                        break
                    waiting.append(taken[other])
        if free < 0:
            return False
        while free >= 0:  # along the path, each gets the partner that the next one had
            at = came[free]
            place[at], free = free, place.get(at, -1)
    return True


def _differ(old: Any, new: Any, by: float) -> bool:
    match old, new:
        case ((tuple() | list()), (tuple() | list())):
            return _any_differ(old, new, by)
        case dict(), dict():
            return old.keys() != new.keys() or any(_differ(value, new[key], by) for key, value in old.items())
        case _ if hasattr(old, "shape") and hasattr(new, "shape"):
            return bool(old.shape != new.shape or _any_differ(old.ravel().tolist(), new.ravel().tolist(), by))
        case Number(), Number():
            equal = old == new or (old != old and new != new)
            return not equal and not abs(old - new) <= by  # type: ignore[operator]
        case _:
            return bool(old != new)


def _any_differ(old: Sequence[Any], new: Sequence[Any], by: float) -> bool:
    return len(old) != len(new) or any(_differ(a, b, by) for a, b in zip(old, new, strict=True))

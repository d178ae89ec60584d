"""Interval joins: pairs of a key's elements whose timestamps are near each other, kept in state until they are past."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tidegate.sdk.authoring.dofn import DoFn, on_timer
from tidegate.sdk.authoring.state import EventTimer, OrderedListStateSpec
from tidegate.sdk.data.values import TimestampedValue
from tidegate.sdk.relational.steps.joins import JoinCode, Values, pair_condition, pair_row
from tidegate.sdk.time import Duration, Timestamp

LEFTS: Final = OrderedListStateSpec("lefts")
RIGHTS: Final = OrderedListStateSpec("rights")
PAST: Final = EventTimer("past")


class IntervalJoinFn(DoFn):
    """Joins elements `(key, (side, values))` of one key if the right timestamp minus the left one is within a range.

    An element whose emission depends on having a partner is emitted, at its own timestamp, once the watermark shows
    that no further partner can come. It stays until the elements of the other side that it might match are past, too.
    With each stands in the state whether that is still undecided.
    """

    def __init__(self, code: JoinCode, lower: int, upper: int) -> None:
        self.parts = code, lower, upper
        self.code = code
        self.lower, self.upper = Duration(micros=lower), Duration(micros=upper)
        self._row, self._fits = pair_row(code), pair_condition(code)
        self._keep_lefts = max(0, -lower) if code.emits_rights else 0
        self._keep_rights = max(0, upper) if code.emits_lefts else 0

    def __reduce__(self) -> tuple[Any, ...]:
        return IntervalJoinFn, self.parts

    def process(
        self,
        element: tuple[Any, tuple[int, Values]],
        at: Any = DoFn.TimestampParam,
        lefts: Any = DoFn.StateParam(LEFTS),
        rights: Any = DoFn.StateParam(RIGHTS),
        past: Any = DoFn.TimerParam(PAST),
    ) -> Iterator[Any]:
        key, (side, values) = element
        code = self.code
        if code.is_null(key):
            if code.emits_rights if side else code.emits_lefts and code.join != "semi":
                yield self._row(None, values) if side else self._row(values, None)
            return
        if side:
            rights.add(at, (values, True))
            if code.emits_pairs:
                for other, (left, _) in lefts.read_range(at - self.upper, _after(at - self.lower)):
                    if self._fits(left, values):
                        yield TimestampedValue(self._row(left, values), max(at, other))
        else:
            lefts.add(at, (values, True))
            if code.emits_pairs:
                for other, (right, _) in rights.read_range(at + self.lower, _after(at + self.upper)):
                    if self._fits(values, right):
                        yield TimestampedValue(self._row(values, right), max(at, other))
        last = max(at.micros, at.micros - self.lower.micros if side else at.micros + self.upper.micros) + 1
        if code.emits_rights if side else code.emits_lefts:
            past.set(Timestamp(micros=last), tag=f"decide {side} {at.micros}", output_timestamp=at)
        kept = last + (self._keep_rights if side else self._keep_lefts)
        past.set(Timestamp(micros=kept), tag=f"remove {side} {at.micros}")

    @on_timer(PAST)
    def passed(
        self,
        tag: Any = DoFn.TimerTagParam,
        lefts: Any = DoFn.StateParam(LEFTS),
        rights: Any = DoFn.StateParam(RIGHTS),
    ) -> Iterator[Any]:
        what, side, micros = tag.split()
        at = Timestamp(micros=int(micros))
        own = rights if side == "1" else lefts
        if what == "remove":
            own.clear_range(at, _after(at))
            return
        undecided = list(own.read_range(at, _after(at)))
        own.clear_range(at, _after(at))
        if side == "1":
            others = [left for _, (left, _) in lefts.read_range(at - self.upper, _after(at - self.lower))]
        else:
            others = [right for _, (right, _) in rights.read_range(at + self.lower, _after(at + self.upper))]
        wanted = self.code.join == "semi"
        for _, (values, is_new) in undecided:
            own.add(at, (values, False))
            if not is_new:
                continue
            if side == "1" and not any(self._fits(left, values) for left in others):
                yield self._row(None, values)
            elif side == "0" and any(self._fits(values, right) for right in others) == wanted:
                yield self._row(values, None)


def _after(at: Timestamp) -> Timestamp:
    return at + Duration(micros=1)

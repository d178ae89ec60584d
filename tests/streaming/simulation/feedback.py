"""A simulated pipeline whose elements go round in a feedback loop, and the check of its output.

Each number that enters multiplies for some generations; some descendants wait for a timer in the loop. The loop counts
the elements of each key, and windows behind it count all elements, so nothing may be lost, repeated, or late.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import tidegate as tg
from tests.streaming.simulation.outside import Checked, Numbers, Outside, Record, event_time
from tests.streaming.simulation.pipeline import WINDOW, InPlaceSum, InvariantViolation, WithWindow
from tidegate.sdk.time import SECOND

GENERATIONS = 3
SEEN = tg.ValueStateSpec("seen")
KEPT = tg.BagStateSpec("kept")
PAUSE = tg.ProcessingTimer("pause")

Traveller = tuple[int, tuple[int, ...]]
"""The number that has entered, and the way through the generations."""


def children(traveller: Traveller) -> list[Traveller]:
    """What an element multiplies to, the same each time."""
    number, way = traveller
    if len(way) == GENERATIONS:
        return []
    return [(number, (*way, n)) for n in range((number * 7 + 3 * sum(way) + len(way)) % 3)]


def key_of(traveller: Traveller, keys: int) -> int:
    number, way = traveller
    return (number + sum(way) + len(way)) % keys


def seconds_of(traveller: Traveller) -> int:
    """How much later than the number that has entered an element is."""
    number, way = traveller
    return sum((number + n + at) % 3 for at, n in enumerate(way))


def waits(traveller: Traveller) -> bool:
    """Whether an element waits for a timer before it is fed back."""
    number, way = traveller
    return number % 5 == 0 and sum(way) % 2 == 0


class Count(tg.DoFn):
    """Numbers the elements of each key as they come."""

    def process(
        self, element: tuple[int, Traveller], seen: tg.ValueState[int] = tg.DoFn.StateParam(SEEN)
    ) -> Iterator[Record]:
        key, traveller = element
        count = (seen.read() or 0) + 1
        seen.write(count)
        yield ("hop", key, count, traveller)


class Multiply(tg.DoFn):
    """The children of an element, each with its own timestamp."""

    def process(self, element: Record, at: tg.Timestamp = tg.DoFn.TimestampParam) -> Iterator[Any]:
        traveller = element[3]
        for child in children(traveller):
            yield tg.TimestampedValue(child, at + (seconds_of(child) - seconds_of(traveller)))


class Wait(tg.DoFn):
    """Emits an element a while after it has come."""

    def process(
        self,
        element: tuple[Traveller, None],
        kept: tg.BagState[Any] = tg.DoFn.StateParam(KEPT),
        pause: tg.Timer = tg.DoFn.TimerParam(PAUSE),
        now: tg.Timestamp = tg.DoFn.ProcessingTimeParam,
    ) -> None:
        kept.add(element[0])
        pause.set(now + 0.05)

    @tg.on_timer(PAUSE)
    def on_pause(self, kept: tg.BagState[Any] = tg.DoFn.StateParam(KEPT)) -> Iterator[Traveller]:
        yield from kept.read()
        kept.clear()


def build_loop(name: str, numbers: int, partitions: int, keys: int, *, timers: bool) -> tg.Pipeline:
    """The pipeline of the simulation of that name. `timers`: some elements wait for one."""
    pipeline = tg.Pipeline()
    source = pipeline | "numbers" >> tg.Read(Numbers(name, numbers, partitions, keys, endless=False))

    def body(travellers: Any) -> Any:
        by_key = tg.Map(lambda traveller: (key_of(traveller, keys), traveller)).with_output_types(tuple[int, Any])
        counted = travellers | "key" >> by_key | "count" >> tg.ParDo(Count())
        back = counted | "multiply" >> tg.ParDo(Multiply()).with_output_types(Any)
        if timers:
            at_once = back | "at once" >> tg.Filter(lambda traveller: not waits(traveller))
            alone = tg.Map(lambda traveller: (traveller, None)).with_output_types(tuple[Any, None])
            waiting = back | "waiting" >> tg.Filter(waits) | "alone" >> alone
            later = waiting | "wait" >> tg.ParDo(Wait()).with_output_types(Any)
            back = (at_once, later) | tg.Flatten()
        return tg.Round(back, out=counted)

    entering = source | "enter" >> tg.Map(lambda pair: (pair[1], ())).with_output_types(Any)
    counted = entering | "loop" >> tg.Feedback(body, max_backlog=2_000)
    _ = counted | "counted" >> tg.Write(Checked(name, stages=True, commit_by="task"))
    windowed = (
        counted
        | "rekey" >> tg.Map(lambda record: (record[3][0] % 10, 1)).with_output_types(tuple[int, int])
        | "windows" >> tg.WindowInto(tg.FixedWindows(WINDOW))
        | "sums" >> tg.CombinePerKey(InPlaceSum())
        | "end" >> tg.ParDo(WithWindow())
    )
    _ = windowed | "summed" >> tg.Write(Checked(name))
    return pipeline


class LoopChecker:
    """Checks every commit against the expected output."""

    def __init__(self, outside: Outside, keys: int) -> None:
        self._outside = outside
        self._keys = keys
        self._share = outside.numbers // outside.partitions
        self._final = 0
        self._begin()

    def _begin(self) -> None:
        self._checked = 0
        self._counts: dict[int, int] = defaultdict(int)
        self._seen: set[Traveller] = set()
        self._sums: dict[tuple[int, int], int] = {}

    def check(self) -> None:
        """Check the output that has been committed since the last call."""
        committed = self._outside.committed
        while self._checked < len(committed):
            self._checked += 1
            self._check(committed[self._checked - 1][1])

    def mark_final(self) -> None:
        """Checkpoint numbers start again at 1: none of the output committed so far will be repeated."""
        self._final = len(self._outside.committed)

    def rewind(self, checkpoint: int) -> None:
        """The job resumes from this checkpoint because later ones are damaged: their output is going to be repeated."""
        committed = self._outside.committed
        committed[self._final :] = [(at, records) for at, records in committed[self._final :] if at <= checkpoint]
        self._begin()
        self.check()

    def _check(self, records: Iterable[Record]) -> None:
        for record in records:
            match record:
                case ("hop", key, count, traveller):
                    if traveller in self._seen:
                        raise InvariantViolation(f"{traveller} came twice")
                    self._seen.add(traveller)
                    self._counts[key] += 1
                    if count != self._counts[key]:
                        raise InvariantViolation(f"key {key}: count {count} follows {self._counts[key] - 1}")
                    if key != key_of(traveller, self._keys):
                        raise InvariantViolation(f"{traveller} has the key {key}")
                case ("sum", digit, end, n):
                    if (digit, end) in self._sums:
                        raise InvariantViolation(f"the window of {digit} that ends at {end} came twice")
                    self._sums[digit, end] = n
                case other:
                    raise InvariantViolation(f"what is {other}?")

    def finish(self, *, drained: bool) -> None:
        """Check that the output is complete. `drained`: the source ended early, in each partition at any position."""
        entered = {number for number, way in self._seen if not way}
        missing = set(range(self._share * self._outside.partitions)) - entered
        if drained:
            missing = {number for number in missing if number + 1 in entered and (number + 1) % self._share}
        if missing:
            raise InvariantViolation(f"{len(missing)} numbers are lost, such as {min(missing)}")
        expected: dict[tuple[int, int], int] = defaultdict(int)
        todo: list[Traveller] = [(number, ()) for number in entered]
        travellers = set()
        while todo:
            traveller = todo.pop()
            travellers.add(traveller)
            todo += children(traveller)
            at = event_time(traveller[0] % self._share) + seconds_of(traveller) * SECOND
            expected[traveller[0] % 10, (at // (WINDOW * SECOND) + 1) * WINDOW * SECOND] += 1
        if lost := travellers - self._seen:
            raise InvariantViolation(f"{len(lost)} elements were lost in the loop, such as {min(lost)}")
        if wrong := {at for at in expected.keys() | self._sums.keys() if self._sums.get(at) != expected.get(at)}:
            raise InvariantViolation(f"{len(wrong)} window sums behind the loop are wrong, such as {min(wrong)}")

"""A simulated pipeline whose elements go round in a feedback loop, and the check of its output.

Each number that enters multiplies for some generations; some descendants wait for a timer in the loop. The loop counts
the elements of each key, and windows behind it count all elements, so nothing may be lost, repeated, or late.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tidegate as tg
from tests.streaming.simulation.checking import Checker, InvariantViolation, summed
from tests.streaming.simulation.outside import Checked, Numbers, Record, event_time
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
    _ = summed(counted, by_digit) | "summed" >> tg.Write(Checked(name))
    return pipeline


def by_digit(record: Record) -> tuple[int, int]:
    return record[3][0] % 10, 1


class LoopChecker(Checker):
    """Checks the output of the pipeline."""

    def begin(self) -> None:
        self._seen: set[Traveller] = set()

    def check_record(self, record: Record) -> None:
        match record:
            case ("hop", key, count, traveller):
                if traveller in self._seen:
                    raise InvariantViolation(f"{traveller} came twice")
                self._seen.add(traveller)
                self.check_count(key, count)
                if key != key_of(traveller, self.keys):
                    raise InvariantViolation(f"{traveller} has the key {key}")
            case other:
                raise InvariantViolation(f"what is {other}?")

    def finish(self, *, drained: bool) -> None:
        entered = {number for number, way in self._seen if not way}
        self.check_numbers(entered, drained=drained)
        todo: list[Traveller] = [(number, ()) for number in entered]
        expected = set()
        while todo:
            traveller = todo.pop()
            expected.add(traveller)
            todo += children(traveller)
        if lost := expected - self._seen:
            raise InvariantViolation(f"{len(lost)} elements were lost in the loop, such as {min(lost)}")
        self.check_sums(
            (number, event_time(number % self.share) + seconds_of((number, way)) * SECOND) for number, way in expected
        )

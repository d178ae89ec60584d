"""SEMANTICS, the main promise: the output per key is a function of the sequence of events alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.testing import PaneRecorder, Recorded, TestPipeline, TestStream
from tidegate.testing.strategies import streams
from tidegate.testing.test_stream import Elements, Event

BOTH = tg.AfterWatermark(early=tg.AfterCount(2), late=tg.AfterCount(1))
ANY_OF = tg.Repeatedly(tg.AfterAny(tg.AfterCount(3), tg.AfterProcessingTime(10)))
PROMISE = settings.get_profile("promise")
STRATEGIES = {
    "fixed": tg.WindowInto(tg.FixedWindows(10)),
    "sliding, late": tg.WindowInto(tg.SlidingWindows(10, 5), allowed_lateness=15),
    "early and late": tg.WindowInto(tg.FixedWindows(10), BOTH, accumulation=tg.ACCUMULATING, allowed_lateness=20),
    "sessions": tg.WindowInto(tg.Sessions(5), BOTH, accumulation=tg.DISCARDING, allowed_lateness=20),
    "sessions by the clock": tg.WindowInto(tg.Sessions(5), ANY_OF, accumulation=tg.DISCARDING),
    "counts": tg.WindowInto(tg.CountWindows(3)),
    "evictor": tg.WindowInto(tg.FixedWindows(20), ANY_OF, evictor=tg.KeepLast(2), accumulation=tg.ACCUMULATING),
    "earliest": tg.WindowInto(
        tg.FixedWindows(10), BOTH, accumulation=tg.DISCARDING, timestamp_combiner=tg.TimestampCombiner.EARLIEST
    ),
    "every": tg.WindowInto(tg.FixedWindows(30), tg.EveryEventTime(7), accumulation=tg.DISCARDING),
}


def panes(runner: str, events: Sequence[Event], into: Any) -> dict[Any, list[Recorded]]:
    """The panes of each key."""
    stream = TestStream()
    stream.events = tuple(events)
    pipeline = TestPipeline(runner)
    recorder = PaneRecorder()
    _ = pipeline | stream.with_output_types(tuple[str, int]) | into | tg.GroupByKey() | recorder
    pipeline.run()
    return recorder.per_key()


def one_by_one(events: Sequence[Event]) -> list[Event]:
    """Send each element in a separate block."""
    cut: list[Event] = []
    for event in events:
        if isinstance(event, Elements):
            cut += [Elements((value,), (at,)) for value, at in zip(event.values, event.timestamps, strict=True)]
        else:
            cut.append(event)
    return cut


def joined(events: Sequence[Event]) -> list[Event]:
    """Neighbouring blocks as one."""
    whole: list[Event] = []
    for event in events:
        match whole[-1:], event:
            case [Elements(before, times)], Elements(values, more):
                whole[-1] = Elements(before + values, times + more)
            case _:
                whole.append(event)
    return whole


def by_key(events: Sequence[Event]) -> list[Event]:
    """Elements between two other events sorted by key, those of one key in their order."""
    ordered: list[Event] = []
    for event in joined(events):
        if isinstance(event, Elements):
            pairs = sorted(zip(event.values, event.timestamps, strict=True), key=lambda pair: pair[0][0])
            ordered.append(Elements(tuple(v for v, _ in pairs), tuple(t for _, t in pairs)))
        else:
            ordered.append(event)
    return ordered


@pytest.mark.parametrize("into", STRATEGIES.values(), ids=STRATEGIES)
@PROMISE
@given(stream=streams(keys=["a", "b"], length=40, late=True, max_elements=12))
def test_panes_do_not_depend_on_where_blocks_end(stream_runner: str, into: Any, stream: TestStream) -> None:
    whole = panes(stream_runner, joined(stream.events), into)
    assert panes(stream_runner, stream.events, into) == whole
    assert panes(stream_runner, one_by_one(stream.events), into) == whole


@pytest.mark.parametrize("into", STRATEGIES.values(), ids=STRATEGIES)
@PROMISE
@given(stream=streams(keys=["a", "b", "c"], length=40, late=True, max_elements=12))
def test_panes_of_a_key_do_not_depend_on_other_keys(stream_runner: str, into: Any, stream: TestStream) -> None:
    whole = panes(stream_runner, stream.events, into)
    assert panes(stream_runner, by_key(stream.events), into) == whole
    for key in whole:
        alone = [only(key, event) if isinstance(event, Elements) else event for event in stream.events]
        assert panes(stream_runner, alone, into)[key] == whole[key]


def only(key: str, event: Elements) -> Elements:
    kept = [(v, t) for v, t in zip(event.values, event.timestamps, strict=True) if v[0] == key]
    return Elements(tuple(v for v, _ in kept), tuple(t for _, t in kept))


ORDER_DOES_NOT_SHOW = ["fixed", "sliding, late", "every"]


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name not in ORDER_DOES_NOT_SHOW])
@PROMISE
@given(elements=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=12))
def test_bounded_panes_contain_the_same_elements_as_those_of_the_in_order_stream(
    stream_runner: str, name: str, elements: list[tuple[int, int]]
) -> None:
    """Bounded input gives the values and windows of an ordered stream whose watermark advances only at the end."""
    into = STRATEGIES[name]
    pipeline = TestPipeline(stream_runner)
    recorder = PaneRecorder()
    source = pipeline | tg.Create([tg.TimestampedValue(("k", n), at) for n, at in elements]).with_output_types(
        tuple[str, int]
    )
    _ = source | into | tg.GroupByKey() | recorder
    pipeline.run()
    ordered = sorted(elements, key=lambda pair: pair[1])
    stream = TestStream().add_elements([tg.TimestampedValue(("k", n), at) for n, at in ordered])
    assert recorder.per_key() == panes(stream_runner, stream.events, into)

"""Hypothesis strategies for streams out of order. Needs the package `hypothesis`.

@given(streams(keys=["a", "b"], values=st.integers()))
def test_sums_do_not_depend_on_the_order(stream: TestStream) -> None: ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tidegate.sdk.data.values import TimestampedValue
from tidegate.sdk.time import MIN_MICROS, SECOND, Duration, DurationLike, Timestamp, TimestampLike
from tidegate.testing.test_stream import TestStream


def timestamps(start: TimestampLike = 0, length: DurationLike = 60) -> st.SearchStrategy[Timestamp]:
    """Instants within `length` after `start`: mostly full seconds, where windows usually begin and end."""
    low = Timestamp.of(start).micros
    span = Duration.of(length).micros
    seconds = st.integers(0, max(0, span - 1) // SECOND).map(lambda number: number * SECOND)
    near = st.tuples(seconds, st.sampled_from([-1, 1])).map(lambda pair: min(max(sum(pair), 0), max(0, span - 1)))
    anywhere = st.integers(0, max(0, span - 1))
    return (seconds | seconds | near | anywhere).map(lambda micros: Timestamp(micros=low + micros))


@st.composite
def streams(
    draw: st.DrawFn,
    keys: Sequence[Any] | None = ("a", "b", "c"),
    values: st.SearchStrategy[Any] | None = None,
    *,
    start: TimestampLike = 0,
    length: DurationLike = 60,
    out_of_orderness: DurationLike = 10,
    max_elements: int = 20,
    late: bool = False,
    clock: bool = True,
) -> TestStream:
    """A stream of `(key, value)` pairs (plain values if `keys` is None), at most `out_of_orderness` out of order.

    Event times are within `length` after `start`. The watermark advances anywhere between elements, never beyond an
    element that is still to come unless `late`. With `clock`, processing time advances too.
    """
    elements = draw(st.lists(_elements(keys, values, start, length), max_size=max_elements))
    bound = Duration.of(out_of_orderness).micros
    jitter = draw(st.lists(st.integers(0, bound), min_size=len(elements), max_size=len(elements)))
    # An element that arrives at most `bound` after its event time is at most that far behind its predecessors.
    order = sorted(range(len(elements)), key=lambda i: (elements[i].micros + jitter[i], i))
    remaining = [elements[i] for i in order]
    stream = TestStream()
    watermark = MIN_MICROS
    while remaining:
        size = draw(st.integers(1, min(4, len(remaining))))
        block, remaining = remaining[:size], remaining[size:]
        stream.add_elements(block)
        for _ in range(draw(st.integers(0, 2))):
            event = draw(st.sampled_from(["watermark", "clock"]))
            if event == "watermark":
                watermark = _advanced(draw, watermark, block, remaining, late)
                if watermark > MIN_MICROS:
                    stream.advance_watermark_to(Timestamp(micros=watermark))
            elif event == "clock" and clock:
                stream.advance_processing_time(draw(st.integers(1, 30)))
    return stream


def _elements(
    keys: Sequence[Any] | None, values: st.SearchStrategy[Any] | None, start: TimestampLike, length: DurationLike
) -> st.SearchStrategy[TimestampedValue[Any]]:
    values = st.integers(0, 9) if values is None else values
    elements = values if keys is None else st.tuples(st.sampled_from(list(keys)), values)
    return st.builds(TimestampedValue, elements, timestamps(start, length))


def _advanced(
    draw: st.DrawFn,
    watermark: int,
    block: Sequence[TimestampedValue[Any]],
    remaining: Sequence[TimestampedValue[Any]],
    late: bool,
) -> int:
    """Draw the next watermark: at most the least remaining timestamp, or beyond it if elements may be late."""
    greatest = max(element.micros for element in block) + 30 * SECOND
    latest = greatest if late else min((element.micros for element in remaining), default=greatest)
    earliest = watermark if watermark > MIN_MICROS else min(element.micros for element in block)
    return max(watermark, draw(st.just(latest) | st.integers(min(earliest, latest), latest)))

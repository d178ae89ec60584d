"""The guarantees of the hypothesis strategies about the streams that they generate."""

from __future__ import annotations

from typing import Any

from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.sdk.portable import model as portable
from tidegate.sdk.time import MIN_MICROS, SECOND
from tidegate.testing import PaneRecorder, TestPipeline, TestStream
from tidegate.testing.strategies import streams, timestamps
from tidegate.testing.test_stream import Elements


def watermarks_and_elements(stream: TestStream) -> list[tuple[int, int]]:
    """Each element's timestamp, with the watermark at its arrival."""
    watermark, found = MIN_MICROS, []
    for event in stream.events:
        match event:
            case portable.AdvanceWatermark(to=to):
                watermark = max(watermark, to)
            case Elements(timestamps=times):
                found += [(micros, watermark) for micros in times]
    return found


@given(streams())
def test_no_element_is_behind_the_watermark_by_default(stream: TestStream) -> None:
    assert all(micros >= watermark for micros, watermark in watermarks_and_elements(stream))


@given(streams(out_of_orderness=4))
def test_elements_are_out_of_order_by_at_most_the_given_duration(stream: TestStream) -> None:
    greatest = MIN_MICROS
    for micros, _ in watermarks_and_elements(stream):
        assert micros >= greatest - 4 * SECOND
        greatest = max(greatest, micros)


@given(streams(keys=["x", "y"], values=st.text(max_size=2), start=100, length=5))
def test_elements_are_pairs_with_timestamps_in_the_requested_range(stream: TestStream) -> None:
    for event in stream.events:
        if isinstance(event, Elements):
            assert all(key in ("x", "y") and isinstance(value, str) for key, value in event.values)
            assert all(100 * SECOND <= micros < 105 * SECOND for micros in event.timestamps)


def test_streams_with_rare_events_are_generated() -> None:
    quick = settings(max_examples=2000, database=None, derandomize=True, phases=[Phase.generate])

    def has(kind: type[Any]) -> Any:
        return lambda stream: any(isinstance(event, kind) for event in stream.events)

    assert has(portable.AdvanceClock)(find(streams(), has(portable.AdvanceClock), settings=quick))
    late = find(streams(late=True), lambda s: any(m < w for m, w in watermarks_and_elements(s)), settings=quick)
    assert late.events
    out_of_order = find(
        streams(), lambda s: (t := [m for m, _ in watermarks_and_elements(s)]) != sorted(t), settings=quick
    )
    assert out_of_order.events
    at_a_boundary = find(timestamps(), lambda at: at.micros > 0 and at.micros % (10 * SECOND) == 0, settings=quick)
    assert at_a_boundary.micros < 60 * SECOND


@settings(max_examples=20)
@given(streams(out_of_orderness=20))
def test_sums_of_streams_without_late_elements_equal_those_of_plain_python(stream: TestStream) -> None:
    pipeline = TestPipeline()
    recorder = PaneRecorder()
    windowed = pipeline | stream.with_output_types(tuple[str, int]) | tg.WindowInto(tg.FixedWindows(10))
    _ = windowed | tg.CombinePerKey(sum) | recorder
    pipeline.run()
    expected: dict[tuple[str, int], int] = {}
    for event in stream.events:
        if isinstance(event, Elements):
            for (key, value), micros in zip(event.values, event.timestamps, strict=True):
                place = key, micros // (10 * SECOND)
                expected[place] = expected.get(place, 0) + value
    found = {(r.value[0], r.window.start_micros // (10 * SECOND)): r.value[1] for r in recorder.records()}
    assert found == expected

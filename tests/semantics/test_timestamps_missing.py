"""Every runner warns of event-time windows over elements without timestamps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import tidegate as tg
from tidegate.testing import TestStream

MINUTES = tg.FixedWindows(60)
GLOBAL = "global" >> tg.WindowInto(tg.GlobalWindows())
PAIRS = [("a", 1), ("b", 2), ("c", 3)]


def stamped(element: Any) -> Any:
    return tg.TimestampedValue(element, element[1])


def warned(runner: str, caplog: pytest.LogCaptureFixture, build: Callable[[Any], Any], elements: Any = PAIRS) -> str:
    p = tg.Pipeline(runner=runner)
    _ = build(p | tg.Create(elements)) | tg.Map(str)
    p.run().wait_until_finish()
    return "\n".join(record.getMessage() for record in caplog.records if "applied" in record.getMessage())


@pytest.mark.parametrize(
    "windows",
    [tg.FixedWindows(5), tg.SlidingWindows(10, 5), tg.Sessions(5), tg.CalendarWindows.days(1)],
    ids=lambda each: type(each).__name__,
)
def test_unstamped_elements_in_windows_are_counted_and_named(
    runner: str, windows: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def build(pairs: Any) -> Any:
        late = pairs | tg.Filter(lambda pair: pair[1] > 1)
        return late | "in windows" >> tg.WindowInto(windows) | tg.GroupByKey()

    found = warned(runner, caplog, build)
    assert found.count("step 'in windows'") == 1
    assert f"({__file__}:" in found
    assert f"applied {type(windows).__name__} to 2 elements without a timestamp" in found
    assert "tg.Read(source, timestamp=…)" in found


def test_an_exchange_before_the_windows_stamps_nothing(runner: str, caplog: pytest.LogCaptureFixture) -> None:
    found = warned(runner, caplog, lambda pairs: pairs | tg.Reshuffle() | tg.WindowInto(tg.FixedWindows(5)))
    assert "to 3 elements without a timestamp" in found


def test_a_grouping_in_the_global_window_before_the_windows_is_named_as_the_cause(
    runner: str, caplog: pytest.LogCaptureFixture
) -> None:
    def build(pairs: Any) -> Any:
        return pairs | tg.Map(stamped) | tg.GroupByKey() | tg.WindowInto(tg.FixedWindows(5)) | tg.Map(str)

    found = warned(runner, caplog, build)
    assert "to 3 elements that a grouping in the global window had stamped with the end of time" in found
    assert "Apply it before that grouping" in found


def fixed(pairs: Any) -> Any:
    return pairs | tg.WindowInto(tg.FixedWindows(5)) | tg.CombinePerKey(sum)


QUIET: dict[str, Callable[[Any], Any]] = {
    "the global window": lambda pairs: pairs | tg.WindowInto(tg.GlobalWindows()) | tg.GroupByKey(),
    "windows by count": lambda pairs: pairs | tg.WindowInto(tg.CountWindows(2)) | tg.GroupByKey(),
    "a step that stamps all": lambda pairs: fixed(pairs | tg.Map(stamped)),
    "a step that stamps what it keeps": lambda pairs: fixed(
        pairs | tg.FlatMap(lambda pair: [stamped(pair)] if pair[1] == 3 else [])
    ),
    "a grouping in windows": lambda pairs: fixed(pairs | tg.Map(stamped)) | tg.WindowInto(tg.FixedWindows(60)),
    "nothing that reaches the windows": lambda pairs: fixed(pairs | tg.Filter(lambda pair: False)),
}


@pytest.mark.parametrize("case", QUIET)
def test_other_windows_are_not_warned_of(runner: str, case: str, caplog: pytest.LogCaptureFixture) -> None:
    assert warned(runner, caplog, QUIET[case]) == ""


def test_elements_that_were_created_with_times_are_not_warned_of(runner: str, caplog: pytest.LogCaptureFixture) -> None:
    assert warned(runner, caplog, fixed, [stamped(pair) for pair in PAIRS]) == ""
    assert warned(runner, caplog, fixed, [tg.TimestampedValue(pair, 7) for pair in PAIRS]) == ""


def in_windows(pairs: Any) -> Any:
    """The pairs summed up in windows, with those of the global window."""
    return pairs | "in windows" >> tg.WindowInto(tg.FixedWindows(5)) | tg.CombinePerKey(sum) | GLOBAL


@pytest.mark.parametrize("loops", [1, 2])
def test_windows_in_the_body_of_a_loop_are_named_once(
    runner: str, loops: int, caplog: pytest.LogCaptureFixture
) -> None:
    body = in_windows
    for number in range(loops):
        body = partial(repeated, f"loop {number}", body)
    found = warned(runner, caplog, body)
    path = "/".join(f"loop {number}" for number in reversed(range(loops)))
    assert found.count(f"step '{path}/in windows'") == 1
    assert "applied FixedWindows to 3 elements without a timestamp" in found


def repeated(name: str, body: Callable[[Any], Any], pairs: Any) -> Any:
    return pairs | name >> tg.Iterate(body, rounds=2)


def test_windows_in_the_body_of_a_feedback_are_named(caplog: pytest.LogCaptureFixture) -> None:
    def build(pairs: Any) -> Any:
        body = tg.Feedback(lambda x: tg.Round(x | tg.Filter(lambda pair: False), out=x | tg.WindowInto(MINUTES)))
        return pairs | "loop" >> body

    assert "step 'loop/WindowInto(FixedWindows)'" in warned("direct", caplog, build)


def test_windows_in_a_loop_over_a_stream_are_named(caplog: pytest.LogCaptureFixture) -> None:
    p = tg.Pipeline(runner="direct")
    stream = p | TestStream().with_output_types(tuple[str, int]).add_elements(PAIRS).advance_watermark_to_infinity()
    _ = stream | "loop" >> tg.Iterate(in_windows, rounds=2) | tg.Map(str)
    p.run().wait_until_finish()
    assert "step 'loop/in windows~1'" in caplog.text

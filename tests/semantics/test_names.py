"""SEMANTICS, Names."""

from __future__ import annotations

import datetime as dt

import tidegate as tg


def test_accumulation_and_timestamp_combiners() -> None:
    assert tg.DISCARDING is not tg.ACCUMULATING
    assert [c.name for c in tg.TimestampCombiner] == ["END_OF_WINDOW", "EARLIEST", "LATEST"]


def test_the_parameters_of_a_dofn_are_attributes_of_dofn() -> None:
    for name in (
        "ElementParam",
        "KeyParam",
        "TimestampParam",
        "WindowParam",
        "PaneInfoParam",
        "StateParam",
        "TimerParam",
    ):
        assert hasattr(tg.DoFn, name), name


def test_a_timestamp_tells_its_time() -> None:
    at = tg.Timestamp(1, 500_000)
    assert (at.micros, at.seconds()) == (1_500_000, 1.5)
    assert at.to_utc_datetime() == dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=dt.UTC)
    assert tg.TimestampedValue("a", at).micros == 1_500_000


def test_a_window_tells_its_bounds() -> None:
    window = tg.IntervalWindow(0, 10)
    assert (window.start, window.end) == (tg.Timestamp(0), tg.Timestamp(10))
    assert window.max_timestamp() < window.end
    assert tg.GlobalWindow().end == tg.MAX_TIMESTAMP


def test_a_pane_has_beams_fields() -> None:
    pane = tg.PaneInfo(is_first=True, is_last=False, timing=tg.Timing.EARLY, index=0, nonspeculative_index=-1)
    assert [timing.name for timing in tg.Timing] == ["EARLY", "ON_TIME", "LATE", "UNKNOWN"]
    assert pane.timing is tg.Timing.EARLY

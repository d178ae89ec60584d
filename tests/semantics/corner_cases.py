"""Corner cases of windows, lateness, triggers, panes, timestamps, evictors, state and inputs, as data.

Each is a strategy, a script for one key (see `stream_scripts`) and the panes that key gives, in order. What a pattern
leaves out is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tidegate as tg
from tests.support.stream_scripts import INFINITY, AdvanceClock, Idle, SecondInput, Watermark
from tidegate.testing import Fired, early, fired, late, on_time

GLOBAL = tg.GlobalWindow()
TEN = tg.FixedWindows(10)
HUNDRED = tg.FixedWindows(100)
FIRST = (0, 10)
END_OF_FIRST = 9.999999
D, A = tg.DISCARDING, tg.ACCUMULATING
LONG = 1000
EARLIEST, LATEST = tg.TimestampCombiner.EARLIEST, tg.TimestampCombiner.LATEST


@dataclass(frozen=True)
class Case:
    """One corner case: `into` are the arguments of WindowInto, `group` is the grouping (None: GroupByKey)."""

    name: str
    into: dict[str, Any]
    script: Sequence[Any]
    expected: Sequence[Fired]
    group: Any = None
    dropped_late: int = 0
    dropped_closed: int = 0
    options: dict[str, Any] = field(default_factory=dict)


def into(
    assigner: Any = TEN, trigger: Any = None, accumulation: Any = None, lateness: Any = None, **more: Any
) -> dict[str, Any]:
    """The arguments of a WindowInto."""
    return {
        "assigner": assigner,
        "trigger": trigger,
        "accumulation": accumulation,
        "allowed_lateness": lateness,
        **more,
    }


def each(n: int = 1) -> tg.Repeatedly:
    """After every n-th element."""
    return tg.Repeatedly(tg.AfterCount(n))


def both(early_after: int = 1, late_after: int = 1) -> tg.AfterWatermark:
    """On time, and before and after it at elements."""
    return tg.AfterWatermark(early=tg.AfterCount(early_after), late=tg.AfterCount(late_after))


def micros(n: int) -> tg.Timestamp:
    """An instant in microseconds."""
    return tg.Timestamp(micros=n)


class ByName(tg.WindowAssigner):
    """An assigner that depends on the element: known elements get a window of their own type, all others none."""

    def assign(self, timestamp: tg.Timestamp, element: Any) -> Iterable[tg.BoundedWindow]:
        _, value = element
        return [Trip(tg.Timestamp(20), value[0])] if value.startswith(("x", "y")) else []


@dataclass(frozen=True, order=True)
class Trip(tg.BoundedWindow):
    """A user-defined window type."""

    end: tg.Timestamp
    name: str


class LongestOfName(tg.WindowAssigner):
    """Windows of a name that end ten seconds after their element; those of one name become the longest."""

    def assign(self, timestamp: tg.Timestamp, element: Any) -> Iterable[tg.BoundedWindow]:
        return [Trip(timestamp + 10, element[1][0])]

    def merge(self, windows: Iterable[Any]) -> Iterable[tuple[Any, list[Any]]]:
        of_name: dict[str, list[Any]] = {}
        for window in windows:
            of_name.setdefault(window.name, []).append(window)
        return [(max(parts), parts) for parts in of_name.values() if len(parts) > 1]


class Halves(tg.Evictor):
    """Keeps every second element, from the first on."""

    def keep(self, elements: Sequence[tuple[Any, tg.Timestamp]]) -> Iterable[int]:
        return range(0, len(elements), 2)


class Numbered(tg.DoFn):
    """Numbers the elements of each key and window."""

    COUNT = tg.ValueStateSpec("count")
    SHORT = tg.ValueStateSpec("short", ttl=5)

    def process(
        self,
        element: Any,
        count: tg.ValueState[int] = tg.DoFn.StateParam(COUNT),
        short: tg.ValueState[int] = tg.DoFn.StateParam(SHORT),
    ) -> Iterable[Any]:
        for cell in (count, short):
            cell.write((cell.read() or 0) + 1)
        return [(element[0], (element[1], count.read(), short.read()))]


class Alarms(tg.DoFn):
    """A number sets a timer to that time; anything else is passed on."""

    ALARM = tg.EventTimer("alarm")

    def process(self, element: Any, alarm: tg.Timer = tg.DoFn.TimerParam(ALARM)) -> Iterable[Any]:
        if not isinstance(element[1], str):
            alarm.set(element[1])
            return []
        return [element]

    @tg.on_timer(ALARM)
    def on_alarm(self, key: Any = tg.DoFn.KeyParam) -> Iterable[Any]:
        return [(key, "alarm")]


NEAR_THE_END = 2**63 - 1 - 10
UNSAFE = {"allow_unsafe_triggers": True}

WINDOWS = [
    Case(
        "negative_timestamps_are_floored",
        into(),
        [("a", -1), ("b", -10), ("c", -11), INFINITY],
        [on_time(["c"], (-20, -10), 0), on_time(["a", "b"], (-10, 0), 0)],
    ),
    Case(
        "a_negative_offset_moves_windows_back",
        into(tg.FixedWindows(10, offset=-3)),
        [("a", 0), ("b", 6.999999), ("c", 7), INFINITY],
        [on_time(["a", "b"], (-3, 7)), on_time(["c"], (7, 17))],
    ),
    Case(
        "a_positive_offset_with_negative_timestamps",
        into(tg.FixedWindows(10, offset=4)),
        [("a", -7), ("b", -6), INFINITY],
        [on_time(["a"], (-16, -6)), on_time(["b"], (-6, 4))],
    ),
    Case(
        "an_element_exactly_at_the_end_belongs_to_the_next_window",
        into(),
        [("a", END_OF_FIRST), ("b", 10), INFINITY],
        [on_time(["a"], FIRST), on_time(["b"], (10, 20))],
    ),
    Case(
        "an_element_of_sliding_windows_is_in_each_that_holds_it",
        into(tg.SlidingWindows(10, 5)),
        [("a", 7), INFINITY],
        [on_time(["a"], FIRST), on_time(["a"], (5, 15))],
    ),
    Case(
        "an_element_at_a_sliding_windows_start_has_left_the_one_that_ends_there",
        into(tg.SlidingWindows(10, 5)),
        [("a", 10), INFINITY],
        [on_time(["a"], (5, 15)), on_time(["a"], (10, 20))],
    ),
    Case(
        "a_sliding_size_that_is_no_multiple_of_the_period",
        into(tg.SlidingWindows(10, 4)),
        [("a", 5), ("b", 6), INFINITY],
        [on_time(["a"], (-4, 6)), on_time(["a", "b"], FIRST), on_time(["a", "b"], (4, 14))],
    ),
    Case(
        "a_sliding_period_longer_than_the_size_leaves_gaps",
        into(tg.SlidingWindows(2, 5)),
        [("a", 1), ("b", 3), ("c", 5), INFINITY],
        [on_time(["a"], (0, 2)), on_time(["c"], (5, 7))],
    ),
    Case(
        "sliding_windows_before_1970",
        into(tg.SlidingWindows(10, 5, offset=-2)),
        [("a", -2), INFINITY],
        [on_time(["a"], (-7, 3)), on_time(["a"], (-2, 8))],
    ),
    Case(
        "cumulative_windows_share_a_start_and_grow",
        into(tg.CumulativeWindows(15, 5)),
        [("a", 2), ("b", 7), ("c", 14.999999), ("d", 15), INFINITY],
        [
            on_time(["a"], (0, 5)),
            on_time(["a", "b"], FIRST),
            on_time(["a", "b", "c"], (0, 15)),
            on_time(["d"], (15, 20)),
            on_time(["d"], (15, 25)),
            on_time(["d"], (15, 30)),
        ],
    ),
    Case(
        "a_calendar_day_is_counted_from_local_midnight",
        into(tg.CalendarWindows.days(1, timezone="Asia/Tokyo")),
        [("a", 15 * 3600 - 1), ("b", 15 * 3600), INFINITY],
        [on_time(["a"], (-9 * 3600, 15 * 3600)), on_time(["b"], (15 * 3600, 39 * 3600))],
    ),
    Case(
        "a_windows_end_saturates_at_the_end_of_time",
        into(),
        [("a", micros(NEAR_THE_END)), INFINITY],
        [on_time(["a"], tg.IntervalWindow(micros(NEAR_THE_END - NEAR_THE_END % 10_000_000), tg.MAX_TIMESTAMP), 0)],
    ),
    Case(
        "cumulative_windows_whose_ends_saturate_are_one",
        into(tg.CumulativeWindows(15, 5)),
        [("a", micros(NEAR_THE_END)), INFINITY],
        [on_time(["a"], tg.IntervalWindow(micros(NEAR_THE_END - NEAR_THE_END % 15_000_000), tg.MAX_TIMESTAMP), 0)],
    ),
    Case(
        "an_element_without_a_timestamp_is_in_the_first_window_of_time",
        into(),
        [("a", tg.MIN_TIMESTAMP), INFINITY],
        [on_time(["a"], tg.IntervalWindow(tg.MIN_TIMESTAMP, micros(-(2**63) + 2**63 % 10_000_000)))],
    ),
    Case(
        "an_assigner_of_the_authors_own_may_look_at_the_element_and_give_no_window",
        into(ByName()),
        [("x1", 1), ("y1", 2), ("nowhere", 3), ("x2", 4), INFINITY],
        [on_time(["x1", "x2"], Trip(tg.Timestamp(20), "x")), on_time(["y1"], Trip(tg.Timestamp(20), "y"))],
    ),
    Case(
        "an_assigner_of_the_authors_own_may_merge_windows",
        into(LongestOfName(), both(), A),
        [("x1", 0), ("y1", 3), ("x2", 5), Watermark(13), Watermark(15)],
        [
            early(["x1"], Trip(tg.Timestamp(10), "x"), 0),
            early(["y1"], Trip(tg.Timestamp(13), "y"), 0),
            early(["x1", "x2"], Trip(tg.Timestamp(15), "x"), 0),
            on_time(["y1"], Trip(tg.Timestamp(13), "y"), 1),
            on_time(["x1", "x2"], Trip(tg.Timestamp(15), "x"), 1),
        ],
    ),
    Case(
        "a_merge_whose_result_equals_a_part_goes_on_with_its_index",
        into(LongestOfName(), each(), A),
        [("x1", 5), ("x2", 0), INFINITY],
        [early(["x1"], Trip(tg.Timestamp(15), "x"), 0), early(["x1", "x2"], Trip(tg.Timestamp(15), "x"), 1)],
    ),
    Case(
        "lateness_under_windows_that_merge_is_that_of_the_merged_window",
        into(LongestOfName()),
        [("x1", 5), Watermark(12), ("x2", 0), ("y1", 1), INFINITY],
        [on_time(["x1", "x2"], Trip(tg.Timestamp(15), "x"), 0)],
        dropped_late=1,
    ),
]

SESSIONS = [
    Case(
        "sessions_that_overlap_merge",
        into(tg.Sessions(5)),
        [("a", 0), ("b", 3), INFINITY],
        [on_time(["a", "b"], (0, 8), 0)],
    ),
    Case(
        "sessions_that_touch_stay_apart",
        into(tg.Sessions(5)),
        [("a", 0), ("b", 5), INFINITY],
        [on_time(["a"], (0, 5)), on_time(["b"], (5, 10))],
    ),
    Case(
        "an_element_bridges_two_sessions",
        into(tg.Sessions(5)),
        [("a", 0), ("b", 8), ("c", 4), INFINITY],
        [on_time(["a", "b", "c"], (0, 13), 0)],
    ),
    Case(
        "an_element_that_reaches_to_the_end_of_one_session_only_merges_with_the_other",
        into(tg.Sessions(5)),
        [("a", 0), ("b", 10), ("c", 5.000001), INFINITY],
        [on_time(["a"], (0, 5)), on_time(["b", "c"], (5.000001, 15))],
    ),
    Case(
        "a_gap_may_depend_on_the_element",
        into(tg.Sessions(lambda element: 20 if element[1] == "long" else 1)),
        [("a", 0), ("long", 5), ("b", 20), ("c", 25), INFINITY],
        [on_time(["a"], (0, 1)), on_time(["long", "b"], (5, 25)), on_time(["c"], (25, 26))],
    ),
    Case(
        "a_bridge_adds_counts_up",
        into(tg.Sessions(10), each(3), D),
        [("a", 0), ("b", 15), ("c", 8), INFINITY],
        [early(["a", "b", "c"], (0, 25), 0)],
    ),
    Case(
        "after_a_merge_a_count_fires_at_n_or_more_and_carries_no_excess",
        into(tg.Sessions(10), each(3), D),
        [("a", 0), ("b", 1), ("c", 15), ("d", 16), ("e", 8), ("f", 9), INFINITY],
        [early(["a", "b", "c", "d", "e"], (0, 26), 0), on_time(["f"], (0, 26), 1)],
    ),
    Case(
        "a_bridge_takes_the_earliest_clock",
        into(tg.Sessions(10), tg.Repeatedly(tg.AfterProcessingTime(5)), D),
        [("a", 0), AdvanceClock(3), ("b", 15), ("c", 8), AdvanceClock(2), AdvanceClock(100), INFINITY],
        [early(["a", "b", "c"], (0, 25), 0)],
    ),
    Case(
        "a_bridge_unites_what_after_all_has_latched",
        into(
            tg.Sessions(10),
            tg.Repeatedly(tg.AfterAll(tg.AfterElement(lambda v: v == "x"), tg.AfterElement(lambda v: v == "y"))),
            D,
        ),
        [("x", 0), ("y", 15), ("c", 8), ("d", 9), INFINITY],
        [early(["x", "y", "c"], (0, 25), 0), on_time(["d"], (0, 25), 1)],
    ),
    Case(
        "a_bridge_takes_the_furthest_phase_of_after_each",
        into(tg.Sessions(10), tg.AfterEach(tg.AfterCount(1), each(3)), D),
        [("a", 0), ("b", 15), ("c", 8), ("d", 9), ("e", 10), INFINITY],
        [
            early(["a"], FIRST, 0),
            early(["b"], (15, 25), 0),
            early(["c", "d", "e"], (0, 25), 0),
        ],
    ),
    Case(
        "a_bridge_of_sessions_in_different_phases_of_after_each_counts_what_is_of_the_furthest",
        into(tg.Sessions(10), tg.AfterEach(tg.AfterCount(2), each(3)), D),
        [("a", 0), ("b", 1), ("c", 15), ("d", 8), ("e", 9), ("f", 10), INFINITY],
        [early(["a", "b"], (0, 11), 0), early(["c", "d", "e", "f"], (0, 25), 0)],
    ),
    Case(
        "a_bridge_under_a_period_of_event_time",
        into(tg.Sessions(10), tg.EveryEventTime(20), D),
        [("a", 0), ("b", 15), ("c", 8), Watermark(20), INFINITY],
        [early(["a", "b", "c"], (0, 25), 0)],
    ),
    Case(
        "a_bridge_under_a_period_of_processing_time",
        into(tg.Sessions(10), tg.EveryProcessingTime(10), D),
        [("a", 0), AdvanceClock(3), ("b", 15), AdvanceClock(4), ("c", 8), AdvanceClock(3), Watermark(25)],
        [early(["a", "b", "c"], (0, 25), 0)],
    ),
    Case(
        "a_bridge_under_any_of_a_count_and_a_clock_adds_the_counts",
        into(tg.Sessions(10), tg.Repeatedly(tg.AfterAny(tg.AfterCount(4), tg.AfterProcessingTime(5))), D),
        [("a", 0), AdvanceClock(3), ("b", 15), ("c", 8), ("d", 9), AdvanceClock(100), Watermark(25)],
        [early(["a", "b", "c", "d"], (0, 25), 0)],
    ),
    Case(
        "a_bridge_under_any_of_a_count_and_a_clock_takes_the_earliest_clock",
        into(tg.Sessions(10), tg.Repeatedly(tg.AfterAny(tg.AfterCount(4), tg.AfterProcessingTime(5))), D),
        [("a", 0), AdvanceClock(3), ("b", 15), ("c", 8), AdvanceClock(2), ("d", 9), Watermark(25)],
        [early(["a", "b", "c"], (0, 25), 0), on_time(["d"], (0, 25), 1)],
    ),
    Case(
        "a_bridge_under_or_finally_merges_both_its_sides",
        into(tg.Sessions(10), each(3).or_finally(tg.AfterElement(lambda v: v == "stop")), D),
        [("a", 0), ("b", 15), ("c", 8), ("stop", 9), ("d", 10), INFINITY],
        [early(["a", "b", "c"], (0, 25), 0), early(["stop"], (0, 25), 1, is_last=True)],
        dropped_closed=1,
        options=UNSAFE,
    ),
    Case(
        "a_bridge_under_never_waits_for_the_merged_windows_closing",
        into(tg.Sessions(10), tg.Never(), None, 5),
        [("a", 0), ("b", 15), ("c", 8), Watermark(25), ("d", 3), Watermark(30)],
        [on_time(["a", "b", "c", "d"], (0, 25), 0, is_last=True)],
    ),
    Case(
        "a_bridge_of_sessions_that_have_fired_on_time_is_late_at_once",
        into(tg.Sessions(10), None, None, LONG),
        [("a", 0), ("b", 15), Watermark(25), ("c", 8)],
        [on_time(["a"], FIRST, 0), on_time(["b"], (15, 25), 0), late(["a", "b", "c"], (0, 25), 0)],
    ),
    Case(
        "a_bridge_of_sessions_that_have_fired_on_time_goes_on_with_the_late_trigger",
        into(tg.Sessions(10), tg.AfterWatermark(late=tg.AfterCount(2)), D, LONG),
        [("a", 0), Watermark(10), ("b", 15), Watermark(25), ("c", 8), ("d", 9)],
        [on_time(["a"], FIRST, 0), on_time(["b"], (15, 25), 0), late(["c", "d"], (0, 25), 0)],
    ),
    Case(
        "a_bridge_that_is_a_punctuation_fires_all_it_joins",
        into(tg.Sessions(10), tg.Repeatedly(tg.AfterElement(lambda v: v == "!")), D),
        [("a", 0), ("b", 15), ("!", 8), INFINITY],
        [early(["a", "b", "!"], (0, 25), 0)],
    ),
    Case(
        "a_bridge_of_sessions_that_have_fired_starts_the_index_anew",
        into(tg.Sessions(10), both(), A),
        [("a", 0), ("b", 15), ("c", 8), INFINITY],
        [
            early(["a"], FIRST, 0),
            early(["b"], (15, 25), 0),
            early(["a", "b", "c"], (0, 25), 0),
            on_time(["a", "b", "c"], (0, 25), 1, nonspeculative_index=0),
        ],
    ),
    Case(
        "a_bridge_of_sessions_that_have_fired_discards_what_they_gave",
        into(tg.Sessions(10), both(), D),
        [("a", 0), ("b", 15), ("c", 8), INFINITY],
        [
            early(["a"], FIRST, 0),
            early(["b"], (15, 25), 0),
            early(["c"], (0, 25), 0),
            on_time([], (0, 25), 1, nonspeculative_index=0),
        ],
    ),
    Case(
        "an_element_inside_a_session_goes_on_with_its_index",
        into(tg.Sessions(10), each(), D),
        [("a", 0), ("b", 9), ("c", 5), INFINITY],
        [early(["a"], FIRST, 0), early(["b"], (0, 19), 0), early(["c"], (0, 19), 1)],
    ),
    Case(
        "a_session_that_has_fired_on_time_is_not_on_time_again_until_its_merged_end",
        into(tg.Sessions(5), None, None, LONG),
        [("a", 0), Watermark(5), ("b", 3), Watermark(8)],
        [on_time(["a"], (0, 5), 0), on_time(["a", "b"], (0, 8), 0)],
    ),
    Case(
        "a_late_element_inside_a_session_that_has_fired_refires_it",
        into(tg.Sessions(5), None, None, LONG),
        [("a", 0), ("b", 4), Watermark(9), ("c", 2)],
        [on_time(["a", "b"], (0, 9), 0), late(["a", "b", "c"], (0, 9), 1)],
    ),
    Case(
        "an_element_too_late_for_a_session_of_its_own_may_join_one_that_lives",
        into(tg.Sessions(10)),
        [("a", 5), Watermark(12), ("b", 1), INFINITY],
        [on_time(["a", "b"], (1, 15), 0)],
    ),
    Case(
        "an_element_too_late_for_a_session_of_its_own_is_dropped",
        into(tg.Sessions(10)),
        [("a", 30), Watermark(12), ("b", 1), INFINITY],
        [on_time(["a"], (30, 40), 0)],
        dropped_late=1,
    ),
    Case(
        "a_bridge_of_a_finished_session_and_one_that_waits_drops_what_waits",
        into(tg.Sessions(10), tg.AfterCount(2)),
        [("a", 0), ("b", 15), ("c", 16), ("d", 8), ("e", 9), INFINITY],
        [early(["b", "c"], (15, 26), 0, is_last=True)],
        dropped_closed=3,
        options=UNSAFE,
    ),
    Case(
        "a_finished_session_finishes_what_it_merges_with",
        into(tg.Sessions(10), tg.AfterCount(2), None),
        [("a", 0), ("b", 1), ("c", 8), INFINITY],
        [early(["a", "b"], (0, 11), 0, is_last=True)],
        dropped_closed=1,
        options=UNSAFE,
    ),
]

LATENESS = [
    Case(
        "the_watermark_has_passed_an_end_when_it_is_there",
        into(),
        [("a", 3), Watermark(END_OF_FIRST), ("b", 4), Watermark(10), ("c", 5), INFINITY],
        [on_time(["a", "b"], FIRST, 0, is_first=True, is_last=True)],
        dropped_late=1,
    ),
    Case(
        "late_within_lateness_fires_at_once",
        into(TEN, None, None, LONG),
        [("a", 1), Watermark(10), ("b", 2), Watermark(11)],
        [on_time(["a"], FIRST, 0, is_last=False), late(["a", "b"], FIRST, 1, nonspeculative_index=1)],
    ),
    Case(
        "late_within_lateness_discarding_gives_the_late_element_alone",
        into(TEN, None, D, LONG),
        [("a", 1), Watermark(10), ("b", 2), Watermark(11)],
        [on_time(["a"], FIRST, 0), late(["b"], FIRST, 1)],
    ),
    Case(
        "an_element_as_late_as_the_lateness_is_dropped",
        into(TEN, None, None, 5),
        [("a", 1), Watermark(14.999999), ("b", 2), Watermark(15), ("c", 3)],
        [on_time(["a"], FIRST, 0), late(["a", "b"], FIRST, 1)],
        dropped_late=1,
    ),
    Case(
        "each_of_several_windows_is_judged_by_itself",
        into(tg.SlidingWindows(10, 5)),
        [("a", 7), Watermark(10), ("b", 8), INFINITY],
        [on_time(["a"], FIRST, 0), on_time(["a", "b"], (5, 15), 0)],
    ),
    Case(
        "each_of_several_windows_is_late_by_itself",
        into(tg.SlidingWindows(10, 5), None, None, 3),
        [("a", 7), Watermark(10), ("b", 8), Watermark(13), ("c", 9), INFINITY],
        [on_time(["a"], FIRST, 0), late(["a", "b"], FIRST, 1), on_time(["a", "b", "c"], (5, 15), 0)],
    ),
    Case(
        "a_window_first_seen_after_its_end_fires_with_its_first_element",
        into(TEN, None, None, LONG),
        [Watermark(20), ("a", 5), ("b", 6)],
        [late(["a"], FIRST, 0, nonspeculative_index=0, is_first=True), late(["a", "b"], FIRST, 1)],
    ),
    Case(
        "a_window_first_seen_after_its_end_fires_at_once_whatever_late_says",
        into(TEN, tg.AfterWatermark(late=tg.AfterCount(2)), D, LONG),
        [Watermark(20), ("a", 5), ("b", 6), ("c", 7)],
        [late(["a"], FIRST, 0), late(["b", "c"], FIRST, 1)],
    ),
    Case(
        "expiry_saturates_at_the_end_of_time",
        into(TEN, None, None, tg.Duration(micros=2**63 - 1)),
        [("a", 1), Watermark(10), Watermark(9e12), ("b", 2), INFINITY],
        [on_time(["a"], FIRST, 0), late(["a", "b"], FIRST, 1)],
    ),
    Case(
        "what_has_come_since_the_last_firing_is_emitted_at_expiry",
        into(TEN, tg.AfterWatermark(late=tg.AfterCount(2)), D, 20),
        [("a", 1), Watermark(10), ("b", 2), ("c", 3), ("d", 4), Watermark(30), ("e", 5)],
        [on_time(["a"], FIRST, 0), late(["b", "c"], FIRST, 1), late(["d"], FIRST, 2, is_last=True)],
        dropped_late=1,
    ),
    Case(
        "a_watermark_that_is_there_already_changes_nothing",
        into(),
        [("a", 1), Watermark(10), Watermark(10), ("b", 6), Watermark(10), INFINITY],
        [on_time(["a"], FIRST, 0)],
        dropped_late=1,
    ),
]

TRIGGERS = [
    Case(
        "an_on_time_pane_is_emitted_even_if_nothing_is_new",
        into(TEN, both(), A),
        [("a", 1), Watermark(10)],
        [early(["a"], FIRST, 0), on_time(["a"], FIRST, 1, nonspeculative_index=0)],
    ),
    Case(
        "an_empty_on_time_pane_of_a_grouping_is_an_empty_list",
        into(TEN, both(), D),
        [("a", 1), Watermark(10)],
        [early(["a"], FIRST, 0), on_time([], FIRST, 1)],
    ),
    Case(
        "an_empty_on_time_pane_of_a_combiner_is_its_identity",
        into(TEN, both(), D),
        [(5, 1), Watermark(10)],
        [early(5, FIRST, 0), on_time(0, FIRST, 1)],
        group=tg.CombinePerKey(sum),
    ),
    Case(
        "an_empty_on_time_pane_of_a_combiner_without_identity_is_not_emitted",
        into(TEN, both(), D),
        [(5, 1), Watermark(10)],
        [early(5, FIRST, 0)],
        group=tg.CombinePerKey(max),
    ),
    Case(
        "an_empty_on_time_pane_of_a_plain_callable_is_not_emitted",
        into(TEN, both(), D),
        [(5, 1), Watermark(10)],
        [early(10, FIRST, 0)],
        group=tg.CombinePerKey(lambda values: 2 * sum(values)),
    ),
    Case(
        "a_count_fires_at_exactly_the_nth_element_wherever_blocks_end",
        into(TEN, each(2), D),
        [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5), INFINITY],
        [early(["a", "b"], FIRST, 0), early(["c", "d"], FIRST, 1), on_time(["e"], FIRST, 2, is_last=True)],
    ),
    Case(
        "a_count_accumulates",
        into(TEN, each(2), A),
        [("a", 1), ("b", 2), ("c", 3), ("d", 4), INFINITY],
        [early(["a", "b"], FIRST, 0), early(["a", "b", "c", "d"], FIRST, 1)],
    ),
    Case(
        "an_early_count_leaves_the_rest_to_the_on_time_pane",
        into(TEN, both(2), D),
        [("a", 1), ("b", 2), ("c", 3), Watermark(10)],
        [early(["a", "b"], FIRST, 0), on_time(["c"], FIRST, 1)],
    ),
    Case(
        "a_delay_counts_from_the_panes_first_element",
        into(TEN, tg.Repeatedly(tg.AfterProcessingTime(5)), D),
        [
            ("a", 1),
            AdvanceClock(4),
            ("b", 2),
            AdvanceClock(1),
            ("c", 3),
            AdvanceClock(4),
            AdvanceClock(1),
            Watermark(10),
        ],
        [early(["a", "b"], FIRST, 0), early(["c"], FIRST, 1)],
    ),
    Case(
        "a_delay_is_rounded_up_to_its_alignment",
        into(TEN, tg.Repeatedly(tg.AfterProcessingTime(3, align_to=10)), D),
        [
            AdvanceClock(2),
            ("a", 1),
            AdvanceClock(4),
            ("b", 2),
            AdvanceClock(4),
            ("c", 3),
            AdvanceClock(9),
            Watermark(10),
        ],
        [early(["a", "b"], FIRST, 0), on_time(["c"], FIRST, 1)],
    ),
    Case(
        "a_clock_that_fires_after_the_end_gives_a_late_pane",
        into(TEN, tg.Repeatedly(tg.AfterProcessingTime(5)), D, LONG),
        [("a", 1), Watermark(10), AdvanceClock(5), Watermark(11)],
        [late(["a"], FIRST, 0, nonspeculative_index=0)],
    ),
    Case(
        "several_due_instants_of_the_clock_give_one_pane",
        into(TEN, tg.EveryProcessingTime(5), D),
        [("a", 1), AdvanceClock(17), AdvanceClock(17), ("b", 2), AdvanceClock(5), Watermark(10)],
        [early(["a"], FIRST, 0), early(["b"], FIRST, 1)],
    ),
    Case(
        "several_due_instants_of_the_watermark_give_one_pane_at_the_windows_end",
        into(tg.FixedWindows(20), tg.EveryEventTime(5), D),
        [Watermark(0), ("a", 1), Watermark(4.999999), ("b", 2), Watermark(5), ("c", 7), Watermark(20)],
        [early(["a", "b"], (0, 20), 0), on_time(["c"], (0, 20), 1)],
    ),
    Case(
        "a_period_of_event_time_without_new_elements_emits_nothing",
        into(tg.FixedWindows(20), tg.EveryEventTime(5), A),
        [("a", 1), Watermark(5), Watermark(10), Watermark(20)],
        [early(["a"], (0, 20), 0)],
    ),
    Case(
        "a_period_of_processing_time_ends_with_the_window",
        into(TEN, tg.EveryProcessingTime(60), D),
        [("a", 1), Watermark(10)],
        [on_time(["a"], FIRST, 0)],
    ),
    Case(
        "a_punctuation_ends_the_pane_that_holds_it",
        into(TEN, tg.Repeatedly(tg.AfterElement(lambda v: v == "!")), D),
        [("a", 1), ("!", 2), ("!", 3), ("b", 4), INFINITY],
        [early(["a", "!"], FIRST, 0), early(["!"], FIRST, 1), on_time(["b"], FIRST, 2)],
    ),
    Case(
        "a_delta_compares_with_the_first_element_and_then_with_the_one_that_fired",
        into(TEN, tg.Repeatedly(tg.AfterDelta(5, lambda a, b: b - a)), D),
        [(1, 1), (4, 2), (6, 3), (7, 4), (12, 5), (13, 6), INFINITY],
        [early([1, 4, 6, 7], FIRST, 0), early([12, 13], FIRST, 1)],
    ),
    Case(
        "any_fires_at_the_first_of_its_parts",
        into(TEN, tg.Repeatedly(tg.AfterAny(tg.AfterCount(3), tg.AfterProcessingTime(5))), D),
        [("a", 1), AdvanceClock(5), ("b", 2), ("c", 3), ("d", 4), AdvanceClock(5), Watermark(10)],
        [early(["a"], FIRST, 0), early(["b", "c", "d"], FIRST, 1)],
    ),
    Case(
        "all_waits_for_the_last_of_its_parts_and_latches_the_others",
        into(TEN, tg.Repeatedly(tg.AfterAll(tg.AfterCount(3), tg.AfterElement(lambda v: v == "!"))), D),
        [("!", 1), ("a", 2), ("b", 3), ("c", 4), ("d", 5), ("e", 6), ("!", 7), INFINITY],
        [early(["!", "a", "b"], FIRST, 0), early(["c", "d", "e", "!"], FIRST, 1)],
    ),
    Case(
        "each_gives_its_parts_their_turn",
        into(TEN, tg.AfterEach(tg.AfterCount(1), tg.AfterCount(3), each(2)), D),
        [(n, 1) for n in range(8)],
        [early([0], FIRST, 0), early([1, 2, 3], FIRST, 1), early([4, 5], FIRST, 2), early([6, 7], FIRST, 3)],
    ),
    Case(
        "or_finally_fires_once_when_both_are_due_and_is_the_end",
        into(TEN, each(2).or_finally(tg.AfterElement(lambda v: v == "stop")), D),
        [("a", 1), ("b", 2), ("c", 3), ("stop", 4), ("d", 5), INFINITY],
        [early(["a", "b"], FIRST, 0, is_last=False), early(["c", "stop"], FIRST, 1, is_last=True)],
        dropped_closed=1,
        options=UNSAFE,
    ),
    Case(
        "or_finally_fires_when_only_the_end_is_due",
        into(TEN, each(5).or_finally(tg.AfterElement(lambda v: v == "stop")), D),
        [("a", 1), ("stop", 2), ("b", 3), INFINITY],
        [early(["a", "stop"], FIRST, 0)],
        dropped_closed=1,
        options=UNSAFE,
    ),
    Case(
        "a_period_that_ends_or_finally_counts_anew_from_the_first_element_of_each_pane",
        into(HUNDRED, each(3).or_finally(tg.EveryEventTime(10)), D),
        [("a", 1), ("b", 2), ("c", 3), Watermark(12), ("d", 13), ("e", 14), Watermark(21), ("f", 22)],
        [early(["a", "b", "c"], (0, 100), 0), early(["d", "e"], (0, 100), 1, is_last=True)],
        dropped_closed=1,
        options=UNSAFE,
    ),
    Case(
        "a_period_of_the_clock_that_ends_or_finally_counts_anew_too",
        into(HUNDRED, each(3).or_finally(tg.EveryProcessingTime(10)), D),
        [("a", 1), ("b", 2), ("c", 3), AdvanceClock(12), ("d", 13), ("e", 14), AdvanceClock(9), ("f", 22)],
        [early(["a", "b", "c"], (0, 100), 0), early(["d", "e"], (0, 100), 1, is_last=True)],
        dropped_closed=1,
        options=UNSAFE,
    ),
    Case(
        "a_session_that_merges_ahead_of_the_watermark_is_on_time_again",
        into(tg.Sessions(10), tg.Repeatedly(each(2).or_finally(tg.DefaultTrigger())), D, 20),
        [("a", 0), Watermark(12), ("b", 9), ("c", 8), Watermark(20)],
        [on_time(["a"], FIRST, 0), early(["b", "c"], (0, 19), 0), on_time([], (0, 19), 1, nonspeculative_index=0)],
    ),
    Case(
        "a_period_fires_at_the_new_end_of_a_session_that_merges_ahead_of_the_watermark",
        into(tg.Sessions(10), tg.EveryEventTime(100), D, 20),
        [("a", 0), Watermark(12), ("b", 9), Watermark(20), ("c", 5), Watermark(39)],
        [on_time(["a"], FIRST, 0), on_time(["b"], (0, 19), 0), late(["c"], (0, 19), 1, is_last=True)],
    ),
    Case(
        "or_finally_after_the_watermark_emits_its_on_time_pane",
        into(TEN, each().or_finally(tg.AfterWatermark()), D),
        [("a", 1), Watermark(10)],
        [early(["a"], FIRST, 0), on_time([], FIRST, 1, is_last=True)],
    ),
    Case(
        "after_each_may_end_with_the_watermark",
        into(TEN, tg.AfterEach(tg.AfterCount(1), tg.AfterWatermark()), D),
        [("a", 1), ("b", 2), Watermark(10)],
        [early(["a"], FIRST, 0), on_time(["b"], FIRST, 1, is_last=True)],
    ),
    Case(
        "all_keeps_that_the_watermark_has_passed",
        into(TEN, tg.Repeatedly(tg.AfterAll(tg.AfterWatermark(), tg.AfterCount(2))), D, LONG),
        [("a", 1), Watermark(10), ("b", 2)],
        [late(["a", "b"], FIRST, 0, nonspeculative_index=0)],
    ),
    Case(
        "a_repeated_after_watermark_fires_at_each_late_element",
        into(TEN, tg.Repeatedly(tg.AfterWatermark()), D, LONG),
        [("a", 1), Watermark(10), ("b", 2), ("c", 3)],
        [on_time(["a"], FIRST, 0), late(["b"], FIRST, 1), late(["c"], FIRST, 2)],
    ),
    Case(
        "a_period_first_seen_after_the_windows_end_fires_with_the_first_element",
        into(TEN, tg.EveryEventTime(5), D, LONG),
        [Watermark(20), ("a", 5), ("b", 6), ("c", 7), Watermark(25)],
        [late(["a"], FIRST, 0), late(["b", "c"], FIRST, 1)],
    ),
    Case(
        "a_finished_trigger_drops_what_comes_later",
        into(TEN, tg.AfterCount(2)),
        [("a", 1), ("b", 2), ("c", 3), ("d", 4), INFINITY],
        [early(["a", "b"], FIRST, 0, is_first=True, is_last=True)],
        dropped_closed=2,
        options=UNSAFE,
    ),
    Case(
        "a_bare_after_watermark_is_finished_with_its_pane",
        into(TEN, tg.AfterWatermark(), None, LONG),
        [("a", 1), Watermark(10), ("b", 2), INFINITY],
        [on_time(["a"], FIRST, 0, is_last=True)],
        dropped_closed=1,
        options=UNSAFE,
    ),
    Case(
        "never_fires_only_at_closing",
        into(TEN, tg.Never(), None, 10),
        [("a", 1), Watermark(10), ("b", 2), Watermark(20), ("c", 3)],
        [on_time(["a", "b"], FIRST, 0, is_last=True)],
        dropped_late=1,
    ),
    Case(
        "leftovers_of_a_count_are_emitted_when_the_window_closes",
        into(TEN, each(10), D),
        [("a", 1), ("b", 2), Watermark(10)],
        [on_time(["a", "b"], FIRST, 0, is_last=True)],
    ),
    Case(
        "an_early_trigger_starts_anew_after_each_pane",
        into(TEN, tg.AfterWatermark(early=tg.AfterProcessingTime(5)), D),
        [("a", 1), AdvanceClock(5), ("b", 2), AdvanceClock(4), AdvanceClock(1), Watermark(10)],
        [early(["a"], FIRST, 0), early(["b"], FIRST, 1), on_time([], FIRST, 2)],
    ),
    Case(
        "early_is_silent_once_the_window_has_ended",
        into(TEN, tg.AfterWatermark(early=tg.AfterCount(1), late=tg.AfterCount(2)), D, LONG),
        [("a", 1), Watermark(10), ("b", 2), Watermark(11)],
        [early(["a"], FIRST, 0), on_time([], FIRST, 1), late(["b"], FIRST, 2)],
    ),
]

PANES = [
    Case(
        "indices_count_all_panes_and_those_that_are_not_early",
        into(TEN, both(), A, LONG),
        [("a", 1), ("b", 2), Watermark(10), ("c", 3), ("d", 4), Watermark(11)],
        [
            early(["a"], FIRST, 0, is_first=True, is_last=False),
            early(["a", "b"], FIRST, 1, is_first=False),
            on_time(["a", "b"], FIRST, 2, nonspeculative_index=0, is_first=False, is_last=False),
            late(["a", "b", "c"], FIRST, 3, nonspeculative_index=1),
            late(["a", "b", "c", "d"], FIRST, 4, nonspeculative_index=2),
        ],
    ),
    Case(
        "an_on_time_pane_is_the_last_if_nothing_may_be_late",
        into(TEN, both(), D),
        [("a", 1), Watermark(10)],
        [early(["a"], FIRST, 0, is_last=False), on_time([], FIRST, 1, is_first=False, is_last=True)],
    ),
    Case(
        "an_element_before_the_watermark_but_in_an_open_window_is_not_late",
        into(),
        [Watermark(8), ("a", 3), Watermark(10)],
        [on_time(["a"], FIRST, 0)],
    ),
]

TIMESTAMPS = [
    Case(
        "a_pane_is_stamped_with_its_windows_last_instant",
        into(),
        [("a", 3), ("b", 7), Watermark(10)],
        [on_time(["a", "b"], FIRST, timestamp=END_OF_FIRST)],
    ),
    Case(
        "earliest_takes_the_least_timestamp",
        into(timestamp_combiner=EARLIEST),
        [("a", 7), ("b", 3), Watermark(10)],
        [on_time(["a", "b"], FIRST, timestamp=3)],
    ),
    Case(
        "latest_takes_the_greatest_timestamp",
        into(timestamp_combiner=LATEST),
        [("a", 7), ("b", 3), Watermark(10)],
        [on_time(["a", "b"], FIRST, timestamp=7)],
    ),
    Case(
        "earliest_leaves_out_elements_behind_the_watermark",
        into(timestamp_combiner=EARLIEST),
        [Watermark(5), ("a", 3), ("b", 7), Watermark(10)],
        [on_time(["a", "b"], FIRST, timestamp=7)],
    ),
    Case(
        "an_element_exactly_at_the_watermark_is_not_behind_it",
        into(timestamp_combiner=EARLIEST),
        [Watermark(5), ("a", 5), ("b", 7), Watermark(10)],
        [on_time(["a", "b"], FIRST, timestamp=5)],
    ),
    Case(
        "earliest_of_elements_all_behind_the_watermark_is_the_windows_last_instant",
        into(timestamp_combiner=EARLIEST),
        [Watermark(8), ("a", 3), Watermark(10)],
        [on_time(["a"], FIRST, timestamp=END_OF_FIRST)],
    ),
    Case(
        "earliest_ranges_over_what_has_come_since_the_last_firing",
        into(TEN, both(), A, timestamp_combiner=EARLIEST),
        [("a", 3), ("b", 7), Watermark(10)],
        [
            early(["a"], FIRST, timestamp=3),
            early(["a", "b"], FIRST, timestamp=7),
            on_time(["a", "b"], FIRST, timestamp=END_OF_FIRST),
        ],
    ),
    Case(
        "a_late_pane_is_stamped_with_the_windows_last_instant",
        into(TEN, None, D, LONG, timestamp_combiner=LATEST),
        [("a", 3), Watermark(10), ("b", 4), Watermark(11)],
        [on_time(["a"], FIRST, timestamp=3), late(["b"], FIRST, timestamp=END_OF_FIRST)],
    ),
    Case(
        "latest_of_a_session_moves_with_its_merges",
        into(tg.Sessions(10), timestamp_combiner=LATEST),
        [("a", 0), ("b", 15), ("c", 8), INFINITY],
        [on_time(["a", "b", "c"], (0, 25), timestamp=15)],
    ),
]

EVICTORS = [
    Case(
        "keep_last_before_a_firing",
        into(evictor=tg.KeepLast(2)),
        [("a", 1), ("b", 2), ("c", 3), Watermark(10)],
        [on_time(["b", "c"], FIRST, 0)],
    ),
    Case(
        "what_is_evicted_before_is_gone_for_a_late_refire",
        into(TEN, None, None, LONG, evictor=tg.KeepLast(3)),
        [("a", 1), ("b", 2), ("c", 3), ("d", 4), Watermark(10), ("e", 5), Watermark(11)],
        [on_time(["b", "c", "d"], FIRST, 0), late(["c", "d", "e"], FIRST, 1)],
    ),
    Case(
        "what_is_left_after_a_firing_is_seen_by_a_late_refire",
        into(TEN, None, None, LONG, evictor=tg.KeepLast(1, when="after")),
        [("a", 1), ("b", 2), ("c", 3), Watermark(10), ("d", 5), Watermark(11)],
        [on_time(["a", "b", "c"], FIRST, 0), late(["c", "d"], FIRST, 1)],
    ),
    Case(
        "each_so_many_elements_evaluate_the_last_few",
        into(tg.GlobalWindows(), each(3), A, evictor=tg.KeepLast(2)),
        [(n, 1) for n in range(1, 7)],
        [early([2, 3], GLOBAL, 0), early([5, 6], GLOBAL, 1)],
    ),
    Case(
        "a_count_counts_arrivals_whatever_is_evicted",
        into(tg.GlobalWindows(), each(2), A, evictor=tg.KeepLast(1, when="after")),
        [(n, 1) for n in range(1, 5)],
        [early([1, 2], GLOBAL, 0), early([2, 3, 4], GLOBAL, 1)],
    ),
    Case(
        "keep_recent_is_measured_from_the_greatest_timestamp",
        into(evictor=tg.KeepRecent(5)),
        [("a", 4), ("b", 9), ("c", 5), ("d", 4.000001), Watermark(10)],
        [on_time(["b", "c", "d"], FIRST, 0)],
    ),
    Case(
        "keep_within_delta_compares_with_the_last_arrival",
        into(evictor=tg.KeepWithinDelta(3, lambda element, last: abs(element - last))),
        [(1, 1), (5, 2), (9, 3), (3, 4), (6, 5), Watermark(10)],
        [on_time([5, 6], FIRST, 0)],
    ),
    Case(
        "an_evictor_that_leaves_nothing_emits_nothing",
        into(evictor=tg.KeepWithinDelta(0, lambda element, last: 0)),
        [(1, 1), (2, 2), Watermark(10)],
        [],
    ),
    Case(
        "an_evictor_that_left_nothing_behind_emits_no_empty_on_time_pane",
        into(TEN, both(), A, evictor=tg.KeepWithinDelta(0, lambda element, last: 0, when="after")),
        [(1, 1), Watermark(10)],
        [early([1], FIRST, 0)],
    ),
    Case(
        "an_evictor_chooses_for_an_on_time_pane_without_new_elements_too",
        into(TEN, both(), A, evictor=tg.KeepLast(1)),
        [(1, 1), (2, 2), Watermark(10)],
        [early([1], FIRST, 0), early([2], FIRST, 1), on_time([2], FIRST, 2)],
    ),
    Case(
        "an_evictor_after_leaves_nothing_behind_when_panes_discard",
        into(TEN, None, D, LONG, evictor=tg.KeepLast(1, when="after")),
        [(1, 1), (2, 2), Watermark(10), (3, 3)],
        [on_time([1, 2], FIRST, 0), late([3], FIRST, 1)],
    ),
    Case(
        "an_evictor_of_the_authors_own",
        into(evictor=Halves()),
        [*((n, n) for n in range(5)), Watermark(10)],
        [on_time([0, 2, 4], FIRST, 0)],
    ),
    Case(
        "a_combiner_sees_what_the_evictor_keeps",
        into(evictor=tg.KeepLast(2)),
        [(1, 1), (2, 2), (4, 3), Watermark(10)],
        [on_time(6, FIRST, 0)],
        group=tg.CombinePerKey(sum),
    ),
    Case(
        "arrival_order_is_kept_across_a_merge",
        into(tg.Sessions(10), evictor=tg.KeepLast(2)),
        [("a", 15), ("b", 0), ("c", 8), INFINITY],
        [on_time(["b", "c"], (0, 25), 0)],
    ),
]

PRESETS = [
    Case(
        "count_windows_emit_the_rest_at_the_end",
        into(tg.CountWindows(2)),
        [(1, 5), (2, 3), (3, 4)],
        [early([1, 2], GLOBAL, 0, timestamp=5), on_time([3], GLOBAL, 1, timestamp=4, is_last=True)],
    ),
    Case(
        "count_windows_may_drop_the_rest",
        into(tg.CountWindows(2, partial="drop")),
        [(1, 5), (2, 3), (3, 4)],
        [early([1, 2], GLOBAL, 0)],
    ),
    Case(
        "sliding_count_windows_look_back",
        into(tg.SlidingCountWindows(3, every=2)),
        [(n, n) for n in range(1, 7)],
        [early([1, 2], GLOBAL, 0), early([2, 3, 4], GLOBAL, 1), early([4, 5, 6], GLOBAL, 2)],
    ),
    Case(
        "sliding_count_windows_emit_the_rest_at_the_end",
        into(tg.SlidingCountWindows(3, every=2)),
        [(n, n) for n in range(1, 6)],
        [early([1, 2], GLOBAL, 0), early([2, 3, 4], GLOBAL, 1), on_time([3, 4, 5], GLOBAL, 2, timestamp=5)],
    ),
    Case(
        "count_windows_that_drop_the_rest_emit_nothing_of_too_few",
        into(tg.CountWindows(5, partial="drop")),
        [(1, 1), (2, 2)],
        [],
    ),
    Case(
        "punctuation_windows_hold_their_punctuation",
        into(tg.PunctuationWindows(lambda v: v == ".")),
        [("a", 1), (".", 2), ("b", 3)],
        [early(["a", "."], GLOBAL, 0, timestamp=2), on_time(["b"], GLOBAL, 1)],
    ),
    Case(
        "delta_windows_end_with_the_element_that_is_too_far",
        into(tg.DeltaWindows(5, lambda a, b: abs(b - a))),
        [(0, 1), (5, 2), (6, 3), (11, 4), (12, 5)],
        [early([0, 5, 6], GLOBAL, 0), early([11, 12], GLOBAL, 1)],
    ),
    Case(
        "landmark_windows_hold_everything_since",
        into(tg.LandmarkWindows(since=10, every=5)),
        [("a", 9.999999), ("b", 10), Watermark(15), ("c", 16), Watermark(20), Watermark(25)],
        [early(["b"], GLOBAL, 0, timestamp=10), early(["b", "c"], GLOBAL, 1, timestamp=16)],
    ),
]

STATE = [
    Case(
        "state_is_collected_when_its_window_expires",
        into(TEN, lateness=5),
        [("a", 1), ("b", 11), Watermark(14.999999), ("c", 2), Watermark(15), ("d", 3), ("e", 12)],
        [
            fired(("a", 1, 1), FIRST),
            fired(("b", 1, 1), (10, 20)),
            fired(("c", 2, 2), FIRST),
            fired(("e", 2, 2), (10, 20)),
        ],
        group=tg.ParDo(Numbered()),
        dropped_late=1,
    ),
    Case(
        "state_expires_when_its_time_to_live_has_passed_since_the_last_write",
        into(),
        [("a", 1), AdvanceClock(4.999999), ("b", 2), AdvanceClock(4.999999), ("c", 3), AdvanceClock(5), ("d", 4)],
        [fired(("a", 1, 1)), fired(("b", 2, 2)), fired(("c", 3, 3)), fired(("d", 4, 1))],
        group=tg.ParDo(Numbered()),
    ),
    Case(
        "a_timer_for_the_past_fires_before_the_next_element",
        into(),
        [Watermark(5), (3, 6), ("next", 7)],
        [fired("alarm", FIRST, timestamp=3), fired("next", FIRST, timestamp=7)],
        group=tg.ParDo(Alarms()),
    ),
    Case(
        "a_timer_for_where_the_watermark_is_fires_before_the_next_element",
        into(),
        [Watermark(5), (5, 6), ("next", 7)],
        [fired("alarm", FIRST, timestamp=5), fired("next", FIRST, timestamp=7)],
        group=tg.ParDo(Alarms()),
    ),
    Case(
        "a_timer_waits_until_the_watermark_is_there",
        into(),
        [(5, 1), Watermark(4.999999), ("next", 7), Watermark(5), ("last", 8)],
        [fired("next"), fired("alarm", FIRST, timestamp=5), fired("last")],
        group=tg.ParDo(Alarms()),
    ),
]

INPUTS = [
    Case(
        "the_watermark_of_two_inputs_is_the_lesser",
        into(),
        [
            ("a", 1),
            Watermark(100),
            SecondInput(("b", 2)),
            SecondInput(Watermark(9.999999)),
            SecondInput(("c", 3)),
            SecondInput(Watermark(10)),
            ("d", 4),
        ],
        [on_time(["a", "b", "c"], FIRST, 0)],
        dropped_late=1,
    ),
    Case(
        "an_idle_input_does_not_count",
        into(),
        [("a", 1), SecondInput(Idle()), Watermark(10), ("b", 2)],
        [on_time(["a"], FIRST, 0)],
        dropped_late=1,
    ),
    Case(
        "when_all_inputs_are_idle_the_watermark_stands",
        into(),
        [
            ("a", 1),
            Watermark(5),
            SecondInput(Watermark(7)),
            Idle(),
            SecondInput(Idle()),
            ("b", 2),
            SecondInput(("c", 3)),
            Watermark(10),
            SecondInput(Watermark(10)),
        ],
        [on_time(["a", "b", "c"], FIRST, 0)],
    ),
    Case(
        "an_input_that_comes_back_counts_once_it_has_caught_up",
        into(),
        [
            *(SecondInput(Idle()), Watermark(10), SecondInput(("late", 1)), SecondInput(("a", 11))),
            *(Watermark(15), SecondInput(Watermark(15)), Watermark(20), ("b", 12), SecondInput(Watermark(20))),
        ],
        [on_time(["a", "b"], (10, 20), 0)],
        dropped_late=1,
    ),
    Case(
        "a_watermark_that_is_there_already_on_one_of_two_inputs_changes_nothing",
        into(),
        [
            ("a", 1),
            Watermark(20),
            SecondInput(Watermark(10)),
            SecondInput(Watermark(10)),
            ("b", 2),
            ("c", 11),
            SecondInput(Watermark(20)),
        ],
        [on_time(["a"], FIRST, 0), on_time(["c"], (10, 20), 0)],
        dropped_late=1,
    ),
]

CASES = [*WINDOWS, *SESSIONS, *LATENESS, *TRIGGERS, *PANES, *TIMESTAMPS, *EVICTORS, *PRESETS, *STATE, *INPUTS]

assert len({case.name for case in CASES}) == len(CASES), "two cases of one name"

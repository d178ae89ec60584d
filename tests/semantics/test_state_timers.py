"""SEMANTICS, State and timers; and bundles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import tidegate as tg
from tests.support.stream_scripts import INFINITY, AdvanceClock, Watermark, to_test_stream
from tidegate.testing import (
    PaneRecorder,
    Recorded,
    TestPipeline,
    TestStream,
    assert_that,
    equal_to,
    fired,
    is_empty,
    on_time,
)

TEN = tg.FixedWindows(10)


def run(runner: str, script: Iterable[Any], fn: tg.DoFn, into: Any = None, *, together: bool = False) -> list[Recorded]:
    """The elements that a stateful DoFn emits for a script."""
    pipeline = TestPipeline(runner)
    events = pipeline | to_test_stream(script, together=together)
    recorder = PaneRecorder()
    _ = (events if into is None else events | into) | tg.ParDo(fn) | recorder
    pipeline.run()
    return recorder.records()


def values(runner: str, script: Iterable[Any], fn: tg.DoFn, into: Any = None, *, together: bool = False) -> list[Any]:
    return [record.value for record in run(runner, script, fn, into, together=together)]


# ---- cells

COUNT = tg.ValueStateSpec("count")


class Number(tg.DoFn):
    """Numbers the elements of each key and window."""

    def process(
        self, element: Any, key: Any = tg.DoFn.KeyParam, count: tg.ValueState[int] = tg.DoFn.StateParam(COUNT)
    ) -> Iterable[Any]:
        before = count.read()
        count.write(1 if before is None else before + 1)
        return [(key, element[1], count.read())]


def test_state_is_per_key_and_window(stream_runner: str) -> None:
    script = [("a", 1), ("b", 12), ("c", 2), ("d", 3, "other"), ("e", 13)]
    found = values(stream_runner, script, Number(), tg.WindowInto(TEN))
    assert [told for told in found if told[0] == "k"] == [("k", "a", 1), ("k", "b", 1), ("k", "c", 2), ("k", "e", 2)]
    assert [told for told in found if told[0] == "other"] == [("other", "d", 1)]


def test_an_element_in_several_windows_meets_the_state_of_each(stream_runner: str) -> None:
    found = run(stream_runner, [("a", 7), ("b", 12)], Number(), tg.WindowInto(tg.SlidingWindows(10, 5)))
    assert found == [
        fired(("k", "a", 1), (0, 10)),
        fired(("k", "a", 1), (5, 15)),
        fired(("k", "b", 2), (5, 15)),
        fired(("k", "b", 1), (10, 20)),
    ]


BAG, SET, MAP = tg.BagStateSpec("bag"), tg.SetStateSpec("set"), tg.MapStateSpec("map")
ORDERED, SUM = tg.OrderedListStateSpec("ordered"), tg.CombiningStateSpec("sum", sum)


class Cells(tg.DoFn):
    """Every cell, driven by commands."""

    def process(
        self,
        element: Any,
        value: tg.ValueState[Any] = tg.DoFn.StateParam(COUNT),
        bag: tg.BagState[Any] = tg.DoFn.StateParam(BAG),
        members: tg.SetState[Any] = tg.DoFn.StateParam(SET),
        table: tg.MapState[Any, Any] = tg.DoFn.StateParam(MAP),
        ordered: tg.OrderedListState[Any] = tg.DoFn.StateParam(ORDERED),
        total: tg.CombiningState[int, int] = tg.DoFn.StateParam(SUM),
    ) -> Iterator[Any]:
        match element[1]:
            case "read":
                yield value.read(), list(bag.read()), sorted(members.read()), sorted(table.items())
                yield [(at.seconds(), item) for at, item in ordered.read()], total.read()
            case "range":
                yield (
                    [item for _, item in ordered.read_range(2, 4)],
                    "a" in members,
                    "x" in table,
                    table.get("y", "none"),
                )
            case "take out":
                members.discard("a")
                table.remove("x")
                ordered.clear_range(2, 4)
            case "clear":
                for cell in (value, bag, members, table, ordered, total):
                    cell.clear()
            case int(number):
                value.write(number)
                bag.add(number)
                ordered.add(number, f"at {number}")
                total.add(number)
            case str(text):
                members.add(text)
                table.put(text, text.upper())


def test_each_kind_of_cell(stream_runner: str) -> None:
    script = ["read", 3, 1, 3, "x", "a", "a", "read", "range", "take out", "read", "clear", "read"]
    found = values(stream_runner, [(command, 0) for command in script], Cells())
    nothing: list[Any] = [(None, [], [], []), ([], 0)]
    at = [(1.0, "at 1"), (3.0, "at 3"), (3.0, "at 3")]
    assert found == [
        *nothing,
        (3, [3, 1, 3], ["a", "x"], [("a", "A"), ("x", "X")]),
        (at, 7),
        (["at 3", "at 3"], True, True, "none"),
        (3, [3, 1, 3], ["x"], [("a", "A")]),
        (at[:1], 7),
        *nothing,
    ]


class Remember(tg.DoFn):
    MORTAL = tg.ValueStateSpec("mortal", ttl=10)

    def process(self, element: Any, cell: tg.ValueState[Any] = tg.DoFn.StateParam(MORTAL)) -> Iterator[Any]:
        if element[1] == "?":
            yield cell.read()
        else:
            cell.write(element[1])


def test_a_time_to_live_counts_processing_time_from_the_last_write(stream_runner: str) -> None:
    script = [("a", 0), AdvanceClock(9), ("?", 0), ("b", 0), AdvanceClock(9), ("?", 0), AdvanceClock(2), ("?", 0)]
    assert values(stream_runner, script, Remember()) == ["a", "b", None]


class Defaults(tg.DoFn):
    """Reads with defaults, then writes, all by keywords."""

    LENGTH = tg.ValueStateSpec("length", ttl=3600)
    WORDS = tg.MapStateSpec("words")

    def process(
        self,
        element: Any,
        length: tg.ValueState[int] = tg.DoFn.StateParam(LENGTH),
        words: tg.MapState[str, int] = tg.DoFn.StateParam(WORDS),
    ) -> Iterator[Any]:
        word = element[1]
        yield word, length.read(0), length.read(default=7), words.get(key=word, default=9)
        length.write(value=length.read(0) + len(word))
        words.put(key=word, value=1)


def test_reading_state_that_was_not_written_returns_the_default(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        events = pipeline | tg.Create([tg.TimestampedValue(("k", word), n) for n, word in enumerate(("a", "bc", "a"))])
        found = events | tg.ParDo(Defaults())
        assert_that(found, equal_to([("a", 0, 7, 9), ("bc", 1, 1, 9), ("a", 3, 3, 1)]))


def test_a_time_to_live_is_off_on_bounded_input(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        events = pipeline | tg.Create([tg.TimestampedValue(("k", "a"), 0), tg.TimestampedValue(("k", "?"), 10**6)])
        assert_that(events | tg.ParDo(Remember()), equal_to(["a"]))


class Mutate(tg.DoFn):
    KEPT = tg.ValueStateSpec("kept")

    def process(self, element: Any, kept: tg.ValueState[list[Any]] = tg.DoFn.StateParam(KEPT)) -> Iterator[Any]:
        if kept.read() is None:
            kept.write([])
        found = kept.read()
        assert found is not None
        found.append(element[1])
        yield len(found)


def test_checks_report_state_that_is_changed_in_place() -> None:
    pipeline = TestPipeline("direct", {"checks": "all"})
    _ = pipeline | tg.Create([("k", 1), ("k", 2)]) | tg.ParDo(Mutate())
    with pytest.raises(tg.CheckError, match="changed"):
        pipeline.run()


def test_stateful_steps_over_unmerged_sessions_are_refused_when_built() -> None:
    pipeline = TestPipeline()
    sessions = pipeline | tg.Create([("k", 1)]) | tg.WindowInto(tg.Sessions(5))
    with pytest.raises(tg.BuildError, match="merge"):
        ran(pipeline, sessions, tg.ParDo(Number()))


def ran(pipeline: TestPipeline, source: Any, transform: Any) -> Any:
    """Apply and run: which of them refuses is of no account."""
    _ = source | transform
    return pipeline.run()


def test_stateful_steps_over_merged_sessions_run(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        sessions = pipeline | tg.Create([("k", 1)]) | tg.WindowInto(tg.Sessions(5)) | tg.GroupByKey()
        numbered = sessions | tg.MapTuple(lambda key, group: (key, list(group))) | tg.ParDo(Number())
        assert_that(numbered, equal_to([("k", [1], 1)]))


# ---- timers

EVENT, CLOCK = tg.EventTimer("event"), tg.ProcessingTimer("clock")


class Commands(tg.DoFn):
    """Sets and clears timers as elements request: ("event", at), ("clock", at), ("clear", tag), or a plain value."""

    def process(
        self,
        element: Any,
        event: tg.Timer = tg.DoFn.TimerParam(EVENT),
        clock: tg.Timer = tg.DoFn.TimerParam(CLOCK),
    ) -> Iterator[Any]:
        match element[1]:
            case ("event", at, *more):
                event.set(at, **(more[0] if more else {}))
            case ("clock", at, *more):
                clock.set(at, **(more[0] if more else {}))
            case ("clear", tag):
                event.clear(tag=tag)
                clock.clear(tag=tag)
            case value:
                yield value

    @tg.on_timer(EVENT)
    def on_event(self, tag: str = tg.DoFn.TimerTagParam, key: Any = tg.DoFn.KeyParam) -> Iterator[Any]:
        yield f"event {key} {tag}".strip()

    @tg.on_timer(CLOCK)
    def on_the_clock(self, tag: str = tg.DoFn.TimerTagParam, key: Any = tg.DoFn.KeyParam) -> Iterator[Any]:
        yield f"clock {key} {tag}".strip()


def test_an_event_timer_fires_when_the_watermark_passes_it_and_is_stamped_with_it(stream_runner: str) -> None:
    script = [(("event", 15), 1), Watermark(14.999999), ("before", 2), Watermark(15), ("after", 3)]
    found = run(stream_runner, script, Commands(), tg.WindowInto(tg.FixedWindows(20)))
    assert found == [fired("before"), fired("event k", (0, 20), timestamp=15), fired("after")]


def test_a_processing_timer_fires_when_the_clock_passes_it_and_is_stamped_with_its_element(stream_runner: str) -> None:
    script = [(("clock", 5), 3), AdvanceClock(4.999999), ("before", 2), AdvanceClock(0.000001), ("after", 4)]
    found = run(stream_runner, script, Commands())
    assert found == [fired("before"), fired("clock k", timestamp=3), fired("after")]


def test_setting_a_timer_again_moves_it_and_clearing_removes_it(stream_runner: str) -> None:
    script = [
        (("event", 5), 1),
        (("event", 15), 1),
        (("clock", 5), 1),
        (("clear", ""), 1),
        (("event", 15), 1),
        Watermark(5),
        AdvanceClock(100),
        ("nothing yet", 9),
        Watermark(15),
    ]
    assert values(stream_runner, script, Commands()) == ["nothing yet", "event k"]


def test_each_dynamic_tag_is_a_separate_timer(stream_runner: str) -> None:
    script = [
        (("event", 5, {"tag": "a"}), 1),
        (("event", 6, {"tag": "b"}), 1),
        (("event", 7, {"tag": "c"}), 1),
        (("clear", "b"), 1),
        Watermark(5),
        ("between", 1),
        Watermark(10),
    ]
    assert values(stream_runner, script, Commands()) == ["event k a", "between", "event k c"]


class Ordered(tg.DoFn):
    """Two event timers; which was declared first decides ties."""

    FIRST, SECOND = tg.EventTimer("z declared first"), tg.EventTimer("a declared second")

    def process(
        self, element: Any, first: tg.Timer = tg.DoFn.TimerParam(FIRST), second: tg.Timer = tg.DoFn.TimerParam(SECOND)
    ) -> None:
        second.set(5)
        second.set(4, tag="earlier")
        first.set(5, tag="b")
        first.set(5, tag="a")

    @tg.on_timer(SECOND)
    def on_second(self, tag: str = tg.DoFn.TimerTagParam) -> Iterator[Any]:
        yield "second", tag

    @tg.on_timer(FIRST)
    def on_first(self, tag: str = tg.DoFn.TimerTagParam) -> Iterator[Any]:
        yield "first", tag


def test_due_timers_fire_by_timestamp_declaration_and_tag(stream_runner: str) -> None:
    found = values(stream_runner, [("a", 1), Watermark(10)], Ordered())
    assert found == [("second", "earlier"), ("first", "a"), ("first", "b"), ("second", "")]


@pytest.mark.parametrize("together", [False, True])
def test_a_timer_set_for_the_past_fires_before_the_next_element(stream_runner: str, together: bool) -> None:
    script = [Watermark(10), AdvanceClock(10), (("event", 5), 11), ("next", 11), (("clock", 3), 11), ("last", 11)]
    found = values(stream_runner, script, Commands(), together=together)
    assert found == ["event k", "next", "clock k", "last"]


def test_an_output_timestamp_may_be_set(stream_runner: str) -> None:
    script = [
        (("event", 5, {"output_timestamp": 3}), 1),
        (("clock", 5, {"output_timestamp": 2}), 1),
        AdvanceClock(5),
        Watermark(5),
    ]
    found = run(stream_runner, script, Commands())
    assert found == [fired("clock k", timestamp=2), fired("event k", timestamp=3)]


def test_the_output_timestamp_of_a_timer_holds_the_output_watermark(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        script = [(("event", 15, {"output_timestamp": 3}), 1), Watermark(14), Watermark(15), INFINITY]
        made = pipeline | to_test_stream(script) | tg.WindowInto(tg.FixedWindows(20)) | tg.ParDo(Commands())
        again = made | tg.Map(lambda text: ("k", text)) | "seconds" >> tg.WindowInto(tg.FixedWindows(1))
        assert_that(again | tg.GroupByKey(), equal_to([on_time(("k", ["event k"]), (3, 4))]), panes=True)


def test_a_timer_past_its_windows_expiry_is_an_error(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, allowed_lateness=5)
    assert values(stream_runner, [(("event", 14.999999), 1), INFINITY], Commands(), into) == ["event k"]
    with pytest.raises(tg.RunError, match="expir"):
        values(stream_runner, [(("event", 15.000001), 1), INFINITY], Commands(), into)


def test_a_timer_exactly_at_its_windows_expiry_fires(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, allowed_lateness=5)
    assert values(stream_runner, [(("event", 15), 1), Watermark(14.999999), Watermark(15)], Commands(), into) == [
        "event k"
    ]


class Expire(tg.DoFn):
    KEPT = tg.BagStateSpec("kept")

    def process(self, element: Any, kept: tg.BagState[Any] = tg.DoFn.StateParam(KEPT)) -> None:
        kept.add(element[1])

    @tg.on_window_expiration
    def last_words(
        self, key: Any = tg.DoFn.KeyParam, kept: tg.BagState[Any] = tg.DoFn.StateParam(KEPT)
    ) -> Iterator[Any]:
        yield key, list(kept.read())


def test_window_expiration_runs_just_before_state_is_collected(stream_runner: str) -> None:
    script = [("a", 1), ("b", 2), Watermark(14.999999), ("c", 3), Watermark(15), ("d", 4), Watermark(100)]
    found = run(stream_runner, script, Expire(), tg.WindowInto(TEN, allowed_lateness=5))
    assert found == [fired(("k", ["a", "b", "c"]), (0, 10), timestamp=9.999999)]


def test_the_global_window_expires_at_the_end_of_input(stream_runner: str) -> None:
    script = [("a", 1), ("b", 2, "other"), Watermark(1000)]
    assert sorted(values(stream_runner, script, Expire())) == [("k", ["a"]), ("other", ["b"])]


class LastTimer(tg.DoFn):
    """Sets a timer when it is too late for one."""

    def process(self, element: Any, event: tg.Timer = tg.DoFn.TimerParam(EVENT)) -> None:
        pass

    @tg.on_timer(EVENT)
    def on_event(self) -> Iterator[Any]:
        yield "a timer"

    @tg.on_window_expiration
    def last_words(self, event: tg.Timer = tg.DoFn.TimerParam(EVENT)) -> Iterator[Any]:
        event.set(0)
        yield "expired"


def test_window_expiration_at_the_end_of_input_runs_but_its_timers_are_dropped_and_counted(stream_runner: str) -> None:
    pipeline = TestPipeline(stream_runner)
    assert_that(pipeline | to_test_stream([("a", 1), Watermark(10)]) | tg.ParDo(LastTimer()), equal_to(["expired"]))
    result = pipeline.run()
    assert result.metrics().counter("dropped_timers") == 1


class Looping(tg.DoFn):
    """A timer that sets itself again and again."""

    TICK = tg.EventTimer("tick")

    def process(self, element: Any, tick: tg.Timer = tg.DoFn.TimerParam(TICK)) -> None:
        tick.set(10)

    @tg.on_timer(TICK)
    def on_tick(
        self, at: tg.Timestamp = tg.DoFn.TimestampParam, tick: tg.Timer = tg.DoFn.TimerParam(TICK)
    ) -> Iterator[Any]:
        yield at.seconds()
        tick.set(at + 10)


def test_a_looping_timer_in_the_global_window_continues_after_the_input_up_to_a_limit_per_key(
    stream_runner: str, capfd: Any, caplog: Any
) -> None:
    pipeline = TestPipeline(stream_runner, {"max_end_timers": 3})
    script = [("a", 1), Watermark(10), Watermark(20), ("b", 25, "other")]
    ticks = pipeline | to_test_stream(script) | tg.ParDo(Looping())
    # The timer that was set before the end of input does not count towards the limit of three.
    assert_that(ticks, equal_to([10.0, 20.0, 30.0, 40.0, 50.0, 60.0] * 2))
    result = pipeline.run()
    assert result.metrics().counter("dropped_timers") == 2
    assert result.metrics().counter("keys_at_max_end_timers") == 2
    said = capfd.readouterr().err + caplog.text
    assert said.count("'ParDo(Looping)' kept setting timers after the end of its input, for 2 keys") == 1


class Silent(tg.DoFn):
    """Emits its elements, and sets a timer that emits nothing again and again."""

    TICK = tg.EventTimer("tick")

    def process(self, element: Any, tick: tg.Timer = tg.DoFn.TimerParam(TICK)) -> Iterator[Any]:
        tick.set(10)
        yield element

    @tg.on_timer(TICK)
    def on_tick(
        self, at: tg.Timestamp = tg.DoFn.TimestampParam, tick: tg.Timer = tg.DoFn.TimerParam(TICK)
    ) -> Iterator[Any]:
        tick.set(at + 10)
        yield from ()


def test_a_looping_timer_in_the_body_of_a_loop_is_named_once_for_all_rounds(
    runner: str, capfd: Any, caplog: Any
) -> None:
    silent = tg.ParDo(Silent()).with_output_types(tuple[str, int])
    with TestPipeline(runner, {"max_end_timers": 3}) as p:
        pairs = p | tg.Create([("a", 1)]).with_output_types(tuple[str, int])
        assert_that(pairs | tg.Iterate(lambda x: x | "silent" >> silent, rounds=2), equal_to([("a", 1)]))
    said = capfd.readouterr().err + caplog.text
    assert said.count("kept setting timers") == said.count("'Iterate/silent' kept setting timers") == 1


def looping_on_bounded_input(runner: str, mode: str) -> None:
    pipeline = TestPipeline(runner, {"max_end_timers": 4, "mode": mode})
    pairs = pipeline | tg.Create([tg.TimestampedValue((key, 0), 1) for key in "abc"])
    ticks = pairs | tg.ParDo(Looping())
    assert_that(ticks, equal_to([10.0, 20.0, 30.0, 40.0, 50.0] * 3))
    assert pipeline.run().metrics().counter("dropped_timers") == 3


def test_a_looping_timer_on_bounded_input_continues_up_to_a_limit(runner: str) -> None:
    looping_on_bounded_input(runner, "batch")


def test_a_looping_timer_on_bounded_input_that_is_treated_as_a_stream_does_so_too(stream_runner: str) -> None:
    looping_on_bounded_input(stream_runner, "streaming")


def test_no_timer_is_set_after_the_end_where_the_limit_is_0(runner: str) -> None:
    pipeline = TestPipeline(runner, {"max_end_timers": 0})
    pairs = pipeline | tg.Create([tg.TimestampedValue(("k", 0), 1)])
    assert_that(pairs | tg.ParDo(Looping()), equal_to([10.0]))
    assert pipeline.run().metrics().counter("dropped_timers") == 1


class Counting(tg.DoFn):
    """A timer that sets itself as long as there is time in its window, one second later each time."""

    def process(self, element: Any, event: tg.Timer = tg.DoFn.TimerParam(EVENT)) -> None:
        event.set(element[1])

    @tg.on_timer(EVENT)
    def on_event(
        self,
        at: tg.Timestamp = tg.DoFn.TimestampParam,
        window: Any = tg.DoFn.WindowParam,
        event: tg.Timer = tg.DoFn.TimerParam(EVENT),
    ) -> Iterator[Any]:
        yield at.seconds()
        if at < window.end + 2:
            event.set(at + 1)


def test_a_looping_timer_in_a_window_with_an_end_continues_until_expiry(runner: str) -> None:
    pipeline = TestPipeline(runner, {"max_end_timers": 1})
    pairs = pipeline | tg.Create([tg.TimestampedValue(("k", second), second) for second in (6, 14)])
    ticks = pairs | tg.WindowInto(TEN, allowed_lateness=2) | tg.ParDo(Counting())
    expected = [*range(6, 13), *range(14, 23)]
    assert_that(ticks, equal_to(list(map(float, expected))))
    assert pipeline.run().metrics().counter("dropped_timers") == 0


class Mixed(tg.DoFn):
    """At the end of input, timers of both clocks set timers of both."""

    def process(
        self,
        element: Any,
        event: tg.Timer = tg.DoFn.TimerParam(EVENT),
        clock: tg.Timer = tg.DoFn.TimerParam(CLOCK),
    ) -> None:
        event.set(50)
        clock.set(60)

    @tg.on_timer(EVENT)
    def on_event(
        self,
        at: tg.Timestamp = tg.DoFn.TimestampParam,
        tag: str = tg.DoFn.TimerTagParam,
        event: tg.Timer = tg.DoFn.TimerParam(EVENT),
    ) -> Iterator[Any]:
        yield "event", tag, at.seconds()
        if not tag:
            event.set(90, tag="late")
            event.set(70, tag="early")

    @tg.on_timer(CLOCK)
    def on_the_clock(
        self, event: tg.Timer = tg.DoFn.TimerParam(EVENT), clock: tg.Timer = tg.DoFn.TimerParam(CLOCK)
    ) -> Iterator[Any]:
        yield "clock", "", 0
        event.set(20, tag="by the clock")
        clock.set(100)


def test_timers_that_are_set_after_the_end_fire_in_the_order_of_their_times(runner: str) -> None:
    pipeline = TestPipeline(runner)
    recorder = PaneRecorder()
    _ = pipeline | tg.Create([tg.TimestampedValue(("k", 0), 1)]) | tg.ParDo(Mixed()) | recorder
    result = pipeline.run()
    assert recorder.values() == [
        ("event", "", 50.0),
        ("event", "early", 70.0),
        ("event", "late", 90.0),
        ("clock", "", 0),
        ("event", "by the clock", 20.0),
    ]
    assert result.metrics().counter("dropped_timers") == 1  # the second timer on the clock


def test_output_of_timers_after_the_end_of_input_is_not_late_downstream(runner: str) -> None:
    with TestPipeline(runner, {"max_end_timers": 4}) as pipeline:
        pairs = pipeline | tg.Create([tg.TimestampedValue(("k", 0), 1)])
        ticks = pairs | tg.ParDo(Looping()) | tg.Map(lambda tick: ("k", tick)) | tg.WindowInto(tg.FixedWindows(20))
        expected = [("k", [10.0]), ("k", [20.0, 30.0]), ("k", [40.0, 50.0])]
        assert_that(ticks | tg.GroupByKey() | tg.MapValues(sorted), equal_to(expected))


def test_timers_are_separate_per_key_and_window(stream_runner: str) -> None:
    script = [(("event", 8), 1), (("event", 5), 2, "other"), (("event", 15), 12), Watermark(20)]
    found = run(stream_runner, script, Commands(), tg.WindowInto(TEN))
    assert sorted(found, key=lambda record: record.timestamp) == [
        fired("event other", (0, 10), timestamp=5),
        fired("event k", (0, 10), timestamp=8),
        fired("event k", (10, 20), timestamp=15),
    ]


# ---- declarations


def test_a_timer_without_a_callback_is_refused_when_built() -> None:
    class Silent(tg.DoFn):
        def process(self, element: Any, timer: tg.Timer = tg.DoFn.TimerParam(EVENT)) -> None:
            timer.set(1)

    with pytest.raises(tg.BuildError, match="on_timer"):
        _ = TestPipeline() | tg.Create([("k", 1)]) | tg.ParDo(Silent())


class Fails(tg.DoFn):
    def process(self, element: Any, timer: tg.Timer = tg.DoFn.TimerParam(EVENT)) -> None:
        timer.set(5)

    @tg.on_timer(EVENT)
    def on_event(self) -> Iterator[Any]:
        raise ZeroDivisionError("boom")
        yield


def test_an_error_in_a_timer_names_the_step_and_the_key(stream_runner: str) -> None:
    with pytest.raises(tg.UserCodeError, match="ZeroDivisionError: boom") as caught:
        values(stream_runner, [("a", 1, "the key"), Watermark(10)], Fails())
    assert caught.value.step == "ParDo(Fails)"
    assert "the key" in str(caught.value)


# ---- bundles


class Buffer(tg.DoFn):
    """Emits all elements from `finish_bundle`: in their windows if `windowed`, else as plain values."""

    def __init__(self, *, windowed: bool) -> None:
        self.windowed = windowed
        self.buffered: list[Any] = []

    def process(
        self, element: Any, timestamp: tg.Timestamp = tg.DoFn.TimestampParam, window: Any = tg.DoFn.WindowParam
    ) -> None:
        self.buffered.append((element, timestamp, window))

    def finish_bundle(self) -> Iterable[Any]:
        elements, self.buffered = self.buffered, []
        if self.windowed:
            return [tg.WindowedValue(element, timestamp, (window,)) for element, timestamp, window in elements]
        return [element for element, _, _ in elements]


def test_finish_bundle_runs_before_a_watermark_is_handled(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        windowed = pipeline | to_test_stream([("a", 1), ("b", 2), Watermark(10), ("c", 11)]) | tg.WindowInto(TEN)
        grouped = windowed | tg.ParDo(Buffer(windowed=True)) | tg.GroupByKey()
        expected = [on_time(("k", ["a", "b"]), (0, 10)), on_time(("k", ["c"]), (10, 20))]
        assert_that(grouped, equal_to(expected), panes=True)


def test_finish_bundle_emits_plain_values_in_the_global_window_only(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        plain = pipeline | tg.Create(["a", "b"]) | tg.ParDo(Buffer(windowed=False))
        assert_that(plain, equal_to(["a", "b"]))
    pipeline = TestPipeline(runner)
    windowed = pipeline | tg.Create(["a"]) | tg.WindowInto(TEN)
    assert_that(windowed | tg.ParDo(Buffer(windowed=False)), is_empty())
    with pytest.raises(tg.RunError, match="WindowedValue"):
        pipeline.run()


def test_state_needs_pairs(runner: str) -> None:
    pipeline = TestPipeline(runner)
    _ = pipeline | tg.Create(["no pair"]).with_output_types(Any) | tg.ParDo(Number())
    with pytest.raises(tg.TidegateError, match="pair"):
        pipeline.run()


class Clocked(tg.DoFn):
    """Emits each value with the processing time of its arrival."""

    SEEN = tg.ValueStateSpec("seen")

    def process(
        self,
        pair: tuple[str, int],
        seen: tg.ValueState[int] = tg.DoFn.StateParam(SEEN),
        now: tg.Timestamp = tg.DoFn.ProcessingTimeParam,
    ) -> Iterable[tuple[str, tg.Timestamp]]:
        seen.write(pair[1])
        yield pair[0], now


@pytest.mark.parametrize("mode", ["batch", "streaming"])
def test_a_step_on_bounded_input_sees_the_clock_too(mode: str) -> None:
    recorder, other = PaneRecorder(), PaneRecorder()
    pipeline = TestPipeline("direct", {"mode": mode})
    _ = pipeline | tg.Create([("a", 1)]) | "bounded" >> tg.ParDo(Clocked()) | recorder
    events = TestStream().advance_processing_time(5).add_elements([("b", 1)])
    _ = pipeline | events | "scripted" >> tg.ParDo(Clocked()) | other
    pipeline.run()
    assert recorder.values() == [("a", tg.Timestamp(0))]
    assert other.values() == [("b", tg.Timestamp(5))]


def test_without_a_test_clock_the_machines_clock_is_used() -> None:
    recorder, pipeline = PaneRecorder(), TestPipeline("direct")
    before = tg.Timestamp.of(datetime.now(UTC))
    _ = pipeline | tg.Create([("a", 1)]) | tg.ParDo(Clocked()) | recorder
    pipeline.run()
    [(_, at)] = recorder.values()
    assert before <= at <= tg.Timestamp.of(datetime.now(UTC))

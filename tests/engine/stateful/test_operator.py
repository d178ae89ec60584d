"""The stateful operator: calls, output, dropped elements, holds and errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.support.operator_driver import (
    SECOND,
    Clock,
    Elements,
    Watermark,
    context,
    operator,
    operator_factory,
    run,
    run_restored,
)
from tidegate.sdk.metrics import ENGINE, MetricKey
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, IntervalWindow

SEEN = tg.ValueStateSpec("seen")
BAG = tg.BagStateSpec("bag")
SHORT = tg.ValueStateSpec("short", ttl=10)
ALARM = tg.EventTimer("alarm")
TICK = tg.ProcessingTimer("tick")

GLOBAL = (GLOBAL_WINDOW,)
W0, W10 = IntervalWindow(0, 10), IntervalWindow(10, 20)
STEP = "step"


def applying(fn: Any, windows: Any = None, **windowing: Any) -> Any:
    def make(p: tg.Pipeline) -> Any:
        pairs = p | tg.Create([("k", 1)])
        if windows is not None:
            pairs = pairs | tg.WindowInto(windows, **windowing)
        return pairs | STEP >> (fn if isinstance(fn, tg.PTransform) else tg.ParDo(fn))

    return make


def elements(*items: tuple[Any, float], windows: tuple[Any, ...] = GLOBAL) -> Elements:
    return Elements(tuple((value, int(t * SECOND), windows) for value, t in items))


def values(out: list[Any]) -> list[Any]:
    return [value for _, value, _, _ in out]


def counted(world: Any, name: str) -> int:
    return int(world.metrics.counters.get(MetricKey(STEP, ENGINE, name), 0))


class RunningMax(tg.DoFn):
    def process(self, element: Any, seen: Any = tg.DoFn.StateParam(SEEN)) -> Iterator[Any]:
        key, value = element
        best = seen.read()
        if best is None or value > best:
            seen.write(value)
            best = value
        yield key, best


def test_state_is_kept_by_key() -> None:
    out = run(
        operator(applying(RunningMax()), STEP), [elements((("a", 3), 0), (("b", 1), 1), (("a", 2), 2), (("b", 5), 3))]
    )
    assert values(out) == [("a", 3), ("b", 1), ("a", 3), ("b", 5)]
    assert [t for _, _, t, _ in out] == [0, SECOND, 2 * SECOND, 3 * SECOND]


def test_state_is_kept_by_window_and_an_element_in_two_windows_is_processed_twice() -> None:
    op = operator(applying(RunningMax(), tg.SlidingWindows(20, 10)), STEP)
    both, second = (IntervalWindow(-10, 10), IntervalWindow(0, 20)), (IntervalWindow(0, 20), IntervalWindow(10, 30))
    out = run(op, [Elements(((("a", 3), 0, both), (("a", 1), 11 * SECOND, second)))])
    assert [(value, windows) for _, value, _, windows in out] == [
        (("a", 3), (both[0],)),
        (("a", 3), (both[1],)),
        (("a", 3), (second[0],)),
        (("a", 1), (second[1],)),
    ]


def test_windows_derived_from_timestamps_are_assigned_in_the_loop() -> None:
    from tests.support.operator_driver import read
    from tidegate.sdk.data.block import Block, DerivedFrom
    from tidegate.sdk.windowing.assigners import FixedWindows

    op = operator(applying(RunningMax(), tg.FixedWindows(10)), STEP)
    op_block = Block([("a", 3), ("a", 1), ("a", 2)], [0, 11 * SECOND, 5], DerivedFrom(FixedWindows(10)))
    assert [(v, w) for _, v, _, w in read(op.process(op_block, "main"))] == [
        (("a", 3), (W0,)),
        (("a", 1), (W10,)),
        (("a", 3), (W0,)),
    ]


def test_an_element_of_an_expired_window_is_dropped_and_counted_once() -> None:
    world = context()
    op = operator(applying(RunningMax(), tg.SlidingWindows(20, 10), allowed_lateness=5), STEP, world=world)
    old, young = IntervalWindow(-10, 10), IntervalWindow(0, 20)
    events = [
        Watermark(15 * SECOND),
        Elements(((("a", 1), 5 * SECOND, (old, young)), (("a", 2), 0, (old,)), (("a", 3), 1, ()))),
    ]
    out = run(op, events)
    assert [(value, windows) for _, value, _, windows in out] == [(("a", 1), (young,))]
    assert counted(world, "dropped_late") == 1


def test_late_elements_within_the_allowed_lateness_still_have_their_state() -> None:
    op = operator(applying(RunningMax(), tg.FixedWindows(10), allowed_lateness=5), STEP)
    events = [elements((("a", 3), 1), windows=(W0,)), Watermark(14 * SECOND), elements((("a", 1), 2), windows=(W0,))]
    assert values(run(op, events)) == [("a", 3), ("a", 3)]


def test_state_of_an_expired_window_is_collected() -> None:
    op = operator(applying(RunningMax(), tg.FixedWindows(10)), STEP)
    run(op, [elements((("a", 3), 1), windows=(W0,)), elements((("a", 4), 11), windows=(W10,))], end=False)
    assert op.snapshot().tables == {"cell/seen": {W0: {"a": 3}, W10: {"a": 4}}}
    run(op, [Watermark(10 * SECOND)], end=False)
    assert op.snapshot().tables == {"cell/seen": {W10: {"a": 4}}}


def test_plain_functions_may_have_state() -> None:
    def number(element: Any, seen: Any = tg.DoFn.StateParam(SEEN)) -> Any:
        seen.write((seen.read() or 0) + 1)
        return seen.read()

    def is_new(element: Any, seen: Any = tg.DoFn.StateParam(SEEN)) -> bool:
        known = seen.read()
        seen.write(True)
        return not known

    events = [elements((("a", 0), 0), (("a", 1), 1), (("b", 2), 2))]
    assert values(run(operator(applying(tg.Map(number)), STEP), events)) == [1, 2, 1]
    assert values(run(operator(applying(tg.Filter(is_new)), STEP), events)) == [("a", 0), ("b", 2)]


def test_tags_timestamps_and_dead_letters_work_as_on_any_step() -> None:
    class Sorts(tg.DoFn):
        def process(self, element: Any, seen: Any = tg.DoFn.StateParam(SEEN)) -> Iterator[Any]:
            seen.write(element[1])
            if element[1] == "tag":
                yield tg.TaggedOutput("side", element)
            elif element[1] == "bad":
                yield "kept back"
                raise ValueError("no")
            else:
                yield tg.TimestampedValue(element, 15)

    def make(p: tg.Pipeline) -> Any:
        pairs = p | tg.Create([("k", 1)]) | tg.WindowInto(tg.FixedWindows(10))
        good, bad = pairs | STEP >> tg.ParDo(Sorts()).with_outputs("side").with_exception_handling()
        for n, part in enumerate((*good, bad)):
            part | f"reads {n}" >> tg.Map(str)

    events = [elements((("k", "tag"), 1), (("k", "bad"), 2), (("k", "ok"), 3), (("k", "ok"), 4), windows=(W0,))]
    for cut in (1, 4):
        out = run(operator(make, STEP), events, cut=cut)
        assert [(c, v if c != f"{STEP}:bad" else v[:1], t // SECOND, w) for c, v, t, w in out] == [
            (f"{STEP}:side", ("k", "tag"), 1, (W0,)),
            (f"{STEP}:bad", (("k", "bad"),), 2, (W0,)),
            (STEP, ("k", "ok"), 15, (W10,)),
            (STEP, ("k", "ok"), 15, (W10,)),
        ]


def test_an_error_names_step_line_and_element() -> None:
    class Fails(tg.DoFn):
        def process(self, element: Any, seen: Any = tg.DoFn.StateParam(SEEN)) -> Iterator[Any]:
            yield element
            raise ValueError("no good")

    with pytest.raises(tg.UserCodeError) as caught:
        run(operator(applying(Fails()), STEP), [elements((("k", 7), 0))])
    message = str(caught.value)
    assert "ValueError: no good" in message
    assert f"in step '{STEP}', applied at {__file__}" in message
    assert "element: ('k', 7)" in message


def test_an_element_that_is_no_pair_is_refused() -> None:
    with pytest.raises(tg.RunError, match=r"this step takes pairs \(key, value\), but got 7"):
        run(operator(applying(RunningMax()), STEP), [elements((7, 0))])


def test_a_key_without_an_encoding_is_refused_when_checked() -> None:
    op = operator(applying(RunningMax()), STEP, world=context(checks="sample"))
    with pytest.raises(tg.KeyEncodingError, match="NaN"):
        run(op, [elements(((float("nan"), 1), 0))])


def test_changing_a_value_that_was_read_is_reported_with_step_and_cell() -> None:
    class Appends(tg.DoFn):
        def process(self, element: Any, seen: Any = tg.DoFn.StateParam(SEEN)) -> Iterator[Any]:
            values = seen.read() or []
            values.append(element[1])
            seen.write(values)
            yield element

    op = operator(applying(Appends()), STEP, world=context(checks="sample"))
    with pytest.raises(tg.CheckError, match="state cell 'seen' was changed") as caught:
        run(op, [elements((("k", 1), 0), (("k", 2), 0))])
    assert f"in step '{STEP}'" in str(caught.value)


class Alarms(tg.DoFn):
    """Sets `alarm` or `tick`, as the element says, to a number of seconds."""

    def process(
        self,
        element: Any,
        bag: Any = tg.DoFn.StateParam(BAG),
        alarm: Any = tg.DoFn.TimerParam(ALARM),
        tick: Any = tg.DoFn.TimerParam(TICK),
    ) -> Iterator[Any]:
        kind, when = element[1]
        bag.add(when)
        {"alarm": alarm, "tick": tick}[kind].set(when)
        yield "element", when

    @tg.on_timer(ALARM)
    def ring(
        self, key: Any = tg.DoFn.KeyParam, t: Any = tg.DoFn.TimestampParam, bag: Any = tg.DoFn.StateParam(BAG)
    ) -> Iterator[Any]:
        yield "alarm", key, t.seconds(), bag.read()

    @tg.on_timer(TICK)
    def ticked(self, key: Any = tg.DoFn.KeyParam, t: Any = tg.DoFn.TimestampParam) -> Iterator[Any]:
        yield "tick", key, t.seconds()


def test_a_timer_set_for_the_past_fires_before_the_next_element() -> None:
    op = operator(applying(Alarms()), STEP)
    out = run(op, [Watermark(20 * SECOND), elements((("k", ("alarm", 20)), 18), (("k", ("alarm", 30)), 19))], end=False)
    assert values(out) == [("element", 20), ("alarm", "k", 20.0, (20,)), ("element", 30)]


def test_a_timer_holds_the_watermark_at_its_output_timestamp() -> None:
    op = operator(applying(Alarms()), STEP)
    assert op.hold() == MAX_MICROS
    run(op, [Clock(0), Watermark(0), elements((("a", ("alarm", 15)), 1), (("b", ("tick", 100)), 7))], end=False)
    assert op.hold() == 7 * SECOND
    assert op.next_clock() == 100 * SECOND
    out = run(op, [Clock(100 * SECOND)], end=False)
    assert [(value, t) for _, value, t, _ in out] == [(("tick", "b", 7.0), 7 * SECOND)]
    assert op.hold() == 15 * SECOND
    out = run(op, [Watermark(15 * SECOND)], end=False)
    assert [(value, t) for _, value, t, _ in out] == [(("alarm", "a", 15.0, (15,)), 15 * SECOND)]
    assert op.hold() == MAX_MICROS


def test_a_timer_may_be_set_up_to_the_expiry_of_its_window_and_no_later() -> None:
    op = operator(applying(Alarms(), tg.FixedWindows(10), allowed_lateness=5), STEP)
    assert values(run(op, [elements((("k", ("alarm", 15)), 1), windows=(W0,))]))[1] == ("alarm", "k", 15.0, (15,))
    op = operator(applying(Alarms(), tg.FixedWindows(10), allowed_lateness=5), STEP)
    with pytest.raises(
        tg.UserCodeError, match=r"'alarm' can't be set to .*00:00:16Z: its window .* expires at .*00:00:15Z"
    ):
        run(op, [elements((("k", ("alarm", 16)), 1), windows=(W0,))])


def test_a_processing_time_timer_that_is_due_after_a_restart_fires_immediately() -> None:
    make = operator_factory(applying(Alarms()), STEP)
    events = [Clock(0), elements((("k", ("tick", 10)), 1)), Clock(50 * SECOND)]
    assert values(run_restored(make, events, 2)) == [("element", 10), ("tick", "k", 1.0)]


def test_an_error_in_a_timer_names_method_and_key() -> None:
    class Fails(tg.DoFn):
        def process(self, element: Any, alarm: Any = tg.DoFn.TimerParam(ALARM)) -> None:
            alarm.set(5)

        @tg.on_timer(ALARM)
        def ring(self) -> None:
            raise ValueError("no good")

    with pytest.raises(tg.UserCodeError) as caught:
        run(operator(applying(Fails()), STEP), [elements((("k", 1), 0))])
    message = str(caught.value)
    assert "while calling ring" in message
    assert "key: 'k'" in message
    assert f"in step '{STEP}'" in message


class Repeats(tg.DoFn):
    """Each firing sets its timer again; the expiration of the window emits as well."""

    def process(
        self, element: Any, alarm: Any = tg.DoFn.TimerParam(ALARM), tick: Any = tg.DoFn.TimerParam(TICK)
    ) -> None:
        alarm.set(element[1])
        tick.set(element[1])

    @tg.on_timer(ALARM)
    def ring(self, t: Any = tg.DoFn.TimestampParam, alarm: Any = tg.DoFn.TimerParam(ALARM)) -> Iterator[Any]:
        alarm.set(t.seconds() + 1)
        yield "alarm"

    @tg.on_timer(TICK)
    def ticked(self, tick: Any = tg.DoFn.TimerParam(TICK)) -> Iterator[Any]:
        tick.set(tg.Timestamp(1000))
        yield "tick"

    @tg.on_window_expiration
    def expired(self, key: Any = tg.DoFn.KeyParam, alarm: Any = tg.DoFn.TimerParam(ALARM)) -> Iterator[Any]:
        alarm.set(tg.Timestamp(1000))
        yield "expired", key


def test_at_the_end_of_input_event_timers_of_the_global_window_repeat_up_to_a_limit() -> None:
    for streaming in (True, False):
        world = context(max_end_timers=2)
        op = operator(applying(Repeats()), STEP, streaming=streaming, world=world)
        assert values(run(op, [elements((("k", 5), 0))])) == ["alarm", "alarm", "alarm", "tick", ("expired", "k")]
        assert counted(world, "dropped_timers") == 3  # the fourth alarm, the second tick, the alarm set at expiration
        assert counted(world, "keys_at_max_end_timers") == 1


def test_on_bounded_input_processing_time_timers_fire_once_at_the_end() -> None:
    op = operator(applying(Alarms()), STEP, streaming=False)
    events = [Clock(0), elements((("k", ("tick", 5)), 1), (("k", ("alarm", 9)), 2)), Clock(50 * SECOND)]
    before_the_end = values(run(op, events, end=False))
    assert op.next_clock() is None
    fired = [("alarm", "k", 9.0, (5, 9)), ("tick", "k", 1.0)]
    assert before_the_end + values(run(op, [])) == [("element", 5), ("element", 9), *fired]


def test_on_bounded_input_the_elements_of_each_key_are_processed_in_timestamp_order() -> None:
    def so_far(element: Any, bag: Any = tg.DoFn.StateParam(BAG)) -> Any:
        bag.add(element[1])
        return element[0], bag.read()

    op = operator(applying(tg.Map(so_far)), STEP, streaming=False)
    out = run(op, [elements((("a", 3), 3), (("b", 1), 9), (("a", 1), 1)), elements((("b", 0), 0), (("a", 2), 2))])
    assert [v for v in values(out) if v[0] == "a"] == [("a", (1,)), ("a", (1, 2)), ("a", (1, 2, 3))]
    assert [v for v in values(out) if v[0] == "b"] == [("b", (0,)), ("b", (0, 1))]


class EmitsAtExpiration(tg.DoFn):
    def process(self, element: Any, bag: Any = tg.DoFn.StateParam(BAG)) -> None:
        bag.add(element[1])

    @tg.on_window_expiration
    def expired(self, key: Any = tg.DoFn.KeyParam, bag: Any = tg.DoFn.StateParam(BAG)) -> Iterator[Any]:
        yield key, bag.read()


def test_expiration_runs_by_window_and_first_arrival_just_before_state_is_collected() -> None:
    op = operator(applying(EmitsAtExpiration(), tg.FixedWindows(10), allowed_lateness=5), STEP)
    run(
        op,
        [
            elements((("b", 1), 11), windows=(W10,)),
            elements((("b", 2), 1), (("a", 3), 2), (("b", 4), 3), windows=(W0,)),
        ],
        end=False,
    )
    assert run(op, [Watermark(14 * SECOND)], end=False) == []
    assert op.hold() == 10 * SECOND - 1, "the output of an expiration is late"
    out = run(op, [Watermark(99 * SECOND)], end=False)
    assert [(value, t, windows) for _, value, t, windows in out] == [
        (("b", (2, 4)), 10 * SECOND - 1, (W0,)),
        (("a", (3,)), 10 * SECOND - 1, (W0,)),
        (("b", (1,)), 20 * SECOND - 1, (W10,)),
    ]
    assert op.hold() == MAX_MICROS
    assert op.snapshot().tables["cell/bag"] == {}


def test_a_ttl_starts_at_the_last_write_and_clears_state_that_is_never_read() -> None:
    class Once(tg.DoFn):
        def process(self, element: Any, short: Any = tg.DoFn.StateParam(SHORT)) -> Iterator[Any]:
            if short.read() is None:
                short.write(True)
                yield element

    make = operator_factory(applying(Once()), STEP)
    events = [
        Clock(100 * SECOND),
        elements((("k", 1), 0), (("k", 2), 0)),
        Clock(109 * SECOND),
        elements((("k", 3), 0)),
        Clock(110 * SECOND),
        elements((("k", 4), 0)),
    ]
    for position in range(len(events) + 1):
        assert values(run_restored(make, events, position)) == [("k", 1), ("k", 4)]
    op: Any = make()
    run(op, events[:2], end=False)
    assert op.next_clock() == 110 * SECOND
    run(op, [Clock(110 * SECOND)], end=False)
    assert op.snapshot().tables["cell/short"] == {}


def test_setup_and_teardown_of_a_combining_cell_run_once() -> None:
    calls: list[str] = []

    class Sum(tg.CombineFn[int, int, int]):
        def setup(self) -> None:
            calls.append("setup")

        def create_accumulator(self) -> int:
            return 0

        def add_input(self, accumulator: int, element: int) -> int:
            return accumulator + element

        def merge_accumulators(self, accumulators: Any) -> int:
            return sum(accumulators)

        def extract_output(self, accumulator: int) -> int:
            return accumulator

        def teardown(self) -> None:
            calls.append("teardown")

    total = tg.CombiningStateSpec("total", Sum())

    def add(element: Any, cell: Any = tg.DoFn.StateParam(total)) -> Any:
        cell.add(element[1])
        return cell.read()

    op = operator(applying(tg.Map(add)), STEP)
    assert values(run(op, [elements((("k", 1), 0), (("k", 2), 0))])) == [1, 3]
    op.close()
    assert calls == ["setup", "teardown"]


def test_the_time_parameters_are_watermark_and_processing_time() -> None:
    def times(
        element: Any,
        seen: Any = tg.DoFn.StateParam(SEEN),
        watermark: Any = tg.DoFn.WatermarkParam,
        clock: Any = tg.DoFn.ProcessingTimeParam,
    ) -> Any:
        return watermark.seconds(), clock.seconds()

    out = run(
        operator(applying(tg.Map(times)), STEP), [Clock(7 * SECOND), Watermark(3 * SECOND), elements((("k", 1), 4))]
    )
    assert values(out) == [(3.0, 7.0)]


def test_a_snapshot_with_a_cell_that_is_no_longer_declared_is_refused() -> None:
    old = operator(applying(EmitsAtExpiration()), STEP)
    run(old, [elements((("k", 1), 0))], end=False)
    new = operator(applying(RunningMax()), STEP)
    with pytest.raises(tg.RunError, match=r"state of 'step' under the name 'bag', which the step.*no longer declares"):
        new.restore(old.snapshot())


def test_a_callback_cannot_ask_for_an_element_or_pane() -> None:
    class Wrong(tg.DoFn):
        def process(self, element: Any, alarm: Any = tg.DoFn.TimerParam(ALARM)) -> None:
            alarm.set(1)

        @tg.on_timer(ALARM)
        def ring(self, element: Any = tg.DoFn.ElementParam) -> None: ...

    with pytest.raises(
        tg.BuildError, match="parameter 'element' asks for the element, but this method is called without one"
    ):
        tg.Pipeline() | tg.Create([("k", 1)]) | tg.ParDo(Wrong())


def test_two_cells_of_the_same_name_are_refused() -> None:
    other = tg.BagStateSpec("seen")

    def both(element: Any, a: Any = tg.DoFn.StateParam(SEEN), b: Any = tg.DoFn.StateParam(other)) -> None: ...

    with pytest.raises(tg.BuildError, match="two different state cells are named 'seen'"):
        tg.Pipeline() | tg.Create([("k", 1)]) | tg.Map(both)

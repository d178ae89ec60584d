"""Mistakes with state and timers that users of other libraries make: the errors say what to write."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tests.support.failing_pipelines import error_message
from tidegate.sdk.authoring.state import describe_methods, methods_of
from tidegate.testing import TestPipeline, assert_that, equal_to

VALUE = tg.ValueStateSpec("value")
BAG = tg.BagStateSpec("bag")
MAP = tg.MapStateSpec("map")
TOTAL = tg.CombiningStateSpec("total", sum)
MEMBERS = tg.SetStateSpec("members")
ORDERED = tg.OrderedListStateSpec("ordered")
LATER = tg.EventTimer("later")
SOON = tg.ProcessingTimer("soon")

VALUE_HAS = "a ValueState has read(default=None), write(value) and clear()"
TIMER_HAS = "a timer has set(at, tag='', output_timestamp=None) and clear(tag='')"


def applied(dofn: tg.DoFn) -> str:
    return error_message(lambda p: p | tg.Create([("a", 1)]) | "step" >> tg.ParDo(dofn) | tg.Map(str))


# -- errors when the pipeline is built


class Gets(tg.DoFn):
    def process(self, element: Any, cell: Any = tg.DoFn.StateParam(VALUE)) -> Any:
        yield cell.get()


class Appends(tg.DoFn):
    def process(self, element: Any, cell: Any = tg.DoFn.StateParam(BAG)) -> None:
        if element:
            cell.append(element)


class Registers(tg.DoFn):
    def process(self, element: Any, timer: Any = tg.DoFn.TimerParam(LATER)) -> None:
        timer.register(5)

    @tg.on_timer(LATER)
    def fires(self) -> None: ...


class UpdatesLater(tg.DoFn):
    def process(self, element: Any, timer: Any = tg.DoFn.TimerParam(LATER)) -> None:
        timer.set(5)

    @tg.on_timer(LATER)
    def fires(self, cell: Any = tg.DoFn.StateParam(VALUE)) -> None:
        cell.update(3)


class ReadsNowhere(tg.DoFn):
    def process(self, element: Any, cell: Any = VALUE) -> Any:
        yield cell.read()


class SetsNowhere(tg.DoFn):
    def process(self, element: Any, timer: Any = LATER) -> None:
        timer.set(5)


class AsksForNoneInParticular(tg.DoFn):
    def process(self, element: Any, cell: Any = tg.DoFn.StateParam) -> None: ...


class Annotates(tg.DoFn):
    def process(self, element: Any, cell: Any) -> None: ...


Annotates.process.__annotations__["cell"] = tg.DoFn.StateParam(VALUE)


class NeverFires(tg.DoFn):
    def process(self, element: Any, timer: Any = tg.DoFn.TimerParam(LATER)) -> None:
        timer.set(5)


@pytest.mark.parametrize(
    ("dofn", "expected"),
    [
        (Gets(), f"Gets.process uses cell.get in line {Gets.process.__code__.co_firstlineno + 1}"),
        (Gets(), f"which does not exist: {VALUE_HAS}"),
        (Appends(), "which does not exist: a BagState has read(), add(value) and clear()"),
        (Registers(), f"which does not exist: {TIMER_HAS}"),
        (
            UpdatesLater(),
            f"fires uses cell.update in line {UpdatesLater.fires.__code__.co_firstlineno + 2}",
        ),
        (
            ReadsNowhere(),
            "the default of 'cell' is a spec, not the cell or timer itself: write cell=tg.DoFn.StateParam(SPEC)",
        ),
        (
            SetsNowhere(),
            "the default of 'timer' is a spec, not the cell or timer itself: write timer=tg.DoFn.TimerParam(SPEC)",
        ),
        (AsksForNoneInParticular(), "write cell=tg.DoFn.StateParam(SPEC)"),
        (Annotates(), "injection is requested by a default: write `cell=…`, not `cell: …`"),
        (NeverFires(), "sets the timer 'later' but has no @on_timer method for it"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, tg.DoFn) else "",
)
def test_a_wrong_use_of_state_or_timers_is_refused_when_the_step_is_applied(dofn: tg.DoFn, expected: str) -> None:
    message = applied(dofn)
    assert message.startswith("BuildError: ")
    assert expected in message
    assert message.endswith("\n  in step 'step', applied at HERE")


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda: tg.DoFn.StateParam("x"), "tg.DoFn.StateParam takes the spec of a state cell, not 'x', such as "),  # type: ignore[arg-type]
        (lambda: tg.DoFn.StateParam(LATER), "write tg.DoFn.TimerParam(SPEC)"),  # type: ignore[arg-type]
        (lambda: tg.DoFn.StateParam(tg.BagStateSpec), "give it a name, as in tg.BagStateSpec('name')"),  # type: ignore[arg-type]
        (lambda: tg.DoFn.TimerParam("x"), "such as tg.EventTimer('name') or tg.ProcessingTimer('name')"),  # type: ignore[arg-type]
        (lambda: tg.DoFn.TimerParam(VALUE), "write tg.DoFn.StateParam(SPEC)"),  # type: ignore[arg-type]
        (lambda: tg.on_timer("later"), "tg.on_timer takes the spec of a timer, not 'later'"),  # type: ignore[arg-type]
        (lambda: tg.on_timer(lambda self: None), "tg.on_timer takes the spec of a timer, not <function"),  # type: ignore[arg-type]
        (lambda: tg.BagStateSpec("x", int), "a cell takes no type or coder, because it can contain any value"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_declaration_is_refused_when_it_is_evaluated(write: Callable[[], Any], expected: str) -> None:
    with pytest.raises(tg.BuildError) as caught:
        write()
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("WindowParm", "tg.DoFn has no WindowParm; did you mean tg.DoFn.WindowParam?"),
        ("StateParm", "tg.DoFn has no StateParm; did you mean tg.DoFn.StateParam?"),
        ("DynamicTimerTagParam", "tg.DoFn has no DynamicTimerTagParam; tg.DoFn.TimerTagParam gives the tag"),
    ],
)
def test_the_error_of_a_misspelt_parameter_names_the_right_one(name: str, expected: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(tg.DoFn, name)
    assert str(caught.value).startswith(expected)


def test_a_missing_attribute_of_an_authors_class_has_pythons_message() -> None:
    with pytest.raises(AttributeError, match=r"^type object 'Gets' has no attribute 'nothing'$"):
        Gets.nothing  # type: ignore[attr-defined]  # noqa: B018


# -- errors during a run: the cell or timer is passed to another function


def with_cell(spec: Any, use: Callable[[Any], Any]) -> tg.DoFn:
    class Uses(tg.DoFn):
        def process(self, element: Any, cell: Any = tg.DoFn.StateParam(spec)) -> Any:
            yield use(cell)

    return Uses()


def with_timer(spec: Any, use: Callable[[Any, Any], Any]) -> tg.DoFn:
    class Uses(tg.DoFn):
        def process(
            self, element: Any, timer: Any = tg.DoFn.TimerParam(spec), time: Any = tg.DoFn.TimestampParam
        ) -> None:
            use(timer, time)

        @tg.on_timer(spec)
        def fires(self) -> None: ...

    return Uses()


AT_RUN: dict[str, tuple[Callable[[], tg.DoFn], str]] = {
    "value.get()": (lambda: with_cell(VALUE, lambda cell: cell.get()), VALUE_HAS),
    "value.value": (lambda: with_cell(VALUE, lambda cell: cell.value), VALUE_HAS),
    "value.update(1)": (lambda: with_cell(VALUE, lambda cell: cell.update(1)), VALUE_HAS),
    "value.write()": (lambda: with_cell(VALUE, lambda cell: cell.write()), VALUE_HAS),
    "value + 1": (lambda: with_cell(VALUE, lambda cell: cell + 1), VALUE_HAS),
    "if value": (lambda: with_cell(VALUE, bool), "is neither true nor false"),
    "None + 1": (
        lambda: with_cell(VALUE, lambda cell: cell.read() + 1),
        "Nothing has been written to cell for this key, so it reads None: cell.read(0) gives 0 then",
    ),
    "None.append": (lambda: with_cell(VALUE, lambda cell: cell.read().append(1)), "cell.read(0) gives 0 then"),
    "None of a map": (lambda: with_cell(MAP, lambda cell: cell.get("x") + 1), "cell.get(key, 0) gives 0 then"),
    "iterate a bag": (lambda: with_cell(BAG, list), "a BagState has read(), add(value) and clear()"),
    "length of a bag": (lambda: with_cell(BAG, len), "a BagState has read(), add(value) and clear()"),
    "map[key]": (lambda: with_cell(MAP, lambda cell: cell["x"]), "a MapState has get(key, default=None), put(key"),
    "map.get()": (lambda: with_cell(MAP, lambda cell: cell.get()), "a MapState has get(key, default=None), put(key"),
    "total.write(1)": (lambda: with_cell(TOTAL, lambda cell: cell.write(1)), "a CombiningState has read(), add(val"),
    "members.remove(1)": (lambda: with_cell(MEMBERS, lambda cell: cell.remove(1)), "add(value), discard(value)"),
    "ordered.add(1)": (lambda: with_cell(ORDERED, lambda cell: cell.add(1)), "add(timestamp, value)"),
    "a spec": (lambda: with_cell(VALUE, lambda cell: VALUE.read()), "cell=tg.DoFn.StateParam(SPEC)"),  # type: ignore[attr-defined]
    "timer.set()": (lambda: with_timer(LATER, lambda timer, time: timer.set()), TIMER_HAS),
    "timer.offset(5)": (lambda: with_timer(SOON, lambda timer, time: timer.offset(5)), TIMER_HAS),
    "a tag by position": (lambda: with_timer(LATER, lambda timer, time: timer.set(1, "tag")), TIMER_HAS),
    "another keyword": (lambda: with_timer(LATER, lambda timer, time: timer.set(1, dynamic_timer_tag="t")), TIMER_HAS),
    "a timedelta": (
        lambda: with_timer(SOON, lambda timer, time: timer.set(datetime.timedelta(seconds=60))),
        "A timer is set to an instant: add the delay to one, such as",
    ),
    "a Duration": (lambda: with_timer(LATER, lambda timer, time: timer.set(tg.Duration(60))), "set to an instant"),
    "a text": (lambda: with_timer(LATER, lambda timer, time: timer.set("2024-01-01")), "set to an instant"),
    "a naive datetime": (
        lambda: with_timer(LATER, lambda timer, time: timer.set(datetime.datetime(2024, 1, 1))),
        "has no time zone: give it one",
    ),
}


@pytest.mark.parametrize("slip", AT_RUN)
def test_the_error_of_a_wrong_use_during_the_run_lists_the_methods(slip: str) -> None:
    make, expected = AT_RUN[slip]
    message = applied(make())
    assert message.startswith("UserCodeError: ")
    assert expected[1:] in message.partition("\n")[0]  # except the first letter, which may begin a sentence
    assert "\n  in step 'step', applied at HERE\n  while calling process\n  element: ('a', 1)" in message


def test_the_streaming_runner_reports_the_same_error() -> None:
    p = tg.Pipeline(runner="streaming")
    _ = p | tg.Create([("a", 1)]) | tg.ParDo(with_cell(VALUE, lambda cell: cell.read() + 1)) | tg.Map(str)
    with pytest.raises(tg.UserCodeError, match=r"it reads None: cell\.read\(0\) gives 0 then"):
        p.run()


def test_an_error_about_none_is_not_explained_if_no_cell_was_empty() -> None:
    def use(cell: Any) -> Any:
        cell.write(1)
        return None + 1  # type: ignore[operator]

    assert "reads None" not in applied(with_cell(VALUE, use))


def live(dofn: tg.DoFn) -> None:
    """Run a DoFn on unbounded input, with the system clock."""
    with tg.Pipeline(options=["--mode", "streaming"]) as p:
        _ = p | tg.Create([tg.TimestampedValue(("a", 1), 1_700_000_000)]) | tg.ParDo(dofn) | tg.Map(str)


@pytest.mark.parametrize(
    ("spec", "at", "expected"),
    [
        (LATER, 60, "60 s after 1970, so a timer that is set to it fires at once"),
        (SOON, 60.5, "60.5 s after 1970, so a timer that is set to it fires at once"),
        (LATER, 1_700_000_000_000, "if it is in milliseconds, divide it by 1,000"),
    ],
)
def test_a_timer_in_the_wrong_unit_causes_a_warning_at_its_line(spec: Any, at: float, expected: str) -> None:
    line = f"{spec.name} {at}"  # separate lines, because each line causes one warning
    use = eval(compile("lambda timer, time: timer.set(at)", line, "eval"), {"at": at})
    with pytest.warns(tg.TidegateWarning) as caught:
        live(with_timer(spec, use))
    assert [warning.filename for warning in caught] == [line]
    assert expected in str(caught[0].message)


def test_timers_set_to_timestamps_cause_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        live(with_timer(LATER, lambda timer, time: timer.set(time + 60)))
        live(with_timer(LATER, lambda timer, time: timer.set(0)))
        live(with_timer(LATER, lambda timer, time: timer.set(1_700_000_060)))


# -- correct code is not refused


class Reassigns(tg.DoFn):
    """Assigns another value to the parameter, which then is no cell."""

    def process(self, element: Any, cell: Any = tg.DoFn.StateParam(VALUE)) -> Any:
        cell = cell.read("none")
        yield cell.upper()


def test_a_parameter_that_is_assigned_to_may_have_other_attributes() -> None:
    with TestPipeline() as p:
        assert_that(p | tg.Create([("a", 1)]) | tg.ParDo(Reassigns()), equal_to(["NONE"]))


@pytest.mark.parametrize("spec", [VALUE, BAG, MAP, TOTAL, MEMBERS, ORDERED], ids=lambda spec: spec.cell)
@pytest.mark.parametrize("expiring", [False, True])
def test_the_methods_listed_in_messages_exist(spec: Any, expiring: bool) -> None:
    from dataclasses import replace

    from tidegate.runners.engine.errors.state_advice import advice
    from tidegate.runners.engine.state.cells import cells_of

    for cell in cells_of(replace(spec, ttl=tg.Duration(5)), expiring=expiring):
        assert [name for name in methods_of(spec) if not callable(getattr(cell, name, None))] == []
        with pytest.raises(AttributeError) as slip:
            cell.no_such_method  # noqa: B018
        assert advice(slip.value)[1:] == describe_methods(spec)[1:]

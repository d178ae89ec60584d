"""The table of corner cases, each run with its elements one by one, with neighbours in one block, as bounded data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import tidegate as tg
from tests.semantics.corner_cases import CASES, Case
from tests.support.stream_scripts import KEY, ScriptResult, Watermark, run_script
from tidegate.testing import PaneRecorder, TestPipeline


@pytest.mark.parametrize("together", [False, True], ids=["one_by_one", "in_blocks"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_corner(stream_runner: str, case: Case, together: bool) -> None:
    options = {**case.options, "runner": stream_runner}
    ran = run_script(
        stream_runner, case.script, tg.WindowInto(**case.into), case.group, together=together, options=options
    )
    assert ran.of_key == list(case.expected)
    assert (ran.counted("dropped_late"), ran.counted("dropped_closed")) == (case.dropped_late, case.dropped_closed)


def test_the_table_has_at_least_sixty_corners() -> None:
    assert len(CASES) >= 60


def bounded(runner: str, cases: Iterable[Case], options: Any = None) -> dict[str, ScriptResult]:
    """The results of all cases, in one pipeline, with their elements as bounded data and no other events."""
    pipeline = TestPipeline(runner, {"runner": runner, "allow_unsafe_triggers": True, **(options or {})})
    recorders: dict[str, PaneRecorder] = {}
    for case in cases:
        elements = [
            tg.TimestampedValue((key[0] if key else KEY, value), at) for value, at, *key in elements_of(case.script)
        ]
        made = pipeline | f"{case.name}: elements" >> tg.Create(elements).with_output_types(Any)
        grouping = tg.GroupByKey() if case.group is None else case.group
        grouped = made | f"{case.name}: windows" >> tg.WindowInto(**case.into) | case.name >> grouping
        recorders[case.name] = PaneRecorder(f"{case.name}: panes")
        _ = grouped | recorders[case.name]
    result = pipeline.run()
    return {name: ScriptResult(recorder.per_key(), result) for name, recorder in recorders.items()}


def elements_of(script: Iterable[Any]) -> list[Any]:
    """The elements alone."""
    return [event for event in script if isinstance(event, tuple)]


def is_in_order(case: Case) -> bool:
    """True if a script is equivalent to bounded data: elements in timestamp order, then the end."""
    elements = elements_of(case.script)
    times = [tg.Timestamp.of(at) for _, at, *_ in elements]
    match case.script[len(elements) :]:
        case [] | [Watermark()]:
            return list(case.script[: len(elements)]) == elements and times == sorted(times)
    return False


IN_ORDER = [case for case in CASES if is_in_order(case)]


def test_corners_that_bounded_data_shows(runner: str) -> None:
    ran = bounded(runner, IN_ORDER)
    assert {name: ran.of_key for name, ran in ran.items()} == {case.name: list(case.expected) for case in IN_ORDER}
    for counter in ("dropped_late", "dropped_closed"):
        (any_of_them, *_) = ran.values()
        assert any_of_them.counted(counter) == sum(getattr(case, counter) for case in IN_ORDER)
    assert len(IN_ORDER) >= 50


def test_every_corner_case_has_the_same_result_on_bounded_data_as_on_direct(bounded_only_runner: str) -> None:
    found, wanted = (bounded(name, CASES) for name in (bounded_only_runner, "direct"))
    assert {name: ran.panes for name, ran in found.items()} == {name: ran.panes for name, ran in wanted.items()}

"""`check_sink`: whether a sink keeps the rules that runners rely on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from tidegate.sdk.connectors.sinks import Sink
from tidegate.sdk.errors import BuildError
from tidegate.testing.conformance import sink_checks, sink_failure_checks, sink_runs
from tidegate.testing.conformance.pipeline_runs import check_runners
from tidegate.testing.conformance.rules import Calls, ConformanceReport, run_checks
from tidegate.testing.conformance.writing import TASKS, SinkCase

SINK_CHECKS: Final[tuple[Callable[[SinkCase], None], ...]] = (
    sink_checks.writes_everything,
    sink_checks.is_picklable,
    sink_checks.names_what_it_writes,
    sink_checks.committables_have_orders,
    sink_checks.nothing_is_visible_before_the_commit,
    sink_checks.commits_twice,
    sink_checks.commits_in_another_process,
    sink_checks.commits_in_any_order,
    sink_checks.commits_nothing,
    sink_checks.commits_each_checkpoint,
    sink_checks.commits_staged_files,
    sink_failure_checks.aborts_before_prepare,
    sink_failure_checks.aborts_after_prepare,
    sink_failure_checks.abort_keeps_committed_output,
    sink_failure_checks.abort_keeps_other_runs,
    sink_failure_checks.abandoned_attempts_leave_nothing,
    sink_failure_checks.attempts_of_a_task_do_not_interfere,
    sink_failure_checks.close_discards_unprepared_output,
    sink_failure_checks.bad_element_is_a_write_error,
    sink_runs.pipelines_write_everything,
    sink_runs.pipelines_write_once_after_failures,
    sink_runs.failed_pipelines_leave_nothing,
)
"""The checks of sinks, in the order in which they run."""

_NONE: Final = object()


def check_sink(
    make_sink: Callable[[], Sink[Any]],
    elements: Iterable[Any],
    read_back: Callable[[Any], Iterable[Any]],
    *,
    bad_element: Any = _NONE,
    bad_place: str = "",
    runners: Sequence[str] = (),
    patience: float = 60.0,
    only: Collection[str] | None = None,
    skip: Mapping[str, str] | None = None,
) -> ConformanceReport:
    """Check that a sink keeps the rules that runners rely on.

        def test_my_sink(tmp_path):
            numbers = itertools.count()
            check_sink(lambda: MySink(tmp_path / str(next(numbers))), ["a", "b", "c", "d", "e", "f"], read_back)

    `make_sink` returns a sink of a new, empty place each time it is called. `elements` are what is written, at least
    six that differ, and `read_back(sink)` returns the elements that a reader of the sink's place sees, in any order.

    - `bad_element` can't be written; the error must contain `bad_place`.
    - `runners`: the names of runners on which whole pipelines write to the sink, such as `["direct", "streaming"]`.
    - `patience`: for how many seconds a call may last.
    - `only` and `skip` choose checks by name; `skip` maps each name to the reason.

    Returns which checks passed, and why the others did not run: a sink that is at-least-once need not keep the rules of
    transactions. Raises RuleBroken, an AssertionError, which names the rule, what was seen and what to do; BuildError
    for a check or a runner that doesn't exist, or too few elements.
    """
    written = list(elements)
    if len(written) < 2 * TASKS:
        raise BuildError(f"check_sink: {2 * TASKS} elements are needed, so that each task writes two of them")
    calls = Calls(patience)
    bad = () if bad_element is _NONE else (bad_element,)
    case = SinkCase(make_sink, written, read_back, calls, bad, bad_place, check_runners(runners))
    return run_checks(case.sink().name, SINK_CHECKS, case, calls, only, skip or {})

"""`check_source`: whether a source keeps the rules that runners rely on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from tidegate.sdk.connectors.sources import Source
from tidegate.sdk.errors import BuildError
from tidegate.testing.conformance import enumerator_checks, source_checks, source_runs
from tidegate.testing.conformance.pipeline_runs import check_runners
from tidegate.testing.conformance.reading import SourceCase
from tidegate.testing.conformance.rules import Calls, ConformanceReport, run_checks

SOURCE_CHECKS: Final[tuple[Callable[[SourceCase], None], ...]] = (
    source_checks.reads_everything,
    source_checks.is_picklable,
    source_checks.splits_cover_everything_once,
    source_checks.resumes_at_every_position,
    source_checks.readers_are_independent,
    source_checks.splits_again,
    source_checks.closes,
    source_checks.never_blocks,
    source_checks.watermark_never_goes_back,
    source_checks.bad_input_is_a_read_error,
    enumerator_checks.discovers_each_split_once,
    enumerator_checks.enumerator_restarts_between_any_two_looks,
    enumerator_checks.enumerator_state_is_bounded,
    enumerator_checks.enumerator_says_when_to_look_again,
    enumerator_checks.bounded_enumerator_ends,
    source_runs.pipelines_read_everything,
    source_runs.pipelines_resume_after_failures,
    # These change the data, so they come last.
    source_checks.reads_what_is_added,
    enumerator_checks.discovers_what_is_added,
    source_checks.lost_position_is_refused,
)
"""The checks of sources, in the order in which they run."""


def check_source(
    make_source: Callable[[], Source[Any]],
    expected: Iterable[Any],
    *,
    bad_source: Callable[[], Source[Any]] | None = None,
    bad_place: str = "",
    add: Callable[[], Iterable[Any]] | None = None,
    lose: Callable[[], object] | None = None,
    endless: bool = False,
    runners: Sequence[str] = (),
    desired: Sequence[int] = (1, 2, 3, 8),
    limits: Sequence[int] = (1, 3, 1000),
    max_positions: int = 20,
    max_state_bytes: int = 64 << 10,
    patience: float = 60.0,
    only: Collection[str] | None = None,
    skip: Mapping[str, str] | None = None,
) -> ConformanceReport:
    """Check that a source keeps the rules that runners rely on.

        def test_my_source(tmp_path):
            path = write_input(tmp_path)
            check_source(lambda: MySource(path), expected=["a", "b", "c"])

    `make_source` returns a source of the same data each time it is called, and `expected` are its elements, in any
    order. A few dozen of them are enough, and several splits are better than one.

    - `bad_source` returns a source of input that can't be read; its error must contain `bad_place`.
    - `add` adds data to what an unbounded source reads, and returns the added elements. `lose` removes data that has
      been read, such as a file that was deleted. Both are called at most once, at the end.
    - `endless`: the source has more elements than the expected ones.
    - `runners`: the names of runners on which whole pipelines read the source, such as `["direct", "streaming"]`. A
      runner on which a check does not run, as those of unbounded sources don't on Spark, is left out.
    - `desired` and `limits`: with how many splits, and how many elements at a time, the source is read.
    - `max_positions`: at how many positions of each split a reader resumes; `max_state_bytes`: how large an
      enumerator's state may be.
    - `patience`: for how many seconds a call may last, and nothing may arrive.
    - `only` and `skip` choose checks by name; `skip` maps each name to the reason.

    Returns which checks passed, and why the others did not run. Raises RuleBroken, an AssertionError, which names the
    rule, what was seen and what to do; BuildError for a check or a runner that doesn't exist.
    """
    for what, numbers in (("desired", desired), ("limits", limits)):
        if not numbers or any(type(number) is not int or number < 1 for number in numbers):
            raise BuildError(f"check_source: {what} needs whole numbers of at least 1, not {numbers!r}")
    calls = Calls(patience)
    case = SourceCase(
        make_source,
        list(expected),
        tuple(desired),
        tuple(limits),
        max_positions,
        endless,
        max_state_bytes,
        calls,
        bad_source,
        bad_place,
        add,
        lose,
        check_runners(runners),
    )
    name = calls("make_source()", make_source).name
    return run_checks(name, SOURCE_CHECKS, case, calls, only, skip or {})

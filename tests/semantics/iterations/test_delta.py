"""SEMANTICS, Iterations D1 to D5: a loop with a solution, whose keys stay where they are, and a workset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tidegate as tg
from tests.semantics.iterations.test_ending import rounds
from tidegate.testing import PaneRecorder, TestPipeline, assert_that, equal_to, is_empty

PAIRS = tuple[int, int]
EDGES = [(1, 2), (2, 3), (3, 4), (5, 6), (7, 7)]
VERTICES = [(n, n) for n in range(1, 8)]
COMPONENTS = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 5), (6, 5), (7, 7)]


def edges_of(pipeline: Any) -> Any:
    both = [*EDGES, *((b, a) for a, b in EDGES)]
    return pipeline | "edges" >> tg.Create(both).with_output_types(PAIRS)


def passed_on(changed: Any, edges: Any) -> Any:
    """The labels that the neighbours of what has changed get."""
    neighbours = changed | tg.Join.inner(edges)
    return neighbours | "pass on" >> tg.MapTuple(lambda _, both: (both[1], both[0])).with_output_types(PAIRS)


def test_only_what_has_changed_is_worked_on(runner: str) -> None:
    with TestPipeline(runner) as p:
        edges, labels = edges_of(p), p | "labels" >> tg.Create(VERTICES).with_output_types(PAIRS)
        found = (labels, labels) | tg.IterateDelta(lambda _, changed: passed_on(changed, edges), merge=min)
        assert_that(found, equal_to(COMPONENTS))
    assert rounds(p, "IterateDelta") == (4, 1)
    fed_back = [each.counter("fed_back") for each in p.result.metrics().by_round("IterateDelta").values()]
    assert fed_back == [4, 2, 1, 0]


def test_a_lookup_sees_the_solution_as_the_round_found_it(runner: str) -> None:
    def step(solution: Any, work: Any) -> Any:
        found = work | solution.lookup()
        updates = found | "all" >> tg.MapTuple(lambda k, both: (k, both[0] * 10 + (both[1] or 0))).with_output_types(
            PAIRS
        )
        following = found | tg.Map(lambda pair, n=tg.DoFn.RoundParam: (pair[0] + 1, n)).with_output_types(PAIRS)
        return tg.Round((updates, following), out={"seen": found})

    with TestPipeline(runner) as p:
        solution = p | "solution" >> tg.Create([(1, 5), (2, 6)]).with_output_types(PAIRS)
        work = p | "work" >> tg.Create([(1, 7)]).with_output_types(PAIRS)
        found = (solution, work) | tg.IterateDelta(step, rounds=3)
        assert_that(found.result, equal_to([(1, 75), (2, 16), (3, 20)]), label="result")
        assert_that(found.out["seen"], equal_to([(1, (7, 5)), (2, (1, 6)), (3, (2, None))]), label="seen")
    assert rounds(p, "IterateDelta") == (3, 0)


def test_a_workset_may_be_several_collections_while_no_step_looks_up_the_solution(runner: str) -> None:
    def step(_: Any, work: Any) -> Any:
        updates = work | "add" >> tg.MapValues(lambda v: v + 1).with_output_types(PAIRS)
        low = updates | "low" >> tg.Filter(lambda pair: pair[0] < 3)
        high = updates | "high" >> tg.Filter(lambda pair: pair[0] > 3)
        return updates, (low, high) | "both" >> tg.Flatten()

    with TestPipeline(runner) as p:
        solution = p | "solution" >> tg.Create([(1, 5), (2, 6), (9, 9)]).with_output_types(PAIRS)
        work = p | "work" >> tg.Create([(1, 0), (3, 0), (4, 0)]).with_output_types(PAIRS)
        found = (solution, work) | tg.IterateDelta(step, rounds=3, merge=sum)
        assert_that(found, equal_to([(1, 11), (2, 6), (3, 1), (4, 6), (9, 9)]))


def test_without_merge_an_update_takes_the_place_of_the_value(runner: str) -> None:
    def step(solution: Any, work: Any) -> Any:
        return work | tg.MapTuple(lambda k, n: (k, n // 2)).with_output_types(PAIRS)

    with TestPipeline(runner) as p:
        start = p | tg.Create([(1, 9), (2, 1), (3, 0)]).with_output_types(PAIRS)
        assert_that((start, start) | tg.IterateDelta(step), equal_to([(1, 0), (2, 0), (3, 0)]))
    assert rounds(p, "IterateDelta") == (5, 1)
    fed_back = [each.counter("fed_back") for each in p.result.metrics().by_round("IterateDelta").values()]
    assert fed_back == [2, 1, 1, 1, 0]


@pytest.mark.parametrize("where", ["start", "updates"])
def test_two_values_for_one_key_without_merge_fail(runner: str, where: str) -> None:
    twice = [(1, 3), (1, 4)]
    p = TestPipeline(runner)
    solution = p | "solution" >> tg.Create(twice if where == "start" else twice[:1]).with_output_types(PAIRS)
    work = p | "work" >> tg.Create(twice).with_output_types(PAIRS)
    _ = (solution, work) | tg.IterateDelta(lambda _, work: (work, work), rounds=2) | tg.Map(repr)
    with pytest.raises(tg.RunError, match="the key 1 of the solution has two values, 3 and 4: say how they become one"):
        p.run()


def test_values_of_one_key_are_merged_at_the_start_and_in_a_round(runner: str) -> None:
    def step(solution: Any, work: Any) -> Any:
        return work, work | tg.Filter(lambda pair: False)

    with TestPipeline(runner) as p:
        solution = p | "solution" >> tg.Create([(1, 3), (1, 4), (2, 1)]).with_output_types(PAIRS)
        work = p | "work" >> tg.Create([(1, 10), (1, 20), (3, 30)]).with_output_types(PAIRS)
        assert_that((solution, work) | tg.IterateDelta(step, merge=sum), equal_to([(1, 37), (2, 1), (3, 30)]))
    assert rounds(p, "IterateDelta") == (1, 1)


def test_each_window_has_a_solution_of_its_own(runner: str) -> None:
    with TestPipeline(runner) as p:
        windows = tg.WindowInto(tg.FixedWindows(10))
        stamp = tg.Map(lambda edge: tg.TimestampedValue(edge, 3.0 if edge[0] < 3 else 13.0)).with_output_types(PAIRS)
        edges = edges_of(p) | "stamp" >> stamp | "edges'" >> windows
        stamped = [tg.TimestampedValue(pair, at) for at in (1, 12) for pair in VERTICES]
        labels = p | "labels" >> tg.Create(stamped).with_output_types(PAIRS) | "labels'" >> windows
        found = (labels, labels) | tg.IterateDelta(lambda _, changed: passed_on(changed, edges), merge=min)
        recorder = PaneRecorder()
        _ = found | recorder
    records = {(int(r.window.start.micros // 1_000_000), *r.value): r.timestamp.micros for r in recorder.records()}
    early, late = [(1, 1), (2, 1), (3, 1)], [(3, 3), (4, 3), (5, 5), (6, 5), (7, 7)]
    assert set(records) == {
        *((0, *pair) for pair in [*early, (4, 4), (5, 5), (6, 6), (7, 7)]),
        *((10, *pair) for pair in [(1, 1), (2, 2), *late]),
    }
    assert set(records.values()) == {9_999_999, 19_999_999}


@pytest.mark.parametrize(
    ("changed", "count"), [(None, 5), (lambda old, new: abs(old - new) > 1, 3)], ids=["unequal", "by more than one"]
)
def test_changed_says_what_has_changed(changed: Any, count: int) -> None:
    with TestPipeline("direct") as p:
        start = p | tg.Create([(1, 8), (2, 0)]).with_output_types(PAIRS)
        step = tg.MapTuple(lambda k, n: (k, n // 2)).with_output_types(PAIRS)
        found = (start, start) | tg.IterateDelta(lambda _, work: work | step, changed=changed)
        assert_that(found, equal_to([(1, 0 if changed is None else 1), (2, 0)]))
    assert rounds(p, "IterateDelta") == (count, 1)


@pytest.mark.parametrize("value", [float("nan"), np.array([1.0, float("nan")]), (1, [np.array([2])])], ids=repr)
def test_nan_and_arrays_equal_themselves(value: Any) -> None:
    import copy

    with TestPipeline("direct") as p:
        start = p | tg.Create([(1, value)]).with_output_types(tuple[int, Any])
        step = tg.MapTuple(lambda k, v: (k, copy.deepcopy(v) if not isinstance(v, float) else float("nan")))
        _ = (start, start) | tg.IterateDelta(lambda _, work: work | step.with_output_types(tuple[int, Any]))
    assert rounds(p, "IterateDelta") == (1, 1)


def test_no_rounds_give_the_merged_start_and_an_empty_loop_its_one_round(runner: str) -> None:
    with TestPipeline(runner) as p:
        start = p | tg.Create([(1, 2), (1, 3)]).with_output_types(PAIRS)
        none = (start, start) | "none" >> tg.IterateDelta(lambda _, work: work, rounds=0, merge=max)
        assert_that(none, equal_to([(1, 3)]), label="merged")
        nothing = p | "nothing" >> tg.Create([]).with_output_types(PAIRS)
        assert_that(
            (nothing, nothing) | "empty" >> tg.IterateDelta(lambda _, work: work), is_empty(), label="nothing left"
        )
    assert rounds(p, "empty") == (1, 1)


def test_a_loop_within_a_loop_looks_up_the_outer_solution(runner: str) -> None:
    def step(solution: Any, work: Any) -> Any:
        def inner(pairs: Any) -> Any:
            found = pairs | solution.lookup()
            return found | tg.MapTuple(lambda k, both: (k, both[0] + (both[1] or 0))).with_output_types(PAIRS)

        return work | tg.Iterate(inner, rounds=2)

    with TestPipeline(runner) as p:
        start = p | tg.Create([(1, 1), (2, 5)]).with_output_types(PAIRS)
        found = (start, start) | tg.IterateDelta(step, rounds=2)
        assert_that(found, equal_to([(1, 9), (2, 45)]))


@pytest.mark.parametrize("element", [(1, 2, 3), "ab", 7, (1.5j, 1)], ids=repr)
def test_a_lookup_of_what_is_no_pair_or_has_no_key_names_the_step(element: Any) -> None:
    p = TestPipeline("direct")
    start = p | tg.Create([(1, 1)]).with_output_types(PAIRS)
    emitted = tg.Map(lambda _: element).with_output_types(Any)
    found = (start, start) | tg.IterateDelta(
        lambda solution, work: tg.Round(work, out={"found": work | emitted | "find" >> solution.lookup()})
    )
    _ = found.out["found"] | tg.Map(repr)
    with pytest.raises(tg.TidegateError, match="in step 'IterateDelta/find'"):
        p.run()


@pytest.mark.parametrize("bad", ["ab", 5, (1, 2, 3)])
@pytest.mark.parametrize("where", ["start", "updates"])
def test_a_solution_takes_pairs(bad: Any, where: str) -> None:
    p = tg.Pipeline("direct")
    start: Any = p | "start" >> tg.Create([1]) | tg.Map(lambda n: bad if where == "start" else ("a", n))
    work = p | "work" >> tg.Create([("a", 1)])
    found: Any = (start, work) | tg.IterateDelta(lambda s, w: w | tg.Map(lambda pair: bad), rounds=1)
    message = r"the solution takes pairs \(key, value\), but got .*\n  in step 'IterateDelta/"
    with pytest.raises(tg.RunError, match=message):
        found.collect()
    with pytest.raises(tg.TypeCheckError, match=r"the solution takes pairs .*, but its input holds"):
        (p | tg.Create([bad]), work) | tg.IterateDelta(lambda s, w: w, rounds=1)


def test_metrics_of_changed_belong_to_the_loop() -> None:
    def changed(old: int, new: int) -> bool:
        tg.Metrics.counter("mine", "asked").inc()
        return old != new

    with TestPipeline("direct") as p:
        start = p | tg.Create([(1, 1), (2, 2)]).with_output_types(PAIRS)
        assert_that((start, start) | tg.IterateDelta(lambda _, work: work, changed=changed), equal_to([(1, 1), (2, 2)]))
    assert p.result.metrics().counter("asked", step="IterateDelta") == 2


def test_steps_of_the_body_may_have_any_name() -> None:
    with TestPipeline("direct") as p:
        start = p | tg.Create([(1, 1)]).with_output_types(PAIRS)
        body = lambda _, work: work | "start" >> tg.Filter(bool) | "updates" >> tg.Filter(bool)  # noqa: E731
        found = (start, start) | tg.IterateDelta(body)
        assert_that(found, equal_to([(1, 1)]))


def test_an_unbounded_collection_in_the_body_is_refused() -> None:
    p = TestPipeline("direct")
    start = p | tg.Create([(1, 1)]).with_output_types(PAIRS)
    ticks = p | tg.PeriodicImpulse(1) | tg.Map(lambda at: (1, 1)).with_output_types(PAIRS)
    with pytest.raises(tg.BuildError, match="its body reads a collection that is unbounded"):
        _ = (start, start) | tg.IterateDelta(lambda _, work: tg.Round(work, out={"ticks": ticks}))


def test_other_timestamps_than_ends_of_windows_are_refused() -> None:
    p = TestPipeline("direct")
    early = tg.WindowInto(tg.FixedWindows(10), timestamp_combiner=tg.TimestampCombiner.EARLIEST)
    start = p | tg.Create([(1, 1)]).with_output_types(PAIRS) | early
    with pytest.raises(tg.BuildError, match="timestamps of their windows' ends: apply WindowInto"):
        _ = (start, start) | tg.IterateDelta(lambda _, work: work)


def test_a_solution_is_only_looked_up() -> None:
    p = TestPipeline("direct")
    start = p | tg.Create([(1, 1)]).with_output_types(PAIRS)
    with pytest.raises(tg.BuildError, match="a Solution can only be looked up"):
        _ = (start, start) | tg.IterateDelta(lambda solution, work: solution.collect())

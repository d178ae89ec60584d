"""SEMANTICS, Iterations I5: when a loop is over, and what is known of it afterwards."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.runners.engine.iteration.decision import ROUNDS_KEPT
from tidegate.testing import TestPipeline, assert_that, equal_to, is_empty
from tidegate.transforms.iteration import _Moved

HALVED = [("a", 64.0), ("b", 8.0)]


def halved(x: Any) -> Any:
    return x | tg.MapValues(lambda n: n / 2)


def rounds(pipeline: TestPipeline, step: str = "Iterate") -> tuple[int, int]:
    """How many rounds a loop had, and whether it converged."""
    metrics = pipeline.result.metrics()
    return metrics.counter("rounds", step=step), metrics.counter("converged", step=step)


def test_a_loop_is_over_when_its_values_have_settled(runner: str) -> None:
    with TestPipeline(runner) as p:
        found = p | tg.Create(HALVED) | tg.Iterate(halved, rounds=100, until=tg.Settled(by=1))
        assert_that(found, equal_to([("a", 1.0), ("b", 0.125)]))
    assert rounds(p) == (6, 1)


@pytest.mark.parametrize("late", [None, tg.AfterCount(1)])
def test_values_in_windows_settle_when_the_windows_are_complete(runner: str, late: Any) -> None:
    windows = tg.WindowInto(tg.FixedWindows(10), trigger=tg.AfterWatermark(late=late), accumulation=tg.DISCARDING)
    with TestPipeline(runner) as p:
        found = p | tg.Create(HALVED) | windows | tg.Iterate(halved, rounds=100, until=tg.Settled(by=1))
        assert_that(found, equal_to([("a", 1.0), ("b", 0.125)]))
    assert rounds(p) == (6, 1)


@pytest.mark.parametrize(
    "windows",
    [
        tg.WindowInto(tg.GlobalWindows(), trigger=tg.Repeatedly(tg.AfterCount(1)), accumulation=tg.DISCARDING),
        tg.WindowInto(
            tg.FixedWindows(10), trigger=tg.AfterWatermark(early=tg.AfterCount(1)), accumulation=tg.ACCUMULATING
        ),
        tg.WindowInto(tg.CountWindows(1)),
    ],
)
def test_parts_of_windows_are_not_compared(windows: Any) -> None:
    with pytest.raises(tg.BuildError, match=r"tg\.Settled compares .* can fire more than once"):
        _ = tg.Pipeline() | tg.Create(HALVED) | windows | tg.Iterate(halved, rounds=9, until=tg.Settled())


def test_a_loop_is_over_when_nothing_is_left(runner: str) -> None:
    def step(x: Any) -> Any:
        return halved(x) | tg.Filter(lambda pair: pair[1] > 1)

    with TestPipeline(runner) as p:
        assert_that(p | tg.Create(HALVED) | tg.Iterate(step, until=tg.Empty()), is_empty())
    assert rounds(p) == (6, 1)


def test_a_loop_is_over_after_a_round_in_which_again_is_empty(runner: str) -> None:
    def step(x: Any) -> Any:
        new = halved(x)
        return tg.Round(new, again=new | tg.Filter(lambda pair: pair[1] > 20))

    with TestPipeline(runner) as p:
        found = p | tg.Create(HALVED) | tg.Iterate(step, rounds=50)
        assert_that(found.result, equal_to([("a", 16.0), ("b", 2.0)]))
        once = p | "small" >> tg.Create([("a", 1.0)]) | "once" >> tg.Iterate(step)
        assert_that(once.result, equal_to([("a", 0.5)]))
    assert rounds(p) == (2, 1)
    assert rounds(p, "once") == (1, 1)


class Halve(tg.DoFn):
    """Halves values, and emits those that are still large as `more`, too."""

    def process(self, element: tuple[str, float]) -> Iterator[Any]:
        key, value = element
        yield key, value / 2
        if value / 2 > 20:
            yield tg.TaggedOutput("more", element)


def test_a_condition_may_be_an_additional_output(runner: str) -> None:
    def step(x: Any) -> Any:
        parts = x | tg.ParDo(Halve()).with_outputs("more", main="halved")
        return tg.Round(parts.halved, again=parts.more, out={"large": parts.more})

    with TestPipeline(runner) as p:
        found = p | tg.Create(HALVED) | tg.Iterate(step, rounds=50)
        assert_that(found.result, equal_to([("a", 16.0), ("b", 2.0)]))
        assert_that(found.out["large"], equal_to([("a", 64.0)]))


def test_a_loop_is_over_when_until_has_an_element_of_any_window(runner: str) -> None:
    def small(before: Any, after: Any) -> Any:
        return after | tg.Filter(lambda pair: pair[1] < 1)

    stamped = [tg.TimestampedValue(pair, at) for at, pair in zip((5, 25), HALVED, strict=True)]
    with TestPipeline(runner) as p:
        start = p | tg.Create(stamped) | tg.WindowInto(tg.FixedWindows(10))
        assert_that(start | tg.Iterate(halved, until=small), equal_to([("a", 4.0), ("b", 0.5)]))
    assert rounds(p) == (4, 1)


def test_one_of_several_variables_can_decide(runner: str) -> None:
    def step(both: dict[str, Any]) -> dict[str, Any]:
        return {"left": both["left"] | tg.Map(lambda n: n - 1) | tg.Filter(lambda n: n > 0), "done": both["done"]}

    with TestPipeline(runner) as p:
        start = {"left": p | "left" >> tg.Create([3]), "done": p | "done" >> tg.Create([7])}
        found = start | tg.Iterate(step, until=tg.Empty(of="left"))
        assert_that(found["done"], equal_to([7]))
    assert rounds(p) == (3, 1)


def test_until_may_be_a_collection_from_outside_the_loop(runner: str) -> None:
    """It is the same in each round: so the loop has one round if it has an element, else all of them."""
    with TestPipeline(runner) as p:
        start = p | tg.Create(HALVED)
        none = p | "none" >> tg.Create([]).with_output_types(int)
        once = start | "once" >> tg.Iterate(halved, until=lambda before, after: start, rounds=3)
        assert_that(once, equal_to([("a", 32.0), ("b", 4.0)]))
        thrice = start | "thrice" >> tg.Iterate(halved, until=lambda before, after: none, rounds=3)
        assert_that(thrice, equal_to([("a", 8.0), ("b", 1.0)]))
        unchanged = start | "unchanged" >> tg.Iterate(
            halved, until=lambda before, after: none | tg.Map(lambda n: n), rounds=3
        )
        assert_that(unchanged, equal_to([("a", 8.0), ("b", 1.0)]))
    assert rounds(p, "once") == (1, 1)
    assert rounds(p, "thrice") == rounds(p, "unchanged") == (3, 0)


def test_until_of_an_inner_loop_may_be_from_outside_of_it(runner: str) -> None:
    def outer(x: Any) -> Any:
        return x | "inner" >> tg.Iterate(halved, until=lambda before, after: x, rounds=3)

    with TestPipeline(runner) as p:
        assert_that(p | tg.Create(HALVED) | tg.Iterate(outer, rounds=2), equal_to([("a", 16.0), ("b", 2.0)]))
    assert rounds(p, "Iterate/inner") == (2, 2)


@pytest.mark.parametrize(("of", "needed"), [(1, 5), ("1", 5), (2, 2), ("2", 2)])
def test_variables_of_a_tuple_are_counted_from_one(of: Any, needed: int) -> None:
    pipeline = TestPipeline("direct")
    both = pipeline | "a" >> tg.Create([("k", 8)]), pipeline | "b" >> tg.Create([("k", 100)])
    with pipeline:
        _ = both | tg.Iterate(
            lambda x: (x[0] | tg.MapValues(lambda n: n // 2), x[1] | "b" >> tg.MapValues(lambda n: n // 200)),
            until=tg.Settled(of=of),
        )
    assert rounds(pipeline)[0] == needed


@pytest.mark.parametrize(
    ("start", "by", "count"),
    [
        ([("a", float("nan"))], 0, 1),  # NaN equals NaN
        ([("a", (8.0, 0.0))], 1, 3),
        ([("a", float("inf"))], 0, 1),
        ([("a", {"x": float("nan"), "y": 2})], 0, 1),
    ],
)
def test_what_has_settled(start: Any, by: float, count: int) -> None:
    def half(value: Any) -> Any:
        match value:
            case tuple():
                return tuple(map(half, value))
            case dict():
                return {name: number * 1.0 for name, number in value.items()}
            case _:
                return value / 2

    with TestPipeline("direct") as p:
        _ = (
            p
            | tg.Create(start)
            | tg.Iterate(lambda x: x | tg.MapValues(half), rounds=20, until=tg.Settled(by=by))
            | tg.Map(repr)
        )
    assert rounds(p) == (count, 1)


@pytest.mark.parametrize("values", [[n / 7 for n in range(30)], [(n, "ab"[n % 2]) for n in range(30)]])
def test_the_values_of_a_key_settle_in_any_order(runner: str, values: list[Any]) -> None:
    with TestPipeline(runner) as p:
        start = p | tg.Create([("a", value) for value in values])
        _ = start | tg.Iterate(lambda x: x | tg.Reshuffle(), rounds=3, until=tg.Settled(by=0.1)) | tg.Map(repr)
    assert rounds(p) == (1, 1)


numbers = st.one_of(st.integers(0, 5), st.floats(0, 5), st.just(float("nan")))


@given(st.lists(st.tuples(numbers, numbers), max_size=5), st.sampled_from([0, 0.5, 2]), st.booleans(), st.data())
def test_values_have_settled_if_they_can_be_paired(pairs: Any, by: float, wrapped: bool, data: Any) -> None:
    def near(old: float, new: float) -> bool:
        return old == new or (old != old and new != new) or abs(old - new) <= by

    before, after = [old for old, _ in pairs], data.draw(st.permutations([new for _, new in pairs]))
    paired = any(all(map(near, before, order)) for order in permutations(after))
    moved = _Moved(by)(("a", ([(n,) for n in before], [(n,) for n in after]) if wrapped else (before, after)))
    assert moved is not paired


def test_a_key_that_appears_or_goes_has_moved() -> None:
    with TestPipeline("direct") as p:
        start = p | tg.Create([(0, 1.0)])
        _ = start | tg.Iterate(lambda x: x | tg.MapTuple(lambda k, v: (k + 1, v)), rounds=4, until=tg.Settled())
    assert rounds(p) == (4, 0)


def test_a_loop_without_enough_rounds_warns_and_is_not_converged(
    runner: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with TestPipeline(runner) as p:
        found = p | tg.Create(HALVED) | tg.Iterate(halved, rounds=2, until=tg.Settled())
        assert_that(found, equal_to([("a", 16.0), ("b", 2.0)]))
    assert rounds(p) == (2, 0)
    assert (
        "the loop 'Iterate' was over after 2 rounds, and its condition was not met: its result is what the last round "
        "gave. Give it more rounds or another condition; strict=True fails such a run"
    ) in caplog.text + capfd.readouterr().err


def test_the_warning_of_a_loop_that_ran_several_times_says_how_many_rounds_a_run_had(
    runner: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def outer(x: Any) -> Any:
        return x | "in" >> tg.Iterate(halved, rounds=2, until=tg.Settled(by=1))

    with TestPipeline(runner) as p:
        assert_that(p | tg.Create([("a", 64.0)]) | "out" >> tg.Iterate(outer, rounds=3), equal_to([("a", 1.0)]))
    assert (
        "the loop 'out/in' was over after 2 rounds in 2 of its 3 runs, and its condition was not met: its result is "
        "what the last round gave"
    ) in caplog.text + capfd.readouterr().err


def test_a_strict_loop_without_enough_rounds_fails(runner: str) -> None:
    p = TestPipeline(runner)
    _ = p | tg.Create(HALVED) | tg.Iterate(halved, rounds=2, until=tg.Settled(), strict=True) | tg.Map(repr)
    with pytest.raises(tg.RunError, match="the loop was over after 2 rounds, and its condition was not met: give it"):
        p.run()


def test_metrics_are_counted_by_round_and_in_all(runner: str) -> None:
    def counted(n: int) -> list[int]:
        tg.Metrics.counter("mine", "calls").inc()
        return [n, n]

    with TestPipeline(runner) as p:
        found = p | tg.Create([1]) | tg.Iterate(lambda x: x | "double" >> tg.FlatMap(counted), rounds=3)
        assert_that(found, equal_to([1] * 8))
    metrics = p.result.metrics()
    assert metrics.counter("calls", step="double") == 7
    assert {n: of_round.counter("calls") for n, of_round in metrics.by_round("double").items()} == {1: 1, 2: 2, 3: 4}
    of_loop = metrics.by_round("Iterate")
    assert {n: of_round.counter("fed_back") for n, of_round in of_loop.items()} == {1: 2, 2: 4, 3: 8}
    assert all(of_round.query("seconds")[0].value >= 0 for of_round in of_loop.values())
    assert metrics.counter("fed_back") == 14


def test_metrics_of_a_loop_within_a_loop_are_counted_by_its_own_rounds(runner: str) -> None:
    """Here in the outer loop both have the label of a loop without a name, of which one ends in that of the other."""

    def counted(n: int) -> int:
        tg.Metrics.counter("mine", "calls").inc()
        return n + 1

    def outer(x: Any) -> Any:
        return x | tg.Iterate(lambda inner: inner | "plus" >> tg.Map(counted), rounds=3)

    with TestPipeline(runner) as p:
        assert_that(p | tg.Create([0]) | tg.Iterate(outer, rounds=5), equal_to([15]))
    metrics = p.result.metrics()
    inner, around = metrics.by_round("Iterate/Iterate"), metrics.by_round("Iterate")
    assert {n: of_round.counter("fed_back") for n, of_round in inner.items()} == dict.fromkeys(range(1, 4), 5)
    assert {n: of_round.counter("fed_back") for n, of_round in around.items()} == dict.fromkeys(range(1, 6), 1)
    assert not any(of_round.query(name) for of_round in inner.values() for name in ("rounds", "converged"))
    assert {n: of_round.counter("calls") for n, of_round in metrics.by_round("plus").items()} == {1: 5, 2: 5, 3: 5}
    assert metrics.counter("fed_back", step="Iterate/Iterate") == metrics.counter("calls") == 15


def test_a_variable_that_is_returned_as_it_is_taken_is_not_fed_back(runner: str) -> None:
    with TestPipeline(runner) as p:
        a, b = p | "a" >> tg.Create([1, 2]), p | "b" >> tg.Create([3])
        changed, kept = (a, b) | tg.Iterate(lambda both: (both[0] | tg.Map(lambda n: n + 1), both[1]), rounds=3)
        assert_that(changed, equal_to([4, 5]))
        assert_that(kept, equal_to([3]), label="kept")
    assert p.result.metrics().counter("fed_back") == 6


def test_a_loop_that_multiplies_until_the_disk_is_full_is_named() -> None:
    """A limit on the size of files stands for a disk that is full."""
    p = TestPipeline("direct", {"memory_budget": "100k"})
    double = tg.FlatMap(lambda text: [text + "0", text + "1"])
    _ = p | tg.Create(["x" * 1000]) | "grow" >> tg.Iterate(lambda texts: texts | double, rounds=1_000) | tg.Map(len)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(
            tg.RunError, match=r"elements of a collection, after \d+ rounds: if it multiplies"
        ) as caught:
            p.run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "in step 'grow'" in str(caught.value)


def test_rounds_leave_neither_files_nor_objects_behind(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    rounds = pytestconfig.getoption("--rounds")
    begun, seen, temp = rounds // 2, tmp_path / "seen", tmp_path / "temp"
    temp.mkdir()

    def note(n: int) -> int:
        if n in (begun, rounds - 1):
            gc.collect()
            with seen.open("a") as file:
                file.write(f"{sum(path.is_file() for path in temp.rglob('*'))} {len(gc.get_objects())}\n")
        return n + 1

    def step(numbers: Any) -> Any:
        pairs = numbers | tg.Map(lambda n: (0, n)).with_output_types(tuple[int, int]) | tg.CombinePerKey(sum)
        return pairs | tg.Values() | tg.Map(note).with_output_types(int)

    with TestPipeline("direct", {"temp_dir": str(temp), "memory_budget": 1}) as p:
        assert_that(p | tg.Create([0]) | tg.Iterate(step, rounds=rounds), equal_to([rounds]))
    (files, objects), (files_later, objects_later) = (map(int, line.split()) for line in seen.read_text().splitlines())
    with_metrics = max(0, min(rounds, ROUNDS_KEPT) - begun)
    assert files_later <= files
    assert objects_later - objects < 200 + 100 * with_metrics

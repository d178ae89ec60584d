"""Groupings and combines over their memory budget give the same results as in memory, and leave no files behind."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.random_pipelines import Description, expected, outcome, pipelines, run
from tests.support.random_pipelines.functions import COMBINERS, SumOfSquares
from tests.support.run_and_collect import collect
from tidegate.runners.direct import DirectRunner
from tidegate.runners.engine.memory.spill import PARTITIONS, Spill, SpilledValues, dumps_within_run

TINY = "1KB"


def grouped(
    pairs: list[Any], combiner: Any = None, budget: str | None = TINY, block_size: int = 50, windows: Any = None
) -> tuple[list[Any], int]:
    """The groups or combined values of `pairs`, and the number of spills."""

    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        source = p | tg.Create(pairs)
        if windows is not None:
            source = source | tg.WindowInto(windows)
        return {"out": source | (tg.GroupByKey() if combiner is None else tg.CombinePerKey(combiner))}

    options = {"memory_budget": budget} if budget else {}
    found = collect(build, DirectRunner(block_size=block_size), options)
    return [(element.value, element.window) for element in found.seen["out"]], found.result.metrics().counter("spills")


def by_key(results: list[Any]) -> dict[Any, Any]:
    return {(value[0], window): value[1] for value, window in results}


PAIRS = [(f"key {n * 7919 % 613}", n) for n in range(20_000)]


def test_a_spilled_grouping_has_all_values_of_each_key_in_order() -> None:
    found, spills = grouped(PAIRS)
    assert spills > 10
    in_memory, no_spills = grouped(PAIRS, budget=None)
    assert no_spills == 0
    assert len(found) == len(in_memory) == 613
    assert by_key(found) == by_key(in_memory)


@pytest.mark.parametrize("name", COMBINERS)
def test_a_spilled_combine_gives_the_same_results_as_in_memory(name: str) -> None:
    pairs = [(n * 31 % 2_003, n % 17) for n in range(12_000)]
    found, spills = grouped(pairs, COMBINERS[name].make())
    assert spills > 1
    assert by_key(found) == by_key(grouped(pairs, COMBINERS[name].make(), budget=None)[0])


def test_a_plain_callable_gets_a_list_of_spilled_values() -> None:
    found, spills = grouped([("a", n) for n in range(20_000)], lambda values: (type(values), values[7], len(values)))
    assert spills > 1
    assert [value for value, _ in found] == [("a", (list, 7, 20_000))]


def test_spilled_windows_stay_separate() -> None:
    stamped = [tg.TimestampedValue((n % 5, n), n % 100) for n in range(10_000)]
    found, spills = grouped(stamped, windows=tg.FixedWindows(10))
    assert spills > 1
    assert by_key(found) == by_key(grouped(stamped, windows=tg.FixedWindows(10), budget=None)[0])
    assert len(found) == 50


def test_equal_keys_in_different_spilled_runs_are_grouped() -> None:
    pairs: list[Any] = [((1, True, 1.0)[n % 3], 1) for n in range(6_000)] + [(n, 1) for n in range(2, 3_000)]
    found, spills = grouped(pairs, sum)
    assert spills > 1
    assert by_key(found)[1, found[0][1]] == 6_000
    assert len(found) == 2_999


@pytest.mark.parametrize("budget", ["1", "1KB"])
@pytest.mark.parametrize("combiner", [None, sum])
def test_spilled_windows_of_each_key_are_emitted_in_order(budget: str, combiner: Any) -> None:
    backwards = [tg.TimestampedValue((n % 5, n), 99 - n % 100) for n in range(4_000)]
    backwards += [tg.TimestampedValue((3, n), 45) for n in range(4_000)]
    found, spills = grouped(backwards, combiner, budget, windows=tg.FixedWindows(10))
    assert spills > 1
    for key in range(5):
        assert [window.start for (k, _), window in found if k == key] == [tg.Timestamp(t) for t in range(0, 100, 10)]


def test_spilling_is_deterministic() -> None:
    assert grouped(PAIRS)[0] == grouped(PAIRS)[0]


def test_values_of_a_key_too_large_for_memory_are_streamed_and_can_be_iterated_twice() -> None:
    def twice(pair: Any) -> Any:
        key, values = pair
        return key, type(values).__name__, sum(values), sum(values), len(values), values[0], values[-1], values[5:8]

    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        pairs = [("big", n) for n in range(30_000)] + [("small", 1)]
        return {"out": p | tg.Create(pairs) | tg.GroupByKey() | tg.Map(twice)}

    found = collect(build, None, {"memory_budget": "20KB"})
    total = sum(range(30_000))
    assert sorted(found.values("out")) == [
        ("big", "SpilledValues", total, total, 30_000, 0, 29_999, [5, 6, 7]),
        ("small", "list", 1, 1, 1, 1, 1, []),
    ]


def test_spilled_values_are_a_sequence_equal_to_the_list_and_pickle_as_a_list(tmp_path: Path) -> None:
    values = list(range(1_000))
    spill = Spill(lambda: tmp_path, True, lambda pair: pair, 500, value_size=28)
    for start in range(0, 1_000, 100):
        spill.write(None, {"a": values[start : start + 100]})
    ((_, table),) = spill.drain()
    spilled = table["a"]
    assert isinstance(spilled, SpilledValues)
    assert spilled == values
    assert not spilled == values[:-1]  # noqa: SIM201
    assert [spilled[i] for i in (0, 99, 100, 999, -1, -1_000)] == [values[i] for i in (0, 99, 100, 999, -1, -1_000)]
    assert spilled[10:250:7] == values[10:250:7]
    assert spilled[::-1] == values[::-1]
    assert spilled[5:5] == []
    assert list(reversed(spilled)) == values[::-1]
    with pytest.raises(IndexError):
        spilled[1_000]
    copy = pickle.loads(pickle.dumps(spilled))
    assert (type(copy), copy) == (list, values)
    (nested,) = pickle.loads(dumps_within_run({"nested": [spilled]}))["nested"]
    assert (type(nested), nested) == (SpilledValues, values)
    copy = pickle.loads(pickle.dumps(nested))
    assert (type(copy), copy) == (list, values)


def test_spilled_files_are_readable_by_the_user_alone_under_any_umask(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        spill = Spill(lambda: tmp_path, True, lambda pair: pair, 500, value_size=28)
        spill.write(None, {"a": list(range(100))})
    finally:
        os.umask(umask)
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


def test_partitions_that_are_still_too_large_are_partitioned_again(tmp_path: Path) -> None:
    spill = Spill(lambda: tmp_path, True, lambda pair: pair, 1_000, value_size=28)
    for start in range(0, 10_000, 1_000):
        spill.write(None, {key: [key] for key in range(start, start + 1_000)})
    tables = [table for _, table in spill.drain()]
    assert len(tables) > PARTITIONS * 4
    assert max(map(len, tables)) < 250
    found = [key for table in tables for key in table]
    assert sorted(found) == list(range(10_000))
    assert list(tmp_path.iterdir()) == []


def test_values_of_many_huge_keys_stay_separate(tmp_path: Path) -> None:
    spill = Spill(lambda: tmp_path, True, lambda pair: pair, 3_000, value_size=28)
    for start in range(0, 600, 20):
        spill.write(None, {key: list(range(start, start + 20)) for key in range(150)})
    found = {key: values for _, table in spill.drain() for key, values in table.items()}
    assert len(found) == 150
    assert any(isinstance(values, SpilledValues) for values in found.values())
    assert all(list(values) == list(range(600)) for values in found.values())


@settings(max_examples=30)
@given(
    st.lists(
        st.dictionaries(st.integers(0, 60), st.lists(st.integers(), min_size=1, max_size=40), max_size=60), max_size=12
    ),
    st.integers(1, 5_000),
)
def test_spilled_tables_are_read_back(tables: list[dict[int, list[int]]], budget: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        spill = Spill(lambda: Path(directory), True, lambda pair: pair, budget, value_size=28)
        expected_values: dict[int, list[int]] = {}
        for table in tables:
            for key, values in table.items():
                expected_values.setdefault(key, []).extend(values)
            spill.write(None, {key: list(values) for key, values in table.items()})
        found = [(key, list(values)) for _, table in spill.drain() for key, values in table.items()]
    assert len(found) == len(expected_values)
    assert dict(found) == expected_values


@settings(max_examples=30)
@given(pipelines(elements=60), st.sampled_from([1, 3, 7]))
def test_a_pipeline_that_always_spills_gives_the_results_of_the_model(
    description: Description, block_size: int
) -> None:
    found = run(description, DirectRunner(block_size=block_size), {"memory_budget": 1})
    assert outcome(description, found) == expected(description)


@pytest.mark.parametrize("fails", [False, True])
def test_no_file_is_left_in_the_temporary_directory(tmp_path: Path, fails: bool) -> None:
    pipeline = tg.Pipeline(DirectRunner(block_size=50), {"memory_budget": TINY, "temp_dir": str(tmp_path)})
    groups = pipeline | tg.Create(PAIRS) | tg.GroupByKey()
    file_counts = groups | tg.Map(lambda pair: len(list(spilled_files(str(tmp_path)))))
    _ = file_counts | tg.Map(lambda n: 1 // (0 if fails else n))
    if fails:
        with pytest.raises(tg.UserCodeError, match="ZeroDivisionError"):
            pipeline.run()
    else:
        assert pipeline.run().metrics().counter("spills") > 1
    assert list(tmp_path.iterdir()) == []


def spilled_files(path: str) -> Iterable[Path]:
    found = list(Path(path).iterdir())
    assert found, "no runs have been spilled to temp_dir"
    return found


def test_nothing_is_written_within_the_memory_budget(tmp_path: Path) -> None:
    def count_files(pair: Any) -> int:
        return len(list(Path(str(tmp_path)).iterdir()))

    found = collect(
        lambda p: {"out": p | tg.Create(PAIRS) | tg.GroupByKey() | tg.Map(count_files)},
        None,
        {"temp_dir": str(tmp_path)},
    )
    assert set(found.values("out")) == {0}


class Unpicklable(SumOfSquares):
    def add_input(self, accumulator: Any, element: int) -> Any:
        return lambda: element

    def extract_output(self, accumulator: Any) -> int:
        return 1


def failing(combiner: Any, pairs: list[Any]) -> str:
    pipeline = tg.Pipeline(DirectRunner(block_size=50), {"memory_budget": TINY})
    _ = pipeline | tg.Create(pairs) | "combine" >> tg.CombinePerKey(combiner) | tg.Map(str)
    with pytest.raises(tg.TidegateError) as raised:
        pipeline.run()
    return str(raised.value)


def test_an_accumulator_that_cannot_be_pickled_is_an_error_that_names_the_step() -> None:
    message = failing(Unpicklable(), [(n, 1) for n in range(1_000)])
    assert "can't be sent between steps" in message
    assert "in step 'combine', applied at " in message


class Unmergeable(SumOfSquares):
    def merge_accumulators(self, accumulators: Any) -> Any:
        raise OSError("disk full")


def test_a_failing_merge_of_spilled_runs_is_an_error_that_names_step_and_method() -> None:
    message = failing(Unmergeable(), [(n % 500, 1) for n in range(20_000)])
    assert message.startswith("OSError: disk full\n  in step 'combine', applied at ")
    assert message.endswith("\n  while calling Unmergeable.merge_accumulators")


def test_a_spilled_key_without_an_encoding_is_refused_even_without_checks() -> None:
    pipeline = tg.Pipeline(DirectRunner(block_size=50), {"memory_budget": TINY, "checks": "off"})
    _ = pipeline | tg.Create([(float("nan"), n) for n in range(1_000)]) | "group" >> tg.GroupByKey() | tg.Map(str)
    with pytest.raises(tg.KeyEncodingError, match="in step 'group'"):
        pipeline.run()


def test_spilled_values_pass_unchanged_through_further_groupings_and_checks() -> None:
    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        groups = p | tg.Create([("big", n) for n in range(20_000)]) | tg.GroupByKey()
        again = groups | tg.Map(lambda pair: (1, pair)) | tg.Reshuffle() | "again" >> tg.GroupByKey()
        return {"out": again | tg.Map(lambda pair: [(key, type(vs).__name__, sum(vs)) for key, vs in pair[1]])}

    found = collect(build, DirectRunner(block_size=50), {"memory_budget": TINY, "checks": "all"})
    assert found.values("out") == [[("big", "SpilledValues", sum(range(20_000)))]]

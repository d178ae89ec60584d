"""A loop counts each round once, in its result, its metrics and its output, also if a worker dies in a round."""

from __future__ import annotations

import operator
import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.example_scripts import lines_of

ROUNDS = 200
"""More than pass before a checkpoint is complete."""


@pytest.mark.parametrize("mode", ["batch", "streaming"])
def test_a_worker_that_dies_in_a_round_changes_nothing(mode: str, tmp_path: Path) -> None:
    died = tmp_path / "died"

    def plus_one(n: int, number: int = tg.DoFn.RoundParam) -> int:
        if number == 3 and n >= 100 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        tg.Metrics.counter("mine", "calls").inc()
        return n + 1

    def step(before: Any) -> Any:
        new = before | tg.Reshuffle() | "plus one" >> tg.Map(plus_one)
        seen = new | tg.Map(lambda n, number=tg.DoFn.RoundParam: f"{number}: {n}")
        return tg.Round(new, out={"seen": seen})

    p = tg.Pipeline("streaming", {"mode": mode, "workers": 2, "checkpoint_interval": "20ms"})
    loop = p | tg.Create([1, 100]) | tg.Iterate(step, rounds=5)
    _ = loop.result | tg.Map(str) | "result" >> tg.io.WriteToText(str(tmp_path / "result"))
    _ = loop.out["seen"] | "seen" >> tg.io.WriteToText(str(tmp_path / "seen"))
    result = p.run()
    result.wait_until_finish()
    assert died.exists()
    assert sorted(lines_of(tmp_path / "result")) == ["105", "6"]
    seen = [f"{number}: {n + number}" for number in range(1, 6) for n in (1, 100)]
    assert sorted(lines_of(tmp_path / "seen")) == sorted(seen)
    assert result.metrics().counter("rounds") == 5
    assert result.metrics().counter("calls") == 10


def test_a_strict_loop_whose_condition_is_not_met_is_not_restarted(tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    def plus_one(n: int) -> int:
        with calls.open("a") as file:
            file.write(f"{n}\n")
        return n + 1

    p = tg.Pipeline("streaming", {"mode": "streaming", "workers": 1, "restart_delay": "10ms"})
    numbers = p | tg.Create([1])
    _ = numbers | tg.Iterate(lambda n: n | tg.Map(plus_one), rounds=2, until=tg.Empty(), strict=True)
    with pytest.raises(tg.RunError, match="the loop was over after 2 rounds, and its condition was not met"):
        p.run().wait_until_finish()
    assert calls.read_text() == "1\n2\n"


def test_what_tidegate_refuses_twice_is_not_tried_again(tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    def with_key(n: int) -> tuple[float, int]:
        with calls.open("a") as file:
            file.write(f"{n}\n")
        return float("nan"), n

    p = tg.Pipeline("streaming", {"mode": "streaming", "workers": 1, "restart_delay": "10ms"})
    _ = p | tg.Create([1]) | tg.Map(with_key) | tg.GroupByKey() | tg.Map(repr)
    with pytest.raises(tg.RunError, match="NaN does not equal itself"):
        p.run().wait_until_finish()
    assert calls.read_text() == "1\n1\n"


def test_a_loop_may_return_a_variable_as_it_takes_it(tmp_path: Path) -> None:
    p = tg.Pipeline("streaming", {"workers": 2})
    a, b = p | "a" >> tg.Create([1, 2]), p | "b" >> tg.Create([3])
    other = (a, b) | "other" >> tg.Iterate(lambda both: (both[1], both[1]), rounds=2)
    same = a | "same" >> tg.Iterate(lambda before: before, rounds=2)
    for name, result in (("first", other[0]), ("second", other[1]), ("same", same)):
        _ = result | f"text {name}" >> tg.Map(str) | f"write {name}" >> tg.io.WriteToText(str(tmp_path / name))
    p.run().wait_until_finish()
    assert sorted(lines_of(tmp_path / "first")) == sorted(lines_of(tmp_path / "second")) == ["3"]
    assert sorted(lines_of(tmp_path / "same")) == ["1", "2"]


def test_metrics_of_teardown_are_counted_when_a_loop_ends() -> None:
    class PlusOne(tg.DoFn):
        def process(self, n: int) -> list[int]:
            return [n + 1]

        def teardown(self) -> None:
            tg.Metrics.counter("mine", "torn down").inc()

    p = tg.Pipeline("streaming", {"workers": 2})
    _ = p | tg.Create([1]) | tg.Iterate(lambda before: before | tg.ParDo(PlusOne()).with_output_types(int), rounds=3)
    result = p.run()
    result.wait_until_finish()
    assert result.metrics().counter("torn down") == 2


def test_a_combiner_may_change_what_is_the_same_in_all_rounds(tmp_path: Path) -> None:
    p = tg.Pipeline("streaming", {"workers": 1})
    constant, start = p | "constant" >> tg.Create([(0, [1]), (0, [2])]), p | "start" >> tg.Create([(0, [9])])

    def step(before: Any) -> Any:
        joined = (constant, before) | tg.Flatten() | tg.CombinePerKey(tg.associative(operator.iadd))
        return joined | tg.MapValues(lambda values: [len(values)])

    loop = start | tg.Iterate(step, rounds=4)
    _ = loop | tg.Map(str) | tg.io.WriteToText(str(tmp_path / "result"))
    p.run().wait_until_finish()
    assert lines_of(tmp_path / "result") == ["(0, [3])"]


def test_only_the_round_in_which_a_worker_dies_runs_again(tmp_path: Path) -> None:
    died, calls = tmp_path / "died", tmp_path / "calls"

    def plus_one(pair: tuple[int, int], number: int = tg.DoFn.RoundParam) -> tuple[int, int]:
        with calls.open("a") as file:
            file.write(f"{number}\n")
        if number == 4 and pair[0] == 3 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return pair[0], pair[1] + 1

    def step(before: Any) -> Any:
        new = before | tg.GroupByKey() | tg.MapValues(sum) | "plus one" >> tg.Map(plus_one)
        return tg.Round(new, out={"seen": new | "sums" >> tg.MapTuple(lambda key, n: f"{key}: {n}")})

    p = tg.Pipeline("streaming", {"workers": 2})
    start = p | tg.Create([(key, 0) for key in range(8)]).with_output_types(tuple[int, int])
    loop = start | tg.Iterate(step, rounds=6)
    _ = loop.result | tg.Map(str) | "result" >> tg.io.WriteToText(str(tmp_path / "result"))
    _ = loop.out["seen"] | "seen" >> tg.io.WriteToText(str(tmp_path / "seen"))
    result = p.run()
    result.wait_until_finish()
    assert sorted(lines_of(tmp_path / "result")) == [f"({key}, 6)" for key in range(8)]
    assert sorted(lines_of(tmp_path / "seen")) == sorted(f"{key}: {n}" for key in range(8) for n in range(1, 7))
    numbers = calls.read_text().splitlines()
    assert [numbers.count(str(number)) for number in (1, 2, 3, 5, 6)] == [8] * 5
    assert 8 < numbers.count("4") <= 16
    metrics = result.metrics()
    assert metrics.counter("rounds") == 6
    assert metrics.counter("fed_back") == 48
    assert [metrics.by_round("Iterate/plus one")[number].counter("elements_out") for number in range(1, 7)] == [8] * 6


@pytest.mark.parametrize("where", ["update", "later region"])
def test_a_loop_with_a_solution_begins_again_with_the_round_in_which_a_worker_dies(tmp_path: Path, where: str) -> None:
    died, calls = tmp_path / "died", tmp_path / "calls"

    def die(number: int, key: int) -> None:
        if number == 3 and key == 6 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def less(key: int, both: tuple[int, int | None], number: int = tg.DoFn.RoundParam) -> tuple[int, int]:
        with calls.open("a") as file:
            file.write(f"{number}\n")
        if where == "update":
            die(number, key)
        assert both[1] is not None
        return key, both[1] - 1

    def seen(key: int, both: Any, number: int = tg.DoFn.RoundParam) -> str:
        if where != "update":
            die(number, key)
        return f"{number}: {key} was {both[1]} of {both[0]}"

    def step(known: tg.Solution[int, int], work: Any) -> Any:
        new = work | "known" >> known.lookup() | "less" >> tg.MapTuple(less).with_output_types(tuple[int, int])
        count = tg.AsSingleton(new | tg.combiners.Count.Globally())  # a side input, so what reads it is a later region
        counted = keys | tg.Map(lambda key, count: (key, count), count).with_output_types(tuple[int, int])
        return tg.Round(new, out={"seen": counted | "again" >> known.lookup() | "seen" >> tg.MapTuple(seen)})

    p = tg.Pipeline("streaming", {"workers": 2})
    keys = p | "keys" >> tg.Create(range(8))
    start = p | tg.Create([(key, 10) for key in range(8)]).with_output_types(tuple[int, int])
    loop = (start, start) | tg.IterateDelta(step, rounds=5)
    _ = loop.result | tg.Map(str) | "result" >> tg.io.WriteToText(str(tmp_path / "result"))
    _ = loop.out["seen"] | "write seen" >> tg.io.WriteToText(str(tmp_path / "seen"))
    result = p.run()
    result.wait_until_finish()
    assert died.exists()
    assert sorted(lines_of(tmp_path / "result")) == [f"({key}, 5)" for key in range(8)]
    rounds = range(1, 6)
    assert sorted(lines_of(tmp_path / "seen")) == sorted(
        f"{number}: {key} was {11 - number} of 8" for key in range(8) for number in rounds
    )
    numbers = calls.read_text().splitlines()
    assert [numbers.count(str(number)) for number in (1, 2, 4, 5)] == [8] * 4
    if where != "update":
        assert numbers.count("3") == 8  # the region that updates the solution was done
    assert result.metrics().counter("fed_back") == 40


def test_a_solution_stays_as_its_loop_has_left_it_while_another_loop_runs() -> None:
    p = tg.Pipeline("streaming", {"workers": 2})
    start = p | tg.Create([(n, 9) for n in range(6)]).with_output_types(tuple[int, int])
    less = tg.MapValues(lambda n: n - 1).with_output_types(tuple[int, int])
    delta = (start, start) | "delta" >> tg.IterateDelta(lambda known, work: work | less, rounds=4)
    bulk = start | "bulk" >> tg.Iterate(lambda before: before | less | tg.CombinePerKey(sum), rounds=4)
    both = (delta, bulk) | tg.CoGroupByKey()
    assert sorted(both.collect(limit=None)) == [(n, ([5], [5])) for n in range(6)]


@pytest.mark.parametrize("form", ["bulk", "delta"])
def test_rounds_leave_neither_files_nor_memory_behind(form: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    rounds = pytestconfig.getoption("--rounds")
    seen, temp = tmp_path / "seen", tmp_path / "temp"
    temp.mkdir()

    def note(n: int) -> int:
        files = sum(path.is_file() for path in temp.rglob("*"))
        with seen.open("a") as file:
            file.write(f"{files} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}\n")
        return n + 1

    def step(numbers: Any) -> Any:
        total = numbers | tg.combiners.Count.Globally()
        return (
            numbers
            | tg.Filter(lambda n, all: all == 1, tg.AsSingleton(total))
            | tg.Map(lambda n: (0, n)).with_output_types(tuple[int, int])
            | tg.CombinePerKey(sum)
            | tg.MapTuple(lambda _, n: note(n)).with_output_types(int)
        )

    def update(known: tg.Solution[int, int], work: Any) -> Any:
        found = work | known.lookup()
        return found | tg.MapTuple(lambda key, both: (key, note(both[1] or 0))).with_output_types(tuple[int, int])

    p = tg.Pipeline("streaming", {"workers": 2, "temp_dir": str(temp)})
    if form == "bulk":
        left = p | tg.Create([0]) | tg.Iterate(step, rounds=rounds)
    else:
        start = p | tg.Create([(0, 0)]).with_output_types(tuple[int, int])
        left = (start, start) | tg.IterateDelta(update, rounds=rounds) | tg.Values()
    _ = left | tg.Map(str) | tg.io.WriteToText(str(tmp_path / "result"))
    p.run().wait_until_finish()
    assert lines_of(tmp_path / "result") == [str(rounds)]
    counts = [tuple(map(int, line.split())) for line in seen.read_text().splitlines()]
    begun = rounds // 2
    assert max(files for files, _ in counts[begun:]) <= max(files for files, _ in counts[2:begun])
    assert counts[-1][1] - counts[begun][1] < 4_000  # KB, of which metrics of the first rounds are a part


def test_a_loop_that_multiplies_until_the_disk_is_full_is_named() -> None:
    def twice(n: int) -> list[int]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        return [n, n + 1]

    p = tg.Pipeline("streaming", {"workers": 2, "restart_strategy": "none"})
    _ = p | tg.Create(range(4)) | "grow" >> tg.Iterate(lambda x: x | "twice" >> tg.FlatMap(twice), until=tg.Empty())
    with pytest.raises(tg.RunError, match=r"can't be stored for the steps that read it: .*\n *in step 'grow/twice'"):
        p.run().wait_until_finish()


def test_a_worker_that_dies_after_a_checkpoint_between_rounds_goes_on_from_it(tmp_path: Path) -> None:
    died, calls, saved = tmp_path / "died", tmp_path / "calls", tmp_path / "checkpoints"

    def newest() -> int:
        return max((int(path.parent.name[4:]) for path in saved.glob("chk-*/manifest.json")), default=0)

    def plus_one(n: int, number: int = tg.DoFn.RoundParam) -> int:
        with calls.open("a") as file:
            file.write(f"{number}\n")
        before = tmp_path / "before"
        if not before.exists():
            before.write_text(str(newest()))
        until = time.monotonic() + 0.1
        while not died.exists() and number < ROUNDS and time.monotonic() < until:
            # Of two new checkpoints, the second was begun when the first was complete, and so after round 1 had begun.
            if newest() > int(before.read_text()) + 1:
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.005)
        return n + 1

    options = {"mode": "streaming", "workers": 1, "checkpoint_interval": "20ms", "checkpoint_dir": str(saved)}
    p = tg.Pipeline("streaming", options)
    loop = p | "start" >> tg.Create([1]) | "loop" >> tg.Iterate(lambda c: c | tg.Map(plus_one), rounds=ROUNDS)
    _ = loop | tg.Map(str) | "result" >> tg.io.WriteToText(str(tmp_path / "result"))
    p.run().wait_until_finish()
    assert died.exists()
    assert lines_of(tmp_path / "result") == [str(ROUNDS + 1)]
    assert calls.read_text().splitlines().count("1") == 1

"""Bounded pipelines emit the same elements on Spark as on the direct runner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.support.run_and_collect import collect

Build = Callable[[tg.Pipeline], tg.PCollection[Any]]


def stamped(x: int) -> Any:
    return tg.TimestampedValue((x % 7, x), x)


def sorted_group(pair: tuple[Any, Iterable[Any]]) -> tuple[Any, list[Any]]:
    return pair[0], sorted(pair[1])


def listed(pair: tuple[Any, Iterable[Any]]) -> tuple[Any, list[Any]]:
    return pair[0], list(pair[1])


class FirstOfKey(tg.DoFn):
    """Emits the first element of each key and, at the end, the number of elements."""

    SEEN = tg.ValueStateSpec("seen")

    def process(self, pair: tuple[int, int], seen: Any = tg.DoFn.StateParam(SEEN)) -> Iterator[Any]:
        if seen.read() is None:
            yield pair
        seen.write(pair[1])


class SplitsOdd(tg.DoFn):
    def process(self, x: int) -> Iterator[Any]:
        yield tg.TaggedOutput("odd", x) if x % 2 else x


def numbers(p: tg.Pipeline) -> Any:
    return p | tg.Create(range(500))


def timed(p: tg.Pipeline) -> Any:
    return numbers(p) | tg.Map(stamped)


def diamond(p: tg.Pipeline) -> Any:
    source = timed(p)
    sums, counts = source | "sums" >> tg.CombinePerKey(sum), source | "counts" >> tg.CombinePerKey(len)
    again = sums | "again" >> tg.MapTuple(lambda k, v: (k, v + 1))
    return {"sums": again, "counts": counts} | tg.CoGroupByKey() | "plain" >> tg.Map(repr)


def sides(p: tg.Pipeline) -> Any:
    source = numbers(p)
    total = source | "total" >> tg.CombineGlobally(sum)
    names = p | "names" >> tg.Create([(n, str(n) * 3) for n in range(7)])
    return source | "with sides" >> tg.Map(
        lambda x, total, names: (names[x % 7], x * total), tg.AsSingleton(total), tg.AsDict(names)
    )


def many_flattened(p: tg.Pipeline) -> Any:
    parts = [p | f"part {n}" >> tg.Create(range(n)) for n in range(4)]
    grouped = parts[3] | tg.Map(lambda x: (x, x)) | tg.GroupByKey() | "keys" >> tg.Map(lambda pair: pair[0])
    return (*parts, grouped) | tg.Flatten() | tg.CombinePerElement(len)


PIPELINES: dict[str, Build] = {
    "elements": lambda p: numbers(p) | tg.Map(lambda x: x + 1) | tg.Filter(lambda x: x % 3 == 0),
    "nothing read": lambda p: p | tg.Create([1]),
    "nothing": lambda p: p | tg.Create([]) | tg.Map(lambda x: (x, x)) | tg.GroupByKey(),
    "a sum of nothing": lambda p: p | tg.Create([]) | tg.CombineGlobally(sum),
    "one element": lambda p: p | tg.Create(["only"]) | tg.Map(lambda x: (x, 1)) | tg.GroupByKey() | tg.Map(listed),
    "a sum in parts": lambda p: timed(p) | tg.CombinePerKey(sum),
    "a sum of all": lambda p: numbers(p) | tg.CombineGlobally(sum),
    "a plain callable": lambda p: timed(p) | tg.CombinePerKey(lambda values: sorted(values)[0]),
    "groups": lambda p: timed(p) | tg.GroupByKey() | "sort" >> tg.Map(sorted_group),
    "keys of all types": lambda p: (
        p
        | tg.Create([1, 1.0, True, "a", b"a", None, (1, "x"), (1.0, "x"), 2**70, -0.0, 0, 0.5, ("a", ("b",))] * 5)
        | tg.CombinePerElement(len)
        | tg.Map(lambda pair: (hash(pair[0]) if isinstance(pair[0], (int, float)) else repr(pair[0])[-9:], pair[1]))
    ),
    "fixed windows": lambda p: timed(p) | tg.WindowInto(tg.FixedWindows(10)) | tg.CombinePerKey(sum),
    "sliding windows": lambda p: (
        timed(p) | tg.WindowInto(tg.SlidingWindows(20, 7)) | tg.GroupByKey() | "sort" >> tg.Map(sorted_group)
    ),
    "sessions": lambda p: (
        timed(p) | tg.Filter(lambda pair: pair[1] % 60 < 30) | tg.WindowInto(tg.Sessions(9)) | tg.CombinePerKey(len)
    ),
    "counts": lambda p: (
        timed(p)
        | tg.WindowInto(tg.GlobalWindows(), trigger=tg.Repeatedly(tg.AfterCount(10)), accumulation=tg.ACCUMULATING)
        | tg.GroupByKey()
        | "list" >> tg.Map(listed)
    ),
    "an evictor": lambda p: (
        timed(p)
        | tg.WindowInto(
            tg.GlobalWindows(),
            trigger=tg.Repeatedly(tg.AfterCount(10)),
            evictor=tg.KeepLast(3),
            accumulation=tg.ACCUMULATING,
        )
        | tg.GroupByKey()
        | "list" >> tg.Map(listed)
    ),
    "a reshuffle": lambda p: numbers(p) | tg.Reshuffle() | tg.Map(lambda x: x + 1),
    "two groupings of one key": lambda p: (
        timed(p) | "a" >> tg.GroupByKey() | tg.MapValues(len) | "b" >> tg.GroupByKey() | "list" >> tg.Map(listed)
    ),
    "grouped anew": lambda p: (
        timed(p)
        | "a" >> tg.CombinePerKey(sum)
        | tg.Map(lambda pair: (pair[1] % 3, pair[0]))
        | "b" >> tg.GroupByKey()
        | "sort" >> tg.Map(sorted_group)
    ),
    "tagged outputs": lambda p: (
        (numbers(p) | tg.ParDo(SplitsOdd()).with_outputs("odd", main="even")).odd | tg.Map(lambda x: -x)
    ),
    "dead letters": lambda p: (
        (numbers(p) | "divide" >> tg.Map(lambda x: 100 // (x % 5)).with_exception_handling())[1]
        | "which" >> tg.Map(lambda letter: letter[0])
    ),
    "a diamond": diamond,
    "parts of many levels flattened": many_flattened,
    "large created values": lambda p: (
        p | tg.Create([(i % 1000, "x" * 20) for i in range(60_000)]) | tg.CombinePerKey(len)
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_spark_gives_the_same_results_as_the_direct_runner(name: str, flags: list[str]) -> None:
    found, expected = (collect(lambda p: {"it": PIPELINES[name](p)}, options=options) for options in (flags, None))
    assert Counter(map(repr, found.seen["it"])) == Counter(map(repr, expected.seen["it"]))
    assert found.metrics() == expected.metrics()


def test_a_pipeline_whose_outputs_are_not_read_runs(flags: list[str]) -> None:
    with pytest.warns(tg.TidegateWarning, match="does nothing"), tg.Pipeline(options=flags) as p:
        _ = p | tg.Create([1])
    assert list(p.result.metrics().all()) == []


def test_state_is_kept_per_key_and_window_in_timestamp_order(flags: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        shuffled = timed(p) | tg.Reshuffle()
        return {
            "whole": shuffled | "whole" >> tg.ParDo(FirstOfKey()),
            "windowed": shuffled | tg.WindowInto(tg.FixedWindows(50)) | "windowed" >> tg.ParDo(FirstOfKey()),
        }

    found = collect(build, options=flags)
    assert sorted(found.values("whole")) == [(key, key) for key in range(7)]
    firsts = [(x % 7, x) for start in range(0, 500, 50) for x in range(start, start + 7)]
    assert sorted(found.values("windowed")) == sorted(firsts)


def test_side_inputs_computed_on_another_level_are_complete(flags: list[str]) -> None:
    found = collect(lambda p: {"it": sides(p)}, options=flags)
    total = sum(range(500))
    assert sorted(found.values("it")) == sorted((str(x % 7) * 3, x * total) for x in range(500))


def test_a_huge_value_is_shuffled_in_pieces(flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        pairs = p | tg.Create([70, 1]) | tg.Map(lambda mb: (mb, "x" * (mb << 20)))
        return {"it": pairs | tg.GroupByKey() | tg.Map(lambda pair: (pair[0], sum(map(len, pair[1]))))}

    assert sorted(collect(build, options=flags).values("it")) == [(1, 1 << 20), (70, 70 << 20)]


def test_there_may_be_many_more_partitions_than_elements(flags: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        return {"it": p | tg.Create(range(5)) | tg.Map(lambda x: (x % 2, x)) | tg.CombinePerKey(sum)}

    many_partitions = [*flags, "--spark_partitions", "20"]
    assert sorted(collect(build, options=many_partitions).values("it")) == [(0, 6), (1, 4)]


def test_data_beyond_the_memory_budget_is_spilled(flags: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        pairs = p | tg.Create(range(50_000)) | tg.Map(lambda x: (x % 5_000, x))
        return {"it": pairs | tg.GroupByKey() | tg.Map(lambda pair: sum(pair[1])) | tg.CombineGlobally(sum)}

    found = collect(build, options=[*flags, "--memory_budget", "100KB"])
    assert found.values("it") == [sum(range(50_000))]
    assert found.result.metrics().counter("spills") > 0

"""Side inputs on Spark: computed by separate actions, read by window, sent in the closure or in files."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tests.support.run_and_collect import collect
from tidegate.runners.planner import Traits, plan
from tidegate.runners.spark.plan.artifacts import CLOSURE_BYTES
from tidegate.runners.spark.plan.levels import assign_levels
from tidegate.runners.spark.side_inputs.broadcast import INDEXED_BYTES
from tidegate.runners.spark.side_inputs.mmap_map import IndexedMap, MapFile, write_map
from tidegate.sdk.errors import KeyEncodingError, RunError

# -- the contents that elements see


def same(build: Any, flags: list[str]) -> Any:
    """Run on Spark, and compare elements and metrics with those of the direct runner."""
    found, expected = (collect(build, options=options) for options in (flags, None))
    for name in expected.seen:
        assert Counter(map(repr, found.seen[name])) == Counter(map(repr, expected.seen[name]))
    assert found.metrics() == expected.metrics()
    return found


def stamped(x: int) -> Any:
    return tg.TimestampedValue(x, x)


def test_a_side_input_computed_from_another_one_and_the_main_input_is_complete(flags: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        numbers = p | tg.Create(range(300)) | tg.Reshuffle()
        total = tg.AsSingleton(numbers | "total" >> tg.CombineGlobally(sum))
        shares = numbers | "share" >> tg.Map(lambda x, total: x / total, total)
        largest = tg.AsSingleton(shares | "most" >> tg.CombineGlobally(max))
        return {"it": shares | "of most" >> tg.Map(lambda x, largest, total: (x / largest, total), largest, total)}

    same(build, flags)


def test_each_window_sees_its_own_side_window(flags: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        events = p | tg.Create(range(100)) | tg.Map(stamped)
        sums = events | tg.WindowInto(tg.FixedWindows(20)) | tg.CombineGlobally(sum).without_defaults()
        small = events | "some" >> tg.Filter(lambda x: x < 40) | "few" >> tg.WindowInto(tg.FixedWindows(20))
        main = events | "main" >> tg.WindowInto(tg.SlidingWindows(10, 5))
        inside = events | "inside" >> tg.WindowInto(tg.FixedWindows(10))
        return {
            "sums": inside | "sum" >> tg.Map(lambda x, total: (x, total), tg.AsSingleton(sums)),
            "small": main | "seen" >> tg.Map(lambda x, side: (x, sorted(side)), tg.AsIter(small)),
            "default": main | "one" >> tg.Map(lambda x, n: (x, n), tg.AsSingleton(sums, default=-1)),
        }

    same(build, flags)


def test_panes_of_a_side_input_replace_or_add_to_each_other(flags: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        def panes(name: str, accumulation: Any) -> Any:
            elements = p | f"of {name}" >> tg.Create(range(10))
            return elements | name >> tg.WindowInto(
                tg.GlobalWindows(), trigger=tg.Repeatedly(tg.AfterCount(4)), accumulation=accumulation
            )

        replaced, added = (tg.AsList(panes(*each)) for each in (("a", tg.ACCUMULATING), ("b", tg.DISCARDING)))
        return {"it": p | tg.Create(["x"]) | tg.Map(lambda x, a, b: (x, a, b), replaced, added)}

    assert same(build, flags).values("it") == [("x", list(range(10)), list(range(10)))]


def test_combiners_may_have_side_inputs(flags: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        pairs = p | tg.Create([(n % 3, n) for n in range(30)])
        largest = tg.AsSingleton(pairs | tg.Values() | tg.CombineGlobally(max))
        return {"it": pairs | tg.CombinePerKey(lambda values, maximum: sum(values) / maximum, largest)}

    same(build, flags)


def test_the_inputs_of_a_flatten_form_one_side_input(flags: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        parts = [p | f"part {n}" >> tg.Create([n]) for n in range(3)]
        computed = parts[0] | tg.Map(lambda x: x + 10)
        flattened = (*parts, computed) | tg.Flatten()
        return {"it": p | tg.Create(range(3)) | "see" >> tg.Map(lambda x, all: (x, sorted(all)), tg.AsList(flattened))}

    same(build, flags)


def test_a_singleton_of_two_values_fails_only_when_an_element_reads_it(flags: list[str]) -> None:
    def build(options: list[str], *, looked_at: bool) -> None:
        p = tg.Pipeline(options=options)
        two = tg.AsSingleton(p | tg.Create([1, 2]) | "double" >> tg.Map(lambda x: 2 * x))
        main = p | "main" >> tg.Create([1] if looked_at else [])
        _ = main | "look" >> tg.Map(lambda x, two: x + two, two)
        p.run()

    build(flags, looked_at=False)
    with pytest.raises(RunError, match=r"AsSingleton of 2 values") as caught:
        build(flags, looked_at=True)
    assert "in step 'look'" in str(caught.value)


# -- transport


def sizes(elements: int) -> Any:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        pairs = p | tg.Create(range(elements)) | tg.Map(lambda n: (f"key {n}", f"{n:0100}"))
        main = p | "asked" >> tg.Create(range(0, elements, elements // 50))
        return {
            "dict": main | "look" >> tg.Map(lambda n, d: (d[f"key {n}"], len(d), "none" in d), tg.AsDict(pairs)),
            "multi": main | "find" >> tg.Map(lambda n, d: d[f"key {n}"], tg.AsMultiMap(pairs)),
            "list": main | "count" >> tg.Map(lambda n, values: (n, len(values)), tg.AsList(pairs)),
            "kind": main | "kind" >> tg.Map(lambda n, d: isinstance(d, dict), tg.AsDict(pairs)),
        }

    return build


@pytest.mark.parametrize(
    ("elements", "in_memory"),
    [(1_000, True), (CLOSURE_BYTES // 60, True), (INDEXED_BYTES // 100, False)],
    ids=["closure", "file", "indexed"],
)
def test_a_side_input_has_the_same_contents_in_the_closure_and_in_files(
    elements: int, in_memory: bool, flags: list[str]
) -> None:
    found, expected = (collect(sizes(elements), options=options) for options in (flags, None))
    for name in ("dict", "multi", "list"):
        assert sorted(found.values(name)) == sorted(expected.values(name))
    assert set(found.values("kind")) == {in_memory}


def logged(x: Any, path: str, name: str, *_: Any) -> Any:
    with Path(path).open("a") as file:
        file.write(f"{name}\n")
    return x


def test_no_step_runs_twice_because_of_a_side_input(flags: list[str], tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    p = tg.Pipeline(options=flags)
    source = p | tg.Create(range(12)) | "source" >> tg.Map(logged, log, "source")
    grouped = source | tg.Map(lambda x: (x % 3, x)) | tg.GroupByKey() | "group" >> tg.Map(logged, log, "group")
    total = tg.AsSingleton(source | tg.CombineGlobally(sum) | "total" >> tg.Map(logged, log, "total"))
    first = grouped | "first" >> tg.Map(logged, log, "first", total)
    second = tg.AsList(first | "second" >> tg.Map(logged, log, "second"))
    _ = source | "last" >> tg.Map(logged, log, "last", second, total)
    _ = first | "too" >> tg.Map(logged, log, "too")
    p.run()
    counted = Counter((tmp_path / "log").read_text().splitlines())
    assert counted == {"source": 12, "group": 3, "total": 1, "first": 3, "second": 3, "last": 12, "too": 3}


def levels_of(build: Any) -> Any:
    p = tg.Pipeline()
    build(p)
    return assign_levels(plan(p.sealed(), Traits(parallel=True, blocking=True)))


def test_there_is_an_action_for_each_depth_of_computed_side_inputs() -> None:
    def build(depth: int, p: tg.Pipeline) -> None:
        main = p | tg.Create([1])
        for n in range(depth):
            side = tg.AsList(main | f"side {n}" >> tg.Map(abs))
            main = main | f"main {n}" >> tg.Map(lambda x, side: x, side)
        created = tg.AsDict(p | "known" >> tg.Create({1: 2}))
        _ = main | "end" >> tg.Map(lambda x, created: print(x), created)

    assert [len(levels_of(lambda p, depth=depth: build(depth, p)).starts) for depth in range(4)] == [1, 2, 3, 4]


def test_a_side_input_causes_no_shuffle_of_the_main_input() -> None:
    def build(p: tg.Pipeline) -> None:
        side = tg.AsList(p | "other" >> tg.Create([1]) | "made" >> tg.Map(abs))
        _ = p | "main" >> tg.Create([1]) | "see" >> tg.Map(lambda x, side: print(x), side)

    levels = levels_of(build)
    assert (levels.count, levels.starts) == (2, (0, 1))


# -- indexed maps

KEYS = st.one_of(
    st.integers(), st.text(max_size=5), st.none(), st.booleans(), st.floats(allow_nan=False), st.binary(max_size=3),
    st.tuples(st.integers(), st.text(max_size=2)),
)  # fmt: skip


def indexed(pairs: Mapping[Any, Any], path: Path) -> IndexedMap:
    with path.open("wb") as file:
        file.write(b"others")
        region = write_map(file, pairs)
    return IndexedMap(MapFile(str(path)), region)


@given(st.dictionaries(KEYS, st.integers() | st.lists(st.text())), st.lists(KEYS))
def test_an_indexed_map_equals_the_dict_that_was_written(
    tmp_path_factory: pytest.TempPathFactory, pairs: dict[Any, Any], other_keys: list[Any]
) -> None:
    mapping = indexed(pairs, tmp_path_factory.mktemp("map") / "map")
    for key in (*pairs, *other_keys):
        assert (key in mapping, mapping.get(key)) == (key in pairs, pairs.get(key))
    assert list(mapping.items()) == list(pairs.items())
    assert (list(mapping), list(mapping.values()), len(mapping)) == (list(pairs), list(pairs.values()), len(pairs))
    assert mapping == pairs
    assert pickle.loads(pickle.dumps(mapping)) == pairs
    assert (repr(mapping), mapping | {1: 2}, {1: 2} | mapping) == (repr(pairs), pairs | {1: 2}, {1: 2} | pairs)


def test_a_lookup_of_a_key_without_an_encoding_gives_the_same_result_as_in_a_dict(tmp_path: Path) -> None:
    class Seven:
        def __hash__(self) -> int:
            return hash(7)

        def __eq__(self, other: object) -> bool:
            return other == 7

    mapping = indexed({7: "seven"}, tmp_path / "map")
    assert mapping[Seven()] == "seven"
    assert float("nan") not in mapping
    with pytest.raises(TypeError):
        mapping[[]]  # type: ignore[index]
    with pytest.raises(KeyError):
        mapping["none"]


def test_a_map_with_a_key_without_an_encoding_is_not_indexed(tmp_path: Path) -> None:
    with pytest.raises(KeyEncodingError):
        indexed({object(): 1}, tmp_path / "map")


def test_an_indexed_map_unpickles_only_values_that_are_looked_up(tmp_path: Path) -> None:
    mapping = indexed({n: CountsUnpickling(n) for n in range(100)}, tmp_path / "map")
    CountsUnpickling.loaded.clear()
    assert (mapping[3].n, mapping[97].n, mapping[3].n) == (3, 97, 3)
    assert CountsUnpickling.loaded == [3, 97]
    assert json.dumps(dict.fromkeys(mapping)) == json.dumps(dict.fromkeys(range(100)))
    assert CountsUnpickling.loaded == [3, 97]


class CountsUnpickling:
    loaded: ClassVar[list[int]] = []

    def __init__(self, n: int) -> None:
        self.n = n

    def __setstate__(self, state: dict[str, int]) -> None:
        self.n = state["n"]
        CountsUnpickling.loaded.append(self.n)

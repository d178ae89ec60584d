"""CoGroupByKey compared with dictionaries of lists."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.run_and_collect import collect
from tidegate.runners.direct.runner import DirectRunner

PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers()), max_size=15)


def joined(inputs: list[list[tuple[Any, Any]]]) -> dict[Any, tuple[list[Any], ...]]:
    keys = dict.fromkeys(k for pairs in inputs for k, _ in pairs)
    return {key: tuple([v for k, v in pairs if k == key] for pairs in inputs) for key in keys}


@settings(max_examples=25)
@given(st.lists(PAIRS, min_size=1, max_size=4), st.integers(1, 20))
def test_every_key_has_a_list_for_each_collection(inputs: list[list[tuple[int, int]]], block: int) -> None:
    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        pcolls = [p | f"in{i}" >> tg.Create(pairs) for i, pairs in enumerate(inputs)]
        return {
            "tuple": tuple(pcolls) | tg.CoGroupByKey(),
            "list": pcolls | tg.CoGroupByKey(),
            "dict": {f"in{i}": pcoll for i, pcoll in enumerate(pcolls)} | tg.CoGroupByKey(),
        }

    found = collect(build, DirectRunner(block_size=block))
    expected = joined(inputs)
    assert dict(found.values("tuple")) == dict(found.values("list")) == expected
    assert len(found.values("tuple")) == len(expected)
    assert dict(found.values("dict")) == {
        key: {f"in{i}": values for i, values in enumerate(lists)} for key, lists in expected.items()
    }


def test_each_window_is_joined_separately() -> None:
    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        windows = tg.WindowInto(tg.FixedWindows(10))
        a = (
            p
            | "a" >> tg.Create([tg.TimestampedValue(("k", 1), 1), tg.TimestampedValue(("k", 2), 11)])
            | "wa" >> windows
        )
        b = p | "b" >> tg.Create([tg.TimestampedValue(("k", "x"), 12)]) | "wb" >> windows
        return {"out": (a, b) | tg.CoGroupByKey()}

    seen = collect(build).seen["out"]
    assert [(s.window.start.seconds(), s.value) for s in seen] == [(0, ("k", ([1], []))), (10, ("k", ([2], ["x"])))]


def test_input_larger_than_memory_is_joined_on_disk() -> None:
    n = 20_000

    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        a = p | "a" >> tg.Create([(i % 5000, i) for i in range(n)])
        b = p | "b" >> tg.Create([(i % 5000, -i) for i in range(n)])
        return {"out": (a, b) | tg.CoGroupByKey()}

    found = collect(build, options=["--memory_budget=1MB"])
    assert found.result.metrics().counter("spills") > 0
    expected = {k: (list(range(k, n, 5000)), [-i for i in range(k, n, 5000)]) for k in range(5000)}
    assert {k: (sorted(a), sorted(b, reverse=True)) for k, (a, b) in found.values("out")} == expected
    assert len(found.values("out")) == 5000


def test_element_types_are_derived_from_the_inputs() -> None:
    p = tg.Pipeline()
    a, b = p | "a" >> tg.Create([("k", 1)]), p | "b" >> tg.Create([("k", "x")])
    assert ((a, b) | tg.CoGroupByKey()).element_type == tuple[str, tuple[list[int], list[str]]]
    assert ({"a": a, "b": b} | tg.CoGroupByKey()).element_type == tuple[str, dict[str, list[int] | list[str]]]


def test_labels_name_the_collections() -> None:
    p = tg.Pipeline()
    a, b = p | "a" >> tg.Create([("k", 1)]), p | "b" >> tg.Create([("k", "x")])
    _ = {"users": a, "orders": b} | tg.CoGroupByKey(name="join")
    assert [node.label for node in p.portable().nodes][2:] == [
        "join/Tag(users)",
        "join/Tag(orders)",
        "join/Flatten",
        "join/Group",
    ]


def test_collections_that_cannot_be_joined_are_refused() -> None:
    p = tg.Pipeline()
    a = p | "a" >> tg.Create([("k", 1)])
    windowed = a | tg.WindowInto(tg.FixedWindows(1))
    single = p | "single" >> tg.Create([1])
    with pytest.raises(tg.BuildError, match="collections 'x' and 'y' can't be grouped together: their windows differ"):
        _ = {"x": a, "y": windowed} | tg.CoGroupByKey()
    with pytest.raises(tg.TypeCheckError, match=re.escape("(key, value), but collection number 1 holds int")):
        _ = (a, single) | tg.CoGroupByKey()
    with pytest.raises(tg.BuildError, match="CoGroupByKey takes several collections"):
        _ = a | tg.CoGroupByKey()  # type: ignore[operator]
    with pytest.raises(tg.BuildError, match="a dict whose keys are strings, not 1"):
        _ = {1: a} | tg.CoGroupByKey()  # type: ignore[operator]
    with pytest.raises(tg.BuildError, match="no PCollection"):
        _ = () | tg.CoGroupByKey()
    with pytest.raises(tg.BuildError, match="two different pipelines"):
        _ = (a, tg.Pipeline() | tg.Create([("k", 1)])) | tg.CoGroupByKey()


STR_AND_INT = (
    "the keys of collection {0}, from 'a', are str, and those of collection {1}, from 'b', are int: "
    "they can never be equal. Convert the keys of one first"
)


@pytest.mark.parametrize(
    ("join", "owner", "names"),
    [
        (lambda a, b: (a, b) | tg.CoGroupByKey(), "CoGroupByKey", ("number 0", "number 1")),
        (lambda a, b: {"x": a, "y": b} | tg.CoGroupByKey(), "CoGroupByKey", ("'x'", "'y'")),
        (lambda a, b: a | tg.Join.inner(b), "Join.inner", ("'left'", "'right'")),
        (lambda a, b: a | tg.Join.left(b), "Join.left", ("'left'", "'right'")),
        (lambda a, b: a | tg.Join.right(b), "Join.right", ("'left'", "'right'")),
        (lambda a, b: a | tg.Join.full(b), "Join.full", ("'left'", "'right'")),
        (lambda a, b: a | tg.IntervalJoin(b, within=5), "IntervalJoin", ("'left'", "'right'")),
    ],
)
def test_keys_that_can_never_be_equal_are_refused(join: Any, owner: str, names: tuple[str, str]) -> None:
    p = tg.Pipeline()
    a, b = p | "a" >> tg.Create([("1", "x")]), p | "b" >> tg.Create([(1, 2)])
    with pytest.raises(tg.TypeCheckError) as caught:
        join(a, b)
    assert str(caught.value).startswith(f"{owner}: {STR_AND_INT.format(*names)}")
    assert "test_cogroup.py:" in str(caught.value)


def test_a_collection_whose_keys_match_no_other_collection_is_refused() -> None:
    p = tg.Pipeline()
    a, b, c = (p | f"{k}{n}" >> tg.Create([(k, n)]) for n, k in enumerate(["k", "m", 3]))
    with pytest.raises(tg.TypeCheckError, match=re.escape("number 2, from '32', are int: they can never")):
        _ = (a, b, c) | tg.CoGroupByKey()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (int, float),
        (float, int),
        (bool, int),
        (int | None, int),
        (int | str, str),
        (Any, str),
        (object, str),
        (tuple[int, Any], tuple[int, str]),
    ],
)
def test_keys_of_types_that_may_be_equal_are_grouped(one: Any, other: Any) -> None:
    p = tg.Pipeline()
    a = p | "a" >> tg.Create([]).with_output_types(tuple[one, int])
    b = p | "b" >> tg.Create([]).with_output_types(tuple[other, int])
    assert ((a, b) | tg.CoGroupByKey()).pipeline is p


def test_a_collection_of_mixed_keys_may_join_the_others() -> None:
    p = tg.Pipeline()
    a, b, c = (p | f"c{n}" >> tg.Create(pairs) for n, pairs in enumerate([[("k", 1)], [(1, 1)], [("k", 1), (1, 1)]]))
    assert ((a, b, c) | tg.CoGroupByKey()).pipeline is p


def test_without_type_checks_any_keys_are_grouped() -> None:
    p = tg.Pipeline(options={"type_check": "off"})
    a, b = p | "a" >> tg.Create([("1", "x")]), p | "b" >> tg.Create([(1, 2)])
    assert (a | tg.Join.inner(b)).collect() == []


def test_a_key_without_an_encoding_names_the_join() -> None:
    p = tg.Pipeline()
    a = p | "a" >> tg.Create([([1], 1)])
    _ = (a, a) | tg.CoGroupByKey() | tg.Map(str)
    with pytest.raises(tg.KeyEncodingError, match=re.escape("no canonical encoding: [1]")) as refused:
        p.run()
    assert "in step 'CoGroupByKey/Group'" in str(refused.value)

"""Element-wise transforms compared with plain Python."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.run_and_collect import collect
from tidegate.sdk.portable import model as portable
from tidegate.sdk.user_code.user_fn import ImportRef
from tidegate.testing import TestPipeline, assert_that, equal_to

PAIRS = st.lists(st.tuples(st.text(max_size=3), st.integers(-9, 9)), max_size=20)


def values_of(elements: list[Any], *steps: Any, **options: Any) -> list[Any]:
    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        out: Any = p | "elements" >> tg.Create(elements)
        for step in steps:
            out = out | step
        return {"out": out}

    return collect(build, **options).values("out")


@settings(max_examples=25)
@given(PAIRS)
def test_keys_values_and_swapped_pairs_equal_those_of_plain_python(pairs: list[tuple[str, int]]) -> None:
    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        pcoll = p | tg.Create(pairs)
        return {"keys": pcoll | tg.Keys(), "values": pcoll | tg.Values(), "swapped": pcoll | tg.KvSwap()}

    found = collect(build)
    assert found.values("keys") == [k for k, _ in pairs]
    assert found.values("values") == [v for _, v in pairs]
    assert found.values("swapped") == [(v, k) for k, v in pairs]


@settings(max_examples=25)
@given(PAIRS)
def test_transforms_of_values_keep_the_keys(pairs: list[tuple[str, int]]) -> None:
    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        pcoll = p | tg.Create(pairs)
        return {
            "map": pcoll | tg.MapValues(abs),
            "lambda": pcoll | tg.MapValues(lambda v: v + 1),
            "extra": pcoll | tg.MapValues(pow, 2),
            "keyword": pcoll | tg.MapValues(lambda v, plus: v + plus, plus=3),
            "flat": pcoll | tg.FlatMapValues(range),
            "none": pcoll | tg.FlatMapValues(lambda v: [v] if v > 0 else None),
            "combined": pcoll | tg.GroupByKey() | tg.CombineValues(sum),
        }

    found = collect(build)
    assert found.values("map") == [(k, abs(v)) for k, v in pairs]
    assert found.values("lambda") == [(k, v + 1) for k, v in pairs]
    assert found.values("extra") == [(k, v**2) for k, v in pairs]
    assert found.values("keyword") == [(k, v + 3) for k, v in pairs]
    assert found.values("flat") == [(k, i) for k, v in pairs for i in range(v)]
    assert found.values("none") == [(k, v) for k, v in pairs if v > 0]
    assert dict(found.values("combined")) == {k: sum(w for j, w in pairs if j == k) for k, _ in pairs}


def test_keys_may_be_computed_or_constant() -> None:
    assert values_of([1, 2], tg.WithKeys("k")) == [("k", 1), ("k", 2)]
    assert values_of([1, 2], tg.WithKeys(lambda x: -x)) == [(-1, 1), (-2, 2)]
    assert values_of([1, 2], tg.WithKeys(lambda x, n: x % n, 2)) == [(1, 1), (0, 2)]
    assert values_of(["a"], tg.WithKeys(str.upper)) == [("A", "a")]
    with pytest.raises(tg.BuildError, match="further arguments only if the key is a function, not 'k'"):
        tg.WithKeys("k", 1)


def stamped(value: int, timestamp: tg.Timestamp = tg.DoFn.TimestampParam) -> tuple[int, float]:
    return value, timestamp.seconds()


def test_a_function_of_values_may_have_injected_parameters() -> None:
    elements = [tg.TimestampedValue(("k", 7), 3)]
    assert values_of(elements, tg.MapValues(stamped)) == [("k", (7, 3.0))]
    assert values_of(elements, tg.MapValues(lambda v, at: (v, at.seconds()), tg.DoFn.TimestampParam)) == [
        ("k", (7, 3.0))
    ]
    assert values_of(elements, tg.WithKeys(lambda v, at=tg.DoFn.TimestampParam: at.seconds())) == [(3.0, ("k", 7))]


def test_transforms_of_values_are_marked_as_keeping_keys() -> None:
    p = tg.Pipeline()
    grouped = p | tg.Create([("k", 1)]) | tg.GroupByKey()
    _ = (
        grouped | tg.MapValues(list),
        grouped | tg.FlatMapValues(iter),
        grouped | tg.CombineValues(sum),
        grouped | tg.Keys(),
    )
    kept = {node.label: node.keeps_key for node in p.portable().nodes if isinstance(node, portable.ParDo)}
    assert kept == {"MapValues(list)": True, "FlatMapValues(iter)": True, "CombineValues(sum)": True, "Keys": False}


def test_dead_letters_of_a_transform_of_values_are_pairs() -> None:
    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        good, bad = p | tg.Create([("a", 0), ("b", 2)]) | tg.MapValues(lambda v: 1 / v).with_exception_handling()
        return {"good": good, "bad": bad | tg.Map(lambda letter: letter[0])}

    found = collect(build)
    assert found.values("good") == [("b", 0.5)]
    assert found.values("bad") == [("a", 0)]


def test_the_error_of_a_function_of_values_names_the_pair() -> None:
    with pytest.raises(tg.UserCodeError) as failed:
        values_of([("a", 0)], tg.MapValues(lambda v: 1 / v))
    assert failed.value.step == "MapValues(<lambda>)"
    assert failed.value.element == "('a', 0)"


def upper(text: str) -> str:
    return text.upper()


def test_element_types_pass_through() -> None:
    pairs = tg.Pipeline() | tg.Create([("a", 1)])
    assert (pairs | tg.Keys()).element_type is str
    assert (pairs | tg.Values()).element_type is int
    assert (pairs | tg.KvSwap()).element_type == tuple[int, str]
    assert (pairs | tg.KvSwap() | tg.MapValues(upper)).element_type == tuple[int, str]
    assert (pairs | tg.Keys() | tg.WithKeys(len)).element_type == tuple[int, str]
    assert (pairs | "const" >> tg.WithKeys(1.5)).element_type == tuple[float, tuple[str, int]]
    assert (pairs | tg.GroupByKey() | tg.CombineValues(len)).element_type == tuple[str, int]
    with pytest.raises(tg.TypeCheckError, match=re.escape("MapValues(upper) takes tuple[Any, str]")):
        _ = pairs | "wrong" >> tg.MapValues(upper)
    with pytest.raises(tg.TypeCheckError, match="Keys takes tuple"):
        _ = tg.Pipeline() | tg.Create([1]) | tg.Keys()


def test_labels_are_derived_from_names_and_may_be_given() -> None:
    p = tg.Pipeline()
    pairs = p | tg.Create([("a", 1)])
    _ = pairs | tg.Keys(), pairs | tg.Keys(), pairs | tg.Keys(name="names"), pairs | tg.MapValues(abs)
    _ = pairs | tg.ToString.Kvs(), pairs | tg.combiners.Count.PerKey(), pairs | tg.combiners.Count.PerKey(name="n")
    assert [node.label for node in p.portable().nodes] == [
        "Create", "Keys", "Keys#2", "names", "MapValues(abs)", "ToString.Kvs", "Count.PerKey", "n",
    ]  # fmt: skip


def test_library_code_is_pickled_by_reference() -> None:
    p = tg.Pipeline()
    pairs = p | tg.Create([("a", 1)])
    _ = pairs | tg.Keys(), pairs | tg.Values(), pairs | tg.KvSwap(), pairs | tg.WithKeys(1), pairs | tg.ToString.Kvs()
    _ = (
        (pairs, pairs) | tg.CoGroupByKey(),
        pairs | tg.Distinct(),
        pairs | tg.LogElements(),
        pairs | tg.ToString.Element(),
    )
    for node in p.sealed().nodes:
        if isinstance(node, portable.ParDo):
            assert isinstance(node.fn.code, ImportRef), node.label


def test_impulse_emits_one_empty_element() -> None:
    found = collect(lambda p: {"out": p | tg.Impulse()})
    assert found.values("out") == [b""]


def test_elements_are_converted_to_text() -> None:
    assert values_of([1, None], tg.ToString.Element()) == ["1", "None"]
    assert values_of([("a", 1)], tg.ToString.Kvs()) == ["a,1"]
    assert values_of([("a", 1)], tg.ToString.Kvs(delimiter="=")) == ["a=1"]
    assert values_of([[1, 2], "xy", ()], tg.ToString.Iterables("-")) == ["1-2", "x-y", ""]


def test_several_collections_are_refused_where_one_is_expected() -> None:
    a = tg.Pipeline() | tg.Create([1])
    with pytest.raises(tg.BuildError, match=re.escape("Map(str) takes one PCollection: write `(a, b) | tg.Flatten()")):
        _ = (a, a) | tg.Map(str)


@pytest.mark.parametrize(
    "use",
    [
        lambda out: out | tg.Map(print),
        lambda out: out | "labelled" >> tg.Filter(bool),
        lambda out: out | tg.GroupByKey(),
        lambda out: out | tg.WindowInto(tg.FixedWindows(1)),
        lambda out: out | tg.combiners.Count.Globally(),
        lambda out: out | tg.io.WriteToText("never"),
        lambda out: out | (lambda pcoll: pcoll | tg.Map(print)),
        lambda out: out.collect(),
    ],
)
def test_the_pair_of_outputs_of_exception_handling_is_refused_as_one_collection(use: Any) -> None:
    out = tg.Pipeline() | tg.Create([("a", 1)]) | "try" >> tg.Map(lambda x: x).with_exception_handling()
    message = "the step 'try' has with_exception_handling, so it returns two collections: write `good, bad = ...`"
    with pytest.raises(tg.BuildError, match=re.escape(message)):
        use(out)


def test_the_outputs_of_exception_handling_are_accepted_as_several_collections() -> None:
    with TestPipeline() as p:
        out = p | tg.Create([1, 0]) | tg.Map(lambda x: 1 // x).with_exception_handling()
        assert_that(out | tg.Flatten() | tg.Map(lambda x: x == 1), equal_to([True, False]))
    assert not hasattr(out, "_repr_html_")
    assert isinstance(out, tuple)


@pytest.mark.parametrize("step", [tg.MapValues, tg.FlatMapValues, lambda fn: tg.Partition(fn, 2)])
def test_a_value_that_is_no_function_is_refused(step: Any) -> None:
    with pytest.raises(tg.BuildError, match="takes a function, not 3"):
        step(3)

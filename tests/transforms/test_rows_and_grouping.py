"""Row, Select and GroupBy."""

from __future__ import annotations

import copy
import pickle
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.run_and_collect import collect
from tidegate.sdk.data.keys import key_bytes
from tidegate.sdk.relational.python.values import field_of
from tidegate.transforms.rows.fields import FieldGetter


class Sale(NamedTuple):
    user: str
    day: int
    price: int


@dataclass(frozen=True)
class Visit:
    user: str
    page: str


SALES = st.lists(st.builds(Sale, st.sampled_from("abc"), st.integers(1, 3), st.integers(-50, 50)), max_size=20)


def collected(elements: list[Any], step: Any) -> list[Any]:
    return collect(lambda p: {"out": p | tg.Create(elements) | step}).values("out")


def test_a_row_is_a_tuple_with_names() -> None:
    row = tg.Row(word="tide", n=3)
    assert (row.word, row.n, row[0], len(row)) == ("tide", 3, "tide", 2)
    word, n = row
    assert (word, n) == row == ("tide", 3)
    assert repr(row) == "Row(word='tide', n=3)"
    assert row.as_dict() == {"word": "tide", "n": 3}
    assert isinstance(row, tg.Row)
    assert hash(row) == hash(("tide", 3))
    assert tg.Row(a=1) < tg.Row(a=2)
    assert repr(tg.Row()) == "Row()"


def test_a_row_has_the_methods_of_a_named_tuple() -> None:
    class Word(NamedTuple):
        word: str
        n: int

    row, named = tg.Row(word="tide", n=3), Word("tide", 3)
    assert row._fields == named._fields
    assert row._asdict() == named._asdict() == row.as_dict()
    changed = row._replace(n=4)
    assert (changed, type(changed)) == (named._replace(n=4), type(row))
    assert row.n == 3
    with pytest.raises(ValueError, match="this row has no field 'm'; it has word, n"):
        row._replace(m=1)
    odd = tg.Row(self=1, fields=2)
    assert odd._replace(self=3)._asdict() == {"self": 3, "fields": 2}


def test_a_row_is_immutable_and_its_errors_name_its_fields() -> None:
    row: Any = tg.Row(a=1, b=2)
    with pytest.raises(AttributeError):
        row.a = 2
    with pytest.raises(AttributeError):
        row.c = 2
    with pytest.raises(AttributeError, match="this row has no field 'c'; it has a, b"):
        _ = row.c
    with pytest.raises(ValueError, match="can't begin with an underscore, as '_x' does"):
        tg.Row(_x=1)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.integers() | st.text(), max_size=5))
def test_a_row_survives_copying_and_pickling(fields: dict[str, Any]) -> None:
    row = tg.Row(**fields)
    for other in (pickle.loads(pickle.dumps(row, 5)), copy.copy(row), copy.deepcopy(row)):
        assert other == row
        assert type(other) is type(row)
        assert other.as_dict() == fields
    assert key_bytes(row) == key_bytes(tuple(fields.values()))


def test_a_field_may_have_the_name_of_a_method_of_tuples() -> None:
    row = tg.Row(count=3, index=4)
    assert (row.count, row.index) == (3, 4)


def test_rows_can_be_keys() -> None:
    pairs = [(tg.Row(a=1, b="x"), 1), (tg.Row(a=1, b="x"), 2), ((1, "x"), 4)]
    assert collected(pairs, tg.CombinePerKey(sum)) == [(tg.Row(a=1, b="x"), 7)]


@settings(max_examples=25)
@given(SALES)
def test_select_makes_rows_of_fields_and_functions(sales: list[Sale]) -> None:
    rows = collected(sales, tg.Select("user", "day", double=lambda sale: 2 * sale.price))
    assert [row.as_dict() for row in rows] == [{"user": s.user, "day": s.day, "double": 2 * s.price} for s in sales]
    assert [row.day for row in collected(sales, tg.Select("day", "user"))] == [s.day for s in sales]
    assert [row.arg0 for row in collected(sales, tg.Select(len))] == [3] * len(sales)


@settings(max_examples=25)
@given(SALES)
def test_groups_by_one_field_have_its_value_as_key(sales: list[Sale]) -> None:
    groups = defaultdict(list)
    for sale in sales:
        groups[sale.user].append(sale)
    for step in (tg.GroupBy("user"), tg.GroupBy(lambda sale: sale.user)):
        assert {key: list(values) for key, values in collected(sales, step)} == groups


@settings(max_examples=25)
@given(SALES)
def test_groups_by_several_fields_have_rows_as_keys(sales: list[Sale]) -> None:
    groups = defaultdict(list)
    for sale in sales:
        groups[sale.user, sale.day % 2].append(sale)
    found = collected(sales, tg.GroupBy("user", odd=lambda sale: sale.day % 2))
    assert {(key.user, key.odd): list(values) for key, values in found} == groups


@settings(max_examples=25)
@given(SALES)
def test_aggregates_of_fields_are_in_one_row(sales: list[Sale]) -> None:
    groups = defaultdict(list)
    for sale in sales:
        groups[sale.user, sale.day].append(sale.price)
    step = (
        tg.GroupBy("user", "day")
        .aggregate_field("price", sum, "total")
        .aggregate_field("price", max, "best")
        .aggregate_field(lambda sale: -sale.price, list, "negated")
    )
    assert [row.as_dict() for row in collected(sales, step)] == [
        {"user": user, "day": day, "total": sum(p), "best": max(p), "negated": [-x for x in p]}
        for (user, day), p in groups.items()
    ]


def test_one_aggregate_by_one_key_is_a_pair() -> None:
    sales = [Sale("a", 1, 10), Sale("b", 1, 20), Sale("a", 2, 5)]
    found = collected(sales, tg.GroupBy("user").aggregate_field("price", sum, "total"))
    assert [row.as_dict() for row in found] == [{"user": "a", "total": 15}, {"user": "b", "total": 20}]
    found = collected(sales, tg.GroupBy(lambda sale: sale.day).aggregate_field("price", len, "n"))
    assert [row.as_dict() for row in found] == [{"key": 1, "n": 2}, {"key": 2, "n": 1}]


def test_an_aggregation_is_a_value_that_can_be_continued_twice() -> None:
    base = tg.GroupBy("user").aggregate_field("price", sum, "total")
    sales = [Sale("a", 1, 10)]
    assert collected(sales, base.aggregate_field("price", min, "least"))[0].as_dict() == {
        "user": "a",
        "total": 10,
        "least": 10,
    }
    assert collected(sales, base)[0].as_dict() == {"user": "a", "total": 10}


def test_groups_have_types_and_labels() -> None:
    visits = tg.Pipeline() | tg.Create([Visit("a", "/")])
    assert str((visits | tg.GroupBy("user")).element_type).startswith("tuple[str, ")
    step = visits | tg.GroupBy("user", "page").aggregate_field(len, sum, "n")
    assert (step.element_type, step.id) == (tg.Row, "GroupBy(user, page)/Row")
    assert (visits | tg.Select("user", n=lambda visit: 1)).id == "Select(user, n)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tg.GroupBy("a").aggregate_field("b", len, "a"), "the field 'a' occurs twice"),
        (lambda: tg.Select(), "Select takes at least one field"),
        (lambda: tg.Select(3), "Select: a field is a name, a function or an expression, not 3"),
        (lambda: tg.Select("a", "a"), "Select: the field 'a' occurs twice"),
        (lambda: tg.GroupBy("a b"), "GroupBy: 'a b' can't name a field"),
        (lambda: tg.Select(_a=len), "Select: '_a' can't name a field"),
        (lambda: tg.TopN(3, by="a", number="my place"), "TopN: 'my place' can't name a field"),
        (
            lambda: tg.Pipeline() | tg.Create([Visit("a", "/")]) | tg.TopN(3, by="user", number="page"),
            "TopN: the elements have a field 'page': give their number another name",
        ),
        (lambda: tg.GroupBy("a").aggregate_field("b", sum, "a"), "aggregate_field: the field 'a' occurs twice"),
        (lambda: tg.GroupBy("a").aggregate_field(None, sum, "s"), "aggregate_field: a field is a name,"),
        (lambda: tg.GroupBy("a").aggregate_field("b", 3, "s"), "a combiner is a CombineFn or a callable"),
    ],
)
def test_invalid_fields_are_refused(make: Any, message: str) -> None:
    with pytest.raises(tg.BuildError, match=re.escape(message)):
        make()


def test_only_aggregates_by_expressions_need_no_field_to_group_by() -> None:
    for step in (tg.GroupBy(), tg.GroupBy().aggregate_field("b", sum, "s")):
        with pytest.raises(tg.BuildError, match="GroupBy takes at least one field or function"):
            tg.Pipeline() | tg.Create([1]) | step


def test_a_selected_name_that_is_no_field_is_refused_when_the_fields_are_known() -> None:
    with pytest.raises(tg.BuildError, match=r"(?s)no column 'nope'; it has .*in step 'Select\(nope\)'"):
        tg.Pipeline() | tg.Create([Visit("a", "b")]) | tg.Select("nope")


@pytest.mark.parametrize("declared", [dict[str, Any], Any])
def test_names_are_items_of_dicts(declared: Any) -> None:
    records = [{"items": "a", "n": 1}, {"items": "a", "n": 2}]
    rows = tg.Pipeline() | tg.Create(records).with_output_types(declared)
    assert (rows | tg.GroupBy("items")).collect() == [("a", records)]
    assert (rows | tg.GroupBy("items").aggregate_field("n", sum, "n")).collect() == [tg.Row(items="a", n=3)]
    assert (rows | tg.Select("n", "items")).collect() == [tg.Row(n=1, items="a"), tg.Row(n=2, items="a")]
    with pytest.raises(tg.UserCodeError, match="no item 'm'; there are items, n"):
        (rows | tg.GroupBy("m")).collect()


def test_a_missing_item_is_not_inserted() -> None:
    counts = defaultdict(int, a=1)
    for read in (FieldGetter("b"), lambda element: field_of(element, "b")):
        with pytest.raises(KeyError, match="b"):
            read(counts)
    assert counts == {"a": 1}


class Basket(dict[str, int]):
    @property
    def total(self) -> int:
        return sum(self.values())


@dataclass(frozen=True)
class Tagged(Mapping[str, str]):
    """Its fields are attributes, and its items are something else."""

    user: str

    def __getitem__(self, key: str) -> str:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize("declared", [True, False])
def test_mappings_have_attributes_of_their_own(declared: bool) -> None:
    def selected(element: Any, *fields: Any) -> list[Any]:
        made = tg.Pipeline() | tg.Create([element]).with_output_types(type(element) if declared else Any)
        return (made | tg.Select(*fields)).collect()

    assert selected(Basket(a=1, b=2), "a", "total") == [tg.Row(a=1, total=3)]
    assert selected(Tagged("ann"), "user") == selected(Tagged("ann"), tg.col("user")) == [tg.Row(user="ann")]


def test_the_error_of_a_missing_attribute_names_the_step_and_the_element() -> None:
    with pytest.raises(tg.UserCodeError, match="'Sale' object has no attribute 'town'") as failed:
        collected([Sale("a", 1, 2)], tg.GroupBy("town"))
    assert failed.value.step == "GroupBy(town)/Key"

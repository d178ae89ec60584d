"""Decodes record batches and compares the elements with pyarrow's; bad values are reported by row and column."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.io.records.decoder import BatchDecoder
from tidegate.io.records.problems import Problem, SchemaMismatch
from tidegate.io.records.projection import project, selection_of
from tidegate.io.records.schema import of_arrow

UTC = datetime.UTC


def decoded(batch: Any, *, as_: Any = dict, **options: Any) -> list[Any]:
    selection = selection_of("ReadFromParquet", as_=as_, **options)
    columns = of_arrow(batch.schema)
    return BatchDecoder(selection, project(columns, selection, columns, "first")).decode(batch)


def problems(elements: list[Any]) -> list[tuple[int, str | None]]:
    return [(each.at, each.column) for each in elements if type(each) is Problem]


COLUMNS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.uint8(), st.integers(0, 255)),
    "float": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.string(), st.text(max_size=5)),
    "coded": (pa.dictionary(pa.int32(), pa.string()), st.text(max_size=2)),
    "bytes": (pa.binary(), st.binary(max_size=5)),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "duration": (pa.duration("us"), st.timedeltas(datetime.timedelta(-(10**5)), datetime.timedelta(10**5))),
    "instant": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "decimal": (pa.decimal128(20, 3), st.decimals(-(10**9), 10**9, places=3)),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=3)),
    "struct": (pa.struct({"x": pa.int64()}), st.fixed_dictionaries({"x": st.none() | st.integers(0, 9)})),
    "map": (pa.map_(pa.string(), pa.int64()), st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2)),
    "nested": (
        pa.list_(pa.struct({"at": pa.timestamp("us", "UTC")})),
        st.lists(st.fixed_dictionaries({"at": st.datetimes(timezones=st.just(UTC))}), max_size=2),
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
@given(data=st.data())
def test_decoded_values_equal_the_written_ones(name: str, data: st.DataObject) -> None:
    kind, values = COLUMNS[name]
    column = data.draw(st.lists(st.none() | values, max_size=20))
    if name == "coded":
        array = pa.array(column, pa.string()).dictionary_encode()
    elif name == "map":
        array = pa.array([None if each is None else list(each.items()) for each in column], kind)
    else:
        array = pa.array(column, kind)
    batch = pa.record_batch({"it": array})
    start = data.draw(st.integers(0, len(column)))
    found = decoded(batch.slice(start))
    assert [each["it"] for each in found] == column[start:]
    assert all(type(each["it"]) is type(expected) for each, expected in zip(found, column[start:]))


@dataclass(frozen=True)
class Inner:
    x: int | None


@dataclass(frozen=True)
class Visit:
    url: str
    inner: Inner
    seen: frozenset[int]
    at: tg.Timestamp
    more: str = "none"


class Pair(NamedTuple):
    a: int
    b: float


class Model(pydantic.BaseModel):
    a: int
    b: str = "b"

    @pydantic.field_validator("a")
    @classmethod
    def small(cls, value: int) -> int:
        if value > 9:
            raise ValueError("too large")
        return value


def test_rows_dicts_and_named_tuples_have_the_columns_as_fields() -> None:
    batch = pa.record_batch({"a": [1, 2], "b": [1.5, None]})
    rows = decoded(batch, as_=tg.Row)
    assert rows == [(1, 1.5), (2, None)]
    assert rows[0].a == 1
    assert decoded(batch, columns=["b", "a"]) == [{"b": 1.5, "a": 1}, {"b": None, "a": 2}]
    pairs = decoded(batch.slice(0, 1), as_=Pair)
    assert pairs == [Pair(1, 1.5)]
    assert type(pairs[0]) is Pair


def test_a_dataclass_gets_nested_classes_sets_and_instants() -> None:
    at = datetime.datetime(2013, 1, 1, tzinfo=UTC)
    batch = pa.record_batch({"url": ["x"], "inner": [{"x": 1}], "seen": [[1, 1]], "at": [at], "other": [1]})
    assert decoded(batch, as_=Visit) == [Visit("x", Inner(1), frozenset({1}), tg.Timestamp.of(at))]


def test_a_pydantic_model_validates_and_names_the_column() -> None:
    assert decoded(pa.record_batch({"a": ["7"]}), as_=Model) == [Model(a=7)]
    found = decoded(pa.record_batch({"a": [1, 10, 3]}), as_=Model)
    assert found[0] == Model(a=1)
    assert found[2] == Model(a=3)
    assert found[1] == Problem(1, "a", "Value error, too large", "10")


def test_only_dicts_may_have_names_that_are_no_identifiers() -> None:
    with pytest.raises(tg.BuildError, match=r"the column 'per cent' can't be a field of a Row.*as_=dict"):
        selection_of("ReadFromCsv", as_=tg.Row, columns=["a", "per cent"])
    assert decoded(pa.record_batch({"per cent": [1]}), columns=["per cent"]) == [{"per cent": 1}]


def test_a_null_in_a_required_column_is_reported_by_row_and_column() -> None:
    found = decoded(pa.record_batch({"a": [1, None, 3, None]}), schema={"a": int})
    assert problems(found) == [(1, "a"), (3, "a")]
    assert [each for each in found if type(each) is dict] == [{"a": 1}, {"a": 3}]


def test_nanoseconds_that_are_no_whole_microseconds_are_reported() -> None:
    array = pa.array([1_000, 1_001, 2_000], pa.timestamp("ns", "UTC"))
    found = decoded(pa.record_batch({"at": array}))
    assert problems(found) == [(1, "at")]
    assert found[2]["at"] == datetime.datetime(1970, 1, 1, 0, 0, 0, 2, UTC)
    assert problems(decoded(pa.record_batch({"at": array.view(pa.int64()).cast(pa.duration("ns"))}))) == [(1, "at")]


def test_years_out_of_pythons_range_are_reported() -> None:
    far = pa.array([0, 10**18], pa.timestamp("us", "UTC"))
    assert problems(decoded(pa.record_batch({"at": far}))) == [(1, "at")]
    assert problems(decoded(pa.record_batch({"day": pa.array([0, 10**8], pa.date32())}))) == [(1, "day")]


@given(st.lists(st.datetimes(datetime.datetime(1980, 1, 1), datetime.datetime(2030, 1, 1)), max_size=5))
def test_naive_times_are_read_in_the_given_time_zone(naive: list[datetime.datetime]) -> None:
    zone = ZoneInfo("Europe/Berlin")

    def exists_once(time: datetime.datetime) -> bool:
        instants = {time.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
        return len(instants) == 1

    naive = [time for time in naive if exists_once(time)]
    batch = pa.record_batch(
        {
            "it": pa.array(naive, pa.timestamp("us")),
            "list": pa.array([[each, None] for each in naive], pa.list_(pa.timestamp("us"))),
            "struct": pa.array([{"at": each} for each in naive], pa.struct({"at": pa.timestamp("ms")})),
        }
    )
    expected = [time.replace(tzinfo=zone).astimezone(UTC) for time in naive]
    found = decoded(batch, timezone="Europe/Berlin", columns=["it", "list"])
    assert [each["it"] for each in found] == expected
    assert [each["list"] for each in found] == [[each, None] for each in expected]
    with pytest.raises(SchemaMismatch, match="timezone="):
        decoded(batch)


def test_times_that_a_clock_change_skips_are_reported() -> None:
    times = [datetime.datetime(2024, 3, 31, 1), datetime.datetime(2024, 3, 31, 2, 30)]
    batch = pa.record_batch({"at": pa.array(times, pa.timestamp("us"))})
    assert problems(decoded(batch, timezone="Europe/Berlin")) == [(1, "at")]


def test_integers_that_a_float_cannot_represent_are_reported() -> None:
    found = decoded(pa.record_batch({"a": [1, 2**53 + 1]}), schema={"a": float})
    assert found[0] == {"a": 1.0}
    assert problems(found) == [(1, "a")]


def test_a_decimal_keeps_its_scale() -> None:
    batch = pa.record_batch({"a": pa.array([decimal.Decimal("1.50")], pa.decimal128(5, 2))})
    assert str(decoded(batch, schema={"a": decimal.Decimal})[0]["a"]) == "1.50"


OPERATORS = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@given(st.lists(st.none() | st.integers(0, 5)), st.sampled_from(sorted(OPERATORS)), st.integers(0, 5))
def test_conditions_select_the_rows_for_which_they_hold(values: list[Any], op: str, value: int) -> None:
    batch = pa.record_batch({"a": pa.array(values, pa.int64()), "b": list(range(len(values)))})
    expected = [i for i, each in enumerate(values) if each is not None and OPERATORS[op](each, value)]
    assert [each["b"] for each in decoded(batch, columns=["b"], where=[("a", op, value)])] == expected
    nulls = [i for i, each in enumerate(values) if each is None]
    assert [each["b"] for each in decoded(batch, columns=["b"], where=[("a", "==", None)])] == nulls
    members = [i for i, each in enumerate(values) if each in (1, value)]
    assert [each["b"] for each in decoded(batch, columns=["b"], where=[("a", "in", [1, value])])] == members


def test_a_condition_with_an_incomparable_value_is_an_error() -> None:
    with pytest.raises(tg.ReadError, match=r"where=\('a', '<', 'x'\): the column is int64"):
        decoded(pa.record_batch({"a": [1]}), where=[("a", "<", "x")])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": [("a", "~", 1)]}, "where has the operator '~'"),
        ({"where": ["a > 1"]}, "where is a list of conditions"),
        ({"where": [("a", "in", "abc")]}, "'in' takes a list of values"),
        ({"where": [("a", "<", None)]}, "nothing is < None"),
        ({"columns": "a"}, "columns is a list of names"),
        ({"columns": ["a", "a"]}, "there are several columns 'a'"),
        ({"schema": {"a": int}, "columns": ["b"]}, "columns has 'b', which is not in the schema: a"),
        ({"timezone": "Mars/Phobos"}, "there is no time zone 'Mars/Phobos'"),
        ({"schema_evolution": "merge"}, "schema_evolution is 'refuse' or 'union'"),
        ({"bad_records": "drop"}, "bad_records is 'fail' or 'dead_letter'"),
        ({"as_": list}, "as_ is tg.Row, dict, a dataclass, a NamedTuple or a pydantic model"),
        ({"as_": Pair, "columns": ["a"]}, "Pair needs 'b', which columns leaves out"),
        ({"as_": Pair, "schema": {"a": int}}, "the schema is Pair's annotations"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(tg.BuildError, match=message):
        selection_of("ReadFromCsv", **{"as_": dict, **options})


@pytest.mark.parametrize("zero", [0, 0.0, -0.0])
def test_both_zeros_are_in_a_list_with_one_of_them(zero: float) -> None:
    batch = pa.record_batch({"x": [0.0, -0.0, 1.0, None]})
    assert len(decoded(batch, where=[("x", "in", [zero])])) == 2
    assert decoded(batch, where=[("x", "not in", [zero])]) == [{"x": 1.0}]

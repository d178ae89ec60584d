"""Schemas that authors write: dicts of Python types, Arrow schemas, and classes with annotations."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, NewType

import pyarrow as pa
import pydantic
import pytest

import tidegate as tg
from tidegate.io.records.problems import SchemaMismatch
from tidegate.io.records.schema import Field, RecordSchema, class_fields, from_json, of_arrow, schema_of, to_json
from tidegate.io.records.shapes import shape_of
from tidegate.io.records.types import check_same, resolve, unify
from tidegate.sdk.user_code.by_value import pickle_by_value


@dataclass
class Place:
    city: str
    people: int | None
    tags: list[str] = field(default_factory=list)


class Point(NamedTuple):
    x: float
    y: float = 0.0


Number = NewType("Number", int)
Money = NewType("Money", Annotated[decimal.Decimal, "decimal(9,2)"])


@dataclass
class Bill:
    number: Number
    other: Number | None
    total: Money | None


class Model(pydantic.BaseModel):
    name: str
    at: pydantic.AwareDatetime
    many: int | str = 0


def types_of(given: Any) -> dict[str, tuple[str, bool]]:
    schema = schema_of(given, "ReadFromCsv")
    assert schema is not None
    return {each.name: (str(each.type), each.nullable) for each in schema.fields}


def test_a_dict_of_python_types_is_a_schema() -> None:
    given = {"a": int, "b": float | None, "c": str, "d": bytes, "e": datetime.datetime, "f": decimal.Decimal, "g": Any}
    assert types_of(given) == {
        "a": ("int64", False),
        "b": ("double", True),
        "c": ("string", False),
        "d": ("binary", False),
        "e": ("timestamp[us, tz=UTC]", False),
        "f": ("decimal128(38, 18)", False),
        "g": ("None", True),
    }


@pytest.mark.parametrize(
    ("cls", "types", "required"),
    [
        (
            Place,
            {"city": ("string", False), "people": ("int64", True), "tags": ("list<item: string>", False)},
            [True, True, False],
        ),
        (Point, {"x": ("double", False), "y": ("double", False)}, [True, False]),
        (Model, {"name": ("string", False), "at": ("None", True), "many": ("None", True)}, [True, True, False]),
    ],
)
def test_the_annotations_of_a_class_are_a_schema(
    cls: type, types: dict[str, tuple[str, bool]], required: list[bool]
) -> None:
    schema = schema_of(cls, "ReadFromCsv")
    assert schema is not None
    assert types_of(cls) == types
    assert [each.required for each in schema.fields] == required


def test_names_for_types_are_the_types_of_columns() -> None:
    assert schema_of(Bill, "Read") == RecordSchema(
        (
            Field("number", pa.int64(), False),
            Field("other", pa.int64(), True),
            Field("total", pa.decimal128(9, 2), True, exact=True),
        )
    )


def test_the_types_of_an_arrow_schema_are_exact() -> None:
    assert schema_of(pa.schema([pa.field("a", pa.int8(), nullable=False)]), "x") == RecordSchema(
        (Field("a", pa.int8(), False, True),)
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([("a", int)], "schema is a dict of names and Python types"),
        ({1: int}, "the names of a schema are strings, not 1"),
        ({"a": complex}, "the column 'a' can't be a complex"),
        (object, "object has no annotated fields: give a dataclass, a NamedTuple or a pydantic model"),
    ],
)
def test_an_invalid_schema_is_refused(given: Any, message: str) -> None:
    with pytest.raises(tg.BuildError, match=message):
        schema_of(given, "ReadFromCsv")


@pytest.mark.parametrize(
    ("found", "wanted", "result"),
    [
        (pa.int32(), pa.int64(), pa.int32()),
        (pa.int32(), pa.float64(), pa.float64()),
        (pa.null(), pa.string(), pa.string()),
        (pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string()),
        (pa.list_(pa.int16()), pa.list_(pa.float64()), pa.list_(pa.float64())),
        (pa.decimal128(5, 2), pa.decimal128(38, 9), pa.decimal128(5, 2)),
    ],
)
def test_a_column_fits_a_schema_of_its_kind_or_a_wider_one(found: Any, wanted: Any, result: Any) -> None:
    assert resolve(found, Field("a", wanted), None) == result


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.string(), pa.int64()),
        (pa.float64(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.bool_(), pa.int64()),
        (pa.list_(pa.string()), pa.list_(pa.int64())),
        (pa.date32(), pa.timestamp("us", "UTC")),
    ],
)
def test_a_column_of_another_kind_is_refused_with_its_name(found: Any, wanted: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"column 'a': it is .* in the file, and the schema says"):
        resolve(found, Field("a", wanted), None)


def test_times_without_a_time_zone_are_refused_unless_one_is_given() -> None:
    with pytest.raises(SchemaMismatch, match=r"its times have no time zone.*timezone='UTC'"):
        resolve(pa.list_(pa.timestamp("s")), Field("a"), None)
    assert resolve(pa.list_(pa.timestamp("s")), Field("a"), "UTC") == pa.list_(pa.timestamp("us", "UTC"))


def test_the_columns_of_several_files_are_united_by_name_and_widened() -> None:
    one = of_arrow(pa.schema({"a": pa.int32(), "b": pa.string()}))
    other = of_arrow(pa.schema({"c": pa.bool_(), "a": pa.float64()}))
    united = unify([one, other], ["one", "other"])
    assert [(each.name, each.type, each.nullable) for each in united.fields] == [
        ("a", pa.float64(), True),
        ("b", pa.string(), True),
        ("c", pa.bool_(), True),
    ]


def test_columns_without_a_common_type_are_not_united() -> None:
    schemas = [of_arrow(pa.schema({"a": kind})) for kind in (pa.int32(), pa.string())]
    with pytest.raises(SchemaMismatch, match=r"column 'a': it is string in two.csv and int32 in another file"):
        unify(schemas, ["one.csv", "two.csv"])


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"a": pa.int64()}, "'b': it is missing, and first.csv has it"),
        ({"a": pa.int64(), "b": pa.string(), "c": pa.string()}, "'c': first.csv doesn't have it"),
        ({"a": pa.float64(), "b": pa.string()}, "'a': it is double, and int32 in first.csv"),
    ],
)
def test_columns_that_differ_from_those_of_the_first_file_are_named(found: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaMismatch, match=message):
        check_same(of_arrow(pa.schema(found)), of_arrow(pa.schema({"b": pa.string(), "a": pa.int32()})), "first.csv")


def test_the_fields_of_a_class_that_was_pickled_with_its_code_are_as_required_as_before() -> None:
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec("import dataclasses\n@dataclasses.dataclass\nclass Sale:\n    id: int\n    amount: float = 1.0", scope)
    cls = scope["Sale"]
    pickle.loads(pickle_by_value(cls)[0])
    assert class_fields(cls) == {"id": (int, True), "amount": (float, False)}
    shape = shape_of(cls, "it")
    default = shape.default("amount")
    assert shape.default("id") is None
    assert default is not None
    assert default() == 1.0


def test_columns_survive_json() -> None:
    columns = RecordSchema(
        (
            Field("id", pa.int32(), nullable=False),
            Field("at", pa.timestamp("ns", "Europe/Berlin")),
            Field("any"),
            Field("parts", pa.list_(pa.struct([pa.field("x", pa.decimal128(5, 2), nullable=False)]))),
        )
    )
    assert from_json(json.loads(json.dumps(to_json(columns)))) == columns

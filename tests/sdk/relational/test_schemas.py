"""Schemas come from dataclasses, NamedTuples, TypedDicts, pydantic models and rows; expressions read each of them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import pytest
from pydantic import BaseModel

import tidegate as tg
from tidegate.sdk.data.schema import column_of, schema_of

AT = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class AsDataclass:
    user: str
    price: float | None
    at: datetime.datetime


class AsNamedTuple(NamedTuple):
    user: str
    price: float | None
    at: datetime.datetime


class AsTypedDict(TypedDict):
    user: str
    price: float | None
    at: datetime.datetime


class AsModel(BaseModel):
    user: str
    price: float | None
    at: datetime.datetime


FORMS: list[Any] = [AsDataclass, AsNamedTuple, AsTypedDict, AsModel]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_each_form_of_record_has_the_schema_that_its_annotations_declare(form: Any) -> None:
    assert str(schema_of(form)) == "user string not null, price double, at timestamp not null"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_expressions_read_the_fields_of_each_form_of_record(form: Any) -> None:
    elements = [form(user="ada", price=1.5, at=AT), form(user="max", price=None, at=AT)]
    records = tg.Pipeline() | tg.Create(elements).with_output_types(form)
    rows = records | tg.Filter(tg.col("user") != "eve") | tg.Select("user", twice=tg.col("price") * 2, at="at")
    years = rows | tg.Select("user", "twice", year=tg.fn.year("at"))
    assert years.collect() == [("ada", 3.0, 2024), ("max", None, 2024)]


@pytest.mark.parametrize("hint", [Any, dict, dict[str, int], int, tg.Row, tuple[int, str], AsDataclass | None])
def test_a_type_that_names_no_fields_has_no_schema(hint: Any) -> None:
    assert schema_of(hint) is None


@pytest.mark.parametrize("element", [{"n": 1}, tg.Row(n=1)], ids=["dict", "Row"])
def test_a_column_without_a_schema_is_given_its_type_by_the_author(element: Any) -> None:
    elements = tg.Pipeline() | tg.Create([element])
    assert (elements | tg.Select(n=tg.col("n", int) + 1)).collect() == [(2,)]
    with pytest.raises(tg.TypeCheckError, match=r"the type of n is not known: .*tg\.col\('n', int\)"):
        elements | "untyped" >> tg.Select(n=tg.col("n") + 1)


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (bool, "boolean not null"),
        (int | float, "double not null"),
        (UUID | None, "string"),
        (tg.Timestamp, "timestamp not null"),
        (datetime.date, "date not null"),
        (tg.Duration, "interval not null"),
        (Decimal, "decimal(38,18) not null"),
        (Literal["a", "b"], "string not null"),
        (list[int], "array<bigint not null> not null"),
        (dict[str, float], "map<string,double> not null"),
        (AsNamedTuple, "struct<user:string not null,price:double,at:timestamp not null> not null"),
        (int | str, "unknown"),
        (Any, "unknown"),
    ],
    ids=str,
)
def test_the_type_of_a_field_is_that_of_a_column(hint: Any, expected: str) -> None:
    type, nullable = column_of(hint)
    assert f"{type}{'' if nullable else ' not null'}" == expected


@pytest.mark.parametrize(
    ("element", "told"),
    [
        (AsDataclass("ada", "1.5", AT), "'price' is of type double, and '1.5' is not"),  # type: ignore[arg-type]
        (AsDataclass(None, 1.5, AT), r"'user' is NULL, and its type says that it never is"),  # type: ignore[arg-type]
        (AsDataclass("ada", 1.5, AT.replace(tzinfo=None)), "'at' is of type timestamp.*it has no time zone"),
    ],
    ids=["another type", "None", "a naive datetime"],
)
def test_a_value_that_is_not_of_its_columns_type_fails_the_run(element: AsDataclass, told: str) -> None:
    columns = {"user": tg.fn.upper("user"), "twice": tg.col("price") * 2, "year": tg.fn.year("at")}
    with pytest.raises(tg.UserCodeError, match=f"(?s)INVALID_COLUMN_VALUE.*{told}"):
        (tg.Pipeline() | tg.Create([element]) | tg.Select(**columns)).collect()

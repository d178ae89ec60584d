"""Relations and schemas in the portable form: they survive JSON, files of before load, and bad ones are refused."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.data.columns import (
    BIGINT,
    BINARY,
    DATE,
    DOUBLE,
    INTERVAL,
    STRING,
    TIMESTAMP,
    VOID,
    ArrayType,
    DecimalType,
    Field,
    MapType,
    StructType,
    type_named,
)
from tidegate.sdk.drawing.graph import graph_of
from tidegate.sdk.errors import LoadError
from tidegate.sdk.portable.json import dump, load
from tidegate.sdk.portable.model import ParDo, Relate
from tidegate.sdk.relational.expressions import Call, Case, Cast, Column, Literal, Tree, from_json, to_json

SECOND_FORMAT = Path(__file__).parent / "fixtures" / "format-2.json"
UTC = datetime.UTC


def pipeline() -> tg.Pipeline:
    p = tg.Pipeline()
    rows = (
        p
        | tg.Create([1])
        | tg.Map(lambda n: tg.Row(user="a", n=n))
        | tg.Select(user=tg.col("user", str), n=tg.col("n", int))
    )
    kept = rows | tg.Filter(tg.col("n") > 0)
    joined = kept | tg.Join.on(
        rows | "other" >> tg.Filter(tg.col("n") < 9), "user", how="left", suffix="_2", within=(-1, 2)
    )
    joined | tg.GroupBy("user").agg(n=tg.fn.sum("n"))
    kept | tg.TopN(2, by=[tg.col("n").desc(), "user"], per="user", number="place")
    return p


def test_relations_and_schemas_survive() -> None:
    sealed = pipeline().sealed(values=True)
    assert {node.relation.kind for node in sealed.nodes if isinstance(node, Relate)} == {
        "compute",
        "join",
        "aggregate",
        "rank",
    }
    text = dump(sealed)
    assert load(text) == sealed
    assert dump(load(text)) == text


@pytest.mark.parametrize(
    "tree",
    [
        Literal(None, VOID),
        Literal(2**63 - 1, BIGINT),
        Literal(float("inf"), DOUBLE),
        Literal(2.0, DOUBLE),
        Literal("é", STRING),
        Literal(b"\0\xff", BINARY),
        Literal(datetime.date(2024, 2, 29), DATE),
        Literal(datetime.datetime(2024, 2, 29, 1, 2, 3, 4, UTC), TIMESTAMP),
        Literal(datetime.timedelta(days=-1, microseconds=1), INTERVAL),
        Literal(Decimal("1.50"), DecimalType(3, 2)),
        Column("a b", STRING, nullable=False, input=1),
        Case(((Column("p"), Literal(1, BIGINT)),), Cast(Column("x", DOUBLE), BIGINT), BIGINT),
        Call("count", (), BIGINT, nullable=False),
    ],
    ids=str,
)
def test_every_expression_survives_json(tree: Tree) -> None:
    again = from_json(json.loads(json.dumps(to_json(tree))))
    assert again == tree
    assert repr(again) == repr(tree)


@pytest.mark.parametrize(
    "type",
    [
        DecimalType(38, 18),
        ArrayType(MapType(STRING, ArrayType(BIGINT, nullable=False))),
        StructType((Field("a", BIGINT, nullable=False), Field("b c`d", StructType((Field("e", DATE),))))),
        StructType(()),
    ],
    ids=str,
)
def test_a_type_has_a_name_that_gives_it_again(type: Any) -> None:
    assert type_named(str(type)) == type


@pytest.mark.parametrize(
    "name", ["", "bigints", "array<>", "array<bigint", "decimal(3)", "bigint>", "decimal(x,y)", "a;b"]
)
def test_a_name_of_no_type_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not the type of a column"):
        type_named(name)


def test_a_file_of_the_second_format_is_read_and_runs() -> None:
    before = load(SECOND_FORMAT.read_bytes())
    assert all(each.schema is None for each in before.collections)
    assert load(dump(before)) == before
    functions = {node.fn.name: node.fn.load() for node in before.nodes if isinstance(node, ParDo)}
    filtered, selected, row = (functions[name] for name in ("Predicate", "Computed", "GroupRow"))
    order = tg.Row(user="a", price=1.5, qty=20)
    assert (filtered(order), selected(order), row(("a", (2, 3.0)))) == (True, ("a", 30.0), ("a", 2, 3.0))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('"operation": "greater"', '"operation": "subtract"'), "a filter's condition is a boolean"),
        (('"operation": "greater"', '"operation": "grater"'), "the operation 'grater' is not known"),
        (('"kind": "compute"', '"kind": "compote"'), "'compote' is not allowed here"),
        (('"type": "bigint"', '"type": "bigoint"'), "'bigoint' is not the type of a column"),
        (('"name": "n"', '"nome": "n"'), "this is not an expression|this field is missing|not known"),
    ],
    ids=["unfit", "operation", "kind", "type", "field"],
)
def test_a_relation_that_was_edited_wrongly_is_refused(change: tuple[str, str], told: str) -> None:
    p = tg.Pipeline()
    rows = p | tg.Create([1]) | tg.Map(lambda n: tg.Row(n=n))
    rows | tg.Filter(tg.col("n", int) > 0) | tg.Map(print)
    text = dump(p.sealed(values=True))
    assert change[0] in text
    with pytest.raises((LoadError, tg.BuildError), match=told):
        plan(load(text.replace(*change)), Traits(parallel=False))


def test_the_graph_shows_what_relations_compute_and_their_columns() -> None:
    facts = {box.title: dict(box.facts) for box in graph_of(pipeline().portable()).boxes}
    assert {title: found["computes"] for title, found in facts.items() if "computes" in found} == {
        "Select(user, n)": "user, n",
        "Filter(n)": "where n > 0",
        "other": "where n < 9",
        "Join.on(user)": "left join on user == user, within -1 to 2 s",
        "GroupBy(user)": "sum(n) as n by user",
        "TopN(2)": "first 2 by n descending, user per user",
    }
    assert facts["TopN(2)"]["columns"] == "user string, n bigint, place bigint not null"

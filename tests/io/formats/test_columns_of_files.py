"""The columns of files are the schema of rows and dicts, so that expressions know them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg

TEXT = "user,price,qty,at\nada,1.5,3,2024-01-01T00:00:00Z\nmax,,2,2024-01-01T00:00:10Z\n"


@pytest.mark.parametrize("as_", [tg.Row, dict])
def test_the_columns_of_a_csv_file_are_those_of_its_records(tmp_path: Path, as_: Any) -> None:
    (tmp_path / "orders.csv").write_text(TEXT)
    orders = tg.Pipeline() | tg.io.ReadFromCsv(tmp_path / "*.csv", as_=as_)
    assert str(orders.schema) == "user string, price double, qty bigint, at timestamp"
    rows = orders | tg.Filter(tg.col("price") > 1) | tg.Select("user", year=tg.fn.year("at"))
    assert rows.collect() == [("ada", 2024)]
    with pytest.raises(tg.BuildError, match="no column 'cost'; it has user, price, qty, at"):
        orders | tg.Filter(tg.col("cost") > 1)


def test_the_columns_of_a_parquet_file_are_those_of_its_records_but_not_of_dead_letters(tmp_path: Path) -> None:
    struct = pa.struct([pa.field("a", pa.int8(), nullable=False), ("b", pa.list_(pa.string()))])
    columns = {
        "i": pa.array([1], pa.uint32()),
        "d": pa.array([Decimal("1.20")]),
        "s": pa.array(["x"]).dictionary_encode(),
        "m": pa.array([[("k", 1.5)]], pa.map_(pa.string(), pa.float32())),
        "r": pa.array([{"a": 1, "b": []}], struct),
        "t": pa.array([1], pa.time64("us")),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    good, bad = tg.Pipeline() | tg.io.ReadFromParquet(tmp_path / "a.parquet", bad_records="dead_letter")
    nested = "m map<string,double>, r struct<a:bigint not null,b:array<string>>"
    assert str(good.schema) == f"i bigint, d decimal(3,2), s string, {nested}, t unknown"
    assert good.pipeline.portable().collection(good.id).schema == good.schema
    assert "reason" in bad.schema.names


def test_declared_columns_are_the_schema(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text(TEXT)
    declared = {"user": str, "qty": float | None}
    orders = tg.Pipeline() | tg.io.ReadFromCsv(tmp_path / "orders.csv", schema=declared, columns=["qty", "user"])
    assert str(orders.schema) == "qty double, user string not null"


def test_declared_columns_are_the_schema_before_any_file_is_there(tmp_path: Path) -> None:
    declared: dict[str, Any] = {"at": datetime, "user": str, "qty": float | None}
    (tmp_path / "in").mkdir()
    follow: dict[str, Any] = {"follow": True, "allow_empty": True}
    visits = tg.Pipeline() | tg.io.ReadFromCsv(tmp_path / "in" / "*.csv", schema=declared, **follow)
    assert str(visits.schema) == "at timestamp not null, user string not null, qty double"
    (tmp_path / "in" / "a.csv").write_text("at,user\n")
    union = tg.Pipeline() | tg.io.ReadFromCsv(tmp_path / "in" / "*.csv", schema=declared, schema_evolution="union")
    assert union.schema == visits.schema


def test_decimals_have_the_digits_that_the_author_declares_and_else_those_of_the_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"price": pa.array([Decimal("1.2300"), Decimal("4.5600")])}), tmp_path / "a.parquet")

    def prices(hint: Any, **options: Any) -> Any:
        return tg.Pipeline("direct") | tg.io.ReadFromParquet(tmp_path / "*.parquet", schema={"price": hint}, **options)

    money = prices(Annotated[Decimal, "decimal(10,2)"])
    assert str(money.schema) == "price decimal(10,2) not null"
    assert [str(row.price) for row in money.collect()] == ["1.23", "4.56"]
    assert str(prices(Decimal).schema) == "price decimal(5,4) not null"
    assert prices(Decimal, schema_evolution="union").schema is None
    pq.write_table(pa.table({"price": pa.array([Decimal("1.2300"), Decimal("4.5678")])}), tmp_path / "a.parquet")
    with pytest.raises(tg.ReadError, match=r"a\.parquet, row 2, column 'price': .*4\.5678"):
        prices(Annotated[Decimal, "decimal(10,2)"]).collect()


def test_a_followed_file_that_states_its_columns_is_known_before_it_is_old_enough_to_be_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("n\n1\n")
    followed: dict[str, Any] = {"follow": True, "min_age": 3600}
    parquet = tg.Pipeline() | tg.io.ReadFromParquet(tmp_path / "*.parquet", **followed)
    csv = tg.Pipeline() | tg.io.ReadFromCsv(tmp_path / "*.csv", **followed)
    assert [str(parquet.schema), csv.schema] == ["n bigint", None]  # a line of text may be half written
    (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-9])
    assert (tg.Pipeline() | tg.io.ReadFromParquet(tmp_path / "*.parquet", **followed)).schema is None


def test_nested_types_are_known_from_files_alone(tmp_path: Path) -> None:
    pq.write_table(pa.table({"r": [{"a": 1, "b": 2}]}), tmp_path / "a.parquet")
    declared = pa.schema([("r", pa.struct([pa.field("a", pa.int64(), nullable=False), ("c", pa.string())]))])
    united = tg.Pipeline() | tg.io.ReadFromParquet(tmp_path / "*.parquet", schema=declared, schema_evolution="union")
    assert united.schema is None


def test_decimals_of_avro_have_the_declared_digits_and_unions_no_declared_type(tmp_path: Path) -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 4}

    def written(values: list[Any], kind: Any) -> Path:
        with open(tmp_path / "a.avro", "wb") as file:
            schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}]}
            fastavro.writer(file, schema, [{"x": value} for value in values])
        return tmp_path / "a.avro"

    def read(hint: Any, **options: Any) -> Any:
        return tg.Pipeline("direct") | tg.io.ReadFromAvro(tmp_path / "a.avro", schema={"x": hint}, **options)

    written([Decimal("1.2300"), Decimal("4.5000")], money)
    prices = read(Annotated[Decimal, "decimal(10,2)"])
    assert str(prices.schema) == "x decimal(10,2) not null"
    assert [str(row.x) for row in prices.collect()] == ["1.23", "4.50"]
    assert (prices | tg.Select(y=tg.col("x") * 2)).collect() == [(Decimal("2.46"),), (Decimal("9.00"),)]
    for value in (Decimal("1.2345"), Decimal("12345678.9")):
        written([value], money)
        with pytest.raises(tg.ReadError, match=r"column 'x': .* is no decimal\(9,2\)"):
            read(Annotated[Decimal, "decimal(9,2)"]).collect()
    written([1, "abc"], ["int", "string"])
    assert read(int, schema_evolution="union").schema is None


def test_whole_numbers_become_decimals_and_conditions_may_have_other_digits(tmp_path: Path) -> None:
    declared: dict[str, Any] = {"n": Annotated[Decimal, "decimal(5,2)"], "x": Annotated[Decimal, "decimal(10,2)"]}
    columns = {"n": pa.array([3, -4], pa.int32()), "x": pa.array([Decimal("1.0000"), Decimal("2.5000")])}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")

    def read(*where: tuple[str, str, Any]) -> list[str]:
        rows = tg.Pipeline("direct") | tg.io.ReadFromParquet(tmp_path / "a.parquet", schema=declared, where=where)
        return [f"{row.n} {row.x}" for row in rows.collect()]

    first, second = "3.00 1.00", "-4.00 2.50"
    assert read() == [first, second]
    assert read(("x", ">", Decimal("1.005"))) == [second]
    assert read(("x", "==", Decimal("1.005"))) == []
    assert read(("x", "<", Decimal("99999999999.5"))) == [first, second]
    assert read(("x", "in", [Decimal("1.005"), Decimal("2.5")])) == [second]
    assert read(("x", "not in", [Decimal("1.005"), Decimal("2.5")])) == [first]
    pq.write_table(pa.table({**columns, "n": pa.array([3, 1000], pa.int64())}), tmp_path / "a.parquet")
    with pytest.raises(tg.ReadError, match="row 2, column 'n'"):
        read()

"""Records written to files of every format are read back by other libraries."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import string
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tests.support.written_files import FORMATS, all_rows, exact, files_of, rows_in, rows_of, write, write_and_commit
from tidegate.io.file_sink.sink import FileSink
from tidegate.sdk.errors import BuildError, WriteError

UTC = dt.UTC
WRITERS: dict[str, Callable[..., Any]] = {
    "csv": tg.io.WriteToCsv,
    "json": tg.io.WriteToJson,
    "parquet": tg.io.WriteToParquet,
    "avro": tg.io.WriteToAvro,
    "arrow": tg.io.WriteToArrow,
}
BINARY = ("parquet", "avro", "arrow")


def sink_of(format: str, path: Any, schema: Any = None, **options: Any) -> FileSink:
    found: FileSink = WRITERS[format](path, schema, **options).sink
    return found


@dataclasses.dataclass
class City:
    name: str
    people: int


class Town(NamedTuple):
    name: str
    people: int


class Village(pydantic.BaseModel):
    name: str
    people: int


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("make", [tg.Row, dict, City, Town, Village])
def test_records_of_every_kind_are_rows(tmp_path: Path, format: str, make: Callable[..., Any]) -> None:
    records = [make(name="Kyoto", people=1_464_000), make(name="Göteborg", people=587_000)]
    write_and_commit(sink_of(format, f"{tmp_path}/part", num_shards=1), records)
    people = [1_464_000, 587_000] if format != "csv" else ["1464000", "587000"]
    assert all_rows(tmp_path, format) == [
        {"name": "Kyoto", "people": people[0]},
        {"name": "Göteborg", "people": people[1]},
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_records_of_several_kinds_may_be_mixed(tmp_path: Path, format: str) -> None:
    records = [City("a", 1), {"people": 2, "name": "b"}, Town("c", 3), tg.Row(people=4, name="d"), {"name": "e"}]
    write_and_commit(sink_of(format, f"{tmp_path}/part", num_shards=1), records, block=9)
    rows = all_rows(tmp_path, format)
    assert [row["name"] for row in rows] == ["a", "b", "c", "d", "e"]
    expected = ["1", "2", "3", "4", ""] if format == "csv" else [1, 2, 3, 4, None]
    assert [row.get("people") for row in rows] == expected


VALUES = {
    "text": st.text(string.printable + "äß💧", max_size=9) | st.none(),
    "whole": st.integers(-(2**63), 2**63 - 1) | st.none(),
    "real": st.floats(allow_nan=False, allow_infinity=False) | st.none(),
    "flag": st.booleans() | st.none(),
    "at": st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(UTC)) | st.none(),
    "day": st.dates(dt.date(1700, 1, 1), dt.date(2200, 1, 1)) | st.none(),
}
HINTS = {
    "text": str | None,
    "whole": int | None,
    "real": float | None,
    "flag": bool | None,
    "at": dt.datetime | None,
    "day": dt.date | None,
}


@given(
    tasks=st.lists(st.lists(st.fixed_dictionaries(VALUES), max_size=6), max_size=3),
    shards=st.integers(0, 2),
    format=st.sampled_from(BINARY),
)
def test_written_records_are_read_back_with_any_tasks_and_shards(
    tmp_path_factory: pytest.TempPathFactory, tasks: list[list[dict[str, Any]]], shards: int, format: str
) -> None:
    folder = tmp_path_factory.mktemp("out")
    write_and_commit(sink_of(format, f"{folder}/part", HINTS, num_shards=shards), *tasks)
    found = all_rows(folder, format)
    expected = [row for rows in tasks for row in rows]
    assert sorted(exact(found)) == sorted(exact(expected))
    assert len(rows_in(folder, format)) == (shards or max(1, sum(map(bool, tasks))))


@given(rows=st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=6))
def test_csv_is_read_back_with_empty_text_and_null_distinct(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("out")
    sink = sink_of("csv", f"{folder}/part", HINTS, num_shards=1, shard_name_template="")
    write_and_commit(sink, rows)
    read = pyarrow.csv.read_csv(
        folder / "part",
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=pa.schema([(f.name, f.type) for f in sink.format.schema]),  # type: ignore[attr-defined]
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    assert exact(read.to_pylist()) == exact(rows)


@given(rows=st.lists(st.fixed_dictionaries(VALUES), max_size=6))
def test_json_lines_are_read_back(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    folder = tmp_path_factory.mktemp("out")
    write_and_commit(sink_of("json", f"{folder}/part", num_shards=1), rows)
    found = all_rows(folder, "json")
    for row in found:
        row["at"] = row["at"] and dt.datetime.fromisoformat(row["at"])
        row["day"] = row["day"] and dt.date.fromisoformat(row["day"])
    assert exact(found) == exact(rows)


def test_columns_of_every_type_are_written_to_parquet_avro_and_arrow(tmp_path: Path) -> None:
    row = {
        "exact": Decimal("12.500000000"),
        "raw": b"\x00\xff",
        "clock": dt.time(23, 59, 59, 999999),
        "numbers": [1, 2, None],
        "by_name": {"a": 1.5},
        "city": {"name": "Kyoto", "people": 3},
    }

    @dataclasses.dataclass
    class All:
        exact: Decimal
        raw: bytes
        clock: dt.time
        numbers: list[int | None]
        by_name: dict[str, float]
        city: City

    for format in BINARY:
        element = All(**{**row, "city": City("Kyoto", 3)})  # type: ignore[arg-type]
        write_and_commit(sink_of(format, f"{tmp_path}/{format}/part", All), [element])
        (found,) = all_rows(tmp_path / format, format)
        if isinstance(found["by_name"], list):
            found["by_name"] = dict(found["by_name"])
        assert found == row, format


@pytest.mark.parametrize("format", FORMATS)
def test_instants_are_written_in_utc(tmp_path: Path, format: str) -> None:
    tokyo = dt.timezone(dt.timedelta(hours=9))
    at = dt.datetime(2013, 1, 1, 15, tzinfo=tokyo)
    rows: list[Any] = [{"at": at}, {"at": tg.Timestamp(at.timestamp())}, {"at": None}]
    write_and_commit(sink_of(format, f"{tmp_path}/part", num_shards=1), rows, block=1)
    found = [row["at"] for row in all_rows(tmp_path, format)]
    expected: list[Any] = [dt.datetime(2013, 1, 1, 6, tzinfo=UTC)] * 2 + [None]
    match format:
        case "csv":
            assert found == ["2013-01-01 06:00:00.000000Z", "2013-01-01 06:00:00.000000Z", ""]
            assert b'\n""\n' in next(iter(files_of(tmp_path).values()))
        case "json":
            assert found == ["2013-01-01T06:00:00Z", "2013-01-01T06:00:00Z", None]
        case _:
            assert found == expected


@pytest.mark.parametrize("format", FORMATS)
def test_a_naive_time_is_refused_unless_a_time_zone_is_given(tmp_path: Path, format: str) -> None:
    rows = [{"n": 1, "at": dt.datetime(2013, 7, 1, 8)}]
    with pytest.raises(WriteError, match=r"column 'at' of \{'n': 1, .*zone.*timezone="):
        write(sink_of(format, f"{tmp_path}/part"), "run", rows)
    sink = sink_of(format, f"{tmp_path}/part", timezone="Europe/Berlin")
    sink.abort("run")
    write_and_commit(sink, rows)
    (row,) = all_rows(tmp_path, format)
    assert str(row["at"]).startswith(("2013-07-01 06:00:00", "2013-07-01T06:00:00"))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("schema", "row", "message"),
    [
        ({"n": int}, {"n": "x"}, r"column 'n' of \{'n': 'x'\}: .*'x'"),
        ({"n": int}, {"n": 1.5}, r"column 'n' of \{'n': 1.5\}: .*1.5"),
        ({"n": int}, {"n": True}, r"column 'n' of \{'n': True\}: .*True"),
        ({"n": int}, {"n": 2**63}, r"column 'n' of "),
        ({"n": int}, {"n": None}, r"column 'n' of \{'n': None\}: .*None"),
        ({"n": str | None}, {"n": 3}, r"column 'n' of \{'n': 3\}: .*3"),
        ({"n": dt.date}, {"n": dt.datetime(2013, 1, 1, 8)}, r"column 'n' of "),
        ({"n": dt.datetime}, {"n": dt.date(2013, 1, 1)}, r"column 'n' of "),
        (
            {"n": int},
            {"n": 1, "m": 2},
            r"\{'n': 1, 'm': 2\} can't be written: it has a field 'm', which is no column: n",
        ),
        ({"n": int}, 7, r"7 can't be written: it has no named fields"),
    ],
)
def test_the_error_of_an_unsuitable_value_names_the_element_and_the_column(
    tmp_path: Path, format: str, schema: Any, row: Any, message: str
) -> None:
    good = {"n": 1}
    sink = sink_of(format, f"{tmp_path}/part", schema)
    with pytest.raises(WriteError, match=f"^{tmp_path}/part: {message}"):
        write(sink, "run", [good, row] if schema == {"n": int} else [row])
    sink.abort("run")
    assert files_of(tmp_path) == {}


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "json"])
def test_the_error_of_a_value_of_another_type_than_the_first_ones_asks_for_a_schema(
    tmp_path: Path, format: str
) -> None:
    sink = sink_of(format, f"{tmp_path}/part")
    attempt = sink.attempt("run", 0)
    attempt.write([{"n": 1}])
    try:
        attempt.write([{"n": n} for n in range(2000)])
        attempt.write([{"n": "x"}])
        with pytest.raises(WriteError, match=r"column 'n' of \{'n': 'x'\}.*with schema="):
            attempt.prepare()
    finally:
        attempt.close()


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "json"])
def test_a_column_that_the_first_elements_lack_asks_for_a_schema(tmp_path: Path, format: str) -> None:
    attempt = sink_of(format, f"{tmp_path}/part").attempt("run", 0)
    try:
        attempt.write([{"n": n} for n in range(10_000)])
        attempt.write([{"n": 1, "m": 2}])
        with pytest.raises(WriteError) as caught:
            attempt.prepare()
    finally:
        attempt.close()
    assert str(caught.value) == (
        f"{tmp_path}/part: {{'n': 1, 'm': 2}} can't be written: it has a field 'm', which is no column: n. The columns "
        "are those of the first elements: give all of them with schema="
    )


@pytest.mark.parametrize("format", ["csv", "json", "parquet", "arrow"])
def test_a_column_that_starts_with_nulls_gets_its_type_from_the_first_value(tmp_path: Path, format: str) -> None:
    rows: list[Any] = [{"n": n, "m": None if n < 3000 else f"m{n}"} for n in range(4000)]
    write_and_commit(sink_of(format, f"{tmp_path}/part"), rows, block=1500)
    found = all_rows(tmp_path, format)
    assert [row["m"] or None for row in found] == [row["m"] for row in rows]


def test_a_value_in_a_column_without_a_type_in_the_open_file_asks_for_a_schema(tmp_path: Path) -> None:
    sink = sink_of("parquet", f"{tmp_path}/part", row_group_buffer_size=1)
    with pytest.raises(WriteError, match=r"had no value in the first elements.*Give the types with schema="):
        write(sink, "run", [{"n": 1, "m": None}] * 1500 + [{"n": 1, "m": "x"}], block=1500)


def test_values_that_json_cannot_represent_are_refused(tmp_path: Path) -> None:
    for value, reason in [
        (float("nan"), "Out of range float values are not JSON compliant"),
        (b"x", "bytes have no form in JSON"),
        ({1, 2}, r"\{1, 2\}, a set, has no form in JSON"),
        ("\ud800", "surrogates not allowed"),
    ]:
        with pytest.raises(WriteError, match=rf"/part: column 'v' of \{{'v': .*{reason}"):
            write(sink_of("json", f"{tmp_path}/part"), "run", [{"w": 1, "v": 2}, {"v": value}])


def test_records_inside_records_are_objects_in_json(tmp_path: Path) -> None:
    rows = [{"town": Town("a", 1), "all": [Town("b", 2), (3, 4)], "city": City("c", 5), "day": dt.date(2013, 1, 1)}]
    write_and_commit(sink_of("json", f"{tmp_path}/part"), rows)
    assert all_rows(tmp_path, "json") == [
        {
            "town": {"name": "a", "people": 1},
            "all": [{"name": "b", "people": 2}, [3, 4]],
            "city": {"name": "c", "people": 5},
            "day": "2013-01-01",
        }
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_no_elements_give_one_valid_file(tmp_path: Path, format: str) -> None:
    write_and_commit(sink_of(format, f"{tmp_path}/typed", {"n": int}))
    write_and_commit(sink_of(format, f"{tmp_path}/inferred"))
    assert {name: rows_of(data, format) for name, data in files_of(tmp_path).items()} == {
        "inferred-00000-of-00001": [],
        "typed-00000-of-00001": [],
    }
    typed = (tmp_path / "typed-00000-of-00001").read_bytes()
    match format:
        case "csv":
            assert typed == b'"n"\n'
        case "parquet":
            assert pq.read_schema(pa.BufferReader(typed)).names == ["n"]
        case "arrow":
            assert pa.ipc.open_file(typed).schema.names == ["n"]


CODECS = [
    ("csv", "gzip"),
    ("csv", "zstd"),
    ("json", "gzip"),
    ("json", "xz"),
    *(("parquet", codec) for codec in ("none", "snappy", "gzip", "zstd", "lz4", "brotli")),
    *(("avro", codec) for codec in ("null", "deflate", "zstandard", "bzip2")),
    *(("arrow", codec) for codec in ("none", "lz4", "zstd")),
]


@pytest.mark.parametrize(("format", "codec"), CODECS)
def test_files_are_compressed_with_the_given_codec(tmp_path: Path, format: str, codec: str) -> None:
    if codec == "zstandard":
        pytest.importorskip("backports.zstd")
    option = {"compression" if format in ("csv", "json") else "codec": codec}
    rows = [{"text": "tide" * 50} for _ in range(500)]
    write_and_commit(sink_of(format, f"{tmp_path}/part", num_shards=1, **option), rows[:200], rows[200:], block=100)
    (data,) = files_of(tmp_path).values()
    assert (len(data) < 20_000) == (codec not in ("none", "null") or format == "parquet")
    if format in ("csv", "json"):
        from tidegate.io.compression import decompressing

        data = decompressing(io.BytesIO(data), codec).read()  # type: ignore[arg-type]
    elif format == "parquet":
        used = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0).compression
        assert used == {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    elif format == "avro":
        assert fastavro.reader(io.BytesIO(data)).metadata["avro.codec"] == codec
    assert rows_of(data, format) == rows


def test_the_suffix_chooses_the_compression_of_text_formats(tmp_path: Path) -> None:
    for format in ("csv", "json"):
        write_and_commit(
            sink_of(format, f"{tmp_path}/{format}", file_name_suffix=".gz", num_shards=1), [{"n": 1}], [{"n": 2}]
        )
        (data,) = [data for name, data in files_of(tmp_path).items() if name.startswith(format)]
        assert data[:2] == b"\x1f\x8b"
        assert [str(row["n"]) for row in rows_of(data, format)] == ["1", "2"]


def test_an_avro_schema_is_used_unchanged(tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "Sale",
        "namespace": "shop",
        "fields": [{"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["TEA", "JAM"]}}],
    }
    write_and_commit(sink_of("avro", f"{tmp_path}/part", schema), [tg.Row(kind="JAM")])
    (data,) = files_of(tmp_path).values()
    found = fastavro.reader(io.BytesIO(data))
    assert list(found) == [{"kind": "JAM"}]
    assert found.writer_schema["name"] == "shop.Sale"
    with pytest.raises(WriteError, match=r"column 'kind' of .*'MILK'"):
        write(sink_of("avro", f"{tmp_path}/part", schema), "run", [tg.Row(kind="MILK")])


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_files_of_tasks_that_inferred_different_types_are_joined_with_a_common_type(
    tmp_path: Path, format: str
) -> None:
    sink = sink_of(format, f"{tmp_path}/part", num_shards=1)
    write_and_commit(sink, [{"n": 1, "m": None}], [{"n": 2.5, "m": "x"}], [{"n": 3}])
    assert all_rows(tmp_path, format) == [{"n": 1.0, "m": None}, {"n": 2.5, "m": "x"}, {"n": 3.0, "m": None}]
    with pytest.raises(WriteError, match="Give the types with schema="):
        write_and_commit(sink, [{"n": 1}], [{"n": "x"}])


def test_tasks_that_inferred_different_columns_cannot_share_a_csv_file(tmp_path: Path) -> None:
    sink = sink_of("csv", f"{tmp_path}/part", num_shards=1)
    with pytest.raises(WriteError, match="two tasks wrote different headers"):
        write_and_commit(sink, [{"n": 1}], [{"m": 1}])


def test_the_types_of_an_arrow_schema_are_kept(tmp_path: Path) -> None:
    schema = pa.schema(
        [("small", pa.int8()), ("at", pa.timestamp("ms", "UTC")), ("word", pa.dictionary(pa.int32(), pa.string()))]
    )
    rows = [{"small": 1, "at": dt.datetime(2013, 1, 1, tzinfo=UTC), "word": "a"}]
    write_and_commit(sink_of("arrow", f"{tmp_path}/part", schema), rows)
    (data,) = files_of(tmp_path).values()
    assert pa.ipc.open_file(data).schema.equals(schema)
    for row, reason in [
        ({"small": 300}, "300 doesn't fit int8"),
        ({"at": dt.datetime(2013, 1, 1, 0, 0, 0, 1, tzinfo=UTC)}, "doesn't fit timestamp"),
    ]:
        with pytest.raises(WriteError, match=reason):
            write(sink_of("arrow", f"{tmp_path}/part", schema), "other", [{**rows[0], **row}])


@pytest.mark.parametrize(
    ("format", "options", "message"),
    [
        ("parquet", {"codec": "zip"}, "WriteToParquet: codec is one of 'none', 'snappy', "),
        ("avro", {"codec": "gzip"}, "WriteToAvro: codec is one of 'null', 'deflate', "),
        ("arrow", {"codec": "gzip"}, "WriteToArrow: codec is one of 'none', 'lz4', 'zstd', not 'gzip'"),
        ("csv", {"delimiter": ",,"}, "WriteToCsv: delimiter is one ASCII character, such as ',', not ',,'"),
        ("csv", {"compression": "zip"}, "WriteToCsv: zip files are only read"),
        ("csv", {"schema": {"n": list[int]}}, "WriteToCsv: column 'n' is list<"),
        ("json", {"compression": "no"}, "WriteToJson: compression is one of"),
        ("parquet", {"schema": {"n": dt.timedelta}}, "WriteToParquet: column 'n' is duration"),
        ("avro", {"schema": {"a-b": int}}, "WriteToAvro: column 'a-b': Avro's names have"),
        ("avro", {"schema": {"type": "record", "fields": 3}}, "WriteToAvro: this is no Avro schema"),
        (
            "avro",
            {"schema": {"type": "record", "name": "R", "fields": [{"name": "n", "type": "integer"}]}},
            "Avro schema",
        ),
        ("parquet", {"schema": "n: int"}, "WriteToParquet: schema is a dict of names"),
        ("parquet", {"row_group_buffer_size": 0}, "WriteToParquet: row_group_buffer_size is a number of bytes"),
        (
            "parquet",
            {"max_file_bytes": 0},
            "WriteToParquet: max_file_bytes is a whole number of bytes from 1 on, not 0",
        ),
        ("parquet", {"max_file_bytes": 9, "num_shards": 1}, "num_shards=1 fixes the number of files"),
        ("json", {"roll_interval": -1}, "WriteToJson: roll_interval is a length of time"),
        ("json", {"roll_interval": "a minute"}, "WriteToJson: roll_interval is a length of time"),
        ("json", {"timezone": "Mars/Base"}, "WriteToJson: there is no time zone 'Mars/Base'"),
    ],
)
def test_output_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, format: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(BuildError) as caught:
        sink_of(format, f"{tmp_path}/part", **options).check()
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []

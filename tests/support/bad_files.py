"""Files with bad records, in every format: which elements are read from them, and what is reported for the others."""

from __future__ import annotations

import datetime
import gzip
import io
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg
from tests.support.record_files import arrow, avro, csv_file, parquet


@dataclass(frozen=True)
class Letter:
    """A dead letter: the name of the file, the line or row, the column, and a part of the reason."""

    file: str
    number: int | None
    column: str | None
    reason: str


@dataclass(frozen=True)
class BadFiles:
    """Files by their names, the transform and the options to read them, the values of the column `a` of good records,
    and the dead letters."""

    read: Callable[..., Any]
    files: Mapping[str, bytes]
    good: Sequence[Any]
    letters: Sequence[Letter]
    options: Mapping[str, Any] = field(default_factory=dict)


def _table(*columns: tuple[str, Any]) -> Any:
    return pa.table(dict(columns))


def _parquet(table: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, version="2.6")
    return buffer.getvalue()


def _arrow(table: Any) -> bytes:
    buffer = io.BytesIO()
    with pa.ipc.new_file(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def _avro(records: Sequence[dict[str, Any]], *, codec: str = "null", block: int = 16, **types: Any) -> bytes:
    fields = [{"name": name, "type": type} for name, type in types.items()]
    return avro(records, block, {"type": "record", "name": "R", "fields": fields}, codec)


def _time(logical: str) -> dict[str, str]:
    return {"type": "long", "logicalType": logical}


INT = {"a": int}
ROWS = [{"a": 1}, {"a": 2}, {"a": 3}]
NANOS = pa.array([1_000, 2_001, 3_000], pa.timestamp("ns", "UTC"))
NAIVE = pa.array([1_000, 2_000, 3_000], pa.timestamp("us"))
NOT_UTF8 = pa.array([b"x", b"\xff", b"z"], pa.binary()).view(pa.string())
INSTANTS = [datetime.datetime(2013, 1, 1, hour, tzinfo=datetime.UTC) for hour in range(3)]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
AT = {"a": datetime.datetime}
TEXT = {"a": str}


def _csv(text: str | bytes, good: Sequence[Any], *letters: Letter, schema: Any = INT, **options: Any) -> BadFiles:
    data = text if isinstance(text, bytes) else text.encode()
    return BadFiles(tg.io.ReadFromCsv, {"1.csv": data}, good, letters, {"schema": schema, **options})


def _json(text: str | bytes, good: Sequence[Any], *letters: Letter, schema: Any = INT, **options: Any) -> BadFiles:
    data = text if isinstance(text, bytes) else text.encode()
    return BadFiles(tg.io.ReadFromJson, {"1.jsonl": data}, good, letters, {"schema": schema, **options})


TEXTS = [random.Random(n).randbytes(60).hex().encode() for n in range(4_000)]
LINES = b"".join(b"%d,%s\n" % each for each in enumerate(TEXTS))
OBJECTS = b"".join(b'{"a": %d, "b": "%s"}\n' % each for each in enumerate(TEXTS))


def _truncated(data: bytes) -> tuple[bytes, int]:
    """The beginning of gzipped lines, and how many whole lines it has."""
    cut = gzip.compress(data, mtime=0)
    cut = cut[: len(cut) * 2 // 3]
    return cut, zlib.decompressobj(31).decompress(cut).count(b"\n")


_CSV_GZ, _CSV_WHOLE = _truncated(b"a,b\n" + LINES)
_JSON_GZ, _JSON_WHOLE = _truncated(OBJECTS)

CASES: dict[str, BadFiles] = {
    "broken JSON": _json('{"a": 1}\n{"a": 2,\n{"a": 3}\n', [1, 3], Letter("1.jsonl", 2, None, "it is not JSON")),
    "broken JSON, read as dicts": _json(
        '{"a": 1}\n{"a": 2,\n{"a": 3}\n', [1, 3], Letter("1.jsonl", 2, None, "it is not JSON"), schema=None
    ),
    "wrong type in CSV": _csv("a\n1\ntwo\n3\n", [1, 3], Letter("1.csv", 3, "a", "invalid value 'two'")),
    "wrong type in JSON": _json(
        '{"a": 1}\n{"a": "2"}\n{"a": 3}\n', [1, 3], Letter("1.jsonl", 2, "a", "it is a string, where a number")
    ),
    "wrong type in Parquet": BadFiles(
        tg.io.ReadFromParquet,
        {"1.parquet": parquet(ROWS), "2.parquet": parquet([{"a": "x"}])},
        [1, 2, 3],
        [Letter("2.parquet", None, "a", "it is string in the file, and the schema says int64")],
        {"schema": INT},
    ),
    "wrong type in Arrow": BadFiles(
        tg.io.ReadFromArrow,
        {"1.arrow": arrow(ROWS), "2.arrow": arrow([{"a": "x"}])},
        [1, 2, 3],
        [Letter("2.arrow", None, "a", "it is string in the file, and the schema says int64")],
        {"schema": INT},
    ),
    "wrong type in Avro": BadFiles(
        tg.io.ReadFromAvro,
        {"1.avro": _avro(ROWS, a="long"), "2.avro": _avro([{"a": "x"}], a="string")},
        [1, 2, 3],
        [Letter("2.avro", None, "a", "it is string in the file, and the schema says int64")],
        {"schema": INT},
    ),
    "null in CSV": _csv("a,b\n1,x\n,y\n3,z\n", [1, 3], Letter("1.csv", 3, "a", "it is null"), schema={**INT, "b": str}),
    "null in JSON": _json('{"a": 1}\n{"a": null}\n{"a": 3}\n', [1, 3], Letter("1.jsonl", 2, "a", "it is null")),
    "null in Parquet": BadFiles(
        tg.io.ReadFromParquet,
        {"1.parquet": parquet([{"a": 1}, {"a": None}, {"a": 3}])},
        [1, 3],
        [Letter("1.parquet", 2, "a", "it is null, and the schema doesn't allow that")],
        {"schema": INT},
    ),
    "null in Arrow": BadFiles(
        tg.io.ReadFromArrow,
        {"1.arrow": arrow([{"a": 1}, {"a": None}, {"a": 3}])},
        [1, 3],
        [Letter("1.arrow", 2, "a", "it is null, and the schema doesn't allow that")],
        {"schema": INT},
    ),
    "null in Avro": BadFiles(
        tg.io.ReadFromAvro,
        {"1.avro": _avro([{"a": 1}, {"a": None}, {"a": 3}], a=["null", "long"])},
        [1, 3],
        [Letter("1.avro", 2, "a", "it is null, and the schema doesn't allow that")],
        {"schema": INT},
    ),
    "not UTF-8 in CSV": _csv(
        b"a\nx\n\xff\nz\n", ["x", "z"], Letter("1.csv", 3, None, "0xff is not utf-8"), schema=TEXT
    ),
    "not UTF-8 in JSON": _json(
        b'{"a": "x"}\n{"a": "\xff"}\n{"a": "z"}\n',
        ["x", "z"],
        Letter("1.jsonl", 2, None, "0xff is not utf-8"),
        schema=TEXT,
    ),
    "not UTF-8 in Parquet": BadFiles(
        tg.io.ReadFromParquet,
        {"1.parquet": _parquet(_table(("a", NOT_UTF8)))},
        ["x", "z"],
        [Letter("1.parquet", 2, "a", "invalid start byte")],
    ),
    "not UTF-8 in Arrow": BadFiles(
        tg.io.ReadFromArrow,
        {"1.arrow": _arrow(_table(("a", NOT_UTF8)))},
        ["x", "z"],
        [Letter("1.arrow", 2, "a", "invalid start byte")],
    ),
    "not UTF-8 in Avro": BadFiles(
        tg.io.ReadFromAvro,
        {
            "1.avro": _avro([{"a": "one"}, {"a": "two"}, {"a": "six"}], block=1, a="string").replace(
                b"two", b"\xff\xffo"
            )
        },
        ["one", "six"],
        [Letter("1.avro", 2, None, "can't be read: UnicodeDecodeError")],
    ),
    "truncated Parquet": BadFiles(
        tg.io.ReadFromParquet,
        {"1.parquet": parquet(ROWS), "2.parquet": parquet(ROWS)[:-20]},
        [1, 2, 3],
        [Letter("2.parquet", None, None, "not a valid Parquet file")],
    ),
    "truncated Arrow": BadFiles(
        tg.io.ReadFromArrow,
        {"1.arrow": arrow(ROWS), "2.arrow": arrow(ROWS)[:-20]},
        [1, 2, 3],
        [Letter("2.arrow", None, None, "not a valid Arrow file")],
    ),
    "truncated Avro": BadFiles(
        tg.io.ReadFromAvro,
        {"1.avro": _avro(ROWS, block=1, a="long")[:-9]},
        [1, 2],
        [Letter("1.avro", 3, None, "can't be read")],
    ),
    "truncated gzip of CSV": BadFiles(
        tg.io.ReadFromCsv,
        {"1.csv.gz": _CSV_GZ},
        range(_CSV_WHOLE - 1),
        [Letter("1.csv.gz", _CSV_WHOLE + 1, None, "EOFError: it is truncated")],
        {"schema": INT},
    ),
    "truncated gzip of JSON": BadFiles(
        tg.io.ReadFromJson,
        {"1.jsonl.gz": _JSON_GZ},
        range(_JSON_WHOLE),
        [Letter("1.jsonl.gz", _JSON_WHOLE + 1, None, "EOFError: it is truncated")],
        {"schema": INT},
    ),
    "gzip that ends in the header of CSV": BadFiles(
        tg.io.ReadFromCsv,
        {"1.csv": b"a\n1\n", "2.csv.gz": gzip.compress(b"a\n2\n")[:12]},
        [1],
        [Letter("2.csv.gz", None, None, "EOFError: it is truncated")],
        {"schema": INT},
    ),
    "quotes and line breaks in CSV": _csv(
        'a,b\n1,"x, ""y""\nz"\ntwo,"\n\n"\n3,"\r\n"\n4,y\n',
        [1, 3, 4],
        Letter("1.csv", 4, "a", "invalid value 'two'"),
        schema={**INT, "b": str},
    ),
    "a quote in CSV that is never closed": _csv(
        'a,b\n1,x\n2,"y\n3,z\n',
        [1],
        Letter("1.csv", 3, None, "a quote that opens here or later is never closed"),
        schema={**INT, "b": str},
    ),
    "a value in CSV that is too long": _csv(
        f"a,b\n1,x\n2,{'y' * 600_000}\n3,z\n",
        [1, 3],
        Letter("1.csv", 3, None, "it has more than 300,000 bytes (max_record_bytes)"),
        schema={**INT, "b": str},
        max_record_bytes=300_000,
    ),
    "a value in JSON that is too long": _json(
        f'{{"a": 1}}\n{{"a": 2, "b": "{"y" * 600_000}"}}\n{{"a": 3}}\n',
        [1, 3],
        Letter("1.jsonl", 2, None, "it has more than 300,000 bytes (max_record_bytes)"),
        max_record_bytes=300_000,
    ),
    "another header of CSV": BadFiles(
        tg.io.ReadFromCsv,
        {"1.csv": csv_file([{"a": 1, "b": 2}]), "2.csv": csv_file([{"a": 1, "c": 2}]), "3.csv": b"b,a\n5,6\n"},
        [1, 6],
        [Letter("2.csv", None, "c", "1.csv doesn't have it")],
    ),
    "another header of CSV than the schema": BadFiles(
        tg.io.ReadFromCsv,
        {"1.csv": csv_file(ROWS), "2.csv": b"b\n1\n"},
        [1, 2, 3],
        [Letter("2.csv", None, "a", "it is missing, and the schema doesn't allow it to be null")],
        {"schema": INT},
    ),
    "another Avro schema": BadFiles(
        tg.io.ReadFromAvro,
        {"1.avro": _avro(ROWS, a="long"), "2.avro": _avro([{"b": 1}], b="long")},
        [1, 2, 3],
        [Letter("2.avro", None, "b", "1.avro doesn't have it")],
    ),
    "another Avro schema than the reader's": BadFiles(
        tg.io.ReadFromAvro,
        {"1.avro": _avro(ROWS, a="long"), "2.avro": _avro([{"a": "x"}], a="string")},
        [1, 2, 3],
        [Letter("2.avro", 1, None, "can't be read")],
        {"reader_schema": {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}},
    ),
    "a naive time in CSV": _csv(
        "a\n2013-01-01T00:00:00Z\n2013-01-01 01:00:00\n2013-01-01T02:00:00Z\n",
        [INSTANTS[0], INSTANTS[2]],
        Letter("1.csv", 3, "a", "expected a zone offset"),
        schema=AT,
    ),
    "a naive time in JSON": _json(
        '{"a": "2013-01-01T00:00:00Z"}\n{"a": "2013-01-01T01:00:00"}\n{"a": "2013-01-01T02:00:00Z"}\n',
        [INSTANTS[0], INSTANTS[2]],
        Letter("1.jsonl", 2, "a", "expected a zone offset"),
        schema=AT,
    ),
    "naive times in Parquet": BadFiles(
        tg.io.ReadFromParquet,
        {"1.parquet": _parquet(_table(("a", INSTANTS))), "2.parquet": _parquet(_table(("a", NAIVE)))},
        INSTANTS,
        [Letter("2.parquet", None, "a", "it is timestamp[us], and timestamp[us, tz=UTC] in")],
    ),
    "naive times in Arrow": BadFiles(
        tg.io.ReadFromArrow,
        {"1.arrow": _arrow(_table(("a", INSTANTS))), "2.arrow": _arrow(_table(("a", NAIVE)))},
        INSTANTS,
        [Letter("2.arrow", None, "a", "it is timestamp[us], and timestamp[us, tz=UTC] in")],
    ),
    "naive times in Avro": BadFiles(
        tg.io.ReadFromAvro,
        {
            "1.avro": _avro([{"a": each} for each in INSTANTS], a=_time("timestamp-micros")),
            "2.avro": _avro([{"a": each} for each in INSTANTS], a=_time("local-timestamp-micros")),
        },
        INSTANTS,
        [Letter("2.avro", None, "a", "it is timestamp[us], and timestamp[us, tz=UTC] in")],
    ),
    "nanoseconds in CSV": _csv(
        "a\n2013-01-01T00:00:00Z\n2013-01-01T01:00:00.000000001Z\n2013-01-01T02:00:00Z\n",
        [INSTANTS[0], INSTANTS[2]],
        Letter("1.csv", 3, "a", "can't be converted"),
        schema=AT,
    ),
    "nanoseconds in JSON": _json(
        '{"a": "2013-01-01T00:00:00Z"}\n{"a": "2013-01-01T01:00:00.000000001Z"}\n{"a": "2013-01-01T02:00:00Z"}\n',
        [INSTANTS[0], INSTANTS[2]],
        Letter("1.jsonl", 2, "a", "as timestamp[us, tz=UTC]"),
        schema=AT,
    ),
    "nanoseconds in Parquet": BadFiles(
        tg.io.ReadFromParquet,
        {"1.parquet": _parquet(_table(("a", NANOS)))},
        [EPOCH + datetime.timedelta(microseconds=n) for n in (1, 3)],
        [Letter("1.parquet", 2, "a", "would lose data")],
    ),
    "nanoseconds in Arrow": BadFiles(
        tg.io.ReadFromArrow,
        {"1.arrow": _arrow(_table(("a", NANOS)))},
        [EPOCH + datetime.timedelta(microseconds=n) for n in (1, 3)],
        [Letter("1.arrow", 2, "a", "would lose data")],
    ),
    "nanoseconds in Avro": BadFiles(
        tg.io.ReadFromAvro,
        {
            "1.avro": _avro([{"a": each} for each in INSTANTS], a=_time("timestamp-micros")),
            "2.avro": _avro([{"a": 1}], a=_time("timestamp-nanos")),
        },
        INSTANTS,
        [Letter("2.avro", None, "a", "its logical type is timestamp-nanos")],
    ),
}

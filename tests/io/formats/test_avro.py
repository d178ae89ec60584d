"""Avro schemas: the writer's, the reader's, and differing ones of several files."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.record_files import avro, elements_of, write


def schema(*fields: tuple[Any, ...]) -> dict[str, Any]:
    named = [{"name": name, "type": type, **(rest[0] if rest else {})} for name, type, *rest in fields]
    return {"type": "record", "name": "Visit", "fields": named}


OLD = schema(("id", "int"), ("url", "string"))
NEW = schema(("id", "long"), ("page", "string"), ("size", "double"))


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [
        write(tmp_path / "old.avro", avro([{"id": 1, "url": "x"}], schema=OLD)),
        write(tmp_path / "new.avro", avro([{"id": 2**40, "page": "y", "size": 2.5}], schema=NEW)),
    ]


def test_a_different_schema_of_the_writer_is_refused_with_the_column(paths: list[Path]) -> None:
    with pytest.raises(tg.ReadError, match=r"new.avro, column 'page': \S+old.avro doesn't have it"):
        elements_of(tg.io.ReadFromAvro(paths))


def test_different_schemas_are_united_by_column_name(paths: list[Path]) -> None:
    united = elements_of(tg.io.ReadFromAvro(paths, as_=dict, schema_evolution="union"))
    assert united == [
        {"id": 1, "url": "x", "page": None, "size": None},
        {"id": 2**40, "url": None, "page": "y", "size": 2.5},
    ]


def test_the_schema_of_the_reader_is_resolved_by_avros_rules(paths: list[Path]) -> None:
    reader_schema = schema(
        ("id", "double"), ("page", "string", {"aliases": ["url"]}), ("size", ["null", "double"], {"default": None})
    )
    for given in (reader_schema, json.dumps(reader_schema)):
        found = elements_of(tg.io.ReadFromAvro(paths, reader_schema=given))
        assert found == [(1.0, "x", None), (2.0**40, "y", 2.5)]
    assert elements_of(tg.io.ReadFromAvro(paths, reader_schema=reader_schema, columns=["page"])) == [("x",), ("y",)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{", "reader_schema is an Avro schema, as JSON or as a dict"),
        ({"type": "rec"}, "reader_schema is no Avro schema"),
    ],
)
def test_an_invalid_schema_is_refused(given: Any, message: str, paths: list[Path]) -> None:
    with pytest.raises(tg.BuildError, match=message):
        elements_of(tg.io.ReadFromAvro(paths, reader_schema=given))


def test_local_timestamps_need_a_time_zone(tmp_path: Path) -> None:
    kind = {"type": "long", "logicalType": "local-timestamp-micros"}
    time = datetime.datetime(2013, 7, 1, 12)
    path = write(tmp_path / "it.avro", avro([{"at": time}], schema=schema(("at", kind))))
    with pytest.raises(tg.BuildError, match="column 'at': its times have no time zone"):
        elements_of(tg.io.ReadFromAvro(path))
    (row,) = elements_of(tg.io.ReadFromAvro(path, timezone="Europe/Berlin"))
    assert row.at == datetime.datetime(2013, 7, 1, 10, tzinfo=datetime.UTC)


def test_nested_and_named_types_are_read(tmp_path: Path) -> None:
    place = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}
    kinds = schema(
        ("place", place),
        ("other", ["null", "Place"]),
        ("tags", {"type": "array", "items": "string"}),
        ("counts", {"type": "map", "values": "int"}),
        ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
        ("either", ["int", "string"]),
    )
    record = {"place": {"city": "Ulm"}, "other": None, "tags": ["x"], "counts": {"a": 1}, "kind": "B", "either": "s"}
    path = write(tmp_path / "it.avro", avro([record], schema=kinds))
    assert elements_of(tg.io.ReadFromAvro(path, as_=dict)) == [record]


def test_a_file_that_is_not_avro_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tg.BuildError, match=r"it.avro: not an Avro file"):
        elements_of(tg.io.ReadFromAvro(write(tmp_path / "it.avro", b"no avro")))

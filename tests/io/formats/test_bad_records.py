"""Bad records: an error that names the file, the line or row, and the column; or a dead letter."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.support.record_files import avro, elements_of, write
from tidegate.io.file_source import pieces


def divided(read: Any, **options: Any) -> tuple[list[Any], list[tuple[int | None, str | None, str]]]:
    found = elements_of(read, **options)
    bad = [each for each in found if isinstance(each, tg.io.BadRecord)]
    return [each for each in found if each not in bad], [(each.line_or_row, each.column, each.reason) for each in bad]


def csv(tmp_path: Path, text: str | bytes, **options: Any) -> Any:
    path = write(tmp_path / "it.csv", text.encode() if isinstance(text, str) else text)
    return tg.io.ReadFromCsv(path, **{"as_": dict, **options})


def json(tmp_path: Path, text: str | bytes, **options: Any) -> Any:
    path = write(tmp_path / "it.jsonl", text.encode() if isinstance(text, str) else text)
    return tg.io.ReadFromJson(path, **{"as_": dict, **options})


NUMBERS = {"a": int, "b": str}

CSV_CASES = {
    "a value of another type": (
        "a,b\n1,x\ntwo,y\n3,z\n",
        3,
        "a",
        "it can't be converted to int64: invalid value 'two'",
    ),
    "too few values": ("a,b\n1,x\n2\n3,z\n", 3, None, "Expected 2 columns, got 1"),
    "too many values": ("a,b\n1,x\n2,y,z\n3,z\n", 3, None, "Expected 2 columns, got 3"),
    "null in a required column": ("a,b\n1,x\n,y\n3,z\n", 3, "a", "it is null, and the schema doesn't allow that"),
    "bytes that are not UTF-8": (b"a,b\n1,x\n2,\xff\n3,z\n", 3, None, "0xff is not utf-8"),
    "after a quoted line break": ('a,b\n1,"x\n\n"\ntwo,y\n3,z\n', 5, "a", "it can't be converted to int64"),
    "after an empty line": ("a,b\n1,x\n\ntwo,y\n3,z\n", 4, "a", "it can't be converted to int64"),
    "with Windows line ends": ("a,b\r\n1,x\r\ntwo,y\r\n3,z\r\n", 3, "a", "it can't be converted to int64"),
}


@pytest.mark.parametrize("case", CSV_CASES)
def test_a_bad_record_of_csv_is_reported_with_line_and_column(case: str, tmp_path: Path) -> None:
    text, line, column, reason = CSV_CASES[case]
    expected = f"it.csv, line {line}{f', column {column!r}' if column else ''}: {reason}"
    with pytest.raises(tg.ReadError) as caught:
        elements_of(csv(tmp_path, text, schema=NUMBERS))
    assert expected in str(caught.value)
    good, bad = divided(csv(tmp_path, text, schema=NUMBERS, bad_records="dead_letter"))
    assert [each["a"] for each in good] == [1, 3]
    assert [(at, name) for at, name, _ in bad] == [(line, column)]
    assert bad[0][2].startswith(reason)


JSON_CASES = {
    "broken": ('{"a": 1, "b": "x"}\n{"a": 2,\n{"a": 3, "b": "z"}\n', None, "it is not JSON"),
    "no object": ('{"a": 1, "b": "x"}\n[2]\n{"a": 3, "b": "z"}\n', None, "a line holds one JSON object, not [2]"),
    "two objects": ('{"a": 1, "b": "x"}\n{"a":2}{"a":4}\n{"a": 3, "b": "z"}\n', None, "it is not JSON: Extra data"),
    "not UTF-8": (b'{"a": 1, "b": "x"}\n{"a": 2, "b": "\xff"}\n{"a": 3, "b": "z"}\n', None, "0xff is not utf-8"),
    "half an object": ('{"a": 1, "b": "x"}\n{"a": 2\n{"a": 3, "b": "z"}\n', None, "it is not JSON"),
}
TYPED_CASES = {
    "another type": ('{"a": 1, "b": "x"}\n{"a": "2", "b": "y"}\n{"a": 3, "b": "z"}\n', "a", "it is a string, where a"),
    "null": ('{"a": 1, "b": "x"}\n{"a": null, "b": "y"}\n{"a": 3, "b": "z"}\n', "a", "it is null"),
    "missing": ('{"a": 1, "b": "x"}\n{"b": "y"}\n{"a": 3, "b": "z"}\n', "a", "it is null"),
    "a float": (
        '{"a": 1, "b": "x"}\n{"a": 2.5, "b": "y"}\n{"a": 3, "b": "z"}\n',
        "a",
        "Failed to convert JSON to int64",
    ),
}


@pytest.mark.parametrize("schema", [NUMBERS, None])
@pytest.mark.parametrize("case", JSON_CASES)
def test_a_line_that_is_no_json_object_is_reported(case: str, schema: Any, tmp_path: Path) -> None:
    text, column, reason = JSON_CASES[case]
    check_json(tmp_path, text, column, reason, schema)


@pytest.mark.parametrize("case", TYPED_CASES)
def test_a_member_that_does_not_fit_the_schema_is_reported(case: str, tmp_path: Path) -> None:
    text, column, reason = TYPED_CASES[case]
    check_json(tmp_path, text, column, reason, NUMBERS)


def check_json(tmp_path: Path, text: str | bytes, column: str | None, reason: str, schema: Any) -> None:
    with pytest.raises(tg.ReadError) as caught:
        elements_of(json(tmp_path, text, schema=schema))
    assert f"it.jsonl, line 2{f', column {column!r}' if column else ''}: {reason}" in str(caught.value)
    good, bad = divided(json(tmp_path, text, schema=schema, bad_records="dead_letter"))
    assert [each["a"] for each in good] == [1, 3]
    assert [(at, name) for at, name, _ in bad] == [(2, column)]
    assert bad[0][2].startswith(reason)


def test_a_fraction_in_a_column_whose_first_values_are_whole_numbers_advises_another_type(tmp_path: Path) -> None:
    advice = r"; with 'a': float in schema= it may have fractions"
    csv_text = "a,b\n" + "1,x\n" * 80_000 + "2.5,y\n"
    with pytest.raises(tg.ReadError, match=rf"line 80002, column 'a': .*invalid value '2.5'{advice}"):
        elements_of(csv(tmp_path, csv_text))
    assert elements_of(csv(tmp_path, csv_text, schema={"a": float}))[-1] == {"a": 2.5}
    json_text = '{"a": 1}\n' * 60_000 + '{"a": 2.5}\n'
    with pytest.raises(tg.ReadError, match=rf"line 60001, column 'a': Failed to convert JSON to int64.*2.5{advice}"):
        elements_of(json(tmp_path, json_text, as_=tg.Row))
    assert elements_of(json(tmp_path, json_text, schema={"a": float}))[-1] == {"a": 2.5}
    with pytest.raises(tg.ReadError, match=r"invalid value 'two'; with 'a': str in schema= it is text"):
        elements_of(csv(tmp_path, "a\ntwo\n", schema={"a": int}))


def test_csv_that_is_something_else_shows_what_was_found(tmp_path: Path) -> None:
    with pytest.raises(tg.BuildError, match=r"line 1: the header is a JSON object, {\"a\": 1}: tg.ReadFromJson reads"):
        elements_of(csv(tmp_path, '{"a": 1}\n{"a": 2}\n', schema=NUMBERS))
    with pytest.raises(tg.BuildError, match=r"column 'a': it is missing, and .*: the file has id, name"):
        elements_of(csv(tmp_path, "id,name\n1,x\n", schema=NUMBERS))


def test_json_objects_that_span_lines_are_bad_records(tmp_path: Path) -> None:
    text = '{"a": 1\n,"b": "x"}\n{"a": 2, "b": "y"}{"a": 3, "b": "z"}\n{"a": 4, "b": "w"}\n'
    for schema in (NUMBERS, None):
        good, bad = divided(json(tmp_path, text, schema=schema, bad_records="dead_letter"))
        assert [each["a"] for each in good] == [4]
        assert [at for at, _, _ in bad] == [1, 2, 3]


def test_blank_lines_and_spaces_between_json_objects_are_ignored(tmp_path: Path) -> None:
    text = '\n {"a": 1, "b": "x"} \r\n\n\n{"a": 2, "b": "y"}\t\n   \n{"a": 3, "b": "z"}'
    for schema in (NUMBERS, None):
        assert [each["a"] for each in elements_of(json(tmp_path, text, schema=schema))] == [1, 2, 3]


def test_a_member_that_the_first_lines_do_not_have_is_a_bad_record(tmp_path: Path) -> None:
    text = '{"a": 1}\n' * 60_000 + '{"a": 2, "new": 1}\n'
    with pytest.raises(
        tg.ReadError, match=r"it.jsonl, line 60001, column 'new': it is no column: the first records have a"
    ):
        elements_of(json(tmp_path, text, as_=tg.Row))
    assert len(elements_of(json(tmp_path, text, as_=tg.Row, schema={"a": int}))) == 60_001


@pytest.mark.parametrize("make", [csv, json])
def test_a_record_that_is_too_long_is_bad_and_the_rest_is_read(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = "x" * 3_000_000
    text = f"a,b\n1,x\n2,{huge}\n3,z\n"
    if make is json:
        text = f'{{"a": 1, "b": "x"}}\n{{"a": 2, "b": "{huge}"}}\n{{"a": 3, "b": "z"}}\n'
    line = 3 if make is csv else 2
    options = {"schema": NUMBERS, "max_record_bytes": 1 << 20}
    with pytest.raises(tg.ReadError, match=rf"line {line}: it has more than 1,048,576 bytes \(max_record_bytes\)"):
        elements_of(make(tmp_path, text, **options))
    good, bad = divided(make(tmp_path, text, **options, bad_records="dead_letter"))
    assert [each["a"] for each in good] == [1, 3]
    assert [at for at, _, _ in bad] == [line]
    assert [len(each["b"]) for each in elements_of(make(tmp_path, text, schema=NUMBERS))] == [1, 3_000_000, 1]
    monkeypatch.setattr(pieces, "PIECE", 50)
    good, bad = divided(make(tmp_path, text, **options, bad_records="dead_letter", min_split_size=1), desired=2)
    assert [each["a"] for each in good] == [1, 3]


def test_an_unclosed_quote_is_an_error(tmp_path: Path) -> None:
    text = 'a,b\n1,x\n2,"y\n3,z\n'
    with pytest.raises(tg.ReadError, match=r"it.csv, line 3: a quote that opens here or later is never closed"):
        elements_of(csv(tmp_path, text, schema=NUMBERS))
    assert elements_of(csv(tmp_path, text, schema=NUMBERS, quote_char=None))[1] == {"a": 2, "b": '"y'}


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_truncated_gzip_file_is_an_error(suffix: str, tmp_path: Path) -> None:
    text = "a,b\n" + "1,x\n" * 100_000 if suffix == ".csv" else '{"a": 1, "b": "x"}\n' * 100_000
    path = write(tmp_path / f"it{suffix}.gz", gzip.compress(text.encode())[:-200])
    transform: Any = tg.io.ReadFromCsv if suffix == ".csv" else tg.io.ReadFromJson
    with pytest.raises(tg.ReadError, match=r"it\S+gz, line \d+: not a valid gzip file: EOFError"):
        elements_of(transform(path, schema=NUMBERS))


def test_a_header_that_differs_from_the_first_files_is_refused_with_the_column(tmp_path: Path) -> None:
    paths = [write(tmp_path / "1.csv", b"a,b\n1,x\n"), write(tmp_path / "2.csv", b"b,a\ny,2\n")]
    assert elements_of(tg.io.ReadFromCsv(paths)) == [(1, "x"), (2, "y")]
    paths.append(write(tmp_path / "3.csv", b"a,c\n3,z\n"))
    with pytest.raises(tg.ReadError, match=r"3.csv, column 'c': \S+1.csv doesn't have it"):
        elements_of(tg.io.ReadFromCsv(paths))
    with pytest.raises(tg.ReadError, match=r"3.csv, column 'b': it is missing, and the schema doesn't allow"):
        elements_of(tg.io.ReadFromCsv(paths, schema=NUMBERS))
    good, bad = divided(tg.io.ReadFromCsv(paths, bad_records="dead_letter"))
    assert good == [(1, "x"), (2, "y")]
    assert len(bad) == 1
    united = elements_of(tg.io.ReadFromCsv(paths, schema_evolution="union"))
    assert united == [(1, "x", None), (2, "y", None), (3, None, "z")]


def test_a_header_with_a_repeated_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tg.BuildError, match=r"line 1: the header has 'a' twice"):
        elements_of(csv(tmp_path, "a,a\n1,2\n"))
    assert elements_of(csv(tmp_path, "1,2\n", column_names=["a", "b"])) == [{"a": 1, "b": 2}]


def test_times_without_a_time_zone_are_refused_unless_one_is_given(tmp_path: Path) -> None:
    text = "at\n2013-07-01 12:00:00\n"
    with pytest.raises(tg.BuildError, match=r"it.csv, column 'at': its times have no time zone"):
        elements_of(csv(tmp_path, text))
    (found,) = elements_of(csv(tmp_path, text, timezone="Europe/Berlin"))
    assert found["at"].isoformat() == "2013-07-01T10:00:00+00:00"
    import datetime

    lines = '{"at": "2013-07-01T12:00:00"}\n'
    with pytest.raises(tg.ReadError, match=r"line 1, column 'at': as .*zone offset"):
        elements_of(json(tmp_path, lines, schema={"at": datetime.datetime}))
    (found,) = elements_of(json(tmp_path, lines, schema={"at": datetime.datetime}, timezone="Europe/Berlin"))
    assert found["at"].isoformat() == "2013-07-01T10:00:00+00:00"


def parquet(table: Any, rows: int = 100) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=rows)
    return buffer.getvalue()


def test_a_bad_row_of_parquet_is_reported_with_its_number(tmp_path: Path) -> None:
    table = pa.table({"a": [None if i in (7, 250) else i for i in range(300)], "b": ["x"] * 300})
    path = write(tmp_path / "it.parquet", parquet(table))
    with pytest.raises(tg.ReadError, match=r"it.parquet, row 8, column 'a': it is null"):
        elements_of(tg.io.ReadFromParquet(path, schema=NUMBERS))
    good, bad = divided(
        tg.io.ReadFromParquet(path, schema=NUMBERS, bad_records="dead_letter", min_split_size=1), desired=3
    )
    assert [row.a for row in good] == [i for i in range(300) if i not in (7, 250)]
    assert [(row, column) for row, column, _ in bad] == [(8, "a"), (251, "a")]


def test_a_damaged_row_group_loses_only_that_row_group(tmp_path: Path) -> None:
    table = pa.table({"a": list(range(300))})
    data = bytearray(parquet(table))
    metadata = pq.ParquetFile(io.BytesIO(bytes(data))).metadata
    start = metadata.row_group(1).column(0).data_page_offset
    data[start : start + 40] = b"\xff" * 40
    path = write(tmp_path / "it.parquet", bytes(data))
    with pytest.raises(tg.ReadError, match=r"it.parquet, row group 1 can't be read"):
        elements_of(tg.io.ReadFromParquet(path))
    good, bad = divided(tg.io.ReadFromParquet(path, bad_records="dead_letter"))
    assert [row.a for row in good] == [*range(100), *range(200, 300)]
    assert [row for row, _, _ in bad] == [101]


def test_a_damaged_avro_block_loses_only_that_block(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    data = avro([{"a": f"{i:04}"} for i in range(1000)], 500, schema, "null")
    damaged = data.replace(b"0500", b"\xff\xff\xff\xff")
    path = write(tmp_path / "it.avro", damaged)
    with pytest.raises(tg.ReadError, match=r"it.avro, row \d+: the block at byte \d+ can't be read"):
        elements_of(tg.io.ReadFromAvro(path))
    good, bad = divided(tg.io.ReadFromAvro(path, bad_records="dead_letter"))
    assert len(bad) == 1
    assert [row.a for row in good][:100] == [f"{i:04}" for i in range(100)]
    assert good[-1].a == "0999"
    assert len(good) > 850


def test_a_bad_row_of_avro_is_reported_with_its_number_in_the_file(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "long"]}]}
    path = write(tmp_path / "it.avro", avro([{"a": None if i == 700 else i} for i in range(1000)], 500, schema))
    good, bad = divided(
        tg.io.ReadFromAvro(path, schema={"a": int}, bad_records="dead_letter", min_split_size=1), desired=4
    )
    assert len(good) == 999
    assert [(row, column) for row, column, _ in bad] == [(701, "a")]

"""CSV compared with Python's `csv` module: quotes, line breaks, delimiters, any splits and any block sizes."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tests.support.record_files import drain, elements_of, write
from tidegate.io.file_source import pieces

TEXT = {"a": str, "b": str}
CELLS = st.text(st.sampled_from('xy ,;"\n\r'), max_size=6)


def csv_text(rows: list[tuple[str, str]], **options: Any) -> str:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n", **options).writerows([("a", "b"), *rows])
    return text.getvalue()


@given(rows=st.lists(st.tuples(CELLS, CELLS), max_size=8), piece=st.integers(1, 40), stop=st.integers(0, 7))
def test_records_equal_those_of_pythons_csv_module(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], piece: int, stop: int
) -> None:
    path = write(tmp_path_factory.mktemp("csv") / "it.csv", csv_text(rows).encode())
    read = tg.io.ReadFromCsv(path, schema=TEXT, splittable=False, min_split_size=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE", piece)
        assert elements_of(read, desired=3) == rows
        if stop < len(rows):
            (split,) = read.source.splits(3)
            reader = read.source.reader(split)
            first: list[Any] = []
            while len(first) <= stop:
                first += reader.read(1).block.values
            assert drain(read.source, split, reader.position()) == rows[len(first) :]
            reader.close()


@given(
    rows=st.lists(st.tuples(st.text("xy", max_size=6), st.text("xy", max_size=6)), min_size=1, max_size=12),
    piece=st.integers(1, 40),
    desired=st.integers(1, 9),
)
def test_any_splits_give_the_same_records(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], piece: int, desired: int
) -> None:
    path = write(tmp_path_factory.mktemp("csv") / "it.csv", csv_text(rows).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE", piece)
        assert elements_of(tg.io.ReadFromCsv(path, schema=TEXT, min_split_size=1), desired=desired) == rows


@given(
    rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=12),
    piece=st.integers(1, 40),
    desired=st.integers(2, 9),
)
def test_a_split_inside_quotes_gives_the_same_records_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], piece: int, desired: int
) -> None:
    path = write(tmp_path_factory.mktemp("csv") / "it.csv", csv_text(rows).encode())
    read = tg.io.ReadFromCsv(path, schema=TEXT, min_split_size=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE", piece)
        try:
            found = [record for split in read.source.splits(desired) for record in drain(read.source, split)]
        except tg.ReadError:
            return
        assert found == rows


def test_the_error_of_a_split_inside_quotes_names_the_option_to_set(tmp_path: Path) -> None:
    path = write(tmp_path / "it.csv", csv_text([("x", "\n" * 500)]).encode())
    with pytest.raises(tg.ReadError, match=r"it.csv, line 2: a quoted value contains a line break .*splittable=False"):
        elements_of(tg.io.ReadFromCsv(path, schema=TEXT, min_split_size=1), desired=3)
    assert elements_of(tg.io.ReadFromCsv(path, schema=TEXT, min_split_size=1, splittable=False), desired=3) == [
        ("x", "\n" * 500)
    ]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("a;b\n1;x\n", {"delimiter": ";"}, [(1, "x")]),
        ("1\tx\n", {"delimiter": "\t", "column_names": ["a", "b"]}, [(1, "x")]),
        ("a,b\n1,'x,y'\n", {"quote_char": "'"}, [(1, "x,y")]),
        ("a,b\n1,x\\,y\n", {"escape_char": "\\"}, [(1, "x,y")]),
        ("\ufeffa,b\n1,x\n", {}, [(1, "x")]),
        ("a,b\r\n1,x\r\n", {}, [(1, "x")]),
        ("a,b\n1,x", {}, [(1, "x")]),
        ("a,b\n1,-\n", {"null_values": ["-"], "strings_can_be_null": True}, [(1, None)]),
        ("a,b\n", {}, []),
        ("", {"allow_empty": True}, []),
    ],
)
def test_csv_dialects_are_read(text: str, options: dict[str, Any], expected: list[Any], tmp_path: Path) -> None:
    assert elements_of(tg.io.ReadFromCsv(write(tmp_path / "it.csv", text.encode()), **options)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1234567890123456,1.5\n2,\n", [(1234567890123456, 1.5), (2, None)]),
        (f"a,b\n1,1.5\n2,{'9' * 400}\n", [(1, "1.5"), (2, "9" * 400)]),
        (f"a,b\n1,1.5\n2,{'9' * 5000}\n", [(1, "1.5"), (2, "9" * 5000)]),
    ],
    ids=["null", "infinite", "no int"],
)
def test_types_are_inferred_beside_long_integers(text: str, expected: list[Any], tmp_path: Path) -> None:
    path = write(tmp_path / "it.csv", text.encode())
    assert elements_of(tg.io.ReadFromCsv(path, strings_can_be_null=True)) == expected


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_other_encodings_are_read(encoding: str, tmp_path: Path) -> None:
    path = write(tmp_path / "it.csv", "a,b\n1,é\n2,ü\n".encode(encoding))
    assert elements_of(tg.io.ReadFromCsv(path, encoding=encoding)) == [(1, "é"), (2, "ü")]


def test_compressed_files_and_archives_are_read(tmp_path: Path) -> None:
    text = b"a,b\n1,x\n2,y\n"
    assert elements_of(tg.io.ReadFromCsv(write(tmp_path / "it.csv.gz", gzip.compress(text)))) == [(1, "x"), (2, "y")]
    with zipfile.ZipFile(tmp_path / "it.zip", "w") as archive:
        archive.writestr("1.csv", text)
        archive.writestr("2.csv", text)
    assert elements_of(tg.io.ReadFromCsv(tmp_path / "it.zip")) == [(1, "x"), (2, "y")] * 2


def test_types_are_inferred_and_columns_selected(tmp_path: Path) -> None:
    path = write(tmp_path / "it.csv", b"a,b,c,d,e\n1,2.5,x,2013-01-02,true\n,,,,\n")
    rows = elements_of(tg.io.ReadFromCsv(path, as_=dict))
    assert [type(value).__name__ for value in rows[0].values()] == ["int", "float", "str", "date", "bool"]
    assert rows[1] == {"a": None, "b": None, "c": "", "d": None, "e": None}
    assert elements_of(tg.io.ReadFromCsv(path, columns=["d", "a"], where=[("b", ">", 2)]))[0].a == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ",,"}, "delimiter is one ASCII character, not ',,'"),
        ({"quote_char": ""}, "quote_char is one ASCII character, not ''"),
        ({"column_names": ["a", "a"]}, "column_names are different names"),
        ({"max_record_bytes": 5}, "max_record_bytes is a whole number from 262144 on, not 5"),
        ({"encoding": "utf-9"}, "Python has no text encoding 'utf-9'"),
        ({"compression": "rar"}, "compression is one of"),
        ({"min_split_size": 0}, "min_split_size must be a whole number of at least 1, not 0"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "it.csv", b"a\n1\n")
    with pytest.raises(tg.BuildError, match=f"ReadFromCsv: {message}"):
        elements_of(tg.io.ReadFromCsv(path, **options))


def test_a_file_whose_lines_end_with_carriage_returns_alone_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "it.csv", b"a,b\r1,2\r3,4\r")
    with pytest.raises(tg.BuildError, match=r"it.csv, line 1: lines end with a carriage return alone, after 'b'"):
        elements_of(tg.ReadFromCsv(path))
    assert elements_of(tg.ReadFromCsv(write(tmp_path / "2.csv", b'a,"b\rc"\r\n1,2\r\n'), as_=dict)) == [
        {"a": 1, "b\rc": 2}
    ]


def test_integers_that_no_float_represents_are_text(tmp_path: Path) -> None:
    path = write(tmp_path / "it.csv", b"a,b\n1,1.5\n99999999999999999999,9007199254740992\n,x\n")
    path_of_fractions = write(tmp_path / "2.csv", b"b\n1.5\n9007199254740992\n\n")
    assert elements_of(tg.ReadFromCsv(path)) == [("1", "1.5"), ("99999999999999999999", "9007199254740992"), ("", "x")]
    assert elements_of(tg.ReadFromCsv(path_of_fractions)) == [(1.5,), (2.0**53,)]


def test_a_file_of_another_format_is_said_to_look_like_it(tmp_path: Path) -> None:
    path = write(tmp_path / "it.csv", gzip.compress(b"a\n1\n"))
    with pytest.raises(tg.BuildError, match="It looks as if it is compressed by gzip: say compression='gzip'"):
        elements_of(tg.ReadFromCsv(path))

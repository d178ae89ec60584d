"""Folders named after the values of columns: unusual values stay distinct, and other libraries read them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tidegate as tg
from tests.io.formats.writing.test_formats import City, sink_of
from tests.support.written_files import FORMATS, files_of, rows_in, write, write_and_commit
from tidegate.io.file_sink import attempt as file_attempt
from tidegate.io.partitions import DEFAULT_PARTITION, Partitioning
from tidegate.sdk.errors import BuildError

UNUSUAL = ["a/b", "../up", ".", "50%", "%41", "a=b", "x:y*z?", "[1]{2}", 'quo"te', "back\\slash", " ", "é", "\n"]


@pytest.mark.parametrize("format", FORMATS)
def test_partition_columns_name_folders_and_are_not_in_the_files(tmp_path: Path, format: str) -> None:
    days = [dt.date(2013, 1, 1), dt.date(2013, 1, 2)]
    rows = [
        {"country": "DE", "day": days[0], "n": 1},
        {"country": "FR", "day": days[1], "n": 2},
        {"country": "DE", "day": days[0], "n": 3},
        {"country": None, "day": days[0], "n": 4},
    ]
    with tg.Pipeline() as p:
        _ = (
            p
            | tg.Create(rows)
            | tg.Reshuffle()
            | _writer(format)(f"{tmp_path}/sales", file_name_suffix=".x", partition_by=["country", "day"], num_shards=1)
        )
    found = rows_in(tmp_path, format)
    assert {name: sorted(int(row["n"]) for row in each) for name, each in found.items()} == {
        "country=DE/day=2013-01-01/sales-00000-of-00001.x": [1, 3],
        "country=FR/day=2013-01-02/sales-00000-of-00001.x": [2],
        "country=__HIVE_DEFAULT_PARTITION__/day=2013-01-01/sales-00000-of-00001.x": [4],
    }
    assert all(list(row) == ["n"] for each in found.values() for row in each)


@given(values=st.lists(st.text(min_size=1, max_size=8) | st.none(), min_size=1, max_size=4))
@example(values=UNUSUAL)
@example(values=[None, "%5F_HIVE_DEFAULT_PARTITION__", "null", "None"])
def test_other_libraries_read_the_values_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[str | None]
) -> None:
    values = [value for value in values if value is None or ("\0" not in value and _encodable(value))]
    folder = tmp_path_factory.mktemp("out")
    rows = [{"key": value, "n": n} for n, value in enumerate(values)]
    with tg.Pipeline() as p:
        _ = p | tg.Create(rows) | tg.io.WriteToParquet(f"{folder}/x", {"key": str | None, "n": int}, partition_by="key")
    if rows:
        partitioning = ds.partitioning(flavor="hive", schema=__import__("pyarrow").schema([("key", "string")]))
        read = ds.dataset(folder, format="parquet", partitioning=partitioning, exclude_invalid_files=False)
        assert sorted(read.to_table().to_pylist(), key=lambda row: row["n"]) == [
            {"n": row["n"], "key": row["key"]} for row in rows
        ]


def _encodable(value: str) -> bool:
    try:
        return len(value.encode()) < 80
    except UnicodeEncodeError:
        return False


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("DE", "k=DE"),
        ("a b", "k=a b"),
        ("a/b", "k=a%2Fb"),
        (None, "k=__HIVE_DEFAULT_PARTITION__"),
        (3, "k=3"),
        (-1.5, "k=-1.5"),
        (True, "k=true"),
        (Decimal("1.50"), "k=1.50"),
        (dt.date(2013, 1, 1), "k=2013-01-01"),
        (dt.datetime(2013, 1, 1, 8, tzinfo=dt.timezone(dt.timedelta(hours=2))), "k=2013-01-01 06%3A00%3A00"),
        (tg.Timestamp(0), "k=1970-01-01 00%3A00%3A00"),
    ],
)
def test_values_are_escaped_as_in_hive(value: Any, folder: str) -> None:
    assert Partitioning(("k",))({"k": value}) == folder
    assert Partitioning(("k",))(tg.Row(k=value)) == folder


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ({"n": 1}, r"\{'n': 1\} has no field 'k' to partition by"),
        ({"k": ""}, "an empty text can't name a partition"),
        ({"k": DEFAULT_PARTITION}, "the text '__HIVE_DEFAULT_PARTITION__' can't name a partition"),
        ({"k": float("nan")}, "nan can't name a partition"),
        ({"k": b"x"}, "b'x', a bytes, can't name a partition: make it a str"),
        ({"k": dt.datetime(2013, 1, 1)}, "has no time zone: say which zone such times are in"),
    ],
)
def test_an_element_whose_value_names_no_partition_is_refused(element: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Partitioning(("k",))(element)


def test_equal_values_with_different_texts_have_their_own_partitions(tmp_path: Path) -> None:
    rows = [{"k": 1, "n": 1}, {"k": True, "n": 2}, {"k": 1.0, "n": 3}]
    with tg.Pipeline() as p:
        _ = p | tg.Create(rows) | tg.io.WriteToJson(f"{tmp_path}/x", partition_by="k")
    assert {name.partition("/")[0] for name in files_of(tmp_path)} == {"k=1", "k=true", "k=1.0"}


def test_partitions_destinations_and_windows_can_be_combined(tmp_path: Path) -> None:
    rows = [tg.TimestampedValue(City("x/y", n), n * 43_200) for n in range(3)]
    with tg.Pipeline() as p:
        _ = (
            p
            | tg.Create(rows)
            | tg.WindowInto(tg.FixedWindows(86_400))
            | tg.io.WriteToParquet(
                f"{tmp_path}/{{window:%d}}/{{destination}}/part",
                destination=lambda city: "even" if city.people % 2 == 0 else "odd",
                partition_by="name",
            )
        )
    assert {name.rpartition("/")[0]: rows for name, rows in rows_in(tmp_path, "parquet").items()} == {
        "01/even/name=x%2Fy": [{"people": 0}],
        "01/odd/name=x%2Fy": [{"people": 1}],
        "02/even/name=x%2Fy": [{"people": 2}],
    }


def test_a_second_run_replaces_the_partitions_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "k=z").mkdir()
    (tmp_path / "k=z" / "mine").write_text("not the sink's")
    for rows in ([("a", 1), ("b", 2)], [("b", 3), ("c", 4)]):
        with tg.Pipeline() as p:
            records = p | tg.Create([tg.Row(k=k, n=n) for k, n in rows])
            _ = records | tg.io.WriteToCsv(f"{tmp_path}/x", partition_by="k", num_shards=1)
    assert files_of(tmp_path) == {
        "k=b/x-00000-of-00001": b'"n"\n3\n',
        "k=c/x-00000-of-00001": b'"n"\n4\n',
        "k=z/mine": b"not the sink's",
    }


@pytest.mark.parametrize("format", FORMATS)
def test_there_may_be_many_more_partitions_than_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.setattr(file_attempt, "OPEN_AT_ONCE", 3)
    monkeypatch.setattr(file_attempt, "BUFFER_BUDGET", 4000)
    sink = sink_of(format, f"{tmp_path}/x", {"k": str, "n": int}, partition_by="k")
    open_at_once = []
    original = file_attempt.FileAttempt._use

    def counting(attempt: Any, part: Any) -> None:
        original(attempt, part)
        open_at_once.append(len(attempt._open))

    monkeypatch.setattr(file_attempt.FileAttempt, "_use", counting)
    rows = [((f"k={n % 20}",), {"k": str(n % 20), "n": n}) for n in range(600)]
    write_and_commit(sink, rows, block=7)
    assert max(open_at_once) == 3
    found: dict[str, list[int]] = {}
    for name, each in rows_in(tmp_path, format).items():
        found.setdefault(name.partition("/")[0], []).extend(int(row["n"]) for row in each)
    assert found == {f"k={k}": list(range(k, 600, 20)) for k in range(20)}
    if format in ("csv", "json"):
        assert len(files_of(tmp_path)) == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition_by": []}, "WriteToParquet: partition_by is a column's name or a list of names, not []"),
        ({"partition_by": ["a", "a"]}, "WriteToParquet: partition_by names a column twice: a, a"),
        ({"partition_by": 3}, "WriteToParquet: partition_by is a column's name or a list of names, not 3"),
        (
            {"partition_by": "c", "schema": {"a": int, "b": int}},
            "WriteToParquet: partition_by names 'c', which is no column: a, b",
        ),
        (
            {"partition_by": ["a", "b"], "schema": {"a": int, "b": int}},
            "WriteToParquet: partition_by names all columns, so that the files would have none",
        ),
    ],
)
def test_invalid_partition_columns_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BuildError) as caught:
        tg.io.WriteToParquet("out/part", **options)
    assert str(caught.value) == message


def test_a_placeholder_for_partitions_needs_partition_columns() -> None:
    with pytest.raises(BuildError, match=r"has \{partition\}: name the columns, as in partition_by="):
        tg.io.WriteToCsv("out/{partition}/part")


def test_an_element_whose_columns_all_name_folders_is_refused(tmp_path: Path) -> None:
    sink = sink_of("parquet", f"{tmp_path}/x", partition_by="k")
    with pytest.raises(tg.WriteError, match="it has no field that is a column"):
        write(sink, "run", [(("k=1",), {"k": 1})])


def _writer(format: str) -> Any:
    from tests.io.formats.writing.test_formats import WRITERS

    return WRITERS[format]

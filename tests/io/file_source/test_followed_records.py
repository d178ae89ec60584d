"""Following files of records: which columns they should have, from build to restart, and files that change."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.record_files import FORMATS, VISIT, csv_file, drain, json_lines, parquet, visits, write
from tidegate.io.file_source import following
from tidegate.io.file_source.listing import Found, matching
from tidegate.io.file_source.opened import FileChanged
from tidegate.sdk.connectors.sources import Discovery, Split

formats = pytest.mark.parametrize("name", FORMATS)


@dataclass
class Folder:
    """A followed folder of files of one format, whose enumerator can be restarted."""

    path: Path
    transform: Any
    options: dict[str, Any] = field(default_factory=dict)
    pattern: str = "*"

    def __post_init__(self) -> None:
        self.source = self.transform(self.path / self.pattern, follow=True, min_age=0, **self.options).source
        self.source.check()
        self.enumerator = self.source.enumerator(None)

    def restart(self) -> Any:
        """Make a new enumerator from the state of this one, which is returned."""
        state = json.loads(json.dumps(self.enumerator.state()))
        self.enumerator = self.source.enumerator(state)
        return state

    def put(self, name: str, data: bytes) -> None:
        write(self.path / f".{name}", data).rename(self.path / name)

    def look(self) -> list[Split]:
        """The splits of the files that are found; two looks, since a young file has to be seen twice."""
        found: Discovery = self.enumerator.discover(1000)
        return [*found.splits, *self.enumerator.discover(1000).splits]

    def read(self) -> list[Any]:
        return [element for split in self.look() for element in drain(self.source, split)]


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Folder]:
    (tmp_path / "in").mkdir()

    def make(transform: Any, **options: Any) -> Folder:
        return Folder(tmp_path / "in", transform, options)

    return make


def of_format(folder: Callable[..., Folder], name: str, **options: Any) -> Folder:
    transform, _, needs = FORMATS[name]
    return folder(transform, **{"as_": dict, **needs, **options})


@formats
def test_each_file_is_read_once_also_after_a_restart(name: str, folder: Any) -> None:
    made = FORMATS[name][1]
    followed = of_format(folder, name, allow_empty=True)
    followed.put(f"1-{name}", made(visits(10)))
    assert followed.read() == visits(10)
    followed.put(f"2-{name}", made(visits(5, 10)))
    assert followed.read() == visits(5, 10)
    followed.restart()
    assert followed.read() == []
    followed.put(f"3-{name}", made(visits(2, 15)))
    assert followed.read() == visits(2, 15)


@formats
def test_the_columns_of_the_first_file_outlive_it(name: str, folder: Any) -> None:
    if name == "visits.avro":
        pytest.skip("the schema is written by hand: see test_avro")
    made = FORMATS[name][1]
    followed = of_format(folder, name, allow_empty=True, schema=None, as_=tg.Row)
    followed.put(f"1-{name}", made([{"id": 1, "url": "x"}]))
    assert [row._asdict() for row in followed.read()] == [{"id": 1, "url": "x"}]
    followed.put(f"2-{name}", made([{"id": 2, "url": "y"}]))
    assert [row._asdict() for row in followed.read()] == [{"id": 2, "url": "y"}]
    for path in followed.path.iterdir():
        path.unlink()
    state = followed.restart()
    assert state["columns_of"] == f"{followed.path}/1-{name}"
    followed.put(f"3-{name}", made([{"id": 3, "size": 2.5}]))
    with pytest.raises(tg.ReadError) as caught:
        followed.read()
    assert f"3-{name}" in str(caught.value)
    assert "column 'size'" in str(caught.value)


def test_a_later_file_with_another_column_is_refused_by_name_or_a_dead_letter(folder: Any) -> None:
    followed = folder(tg.io.ReadFromParquet, allow_empty=True)
    followed.put("1.parquet", parquet([{"id": 1}]))
    assert len(followed.read()) == 1
    followed.put("2.parquet", parquet([{"id": "one"}]))
    with pytest.raises(tg.ReadError) as caught:
        followed.read()
    assert str(caught.value) == (
        f"{followed.path}/2.parquet, column 'id': it is string, and int64 in {followed.path}/1.parquet"
    )
    lenient = folder(tg.io.ReadFromParquet, bad_records="dead_letter")
    first, second = lenient.read()
    assert (first.id, second.file, second.column) == (1, f"{followed.path}/2.parquet", "id")
    assert second.reason.endswith(f"it is string, and int64 in {followed.path}/1.parquet")


def test_with_union_a_later_file_extends_the_columns_from_then_on(
    folder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    followed = folder(tg.io.ReadFromParquet, as_=dict, schema_evolution="union", allow_empty=True)
    followed.put("1.parquet", parquet([{"id": 1, "n": 1}]))
    assert followed.read() == [{"id": 1, "n": 1}]
    followed.put("2.parquet", parquet([{"id": 2, "n": 2.5, "size": "xl"}]))
    assert followed.read() == [{"id": 2, "n": 2.5, "size": "xl"}]
    followed.restart()
    followed.put("3.parquet", parquet([{"id": 3, "n": 3}]))
    (last,) = followed.read()
    assert (last, type(last["n"])) == ({"id": 3, "n": 3.0, "size": None}, float)
    assert caplog.messages == [
        f"{followed.path}/2.parquet extends the columns of the files before it: 'n' was int64 and is double; "
        "'size' is new (string)"
    ]


@pytest.mark.parametrize("bad_records", ["fail", "dead_letter"])
def test_with_union_a_type_that_has_nothing_in_common_is_refused_by_name(folder: Any, bad_records: str) -> None:
    followed = folder(
        tg.io.ReadFromParquet, schema_evolution="union", allow_empty=True, bad_records=bad_records, as_=dict
    )
    followed.put("1.parquet", parquet([{"id": 1}]))
    assert followed.read() == [{"id": 1}]
    followed.put("2.parquet", parquet([{"id": "one"}]))
    followed.put("3.parquet", parquet([{"id": 3}]))
    if bad_records == "fail":
        with pytest.raises(tg.ReadError, match=r"/2\.parquet, column 'id': it is string in .*/2\.parquet and int64 in"):
            followed.read()
    else:
        bad, good = sorted(followed.read(), key=str)
        assert good == {"id": 3}
        assert (bad.file, bad.column) == (f"{followed.path}/2.parquet", "id")


def test_a_declared_schema_needs_no_file_and_decides_for_all(folder: Any) -> None:
    followed = folder(tg.io.ReadFromCsv, schema={"id": int, "note": str | None}, as_=dict)
    followed.put("1.csv", b"note,id,more\nx,1,2\n")
    assert followed.read() == [{"id": 1, "note": "x"}]
    followed.put("2.csv", b"id,note\n2,y\n")
    assert followed.read() == [{"id": 2, "note": "y"}]
    assert followed.restart()["columns"] is None
    followed.put("3.csv", b"id\n3\n")
    with pytest.raises(
        tg.ReadError, match=r"/3\.csv, column 'note': it is missing: the file has id; schema_evolution='union' puts"
    ):
        followed.read()


def test_the_first_file_with_records_gives_the_columns(folder: Any) -> None:
    followed = folder(tg.io.ReadFromCsv, allow_empty=True)
    followed.put("1.csv", b"id,amount\n")
    assert followed.read() == []
    followed.put("2.csv", b"id,amount\n1,2.5\n")
    assert followed.read() == [(1, 2.5)]


@pytest.mark.parametrize(
    ("transform", "options"),
    [
        (tg.io.ReadFromCsv, {}),
        (tg.io.ReadFromCsv, {"column_names": ["a"]}),
        (tg.io.ReadFromJson, {}),
        (tg.io.ReadFromParquet, {"columns": ["a"]}),
        (tg.io.ReadFromArrow, {"as_": dict}),
        (tg.io.ReadFromAvro, {"schema_evolution": "union"}),
    ],
)
def test_an_empty_folder_without_a_schema_is_refused_when_the_pipeline_is_built(
    folder: Any, transform: Any, options: Any
) -> None:
    with pytest.raises(tg.BuildError) as caught:
        folder(transform, **options)
    assert str(caught.value).endswith(
        "/in/*' yet, so the columns of its records are not known. Give them, with schema= or a class as as_=, or set "
        "allow_empty=True to take them from the first file that appears"
    )


@dataclass
class Visit:
    id: int


@pytest.mark.parametrize(
    ("transform", "options"),
    [
        (tg.io.ReadFromCsv, {"schema": {"a": int}}),
        (tg.io.ReadFromParquet, {"as_": Visit}),
        (tg.io.ReadFromJson, {"as_": dict}),
        (tg.io.ReadFromAvro, {"reader_schema": {"type": "record", "name": "A", "fields": []}}),
        (tg.io.ReadFromArrow, {"allow_empty": True}),
    ],
)
def test_an_empty_folder_whose_columns_are_known_is_followed(folder: Any, transform: Any, options: Any) -> None:
    assert folder(transform, **options).look() == []


def test_the_first_complete_file_is_checked_when_the_pipeline_is_built(folder: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir(exist_ok=True)
    path = write(tmp_path / "in" / "a.csv", b"id\n1\n")
    os.utime(path, ns=(1, 1))
    with pytest.raises(tg.BuildError, match=r"ReadFromCsv: .*/a\.csv, column 'colour': there is no such column"):
        folder(tg.io.ReadFromCsv, columns=["colour"])
    with pytest.raises(tg.BuildError, match=r"ReadFromCsv: follow=True reads the files that appear in a folder"):
        tg.io.ReadFromCsv(path, follow=True).source.check()
    with pytest.raises(tg.BuildError, match="ReadFromCsv: poll_interval must be positive"):
        tg.io.ReadFromCsv(tmp_path / "*", follow=True, poll_interval=0)


# -- files that change or vanish after they have been found


READERS: dict[str, tuple[Any, Callable[..., bytes], dict[str, Any]]] = {
    **FORMATS,
    "lines.txt": (tg.io.ReadFromText, json_lines, {}),
    "lines.txt.gz": (
        tg.io.ReadFromText,
        lambda records: gzip.compress(json_lines(records)),
        {},
    ),
}


@pytest.fixture(params=READERS)
def found(request: pytest.FixtureRequest, folder: Any) -> tuple[Folder, Path, Split]:
    """A followed folder, a file in it, and the file's split."""
    name = request.param
    transform, made, needs = READERS[name]
    followed = folder(transform, **needs, allow_empty=True)
    followed.put(name, made(visits(3000)))
    (split,) = followed.look()
    return followed, followed.path / name, split


def test_a_file_that_was_written_again_since_it_was_found_is_an_error(found: tuple[Folder, Path, Split]) -> None:
    followed, path, split = found
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(FileChanged, match=r"the file has changed since the run found it: it had \d+ bytes and has \d+"):
        drain(followed.source, split)


def test_a_file_that_was_deleted_since_it_was_found_is_an_error(found: tuple[Folder, Path, Split]) -> None:
    followed, path, split = found
    path.unlink()
    with pytest.raises(FileChanged, match="the file has been deleted since the run found it"):
        drain(followed.source, split)


def test_a_file_that_changes_while_it_is_read_is_an_error(found: tuple[Folder, Path, Split]) -> None:
    followed, path, split = found
    reader = followed.source.reader(split)
    assert len(reader.read(10).block) == 10
    os.utime(path, ns=(1, 1))
    with pytest.raises(FileChanged, match="it has been written again"):
        any(iter(lambda: reader.read(1000).end, True))
    reader.close()


@pytest.mark.parametrize("change", ["write", "delete"])
def test_a_position_in_a_file_that_has_changed_is_lost(found: tuple[Folder, Path, Split], change: str) -> None:
    followed, path, split = found
    reader = followed.source.reader(split)
    reader.read(10)
    position = json.loads(json.dumps(reader.position()))
    reader.close()
    if change == "write":
        os.utime(path, ns=(1, 1))
    else:
        path.unlink()
    with pytest.raises(tg.io.PositionLost, match=r"the file has (changed|been deleted) since the run found it"):
        drain(followed.source, split, position)


def test_a_changed_file_is_never_a_dead_letter(folder: Any) -> None:
    for name, (transform, made, _) in FORMATS.items():
        followed = folder(transform, bad_records="dead_letter", schema=VISIT, as_=dict)
        followed.put(name, made(visits(10)))
        splits = {split.id.partition("@")[0]: split for split in followed.look()}
        (followed.path / name).unlink()
        with pytest.raises(FileChanged):
            drain(followed.source, splits[str(followed.path / name)])


@pytest.mark.parametrize("change", ["write", "delete"])
def test_a_file_that_changes_while_it_is_divided_is_found_again_as_it_is_then(
    folder: Any, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    followed = folder(tg.io.ReadFromCsv, allow_empty=True)
    followed.put("a.csv", csv_file([{"id": 1}]))
    path = followed.path / "a.csv"
    os.utime(path, ns=(1, 1))

    def listed_then_changed(*arguments: Any) -> list[Found]:
        files = matching(*arguments)
        if change == "write":
            path.write_bytes(csv_file([{"id": 2}, {"id": 3}]))
        else:
            path.unlink(missing_ok=True)
        return files

    with monkeypatch.context() as patch:
        patch.setattr(following, "matching", listed_then_changed)
        assert followed.enumerator.discover(10).splits == []
    assert followed.read() == ([(2,), (3,)] if change == "write" else [])

"""Rules of the readers of all formats: splits, positions, files that change, columns that differ, stores."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pydantic
import pytest

import tidegate as tg
from tests.support.record_files import FORMATS, drain, drain_with_positions, elements_of, visits, write

RECORDS = visits(1000)

formats = pytest.mark.parametrize("name", FORMATS)


def reader_of(path: Any, name: str, **options: Any) -> Any:
    transform, _, needs = FORMATS[name]
    return transform(path, **{"as_": dict, **needs, **options})


def written(folder: Path, name: str, records: Any = RECORDS, **options: Any) -> Path:
    return write(folder / name, FORMATS[name][1](records, **options))


@formats
def test_records_are_read_as_they_were_written(name: str, tmp_path: Path) -> None:
    assert elements_of(reader_of(written(tmp_path, name), name)) == RECORDS
    rows = elements_of(reader_of(written(tmp_path, name), name, as_=tg.Row))
    assert rows == [tuple(record.values()) for record in RECORDS]
    assert rows[1].url == RECORDS[1]["url"]


@formats
@pytest.mark.parametrize("desired", [1, 2, 7, 50])
def test_any_division_into_splits_gives_the_same_records(name: str, desired: int, tmp_path: Path) -> None:
    read = reader_of(written(tmp_path, name), name, min_split_size=1)
    splits = read.source.splits(desired)
    assert [record for split in splits for record in drain(read.source, split)] == RECORDS
    assert len({split.id for split in splits}) == len(splits)
    assert [split.id for split in read.source.splits(desired)] == [split.id for split in splits]
    if name != "visits.arrows":  # an Arrow stream has no footer, so it can't be split
        assert len(splits) >= min(desired, 5)


@formats
def test_a_reader_resumes_at_any_position(name: str, tmp_path: Path) -> None:
    written(tmp_path, name, RECORDS[:300])
    written(tmp_path / "more", name, RECORDS[300:450])
    read = reader_of([tmp_path / name, tmp_path / "more" / name], name)
    (split,) = read.source.splits(1)
    found = drain_with_positions(read.source, split, limit=7)
    assert [element for element, _ in found] == RECORDS[:450]
    for i in range(0, len(found), 13):
        after = found[i][1]
        remaining = [element for element, position in found if position != after and element["id"] > found[i][0]["id"]]
        assert drain(read.source, split, after, limit=11) == remaining
    assert drain(read.source, split, found[-1][1]) == []


@formats
def test_a_reader_with_conditions_resumes_at_any_position(name: str, tmp_path: Path) -> None:
    read = reader_of(written(tmp_path, name), name, where=[("user", "!=", None), ("amount", "<", 200)], columns=["id"])
    (split,) = read.source.splits(1)
    found = drain_with_positions(read.source, split, limit=10)
    expected = [{"id": each["id"]} for each in RECORDS if each["user"] is not None and each["amount"] < 200]
    assert [element for element, _ in found] == expected
    for i in (0, 57, 133):
        after = found[i][1]
        remaining = [element for element, position in found[i:] if position != after]
        assert drain(read.source, split, after) == remaining


@formats
def test_splits_and_sources_survive_pickling(name: str, tmp_path: Path) -> None:
    read = reader_of(written(tmp_path, name), name)
    source, splits = pickle.loads(pickle.dumps((read.source, read.source.splits(2))))
    assert [each for split in splits for each in drain(source, split)] == RECORDS


@formats
def test_a_file_that_was_rewritten_is_an_error(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name)
    read = reader_of(path, name)
    (split,) = read.source.splits(1)
    written(tmp_path, name, visits(1100))
    with pytest.raises(tg.ReadError, match=r"the file has changed since the run found it: it had .* bytes and has"):
        drain(read.source, split)


@formats
def test_a_file_that_is_touched_while_it_is_read_is_an_error(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name)
    read = reader_of(path, name)
    (split,) = read.source.splits(1)
    reader = read.source.reader(split)
    assert len(reader.read(10).block) == 10
    os.utime(path, ns=(1, 1))
    with pytest.raises(tg.ReadError, match="has changed since the run found it: it has been written again"):
        any(iter(lambda: reader.read(1000).end, True))
    reader.close()


@formats
def test_a_file_that_is_gone_is_an_error(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name)
    read = reader_of(path, name)
    (split,) = read.source.splits(1)
    path.unlink()
    with pytest.raises(tg.ReadError, match="the file has been deleted since the run found it"):
        drain(read.source, split)


@formats
def test_files_in_memory_are_read_by_their_url(name: str) -> None:
    system = fsspec.filesystem("memory")
    system.pipe(f"/formats/{name}", FORMATS[name][1](RECORDS))
    try:
        read = reader_of(f"memory://formats/*{name[6:]}", name, min_split_size=1)
        assert elements_of(read, desired=3) == RECORDS
        splits = read.source.splits(1)
        system.pipe(f"/formats/{name}", FORMATS[name][1](visits(900)))
        with pytest.raises(tg.ReadError, match="has changed since the run found it"):
            drain(read.source, splits[0])
    finally:
        system.rm("/formats", recursive=True)


@dataclass(frozen=True)
class Visit:
    id: int
    at: tg.Timestamp
    user: str | None
    more: int = 3


class Amount(NamedTuple):
    amount: float
    id: int


class Model(pydantic.BaseModel):
    id: int
    at: datetime
    user: str | None = None


@formats
def test_records_become_instances_of_the_given_class(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name, RECORDS[:5])
    options: dict[str, Any] = {"schema": None}
    visited = elements_of(reader_of(path, name, as_=Visit, **options))
    assert visited == [Visit(each["id"], tg.Timestamp.of(each["at"]), each["user"]) for each in RECORDS[:5]]
    assert elements_of(reader_of(path, name, as_=Amount, **options)) == [
        (each["amount"], each["id"]) for each in RECORDS[:5]
    ]
    models = elements_of(reader_of(path, name, as_=Model, **options))
    assert models == [Model(id=each["id"], at=each["at"], user=each["user"]) for each in RECORDS[:5]]


@formats
def test_many_small_files_are_read_by_one_split(name: str, tmp_path: Path) -> None:
    for i in range(60):
        written(tmp_path / f"{i:02}", name, visits(3, 3 * i))
    read = reader_of(tmp_path / "*" / name, name)
    assert elements_of(read, desired=4) == visits(180)
    assert len(read.source.splits(4)) == 1


@formats
def test_missing_columns_are_refused_or_with_union_none(name: str, tmp_path: Path) -> None:
    if name == "visits.avro":
        pytest.skip("the schema is written by hand: see test_avro")
    options: dict[str, Any] = {"schema": None}
    first = [{"id": 1, "url": "x"}]
    second = [{"id": 2, "size": 2.5}]
    paths = [written(tmp_path / "1", name, first), written(tmp_path / "2", name, second)]
    with pytest.raises(tg.ReadError) as caught:
        elements_of(reader_of(paths, name, **options, as_=tg.Row))
    assert "/2/" in str(caught.value)
    assert "column 'size'" in str(caught.value)
    united = elements_of(reader_of(paths, name, **options, as_=tg.Row, schema_evolution="union"))
    assert [row._asdict() for row in united] == [
        {"id": 1, "url": "x", "size": None},
        {"id": 2, "url": None, "size": 2.5},
    ]


@formats
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_with_union_the_author_s_columns_are_read_wherever_they_are(
    name: str, order: tuple[int, int], tmp_path: Path
) -> None:
    if name == "visits.avro":
        pytest.skip("the schema is written by hand: see test_avro")
    records: list[dict[str, Any]] = [{"id": 1, "url": "x"}, {"id": 2, "size": 2.5}]
    paths = [written(tmp_path / str(at), name, [records[at]]) for at in order]
    schema = {"id": int, "url": str | None, "size": float | None}
    united = elements_of(reader_of(paths, name, as_=tg.Row, schema=schema, schema_evolution="union"))
    both = [{"id": 1, "url": "x", "size": None}, {"id": 2, "url": None, "size": 2.5}]
    assert [row._asdict() for row in united] == [both[at] for at in order]


@formats
def test_an_unknown_column_is_refused_when_the_step_is_applied(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name)
    message = "colour"
    if name != "visits.jsonl":
        message = "column 'colour': there is no such column; there are id, url, amount, at, user"
    with pytest.raises(tg.BuildError, match=message):
        elements_of(reader_of(path, name, columns=["colour"]))


@formats
def test_a_column_of_another_type_than_in_the_schema_is_refused_with_its_name(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name)
    with pytest.raises((tg.BuildError, tg.ReadError), match="url"):
        elements_of(reader_of(path, name, schema={"url": int}))


@formats
def test_a_truncated_file_is_an_error_or_a_dead_letter(name: str, tmp_path: Path) -> None:
    data = FORMATS[name][1](RECORDS)
    path = write(tmp_path / name, data[: len(data) * 2 // 3])
    if name == "visits.jsonl":
        path.write_bytes(data[: data.rfind(b"\n", 0, len(data) // 2) - 9])
    if name == "visits.csv":
        path.write_bytes(data[: data.rfind(b",", 0, len(data) // 2) - 9])
    with pytest.raises((tg.BuildError, tg.ReadError), match=name):
        elements_of(reader_of(path, name))
    found = elements_of(reader_of(path, name, bad_records="dead_letter"))
    bad = [element for element in found if isinstance(element, tg.io.BadRecord)]
    good = [element for element in found if not isinstance(element, tg.io.BadRecord)]
    assert len(bad) == 1
    assert bad[0].file == str(path)
    assert good == RECORDS[: len(good)]


def test_a_pattern_without_files_is_an_error_unless_allowed(tmp_path: Path) -> None:
    with pytest.raises(tg.BuildError, match="no file matches"):
        elements_of(tg.io.ReadFromParquet(tmp_path / "*.parquet"))
    assert elements_of(tg.io.ReadFromParquet(tmp_path / "*.parquet", allow_empty=True)) == []


@pytest.mark.parametrize("wrong", [3, [3], None])
def test_an_invalid_path_is_refused(wrong: Any) -> None:
    with pytest.raises(tg.BuildError, match="ReadFromAvro takes a path, a pattern, or a list of them"):
        tg.io.ReadFromAvro(wrong)

"""Reading one version of a Delta table: which version, which files, and what the rows become."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pydantic import BaseModel

import tidegate as tg
from tests.support.delta_tables import actions_of, append, commit_by_hand, delete_by_vector, table_of_visits
from tests.support.record_files import drain, drain_with_positions, elements_of, visits
from tidegate.sdk.portable.model import Read, Write
from tidegate.testing import check_source

ROOT = Path(__file__).resolve().parents[3]
DAY = dt.date(2013, 1, 1)


@dataclasses.dataclass
class Visit:
    id: int
    url: str
    user: str | None


class Named(NamedTuple):
    id: int
    user: str | None


class Model(BaseModel):
    id: int
    at: dt.datetime


def read(table: Path, **arguments: Any) -> list[Any]:
    return sorted(elements_of(tg.ReadFromDelta(table, **{"as_": dict, **arguments})), key=lambda row: row["id"])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return table_of_visits(tmp_path)


def test_without_a_version_the_latest_is_read_when_the_run_starts(table: Path) -> None:
    reading = tg.ReadFromDelta(table, as_=dict)
    reading.source.check()
    append(table, visits(20, 60))
    assert sorted(elements_of(reading), key=lambda row: row["id"]) == visits(80)


def test_an_earlier_version_is_read_by_its_number_or_by_an_instant(table: Path) -> None:
    assert read(table, version=0) == visits(20)
    assert read(table, version=1) == visits(40)
    committed = actions_of(table, 1)[0]["commitInfo"]["timestamp"]
    log = table / "_delta_log"
    for number in range(3):
        at = committed / 1000 + 100 * (number - 1)
        os.utime(log / f"{number:020}.json", (at, at))
    at = dt.datetime.fromtimestamp(committed / 1000, dt.UTC)
    assert read(table, as_of=at + dt.timedelta(seconds=1)) == visits(40)
    assert read(table, as_of=tg.Timestamp.of(at) + 200) == visits(60)


@pytest.mark.parametrize("as_", [tg.Row, dict, Visit, Named, Model])
def test_rows_become_what_the_author_asks_for(table: Path, as_: Any) -> None:
    columns = {tg.Row: ["id", "user"], dict: ["id", "user"]}.get(as_)
    found = elements_of(tg.ReadFromDelta(table, version=0, columns=columns, as_=as_))
    first = visits(1)[0]
    expected: dict[Any, Any] = {
        tg.Row: tg.Row(id=0, user=None),
        dict: {"id": 0, "user": None},
        Visit: Visit(0, first["url"], None),
        Named: Named(0, None),
        Model: Model(id=0, at=first["at"]),
    }
    assert expected[as_] in found
    assert len(found) == 20
    assert {type(element) for element in found} == {type(expected[as_])}


def test_a_predicate_skips_files_by_their_statistics_and_then_rows(table: Path) -> None:
    assert read(table, where=[("id", ">=", 25), ("id", "<", 27)]) == visits(2, 25)
    splits = tg.ReadFromDelta(table, where=[("id", ">=", 25), ("id", "<", 27)], min_split_size=1).source.splits(8)
    assert len(splits) == 1
    assert len(tg.ReadFromDelta(table, min_split_size=1).source.splits(8)) == 3


def test_a_time_within_the_millisecond_of_a_files_greatest_one_is_not_skipped(tmp_path: Path) -> None:
    at = dt.datetime(2013, 1, 1, 0, 0, 0, 123456, tzinfo=dt.UTC)
    append(tmp_path / "t", [{"id": 1, "at": at}], pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]))
    assert len(read(tmp_path / "t", where=[("at", ">=", at)])) == 1
    assert len(read(tmp_path / "t", where=[("at", ">", at)])) == 0


PARTITIONS: list[tuple[str, Any, Any]] = [
    ("text", pa.string(), "a b/c=%ä"),
    ("number", pa.int32(), -7),
    ("day", pa.date32(), DAY),
    ("at", pa.timestamp("us", "UTC"), dt.datetime(2013, 1, 1, 6, 30, 0, 5, tzinfo=dt.UTC)),
    ("flag", pa.bool_(), True),
    ("price", pa.decimal128(10, 2), Decimal("1.50")),
]


@pytest.mark.parametrize("followed", [False, True])
@pytest.mark.parametrize(("name", "type", "value"), PARTITIONS)
def test_values_of_partitions_have_the_columns_types(
    tmp_path: Path, name: str, type: Any, value: Any, followed: bool
) -> None:
    table = tmp_path / "t"
    schema = pa.schema([("id", pa.int64()), (name, type)])
    append(table, [{"id": 0, name: value}], schema, partition_by=[name])
    source = tg.ReadFromDelta(table, as_=dict, columns=[name, "id"], follow=followed).source
    enumerator = source.enumerator()
    if enumerator is not None:
        enumerator.discover(10)  # the first version is read as a table, and later ones from the log
    append(table, [{"id": 1, name: value}, {"id": 2, name: None}], schema)
    splits = source.splits(1) if enumerator is None else enumerator.discover(10).splits
    found = [element for split in splits for element in drain(source, split)]
    expected = [{name: value, "id": 1}, {name: None, "id": 2}]
    assert sorted(found, key=lambda row: row["id"])[-2:] == expected
    where = tg.ReadFromDelta(table, as_=dict, where=[(name, "==", value)])
    assert {row["id"] for row in elements_of(where)} == {0, 1}
    assert elements_of(tg.ReadFromDelta(table, columns=["id"], where=[(name, "==", None)], as_=dict)) == [{"id": 2}]
    assert sorted(elements_of(tg.ReadFromDelta(table, columns=[name], as_=dict)), key=repr) == sorted(
        [{name: value}, {name: value}, {name: None}], key=repr
    )


def test_a_column_that_was_added_later_is_null_in_older_rows(tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, [{"id": 1}])
    append(table, [{"id": 2, "more": "x"}], schema_mode="merge")
    assert read(table) == [{"id": 1, "more": None}, {"id": 2, "more": "x"}]
    assert read(table, version=0) == [{"id": 1}]
    assert read(table, where=[("more", "==", None)]) == [{"id": 1, "more": None}]


def test_rows_of_a_large_file_are_read_by_several_workers(tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, [{"id": 0}])
    data = pa.table({"id": range(1, 1001)})
    pq.write_table(data, table / "large.parquet", row_group_size=100)
    size = (table / "large.parquet").stat().st_size
    add = {"path": "large.parquet", "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    commit_by_hand(table, 1, {"add": add})
    source = tg.ReadFromDelta(table, as_=dict, min_split_size=size // 4).source
    splits = source.splits(4)
    assert len(splits) > 2
    assert len({split.id for split in splits}) == len(splits)
    assert sorted(row["id"] for split in splits for row in drain(source, split)) == list(range(1001))


def test_the_source_keeps_the_rules_of_sources(tmp_path: Path) -> None:
    table = table_of_visits(tmp_path, versions=3, rows=7, partition_by=["url"])
    gone = table_of_visits(tmp_path / "gone", versions=1)
    for file in gone.glob("*.parquet"):
        file.unlink()
    report = check_source(
        lambda: tg.ReadFromDelta(table, as_=dict, min_split_size=1).source,
        expected=visits(21),
        bad_source=lambda: tg.ReadFromDelta(gone, as_=dict).source,
        bad_place=".parquet",
    )
    assert {"resumes_at_every_position", "bad_input_is_a_read_error"} <= set(report.passed)


def build(*arguments: Any, **options: Any) -> None:
    tg.Pipeline() | tg.ReadFromDelta(*arguments, **options)


def test_a_folder_without_a_table_is_refused_when_the_pipeline_is_built(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place, words in (("empty", "the folder has no _delta_log"), ("missing", "there is no such folder")):
        with pytest.raises(tg.BuildError, match=f"{place}: there is no Delta table here: {words}"):
            build(tmp_path / place)


def test_a_version_that_does_not_exist_is_refused_with_the_latest(table: Path) -> None:
    with pytest.raises(tg.BuildError, match=r"visits has no version 7: the latest is 2"):
        build(table, version=7)
    with pytest.raises(tg.BuildError, match=r"has no version of 2001-01-01T00:00:00\+00:00: the first one that can be"):
        build(table, as_of=dt.datetime(2001, 1, 1, tzinfo=dt.UTC))


def test_a_version_whose_log_was_cleaned_up_is_refused(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    for number in range(2):
        (table / "_delta_log" / f"{number:020}.json").unlink()
    assert read(table) == visits(60)
    with pytest.raises(tg.BuildError, match=r"version 1 can't be read any more.*the latest is 2"):
        build(table, version=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": ["city"]}, r"visits, column 'city': there is no such column; there are id, url, amount, at, user"),
        ({"where": [("city", "==", "x")]}, r"visits, column 'city': where names it, and there is no such column"),
        ({"where": [("id", ">", "x")]}, r"where=\('id', '>', 'x'\): the column is int64"),
        ({"as_": Model, "version": 1, "as_of": 3}, "version= and as_of= both say"),
        ({"version": -1}, "version is a whole number from 0 on, not -1"),
        ({"as_of": "yesterday"}, "as_of is an aware datetime or a tg.Timestamp, not 'yesterday'"),
        ({"schema": {"id": str}}, r"visits, column 'id': it is int64 in the file, and the schema says string"),
        ({"skip_change_commits": True}, "skip_change_commits= is about the versions that follow=True reads"),
        ({"follow": True, "poll_interval": 0}, "poll_interval must be positive"),
        ({"min_split_size": 0}, "min_split_size is a whole number from 1 on, not 0"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_when_the_pipeline_is_built(
    table: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(tg.BuildError, match=words):
        build(table, **options)


def test_a_data_file_that_a_vacuum_has_removed_is_position_lost(table: Path) -> None:
    old = tg.ReadFromDelta(table, version=2, as_=dict).source
    old.check()
    changed = DeltaTable(str(table))
    changed.optimize.compact()
    changed.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(tg.io.PositionLost, match=r"visits/part-.*the data file is gone; a VACUUM"):
        elements_of(tg.ReadFromDelta(table, version=2, as_=dict))
    with pytest.raises(tg.io.PositionLost, match="the data file is gone"):
        elements_of(tg.ReadFromDelta(table, version=2, as_=dict, bad_records="dead_letter"))
    assert read(table) == visits(60)


def test_a_data_file_that_something_has_written_again_is_refused(table: Path) -> None:
    file = next(table.glob("*.parquet"))
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(tg.ReadError, match=rf"{file.name}: the data file has \d+ bytes, and \d+ in the table's log"):
        read(table)


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        ({"minReaderVersion": 2, "minWriterVersion": 5}, None),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timestampNtz", "deletionVectors"]}, None),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["columnMapping"]}, None),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["variantType"]}, "variantType"),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["futureFeature"]}, "futureFeature"),
    ],
)
def test_tables_with_a_reader_feature_that_is_not_known_are_refused_by_its_name(
    table: Path, protocol: dict[str, Any], words: str | None
) -> None:
    if "readerFeatures" in protocol:
        protocol["writerFeatures"] = protocol["readerFeatures"]
    commit_by_hand(table, 3, {"protocol": protocol})
    if words is None:
        assert read(table) == visits(60)
    else:
        with pytest.raises(tg.BuildError, match=words):
            build(table)


def test_a_table_with_mapped_columns_is_refused(table: Path) -> None:
    (metadata,) = [action["metaData"] for action in actions_of(table, 0) if "metaData" in action]
    schema = json.loads(metadata["schemaString"])
    for at, field in enumerate(schema["fields"]):
        field["metadata"] = {"delta.columnMapping.id": at + 1, "delta.columnMapping.physicalName": field["name"]}
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"] = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "5"}
    commit_by_hand(table, 3, {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": metadata})
    with pytest.raises(tg.BuildError, match="the reader feature columnMapping, which ReadFromDelta can't read"):
        build(table)


@pytest.mark.parametrize("partition_by", [None, "k"])
def test_rows_that_a_deletion_vector_deletes_are_not_read(tmp_path: Path, partition_by: str | None) -> None:
    table = tmp_path / "t"
    append(table, [{"id": n, "k": "a b/ü%"} for n in range(50)], partition_by=partition_by)
    delete_by_vector(table, 1, [0, 7, 8, 30])
    expected = [n for n in range(50) if n not in (0, 7, 8, 30)]
    assert [row["id"] for row in read(table)] == expected
    assert len(elements_of(tg.ReadFromDelta(table, columns=["k"]))) == 46
    assert [row["id"] for row in read(table, where=[("id", "<", 9)])] == [1, 2, 3, 4, 5, 6]
    assert len(read(table, version=0)) == 50
    source = tg.ReadFromDelta(table, as_=dict).source
    (split,) = source.splits(1)
    for at, (_, position) in enumerate(drain_with_positions(source, split, limit=1), start=1):
        assert [row["id"] for row in drain(source, split, position)] == expected[at:]


def test_a_shallow_clone_is_refused(table: Path, tmp_path: Path) -> None:
    add = {"partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    commit_by_hand(table, 3, {"add": {**add, "path": f"file://{tmp_path}/other/file.parquet"}})
    with pytest.raises(tg.ReadError, match="lies outside the table's folder, as those of a shallow clone do"):
        read(table)


def test_times_without_a_zone_need_one_and_instants_do_not_take_it(tmp_path: Path) -> None:
    table = tmp_path / "t"
    schema = pa.schema([("id", pa.int64()), ("local", pa.timestamp("us")), ("at", pa.timestamp("us", "UTC"))])
    noon = dt.datetime(2013, 1, 1, 12)
    append(table, [{"id": 1, "local": noon, "at": noon.replace(tzinfo=dt.UTC)}], schema)
    with pytest.raises(tg.BuildError, match="column 'local': its times have no time zone"):
        build(table)
    (row,) = read(table, timezone="Europe/Berlin")
    assert row == {"id": 1, "local": noon.replace(hour=11, tzinfo=dt.UTC), "at": noon.replace(tzinfo=dt.UTC)}


def test_instants_that_spark_writes_as_96_bits_are_read_in_utc(tmp_path: Path) -> None:
    table = tmp_path / "t"
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    at = dt.datetime(2013, 1, 1, 6, 0, 0, 7, tzinfo=dt.UTC)
    append(table, [{"id": 1, "at": at}], schema)
    (file,) = table.glob("*.parquet")
    pq.write_table(pa.Table.from_pylist([{"id": 1, "at": at}], schema), file, use_deprecated_int96_timestamps=True)
    add = {"path": "int96.parquet", "partitionValues": {}, "modificationTime": 1, "dataChange": True}
    file.rename(table / "int96.parquet")
    old = {"remove": {"path": file.name, "dataChange": True, "deletionTimestamp": 1}}
    commit_by_hand(table, 1, old, {"add": {**add, "size": (table / "int96.parquet").stat().st_size}})
    assert read(table, timezone="Europe/Berlin") == [{"id": 1, "at": at}]
    assert pq.read_schema(table / "int96.parquet").field("at").type == pa.timestamp("ns")


def test_columns_that_the_table_lacks_can_be_none(table: Path) -> None:
    schema = {"city": str | None}
    assert (
        elements_of(tg.ReadFromDelta(table, as_=dict, schema=schema, schema_evolution="union")) == [{"city": None}] * 60
    )


def test_records_that_a_model_refuses_are_dead_letters(table: Path) -> None:
    class Small(BaseModel):
        id: int
        user: str

    found = elements_of(tg.ReadFromDelta(table, version=0, as_=Small, bad_records="dead_letter"))
    bad = [each for each in found if isinstance(each, tg.io.BadRecord)]
    assert len(bad) == 7
    assert {each.column for each in bad} == {"user"}
    assert len(found) == 20


def test_a_plain_secret_is_refused_and_a_reference_is_resolved_where_the_table_is_opened(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "azure_storage_account_key", "AZURE_STORAGE_SAS_KEY", "aws_session_token"):
        with pytest.raises(tg.BuildError, match=f"storage_options has '{name}' as plain text"):
            tg.ReadFromDelta("s3://bucket/t", storage_options={name: "open sesame"})
    with pytest.raises(tg.BuildError, match=r"storage_options\['allow_http'\] is bool: deltalake takes texts"):
        tg.ReadFromDelta("s3://bucket/t", storage_options={"allow_http": True})
    with pytest.raises(tg.BuildError, match="storage_options are arguments for the file systems of URLs"):
        tg.ReadFromDelta(table, storage_options={"allow_http": "true"})
    options = {"aws_secret_access_key": "${DELTA_KEY}", "AWS_ACCESS_KEY_ID": "me", "allow_http": "true"}
    location = tg.ReadFromDelta("s3://bucket/t", storage_options=options).source.location
    assert "DELTA_KEY" not in repr(location)
    with pytest.raises(tg.RunError, match="has no environment variable DELTA_KEY"):
        location.client_options()
    monkeypatch.setenv("DELTA_KEY", "open sesame")
    assert location.client_options()["aws_secret_access_key"] == "open sesame"


def test_a_table_in_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tg.BuildError, match="exists only in one process"):
        tg.ReadFromDelta("memory://table")


def test_paths_may_be_relative(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(table.parent)
    assert read(Path("visits")) == visits(60)
    source = tg.ReadFromDelta("visits").source
    shutil.rmtree(table)
    with pytest.raises(tg.ReadError, match="visits: there is no Delta table here: there is no such folder"):
        source.splits(1)


FORKED = """
import os, sys
import tidegate as tg
source = tg.ReadFromDelta(sys.argv[1]).source
source.check()
sys.stdout.flush()
if not os.fork():
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the library prints a traceback of its own
    try:
        source.splits(1)
    except tg.ReadError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""


def test_a_process_that_was_forked_after_the_first_use_is_told_so(table: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED, str(table)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=True)
    assert "can't be read: the package deltalake was used in this process's parent before the fork" in done.stdout


def test_workers_that_use_the_library_are_not_forked_for_checkpoints(table: Path) -> None:
    p = tg.Pipeline()
    _ = p | tg.ReadFromDelta(table, as_=dict) | tg.WriteToDelta(table.parent / "copy", {"id": int})
    nodes = [node for node in p.sealed().nodes if isinstance(node, Read | Write)]
    assert [node.forks_safely for node in nodes] == [False, False]

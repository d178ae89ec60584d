"""Writing to a Delta table: what is committed, what is refused, and what other readers find."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.delta_tables import actions_of, append, commit_by_hand, rows_of, table_of_visits
from tests.support.record_files import elements_of, visits
from tidegate.io.delta.sink import DeltaSink
from tidegate.testing import check_sink

SCHEMA = {"id": int, "name": str | None}


@dataclasses.dataclass
class Visit:
    id: int
    url: str
    amount: float
    at: dt.datetime
    user: str | None


def sink_of(table: Path | str, schema: Any = SCHEMA, **arguments: Any) -> DeltaSink:
    """The sink that a pipeline gets."""
    p = tg.Pipeline()
    found: list[DeltaSink] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.io.delta.writing.Write", lambda sink, name: found.append(sink) or tg.Map(str))
        _ = p | tg.Create([{"id": 1}]) | tg.WriteToDelta(table, schema, **arguments)
    return found[0]


def prepared(sink: DeltaSink, run: str, rows: list[Any], task: int = 0) -> list[tg.io.Committable]:
    attempt = sink.attempt(run, task)
    attempt.write(rows)
    found = attempt.prepare()
    attempt.close()
    return found


def write(table: Path, rows: list[Any], schema: Any = None, **arguments: Any) -> None:
    with tg.Pipeline() as p:
        _ = p | tg.Create(rows) | tg.WriteToDelta(table, schema, **arguments)


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def test_a_table_is_created_and_appended_to_in_one_version_each(tmp_path: Path) -> None:
    table = tmp_path / "visits"
    write(table, [Visit(**row) for row in visits(10)], Visit, partition_by="url")
    write(table, visits(10, 10))
    assert by_id(rows_of(table)) == visits(20)
    assert by_id(elements_of(tg.ReadFromDelta(table, as_=dict))) == visits(20)
    assert DeltaTable(str(table)).version() == 2
    assert DeltaTable(str(table)).metadata().partition_columns == ["url"]
    assert [name for name in table.iterdir() if name.name.startswith(".")] == []


def test_the_class_of_the_elements_says_the_columns(tmp_path: Path) -> None:
    with tg.Pipeline() as p:
        rows = p | tg.Create(visits(3)) | tg.Map(lambda row: Visit(**row)).with_output_types(Visit)
        _ = rows | tg.WriteToDelta(tmp_path / "t")
    assert by_id(rows_of(tmp_path / "t")) == visits(3)
    assert [field.nullable for field in DeltaTable(str(tmp_path / "t")).schema().fields] == [False] * 4 + [True]


def test_overwriting_replaces_all_rows_in_one_version(tmp_path: Path) -> None:
    table = table_of_visits(tmp_path)
    write(table, visits(5, 100), mode="overwrite")
    assert by_id(rows_of(table)) == visits(5, 100)
    write(table, [], Visit, mode="overwrite")
    assert rows_of(table) == []
    assert by_id(elements_of(tg.ReadFromDelta(table, version=3, as_=dict))) == visits(5, 100)


def test_a_run_that_fails_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    table = table_of_visits(tmp_path, versions=1)
    with pytest.raises(tg.WriteError, match=r"visits: column 'id' of .*: 'many'.*"):
        write(table, [visits(1)[0], {**visits(1)[0], "id": "many"}])
    assert DeltaTable(str(table)).version() == 0
    missing = tmp_path / "missing"
    with pytest.raises(tg.WriteError, match="column 'id'"):
        write(missing, [{"id": "x"}], SCHEMA)
    assert not (missing / "_delta_log").exists()


@pytest.mark.parametrize(("partition_by", "codec"), [(None, "zstd"), ("id", "none")])
def test_the_sink_keeps_the_rules_of_sinks(tmp_path: Path, partition_by: str | None, codec: str) -> None:
    places = iter(range(10_000))

    def make() -> DeltaSink:
        return sink_of(tmp_path / f"t{next(places)}", partition_by=partition_by, codec=codec)

    report = check_sink(
        make,
        elements=[{"id": n % 4, "name": None if n % 3 else f"name {n}"} for n in range(12)],
        read_back=lambda sink: rows_of(sink.location.url) if Path(sink.location.url, "_delta_log").exists() else [],
        bad_element={"id": "many"},
        bad_place="column 'id'",
        skip={"commits_in_another_process": "it takes seconds"} if partition_by else {},
    )
    assert {"commits_twice", "aborts_after_prepare", "attempts_of_a_task_do_not_interfere"} <= set(report.passed)


def test_a_checkpoint_is_one_version_that_names_the_run_and_the_checkpoint(tmp_path: Path) -> None:
    table = tmp_path / "t"
    sink = sink_of(table, partition_by="name")
    pieces = [prepared(sink, "run", [{"id": n, "name": name} for name in "abc"], task=n) for n in range(3)]
    sink.commit("run", [each for piece in pieces for each in piece], 7)
    assert len(rows_of(table)) == 9
    assert DeltaTable(str(table)).version() == 1
    assert DeltaTable(str(table)).transaction_version("tidegate-run") == 7
    sink.commit("run", [], 8)
    assert DeltaTable(str(table)).version() == 1


def test_a_commit_that_is_repeated_after_later_ones_changes_nothing(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "t")
    commits = [prepared(sink, "run", [{"id": n}]) for n in range(3)]
    for number, committables in enumerate(commits, start=1):
        sink.commit("run", committables, number)
    sink.commit("run", commits[0], 1)
    sink.commit("run", commits[2], 3)
    other = prepared(sink, "run2", [{"id": 3}])
    sink.commit("run2", other, 1)
    sink.abort("run")
    assert [row["id"] for row in by_id(rows_of(tmp_path / "t"))] == [0, 1, 2, 3]


def test_many_writers_append_at_the_same_time(tmp_path: Path) -> None:
    table = tmp_path / "t"
    sinks = [sink_of(table) for _ in range(6)]
    failures: list[BaseException] = []

    def commits(at: int) -> None:
        try:
            for number in range(1, 6):
                rows = [{"id": 100 * at + number}]
                sinks[at].commit(f"run{at}", prepared(sinks[at], f"run{at}", rows), number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=commits, args=(at,)) for at in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    expected = sorted(100 * at + number for at in range(6) for number in range(1, 6))
    assert sorted(row["id"] for row in rows_of(table)) == expected


def test_what_others_do_to_a_table_does_not_stop_a_stream(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "t")
    for number in range(1, 5):
        sink.commit("run", prepared(sink, "run", [{"id": number}]), number)
        table = DeltaTable(str(tmp_path / "t"))
        if number == 2:
            table.optimize.compact()
            table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        table.create_checkpoint()
    append(tmp_path / "t", [{"id": 9, "more": "x"}], schema_mode="merge")
    sink.commit("run", prepared(sink, "run", [{"id": 5}]), 5)
    assert [row["id"] for row in by_id(rows_of(tmp_path / "t"))] == [1, 2, 3, 4, 5, 9]


def test_unfinished_files_are_not_removed_by_a_vacuum(tmp_path: Path) -> None:
    table = table_of_visits(tmp_path)
    sink = sink_of(table, None)
    pieces = prepared(sink, "run", visits(5, 60))
    DeltaTable(str(table)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    sink.commit("run", pieces, 1)
    assert by_id(rows_of(table)) == visits(65)


def altered(table: Path, change: Any, **metadata: Any) -> None:
    (action,) = [each["metaData"] for each in actions_of(table, 0) if "metaData" in each]
    schema = json.loads(action["schemaString"])
    schema["fields"] = change(schema["fields"])
    commit_by_hand(table, 1, {"metaData": {**action, "schemaString": json.dumps(schema), **metadata}})


NOT_NULL = {"name": "new", "type": "long", "nullable": False, "metadata": {}}


@pytest.mark.parametrize(
    ("change", "metadata", "words"),
    [
        (lambda fields: fields[1:], {}, "it has no column 'id' any more"),
        (lambda fields: [{**fields[0], "type": "string"}, fields[1]], {}, "column 'id' is string now, and was int64"),
        (lambda fields: [fields[0], {**fields[1], "nullable": False}], {}, "column 'name' may not be null any more"),
        (lambda fields: [*fields, NOT_NULL], {}, "it has a column 'new' that may not be null"),
        (lambda fields: fields, {"partitionColumns": ["name"]}, "it is partitioned by name now, and was by nothing"),
    ],
)
def test_a_table_that_is_altered_while_the_pipeline_runs_is_refused(
    tmp_path: Path, change: Any, metadata: Any, words: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    append(tmp_path / "t", [{"id": 1, "name": None}], schema)
    sink = sink_of(tmp_path / "t")
    pieces = prepared(sink, "run", [{"id": 2}])
    altered(tmp_path / "t", change, **metadata)
    with pytest.raises(tg.WriteError, match=f"t was altered while the pipeline ran: {words}. Build the pipeline again"):
        sink.commit("run", pieces, 1)


def build(table: Any, schema: Any = None, rows: Any = None, **arguments: Any) -> None:
    _ = tg.Pipeline() | tg.Create(rows or [{"id": 1}]) | tg.WriteToDelta(table, schema, **arguments)


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        ({"id": int, "city": str}, {}, r"visits has no column 'city', but id, url, amount, at, user: add the column"),
        ({"id": str}, {}, r"visits: column 'id' is int64 in the table, and string here"),
        ({"id": int}, {"partition_by": "id"}, r"partition_by is id, but .*visits is partitioned by nothing"),
        (None, {"mode": "error"}, "mode is 'append' or 'overwrite', not 'error'"),
        (None, {"codec": "zip"}, "codec is one of"),
        (None, {"max_file_bytes": 0}, "max_file_bytes is a number of bytes from 1 on, not 0"),
    ],
)
def test_what_does_not_fit_the_table_is_refused_when_the_pipeline_is_built(
    tmp_path: Path, schema: Any, options: dict[str, Any], words: str
) -> None:
    table = table_of_visits(tmp_path, versions=1)
    with pytest.raises(tg.BuildError, match=words):
        build(table, schema, **options)


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        (None, {}, "there is no table yet: give its columns with schema="),
        (SCHEMA, {"create": False}, "there is no Delta table here: there is no such folder; create=True creates it"),
        ({"id": dt.time}, {}, r"column 'id' is time64\[us\], which Delta tables don't have"),
        (SCHEMA, {"partition_by": "city"}, "partition_by names 'city', which is no column: id, name"),
        (SCHEMA, {"partition_by": ["id", "name"]}, "partition_by names all columns"),
        ({"id": int, "of": list[int]}, {"partition_by": "of"}, "partitions are named by single values"),
        ({"id": object}, {}, "the column 'id' needs a type"),
    ],
)
def test_a_table_that_can_not_be_created_is_refused_when_the_pipeline_is_built(
    tmp_path: Path, schema: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(tg.BuildError, match=words):
        build(tmp_path / "t", schema, **options)


@pytest.mark.parametrize(
    ("properties", "field", "words"),
    [
        ({"delta.constraints.positive": "id > 0"}, {}, "checkConstraints"),
        ({"delta.enableRowTracking": "true"}, {}, "rowTracking"),
        ({}, {"delta.generationExpression": "1"}, "generatedColumns"),
        ({}, {"delta.identity.start": 1}, "identityColumns"),
        ({}, {"delta.invariants": '{"expression": {"expression": "id > 0"}}'}, "invariants"),
    ],
)
def test_what_a_table_demands_of_its_writers_is_refused_by_name(
    tmp_path: Path, properties: dict[str, str], field: dict[str, Any], words: str
) -> None:
    append(tmp_path / "t", [{"id": 1}])
    altered(tmp_path / "t", lambda fields: [{**fields[0], "metadata": field}], configuration=properties)
    with pytest.raises(tg.BuildError, match=f"the table uses {words}, which WriteToDelta can't write"):
        build(tmp_path / "t")


def test_an_option_by_which_writers_overwrite_each_other_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({"aws_s3_allow_unsafe_rename": "true"}, None):
        with pytest.raises(tg.BuildError, match="two writers can overwrite each other's transactions"):
            build("s3://bucket/t", storage_options=options)
        monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")


def test_a_table_that_only_grows_is_not_overwritten(tmp_path: Path) -> None:
    append(tmp_path / "t", [{"id": 1}], configuration={"delta.appendOnly": "true"})
    build(tmp_path / "t")
    with pytest.raises(tg.BuildError, match=r"delta\.appendOnly=true, so it can't be overwritten"):
        build(tmp_path / "t", mode="overwrite")


def test_a_stream_does_not_overwrite(tmp_path: Path) -> None:
    p = tg.Pipeline()
    numbers = p | tg.PeriodicImpulse(interval=1) | tg.Map(lambda n: {"id": 1})
    with pytest.raises(tg.BuildError, match="mode='overwrite' would replace what the stream has written before"):
        _ = numbers | tg.WriteToDelta(tmp_path / "t", SCHEMA, mode="overwrite")
    sink = sink_of(tmp_path / "t", mode="overwrite")
    with pytest.raises(tg.WriteError, match="a stream can't overwrite a table"):
        sink.commit("run", [], 1)


def test_two_steps_do_not_write_to_one_table(tmp_path: Path) -> None:
    p = tg.Pipeline()
    rows = p | tg.Create([{"id": 1}])
    _ = rows | "one" >> tg.WriteToDelta(tmp_path / "t", SCHEMA)
    with pytest.raises(tg.BuildError, match="t"):
        _ = rows | "two" >> tg.WriteToDelta(f"{tmp_path}/../{tmp_path.name}/t/", SCHEMA)


PARTITION_VALUES: list[tuple[Any, Any]] = [
    (str, "a b/c=%ä?"),
    (int, -5),
    (dt.date, dt.date(2013, 1, 1)),
    (dt.datetime, dt.datetime(2013, 1, 1, 6, 0, 0, 5, tzinfo=dt.timezone(dt.timedelta(hours=1)))),
    (bool, False),
    (float, 0.1),
    (Decimal, Decimal("1.5")),
]


@pytest.mark.parametrize(("type", "value"), PARTITION_VALUES)
def test_values_of_partitions_are_read_back(tmp_path: Path, type: Any, value: Any) -> None:
    table = tmp_path / "t"
    write(table, [{"id": 1, "of": value}, {"id": 2, "of": None}], {"id": int, "of": type | None}, partition_by="of")
    expected = [{"id": 1, "of": value}, {"id": 2, "of": None}]
    assert by_id(rows_of(table)) == expected
    assert by_id(elements_of(tg.ReadFromDelta(table, as_=dict))) == expected
    assert elements_of(tg.ReadFromDelta(table, as_=dict, where=[("of", "==", value)])) == expected[:1]


@pytest.mark.parametrize(("type", "value"), [(str, ""), (float, math.nan)])
def test_a_value_that_no_partition_can_have_is_refused(tmp_path: Path, type: Any, value: Any) -> None:
    with pytest.raises(tg.WriteError, match="can't name a partition"):
        write(tmp_path / "t", [{"id": 1, "of": value}], {"id": int, "of": type}, partition_by="of")


def test_many_partitions_are_written_with_few_open_files(tmp_path: Path) -> None:
    rows = [{"id": n, "name": str(n % 150)} for n in range(600)]
    write(tmp_path / "t", rows, SCHEMA, partition_by="name", row_group_buffer_size=1)
    assert by_id(rows_of(tmp_path / "t")) == rows


def test_large_output_is_divided_into_files(tmp_path: Path) -> None:
    rows = [{"id": n, "name": f"name {n * 7919 % 10_007}"} for n in range(20_000)]
    write(tmp_path / "t", rows, SCHEMA, row_group_buffer_size=50_000, max_file_bytes=30_000, codec="zstd")
    assert by_id(rows_of(tmp_path / "t")) == rows
    assert len(list((tmp_path / "t").glob("part-*.zstd.parquet"))) > 2


VALUES = st.fixed_dictionaries(
    {
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "real": st.none() | st.floats(),
        "text": st.none() | st.text(max_size=80),
        "day": st.none() | st.dates(),
        "at": st.none() | st.datetimes(timezones=st.just(dt.UTC)),
        "yes": st.none() | st.booleans(),
        "price": st.none() | st.decimals(-1000, 1000, places=9),
    }
)
COLUMNS = {
    "number": int | None,
    "real": float | None,
    "text": str | None,
    "day": dt.date | None,
    "at": dt.datetime | None,
    "yes": bool | None,
    "price": Decimal | None,
}


def is_same(row: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether rows have equal values, or NaN both, in any order of columns."""
    return row.keys() == other.keys() and all(
        value == other[name] or (value != value and other[name] != other[name]) for name, value in row.items()
    )


@settings(max_examples=15)
@given(rows=st.lists(VALUES, min_size=1, max_size=4), data=st.data())
def test_statistics_never_rule_out_a_row(tmp_path_factory: pytest.TempPathFactory, rows: list[Any], data: Any) -> None:
    table = tmp_path_factory.mktemp("t")
    sink = sink_of(table, COLUMNS)
    sink.commit("run", prepared(sink, "run", rows), None)
    row = data.draw(st.sampled_from(rows))
    name = data.draw(st.sampled_from(sorted(COLUMNS)))
    value = row[name]
    if isinstance(value, float) and math.isnan(value):
        return
    operators = ["=="] if value is None else ["==", "<=", ">=", "in"]
    operator = data.draw(st.sampled_from(operators))
    where = [(name, operator, [value] if operator == "in" else value)]
    found = elements_of(tg.ReadFromDelta(table, as_=dict, where=where))
    assert any(is_same(row, each) for each in found)


def test_times_in_statistics_are_rounded_outwards(tmp_path: Path) -> None:
    at = dt.datetime(2013, 1, 1, 0, 0, 0, 123456, tzinfo=dt.UTC)
    write(tmp_path / "t", [{"id": 1, "at": at}], {"id": int, "at": dt.datetime})
    (add,) = [action["add"] for action in actions_of(tmp_path / "t", 1) if "add" in action]
    statistics = json.loads(add["stats"])
    assert statistics["numRecords"] == 1
    assert (statistics["minValues"]["at"], statistics["maxValues"]["at"]) == (
        "2013-01-01T00:00:00.123Z",
        "2013-01-01T00:00:00.124Z",
    )
    assert statistics["nullCount"] == {"id": 0, "at": 0}


def test_columns_have_the_types_of_the_table(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int32()), ("of", pa.list_(pa.int16())), ("at", pa.timestamp("ns", "UTC"))])
    at = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
    write(tmp_path / "t", [{"id": 1, "of": [1, 2], "at": at}], schema)
    assert rows_of(tmp_path / "t") == [{"id": 1, "of": [1, 2], "at": at}]
    types = [str(field.type) for field in DeltaTable(str(tmp_path / "t")).schema().fields]
    assert types == ['PrimitiveType("integer")', 'ArrayType(PrimitiveType("short"), contains_null=True)', types[2]]
    with pytest.raises(tg.WriteError, match="column 'id'"):
        write(tmp_path / "t", [{"id": 2**31}])

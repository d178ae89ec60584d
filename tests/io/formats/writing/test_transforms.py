"""`WriteToParquet` and similar transforms: the origin of columns, and errors when the pipeline is built."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import tidegate as tg
from tests.support.written_files import FORMATS, all_rows, files_of, rows_of
from tidegate.io.file_sink.sink import FileSink
from tidegate.sdk.portable import model as portable


@dataclasses.dataclass(frozen=True)
class Sale:
    country: str
    amount: float | None


class Pair(NamedTuple):
    key: str
    value: Any


def sale(text: str) -> Sale:
    return Sale(text, None)


def written_sink(p: tg.Pipeline) -> FileSink:
    node = p.sealed().nodes[-1]
    assert isinstance(node, portable.Write)
    found = node.sink.load()
    assert isinstance(found, FileSink)
    return found


def test_the_columns_are_those_of_the_element_type(tmp_path: Path) -> None:
    p = tg.Pipeline()
    _ = p | tg.Create(["DE"]) | tg.Map(sale) | tg.WriteToParquet(f"{tmp_path}/x", partition_by="country")
    schema: Any = written_sink(p).format.schema  # type: ignore[attr-defined]
    assert schema.equals(pa.schema([pa.field("amount", pa.float64())]))


def test_a_class_that_does_not_determine_the_columns_leaves_them_to_be_inferred(tmp_path: Path) -> None:
    with tg.Pipeline() as p:
        _ = p | tg.Create([Pair("a", 1.5)]) | tg.WriteToParquet(f"{tmp_path}/x")
    assert all_rows(tmp_path, "parquet") == [{"key": "a", "value": 1.5}]


@pytest.mark.parametrize("write", [tg.WriteToCsv, tg.WriteToJson, tg.WriteToParquet, tg.WriteToAvro, tg.WriteToArrow])
def test_elements_that_are_no_records_are_refused_when_built(tmp_path: Path, write: Any) -> None:
    p = tg.Pipeline()
    with pytest.raises(tg.TypeCheckError, match=rf"{write.__name__} takes records .*, but its input holds str: make"):
        _ = p | tg.Create(["a"]) | write(f"{tmp_path}/x")


def test_pairs_and_dead_letters_are_no_records_and_the_error_says_how_to_make_some(tmp_path: Path) -> None:
    p = tg.Pipeline(options=[])
    pairs = p | tg.Create([("a", 1)])
    with pytest.raises(tg.TypeCheckError, match=r"holds tuple\[str, int\]: make records of them, as in tg.MapTuple"):
        _ = pairs | "pairs" >> tg.WriteToCsv(f"{tmp_path}/x")
    _, bad = pairs | tg.MapTuple(lambda key, n: n / 0).with_exception_handling()
    advice = r"a dead letter is .* as in tg.MapTuple\(lambda e, error: {'element': str\(e\), 'error': error\[1\]}\)"
    with pytest.raises(tg.TypeCheckError, match=rf"WriteToJson takes records .*: {advice}"):
        _ = bad | "bad" >> tg.WriteToJson(f"{tmp_path}/x")
    _ = bad | tg.Map(lambda letter: letter) | "untyped" >> tg.WriteToJson(f"{tmp_path}/x")
    with pytest.raises(tg.WriteError, match=rf"can't be written: it has no named fields; {advice}"):
        p.run().wait_until_finish()
    with tg.Pipeline(options=[]) as p:
        _, bad = p | tg.Create([1]) | tg.Map(lambda n: n / 0).with_exception_handling()
        letters = bad | tg.MapTuple(lambda e, error: {"element": str(e), "error": error[1]})
        _ = letters | tg.WriteToJson(f"{tmp_path}/letters")
    assert all_rows(tmp_path, "json") == [{"element": "1", "error": "ZeroDivisionError('division by zero')"}]


def test_a_partition_column_that_the_element_type_lacks_is_refused_when_built(tmp_path: Path) -> None:
    p = tg.Pipeline()
    with pytest.raises(tg.BuildError, match="partition_by names 'day', which is no column: country, amount"):
        _ = p | tg.Create([Sale("DE", 1.0)]) | tg.WriteToParquet(f"{tmp_path}/x", partition_by="day")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (tg.WriteToParquet("{0}/x"), tg.WriteToParquet("{0}/x")),
        (tg.WriteToParquet("{0}/x", file_name_suffix=".csv"), tg.WriteToCsv("{0}/x", file_name_suffix=".csv")),
        (tg.WriteToParquet("{0}/y/x", partition_by="n"), tg.WriteToAvro("{0}/y/x", partition_by="m")),
        (tg.WriteToJson("{0}/x"), tg.io.WriteToText("{0}/x")),
    ],
)
def test_two_steps_that_write_the_same_files_are_refused_when_built(tmp_path: Path, one: Any, other: Any) -> None:
    for step in (one, other):
        step.sink = dataclasses.replace(step.sink, prefix=step.sink.prefix.replace("{0}", str(tmp_path)))
    p = tg.Pipeline()
    rows = p | tg.Create([{"n": 1, "m": 2, "o": 3}])
    _ = rows | "one" >> one
    with pytest.raises(tg.BuildError, match=r"the step 'one/Write', .*, already writes .*: one step would overwrite"):
        _ = rows | "other" >> other


def test_options_have_the_same_names_as_in_beam(tmp_path: Path) -> None:
    with tg.Pipeline() as p:
        rows = p | tg.Create([tg.Row(n=1)])
        _ = rows | "parquet" >> tg.WriteToParquet(
            f"{tmp_path}/p",
            pa.schema([("n", pa.int64())]),
            codec="none",
            row_group_buffer_size=1 << 20,
            file_name_suffix=".parquet",
            num_shards=1,
            shard_name_template="",
        )
        schema = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}]}
        _ = rows | "avro" >> tg.WriteToAvro(
            f"{tmp_path}/a", schema, codec="null", file_name_suffix=".avro", num_shards=1, shard_name_template="-SS"
        )
    found = files_of(tmp_path)
    assert rows_of(found["p.parquet"], "parquet") == rows_of(found["a-00.avro"], "avro") == [{"n": 1}]
    assert set(found) == {"p.parquet", "a-00.avro"}


def test_text_files_are_rolled_by_size(tmp_path: Path) -> None:
    with tg.Pipeline() as p:
        lines = p | tg.Create([f"{n:09d}" for n in range(50_000)])
        _ = lines | tg.io.WriteToText(f"{tmp_path}/x", max_file_bytes=100_000)
    sizes = [len(data) for data in files_of(tmp_path).values()]
    assert sum(sizes) == 500_000
    assert len(sizes) > 2


def test_a_missing_package_is_reported_with_the_extra_to_install() -> None:
    script = """
import sys
sys.modules["pyarrow"] = sys.modules["fastavro"] = None
import tidegate as tg
for write in (tg.WriteToCsv, tg.WriteToParquet, tg.WriteToAvro, tg.WriteToArrow):
    try:
        tg.Pipeline() | tg.Create([{"n": 1}]) | write("x")
    except tg.BuildError as error:
        print(str(error).splitlines()[0])
with tg.Pipeline() as p:
    p | tg.Create([{"n": 1}]) | tg.WriteToJson("x", shard_name_template="")
print(open("x").read())
"""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        completed = subprocess.run(
            [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False
        )
    assert completed.returncode == 0, completed.stderr
    *errors, row, _, _ = completed.stdout.split("\n")
    assert [error.split(": ", 1)[0].split()[0] for error in errors if error] == [
        "WriteToCsv",
        "WriteToParquet",
        "WriteToAvro",
        "WriteToArrow",
    ]
    assert all("pip install 'tidegate[formats]'" in error for error in errors if error)
    assert row == '{"n": 1}'


@pytest.mark.parametrize("format", FORMATS)
def test_the_name_of_the_sink_starts_with_the_format(tmp_path: Path, format: str) -> None:
    from tests.io.formats.writing.test_formats import sink_of

    assert sink_of(format, f"{tmp_path}/x", file_name_suffix=".y").name == f"{format} {tmp_path}/x-SSSSS-of-NNNNN.y"

"""Files of records on every runner: elements, dead letters and their counter, event time."""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.delta_tables import VISITS, append
from tests.support.record_files import FORMATS, visits, write
from tidegate.testing import TestPipeline, assert_that, equal_to

RECORDS = visits(500)
READ_ALL: dict[str, Any] = {
    "parquet": tg.io.ReadAllFromParquet,
    "arrow": tg.io.ReadAllFromArrow,
    "arrows": tg.io.ReadAllFromArrow,
    "avro": tg.io.ReadAllFromAvro,
    "csv": tg.io.ReadAllFromCsv,
    "jsonl": tg.io.ReadAllFromJson,
}
"""By the suffixes of files, the transforms that read those that elements name."""


@dataclass(frozen=True)
class Sale:
    id: int
    amount: float


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_read(runner: str, name: str, tmp_path: Path) -> None:
    transform, made, needs = FORMATS[name]
    for at in range(5):
        write(tmp_path / f"{at}" / name, made(RECORDS[100 * at : 100 * at + 100]))
    with TestPipeline(runner=runner) as p:
        sales = p | transform(tmp_path / "*" / name, **{**needs, "schema": None}, as_=Sale, where=[("id", "<", 450)])
        assert_that(sales, equal_to([Sale(each["id"], each["amount"]) for each in RECORDS[:450]]))


@pytest.mark.parametrize("streams_on", ["direct", "streaming"])
@pytest.mark.parametrize("name", FORMATS)
def test_small_files_that_are_read_together_do_not_make_each_other_late(
    streams_on: str, name: str, tmp_path: Path
) -> None:
    transform, made, needs = FORMATS[name]
    for at in range(2):
        write(tmp_path / f"{at}" / name, made(RECORDS[at:90:2]))
    with TestPipeline(streams_on, {"mode": "streaming"}) as p:
        records = p | transform(tmp_path / "*" / name, **needs, as_=dict, timestamp=lambda record: record["at"])
        _check_counts(records)


@pytest.mark.parametrize("streams_on", ["direct", "streaming"])
def test_files_of_a_delta_table_do_not_make_each_other_late(streams_on: str, tmp_path: Path) -> None:
    for at in range(2):
        append(tmp_path / "visits", RECORDS[at:90:2], VISITS)
    with TestPipeline(streams_on, {"mode": "streaming"}) as p:
        records = p | tg.ReadFromDelta(tmp_path / "visits", as_=dict, timestamp=lambda record: record["at"])
        _check_counts(records)


def _check_counts(records: tg.PCollection[dict[str, Any]]) -> None:
    """Check how many of the first 90 records are in each window of ten seconds."""

    def window_of(record: dict[str, Any]) -> float:
        seconds = record["at"].timestamp()
        return float(seconds - seconds % 10)

    counts = records | tg.WindowInto(tg.FixedWindows(10)) | tg.Map(window_of) | tg.CombinePerElement(len)
    assert_that(counts, equal_to(list(Counter(map(window_of, RECORDS[:90])).items())))


def test_files_that_elements_name_are_read_in_every_format(runner: str, tmp_path: Path) -> None:
    with TestPipeline(runner=runner) as p:
        found = []
        for name, (_, made, needs) in FORMATS.items():
            write(tmp_path / name, made(RECORDS[:5]))
            read = READ_ALL[name.partition(".")[2]](as_=dict, columns=["id"], with_filename=True, **needs)
            paths = p | f"{name} paths" >> tg.Create([str(tmp_path / name)])
            found.append(paths | name >> read)
        pairs = found | tg.Flatten() | tg.Map(lambda pair: (Path(pair[0]).name, pair[1]["id"]))
        assert_that(pairs, equal_to([(name, n) for name in FORMATS for n in range(5)]))


def test_files_that_are_matched_or_opened_are_read_too(runner: str, tmp_path: Path) -> None:
    write(tmp_path / "good.csv", b"id,amount\n1,2.5\nx,3\n")
    write(tmp_path / "more.bin", gzip.compress(b"id,amount\n3,4.5\n"))
    write(tmp_path / "bad.csv", b"id,size\n4,xl\n")
    p = TestPipeline(runner=runner)
    matched = p | tg.io.MatchFiles(tmp_path / "*.csv")
    opened = p | tg.Create([str(tmp_path / "more.bin")]) | tg.io.ReadMatches(compression="gzip")
    good, bad = (matched, opened) | tg.Flatten() | tg.io.ReadAllFromCsv(as_=Sale, bad_records="dead_letter")
    assert good.element_type is Sale
    assert_that(good, equal_to([Sale(1, 2.5), Sale(3, 4.5)]), label="good")
    where = bad | tg.Map(lambda record: (Path(record.file).name, record.line_or_row, record.column))
    assert_that(where, equal_to([("good.csv", 3, "id"), ("bad.csv", None, "amount")]), label="bad")
    assert p.run().metrics().counter("bad_records", namespace="tidegate") == 2


def test_dead_letters_are_an_output_of_their_own_and_counted(runner: str, tmp_path: Path) -> None:
    path = write(tmp_path / "sales.csv", b"id,amount\n1,2.5\nx,3\n3,4.5\n4\n")
    p = TestPipeline(runner=runner)
    good, bad = p | "Sales" >> tg.ReadFromCsv(path, as_=Sale, bad_records="dead_letter")
    assert_that(good, equal_to([Sale(1, 2.5), Sale(3, 4.5)]), label="good")
    where = bad | tg.Map(lambda record: (Path(record.file).name, record.line_or_row, record.column, record.text))
    assert_that(where, equal_to([("sales.csv", 3, "id", "x,3"), ("sales.csv", 5, None, "4")]), label="bad")
    assert p.run().metrics().counter("bad_records", namespace="tidegate") == 2


def test_timestamps_come_from_the_elements_and_dead_letters_have_none(runner: str, tmp_path: Path) -> None:
    path = write(tmp_path / "it.jsonl", b'{"at": 3, "n": 1}\nbroken\n{"at": 12, "n": 2}\n{"at": 4, "n": 4}\n')
    with TestPipeline(runner=runner) as p:
        good, bad = p | tg.ReadFromJson(
            path, bad_records="dead_letter", timestamp=lambda row: row.at, out_of_orderness=60
        )
        sums = good | tg.Map(lambda row: ("n", row.n)) | tg.WindowInto(tg.FixedWindows(10)) | tg.CombinePerKey(sum)
        assert_that(sums | tg.Values(), equal_to([5, 2]), label="sums")
        assert_that(bad | tg.combiners.Count.Globally(), equal_to([1]), label="bad")


def test_a_pair_with_dead_letters_is_no_collection(tmp_path: Path) -> None:
    path = write(tmp_path / "it.csv", b"a\n1\n")
    p = tg.Pipeline()
    with pytest.raises(tg.BuildError, match="with_exception_handling, so it returns two collections"):
        _ = p | tg.ReadFromCsv(path, bad_records="dead_letter") | tg.Map(print)

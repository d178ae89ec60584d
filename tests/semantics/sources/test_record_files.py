"""Files of records on every runner: elements, dead letters and their counter, event time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import tidegate as tg
from tests.support.record_files import FORMATS, visits, write
from tidegate.testing import TestPipeline, assert_that, equal_to

RECORDS = visits(500)


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

"""Bad records in files on every runner: dead letters and their counter, or a failure that names them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tests.support.bad_files import CASES
from tests.support.record_files import write
from tidegate.testing import TestPipeline, assert_that, equal_to


@pytest.mark.parametrize("name", ["truncated gzip of CSV", "nanoseconds in Parquet", "another Avro schema"])
def test_bad_records_of_files_are_dead_letters_and_counted(runner: str, name: str, tmp_path: Path) -> None:
    case = CASES[name]
    for file, data in case.files.items():
        write(tmp_path / file, data)
    p = TestPipeline(runner=runner)
    read = case.read(f"{tmp_path}/*", as_=dict, bad_records="dead_letter", **case.options)
    good, bad = p | read
    assert_that(good | tg.Map(lambda each: each["a"]), equal_to(list(case.good)), label="good")
    where = bad | tg.Map(lambda letter: (Path(letter.file).name, letter.line_or_row, letter.column))
    assert_that(where, equal_to([(each.file, each.number, each.column) for each in case.letters]), label="bad")
    assert p.run().metrics().counter("bad_records", namespace="tidegate") == len(case.letters)


def test_a_bad_record_fails_the_run_and_is_named(runner: str, tmp_path: Path) -> None:
    path = write(tmp_path / "it.parquet", CASES["null in Parquet"].files["1.parquet"])
    p = TestPipeline(runner=runner)
    _ = p | tg.ReadFromParquet(path, schema={"a": int}) | tg.Map(print)
    with pytest.raises(tg.RunError, match=r"it.parquet, row 2, column 'a': it is null, and the schema doesn't allow"):
        p.run()

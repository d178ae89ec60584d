"""Bad records in files on every runner: dead letters and their counter, or a failure that names them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tests.support.bad_files import CASES
from tests.support.record_files import write
from tidegate.testing import TestPipeline, assert_that, equal_to

ON_EVERY_RUNNER = (
    "broken JSON",
    "not UTF-8 in JSON",
    "quotes and line breaks in CSV",
    "a quote in CSV that is never closed",
    "a value in CSV that is too long",
    "truncated gzip of CSV",
    "another header of CSV",
    "truncated Parquet",
    "nanoseconds in Parquet",
    "truncated Arrow",
    "another Avro schema",
)


def test_bad_records_of_files_are_dead_letters_and_counted(runner: str, tmp_path: Path) -> None:
    """All cases are read by one pipeline, which takes a fraction of the time of one for each."""
    p = TestPipeline(runner=runner)
    for number, name in enumerate(ON_EVERY_RUNNER):
        case = CASES[name]
        for file, data in case.files.items():
            write(tmp_path / str(number) / file, data)
        pattern = f"{tmp_path}/{number}/*"
        good, bad = p | name >> case.read(pattern, as_=dict, bad_records="dead_letter", **case.options)
        values = good | f"{name}, good" >> tg.Map(lambda each: each["a"])
        assert_that(values, equal_to(list(case.good)), label=f"{name}, values")
        where = bad | f"{name}, bad" >> tg.Map(
            lambda letter: (Path(letter.file).name, letter.line_or_row, letter.column)
        )
        expected = [(each.file, each.number, each.column) for each in case.letters]
        assert_that(where, equal_to(expected), label=f"{name}, letters")
    letters = sum(len(CASES[name].letters) for name in ON_EVERY_RUNNER)
    assert p.run().metrics().counter("bad_records", namespace="tidegate") == letters


def test_a_bad_record_fails_the_run_and_is_named(runner: str, tmp_path: Path) -> None:
    path = write(tmp_path / "it.parquet", CASES["null in Parquet"].files["1.parquet"])
    p = TestPipeline(runner=runner)
    _ = p | tg.ReadFromParquet(path, schema={"a": int}) | tg.Map(print)
    with pytest.raises(tg.RunError, match=r"it.parquet, row 2, column 'a': it is null, and the schema doesn't allow"):
        p.run()

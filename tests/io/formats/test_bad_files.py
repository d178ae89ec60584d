"""Bad records of every kind in every format: dead letters where they are asked for, else a failure that names them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tidegate as tg
from tests.support.bad_files import CASES, BadFiles
from tests.support.record_files import write
from tests.support.run_and_collect import collect


def written(case: BadFiles, folder: Path) -> str:
    """A pattern of the files of a case, after they have been written."""
    for name, data in case.files.items():
        write(folder / name, data)
    return f"{folder}/*"


@pytest.mark.parametrize("name", CASES)
def test_bad_records_become_dead_letters_and_are_counted(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    read = case.read(written(case, tmp_path), as_=dict, bad_records="dead_letter", **case.options)
    found = collect(lambda p: dict(zip(("good", "bad"), p | read)))
    assert [each["a"] for each in found.values("good")] == list(case.good)
    letters: list[tg.io.BadRecord] = found.values("bad")
    assert [(Path(bad.file).name, bad.line_or_row, bad.column) for bad in letters] == [
        (letter.file, letter.number, letter.column) for letter in case.letters
    ]
    for bad, letter in zip(letters, case.letters):
        assert letter.reason in bad.reason
    assert found.result.metrics().counter("bad_records", namespace="tidegate") == len(case.letters)


@pytest.mark.parametrize("name", CASES)
def test_bad_records_fail_the_run_and_are_named(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    read = case.read(written(case, tmp_path), as_=dict, **case.options)
    with pytest.raises((tg.BuildError, tg.RunError)) as caught:
        collect(lambda p: {"all": p | read})
    letter = case.letters[0]
    number = "" if letter.number is None else rf", (line|row) {letter.number}\b"
    column = "" if letter.column is None else f", column {letter.column!r}"
    assert re.search(f"{re.escape(letter.file)}{number}{column}", str(caught.value)), str(caught.value)
    assert letter.reason in str(caught.value)

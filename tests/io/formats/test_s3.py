"""Files of records in an S3 server, read through s3fs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.support.object_store import s3_file_system
from tests.support.record_files import FORMATS, elements_of, visits

RECORDS = visits(400)


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """The file system of a store with a bucket `formats`."""
    with s3_file_system("formats") as system:
        yield system


@pytest.mark.parametrize("name", FORMATS)
def test_files_in_s3_are_read_and_changes_of_them_detected(name: str, store: Any) -> None:
    transform, encode, options = FORMATS[name]
    store.pipe(f"formats/{name}/1-{name}", encode(RECORDS[:200]))
    store.pipe(f"formats/{name}/2-{name}", encode(RECORDS[200:]))
    read = transform(f"s3://formats/{name}/*", as_=dict, min_split_size=1, **options)
    assert elements_of(read, desired=3) == RECORDS
    splits = read.source.splits(1)
    store.pipe(f"formats/{name}/2-{name}", encode(visits(200, 201)))
    with pytest.raises(
        tg.ReadError, match=rf"s3://formats/{name}/2-{name}: the file has changed since the run started"
    ):
        elements_of_splits(read, splits)


def test_a_process_that_reads_from_s3_is_not_forked(store: Any) -> None:
    store.pipe("formats/fork/it.csv", b"a\n1\n")
    assert not tg.io.ReadFromCsv("s3://formats/fork/it.csv").source.forks_safely
    assert not tg.io.ReadFromText("s3://formats/fork/it.csv").source.forks_safely
    assert tg.io.ReadFromCsv("it.csv").source.forks_safely
    assert tg.io.ReadFromText("memory://it.csv").source.forks_safely


def elements_of_splits(read: Any, splits: Any) -> list[Any]:
    from tests.support.record_files import drain

    return [element for split in splits for element in drain(read.source, split)]

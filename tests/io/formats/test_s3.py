"""Files of records in an S3 server, read through s3fs."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from typing import Any

import pydantic
import pytest

import tidegate as tg
from tests.support.object_store import s3_file_system
from tests.support.record_files import FORMATS, elements_of, visits
from tidegate.sdk.portable.json import dump

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
        tg.ReadError, match=rf"s3://formats/{name}/2-{name}: the file has changed since the run found it"
    ):
        elements_of_splits(read, splits)


@pytest.mark.parametrize("name", [*FORMATS, "lines.txt"])
def test_files_that_appear_under_a_prefix_are_read_once(name: str, store: Any) -> None:
    transform, made, needs = FORMATS.get(name, (tg.io.ReadFromText, text, {}))
    options = {**needs, "as_": dict} if needs or name in FORMATS else {}
    read = transform(f"s3://formats/followed-{name}/*", follow=True, allow_empty=True, **options)
    source, expected = read.source, RECORDS if name in FORMATS else [str(record) for record in RECORDS]
    source.check()
    enumerator = source.enumerator(None)
    assert enumerator.discover(10).splits == []

    store.pipe(f"formats/followed-{name}/2", made(RECORDS[:200]))
    splits = enumerator.discover(10).splits  # an object is complete when it appears, however young it is
    assert elements_of_splits(read, splits) == expected[:200]
    enumerator = source.enumerator(json.loads(json.dumps(enumerator.state())))
    store.pipe(f"formats/followed-{name}/1", made(RECORDS[200:]))
    (later,) = enumerator.discover(10).splits
    assert elements_of_splits(read, [later]) == expected[200:]
    assert enumerator.discover(10).splits == []

    store.pipe(f"formats/followed-{name}/1", made(RECORDS[:1]))
    with pytest.raises(
        tg.ReadError, match=rf"s3://formats/followed-{name}/1: the file has changed since the run found"
    ):
        elements_of_splits(read, [later])
    store.rm(f"formats/followed-{name}/1")
    with pytest.raises(tg.ReadError, match=rf"s3://formats/followed-{name}/1: the file has been deleted since the run"):
        elements_of_splits(read, [later])


def test_a_store_is_reached_by_options_whose_secrets_never_show(monkeypatch: pytest.MonkeyPatch, store: Any) -> None:
    import s3fs

    store.pipe("formats/options/it.csv", b"id\n1\n")
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("TIDE_S3_SECRET", "moon-and-sun-s3")
    options = {
        "key": "${TIDE_S3_SECRET}",
        "secret": pydantic.SecretStr("sun-and-moon-s3"),
        "client_kwargs": {"endpoint_url": endpoint},
    }
    s3fs.S3FileSystem.clear_instance_cache()
    p = tg.Pipeline("direct")
    path = "s3://formats/options/*.csv"
    rows = p | tg.io.ReadFromCsv(path, storage_options=options) | tg.Map(lambda row: row.id)
    lines = p | tg.io.MatchFiles(path, storage_options=options) | tg.io.ReadAllFromText(storage_options=options)
    assert (rows.head(5), lines.head(5)) == ([1], ["id", "1"])
    shown = f"{dump(p.sealed())} {pickle.dumps(p.sealed())!r}"
    assert "moon-and-sun-s3" not in shown
    assert "sun-and-moon-s3" not in shown


def test_a_process_that_reads_from_s3_is_not_forked(store: Any) -> None:
    store.pipe("formats/fork/it.csv", b"a\n1\n")
    assert not tg.io.ReadFromCsv("s3://formats/fork/it.csv").source.forks_safely
    assert not tg.io.ReadFromText("s3://formats/fork/it.csv").source.forks_safely
    assert tg.io.ReadFromCsv("it.csv").source.forks_safely
    assert tg.io.ReadFromText("memory://it.csv").source.forks_safely


def text(records: Any) -> bytes:
    return "".join(f"{record}\n" for record in records).encode()


def elements_of_splits(read: Any, splits: Any) -> list[Any]:
    from tests.support.record_files import drain

    return [element for split in splits for element in drain(read.source, split)]

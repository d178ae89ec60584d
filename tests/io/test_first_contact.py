"""What a store answers before a pipeline runs: wrong buckets, paths and credentials are refused soon, with a cure."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.object_store import s3_file_system
from tidegate.io import first_contact


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """A store with the bucket `kept`."""
    with s3_file_system("kept") as system:
        yield system


WRITERS = [tg.WriteToCsv, tg.WriteToParquet, tg.io.WriteToText]


def apply_writer(write: Any, path: str) -> None:
    _ = tg.Pipeline() | tg.Create([tg.Row(n=1)]) | write(path)


def apply_reader(read: Any, path: str) -> None:
    _ = tg.Pipeline() | read(path)


@pytest.mark.parametrize("write", WRITERS)
def test_output_to_a_missing_bucket_is_refused_by_name(store: Any, write: Any) -> None:
    apply_writer(write, "s3://kept/new/folder/part")
    with pytest.raises(tg.BuildError, match=r"can't write to s3://lost/out: there is no bucket 'lost': create it"):
        apply_writer(write, "s3://lost/out/part")
    assert not store.exists("lost")


@pytest.mark.parametrize("read", [tg.ReadFromCsv, tg.ReadFromParquet, tg.io.ReadFromText])
def test_input_from_a_missing_bucket_or_path_is_refused_by_name(store: Any, read: Any) -> None:
    with pytest.raises(tg.BuildError, match=r"s3://lost/x-\*: there is no bucket 'lost': create it, or correct"):
        apply_reader(read, "s3://lost/x-*")
    with pytest.raises(tg.BuildError, match=r"no file matches 's3://kept/in/x-\*': there is no folder s3://kept/in"):
        apply_reader(read, "s3://kept/in/x-*")


@pytest.mark.parametrize("read", [tg.ReadFromParquet, tg.io.ReadFromArrow, tg.ReadFromAvro])
def test_a_file_of_another_format_is_refused_by_name(store: Any, read: Any) -> None:
    store.pipe("kept/formats/x", b"a,b\n1,2\n")
    with pytest.raises(tg.BuildError, match=r"s3://kept/formats/x: not a"):
        apply_reader(read, "s3://kept/formats/x")


def test_files_that_the_credentials_do_not_allow_are_refused_with_advice() -> None:
    with s3_file_system("kept", refuses=True):
        for write in WRITERS:
            with pytest.raises(tg.BuildError, match=r"can't write to s3://kept/out: .*: check the credentials"):
                apply_writer(write, "s3://kept/out/part")
        with pytest.raises(tg.BuildError, match=r"s3://kept/x.csv: .*: check the credentials, and what they may do"):
            apply_reader(tg.ReadFromCsv, "s3://kept/x.csv")


def test_missing_credentials_are_refused_with_advice(
    store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    type(store).clear_instance_cache()
    try:
        with pytest.raises(tg.BuildError, match=r"s3://kept/x.csv: NoCredentialsError: .*: give credentials, by"):
            apply_reader(tg.io.ReadFromText, "s3://kept/x.csv")
        with pytest.raises(tg.BuildError, match=r"can't write to s3://kept/out: NoCredentialsError"):
            apply_writer(tg.WriteToJson, "s3://kept/out/part")
    finally:
        type(store).clear_instance_cache()


def test_a_store_that_does_not_answer_is_refused_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_contact.SECONDS < 10
    monkeypatch.setattr(first_contact, "SECONDS", 0.05)
    answered = threading.Event()
    with pytest.raises(tg.BuildError, match=r"s3://kept: no answer within 0.05 s: check the address of the store"):
        first_contact.first_contact("s3://kept", answered.wait)
    answered.set()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "x: Connection refused: check the address of the store"),
        (TimeoutError(), "x: TimeoutError: check the address of the store"),
        (PermissionError("Forbidden"), "x: PermissionError: Forbidden: check the credentials"),
        (ValueError("Invalid endpoint: nowhere"), "x: ValueError: Invalid endpoint: nowhere"),
    ],
)
def test_the_error_of_a_client_says_what_to_correct(error: Exception, message: str) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(tg.BuildError) as caught:
        first_contact.first_contact("x", fail)
    assert str(caught.value).startswith(message)


def test_a_web_server_is_no_place_for_output() -> None:
    with pytest.raises(tg.BuildError, match="can't write to http://localhost/out: files can only be read over HTTP"):
        apply_writer(tg.WriteToJson, "http://localhost/out/part")


def test_output_in_memory_and_on_a_disk_needs_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_writer(tg.WriteToJson, "memory://out/part")
    monkeypatch.setattr(first_contact, "first_contact", None)
    apply_writer(tg.WriteToJson, f"{tmp_path}/part")
    apply_reader(tg.io.ReadFromText, __file__)

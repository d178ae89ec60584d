"""What a store answers before a pipeline runs: wrong buckets, paths, addresses and credentials are refused with advice,
and a store that is slow is not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.object_store import s3_file_system
from tests.support.servers.store_proxy import StoreProxy
from tests.support.streaming.child_processes import TIMEOUT
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


def test_a_store_that_does_not_answer_for_some_seconds_is_no_reason_to_refuse_a_pipeline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert first_contact.SECONDS < 10
    monkeypatch.setattr(first_contact, "SECONDS", 0)
    answered = threading.Event()
    assert not first_contact.first_contact("s3://kept", answered.wait)
    assert caplog.messages == [
        "s3://kept: no answer within 0 s. The pipeline is run all the same, and waits for the store if it can. If this "
        "goes on, check the address of the store (its host and port, its endpoint) and the network"
    ]
    answered.set()


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(104, "Connection reset by peer")], ids=repr)
def test_a_store_that_is_busy_is_no_reason_to_refuse_a_pipeline(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    assert not first_contact.first_contact("x", fail)
    assert f"{error.strerror if error.args else 'TimeoutError'}. The pipeline is run all the same" in caplog.text  # type: ignore[attr-defined]


@contextmanager
def s3_at(url: str) -> Iterator[None]:
    """A context in which the store is at another URL, and an answer is waited for as long as it takes."""
    import s3fs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_contact, "SECONDS", TIMEOUT)
        patch.setenv("AWS_ENDPOINT_URL", url)
        s3fs.S3FileSystem.clear_instance_cache()
        yield
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize("host", ["127.0.0.1:9", "no-such-host.invalid"])
def test_an_address_with_no_store_is_refused_at_the_first_attempt(store: Any, host: str) -> None:
    with s3_at(f"http://{host}"):
        with pytest.raises(tg.BuildError, match=f"s3://kept/x.csv: .*{host}.*: check the address of the store"):
            apply_reader(tg.ReadFromCsv, "s3://kept/x.csv")
        with pytest.raises(tg.BuildError, match=f"can't write to s3://kept/out: .*{host}.*: check the address"):
            apply_writer(tg.WriteToCsv, "s3://kept/out/part")


def test_pipelines_with_a_store_that_answers_503_are_built_and_say_so(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = StoreProxy(9)
    proxy.fail("answers 503")
    try:
        with s3_at(f"http://127.0.0.1:{proxy.port}"):
            for read in (tg.ReadFromCsv, tg.ReadFromParquet, tg.io.ReadFromText, tg.io.MatchFiles):
                apply_reader(read, "s3://kept/x.csv")
            apply_writer(tg.WriteToCsv, "s3://kept/out/part")
    finally:
        proxy.close()
    assert [message.partition(": ")[0] for message in caplog.messages] == [
        *["s3://kept/x.csv"] * 4,
        "can't write to s3://kept/out",
    ]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "x: Connection refused: check the address of the store"),
        (socket.gaierror(-2, "Name or service not known"), "x: Name or service not known: check the address of the"),
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

"""Delta tables in an object store: a server over HTTP, which writes an object only if there is none of its name."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

import tidegate as tg
from tests.io.delta.test_following import Follower
from tests.io.delta.test_writing import by_id, prepared, sink_of
from tests.support.delta_tables import VISITS, append, rows_of
from tests.support.object_store import s3_bucket
from tests.support.record_files import elements_of, visits
from tests.support.servers.store_proxy import StoreProxy
from tidegate.io.delta import writing

LACKS = [name for name in ("moto", "flask") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(LACKS), reason=f"needs moto[server]: {', '.join(LACKS)} not installed")

OPTIONS = {"allow_http": "true"}


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_bucket("delta") as url:
        yield url


def test_a_table_is_written_and_read(bucket: str) -> None:
    table = f"{bucket}/written"
    for first in (0, 10):
        with tg.Pipeline() as p:
            rows = p | tg.Create(visits(10, first))
            _ = rows | tg.WriteToDelta(table, VISITS, partition_by="user", storage_options=OPTIONS)
    assert by_id(rows_of(table, storage_options=OPTIONS)) == visits(20)
    read = tg.ReadFromDelta(table, as_=dict, storage_options=OPTIONS, where=[("id", "<", 15)], min_split_size=1)
    assert by_id(elements_of(read, desired=3)) == visits(15)
    version = tg.ReadFromDelta(table, as_=dict, storage_options=OPTIONS, version=1)
    assert by_id(elements_of(version)) == visits(10)


def test_a_commit_is_made_once(bucket: str) -> None:
    sink = pickle.loads(pickle.dumps(sink_of(f"{bucket}/commits", storage_options=OPTIONS)))
    first, second = prepared(sink, "run", [{"id": 1}]), prepared(sink, "run", [{"id": 2}], task=1)
    sink.commit("run", [*first, *second], 1)
    sink.commit("run", [*first, *second], 1)
    dropped = prepared(sink, "run", [{"id": 3}])
    sink.abort("run")
    with pytest.raises(tg.WriteError, match="output is lost"):
        sink.commit("run", dropped, 2)
    assert sorted(row["id"] for row in rows_of(f"{bucket}/commits", storage_options=OPTIONS)) == [1, 2]


def test_two_writers_do_not_overwrite_each_others_versions(bucket: str) -> None:
    one, other = (sink_of(f"{bucket}/writers", storage_options=OPTIONS) for _ in range(2))
    for number in range(1, 4):
        for at, sink in enumerate((one, other)):
            sink.commit(f"run{at}", prepared(sink, f"run{at}", [{"id": 10 * at + number}]), number)
    found = sorted(row["id"] for row in rows_of(f"{bucket}/writers", storage_options=OPTIONS))
    assert found == [1, 2, 3, 11, 12, 13]


def test_new_versions_are_followed(bucket: str) -> None:
    table = f"{bucket}/followed"
    append(table, visits(3), VISITS, storage_options=OPTIONS)
    follower = Follower(table, storage_options=OPTIONS)  # type: ignore[arg-type]
    assert follower.look() == visits(3)
    append(table, visits(2, 3), VISITS, storage_options=OPTIONS)
    assert follower.look() == visits(2, 3)
    assert follower.look() == []


@pytest.mark.parametrize(
    ("place", "options", "words"),
    [
        ("s3://nobody/t", OPTIONS, "NoSuchBucket|404 Not Found"),
        ("s3://delta/nothing", OPTIONS, "there is no Delta table here"),
        ("s3://delta/t", {}, "the endpoint is not HTTPS, which storage_options={'allow_http': 'true'} allows"),
        ("s3://delta/t", {**OPTIONS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "tcp connect error|error sending"),
        ("s4://delta/t", OPTIONS, "Unknown scheme: s4"),
    ],
)
def test_a_wrong_place_is_refused_within_seconds_when_the_pipeline_is_built(
    bucket: str, place: str, options: dict[str, str], words: str
) -> None:
    begun = time.monotonic()
    with pytest.raises(tg.BuildError, match=words):
        _ = tg.Pipeline() | tg.ReadFromDelta(place, storage_options=options)
    assert time.monotonic() - begun < 10


def test_a_store_that_is_busy_at_the_first_contact_is_reported_and_waited_for(
    bucket: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append(f"{bucket}/busy", visits(2), VISITS, storage_options=OPTIONS)
    reported: list[str] = []
    proxy = StoreProxy(int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2]))
    options = {**OPTIONS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
    proxy.fail("answers 503")
    try:
        p = tg.Pipeline()
        rows = p | tg.ReadFromDelta(f"{bucket}/busy", as_=dict, storage_options=options)
        assert "503 Service Unavailable. The pipeline is run all the same" in caplog.text
        monkeypatch.setattr(writing, "report_slow", lambda problem: (reported.append(problem), proxy.recover()))
        _ = rows | tg.WriteToDelta(f"{bucket}/busy", storage_options=options)
    finally:
        proxy.close()
    assert len(reported) == 1


def test_secrets_are_resolved_where_the_table_is_opened_and_are_not_in_the_pipeline(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTA_SECRET", "open sesame")
    options: dict[str, Any] = {**OPTIONS, "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "${DELTA_SECRET}"}
    append(f"{bucket}/secret", visits(2), VISITS, storage_options=OPTIONS)
    p = tg.Pipeline()
    rows = p | tg.ReadFromDelta(f"{bucket}/secret", as_=dict, storage_options=options)
    _ = rows | tg.WriteToDelta(f"{bucket}/copy", VISITS, storage_options=options)
    assert b"open sesame" not in pickle.dumps(p.sealed())
    p.run().wait_until_finish()
    assert by_id(rows_of(f"{bucket}/copy", storage_options=OPTIONS)) == visits(2)


def test_a_pipeline_can_be_built_where_its_secrets_are_unknown(bucket: str) -> None:
    options = {**OPTIONS, "AWS_SECRET_ACCESS_KEY": "${ONLY_WORKERS_KNOW}"}
    p = tg.Pipeline()
    rows = p | tg.ReadFromDelta(f"{bucket}/anywhere", columns=["id"], storage_options=options)
    with pytest.raises(tg.BuildError, match="lacks the secrets of storage_options: give its columns with schema="):
        _ = rows | "vague" >> tg.WriteToDelta(f"{bucket}/elsewhere", storage_options=options)
    _ = rows | tg.WriteToDelta(f"{bucket}/elsewhere", {"id": int}, storage_options=options)
    with pytest.raises(tg.RunError, match="has no environment variable ONLY_WORKERS_KNOW"):
        p.run().wait_until_finish()

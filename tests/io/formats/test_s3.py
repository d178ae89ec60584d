"""Files of records in an S3 server, read through s3fs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

import tidegate as tg
from tests.support.record_files import FORMATS, elements_of, visits

MISSING = [name for name in ("s3fs", "moto", "flask") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"needs s3fs and moto[server]: {', '.join(MISSING)} not installed"
)

SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
RECORDS = visits(400)


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """Yield the file system of an S3 server with the bucket `formats`."""
    with pytest.MonkeyPatch.context() as patch:
        server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert server.stdout is not None
        port = int(server.stdout.readline())
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        import s3fs

        s3fs.S3FileSystem.clear_instance_cache()
        system = s3fs.S3FileSystem()
        system.mkdir("formats")
        yield system
        s3fs.S3FileSystem.clear_instance_cache()
        server.communicate()


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

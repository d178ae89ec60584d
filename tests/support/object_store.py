"""An object store over HTTP for tests: moto's server, which speaks S3, and the client that authors use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_SERVER = """
import sys
import boto3
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
port = server.get_host_and_port()[1]
boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}").create_bucket(Bucket=sys.argv[1])
print(port, flush=True)
sys.stdin.read()
"""


@contextmanager
def s3_bucket(name: str, *, refuses: bool = False) -> Iterator[str]:
    """The URL of a bucket that this process and those it starts can open while the context lasts; with `refuses`, their
    credentials are wrong. The server is a process of its own, and this process has no client, whose threads would keep
    it from forking."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        # From the second request on, which is not that for the bucket, moto looks for the user of a key.
        checks = {"INITIAL_NO_AUTH_ACTION_COUNT": "1"} if refuses else {}
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _SERVER, name],
            env={**os.environ, **checks},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as server:
            assert server.stdout is not None
            patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{int(server.stdout.readline())}")
            yield f"s3://{name}"
            server.communicate()


@contextmanager
def s3_file_system(bucket: str, *, refuses: bool = False) -> Iterator[Any]:
    """A client in this process of a store that has a bucket."""
    import s3fs

    with s3_bucket(bucket, refuses=refuses):
        s3fs.S3FileSystem.clear_instance_cache()
        yield s3fs.S3FileSystem()
        s3fs.S3FileSystem.clear_instance_cache()

"""The store of a stream's input, output and checkpoints goes away in mid-run: the job waits, says so, and goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.object_store import s3_file_system
from tests.support.servers.store_proxy import Fault, StoreProxy
from tests.support.streaming.child_processes import TIMEOUT, child_pids, wait_for_exit
from tests.support.written_files import rows_of

ROOT = Path(__file__).resolve().parents[3]
LINES = 20
ALLOW_HTTP = {"allow_http": "true"}

S3FS = {"connect_timeout": 2, "read_timeout": 2, "retries": {"max_attempts": 0}}
DELTALAKE = {**ALLOW_HTTP, "timeout": "2s", "retry_timeout": "1s"}
"""Settings of clients that soon report what they meet."""

SCRIPT = """
import json
import sys
import tidegate as tg

if __name__ == "__main__":
    what, options, *flags = sys.argv[1:]
    options = json.loads(options)
    p = tg.Pipeline(name="outage", options=flags)
    if what == "delta":
        rows = p | "read" >> tg.ReadFromDelta("s3://bucket/in", follow=True, poll_interval=0.1, storage_options=options)
        _ = rows | "write" >> tg.WriteToDelta("s3://bucket/out", {"n": int}, storage_options=options)
    else:
        lines = p | "read" >> tg.io.ReadFromText("s3://bucket/in/*.txt", follow=True, poll_interval=0.1)
        rows = lines | tg.Map(lambda line: tg.Row(n=int(line)))
        _ = rows | "write" >> tg.io.WriteToParquet("s3://bucket/out/part", {"n": int})
    p.run().wait_until_finish()
"""


class Files:
    """Files of lines in the store, and Parquet files. The test goes to the store past the proxy."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def put(self, number: int) -> None:
        self.store.pipe(f"bucket/in/{number:04}.txt", "".join(f"{n}\n" for n in numbers_of(number)).encode())

    def written(self) -> list[int]:
        self.store.invalidate_cache()
        files = [self.store.cat(path) for path in self.store.glob("bucket/out/part*")]
        return sorted(row["n"] for data in files for row in rows_of(data, "parquet"))


class Tables:
    """Two Delta tables in the store."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def put(self, number: int) -> None:
        rows = pa.table({"n": list(numbers_of(number))})
        write_deltalake("s3://bucket/in", rows, mode="append", storage_options=ALLOW_HTTP)

    def written(self) -> list[int]:
        if not DeltaTable.is_deltatable("s3://bucket/out", ALLOW_HTTP):
            return []
        rows = DeltaTable("s3://bucket/out", storage_options=ALLOW_HTTP).to_pyarrow_table().to_pylist()
        return sorted(row["n"] for row in rows)


def numbers_of(number: int) -> range:
    return range(number * LINES, (number + 1) * LINES)


class Job:
    """The job, whose store is behind a proxy."""

    def __init__(self, folder: Path, data: Files | Tables, proxy: StoreProxy) -> None:
        self.folder = folder
        self.data = data
        self.proxy = proxy
        self.added = 0
        self.add(1)
        (folder / "script.py").write_text(SCRIPT)
        flags = [
            *("--runner", "streaming", "--workers", "2", "--checkpoint_interval", "0.2", "--restart_delay", "0.05"),
            *("--checkpoint_dir", f"{folder}/chk" if isinstance(data, Tables) else "s3://bucket/checkpoints"),
        ]
        what = "delta" if isinstance(data, Tables) else "files"
        with (folder / "log").open("wb") as log:
            self.client = subprocess.Popen(
                [sys.executable, folder / "script.py", what, json.dumps(DELTALAKE), *flags],
                env={
                    **os.environ,
                    "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
                    "FSSPEC_S3": json.dumps({"config_kwargs": S3FS}),
                    "PYTHONPATH": str(ROOT),
                },
                stderr=log,
            )

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def add(self, count: int) -> None:
        for number in range(self.added, self.added + count):
            self.data.put(number)
        self.added += count

    def wait_until(self, holds: Callable[[], bool]) -> None:
        deadline, pause = time.monotonic() + 2 * TIMEOUT, threading.Event()
        while not holds():
            assert self.client.poll() is None, self.log[-3000:]
            assert time.monotonic() < deadline, self.log[-3000:]
            pause.wait(0.1)

    def wait_until_all_is_written(self) -> None:
        self.wait_until(lambda: len(self.data.written()) >= self.added * LINES)

    def outage(self, fault: Fault, seconds: float) -> None:
        """Let the store be away for at least some seconds, until the job has said so, while data is added to it."""
        said, began = len(self.log), time.monotonic()
        self.proxy.fail(fault)
        self.add(2)
        # A request that is not answered is tried again for long, so the first to say so is the one that lists files.
        words = ["state=restarting", *(["can't list"] if fault == "hangs" else [])]
        self.wait_until(lambda: any(each in self.log[said:] for each in words) and time.monotonic() >= began + seconds)
        self.proxy.recover()

    def close(self) -> None:
        jobs = child_pids(self.client.pid)
        left = [*jobs, *(pid for job in jobs for pid in child_pids(job))]
        self.client.kill()
        self.client.wait()
        self.proxy.recover()
        wait_for_exit(left)


@pytest.fixture(params=[Files, Tables], ids=["files", "delta"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Job]:
    for name in ("s3fs", "moto", "flask"):
        pytest.importorskip(name)
    with s3_file_system("bucket") as store:
        proxy = StoreProxy(int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2]))
        running = Job(tmp_path, request.param(store), proxy)
        yield running
        running.close()
        proxy.close()


def test_a_stream_waits_for_a_store_that_is_away_says_so_and_writes_everything_once(
    job: Job, request: pytest.FixtureRequest
) -> None:
    seconds: float = request.config.getoption("--outage-seconds")
    job.wait_until_all_is_written()
    for fault in get_args(Fault) if seconds else ["refuses"]:
        job.outage(fault, seconds)
        job.wait_until_all_is_written()
    assert job.data.written() == list(range(job.added * LINES))

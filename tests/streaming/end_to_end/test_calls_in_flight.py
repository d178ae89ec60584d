"""Calls in flight while a job takes checkpoints, is killed, stopped and resumed: real processes, a real server."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.streaming.call_server import CallServer, ask
from tests.support.streaming.child_processes import child_pids
from tests.support.streaming.counting_job import ReportLog, follow_until, start_job
from tidegate.runners.streaming.client.job_client import JobClient
from tidegate.runners.streaming.protocol import coordinator_io
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block

NUMBERS = 60
CAPACITY = 10


class _NumbersReader(Reader[int]):
    """Reads numbers in small batches, and then none: the job runs until it is drained."""

    def __init__(self, part: int, next: int, wait: float) -> None:
        self.part = part
        self.next = next
        self.wait = wait

    def read(self, limit: int) -> Batch:
        if self.next >= NUMBERS:
            return Batch(Block([]), wait=self.wait)
        numbers = [self.part * NUMBERS + n for n in range(self.next, min(self.next + 7, NUMBERS))]
        self.next += len(numbers)
        return Batch(Block(numbers, [n * 1_000_000 for n in numbers]), watermark=0)

    def position(self) -> Position:
        return self.next


@dataclass(frozen=True)
class Numbers(Source[int]):
    """Two splits. `wait`: the interval (s) at which each is polled after its last number."""

    wait: float = 0.02

    @property
    def bounded(self) -> bool:
        return False

    def splits(self, desired: int) -> list[Split]:
        return [Split(f"part-{n}", None, n) for n in range(2)]

    def reader(self, split: Split, position: Position = None) -> Reader[int]:
        return _NumbersReader(split.payload, position or 0, self.wait)


def calling_step(server: str, ordered: bool) -> Any:
    async def call(number: int) -> str:
        return f"{number} {await ask(server, os.getpid(), number)}"

    return tg.AsyncMap(call, capacity=CAPACITY, ordered=ordered, timeout=None)


def pipeline(server: str, folder: Path, *, ordered: bool) -> tg.Pipeline:
    p = tg.Pipeline()
    _ = (
        p
        | "numbers" >> tg.Read(Numbers())
        | "call" >> calling_step(server, ordered)
        | "write" >> tg.io.WriteToText(str(folder / "out" / "part"))
    )
    return p


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CallServer]:
    started = CallServer(tmp_path)
    yield started
    started.close()


def workers_of(job: JobClient) -> list[int]:
    return child_pids(job._process.pid)


def output_lines(folder: Path) -> list[str]:
    return sorted(line for path in (folder / "out").glob("part*") for line in path.read_text().splitlines())


@pytest.mark.parametrize("ordered", [True, False])
def test_calls_in_flight_are_repeated_after_a_kill_and_each_result_is_written_once(
    tmp_path: Path, server: CallServer, ordered: bool
) -> None:
    reports = ReportLog()
    flags = ["--checkpoint_dir", f"{tmp_path}/checkpoints", "--checkpoint_interval", "0.1", "--restart_delay", "0.02"]
    job = start_job(pipeline(server.path, tmp_path, ordered=ordered), *flags, on_report=reports)
    try:
        follow_until(job, lambda: len(server.calls()) >= 2 * CAPACITY)
        before = len(reports.checkpoints)
        follow_until(job, lambda: len(reports.checkpoints) >= before + 3)  # while no call returns
        first = server.calls()
        assert len(first) == 2 * CAPACITY
        assert server.max_in_flight == CAPACITY
        killed = workers_of(job)
        for pid in killed:
            with suppress(ProcessLookupError):  # the job kills the others when it notices
                os.kill(pid, signal.SIGKILL)
        follow_until(job, lambda: len(server.calls()) >= 4 * CAPACITY)
        repeated = server.calls()[len(first) :]
        assert Counter(number for _, number in repeated) == Counter(number for _, number in first)
        assert {pid for pid, _ in repeated}.isdisjoint({pid for pid, _ in first})
        server.release()
        follow_until(job, lambda: len({number for _, number in server.calls()}) == 2 * NUMBERS)
        job.send(coordinator_io.StopJob(drain=True))
        follow_until(job, lambda: job.ended)
        assert job.error is None
    finally:
        job.kill()
    assert output_lines(tmp_path) == sorted(f"{n} {2 * n}" for n in range(2 * NUMBERS))


@pytest.mark.parametrize("workers", [1, 3])
def test_a_job_that_is_stopped_with_calls_in_flight_resumes_with_another_number_of_workers(
    tmp_path: Path, server: CallServer, workers: int
) -> None:
    reports = ReportLog()
    flags = ["--checkpoint_dir", f"{tmp_path}/checkpoints", "--checkpoint_interval", "0.1"]
    job = start_job(pipeline(server.path, tmp_path, ordered=False), *flags, on_report=reports)
    try:
        follow_until(job, lambda: len(server.calls()) >= 2 * CAPACITY)
        job.send(coordinator_io.StopJob())
        follow_until(job, lambda: job.ended)
        assert job.error is None
    finally:
        job.kill()
    assert output_lines(tmp_path) == []
    first = len(server.calls())
    server.release()
    job = start_job(pipeline(server.path, tmp_path, ordered=False), *flags, f"--workers={workers}", on_report=reports)
    try:
        follow_until(job, lambda: len({n for _, n in server.calls()[first:]}) == 2 * NUMBERS)
        job.send(coordinator_io.StopJob(drain=True))
        follow_until(job, lambda: job.ended)
        assert job.error is None
        in_flight = sum(n for key, n in job.metrics.counters.items() if key.name == "calls_in_flight")
    finally:
        job.kill()
    assert output_lines(tmp_path) == sorted(f"{n} {2 * n}" for n in range(2 * NUMBERS))
    assert in_flight == 0

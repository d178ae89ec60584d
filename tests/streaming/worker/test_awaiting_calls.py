"""A worker whose step waits for calls neither reads further elements nor polls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.streaming.end_to_end.test_calls_in_flight import CAPACITY, NUMBERS, Numbers
from tests.support.streaming.call_server import CallServer, ask
from tests.support.streaming.child_processes import TIMEOUT
from tests.support.streaming.in_process_job import InProcessJob


class WakeableJob(InProcessJob):
    """A job that records when another thread has woken its worker."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.woken = threading.Event()
        super().__init__(*args, **settings)

    def wake(self) -> None:
        self.woken.set()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CallServer]:
    started = CallServer(tmp_path)
    yield started
    started.close()


def job_of(server: CallServer, folder: Path, fan_out: int = 1) -> WakeableJob:
    path = server.path

    async def call(number: int) -> int:
        return await ask(path, 0, number)

    p = tg.Pipeline()
    _ = (
        p
        | "numbers" >> tg.Read(Numbers(wait=5.0))
        | "many" >> tg.FlatMap(lambda n: range(n * fan_out, (n + 1) * fan_out))
        | "call" >> tg.AsyncMap(call, capacity=CAPACITY, timeout=None)
        | "sum" >> tg.ParDo(_CountSeen())
    )
    return WakeableJob(p, folder)


class _CountSeen(tg.DoFn):
    def process(self, element: Any) -> None:
        tg.Metrics.counter("seen", "seen").inc()


@pytest.mark.parametrize("fan_out", [1, 1000])
def test_a_worker_sleeps_until_a_call_returns_and_takes_checkpoints_meanwhile(
    tmp_path: Path, server: CallServer, fan_out: int
) -> None:
    job = job_of(server, tmp_path, fan_out)
    job.advance(1)
    rounds, completed = job.rounds, job.completed
    job.advance(60)
    assert job.completed > completed
    assert job.rounds - rounds < 2_000, "the worker polls"
    assert len(server.calls()) <= CAPACITY
    server.release()
    assert job.worker is not None
    seen = 0
    while seen < 2 * NUMBERS * fan_out:
        assert job.woken.wait(TIMEOUT), f"{seen} results"
        job.woken.clear()
        job.advance(0.1)
        cells = [task.metrics() for task in job.worker._tasks.values()]
        seen = sum(n for each in cells for key, n in each.counters.items() if key.name == "seen")
        if fan_out > 1 and seen > 500:
            break  # further results follow
    job.worker.close()

"""A job over an unbounded source of numbers in two splits, for tests that stop, kill and resume it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tidegate as tg
from tests.support.streaming.child_processes import TIMEOUT
from tidegate.runners.streaming.client.job_client import JobClient
from tidegate.runners.streaming.protocol import coordinator_io
from tidegate.runners.streaming.runner import StreamingRunner
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.options.model import PipelineOptions

SECOND = 1_000_000


@dataclass(frozen=True)
class CountingSource(Source[int]):
    """Each split counts from 0, `step` numbers at a time; number n has the event time n seconds."""

    step: int = 10
    parts: int = 2

    @property
    def bounded(self) -> bool:
        return False

    def splits(self, desired: int) -> list[Split]:
        return [Split(f"part-{n}") for n in range(self.parts)]

    def reader(self, split: Split, position: Position = None) -> Reader[int]:
        return CountingReader(self.step, position or 0)


class CountingReader(Reader[int]):
    def __init__(self, step: int, next: int) -> None:
        self.step = step
        self.next = next
        self.turn = False

    def read(self, limit: int) -> Batch:
        self.turn = not self.turn
        if not self.turn:
            return Batch(Block([]), wait=0.005)
        numbers = list(range(self.next, self.next + self.step))
        self.next += self.step
        return Batch(Block(numbers, [n * SECOND for n in numbers]), watermark=self.next * SECOND)

    def position(self) -> Position:
        return self.next


def windowed_counts(pipeline: tg.Pipeline) -> Any:
    """Count the numbers of each window of 100 s over both splits, for each of five keys."""
    return (
        pipeline
        | "numbers" >> tg.Read(CountingSource())
        | "windows" >> tg.WindowInto(tg.FixedWindows(100))
        | "keyed" >> tg.Map(lambda n: (n % 5, 1))
        | "count" >> tg.CombinePerKey(sum)
        | "out" >> tg.Map(str)
    )


def job_options(*flags: str) -> PipelineOptions:
    return PipelineOptions.from_args(["--runner=streaming", "--workers=2", *flags])


def start_job(pipeline: tg.Pipeline, *flags: str, on_report: Callable[[Any], None] | None = None) -> JobClient:
    """Start a job in a process of its own, for a test to follow."""
    submitted = StreamingRunner().submission(pipeline.sealed(), job_options(*flags))
    return JobClient(submitted, on_report=on_report)


def follow_until(job: JobClient, reached: Callable[[], bool]) -> None:
    """Receive a job's reports until `reached` holds; AssertionError if the job ends first, or if it takes too long."""
    deadline = time.monotonic() + TIMEOUT
    while not reached():
        assert not job.ended, f"the job has {job.state}: {job.error}"
        assert time.monotonic() < deadline, f"the job runs, but has not got there in {TIMEOUT:g} s"
        job.link.wait(1)
        job.receive()


def elements_out(job: JobClient, step: str) -> int:
    return sum(n for key, n in job.metrics.counters.items() if key.step == step and key.name == "elements_out")


class ReportLog:
    """The reports of a job, in order."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def __call__(self, message: Any) -> None:
        self.all.append(message)

    @property
    def texts(self) -> list[str]:
        return [report.text for report in self.all if isinstance(report, coordinator_io.Report) and report.text]

    @property
    def checkpoints(self) -> list[int]:
        reports = [r for r in self.all if isinstance(r, coordinator_io.CheckpointReport) and not r.error]
        return [report.checkpoint for report in reports]

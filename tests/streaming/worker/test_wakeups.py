"""Idle workers sleep: the tests count the wake-ups of a worker, and measure no time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tidegate as tg
from tests.support.streaming.in_process_job import ONE_WORKER, InProcessJob
from tidegate.runners.engine.sources.source_reader import SourceReader
from tidegate.runners.engine.sources.source_step import source_step
from tidegate.runners.engine.time.clock import ManualClock
from tidegate.runners.planner import Traits, plan
from tidegate.runners.streaming.network.channels import InputChannel
from tidegate.runners.streaming.worker.task import Task
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import SECOND


@dataclass(frozen=True)
class Endless(Source[Any]):
    """A source that always has another element."""

    @property
    def bounded(self) -> bool:
        return False

    def splits(self, desired: int) -> list[Split]:
        return [Split("all")]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _EndlessReader()


class _EndlessReader(Reader[Any]):
    def read(self, limit: int) -> Batch:
        return Batch(Block([1], 0), watermark=0)

    def position(self) -> Position:
        return None


SOON = tg.ProcessingTimer("soon")


class SetsTimer(tg.DoFn):
    """Sets a timer that is long overdue when there is room for its output."""

    def process(
        self,
        pair: Any,
        now: tg.Timestamp = tg.DoFn.ProcessingTimeParam,
        soon: tg.Timer = tg.DoFn.TimerParam(SOON),
    ) -> Iterator[Any]:
        soon.set(now + 0.001)
        yield pair

    @tg.on_timer(SOON)
    def fired(self, key: Any = tg.DoFn.KeyParam) -> Iterator[Any]:
        yield key, 0


def block_channel(job: InProcessJob, edge: int) -> InputChannel:
    """Block the receiving end of an exchange, as if it waited for a barrier."""
    assert job.worker is not None
    (channel,) = [each for id, each in job.worker._inputs.items() if id.edge == edge]
    channel.blocked = True
    return channel


def exchanges(job: InProcessJob) -> list[int]:
    return [number for number, each in enumerate(job.job.plan.edges) if each.exchange is not None]


def turns_while_backpressured(p: tg.Pipeline, folder: Path, edge: int) -> tuple[int, Task]:
    """The number of turns of the worker in ten seconds during which an exchange is blocked, and its sending task."""
    never = replace(ONE_WORKER.checkpoints, interval=3600.0, timeout=7200.0)
    job = InProcessJob(p, folder, replace(ONE_WORKER, credit=2, heartbeat=1.0, checkpoints=never), settles=False)
    while not exchanges(job) or not job.deployed:
        job.turn()
    channel = block_channel(job, exchanges(job)[edge])
    job.advance(1)
    assert job.worker is not None
    sender = next(task for task in job.worker._tasks.values() if channel.id in task.outputs.channels)
    assert sender.outputs.full
    before = job.rounds
    job.advance(10)
    return job.rounds - before, sender


def test_a_backpressured_source_does_not_poll(tmp_path: Path) -> None:
    p = tg.Pipeline()
    _ = p | tg.Read(Endless()) | tg.Reshuffle() | tg.Map(lambda n: None)
    turns, _ = turns_while_backpressured(p, tmp_path, 0)
    assert turns <= 3 * 10, "one heartbeat per second"


def test_an_overdue_timer_waits_for_room_without_polling(tmp_path: Path) -> None:
    p = tg.Pipeline()
    pairs = p | tg.Read(Endless()) | tg.Map(lambda n: (n, n)) | tg.ParDo(SetsTimer())
    _ = pairs | tg.Reshuffle() | tg.Map(lambda n: None)
    turns, sender = turns_while_backpressured(p, tmp_path, 1)
    assert sender.graph.next_clock() is not None
    assert turns <= 3 * 10


@dataclass(frozen=True)
class WaitingSource(Source[Any]):
    """A bounded source with two splits that have no elements yet."""

    def splits(self, desired: int) -> list[Split]:
        return [Split("one"), Split("two")]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _WaitingReader()


class _WaitingReader(Reader[Any]):
    def read(self, limit: int) -> Batch:
        return Batch(Block([], 0), wait=3.0)

    def position(self) -> Position:
        return None


def test_a_bounded_split_without_elements_is_polled_again_before_the_next_split_is_opened() -> None:
    p = tg.Pipeline()
    _ = p | tg.Read(WaitingSource()) | tg.Map(lambda n: None)
    (step,) = [step for step in plan(p.sealed(values=True), Traits(parallel=True)).steps if step.is_source]
    source = source_step(step.head)
    reader = SourceReader(source, ManualClock(SECOND), timely=False)
    reader.assign([(split, None) for split in source.splits(2)], more=False)
    assert reader.next_poll == 0
    assert reader.poll(100) is None
    assert reader.next_poll == 4 * SECOND
    reader.stop()
    assert reader.next_poll == 0

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
    """There is always another element."""

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


class Waking(tg.DoFn):
    """A timer that has been due for long when there is room for what it gives."""

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


def stuck(alone: InProcessJob, edge: int) -> InputChannel:
    """Have nobody take what comes along an exchange: its receiving end waits for a barrier that never comes."""
    assert alone.worker is not None
    (channel,) = [each for id, each in alone.worker._inputs.items() if id.edge == edge]
    channel.blocked = True
    return channel


def exchanges(alone: InProcessJob) -> list[int]:
    return [number for number, each in enumerate(alone.job.plan.edges) if each.exchange is not None]


def turns_while_held_back(p: tg.Pipeline, folder: Path, edge: int) -> tuple[int, Task]:
    """How often the worker looks in ten seconds in which nobody takes what goes along an exchange."""
    never = replace(ONE_WORKER.checkpoints, interval=3600.0, timeout=7200.0)
    alone = InProcessJob(p, folder, replace(ONE_WORKER, credit=2, heartbeat=1.0, checkpoints=never), settles=False)
    while not exchanges(alone) or not alone.deployed:
        alone.turn()
    channel = stuck(alone, exchanges(alone)[edge])
    alone.advance(1)
    assert alone.worker is not None
    held_back = next(task for task in alone.worker._tasks.values() if channel.id in task.outputs.channels)
    assert held_back.outputs.full
    before = alone.rounds
    alone.advance(10)
    return alone.rounds - before, held_back


def test_a_source_that_is_held_back_does_not_look_whether_it_still_is(tmp_path: Path) -> None:
    p = tg.Pipeline()
    _ = p | tg.Read(Endless()) | tg.Reshuffle() | tg.Map(lambda n: None)
    turns, _ = turns_while_held_back(p, tmp_path, 0)
    assert turns <= 3 * 10, "a heartbeat a second"


def test_a_timer_that_is_due_waits_for_room_without_looking(tmp_path: Path) -> None:
    p = tg.Pipeline()
    pairs = p | tg.Read(Endless()) | tg.Map(lambda n: (n, n)) | tg.ParDo(Waking())
    _ = pairs | tg.Reshuffle() | tg.Map(lambda n: None)
    turns, held_back = turns_while_held_back(p, tmp_path, 1)
    assert held_back.graph.next_clock() is not None
    assert turns <= 3 * 10


@dataclass(frozen=True)
class Slowly(Source[Any]):
    """Bounded, in two splits, neither of which has anything yet."""

    def splits(self, desired: int) -> list[Split]:
        return [Split("one"), Split("two")]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _SlowlyReader()


class _SlowlyReader(Reader[Any]):
    def read(self, limit: int) -> Batch:
        return Batch(Block([], 0), wait=3.0)

    def position(self) -> Position:
        return None


def test_a_bounded_split_that_waits_is_waited_for_though_there_is_another_to_come() -> None:
    p = tg.Pipeline()
    _ = p | tg.Read(Slowly()) | tg.Map(lambda n: None)
    (step,) = [step for step in plan(p.sealed(values=True), Traits(parallel=True)).steps if step.is_source]
    source = source_step(step.head)
    reader = SourceReader(source, ManualClock(SECOND), timely=False)
    reader.assign([(split, None) for split in source.splits(2)], more=False)
    assert reader.next_poll == 0
    assert reader.poll(100) is None
    assert reader.next_poll == 4 * SECOND
    reader.stop()
    assert reader.next_poll == 0

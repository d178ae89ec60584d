"""A stream of any duration does not accumulate memory, neither in the worker nor in the job's process.

The garbage collector is off meanwhile: objects in reference cycles pile up in a long run, since full collections are
rare where there is much state.
"""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.streaming.in_process_job import ONE_WORKER, InProcessJob
from tidegate.runners.streaming.model.settings import Settings
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import SECOND

KEYS = 50
ELEMENTS_PER_SECOND = 100
FULL_EVERY = 3
PERIOD = 4 * FULL_EVERY
"""The number of checkpoints (one per second) after which all files and tables of checkpoints have been replaced."""
PERIODS = 4
MAX_GROWTH = 6 << 10
"""The growth (bytes) allowed per period: numbers get longer, and dicts have spare room."""


@dataclass(frozen=True)
class Steady(Source[Any]):
    """`(key, number)` without end, with the same few keys: a fixed number of elements in each second of the clock."""

    @property
    def bounded(self) -> bool:
        return False

    def splits(self, desired: int) -> list[Split]:
        return [Split("all")]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _SteadyReader(position or 0)


class _SteadyReader(Reader[Any]):
    def __init__(self, at: int) -> None:
        self._at = at
        self._until = 0

    def read(self, limit: int) -> Batch:
        now = self.now()
        if now < self._until:
            return Batch(Block([], 0), watermark=now, wait=(self._until - now) / SECOND)
        self._until = now + SECOND
        first, self._at = self._at, self._at + ELEMENTS_PER_SECOND
        return Batch(Block([(n % KEYS, n % 7) for n in range(first, self._at)], now), watermark=now)

    def position(self) -> Position:
        return self._at


VALUE = tg.ValueStateSpec("value")
BAG = tg.BagStateSpec("bag")
SET = tg.SetStateSpec("set")
MAP = tg.MapStateSpec("map")
LIST = tg.OrderedListStateSpec("list")
SUM = tg.CombiningStateSpec("sum", sum)
EXPIRING = tg.ValueStateSpec("expiring", ttl=0.5)
DUE = tg.EventTimer("due")
LATER = tg.EventTimer("later")
SOON = tg.ProcessingTimer("soon")


class RewritesState(tg.DoFn):
    def process(self, pair: Any, value: Any = tg.DoFn.StateParam(VALUE)) -> Iterator[Any]:
        value.write((value.read() or 0) + pair[1])
        yield pair


class ClearsState(tg.DoFn):
    """Clears all cells and fills them again, for each element."""

    def process(
        self,
        pair: Any,
        value: Any = tg.DoFn.StateParam(VALUE),
        bag: Any = tg.DoFn.StateParam(BAG),
        members: Any = tg.DoFn.StateParam(SET),
        table: Any = tg.DoFn.StateParam(MAP),
        dated: Any = tg.DoFn.StateParam(LIST),
        total: Any = tg.DoFn.StateParam(SUM),
        at: Any = tg.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        for cell in (value, bag, members, table, dated, total):
            cell.clear()
        value.write(pair[1])
        bag.add(pair[1])
        members.add(pair[1])
        table.put(pair[1], 1)
        dated.add(at, 1)
        total.add(1)
        yield pair


class SetsTimers(tg.DoFn):
    """Keeps moving one timer, and lets others fire."""

    def process(
        self,
        pair: Any,
        at: Any = tg.DoFn.TimestampParam,
        now: Any = tg.DoFn.ProcessingTimeParam,
        value: Any = tg.DoFn.StateParam(VALUE),
        expiring: Any = tg.DoFn.StateParam(EXPIRING),
        due: Any = tg.DoFn.TimerParam(DUE),
        later: Any = tg.DoFn.TimerParam(LATER),
        soon: Any = tg.DoFn.TimerParam(SOON),
    ) -> Iterator[Any]:
        expiring.write(pair[1])
        due.set(at + 1.5)
        later.set(at + 3600, output_timestamp=at + 3600)
        soon.set(now + 0.25)
        yield pair

    @tg.on_timer(DUE)
    def on_due(self, key: Any = tg.DoFn.KeyParam, value: Any = tg.DoFn.StateParam(VALUE)) -> Iterator[Any]:
        value.write(1)
        yield key, 0

    @tg.on_timer(LATER)
    def on_later(self, key: Any = tg.DoFn.KeyParam) -> Iterator[Any]:
        yield key, 0

    @tg.on_timer(SOON)
    def on_soon(self, key: Any = tg.DoFn.KeyParam, value: Any = tg.DoFn.StateParam(VALUE)) -> Iterator[Any]:
        value.clear()
        yield key, 0


class ExpiresWindows(tg.DoFn):
    def process(
        self,
        pair: Any,
        bag: Any = tg.DoFn.StateParam(BAG),
        due: Any = tg.DoFn.TimerParam(DUE),
        w: Any = tg.DoFn.WindowParam,
    ) -> Iterator[Any]:
        bag.add(pair[1])
        due.set(w.max_timestamp())
        yield pair

    @tg.on_timer(DUE)
    def on_due(self, key: Any = tg.DoFn.KeyParam) -> Iterator[Any]:
        yield key, 0

    @tg.on_window_expiration
    def expire(self, key: Any = tg.DoFn.KeyParam, bag: Any = tg.DoFn.StateParam(BAG)) -> Iterator[Any]:
        yield key, len(bag.read())


Step = Callable[[Any], Any]


def with_trigger(windows: Any, trigger: Any, accumulation: Any, lateness: float = 0) -> Any:
    return tg.WindowInto(windows, trigger=trigger, accumulation=accumulation, allowed_lateness=lateness)


def with_own_sums(pairs: Any) -> Any:
    view = tg.AsDict(pairs | tg.WindowInto(tg.FixedWindows(2)) | "per key" >> tg.CombinePerKey(sum))
    return pairs | tg.WindowInto(tg.FixedWindows(1)) | tg.Map(lambda pair, sums: (pair[0], len(sums)), sums=view)


def bursts(pairs: Any) -> Any:
    """Emits some elements of each key, and then none for a while."""
    return pairs | tg.Filter(lambda pair: pair[1] < 2) | tg.WindowInto(tg.Sessions(0.5))


STEPS: dict[str, Step] = {
    "no state": lambda pairs: pairs | tg.Map(lambda pair: pair),
    "rewritten values": lambda pairs: pairs | tg.ParDo(RewritesState()),
    "cleared state": lambda pairs: pairs | tg.ParDo(ClearsState()),
    "timers": lambda pairs: pairs | tg.ParDo(SetsTimers()),
    "expiring windows": lambda pairs: pairs | tg.WindowInto(tg.FixedWindows(2)) | tg.ParDo(ExpiresWindows()),
    "state in sliding windows": lambda pairs: (
        pairs | tg.WindowInto(tg.SlidingWindows(2, 1)) | tg.ParDo(RewritesState())
    ),
    "sums per window": lambda pairs: pairs | tg.WindowInto(tg.FixedWindows(2)) | tg.CombinePerKey(sum),
    "groups per window": lambda pairs: pairs | tg.WindowInto(tg.SlidingWindows(2, 1)) | tg.GroupByKey(),
    "panes of windows": lambda pairs: (
        pairs
        | with_trigger(
            tg.FixedWindows(2), tg.AfterWatermark(early=tg.AfterCount(3), late=tg.AfterCount(1)), tg.ACCUMULATING, 1
        )
        | tg.GroupByKey()
    ),
    "panes of the global window": lambda pairs: (
        pairs
        | with_trigger(tg.GlobalWindows(), tg.Repeatedly(tg.AfterProcessingTime(0.25)), tg.DISCARDING)
        | tg.GroupByKey()
    ),
    "sessions": lambda pairs: bursts(pairs) | tg.CombinePerKey(sum),
    "sessions with panes": lambda pairs: (
        pairs
        | tg.Filter(lambda pair: pair[1] < 2)
        | with_trigger(
            tg.Sessions(0.5), tg.AfterWatermark(early=tg.AfterCount(2), late=tg.AfterCount(1)), tg.ACCUMULATING, 1
        )
        | tg.GroupByKey()
    ),
    "side inputs": with_own_sums,
    "deduplication": lambda pairs: pairs | tg.DeduplicatePerKey(0.5, time="processing"),
}


def settings(backend: str) -> Settings:
    every_second = replace(ONE_WORKER.checkpoints, interval=1.0, full_every=FULL_EVERY)
    return replace(ONE_WORKER, state_backend=backend, buffer_timeout=0.0, checkpoints=every_second)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Growth:
    """The growth over some periods.

    `waste`: objects only reachable through reference cycles. `objects` in use. `memory`: bytes in use, the minimum of
    all periods, since a table may grow once for good.
    """

    waste: int
    objects: int
    memory: int


def growth_of(job: InProcessJob) -> Growth:
    """Advance the clock without garbage collection, and measure the growth.

    The collector need not look at the objects that are older: all tests of the session are among them.
    """
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    try:
        job.advance(2 * PERIOD)
        gc.collect()
        gc.disable()
        objects, memory, waste = objects_in_use(), [], 0
        for _ in range(PERIODS):
            before = tracemalloc.get_traced_memory()[0]
            job.advance(PERIOD)
            waste += gc.collect() - PERIOD * cycles_of_json()
            memory.append(tracemalloc.get_traced_memory()[0] - before)
        return Growth(waste, objects_in_use() - objects, min(memory))
    finally:
        tracemalloc.stop()
        gc.enable()
        gc.unfreeze()


def objects_in_use() -> int:
    """The number of objects, without PaneInfos, of which a few thousand are cached."""
    return sum(type(each) is not tg.PaneInfo for each in gc.get_objects())


def cycles_of_json() -> int:
    """The number of objects in reference cycles that `json` leaves per manifest: its closures refer to each other."""
    json.dumps({"of": []}, indent=1)
    return gc.collect()


ON_ROCKSDB = ["no state", "cleared state", "timers", "panes of windows"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "backend"), [*((name, "memory") for name in STEPS), *((name, "rocksdb") for name in ON_ROCKSDB)]
)
def test_memory_does_not_grow(name: str, backend: str, tmp_path: Path) -> None:
    p = tg.Pipeline()
    _ = STEPS[name](p | tg.Read(Steady())) | "out" >> tg.Map(lambda element: None)
    job = InProcessJob(p, tmp_path, settings(backend))
    growth = growth_of(job)
    assert job.completed >= PERIODS * PERIOD
    assert not job.failed
    assert growth.waste < PERIODS
    assert growth.objects < PERIOD
    assert growth.memory < MAX_GROWTH

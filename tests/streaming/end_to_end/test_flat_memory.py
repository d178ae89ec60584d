"""However long a stream goes on, nothing of what is over stays in memory: not in the worker, nor in the job's process.

Garbage is not collected meanwhile: what only the collector could free piles up in a long run, since a collection of
everything is rare where there is much state.
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
A_SECOND = 100
"""Elements."""
FULL_EVERY = 3
PERIOD = 4 * FULL_EVERY
"""Checkpoints, one a second: after so many of them all that stays of them is as it was, however little they hold."""
PERIODS = 4
MOST_KEPT = 6 << 10
"""Bytes that may be there more after each period: numbers get longer, and dicts have room to spare."""


@dataclass(frozen=True)
class Steady(Source[Any]):
    """`(key, number)`, so many each second of the clock, of the same few keys for ever."""

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
        first, self._at = self._at, self._at + A_SECOND
        return Batch(Block([(n % KEYS, n % 7) for n in range(first, self._at)], now), watermark=now)

    def position(self) -> Position:
        return self._at


VALUE = tg.ValueStateSpec("value")
BAG = tg.BagStateSpec("bag")
SET = tg.SetStateSpec("set")
MAP = tg.MapStateSpec("map")
LIST = tg.OrderedListStateSpec("list")
SUM = tg.CombiningStateSpec("sum", sum)
MORTAL = tg.ValueStateSpec("mortal", ttl=0.5)
DUE = tg.EventTimer("due")
LATER = tg.EventTimer("later")
SOON = tg.ProcessingTimer("soon")


class Rewriting(tg.DoFn):
    def process(self, pair: Any, value: Any = tg.DoFn.StateParam(VALUE)) -> Iterator[Any]:
        value.write((value.read() or 0) + pair[1])
        yield pair


class Clearing(tg.DoFn):
    """Takes everything out again and again, and puts it back."""

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


class Waking(tg.DoFn):
    """Moves one timer for ever, and has others fire."""

    def process(
        self,
        pair: Any,
        at: Any = tg.DoFn.TimestampParam,
        now: Any = tg.DoFn.ProcessingTimeParam,
        value: Any = tg.DoFn.StateParam(VALUE),
        mortal: Any = tg.DoFn.StateParam(MORTAL),
        due: Any = tg.DoFn.TimerParam(DUE),
        later: Any = tg.DoFn.TimerParam(LATER),
        soon: Any = tg.DoFn.TimerParam(SOON),
    ) -> Iterator[Any]:
        mortal.write(pair[1])
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


class Expiring(tg.DoFn):
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


def often(windows: Any, trigger: Any, accumulation: Any, lateness: float = 0) -> Any:
    return tg.WindowInto(windows, trigger=trigger, accumulation=accumulation, allowed_lateness=lateness)


def beside_itself(pairs: Any) -> Any:
    view = tg.AsDict(pairs | tg.WindowInto(tg.FixedWindows(2)) | "per key" >> tg.CombinePerKey(sum))
    return pairs | tg.WindowInto(tg.FixedWindows(1)) | tg.Map(lambda pair, sums: (pair[0], len(sums)), sums=view)


def bursts(pairs: Any) -> Any:
    """Emits some elements of each key, and then none for a while."""
    return pairs | tg.Filter(lambda pair: pair[1] < 2) | tg.WindowInto(tg.Sessions(0.5))


STEPS: dict[str, Step] = {
    "nothing is kept": lambda pairs: pairs | tg.Map(lambda pair: pair),
    "values are rewritten": lambda pairs: pairs | tg.ParDo(Rewriting()),
    "state is taken out and put back": lambda pairs: pairs | tg.ParDo(Clearing()),
    "timers are moved and fire": lambda pairs: pairs | tg.ParDo(Waking()),
    "windows with state expire": lambda pairs: pairs | tg.WindowInto(tg.FixedWindows(2)) | tg.ParDo(Expiring()),
    "state in windows that slide": lambda pairs: pairs | tg.WindowInto(tg.SlidingWindows(2, 1)) | tg.ParDo(Rewriting()),
    "sums per window": lambda pairs: pairs | tg.WindowInto(tg.FixedWindows(2)) | tg.CombinePerKey(sum),
    "groups per window": lambda pairs: pairs | tg.WindowInto(tg.SlidingWindows(2, 1)) | tg.GroupByKey(),
    "panes of windows": lambda pairs: (
        pairs
        | often(
            tg.FixedWindows(2), tg.AfterWatermark(early=tg.AfterCount(3), late=tg.AfterCount(1)), tg.ACCUMULATING, 1
        )
        | tg.GroupByKey()
    ),
    "panes without end": lambda pairs: (
        pairs | often(tg.GlobalWindows(), tg.Repeatedly(tg.AfterProcessingTime(0.25)), tg.DISCARDING) | tg.GroupByKey()
    ),
    "sessions": lambda pairs: bursts(pairs) | tg.CombinePerKey(sum),
    "sessions with panes": lambda pairs: (
        pairs
        | tg.Filter(lambda pair: pair[1] < 2)
        | often(tg.Sessions(0.5), tg.AfterWatermark(early=tg.AfterCount(2), late=tg.AfterCount(1)), tg.ACCUMULATING, 1)
        | tg.GroupByKey()
    ),
    "side inputs": beside_itself,
    "doubles are dropped": lambda pairs: pairs | tg.DeduplicatePerKey(0.5, time="processing"),
}


def settings(backend: str) -> Settings:
    every_second = replace(ONE_WORKER.checkpoints, interval=1.0, full_every=FULL_EVERY)
    return replace(ONE_WORKER, state_backend=backend, buffer_timeout=0.0, checkpoints=every_second)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Grown:
    """What there is more after some periods. `waste`: objects that nobody refers to but themselves; `objects` that are
    in use; `kept`: bytes in use, the least of all periods, as some table may just have grown for good."""

    waste: int
    objects: int
    kept: int


def grown(alone: InProcessJob) -> Grown:
    """Let time pass without a collector, and look what there is more."""
    tracemalloc.start()
    try:
        alone.advance(2 * PERIOD)
        gc.collect()
        gc.disable()
        objects, kept, waste = in_use(), [], 0
        for _ in range(PERIODS):
            before = tracemalloc.get_traced_memory()[0]
            alone.advance(PERIOD)
            waste += gc.collect() - PERIOD * of_a_manifest()
            kept.append(tracemalloc.get_traced_memory()[0] - before)
        return Grown(waste, in_use() - objects, min(kept))
    finally:
        tracemalloc.stop()
        gc.enable()


def in_use() -> int:
    """How many objects there are, but for those of which a few thousand are kept at hand."""
    return sum(type(each) is not tg.PaneInfo for each in gc.get_objects())


def of_a_manifest() -> int:
    """How many objects the library leaves behind that writes manifests: its closures refer to each other."""
    json.dumps({"of": []}, indent=1)
    return gc.collect()


KEEPING = ["nothing is kept", "state is taken out and put back", "timers are moved and fire", "panes of windows"]


@pytest.mark.parametrize(
    ("name", "backend"), [*((name, "memory") for name in STEPS), *((name, "rocksdb") for name in KEEPING)]
)
def test_what_is_over_is_gone(name: str, backend: str, tmp_path: Path) -> None:
    p = tg.Pipeline()
    _ = STEPS[name](p | tg.Read(Steady())) | "out" >> tg.Map(lambda given: None)
    alone = InProcessJob(p, tmp_path, settings(backend))
    more = grown(alone)
    assert alone.completed >= PERIODS * PERIOD
    assert not alone.failed
    assert more.waste < PERIODS
    assert more.objects < PERIOD
    assert more.kept < MOST_KEPT

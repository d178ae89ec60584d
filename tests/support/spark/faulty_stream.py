"""A stream on a cluster whose parts die: as a script, its driver, which dies where the tests say.

A fault is armed by a file, and whoever comes to the place of that name removes the file and commits it. A driver dies
with all processes of its group. What a task reads depends on chance, as that of live data does: a task that is run
again reads other elements.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tidegate as tg
from tests.support.spark.live_numbers import LiveNumbers, NumbersReader, Track, keyed
from tidegate.sdk.connectors.sources import Batch, Reader, Split

DRIVER: Final = ("reading", "grouping", "collected", "stored", "logged", "committing")
"""Places where the driver dies: while level 0 reads, while level 1 groups, when the rows have been collected, when the
output is noted in the checkpoint, when Spark has logged the batch, and when one of the sinks has committed it."""
EXECUTOR: Final = ("executor 0", "executor 1", "executor 2")
"""Levels in which an executor dies."""


def takes(folder: str, fault: str) -> bool:
    """Whether a fault is armed, for whoever asks first."""
    try:
        os.unlink(Path(folder, "armed", fault))
    except FileNotFoundError:
        return False
    return True


def kill_driver(folder: str) -> None:
    """Kill the driver with all processes that it has started, but the cluster's."""
    os.killpg(int(Path(folder, "driver").read_text()), signal.SIGKILL)


def kill_executor() -> None:
    """Kill the executor of this task: the parent of the daemon that forked this process."""
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    os.kill(int(stat.rsplit(")", 1)[1].split()[1]), signal.SIGKILL)


def passing(element: Any, folder: str, level: int) -> Any:
    """The element; a fault of the level happens here."""
    if level < 2 and takes(folder, DRIVER[level]):
        kill_driver(folder)
    if takes(folder, EXECUTOR[level]):
        kill_executor()
    return element


class ChanceReader(NumbersReader):
    """The numbers of one split, some at a time, up to the last but one until the stream may end."""

    source: ChanceNumbers
    _rests = False

    def read(self, limit: int) -> Batch:
        source, ends = self.source, Path(self.source.folder, "may end").exists()
        self._rests = not self._rests and not ends
        if self._rests:
            return self.read_until(self.next)
        many = limit if ends else random.randrange(1, source.most)
        return self.read_until(min(self.next + many * source.divided, source.count - (0 if ends else source.divided)))


@dataclass(frozen=True)
class ChanceNumbers(LiveNumbers):
    """The numbers below `count`, in two splits; at most `most` of each at a time. In the `folder` a file says whether
    the stream may end."""

    folder: str = ""
    most: int = 40

    def reader(self, split: Split, position: Any = None) -> Reader[int]:
        return ChanceReader(self, int(split.id), position)


@dataclass(frozen=True)
class Total:
    """The sum of the numbers of a window that have a key, or of some keys."""

    key: str
    total: int


def build(pipeline: tg.Pipeline, folder: str, output: str, count: int) -> None:
    """Windows with sums, a stateful step with timers, and sums of sums, in text, Parquet, and a Delta table."""
    numbers = pipeline | tg.Read(ChanceNumbers(count, folder=folder)) | "0" >> tg.Map(passing, folder, 0)
    pairs = numbers | tg.Map(keyed)
    sums = (
        pairs | tg.WindowInto(tg.FixedWindows(20)) | "sums" >> tg.CombinePerKey(sum) | "1" >> tg.Map(passing, folder, 1)
    )
    totals = sums | "third" >> tg.MapTuple(lambda key, total: (f"third {int(key[1:]) % 3}", total))
    thirds = totals | "thirds" >> tg.CombinePerKey(sum) | "2" >> tg.Map(passing, folder, 2)
    tracked = pairs | "track" >> tg.ParDo(Track())
    _ = tracked | "text" >> tg.io.WriteToText(f"{output}/tracked/out")
    rows = sums | "row" >> tg.MapTuple(Total)
    _ = rows | "parquet" >> tg.io.WriteToParquet(f"{output}/sums/out", Total)
    _ = thirds | "row of thirds" >> tg.MapTuple(Total) | "delta" >> tg.WriteToDelta(f"{output}/thirds", Total)


def die_in_driver(folder: str) -> None:
    """Let the driver die where it stores, and where it commits."""
    from tidegate.runners.spark.streaming.driver import epoch_output
    from tidegate.runners.spark.streaming.driver.checkpoint import Checkpoint

    store, commit_output = Checkpoint.store, epoch_output.commit_output

    def dying_store(self: Checkpoint, *arguments: Any) -> None:
        if takes(folder, "collected"):
            kill_driver(folder)
        store(self, *arguments)
        if takes(folder, "stored"):
            kill_driver(folder)

    def dying_commit(*arguments: Any) -> Any:
        if takes(folder, "logged"):
            kill_driver(folder)
        done = commit_output(*arguments)
        if takes(folder, "committing"):
            kill_driver(folder)
        return done

    Checkpoint.store = dying_store  # type: ignore[method-assign]
    epoch_output.commit_output = dying_commit  # type: ignore[attr-defined]


def main() -> None:
    folder, count, *flags = sys.argv[1:]
    Path(folder, "driver").write_text(str(os.getpgrp()))
    die_in_driver(folder)
    pipeline = tg.Pipeline(options=["--runner", "spark", *flags])
    build(pipeline, folder, f"{folder}/out", int(count))
    pipeline.run().wait_until_finish()


if __name__ == "__main__":
    main()

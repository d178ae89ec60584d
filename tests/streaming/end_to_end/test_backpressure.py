"""A slow sink behind a fast source: the source is held back, memory stays flat, and metrics say who is to blame.

`--streaming-seconds` says for how long.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

import tidegate as tg
from tests.support.streaming.child_processes import child_pids
from tidegate.sdk.connectors.sinks import Attempt, Committable, Sink, in_order
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block

TOGETHER = 1000.0
"""Records a second that all tasks of the sink take."""
WORKERS = 2


@dataclass(frozen=True)
class Flood(Source[Any]):
    """Numbers, far more than a million a second if somebody takes them."""

    batch: int

    @property
    def bounded(self) -> bool:
        return False

    def splits(self, desired: int) -> list[Split]:
        return [Split(f"part-{n}", None, n) for n in range(WORKERS)]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _FloodReader(self.batch, split.payload, position or 0)


class _FloodReader(Reader[Any]):
    def __init__(self, batch: int, part: int, at: int) -> None:
        self._batch = batch
        self._part = part
        self._at = at

    def read(self, limit: int) -> Batch:
        first, self._at = self._at, self._at + min(limit, self._batch)
        return Batch(Block([(self._part, n) for n in range(first, self._at)], first), watermark=first)

    def position(self) -> Position:
        return self._at


@dataclass(frozen=True)
class Slow(Sink[Any]):
    """Takes its time over each record."""

    folder: str

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        return _SlowAttempt(Path(self.folder), task)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        for committable in in_order(committables):
            pending = Path(self.folder, committable.payload)
            if pending.exists():
                os.replace(pending, pending.with_suffix(".committed"))


class _SlowAttempt(Attempt[Any]):
    def __init__(self, folder: Path, task: int) -> None:
        self._folder = folder
        self._task = task
        self._lines: list[str] = []
        self._sequence = 0

    def write(self, values: Sequence[Any]) -> None:
        time.sleep(len(values) * WORKERS / TOGETHER)
        self._lines += [f"{part} {number}" for part, number in values]

    def prepare(self) -> list[Committable]:
        name = f"{self._task}-{self._sequence}.pending"
        (self._folder / name).write_text("\n".join(self._lines))
        self._lines = []
        self._sequence += 1
        return [Committable((self._task, self._sequence), name)]


def resident(pid: int) -> int:
    """The memory of a process, in kB; 0 if it is no more."""
    try:
        return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])
    except (OSError, IndexError):
        return 0


@dataclass
class Watched:
    """A record of a run: the lines of its metrics file, and the peak memory (kB) of each worker in each second."""

    metrics: list[dict[str, Any]]
    memory: list[int]


def watch(result: Any, pipe: int, seconds: float) -> Watched:
    """Look at the metrics as they come, and at memory with each, until so many seconds of them have been seen."""
    watched, left, began = Watched([], []), "", time.monotonic()
    while time.monotonic() - began < seconds:
        if not select.select([pipe], [], [], 1.0)[0]:
            continue
        *lines, left = (left + os.read(pipe, 1 << 16).decode()).split("\n")
        watched.metrics += [json.loads(line) for line in lines]
        workers = [pid for job in child_pids(os.getpid()) for pid in child_pids(job)]
        watched.memory.append(max(map(resident, workers), default=0))
    return watched


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[int]:
    os.mkfifo(tmp_path / "metrics")
    descriptor = os.open(tmp_path / "metrics", os.O_RDWR | os.O_NONBLOCK)
    yield descriptor
    os.close(descriptor)


def test_a_slow_sink_holds_a_fast_source_back(pipe: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seconds: float = request.config.getoption("--streaming-seconds")
    flags = ["--workers", str(WORKERS), "--metrics_file", str(tmp_path / "metrics"), "--metrics_interval", "0.25"]
    # Small blocks, so that a checkpoint and the end need not wait for a minute's work that is under way.
    flags += ["--buffer_timeout", "0", "--checkpoint_interval", "1"]
    p = tg.Pipeline(options=["--runner", "streaming", *flags])
    _ = p | "flood" >> tg.Read(Flood(100)) | "spread" >> tg.Reshuffle() | "slow" >> tg.Write(Slow(str(tmp_path)))
    result: Any = p.run()
    watched = watch(result, pipe, seconds)
    result.stop(drain=True)
    assert result.wait_until_finish() is tg.PipelineState.DONE

    written = [line for path in tmp_path.glob("*.committed") for line in path.read_text().splitlines()]
    read = result.metrics().counter("elements_out", step="flood")
    assert len(written) == len(set(written)) == read
    assert read < 3 * TOGETHER * (seconds + 5), "the source was not held back"

    settled = watched.memory[len(watched.memory) // 4 :]
    early, late = settled[: len(settled) // 2], settled[len(settled) // 2 :]
    assert max(late) < max(early) + 8 * 1024, f"memory grows: {watched.memory}"

    by_step: dict[str, list[dict[str, Any]]] = {}
    for line in watched.metrics:
        if line["kind"] == "task":
            by_step.setdefault(line["steps"][-1], []).append(line)
    halfway = {step: lines[len(lines) // 2 :] for step, lines in by_step.items()}
    assert mean(line["backpressured"] for line in halfway["flood"]) > 0.5
    assert mean(line["busy"] for line in halfway["flood"]) < 0.2
    assert mean(line["busy"] for line in halfway["slow"]) > 0.8
    assert max(line["backpressured"] for line in halfway["slow"]) < 0.05

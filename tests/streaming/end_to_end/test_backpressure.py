"""A slow sink behind a fast source: backpressure stops the source, memory stays flat, and metrics show the bottleneck.

`--streaming-seconds` sets the duration.
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

SINK_RATE = 1000.0
"""The number of records per second that all tasks of the sink accept together."""
WORKERS = 2


@dataclass(frozen=True)
class Flood(Source[Any]):
    """Numbers, far more than a million per second without backpressure."""

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
class SlowSink(Sink[Any]):
    """Accepts records at a limited rate."""

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
        time.sleep(len(values) * WORKERS / SINK_RATE)
        self._lines += [f"{part} {number}" for part, number in values]

    def prepare(self) -> list[Committable]:
        name = f"{self._task}-{self._sequence}.pending"
        (self._folder / name).write_text("\n".join(self._lines))
        self._lines = []
        self._sequence += 1
        return [Committable((self._task, self._sequence), name)]


def resident(pid: int) -> int:
    """The memory of a process, in kB; 0 if it has exited."""
    try:
        return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])
    except (OSError, IndexError):
        return 0


@dataclass
class RunRecord:
    """A record of a run: the lines of its metrics file, and the peak memory (kB) of each worker in each second."""

    metrics: list[dict[str, Any]]
    memory: list[int]


def watch(result: Any, pipe: int, seconds: float) -> RunRecord:
    """Record the metrics of `seconds` seconds as they arrive, and the memory at each arrival."""
    record, rest, began = RunRecord([], []), "", time.monotonic()
    while time.monotonic() - began < seconds:
        if not select.select([pipe], [], [], 1.0)[0]:
            continue
        *lines, rest = (rest + os.read(pipe, 1 << 16).decode()).split("\n")
        record.metrics += [json.loads(line) for line in lines]
        workers = [pid for job in child_pids(os.getpid()) for pid in child_pids(job)]
        record.memory.append(max(map(resident, workers), default=0))
    return record


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[int]:
    os.mkfifo(tmp_path / "metrics")
    descriptor = os.open(tmp_path / "metrics", os.O_RDWR | os.O_NONBLOCK)
    yield descriptor
    os.close(descriptor)


def test_backpressure_of_a_slow_sink_reaches_a_fast_source(
    pipe: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seconds: float = request.config.getoption("--streaming-seconds")
    flags = ["--workers", str(WORKERS), "--metrics_file", str(tmp_path / "metrics"), "--metrics_interval", "0.25"]
    # Small blocks, so that checkpoints and the end of the job wait for little data in flight.
    flags += ["--buffer_timeout", "0", "--checkpoint_interval", "1"]
    p = tg.Pipeline(options=["--runner", "streaming", *flags])
    _ = p | "flood" >> tg.Read(Flood(100)) | "spread" >> tg.Reshuffle() | "slow" >> tg.Write(SlowSink(str(tmp_path)))
    result: Any = p.run()
    record = watch(result, pipe, seconds)
    result.stop(drain=True)
    assert result.wait_until_finish() is tg.PipelineState.DONE

    written = [line for path in tmp_path.glob("*.committed") for line in path.read_text().splitlines()]
    read = result.metrics().counter("elements_out", step="flood")
    assert len(written) == len(set(written)) == read
    assert read < 3 * SINK_RATE * (seconds + 5), "the source was not backpressured"

    warmed_up = record.memory[len(record.memory) // 4 :]
    early, late = warmed_up[: len(warmed_up) // 2], warmed_up[len(warmed_up) // 2 :]
    assert max(late) < max(early) + 8 * 1024, f"memory grows: {record.memory}"

    by_step: dict[str, list[dict[str, Any]]] = {}
    for line in record.metrics:
        if line["kind"] == "task":
            by_step.setdefault(line["steps"][-1], []).append(line)
    second_half = {step: lines[len(lines) // 2 :] for step, lines in by_step.items()}
    assert mean(line["backpressured"] for line in second_half["flood"]) > 0.5
    assert mean(line["busy"] for line in second_half["flood"]) < 0.2
    assert mean(line["busy"] for line in second_half["slow"]) > 0.8
    assert max(line["backpressured"] for line in second_half["slow"]) < 0.05

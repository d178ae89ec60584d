"""Calls that are in flight when their stream moves to Spark, and stops there: real processes, a real server."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import tidegate as tg
from tests.support.spark.live_numbers import LiveNumbers, lines
from tests.support.spark.micro_batches import Batches, MicroBatches
from tests.support.spark.stream_runs import wait_for_end, wait_until
from tests.support.streaming.call_server import CallServer, ask
from tidegate.sdk.runner import PipelineState

COUNT = 40
CAPACITY = 6


def pipeline(server: str, folder: Path, *flags: str) -> tg.Pipeline:
    """Calls for numbers of which the last ten come later."""

    async def call(number: int) -> str:
        return f"{number} {await ask(server, os.getpid(), number)}"

    p = tg.Pipeline(options=[*flags, "--temp_dir", str(folder)])
    calls = tg.AsyncMap(call, capacity=CAPACITY, timeout=None)
    numbers = p | "numbers" >> tg.Read(LiveNumbers(COUNT, gate=str(folder / "gate")))
    _ = numbers | "call" >> calls | "write" >> tg.io.WriteToText(str(folder / "out" / "part"))
    return p


def on_spark(server: str, folder: Path, savepoint: Path, tasks: int) -> Batches:
    """The job on Spark, from a savepoint."""
    p: Any = pipeline(server, folder, "--runner", "direct")
    return MicroBatches(tasks, elements=7).batches(p.sealed(), p.options, savepoint=savepoint, run=savepoint.name)


def test_calls_in_flight_are_made_again_on_spark_whose_savepoints_have_none(tmp_path: Path) -> None:
    server = CallServer(tmp_path)
    gate, first, second = (tmp_path / name for name in ("gate", "first", "second"))
    gate.write_text(str(COUNT - 10))
    try:
        native = ["--runner", "streaming", "--workers", "2", "--checkpoint_interval", "200ms"]
        result = pipeline(server.path, tmp_path, *native).run()
        wait_until(result, lambda: len(server.calls()) >= 2 * CAPACITY, "as many calls as may be in flight")
        result.stop(savepoint=str(first))
        assert wait_for_end(result) is PipelineState.DONE
        in_flight = [number for _, number in server.calls()]
        assert len(in_flight) == 2 * CAPACITY
        assert lines(tmp_path / "out") == []

        server.release()
        batches = on_spark(server.path, tmp_path, first, 3)
        assert not batches.batch()
        again = Counter(number for _, number in server.calls())
        assert {number for number in in_flight if again[number] == 2} == set(in_flight)
        batches.savepoint(second)
        written = lines(tmp_path / "out")
        assert {int(line.split()[1]) for line in written} == set(again)  # no call of a batch outlives it

        gate.write_text(str(COUNT))
        on_spark(server.path, tmp_path, second, 2).run()
    finally:
        server.close()
    calls = Counter(number for _, number in server.calls())
    assert calls == Counter(range(COUNT)) + Counter(in_flight)
    assert lines(tmp_path / "out") == sorted(f"part {n} {2 * n}" for n in range(COUNT))

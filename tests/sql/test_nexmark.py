"""Nexmark's queries: bounded tables against DuckDB, and streams against the same answers.

Answers over two thousand events are recorded; `--duckdb PYTHON --nexmark-events 20000` asks a Python that has DuckDB.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from benchmarks.nexmark.events import count
from benchmarks.nexmark.model import Auction, Bid, Person
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.source import NexmarkSource, tables
from tests.support.spark.micro_batches import MicroBatches
from tests.support.sql.nexmark_answers import COUNT, EVENTS, digest, from_duckdb, plain_row
from tests.support.streaming.child_processes import TIMEOUT, child_pids
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Split
from tidegate.sdk.data.block import Block

Answers = dict[int, list[tuple[Any, ...]]]
STREAMS = [number for number, query in QUERIES.items() if query.streams]


@pytest.fixture(scope="module")
def recorded() -> dict[int, list[Any]]:
    """The digest of each answer of DuckDB."""
    return {
        int(number): each for number, each in json.loads((Path(__file__).parent / "nexmark.json").read_text()).items()
    }


def numbered_rows(inputs: dict[str, Any], numbers: list[int]) -> tg.PCollection[Any]:
    """The rows of several queries over the same tables, with the number of their query."""
    found = [
        inputs
        | QUERIES[n].step(f"q{n}")
        | f"n{n}" >> tg.Map(lambda row, n=n: (n, plain_row(row)))
        | f"w{n}" >> tg.WindowInto(tg.GlobalWindows())
        for n in numbers
    ]
    return tuple(found) | tg.Flatten()


def answers(runner: str | tg.Runner, numbers: list[int], stop: int = COUNT, bounded: bool = True) -> Answers:
    """The rows of queries over the first events."""
    pipeline = tg.Pipeline(runner, options=["--checks", "off"] if runner == "direct" else [])
    inputs = tables(pipeline, EVENTS, stop, bounded=bounded)
    limit = {} if bounded else {"run_for": TIMEOUT}
    found: Answers = defaultdict(list)
    for number, row in numbered_rows(inputs, numbers).collect(**limit):
        found[number].append(row)
    return found


def test_the_same_events_are_read_however_they_are_divided() -> None:
    source = NexmarkSource(Bid, EVENTS, 10_000)
    read = []
    for split in source.splits(3):
        reader, position = source.reader(split), None
        while True:
            batch = reader.read(3_000)
            read += batch.block.values
            if batch.end:
                break
            position = json.loads(json.dumps(reader.position()))
            reader = source.reader(split, position)
    assert read == [EVENTS.at(n) for n in range(10_000) if n % 50 >= 4]
    stream = NexmarkSource(Bid, EVENTS, 5_000, bounded=False)
    (first, _) = stream.splits(2)
    reader = stream.reader(first)
    values = list(reader.read(50).block.values)
    for split in stream.split_again(first, reader.position(), 3):
        values += stream.reader(split).read(5_000).block.values
    assert len(values) == len(set(values)) == count(Bid, 5_000) // 2


def test_a_schedule_goes_on_when_a_split_is_divided() -> None:
    stream = NexmarkSource(Bid, EVENTS, None, bounded=False, rate=1_000)
    (split,) = stream.splits(1)
    parts = stream.split_again(split, [7, 5_000_000], 2)
    assert [stream.reader(part).position() for part in parts] == [[7, 5_000_000], [8, 5_000_000]]
    assert [part.payload[3] for part in stream.split_again(parts[0], None, 2)] == [5_000_000] * 2


def test_no_event_is_behind_the_watermark() -> None:
    reader = NexmarkSource(Bid, EVENTS, 5_000, bounded=False).reader(Split("all", None, [0, None, 1, None]))
    watermark, out_of_order, end = 0, 0, False
    while not end:
        batch = reader.read(37)
        times = list(batch.block.timestamps)
        assert min(times) >= watermark
        out_of_order += times != sorted(times)
        watermark, end = batch.watermark or 0, batch.end
    assert out_of_order > 50


def assert_recorded(found: Answers, numbers: list[int], recorded: dict[int, list[Any]]) -> None:
    """Check the answers of queries. `--duckdb` shows the rows that differ."""
    assert {number: digest(found[number]) for number in numbers} == {number: recorded[number] for number in numbers}


def test_queries_over_tables_have_the_answers_of_duckdb(
    recorded: dict[int, list[Any]], request: pytest.FixtureRequest
) -> None:
    python, numbers = request.config.getoption("--duckdb"), list(QUERIES)
    assert_recorded(answers("direct", numbers), numbers, recorded)
    if python is not None:
        stop = request.config.getoption("--nexmark-events")
        ours, theirs = answers("direct", numbers, stop), from_duckdb(python, EVENTS, stop, numbers)
        for number in numbers:
            assert sorted(ours[number]) == theirs[number], number


def test_queries_over_tables_have_the_answers_of_duckdb_on_the_streaming_runner(
    recorded: dict[int, list[Any]], request: pytest.FixtureRequest
) -> None:
    numbers = list(QUERIES) if request.config.getoption("--nexmark") == "all" else [4, 9, 11]
    assert_recorded(answers("streaming", numbers), numbers, recorded)


@pytest.mark.xdist_group("spark")
def test_queries_over_tables_have_the_answers_of_duckdb_on_spark(
    recorded: dict[int, list[Any]], request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--nexmark") != "all":
        pytest.skip("--nexmark all asks Spark, which takes a minute")
    request.getfixturevalue("spark_session")
    numbers = list(QUERIES)
    assert_recorded(answers("spark", numbers), numbers, recorded)


def test_queries_over_streams_have_the_answers_of_those_over_tables(
    recorded: dict[int, list[Any]], request: pytest.FixtureRequest
) -> None:
    numbers = STREAMS if request.config.getoption("--nexmark") == "all" else [2, 7, 14]
    assert_recorded(answers("direct", numbers, bounded=False), numbers, recorded)


def test_queries_over_streams_have_the_same_answers_in_batches_whose_tasks_are_restored(
    recorded: dict[int, list[Any]], request: pytest.FixtureRequest
) -> None:
    numbers = STREAMS if request.config.getoption("--nexmark") == "all" else [8, 11]
    assert_recorded(answers(MicroBatches(2, seed=1, elements=150), numbers, bounded=False), numbers, recorded)


@pytest.mark.xdist_group("spark")
def test_queries_over_streams_have_the_same_answers_on_spark(
    recorded: dict[int, list[Any]], request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--nexmark") != "all":
        pytest.skip("--nexmark all asks Spark, which takes minutes")
    request.getfixturevalue("spark_session")
    assert_recorded(answers("spark", STREAMS, bounded=False), STREAMS, recorded)


# -- streams whose processes are killed


@dataclass(frozen=True)
class HeldSource(NexmarkSource):
    """A stream that stops in the middle until a file exists."""

    gate: str = ""

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return HeldReader(super().reader(split, position), count(self.kind, (self.stop or 0) // 2), self.gate)


class HeldReader(Reader[Any]):
    def __init__(self, inner: Reader[Any], middle: int, gate: str) -> None:
        self._inner, self._middle, self._gate = inner, middle, gate

    def read(self, limit: int) -> Batch:
        if self.position()[0] >= self._middle and not os.path.exists(self._gate):
            return Batch(Block.of([]), wait=0.02)
        return self._inner.read(min(limit, 20))

    def position(self) -> Position:
        return self._inner.position()


def completed(folder: Path) -> int:
    """The number of the last complete checkpoint."""
    found = [int(path.parent.name.removeprefix("chk-")) for path in folder.glob("chk-*/manifest.json")]
    return max(found, default=0)


def await_checkpoints(folder: Path, further: int, result: Any) -> None:
    """Wait for further checkpoints."""
    wanted, deadline = completed(folder) + further, time.monotonic() + TIMEOUT
    while completed(folder) < wanted:
        assert time.monotonic() < deadline
        assert result.state is tg.PipelineState.RUNNING
        time.sleep(0.01)


def test_streams_have_the_same_answers_when_workers_are_killed_and_their_number_changes(
    tmp_path: Path, recorded: dict[int, list[Any]], request: pytest.FixtureRequest
) -> None:
    numbers = STREAMS if request.config.getoption("--nexmark") == "all" else [5, 11]
    kinds = {"person": Person, "auction": Auction, "bid": Bid}
    gate, checkpoints = tmp_path / "gate", tmp_path / "checkpoints"

    def started(workers: int, *flags: str) -> Any:
        flags = (
            "--workers",
            str(workers),
            "--checkpoint_interval",
            "0.2",
            "--checkpoint_dir",
            str(checkpoints),
            *flags,
        )
        restart = ("--restart_strategy", "fixed", "--restart_delay", "0.02", "--restart_attempts", "100")
        pipeline = tg.Pipeline("streaming", options=[*flags, *restart])
        inputs = {
            name: pipeline | name >> tg.Read(HeldSource(kind, EVENTS, COUNT, bounded=False, gate=str(gate)))
            for name, kind in kinds.items()
        }
        numbered_rows(inputs, numbers) | tg.Map(json.dumps) | tg.io.WriteToText(str(tmp_path / "rows"))
        return pipeline.run()

    result = started(2)
    for _ in range(request.config.getoption("--streaming-kills") if numbers == STREAMS else 1):
        await_checkpoints(checkpoints, 2, result)
        workers = [pid for job in child_pids(os.getpid()) for pid in child_pids(job)]
        os.kill(workers[0], signal.SIGKILL)
    await_checkpoints(checkpoints, 2, result)
    result.stop(drain=False, savepoint=str(tmp_path / "saved"))
    assert result.wait_until_finish() is tg.PipelineState.DONE
    gate.touch()
    checkpoints = tmp_path / "checkpoints of three"
    result = started(3, "--from_savepoint", str(tmp_path / "saved"))
    assert result.wait_until_finish() is tg.PipelineState.DONE
    found: Answers = defaultdict(list)
    for path in tmp_path.glob("rows*"):
        for line in path.read_text().splitlines():
            number, row = json.loads(line)
            found[number].append(tuple(row))
    assert_recorded(found, numbers, recorded)

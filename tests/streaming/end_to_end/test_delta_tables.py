"""Following a folder or a Delta table into windows and Delta tables is exactly once: real SIGKILL at random moments."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.delta_committer import POINTS
from tests.support.delta_tables import rows_of
from tests.support.streaming.child_processes import TIMEOUT, wait_for_exit
from tests.support.streaming.killed_script import KilledScript

LINES, WINDOW = 20, 100

SCRIPT = f"""
import sys
import pyarrow as pa
import tidegate as tg
from tests.support.delta_committer import SinkWithPoints
from tidegate.io.delta.location import Location

READERS = {{
    "folder": lambda place: tg.io.ReadFromText(
        place + "/*.txt", follow=True, poll_interval=0.05, min_age=0, timestamp=int, out_of_orderness=400
    ),
    "table": lambda place: tg.ReadFromDelta(
        place + "/table", follow=True, poll_interval=0.05, timestamp=lambda row: row.n, out_of_orderness=400
    ),
}}

if __name__ == "__main__":
    folder, output, *flags = sys.argv[1:]
    p = tg.Pipeline(name="delta", options=flags)
    numbers = p | "read" >> READERS["SOURCE"](folder) | tg.Map(lambda read: int(getattr(read, "n", read)))
    counts = (
        numbers
        | tg.Map(lambda n: (n // {WINDOW}, 1))
        | tg.WindowInto(tg.FixedWindows({WINDOW}))
        | tg.CombinePerKey(sum)
        | tg.MapTuple(lambda window, count: {{"window": window, "count": count}})
    )
    _ = counts | "counts" >> tg.WriteToDelta(output + "/counts", {{"window": int, "count": int}})
    copies = numbers | tg.Map(lambda n: {{"n": n, "half": n % 2}})
    columns = pa.schema([("n", pa.int64()), ("half", pa.int64())])
    _ = copies | "copies" >> tg.Write(SinkWithPoints(Location(output + "/copies"), columns, ("half",)))
    p.run().wait_until_finish()
"""


def put_file(folder: Path, number: int) -> None:
    """Add a file of numbers atomically."""
    (folder / f".{number}").write_text("".join(f"{n}\n" for n in numbers_of(number)))
    (folder / f".{number}").rename(folder / f"{number:04}.txt")


def put_version(folder: Path, number: int) -> None:
    """Add a version of a table."""
    write_deltalake(str(folder / "table"), pa.table({"n": list(numbers_of(number))}), mode="append")


def numbers_of(number: int) -> range:
    return range(number * LINES, (number + 1) * LINES)


SOURCES: dict[str, Callable[[Path, int], None]] = {"folder": put_file, "table": put_version}


def written_rows(root: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a table of the output; none before its first version."""
    table = root / "out" / name
    return rows_of(table) if DeltaTable.is_deltatable(str(table)) else []


def copies(root: Path) -> list[int]:
    return sorted(row["n"] for row in written_rows(root, "copies"))


class Numbers:
    """A run of the script over a folder, to which numbers are added while it runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.written = 0
        for name in ("in", "out"):
            (root / name).mkdir()
        self.add(5)
        self.run = KilledScript(root, SCRIPT.replace("SOURCE", "folder"))
        self._pause = threading.Event()
        self._deadline = time.monotonic() + 4 * TIMEOUT

    def add(self, files: int) -> None:
        for number in range(self.written, self.written + files):
            put_file(self.root / "in", number)
        self.written += files

    def wait(self, until: Callable[[], object]) -> None:
        while not until():
            assert time.monotonic() < self._deadline, self.run.said()
            self._pause.wait(0.02)

    def wait_until_all_are_written(self) -> None:
        self.wait(lambda: len(copies(self.root)) >= self.written * LINES)

    def interrupted(self, name: str) -> int:
        """Let a process be interrupted at a point, as `SIGKILL before moving`, and return its pid."""
        (self.root / "out" / name).touch()
        self.add(1)
        self.wait(lambda: list((self.root / "out").glob(f"{name} *")))
        (found,) = (self.root / "out").glob(f"{name} *")
        return int(found.name.rpartition(" ")[2])


@pytest.fixture
def numbers(tmp_path: Path) -> Iterator[Numbers]:
    running = Numbers(tmp_path)
    yield running
    running.run.kill_all()
    running.run.log.close()


def points(request: pytest.FixtureRequest, few: int) -> list[str]:
    """The points of a commit to try: a few at random, or all of them if many processes are to be killed."""
    kills, seed = (request.config.getoption(f"--streaming-{name}") for name in ("kills", "seed"))
    return list(POINTS) if kills > len(POINTS) else random.Random(seed).sample(POINTS, few)


def test_each_number_is_written_once_if_a_worker_dies_at_a_point_of_a_commit(
    numbers: Numbers, request: pytest.FixtureRequest
) -> None:
    for point in points(request, 2):
        wait_for_exit([numbers.interrupted(f"SIGKILL {point}")])
        numbers.wait_until_all_are_written()
    assert copies(numbers.root) == list(range(numbers.written * LINES))


def test_each_number_is_written_once_if_a_stopped_job_goes_on_after_its_successor(
    numbers: Numbers, request: pytest.FixtureRequest
) -> None:
    for point in points(request, 1):
        numbers.interrupted(f"SIGSTOP {point}")
        zombie, below = numbers.run.client, numbers.run.processes()
        for pid in (zombie.pid, *below):
            os.kill(pid, signal.SIGSTOP)
        numbers.run.start()
        numbers.add(1)
        numbers.wait_until_all_are_written()
        for pid in (*below, zombie.pid):
            os.kill(pid, signal.SIGCONT)
        assert zombie.wait(TIMEOUT) != 0
        wait_for_exit(below)
        numbers.add(1)
        numbers.wait_until_all_are_written()
        assert copies(numbers.root) == list(range(numbers.written * LINES))


@pytest.mark.parametrize("source", SOURCES)
def test_each_number_is_written_once_under_kills(tmp_path: Path, source: str, request: pytest.FixtureRequest) -> None:
    kills: int = -(-request.config.getoption("--streaming-kills") // 3)
    chance = random.Random(f"{request.config.getoption('--streaming-seed')} delta {source}")
    put = SOURCES[source]
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    for number in range(5):
        put(tmp_path / "in", number)
    written = 5
    run = KilledScript(tmp_path, SCRIPT.replace("SOURCE", source))
    pause = threading.Event()
    deadline = time.monotonic() + (2 + kills / 5) * TIMEOUT
    try:
        for kill in range(kills):
            committed = len(copies(tmp_path))
            while len(copies(tmp_path)) == committed < written * LINES:
                assert time.monotonic() < deadline, run.printed()
                assert run.client.poll() is None, run.printed()
                pause.wait(0.02)
            for _ in range(chance.randrange(1, 4)):
                put(tmp_path / "in", written)
                written += 1
            pause.wait(chance.random() * 0.4)
            if kill % 2:
                run.kill_one(chance)
            else:
                run.kill_all()
                run.start()
        for _ in range(15):
            put(tmp_path / "in", written)
            written += 1
        while len(copies(tmp_path)) < written * LINES:
            assert time.monotonic() < deadline, run.printed()
            assert run.client.poll() is None, run.printed()
            pause.wait(0.05)
    finally:
        run.stop()
        run.kill_all()
    assert copies(tmp_path) == list(range(written * LINES))
    counts = sorted((row["window"], row["count"]) for row in written_rows(tmp_path, "counts"))
    assert counts == [(window, WINDOW) for window in range(len(counts))]
    assert len(counts) >= (written * LINES - 500) // WINDOW

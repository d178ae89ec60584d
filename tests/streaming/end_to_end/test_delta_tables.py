"""A followed folder, or a followed Delta table, into windows into Delta tables, exactly once: real SIGKILL at random
moments."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.delta_tables import rows_of
from tests.support.streaming.child_processes import TIMEOUT
from tests.support.streaming.killed_script import KilledScript

LINES, WINDOW = 20, 100

SCRIPT = f"""
import sys
import tidegate as tg

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
    _ = copies | "copies" >> tg.WriteToDelta(output + "/copies", {{"n": int, "half": int}}, partition_by="half")
    p.run().wait_until_finish()
"""


def put_file(folder: Path, number: int) -> None:
    """A file of numbers, which is whole when it appears."""
    (folder / f".{number}").write_text("".join(f"{n}\n" for n in numbers_of(number)))
    (folder / f".{number}").rename(folder / f"{number:04}.txt")


def put_version(folder: Path, number: int) -> None:
    """A version of a table."""
    write_deltalake(str(folder / "table"), pa.table({"n": list(numbers_of(number))}), mode="append")


def numbers_of(number: int) -> range:
    return range(number * LINES, (number + 1) * LINES)


SOURCES: dict[str, Callable[[Path, int], None]] = {"folder": put_file, "table": put_version}


def copies(root: Path) -> list[int]:
    table = root / "out" / "copies"
    return sorted(row["n"] for row in rows_of(table)) if DeltaTable.is_deltatable(str(table)) else []


@pytest.mark.parametrize("source", SOURCES)
def test_each_number_is_written_once_whatever_is_killed(
    tmp_path: Path, source: str, request: pytest.FixtureRequest
) -> None:
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
                assert time.monotonic() < deadline, run.said()
                assert run.client.poll() is None, run.said()
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
            assert time.monotonic() < deadline, run.said()
            assert run.client.poll() is None, run.said()
            pause.wait(0.05)
    finally:
        run.stop()
        run.kill_all()
    assert copies(tmp_path) == list(range(written * LINES))
    counts = sorted((row["window"], row["count"]) for row in rows_of(tmp_path / "out" / "counts"))
    assert counts == [(window, WINDOW) for window in range(len(counts))]
    assert len(counts) >= (written * LINES - 500) // WINDOW

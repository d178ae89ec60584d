"""A followed folder into windows into text files, exactly once: real processes and real SIGKILL at random moments."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from tests.support.streaming.child_processes import TIMEOUT
from tests.support.streaming.killed_script import KilledScript

FILES, LINES, WINDOW = 60, 20, 100
UNREAD = 10
"""Files that are added at once: their lines are less out of order than the watermark allows for."""

SCRIPT = f"""
import sys
import tidegate as tg

if __name__ == "__main__":
    folder, output, *flags = sys.argv[1:]
    p = tg.Pipeline(name="followed", options=flags)
    lines = p | "lines" >> tg.io.ReadFromText(
        folder + "/*.txt", follow=True, poll_interval=0.05, min_age=0, timestamp=int, out_of_orderness=400
    )
    counts = (
        lines
        | tg.Map(lambda line: (int(line) // {WINDOW}, 1))
        | tg.WindowInto(tg.FixedWindows({WINDOW}))
        | tg.CombinePerKey(sum)
    )
    _ = counts | tg.MapTuple("{{}} {{}}".format) | "counts" >> tg.io.WriteToText(output + "/count", ".txt")
    _ = lines | "copies" >> tg.io.WriteToText(output + "/line", ".txt")
    records = p | "records" >> tg.io.ReadFromCsv(folder + "/*.csv", follow=True, poll_interval=0.05, min_age=0)
    _ = records | tg.Map(lambda row: str(row.number)) | "rows" >> tg.io.WriteToText(output + "/row", ".txt")
    p.run().wait_until_finish()
"""


def put(folder: Path, number: int) -> None:
    """Add a text file and a CSV file atomically, with lines that are numbered across all files."""
    first = number * LINES
    lines = "".join(f"{n}\n" for n in range(first, first + LINES))
    for suffix, text in ((".txt", lines), (".csv", f"number\n{lines}")):
        (folder / f".{number}").write_text(text)
        (folder / f".{number}").rename(folder / f"{number:04}{suffix}")


def lines_of(folder: Path, kind: str) -> list[str]:
    return [line for path in folder.glob(f"{kind}*.txt") for line in path.read_text().splitlines()]


def test_each_line_of_a_followed_folder_is_counted_once_under_kills(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kills: int = request.config.getoption("--streaming-kills")
    seed: int = request.config.getoption("--streaming-seed")
    chance = random.Random(f"{seed} followed folder")
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    for number in range(5):
        put(tmp_path / "in", number)
    run = KilledScript(tmp_path, SCRIPT)
    pause = threading.Event()
    deadline = time.monotonic() + 2 * TIMEOUT
    added = 5

    def wait_until_read(*kinds: str) -> None:
        """Wait until the output has the lines of all files. Files are read at the same time in any order: if more of
        them were unread than the watermark allows for, lines would be late."""
        while min(len(lines_of(tmp_path / "out", kind)) for kind in kinds) < added * LINES:
            assert time.monotonic() < deadline, run.printed()
            if run.client.poll() is not None:
                run.start()
            pause.wait(0.05)

    try:
        for kill in range(kills):
            committed = len(lines_of(tmp_path / "out", "line"))
            while len(lines_of(tmp_path / "out", "line")) == committed < added * LINES:
                assert time.monotonic() < deadline, run.printed()
                pause.wait(0.02)
            for _ in range(chance.randrange(1, 4)):
                put(tmp_path / "in", added)
                added += 1
            pause.wait(chance.random() * 0.4)
            if kill % 2:
                run.kill_one(chance)
            else:
                run.kill_all()
                run.start()
        while added < FILES:
            wait_until_read("line")
            for _ in range(UNREAD):
                put(tmp_path / "in", added)
                added += 1
        wait_until_read("line", "row")
    finally:
        run.stop()
        run.kill_all()
    for kind in ("line", "row"):
        assert sorted(map(int, lines_of(tmp_path / "out", kind))) == list(range(added * LINES))
    counts = sorted(lines_of(tmp_path / "out", "count"), key=lambda line: int(line.split()[0]))
    assert counts == [f"{window} {WINDOW}" for window in range(len(counts))]
    assert counts

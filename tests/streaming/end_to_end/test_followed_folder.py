"""A followed folder into windows into text files, exactly once: real processes and real SIGKILL at random moments."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.streaming.child_processes import TIMEOUT, child_pids, wait_for_exit

FILES, LINES, WINDOW = 60, 20, 100
ROOT = Path(__file__).resolve().parents[3]

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


class Run:
    """A run of the script, whose processes can be killed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = (root / "log").open("ab")
        self.start()

    def start(self) -> None:
        flags = ["--runner", "streaming", "--checkpoint_dir", str(self.root / "chk"), "--checkpoint_interval", "0.1"]
        self.client = subprocess.Popen(
            [sys.executable, self.root / "followed.py", self.root / "in", self.root / "out", *flags],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=self.log,
            stderr=self.log,
        )

    def processes(self) -> list[int]:
        """All descendants of the client."""
        found, pending = [], [self.client.pid]
        while pending:
            children = child_pids(pending.pop())
            found += children
            pending += children
        return found

    def kill_all(self) -> None:
        descendants = self.processes()
        self.client.kill()
        self.client.wait()
        for pid in descendants:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wait_for_exit(descendants)

    def kill_one(self, chance: random.Random) -> None:
        if descendants := self.processes():
            try:
                os.kill(chance.choice(descendants), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def stop(self) -> None:
        self.client.send_signal(signal.SIGTERM)
        self.client.wait(TIMEOUT)
        self.log.close()


def test_each_line_of_a_followed_folder_is_counted_once_under_kills(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kills: int = request.config.getoption("--streaming-kills")
    seed: int = request.config.getoption("--streaming-seed")
    chance = random.Random(f"{seed} followed folder")
    (tmp_path / "followed.py").write_text(SCRIPT)
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    for number in range(5):
        put(tmp_path / "in", number)
    run = Run(tmp_path)
    pause = threading.Event()
    deadline = time.monotonic() + 2 * TIMEOUT
    added = 5
    try:
        for kill in range(kills):
            committed = len(lines_of(tmp_path / "out", "line"))
            while len(lines_of(tmp_path / "out", "line")) == committed < added * LINES:
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()[-3000:]
                pause.wait(0.02)
            for _ in range(chance.randrange(1, 4)):
                put(tmp_path / "in", added)
                added += 1
            pause.wait(chance.random() * 0.4)
            if kill % 2:
                run.kill_one(chance)
                if run.client.poll() is not None:
                    run.kill_all()
                    run.start()
            else:
                run.kill_all()
                run.start()
        while added < FILES:
            put(tmp_path / "in", added)
            added += 1
        while min(len(lines_of(tmp_path / "out", kind)) for kind in ("line", "row")) < added * LINES:
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()[-3000:]
            if run.client.poll() is not None:
                run.start()
            pause.wait(0.05)
    finally:
        run.stop()
        run.kill_all()
    for kind in ("line", "row"):
        assert sorted(map(int, lines_of(tmp_path / "out", kind))) == list(range(added * LINES))
    counts = sorted(lines_of(tmp_path / "out", "count"), key=lambda line: int(line.split()[0]))
    assert counts == [f"{window} {WINDOW}" for window in range(len(counts))]
    assert counts

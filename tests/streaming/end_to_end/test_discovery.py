"""A folder is followed while processes are killed and the number of workers changes: each line is written once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.growing_folder import END, WAIT, GrowingFolder, add_file
from tests.support.streaming.child_processes import TIMEOUT, child_pids, wait_for_exit

ROOT = Path(__file__).parents[3]
SCRIPT = """\
import tidegate as tg
from tests.support.growing_folder import GrowingFolder


class Options(tg.PipelineOptions):
    input: str
    output: str


def pipeline(options: Options) -> tg.Pipeline:
    p = tg.Pipeline(options=options, name="follow")
    lines = p | "follow" >> tg.Read(GrowingFolder(options.input, size=2))
    lines | "spread" >> tg.Reshuffle() | "write" >> tg.io.WriteToText(f"{options.output}/part")
    return p
"""


class Follower:
    """A job that follows a folder, and the lines that have been added to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.input = folder / "in"
        self.input.mkdir()
        (folder / "follow.py").write_text(SCRIPT)
        self.expected: list[str] = []
        self.command: subprocess.Popen[str] | None = None

    def start(self, *flags: str, output: str = "out", checkpoints: str = "checkpoints") -> None:
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        options = [
            *(
                "--runner",
                "streaming",
                "--checkpoint_interval",
                "0.1",
                "--checkpoint_dir",
                f"{self.folder}/{checkpoints}",
            ),
            *("--restart_strategy", "fixed", "--restart_delay", "0.02", "--restart_attempts", "1000"),
            *("--input", str(self.input), "--output", f"{self.folder}/{output}", *flags),
        ]
        call = "import sys; from tidegate.cli import main; sys.exit(main())"
        with open(self.folder / "stderr", "a") as stderr:
            self.command = subprocess.Popen(
                [sys.executable, "-c", call, "run", str(self.folder / "follow.py"), *options],
                stderr=stderr,
                text=True,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text()

    def add(self, name: str, count: int = 7, *, open_end: bool = False) -> None:
        lines = [f"{name}-{n}" for n in range(count)]
        self.expected += lines
        add_file(self.input, name, [*lines, WAIT] if open_end else lines)

    def output_lines(self) -> list[str]:
        """All lines of the files that are visible."""
        files = self.folder.glob("out*/part-*")
        return sorted(line for path in files for line in path.read_text().splitlines())

    def wait_for_line(self, line: str) -> None:
        deadline, pause = time.monotonic() + TIMEOUT, threading.Event()
        while line not in self.output_lines():
            assert self.command is not None
            assert self.command.poll() is None, self.stderr[-3000:]
            assert time.monotonic() < deadline, self.stderr[-3000:]
            pause.wait(0.05)

    def kill(self, chance: random.Random) -> None:
        """Send SIGKILL to a worker, to all of them, or to the job's process."""
        assert self.command is not None
        jobs = child_pids(self.command.pid)
        workers = [pid for job in jobs for pid in child_pids(job)]
        what = chance.choice(["worker", "worker", "workers", "job"])
        killed = {"worker": chance.sample(workers, min(1, len(workers))), "workers": workers, "job": jobs}[what]
        for pid in killed:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def interrupt(self) -> None:
        """Send Ctrl-C: the job stops with a checkpoint."""
        assert self.command is not None
        os.killpg(self.command.pid, signal.SIGINT)
        assert self.command.wait(TIMEOUT) == 0, self.stderr[-3000:]

    def finish(self) -> None:
        """Let the job finish, and check that each line was written once."""
        add_file(self.input, END, [])
        assert self.command is not None
        assert self.command.wait(TIMEOUT) == 0, self.stderr[-3000:]
        assert self.output_lines() == sorted(self.expected)

    def close(self) -> None:
        if self.command is not None and self.command.poll() is None:
            jobs = child_pids(self.command.pid)
            pids = [self.command.pid, *jobs, *(pid for job in jobs for pid in child_pids(job))]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            self.command.wait()
            wait_for_exit(pids[1:])


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Follower]:
    made = Follower(tmp_path)
    yield made
    made.close()


def test_each_line_of_a_followed_folder_is_written_once_under_kills(
    follower: Follower, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(f"{request.config.getoption('--streaming-seed')} discovery")
    follower.add("file-000")
    follower.start("--workers", "2")
    follower.wait_for_line("file-000-6")
    for n in range(request.config.getoption("--streaming-kills")):
        for part in range(3):
            follower.add(f"file-{n + 1:03}-{part}")
        if chance.random() < 0.5:
            follower.wait_for_line(f"file-{n + 1:03}-0-0")
        follower.kill(chance)
        if n % 3 == 2:
            follower.wait_for_line(f"file-{n + 1:03}-2-6")
    follower.finish()
    assert "state=restarting" in follower.stderr


def test_a_job_that_follows_a_folder_resumes_with_another_number_of_workers(follower: Follower) -> None:
    follower.add("file-0")
    follower.start("--workers", "1")
    follower.wait_for_line("file-0-6")
    follower.interrupt()
    follower.add("file-1")
    follower.start("--workers", "3")
    follower.wait_for_line("file-1-6")
    follower.interrupt()
    follower.add("file-2")
    follower.start("--workers", "2")
    follower.wait_for_line("file-2-6")
    follower.finish()


def test_a_lost_position_is_an_error_of_the_next_run(follower: Follower) -> None:
    follower.add("file-0", open_end=True)
    follower.start("--workers", "1", "--restart_strategy", "none")
    follower.wait_for_line("file-0-6")
    follower.interrupt()
    add_file(follower.input, ".gone-file-0", [])
    follower.start("--workers", "1", "--restart_strategy", "none")
    assert follower.command is not None
    assert follower.command.wait(TIMEOUT) != 0
    assert "file-0: line 7 is not there any more" in follower.stderr
    assert "in step 'follow'" in follower.stderr


def test_a_savepoint_contains_the_state_of_the_enumerator(follower: Follower) -> None:
    """The job that starts from the savepoint writes to another folder, and reads only new lines."""
    pipeline = tg.Pipeline(
        options=["--runner", "streaming", "--workers", "1", "--checkpoint_interval", "0.1"], name="follow"
    )
    lines = pipeline | "follow" >> tg.Read(GrowingFolder(str(follower.input), size=2))
    _ = lines | "spread" >> tg.Reshuffle() | "write" >> tg.io.WriteToText(f"{follower.folder}/out-1/part")
    follower.add("file-0")
    savepoint = f"{follower.folder}/savepoint"
    result: Any = pipeline.run()
    deadline, pause = time.monotonic() + TIMEOUT, threading.Event()
    while "file-0-6" not in follower.output_lines():
        assert time.monotonic() < deadline
        pause.wait(0.05)
    result.stop(drain=False, savepoint=savepoint)
    assert result.wait_until_finish() is tg.PipelineState.DONE
    follower.add("file-1")
    follower.start("--workers", "2", "--from_savepoint", savepoint, output="out-2")
    follower.finish()

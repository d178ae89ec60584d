"""`tidegate run` of an unbounded pipeline: Ctrl-C is a clean stop, and the next run resumes there and says so."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LONG = 60.0

SCRIPT = '''\
"""Counts the ticks of a clock."""
import tidegate as tg

COUNT = tg.ValueStateSpec("count")


class Counting(tg.DoFn):
    def process(self, element, count=tg.DoFn.StateParam(COUNT)):
        n = (count.read() or 0) + 1
        count.write(n)
        yield f"{n:06}"


class Options(tg.PipelineOptions):
    output: str


def pipeline(options: Options) -> tg.Pipeline:
    p = tg.Pipeline(options=options, name="ticks")
    (
        p
        | "ticks" >> tg.PeriodicImpulse(0.002)
        | "key" >> tg.Map(lambda tick: ("ticks", tick.micros))
        | "count" >> tg.ParDo(Counting())
        | "write" >> tg.io.WriteToText(options.output)
    )
    return p
'''


class Terminal:
    """Runs the script as in a terminal, and reads its metrics as they arrive."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = folder / "ticks.py"
        self.script.write_text(SCRIPT)
        os.mkfifo(folder / "metrics")
        self._metrics = os.open(folder / "metrics", os.O_RDWR | os.O_NONBLOCK)
        self._left = ""
        self.command: subprocess.Popen[str] | None = None

    def run(self, *flags: str) -> None:
        """`tidegate run` as the leader of its own process group, all of which receives Ctrl-C, as in a shell."""
        call = "import sys; from tidegate.cli import main; sys.exit(main())"
        output = ["--output", f"{self.folder}/out/part", "--metrics_file", f"{self.folder}/metrics"]
        options = ["--runner", "streaming", "--workers", "2", "--checkpoint_interval", "0.1", *output, *flags]
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        self.command = subprocess.Popen(
            [sys.executable, "-c", call, "run", str(self.script), *options],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )

    def wait_for_checkpoints(self, count: int) -> None:
        """Wait until `count` further checkpoints have completed."""
        assert self.command is not None
        deadline = time.monotonic() + LONG
        while count > 0:
            assert time.monotonic() < deadline
            assert self.command.poll() is None, self.command.communicate()[1]
            if select.select([self._metrics], [], [], 0.5)[0]:
                lines = (self._left + os.read(self._metrics, 1 << 16).decode()).split("\n")
                self._left = lines.pop()
                reports = [json.loads(line) for line in lines]
                count -= sum(line["kind"] == "checkpoint" and line["error"] is None for line in reports)

    def interrupt(self) -> tuple[int, str]:
        """Send Ctrl-C, and return the exit code and stderr."""
        assert self.command is not None
        os.killpg(self.command.pid, signal.SIGINT)
        _, stderr = self.command.communicate(timeout=LONG)
        return self.command.returncode, stderr

    def output_lines(self) -> list[str]:
        """All lines, in the order of their files."""
        files = sorted((self.folder / "out").glob("part-*"), key=lambda path: int(path.name.split("-")[2]))
        return [line for path in files for line in path.read_text().splitlines()]

    def close(self) -> None:
        """Kill the processes that still run."""
        if self.command is not None and self.command.poll() is None:
            os.killpg(self.command.pid, signal.SIGKILL)
            self.command.communicate()
        os.close(self._metrics)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    started = Terminal(tmp_path)
    yield started
    started.close()


def test_the_run_after_ctrl_c_resumes_from_the_last_checkpoint(terminal: Terminal) -> None:
    flags = ["--checkpoint_dir", f"{terminal.folder}/checkpoints"]
    terminal.run(*flags)
    terminal.wait_for_checkpoints(3)
    code, stderr = terminal.interrupt()
    assert code == 0, stderr
    assert "Traceback" not in stderr
    first = terminal.output_lines()
    terminal.run(*flags)
    terminal.wait_for_checkpoints(3)
    code, stderr = terminal.interrupt()
    assert code == 0, stderr
    assert "resuming from checkpoint" in stderr
    assert f"{terminal.folder}/checkpoints" in stderr
    both = terminal.output_lines()
    assert len(first) < len(both)
    assert both == [f"{n:06}" for n in range(1, len(both) + 1)]


def test_ctrl_c_drains_the_job_without_a_checkpoint_directory(terminal: Terminal) -> None:
    terminal.run()
    terminal.wait_for_checkpoints(2)
    code, stderr = terminal.interrupt()
    assert code == 0, stderr
    written = terminal.output_lines()
    assert written == [f"{n:06}" for n in range(1, len(written) + 1)]
    terminal.run()
    terminal.wait_for_checkpoints(2)
    assert "resuming" not in terminal.interrupt()[1]


def test_a_run_with_a_duration_is_resumed_by_the_next_one(terminal: Terminal) -> None:
    flags = ["--checkpoint_dir", f"{terminal.folder}/checkpoints", "--run_for", "0.5"]
    for _ in range(2):
        terminal.run(*flags)
        assert terminal.command is not None
        _, stderr = terminal.command.communicate(timeout=LONG)
        assert terminal.command.returncode == 0, stderr
    assert "resuming from checkpoint" in stderr
    both = terminal.output_lines()
    assert both == [f"{n:06}" for n in range(1, len(both) + 1)]


def test_another_pipeline_is_refused_the_checkpoints(terminal: Terminal) -> None:
    flags = ["--checkpoint_dir", f"{terminal.folder}/checkpoints", "--run_for", "0.2"]
    terminal.run(*flags)
    assert terminal.command is not None
    terminal.command.communicate(timeout=LONG)
    other = SCRIPT
    for name in ("ticks", "key", "count", "write"):
        other = other.replace(f'"{name}" >>', f'"other {name}" >>')
    terminal.script.write_text(other)
    terminal.run(*flags)
    _, stderr = terminal.command.communicate(timeout=LONG)
    assert terminal.command.returncode != 0
    assert "another pipeline" in stderr

"""`tidegate run` of what has no end: Ctrl-C is a clean stop, and the next run goes on there and says so."""

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
PATIENCE = 60.0

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
    """Someone who runs the script in a terminal, and looks at its metrics as they come."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = folder / "ticks.py"
        self.script.write_text(SCRIPT)
        os.mkfifo(folder / "metrics")
        self._metrics = os.open(folder / "metrics", os.O_RDWR | os.O_NONBLOCK)
        self._left = ""
        self.command: subprocess.Popen[str] | None = None

    def run(self, *flags: str) -> None:
        """`tidegate run`, as the leader of its own group: Ctrl-C reaches all of that, as in a shell."""
        call = "import sys; from tidegate.cli import main; sys.exit(main())"
        own = ["--output", f"{self.folder}/out/part", "--metrics_file", f"{self.folder}/metrics"]
        options = ["--runner", "streaming", "--workers", "2", "--checkpoint_interval", "0.1", *own, *flags]
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        self.command = subprocess.Popen(
            [sys.executable, "-c", call, "run", str(self.script), *options],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )

    def wait_for_checkpoints(self, count: int) -> None:
        """Until so many checkpoints have been completed from now on."""
        assert self.command is not None
        deadline = time.monotonic() + PATIENCE
        while count > 0:
            assert time.monotonic() < deadline
            assert self.command.poll() is None, self.command.communicate()[1]
            if select.select([self._metrics], [], [], 0.5)[0]:
                lines = (self._left + os.read(self._metrics, 1 << 16).decode()).split("\n")
                self._left = lines.pop()
                told = [json.loads(line) for line in lines]
                count -= sum(line["kind"] == "checkpoint" and line["error"] is None for line in told)

    def interrupt(self) -> tuple[int, str]:
        """Ctrl-C; the exit code, and what was said on stderr."""
        assert self.command is not None
        os.killpg(self.command.pid, signal.SIGINT)
        _, said = self.command.communicate(timeout=PATIENCE)
        return self.command.returncode, said

    def written(self) -> list[str]:
        """All lines, in the order of their files."""
        files = sorted((self.folder / "out").glob("part-*"), key=lambda path: int(path.name.split("-")[2]))
        return [line for path in files for line in path.read_text().splitlines()]

    def close(self) -> None:
        """Nothing stays behind."""
        if self.command is not None and self.command.poll() is None:
            os.killpg(self.command.pid, signal.SIGKILL)
            self.command.communicate()
        os.close(self._metrics)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    at_work = Terminal(tmp_path)
    yield at_work
    at_work.close()


def test_after_ctrl_c_the_next_run_goes_on_where_the_last_one_was(terminal: Terminal) -> None:
    kept = ["--checkpoint_dir", f"{terminal.folder}/checkpoints"]
    terminal.run(*kept)
    terminal.wait_for_checkpoints(3)
    code, said = terminal.interrupt()
    assert code == 0, said
    assert "Traceback" not in said
    first = terminal.written()
    terminal.run(*kept)
    terminal.wait_for_checkpoints(3)
    code, said = terminal.interrupt()
    assert code == 0, said
    assert "resuming from checkpoint" in said
    assert f"{terminal.folder}/checkpoints" in said
    both = terminal.written()
    assert len(first) < len(both)
    assert both == [f"{n:06}" for n in range(1, len(both) + 1)]


def test_without_a_directory_ctrl_c_works_off_what_was_read(terminal: Terminal) -> None:
    terminal.run()
    terminal.wait_for_checkpoints(2)
    code, said = terminal.interrupt()
    assert code == 0, said
    written = terminal.written()
    assert written == [f"{n:06}" for n in range(1, len(written) + 1)]
    terminal.run()
    terminal.wait_for_checkpoints(2)
    assert "resuming" not in terminal.interrupt()[1]


def test_a_run_that_is_limited_is_gone_on_with_too(terminal: Terminal) -> None:
    kept = ["--checkpoint_dir", f"{terminal.folder}/checkpoints", "--run_for", "0.5"]
    for _ in range(2):
        terminal.run(*kept)
        assert terminal.command is not None
        _, said = terminal.command.communicate(timeout=PATIENCE)
        assert terminal.command.returncode == 0, said
    assert "resuming from checkpoint" in said
    both = terminal.written()
    assert both == [f"{n:06}" for n in range(1, len(both) + 1)]


def test_another_pipeline_may_not_have_the_checkpoints(terminal: Terminal) -> None:
    kept = ["--checkpoint_dir", f"{terminal.folder}/checkpoints", "--run_for", "0.2"]
    terminal.run(*kept)
    assert terminal.command is not None
    terminal.command.communicate(timeout=PATIENCE)
    other = SCRIPT
    for name in ("ticks", "key", "count", "write"):
        other = other.replace(f'"{name}" >>', f'"other {name}" >>')
    terminal.script.write_text(other)
    terminal.run(*kept)
    _, said = terminal.command.communicate(timeout=PATIENCE)
    assert terminal.command.returncode != 0
    assert "another pipeline" in said

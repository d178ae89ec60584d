"""Ctrl-C and SIGTERM to `tidegate run`: both end it in the same way, each with its own exit code."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.streaming.child_processes import TIMEOUT, EventPipe
from tidegate.cli.ending import TERMINATED, ending_at_sigterm

ROOT = Path(__file__).parents[2]
ENOUGH = 100
"""The number of elements, five milliseconds apart, after which the command is waiting for the end of the stream."""
RUNNING = "tidegate: the pipeline 'pipeline' is running until it is stopped (Ctrl-C or SIGTERM); no --run_for\n"
"""The message of a stream without a terminal for its progress."""
SLOW = """
import os, select
import tidegate as tg

class Options(tg.PipelineOptions):
    output: str
    fifo: str

def slow(x, fifo):
    if x == 99:
        os.write(os.open(fifo, os.O_WRONLY), b"h")
    select.select([], [], [], 0.001)
    return str(x)

def pipeline(options: Options) -> tg.Pipeline:
    p = tg.Pipeline(options=options)
    p | tg.Create(range(300_000)) | tg.Map(slow, options.fifo) | tg.io.WriteToText(options.output)
    return p
"""
FAILING = (
    SLOW.replace("def slow(", "def quick(")
    + """
def slow(x, fifo):
    try:
        quick(x, fifo)
        select.select([], [], [], 60 if x == 99 else 0)
        return str(x)
    except KeyboardInterrupt:
        raise ValueError("lost") from None
"""
)
LIVE = """
import os
import tidegate as tg

COUNT = tg.ValueStateSpec("count")

class Options(tg.PipelineOptions):
    output: str
    fifo: str

class Count(tg.DoFn):
    def __init__(self, fifo):
        self.fifo = fifo

    def setup(self):
        self.events = os.open(self.fifo, os.O_WRONLY)

    def process(self, element, count=tg.DoFn.StateParam(COUNT)):
        n = (count.read() or 0) + 1
        count.write(n)
        os.write(self.events, b"n")
        yield f"{n:06}"

def pipeline(options: Options) -> tg.Pipeline:
    p = tg.Pipeline(options=options)
    ticks = p | "tick" >> tg.PeriodicImpulse(0.005) | "key" >> tg.Map(lambda tick: ("ticks", tick.micros))
    ticks | "count" >> tg.ParDo(Count(options.fifo)) | "write" >> tg.io.WriteToText(options.output)
    return p
"""


class Service:
    """A script that runs under a supervisor, which knows only its process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.events = EventPipe(str(folder / "fifo"))

    def start(self, script: str, *flags: str) -> None:
        (self._folder / "script.py").write_text(script)
        call = "import sys; from tidegate.cli import main; sys.exit(main())"
        options = ["--output", f"{self._folder}/out/part", "--fifo", f"{self._folder}/fifo"]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            [sys.executable, "-c", call, "run", str(self._folder / "script.py"), *options, *flags],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )

    def wait_for(self, what: str, times: int = 1) -> None:
        """Wait for `times` further events of a kind."""
        self.events.watch(what, times, fault=self._fault)

    def terminate(self) -> None:
        assert self._process is not None
        self._process.terminate()

    def interrupt(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)

    def suspend(self) -> None:
        """Suspend the process with all its threads."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        stopped = os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)
        assert stopped is not None
        assert stopped.si_code == os.CLD_STOPPED

    def resume(self) -> None:
        """Resume the process after it was suspended."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def ended(self) -> tuple[int, str]:
        """The exit code and stderr."""
        assert self._process is not None
        _, stderr = self._process.communicate(timeout=TIMEOUT)
        return self._process.returncode, stderr

    def output_lines(self) -> list[str]:
        """All lines of the output, including hidden files, in the order of the files."""
        files = sorted(path for path in (self._folder / "out").rglob("*") if path.is_file())
        return [line for path in files for line in path.read_text().splitlines()]

    def close(self) -> None:
        """Kill the process if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
        self.events.close()

    def _fault(self) -> str:
        assert self._process is not None
        code = self._process.poll()
        return "" if code is None else f"the process has ended with code {code}"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    started = Service(tmp_path)
    yield started
    started.close()


def numbered(lines: list[str]) -> bool:
    return bool(lines) and sorted(lines) == [f"{n:06}" for n in range(1, len(lines) + 1)]


@pytest.mark.parametrize("flags", [["--runner", "direct"], ["--runner", "streaming", "--block_size", "16"]])
def test_a_bounded_run_ends_and_leaves_no_output(service: Service, flags: list[str]) -> None:
    service.start(SLOW, *flags)
    service.wait_for("h")
    service.terminate()
    code, stderr = service.ended()
    assert (code, stderr) == (143, "Terminated!\n")
    assert service.output_lines() == []


@pytest.mark.parametrize("flags", [["--runner", "direct"], ["--runner", "streaming", "--block_size", "16"]])
def test_ctrl_c_ends_a_bounded_run_with_the_same_message_as_in_a_script(service: Service, flags: list[str]) -> None:
    service.start(SLOW, *flags)
    service.wait_for("h")
    service.interrupt()
    code, stderr = service.ended()
    assert stderr.splitlines() == [
        "Interrupted: the run of the pipeline 'pipeline' was stopped.",
        "Its output is as it was before: it appears when a run succeeds.",
    ]
    assert code == 130
    assert service.output_lines() == []


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_ctrl_c_ends_a_stream_successfully(service: Service, runner: str) -> None:
    service.start(LIVE, "--runner", runner)
    service.wait_for("n", ENOUGH)
    service.interrupt()
    assert service.ended() == (0, RUNNING)
    assert numbered(service.output_lines())


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_sigterm_drains_a_stream(service: Service, runner: str) -> None:
    service.start(LIVE, "--runner", runner)
    service.wait_for("n", ENOUGH)
    service.terminate()
    code, stderr = service.ended()
    assert (code, stderr) == (143, RUNNING)
    lines = service.output_lines()
    assert len(lines) >= ENOUGH
    assert numbered(lines)


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_a_stream_that_is_terminated_while_suspended_ends_when_it_is_resumed(service: Service, runner: str) -> None:
    service.start(LIVE, "--runner", runner)
    service.wait_for("n", ENOUGH)
    service.suspend()
    service.terminate()  # when it resumes, any of its threads may receive the signal
    service.resume()
    assert service.ended() == (143, RUNNING)
    assert numbered(service.output_lines())


def test_a_terminated_stream_with_checkpoints_is_resumed_by_the_next_run(service: Service, tmp_path: Path) -> None:
    flags = ["--runner", "streaming", "--workers", "2", "--checkpoint_dir", f"{tmp_path}/checkpoints"]
    service.start(LIVE, *flags)
    service.wait_for("n", ENOUGH)
    service.terminate()
    assert service.ended() == (143, RUNNING)
    first = service.output_lines()
    assert not list(tmp_path.rglob(".tidegate-*"))  # no work folder, not even an empty one
    service.start(LIVE, *flags)
    service.wait_for("n", ENOUGH)
    service.terminate()
    code, stderr = service.ended()
    assert code == 143, stderr
    assert "resuming from checkpoint" in stderr
    assert len(service.output_lines()) > len(first)
    assert numbered(service.output_lines())
    assert not list((tmp_path / "out").rglob(".tidegate-*"))


def test_a_signal_handler_of_the_script_is_not_replaced(service: Service) -> None:
    handler = "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(7))\n"
    service.start(handler + SLOW, "--runner", "direct")
    service.wait_for("h")
    service.terminate()
    assert service.ended() == (7, "")


def test_a_failure_during_termination_has_its_own_exit_code(service: Service) -> None:
    service.start(FAILING, "--runner", "direct")
    service.wait_for("h")
    service.terminate()
    code, stderr = service.ended()
    assert code == 1
    assert "ValueError: lost" in stderr


@pytest.mark.xdist_group("spark")
def test_a_terminated_run_on_spark_leaves_no_files(spark_session: Any, tmp_path: Path) -> None:
    def terminate(x: int, driver: int) -> str:
        if x == 99:
            os.kill(driver, signal.SIGTERM)
        select.select([], [], [], 0.01 if x >= 99 else 0)
        return str(x)

    p = tg.Pipeline(options=["--runner", "spark", "--spark_master", "local[2]"])
    made = p | tg.Create(range(10_000)) | tg.Map(terminate, os.getpid())
    _ = made | tg.io.WriteToText(str(tmp_path / "written" / "out"))
    with pytest.raises(SystemExit) as ended, ending_at_sigterm():
        p.run()
    assert ended.value.code == TERMINATED
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert not list(tmp_path.glob("written/**/*"))

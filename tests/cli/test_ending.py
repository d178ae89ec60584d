"""Ctrl-C and SIGTERM to `tidegate run`: both end it in the same way, each with the exit code that tells so."""

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
"""Elements, five milliseconds apart, after which whoever has started a stream is waiting for its end."""
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
        self.told = os.open(self.fifo, os.O_WRONLY)

    def process(self, element, count=tg.DoFn.StateParam(COUNT)):
        n = (count.read() or 0) + 1
        count.write(n)
        os.write(self.told, b"n")
        yield f"{n:06}"

def pipeline(options: Options) -> tg.Pipeline:
    p = tg.Pipeline(options=options)
    ticks = p | "tick" >> tg.PeriodicImpulse(0.005) | "key" >> tg.Map(lambda tick: ("ticks", tick.micros))
    ticks | "count" >> tg.ParDo(Count(options.fifo)) | "write" >> tg.io.WriteToText(options.output)
    return p
"""


class Service:
    """A script under a supervisor, which knows its process alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.told = EventPipe(str(folder / "fifo"))

    def start(self, script: str, *flags: str) -> None:
        (self._folder / "script.py").write_text(script)
        call = "import sys; from tidegate.cli import main; sys.exit(main())"
        own = ["--output", f"{self._folder}/out/part", "--fifo", f"{self._folder}/fifo"]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            [sys.executable, "-c", call, "run", str(self._folder / "script.py"), *own, *flags],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )

    def wait_for(self, what: str, times: int = 1) -> None:
        """Until so many things of a kind have happened."""
        self.told.watch(what, times, fault=self._fault)

    def terminate(self) -> None:
        assert self._process is not None
        self._process.terminate()

    def interrupt(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)

    def suspend(self) -> None:
        """It stands still, all of its threads."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        stopped = os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)
        assert stopped is not None
        assert stopped.si_code == os.CLD_STOPPED

    def go_on(self) -> None:
        """After it was suspended."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def ended(self) -> tuple[int, str]:
        """Its exit code, and what it has said."""
        assert self._process is not None
        _, said = self._process.communicate(timeout=TIMEOUT)
        return self._process.returncode, said

    def written(self) -> list[str]:
        """All lines, in the order of their files; hidden ones too."""
        files = sorted(path for path in (self._folder / "out").rglob("*") if path.is_file())
        return [line for path in files for line in path.read_text().splitlines()]

    def close(self) -> None:
        """Nothing stays behind."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
        self.told.close()

    def _fault(self) -> str:
        assert self._process is not None
        code = self._process.poll()
        return "" if code is None else f"it has ended with {code}"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    at_work = Service(tmp_path)
    yield at_work
    at_work.close()


def numbered(lines: list[str]) -> bool:
    return bool(lines) and sorted(lines) == [f"{n:06}" for n in range(1, len(lines) + 1)]


@pytest.mark.parametrize("flags", [["--runner", "direct"], ["--runner", "streaming", "--block_size", "16"]])
def test_a_bounded_run_ends_and_leaves_no_output(service: Service, flags: list[str]) -> None:
    service.start(SLOW, *flags)
    service.wait_for("h")
    service.terminate()
    code, said = service.ended()
    assert (code, said) == (143, "Terminated!\n")
    assert service.written() == []


@pytest.mark.parametrize("flags", [["--runner", "direct"], ["--runner", "streaming", "--block_size", "16"]])
def test_ctrl_c_ends_a_bounded_run_with_the_words_that_a_script_says(service: Service, flags: list[str]) -> None:
    service.start(SLOW, *flags)
    service.wait_for("h")
    service.interrupt()
    code, said = service.ended()
    assert said.splitlines() == [
        "Interrupted: the run of the pipeline 'pipeline' was stopped.",
        "Its output is as it was before: it appears when a run succeeds.",
    ]
    assert code == 130
    assert service.written() == []


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_a_stream_that_is_interrupted_has_done_as_asked(service: Service, runner: str) -> None:
    service.start(LIVE, "--runner", runner)
    service.wait_for("n", ENOUGH)
    service.interrupt()
    assert service.ended() == (0, RUNNING)
    assert numbered(service.written())


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_a_stream_is_stopped_and_what_it_has_read_is_written(service: Service, runner: str) -> None:
    service.start(LIVE, "--runner", runner)
    service.wait_for("n", ENOUGH)
    service.terminate()
    code, said = service.ended()
    assert (code, said) == (143, RUNNING)
    lines = service.written()
    assert len(lines) >= ENOUGH
    assert numbered(lines)


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_a_stream_that_is_suspended_as_it_is_told_to_end_does_so_when_it_goes_on(service: Service, runner: str) -> None:
    service.start(LIVE, "--runner", runner)
    service.wait_for("n", ENOUGH)
    service.suspend()
    service.terminate()  # as it goes on, any of its threads may be the one that the signal wakes
    service.go_on()
    assert service.ended() == (143, RUNNING)
    assert numbered(service.written())


def test_a_stream_with_checkpoints_goes_on_where_it_was_told_to_end(service: Service, tmp_path: Path) -> None:
    flags = ["--runner", "streaming", "--workers", "2", "--checkpoint_dir", f"{tmp_path}/kept"]
    service.start(LIVE, *flags)
    service.wait_for("n", ENOUGH)
    service.terminate()
    assert service.ended() == (143, RUNNING)
    first = service.written()
    assert not list(tmp_path.rglob(".tidegate-*"))  # no work folder, not even an empty one
    service.start(LIVE, *flags)
    service.wait_for("n", ENOUGH)
    service.terminate()
    code, said = service.ended()
    assert code == 143, said
    assert "resuming from checkpoint" in said
    assert len(service.written()) > len(first)
    assert numbered(service.written())
    assert not list((tmp_path / "out").rglob(".tidegate-*"))


def test_what_a_script_has_arranged_for_itself_stays(service: Service) -> None:
    arranged = "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(7))\n"
    service.start(arranged + SLOW, "--runner", "direct")
    service.wait_for("h")
    service.terminate()
    assert service.ended() == (7, "")


def test_a_failure_on_the_way_out_keeps_its_exit_code(service: Service) -> None:
    service.start(FAILING, "--runner", "direct")
    service.wait_for("h")
    service.terminate()
    code, said = service.ended()
    assert code == 1
    assert "ValueError: lost" in said


@pytest.mark.xdist_group("spark")
def test_on_spark_it_leaves_no_file(spark_session: Any, tmp_path: Path) -> None:
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

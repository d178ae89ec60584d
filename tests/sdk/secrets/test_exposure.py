"""Where secrets must not be seen: command lines, environments, files, logs, graphs, metrics and errors of real runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.streaming.child_processes import TIMEOUT, child_pids, lines_until

ROOT = Path(__file__).resolve().parents[3]
VALUE = "ebb-tide-at-dawn-4711"

SCRIPT = """
import os
import pathlib
from dataclasses import dataclass
import pydantic
import tidegate as tg

COUNT = tg.ValueStateSpec("count")


class Options(tg.PipelineOptions):
    key_file: str
    output: str
    fails: bool = False


@dataclass(frozen=True)
class LogIn(tg.DoFn):
    key: pydantic.SecretStr
    fails: bool

    def setup(self):
        self.__dict__["url"] = f"ftp://moon:{self.key.get_secret_value()}@host"

    def process(self, element, count=tg.DoFn.StateParam(COUNT)):
        count.write(count.read(0) + 1)
        tg.Metrics.counter("door", "opened").inc()
        if self.fails:
            raise ValueError(f"{self.url} refuses {self.key.get_secret_value()}")
        print("logged in with", self.key, flush=True)
        yield f"{element[1]} {len(self.key.get_secret_value())}"


def pipeline(options: Options) -> tg.Pipeline:
    key = pydantic.SecretStr(pathlib.Path(options.key_file).read_text())
    p = tg.Pipeline(options=options, name="door")
    ticks = p | "ticks" >> tg.PeriodicImpulse(0.02) | "by key" >> tg.Map(lambda tick: (0, tick.micros))
    ticks | "log in" >> tg.ParDo(LogIn(key, options.fails)) | "write" >> tg.io.WriteToText(options.output)
    return p
"""


def tidegate(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A command of `tidegate` in the folder, in an environment without the secret."""
    return subprocess.Popen(
        [sys.executable, "-m", "tidegate", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def arguments(folder: Path) -> list[str]:
    return ["doors.py", "--key_file", str(folder / "key"), "--output", str(folder / "out" / "part")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "doors.py").write_text(SCRIPT)
    (tmp_path / "key").write_text(VALUE)
    (tmp_path / "tmp").mkdir()
    return tmp_path


def processes_below(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for each in found:
        found += child_pids(each)
    return found


def files_with_the_secret(folder: Path) -> list[str]:
    """The files below the folder that contain the value, except the one that the script reads it from."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path != folder / "key"]
    assert paths
    return [str(path) for path in paths if VALUE.encode() in content(path)]


def content(path: Path) -> bytes:
    """The bytes of a file; none if the run has moved or removed it since it was listed."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def test_a_running_stream_shows_the_secret_nowhere(folder: Path) -> None:
    flags = ["--runner", "streaming", "--workers", "2", "--checkpoint_dir", str(folder / "chk"), "--temp_dir"]
    flags += [str(folder / "tmp"), "--checkpoint_interval", "0.1", "--metrics_file", str(folder / "metrics.jsonl")]
    with tidegate(folder, "run", *arguments(folder), *flags, "--metrics_interval", "0.1") as run:
        assert run.stderr is not None
        awaited = (folder / "out", "part*"), (folder, "metrics.jsonl")
        printed = lines_until(run, lambda: all(any(where.glob(name)) for where, name in awaited))
        seen = processes_below(run.pid)
        for pid in seen:
            for name in ("cmdline", "environ"):
                assert VALUE.encode() not in Path(f"/proc/{pid}/{name}").read_bytes(), f"{name} of process {pid}"
        held = files_with_the_secret(folder)
        run.send_signal(signal.SIGTERM)
        output, errors = "".join([*printed, *lines_until(run)]), run.stderr.read()
    assert run.returncode == 128 + signal.SIGTERM, errors
    assert len(seen) >= 4, "the command, the job's process, and two workers"
    assert held == [], "during the run"
    assert files_with_the_secret(folder) == [], "after it"
    assert list((folder / "chk").rglob("manifest.json"))
    assert "logged in with **********" in output
    assert VALUE not in output + errors
    written = next((folder / "out").glob("part*")).read_text()
    assert written.endswith(f" {len(VALUE)}\n"), "the step has its value all the same"


@pytest.mark.parametrize(
    "runner", [["direct"], ["streaming", "--restart_strategy", "none"]], ids=lambda flags: flags[0]
)
def test_an_error_and_its_traceback_do_not_show_the_secret(folder: Path, runner: list[str]) -> None:
    flags = ["--fails", "--runner", *runner]
    output, errors = tidegate(folder, "run", *arguments(folder), *flags).communicate(timeout=TIMEOUT)
    assert "ftp://***@host refuses ***" in errors
    assert VALUE not in output + errors


@pytest.mark.parametrize("command", ["graph", "explain", "check"])
def test_looking_at_a_pipeline_does_not_show_the_secret(folder: Path, command: str) -> None:
    output, errors = tidegate(folder, command, *arguments(folder)).communicate(timeout=TIMEOUT)
    assert "log in" in output or command == "check", errors
    assert VALUE not in output + errors


def test_a_compiled_pipeline_has_a_name_for_the_secret(folder: Path) -> None:
    run = tidegate(folder, "compile", *arguments(folder), "-o", "doors.json")
    output, errors = run.communicate(timeout=TIMEOUT)
    assert run.returncode == 0, errors
    assert json.loads((folder / "doors.json").read_text())["nodes"]
    assert files_with_the_secret(folder) == []
    assert VALUE not in output + errors

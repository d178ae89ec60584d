"""`doctor` and `runners`: the report about this machine; errors and progress of a run."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tidegate.cli import app, progress
from tidegate.cli.blame import MOST_FRAMES, report
from tidegate.cli.doctor import CORE, EXTRAS, examine, runner_lines
from tidegate.cli.progress import Display, Rates, run_with_progress
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey, MetricResults
from tidegate.sdk.options.model import PipelineOptions
from tidegate.sdk.options.registry import runner_names
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.seal import this_environment
from tidegate.sdk.runner import PipelineResult, PipelineState, Runner

ROOT = Path(__file__).parents[2]
EMPTY = portable.Pipeline((), (), this_environment(), name="job")


def test_doctor_reports_versions_java_memory_and_what_to_install() -> None:
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 0, done.output
    for word in ("Tidegate", "Python", "Java", "Memory", "Temporary", "Runners", "direct", *CORE):
        assert word in done.stdout
    for extra, (packages, _) in EXTRAS.items():
        missing = any(re.search(rf"{package} +not installed", done.stdout) for package in packages)
        assert (f"pip install 'tidegate[{extra}]'" in done.stdout) == missing


def test_doctor_knows_the_packages_that_the_project_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[<>=\[]", requirement)[0] for requirement in requirements}

    assert names(project["dependencies"]) == set(CORE)
    declared = project["optional-dependencies"]
    assert {extra: names(declared[extra]) for extra in EXTRAS} == {
        extra: set(packages) for extra, (packages, _) in EXTRAS.items()
    }


def test_doctor_survives_a_machine_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"not found in JAVA_HOME ({tmp_path})" in "\n".join(examine())


def test_runners_are_listed_with_descriptions() -> None:
    done = CliRunner().invoke(app, ["runners"])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == runner_names()
    assert lines[0].startswith("direct")
    assert "  ready  (in this process" in lines[0]


def test_a_runner_with_missing_requirements_is_listed_as_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate.runners.direct import DirectRunner

    monkeypatch.setattr(DirectRunner, "missing", classmethod(lambda cls: ["pyspark: pip install 'tidegate[spark]'"]))
    assert "not ready: pyspark: pip install 'tidegate[spark]'" in next(iter(runner_lines()))


# --- errors --------------------------------------------------------------------------------------------------------


def completions(words: str) -> list[str]:
    """The completions that Bash would be offered for the last of these words."""
    environment = {"_TIDEGATE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    return CliRunner().invoke(app, [], env=environment, prog_name="tidegate").stdout.splitlines()


def test_commands_options_and_files_are_completed() -> None:
    assert completions("tidegate jobs l") == ["plain,list", "plain,logs"]
    assert completions("tidegate graph script.py --form") == ["plain,--format"]
    for words in ("tidegate run ", "tidegate run script.p", "tidegate explain script.py --input da"):
        assert [line.partition(",")[0] for line in completions(words)] == ["file"], words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_variable_prints_what_each_shell_evaluates(shell: str) -> None:
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("click asks bash for its version")
    done = CliRunner().invoke(app, [], env={"_TIDEGATE_COMPLETE": f"{shell}_source"}, prog_name="tidegate")
    assert (done.exit_code, "_tidegate_completion" in done.stdout) == (0, True)
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    assert f"_TIDEGATE_COMPLETE={shell}_source tidegate" in page


def test_a_deep_recursion_shows_only_the_innermost_frames() -> None:
    def fall(n: int) -> int:
        return rise(n - 1)

    def rise(n: int) -> int:
        return fall(n - 1) if n else 1 // 0

    with pytest.raises(ZeroDivisionError) as caught:
        fall(41)
    text = report(caught.value)
    assert text.count("  File ") == MOST_FRAMES
    assert "outer ones left out" in text
    assert text.startswith("error: ZeroDivisionError: integer division or modulo by zero")


def test_the_cause_of_an_error_is_reported() -> None:
    def lookup() -> None:
        try:
            {}["key"]
        except KeyError as error:
            raise ValueError("no such customer") from error

    with pytest.raises(ValueError, match="customer") as caught:
        lookup()
    last = report(caught.value).splitlines()[-1]
    assert re.fullmatch(r"caused by KeyError: 'key'  \(.*test_machine\.py:\d+\)", last)


# --- progress ------------------------------------------------------------------------------------------------------


class Slow(Runner):
    """Ends when the test has seen its progress."""

    name = "slow"

    def __init__(self, seen: threading.Event) -> None:
        self.seen = seen

    def check(self, pipeline: portable.Pipeline, options: Any) -> list[str]:
        return []

    def plan(self, pipeline: portable.Pipeline, options: Any) -> Any:
        raise NotImplementedError

    def run(self, pipeline: portable.Pipeline, options: Any) -> PipelineResult:
        cells = MetricCells()
        if self.watch is not None:
            self.watch(cells)
        cells.count(MetricKey("parse", ENGINE, "elements_out"), 1234)
        assert self.watch is None or self.seen.wait(30)
        return Done(cells)


class Done(PipelineResult):
    def __init__(self, cells: MetricCells) -> None:
        self.cells = cells

    @property
    def state(self) -> PipelineState:
        return PipelineState.DONE

    def wait_until_finish(self, timeout: float | None = None) -> PipelineState:
        return self.state

    def cancel(self) -> PipelineState:
        return self.state

    def metrics(self) -> MetricResults:
        return MetricResults(self.cells)


def test_progress_is_shown_while_a_run_is_in_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PLAIN_PERIOD", 0.001)
    seen = threading.Event()
    line = Display._line

    def observed(display: Display) -> str:
        text = line(display)
        if "1,234" in text:
            seen.set()
        return text

    monkeypatch.setattr(Display, "_line", observed)
    result = run_with_progress(Slow(seen), EMPTY, PipelineOptions(progress="on"))
    assert result.state is PipelineState.DONE
    captured = capsys.readouterr()
    assert "job: 0:00, 1,234 elements in the busiest step\n" in captured.err
    assert captured.out == ""


def test_no_progress_is_shown_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    runner = Slow(threading.Event())
    assert run_with_progress(runner, EMPTY, PipelineOptions()).state is PipelineState.DONE
    assert runner.watch is None
    assert capsys.readouterr().err == ""


def test_rates_are_computed_from_the_last_samples() -> None:
    rates = Rates()
    assert rates.per_second("parse") == 0.0
    for second in range(20):
        rates.sample({"parse": second * second}, float(second))
    assert rates.counts == {"parse": 361}
    assert rates.per_second("parse") == (361 - 14 * 14) / 5


def test_the_table_shows_only_the_busiest_steps() -> None:
    from rich.console import Console

    steps = tuple(
        portable.Create(label=f"step {n}", where=portable.Where("job.py", n), values=portable.Values([], 0))
        for n in range(50)
    )
    display = Display(portable.Pipeline(steps, (), this_environment()))
    cells = MetricCells()
    display.watch(cells)
    display._sample()
    for n in range(50):
        cells.count(MetricKey(f"step {n}", ENGINE, "elements_out"), n)
    display._sample()
    console = Console(width=80, file=open(os.devnull, "w"), record=True)  # noqa: SIM115
    console.print(display._table(height=10))
    console.file.close()
    text = console.export_text()
    assert re.findall(r"step (\d+) ", text) == ["45", "46", "47", "48", "49"]


SCRIPT = """
import tidegate as tg

pipeline = tg.Pipeline(name="watched")
pipeline | tg.Create(range(8)) | tg.Map(lambda x: x)
"""


def test_progress_is_shown_on_a_terminal_as_stderr(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-c", "from tidegate.cli import main; main()", "run", "job.py", "--progress", "on"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # on Linux, this means that the other end has been closed
            break
        if not part:
            break
        text += part
    os.close(ours)
    out, _ = done.communicate()
    assert (done.returncode, out) == (0, b"")
    assert b"watched: 0:0" in text

"""A finished job that is run again, as by a supervisor whose client was killed, does no work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate as tg
from tidegate.sdk.runner import PipelineState

ROOT = Path(__file__).parents[3]

NOTHING: dict[str, list[str]] = {"counters": [], "distributions": [], "gauges": [], "string_sets": []}

SCRIPT = '''\
"""Adds numbers up."""
import tidegate as tg

SET = {"one", "two", "three", "four", "five"}


class Options(tg.PipelineOptions):
    output: str


def big(n):
    return n in {1, 2, 3} or str(n) in SET or n > 5


def pipeline(options: Options) -> tg.Pipeline:
    p = tg.Pipeline(options=options, name="adding")
    (
        p
        | "numbers" >> tg.Create([1, 2, 3, 4, 5, 6, 7])
        | "big" >> tg.Filter(big)
        | "key" >> tg.Map(lambda n: ("sum", n))
        | "sum" >> tg.CombinePerKey(sum)
        | "text" >> tg.Map(str)
        | "write" >> tg.io.WriteToText(options.output)
    )
    return p
'''


class ScriptRunner:
    """Runs the script repeatedly, each time in a process with another hash seed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = folder / "adding.py"
        self.script.write_text(SCRIPT)
        self.times = 0

    def run(self, *flags: str, output: str = "out") -> tuple[int, str]:
        """The exit code and the stderr of a run."""
        self.times += 1
        call = "import sys; from tidegate.cli import main; sys.exit(main())"
        paths_of_job = ["--output", f"{self.folder}/{output}/part", "--checkpoint_dir", f"{self.folder}/checkpoints"]
        fixed = ["--runner", "streaming", "--workers", "1", "--mode", "streaming", "--progress", "off"]
        options = [*fixed, *paths_of_job, *flags]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        finished = subprocess.run(
            [sys.executable, "-c", call, "run", str(self.script), *options],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": str(self.times)},
            check=False,
        )
        return finished.returncode, finished.stderr

    @property
    def contents(self) -> dict[str, bytes]:
        """All files in the folder except the script."""
        files = [path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".py"]
        return {str(path): path.read_bytes() for path in files if "__pycache__" not in path.parts}


@pytest.fixture
def runner(tmp_path: Path) -> ScriptRunner:
    first_run = ScriptRunner(tmp_path)
    code, stderr = first_run.run()
    assert (code, stderr) == (0, "")
    return first_run


def test_a_finished_job_is_reported_in_one_line_and_the_run_succeeds(runner: ScriptRunner, tmp_path: Path) -> None:
    before = runner.contents
    code, stderr = runner.run("--workers", "2", "--checkpoint_interval", "1s")
    assert code == 0
    (line,) = stderr.splitlines()
    assert line.endswith(
        f"the job in {tmp_path}/checkpoints has finished: nothing is left to do; --begin_anew runs it again"
    )
    assert runner.contents == before


def test_the_location_of_the_script_may_change_but_not_what_it_does(runner: ScriptRunner) -> None:
    runner.script = runner.folder / "elsewhere" / "adding.py"
    runner.script.parent.mkdir()
    runner.script.write_text(f"# a line more\n\n{SCRIPT}")
    code, stderr = runner.run()
    assert (code, len(stderr.splitlines())) == (0, 1)
    runner.script.write_text(SCRIPT.replace("n > 5", "n > 6"))
    before = runner.contents
    code, stderr = runner.run()
    assert code == 2
    assert "this one is not the same: step 'big' has changed. Give another --checkpoint_dir" in " ".join(stderr.split())
    assert runner.contents == before


def test_another_value_of_a_flag_of_the_author_makes_another_job(runner: ScriptRunner) -> None:
    code, stderr = runner.run(output="other")
    assert code == 2
    assert "option --output has changed" in stderr
    assert "step 'write/Write' has changed" in stderr
    assert not (runner.folder / "other").exists()


def test_a_finished_job_runs_again_on_request(runner: ScriptRunner) -> None:
    before = sorted(runner.contents)
    assert runner.run("--begin_anew") == (0, "")
    assert len([name for name in runner.contents if "/out/" in name]) == 2 * len([n for n in before if "/out/" in n])
    record = json.loads((runner.folder / "checkpoints" / "job.json").read_text())
    assert record["state"] == "finished"


def test_discard_state_is_refused_without_begin_anew(runner: ScriptRunner) -> None:
    code, stderr = runner.run("--discard_state")
    assert code == 2
    assert "--discard_state only has a meaning with --begin_anew" in stderr


def test_a_result_of_a_finished_job_is_done_and_has_its_metrics(tmp_path: Path) -> None:
    def run() -> tg.PipelineResult:
        flags = ["--runner=streaming", "--workers=1", "--mode=streaming", f"--checkpoint_dir={tmp_path}/checkpoints"]
        p = tg.Pipeline(options=flags)
        _ = p | "numbers" >> tg.Create([1, 2, 3]) | "twice" >> tg.Map(lambda n: 2 * n)
        return p.run()

    record = tmp_path / "checkpoints" / "job.json"
    for case in ("run", "finished", "recorded twice"):
        if case == "recorded twice":  # as if its process had died after the last checkpoint
            fields = json.loads(record.read_text())
            record.write_text(json.dumps({**fields, "state": "running", "metrics": NOTHING}))
        result = run()
        assert result.wait_until_finish() is PipelineState.DONE
        assert result.metrics().counter("elements_out", step="twice") == 3

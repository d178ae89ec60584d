"""Running a finished job again, as a supervisor does after its client was killed, repeats nothing."""

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


class Adding:
    """Someone who runs the script again and again, each time in a process with other hashes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = folder / "adding.py"
        self.script.write_text(SCRIPT)
        self.times = 0

    def run(self, *flags: str, output: str = "out") -> tuple[int, str]:
        """The exit code, and what was said on stderr."""
        self.times += 1
        call = "import sys; from tidegate.cli import main; sys.exit(main())"
        own = ["--output", f"{self.folder}/{output}/part", "--checkpoint_dir", f"{self.folder}/checkpoints"]
        options = ["--runner", "streaming", "--workers", "1", "--mode", "streaming", "--progress", "off", *own, *flags]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        ran = subprocess.run(
            [sys.executable, "-c", call, "run", str(self.script), *options],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": str(self.times)},
            check=False,
        )
        return ran.returncode, ran.stderr

    @property
    def contents(self) -> dict[str, bytes]:
        """Everything there but the script."""
        files = [path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".py"]
        return {str(path): path.read_bytes() for path in files if "__pycache__" not in path.parts}


@pytest.fixture
def adding(tmp_path: Path) -> Adding:
    at_work = Adding(tmp_path)
    code, said = at_work.run()
    assert (code, said) == (0, "")
    return at_work


def test_it_says_so_in_one_line_and_ends_well(adding: Adding, tmp_path: Path) -> None:
    before = adding.contents
    code, said = adding.run("--workers", "2", "--checkpoint_interval", "1s")
    assert code == 0
    (line,) = said.splitlines()
    assert line.endswith(
        f"the job in {tmp_path}/checkpoints has finished: nothing is left to do; --begin_anew runs it again"
    )
    assert adding.contents == before


def test_where_the_script_was_written_does_not_matter_but_what_it_does(adding: Adding) -> None:
    adding.script = adding.folder / "elsewhere" / "adding.py"
    adding.script.parent.mkdir()
    adding.script.write_text(f"# a line more\n\n{SCRIPT}")
    code, said = adding.run()
    assert (code, len(said.splitlines())) == (0, 1)
    adding.script.write_text(SCRIPT.replace("n > 5", "n > 6"))
    before = adding.contents
    code, said = adding.run()
    assert code == 2
    assert "this one is not the same: step 'big' has changed. Give another --checkpoint_dir" in " ".join(said.split())
    assert adding.contents == before


def test_another_value_of_the_authors_own_flags_is_another_job(adding: Adding) -> None:
    code, said = adding.run(output="other")
    assert code == 2
    assert "option --output has changed" in said
    assert "step 'write/Write' has changed" in said
    assert not (adding.folder / "other").exists()


def test_it_runs_again_where_that_is_asked_for(adding: Adding) -> None:
    before = sorted(adding.contents)
    assert adding.run("--begin_anew") == (0, "")
    assert len([name for name in adding.contents if "/out/" in name]) == 2 * len([n for n in before if "/out/" in n])
    record = json.loads((adding.folder / "checkpoints" / "job.json").read_text())
    assert record["state"] == "finished"


def test_what_may_be_given_up_is_said_with_what_it_is_given_up_for(adding: Adding) -> None:
    code, said = adding.run("--discard_state")
    assert code == 2
    assert "--discard_state only has a meaning with --begin_anew" in said


def test_a_result_of_a_finished_job_is_done_and_has_its_metrics(tmp_path: Path) -> None:
    def run() -> tg.PipelineResult:
        flags = ["--runner=streaming", "--workers=1", "--mode=streaming", f"--checkpoint_dir={tmp_path}/kept"]
        p = tg.Pipeline(options=flags)
        _ = p | "numbers" >> tg.Create([1, 2, 3]) | "twice" >> tg.Map(lambda n: 2 * n)
        return p.run()

    record = tmp_path / "kept" / "job.json"
    for how in ("run", "finished", "recorded twice"):
        if how == "recorded twice":  # its process died after the last checkpoint, and another has ended it
            fields = json.loads(record.read_text())
            record.write_text(json.dumps({**fields, "state": "running", "metrics": NOTHING}))
        result = run()
        assert result.wait_until_finish() is PipelineState.DONE
        assert result.metrics().counter("elements_out", step="twice") == 3

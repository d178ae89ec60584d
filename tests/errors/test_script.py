"""A script that fails prints few lines, with what its author needs to know."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """\
import tidegate as tg

p = tg.Pipeline()
numbers = p | tg.Create(range(5))
for n in range(18):
    numbers = numbers | f"step {n}" >> tg.Map(lambda x: x + 1)
bad = numbers | "divide" >> tg.Map(lambda x: 1 / (x - 20))
bad | "last" >> tg.Map(str)
p.run()
"""


def script_run(tmp_path: Path, text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "script.py").write_text(text)
    return subprocess.run(
        [sys.executable, "script.py", *flags],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_failing_lambda_in_twenty_steps_prints_under_25_lines(tmp_path: Path) -> None:
    done = script_run(tmp_path, SCRIPT)
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert len(lines) < 25, done.stderr
    assert done.stdout == ""
    assert "in step 'divide', applied at " in done.stderr
    assert "script.py:7" in done.stderr
    assert "  element: 20" in done.stderr
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert 'bad = numbers | "divide" >> tg.Map(lambda x: 1 / (x - 20))' in done.stderr


INTERRUPTED = """\
import os, signal
import tidegate as tg

with tg.Pipeline(name="long") as p:
    _ = p | tg.Create([1]) | tg.Map(lambda x: os.kill(os.getpid(), signal.SIGINT)) | tg.io.WriteToText("out")
"""


def interrupted(tmp_path: Path, text: str) -> tuple[int, list[str]]:
    done = script_run(tmp_path, text)
    return done.returncode, done.stderr.splitlines()


def test_an_interrupted_script_prints_two_lines(tmp_path: Path) -> None:
    code, lines = interrupted(tmp_path, INTERRUPTED)
    assert lines == [
        "Interrupted: the run of the pipeline 'long' was stopped.",
        "Its output is as it was before: it appears when a run succeeds.",
    ]
    assert code in (130, -2)
    assert not list(tmp_path.glob("out*"))


def test_an_author_can_handle_the_interrupt(tmp_path: Path) -> None:
    text = INTERRUPTED.replace("with tg", "try:\n  with tg").replace("    _ =", "      _ =")
    assert interrupted(tmp_path, text + "except KeyboardInterrupt:\n    raise SystemExit('mine')\n") == (1, ["mine"])


def test_an_interrupt_raised_after_the_run_has_an_ordinary_traceback(tmp_path: Path) -> None:
    text = INTERRUPTED.replace("with tg", "try:\n  with tg").replace("    _ =", "      _ =")
    _, lines = interrupted(tmp_path, text + "except KeyboardInterrupt:\n    pass\nraise KeyboardInterrupt('other')\n")
    assert lines[-1] == "KeyboardInterrupt: other"
    assert lines[0].startswith("Traceback")


OWN_FLAGS = """\
import tidegate as tg

class Options(tg.PipelineOptions):
    limit: int = 3

with tg.Pipeline(options=Options.from_args()) as p:
    _ = p | tg.Create(range(p.options.limit)) | tg.Map(print)
"""
NO_FLAGS = """\
import tidegate as tg

with tg.Pipeline() as p:
    _ = p | tg.Create([1]) | tg.Map(print)
"""
LISTED = "`python script.py --help` lists the flags, with what each takes"


@pytest.mark.parametrize(
    ("text", "flags", "lines"),
    [
        (
            NO_FLAGS,
            ["--nonsense"],
            [
                "error: unknown flag --nonsense; --help lists those there are",
                "This pipeline takes its flags from the command line of its script. If the script parses its "
                "command line itself, pass options to the pipeline, such as tg.Pipeline(options=[])",
            ],
        ),
        (
            NO_FLAGS,
            ["--runner", "sprk"],
            [
                "error: unknown runner 'sprk': did you mean spark? --runner takes one of direct, streaming, spark",
                LISTED,
            ],
        ),
        (
            NO_FLAGS,
            ["--memory_budget", "lots"],
            ["error: --memory_budget takes a size, not 'lots', for example --memory_budget 256MB", LISTED],
        ),
        (
            OWN_FLAGS,
            ["--limit", "x"],
            ["error: --limit takes a whole number, not 'x', for example --limit 10", LISTED],
        ),
        (OWN_FLAGS, ["--limt", "1"], ["error: unknown flag --limt: did you mean --limit?", LISTED]),
        (
            OWN_FLAGS.replace("Options.from_args()", "Options.from_known_args()[0]"),
            ["--limit", "x"],
            ["error: --limit takes a whole number, not 'x', for example --limit 10", LISTED],
        ),
    ],
)
def test_an_invalid_command_line_of_a_script_is_reported_in_two_lines(
    tmp_path: Path, text: str, flags: list[str], lines: list[str]
) -> None:
    done = script_run(tmp_path, text, *flags)
    assert done.stderr.splitlines() == lines
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (OWN_FLAGS.replace("from_args()", 'from_args(limit="many")'), []),  # the default given by the script
        (OWN_FLAGS.replace("from_args()", "from_args(['--limit', 'x'])"), ["--limit", "1"]),
        (NO_FLAGS.replace("Pipeline()", "Pipeline(options=['--nonsense'])"), []),
        (NO_FLAGS.replace("Pipeline()", "Pipeline('sprk')"), []),
    ],
)
def test_invalid_options_in_the_script_are_reported_with_their_line(
    tmp_path: Path, text: str, flags: list[str]
) -> None:
    done = script_run(tmp_path, text, *flags)
    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stderr
    assert 'script.py", line ' in done.stderr
    assert "OptionsError: " in done.stderr


def test_an_author_can_handle_an_options_error(tmp_path: Path) -> None:
    text = NO_FLAGS.replace("with tg", "try:\n  with tg").replace("    _ =", "      _ =")
    handled = text + "except tg.OptionsError as error:\n    raise SystemExit('mine')\n"
    done = script_run(tmp_path, handled, "--nonsense")
    assert (done.returncode, done.stderr) == (1, "mine\n")
    raised = text + "except tg.OptionsError as error:\n    raise ValueError('other')\n"
    done = script_run(tmp_path, raised, "--nonsense")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ValueError: other"


PRINTS = """\
import tidegate as tg

with tg.Pipeline() as p:
    _ = p | tg.Create(range(50_000)) | tg.Map(print)
"""


@pytest.mark.parametrize(
    ("args", "text", "code", "unbuffered"),
    [
        (["script.py", "--help"], NO_FLAGS, 0, ""),
        (["script.py", "--help"], OWN_FLAGS, 0, "1"),
        (["script.py"], PRINTS, 1, ""),
        (["script.py", "--runner", "streaming"], PRINTS, 1, "1"),
        (["-m", "tidegate", "run", "script.py", "--help"], NO_FLAGS, 1, ""),
        (["-m", "tidegate", "run", "script.py"], PRINTS, 1, "1"),
        (["-m", "tidegate", "run", "script.py", "--runner", "streaming"], PRINTS, 1, ""),
        (["-m", "tidegate", "--help"], NO_FLAGS, 1, ""),
        (["-m", "tidegate", "explain", "script.py"], NO_FLAGS, 1, ""),
        (["-m", "tidegate", "graph", "script.py"], NO_FLAGS, 1, "1"),
    ],
)
def test_output_to_a_pipe_without_a_reader_ends_quietly(
    tmp_path: Path, args: list[str], text: str, code: int, unbuffered: str
) -> None:
    (tmp_path / "script.py").write_text(text)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [sys.executable, *args],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(Path(__file__).parents[2]),
                "PYTHONUNBUFFERED": unbuffered,
            },
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (code, "")


def test_a_broken_pipe_of_the_author_is_an_error(tmp_path: Path) -> None:
    done = script_run(
        tmp_path,
        PRINTS.replace("tg.Map(print)", "tg.Map(lambda x: (_ for _ in ()).throw(BrokenPipeError(32, 'mine')))"),
    )
    assert done.returncode == 1
    assert "BrokenPipeError: [Errno 32] mine" in done.stderr

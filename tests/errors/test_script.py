"""A script that fails prints few lines, and they say what its author needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def script_run(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "script.py").write_text(text)
    return subprocess.run(
        [sys.executable, "script.py"],
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


def test_a_script_that_is_interrupted_says_so_in_two_lines(tmp_path: Path) -> None:
    code, lines = interrupted(tmp_path, INTERRUPTED)
    assert lines == [
        "Interrupted: the run of the pipeline 'long' was stopped.",
        "Its output is as it was before: it appears when a run succeeds.",
    ]
    assert code in (130, -2)
    assert not list(tmp_path.glob("out*"))


def test_an_author_may_handle_the_interrupt(tmp_path: Path) -> None:
    text = INTERRUPTED.replace("with tg", "try:\n  with tg").replace("    _ =", "      _ =")
    assert interrupted(tmp_path, text + "except KeyboardInterrupt:\n    raise SystemExit('mine')\n") == (1, ["mine"])


def test_another_interrupt_is_python_s_own(tmp_path: Path) -> None:
    text = INTERRUPTED.replace("with tg", "try:\n  with tg").replace("    _ =", "      _ =")
    _, lines = interrupted(tmp_path, text + "except KeyboardInterrupt:\n    pass\nraise KeyboardInterrupt('other')\n")
    assert lines[-1] == "KeyboardInterrupt: other"
    assert lines[0].startswith("Traceback")

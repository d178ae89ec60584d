"""A warning about a pipeline that is never run names the line that creates it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BEGIN = "import tidegate as tg\np = tg.Pipeline(name='lost')\n_ = p | tg.Create([1, 2]) | tg.Map(print)\n"


def stderr_of(tmp_path: Path, text: str) -> str:
    script = tmp_path / "script.py"
    script.write_text(text)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    return done.stderr


def test_a_pipeline_that_is_never_run_causes_a_warning_when_the_script_ends(tmp_path: Path) -> None:
    assert (
        f"{tmp_path}/script.py:2: TidegateWarning: the pipeline 'lost' has 2 steps and was never run: call run()"
        in (stderr_of(tmp_path, BEGIN))
    )


def test_a_pipeline_that_a_function_of_the_script_drops_causes_a_warning(tmp_path: Path) -> None:
    function = "def build():\n" + "".join(f"    {line}\n" for line in BEGIN.splitlines()) + "build()\n"
    assert "script.py:3: TidegateWarning: the pipeline 'lost' has 2 steps" in stderr_of(tmp_path, function)


@pytest.mark.parametrize(
    "text",
    [
        BEGIN + "p.run()",
        "import tidegate as tg\nwith tg.Pipeline() as p:\n    _ = p | tg.Create([1]) | tg.Map(abs)",
        BEGIN + "p.sealed()",
        BEGIN + "other = tg.Pipeline()\n_ = other | tg.Create([1]) | tg.Map(abs)\nother.run()",
        "import tidegate as tg\np = tg.Pipeline()",
        BEGIN + "import os, sys\nif os.fork():\n    os.wait(); p.run()\nelse:\n    sys.exit()",
    ],
    ids=["run", "with", "data", "another is run", "empty", "forked"],
)
def test_other_pipelines_cause_no_warning(tmp_path: Path, text: str) -> None:
    assert "never run" not in stderr_of(tmp_path, text)


def test_a_script_that_fails_causes_no_warning(tmp_path: Path) -> None:
    found = stderr_of(tmp_path, BEGIN + "1 // 0")
    assert "ZeroDivisionError" in found
    assert "never run" not in found


def test_a_pipeline_of_another_module_causes_no_warning(tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text(BEGIN)
    assert stderr_of(tmp_path, "import library") == ""

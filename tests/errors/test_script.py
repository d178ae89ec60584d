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


def test_a_failing_lambda_in_twenty_steps_prints_under_25_lines(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert len(lines) < 25, done.stderr
    assert done.stdout == ""
    assert "in step 'divide', applied at " in done.stderr
    assert "script.py:7" in done.stderr
    assert "  element: 20" in done.stderr
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert 'bad = numbers | "divide" >> tg.Map(lambda x: 1 / (x - 20))' in done.stderr

"""Runs mypy and pyright. Tests that do belong in xdist's group "type checkers": each needs a gigabyte or more."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_LONGEST: Final = 900
"""Seconds."""


def run_checker(
    command: Sequence[str], cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The output of a type checker. Pyright does not ask a registry for a newer version of itself."""
    variables = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", **(environment or {})}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=variables, check=False, timeout=_LONGEST
    )

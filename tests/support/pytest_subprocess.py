"""Runs pytest on a user's test file, in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = bool(entry_points(group="pytest11", name="tidegate"))
PLUGIN = [] if INSTALLED else ["-p", "tidegate.testing.plugin"]


def run_pytest(directory: Path, test_file: str, *flags: str, plugin: bool = True) -> tuple[int, str]:
    """Write a test file and run pytest on it; return the exit code and the output."""
    (directory / "test_mine.py").write_text(test_file, encoding="utf-8")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "PYTHONPATH": str(ROOT),
    }
    loaded = PLUGIN if plugin else ["-p", "no:tidegate"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *loaded, "-q", *flags, "test_mine.py"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr

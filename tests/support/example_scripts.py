"""Loads examples, runs them by commands as a user does, and reads their output."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
DATA = EXAMPLES / "data"


def load_example(name: str) -> ModuleType:
    """The example as a module, loaded from its file as `tidegate run` loads it."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run_command(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command that imports Tidegate from this working copy."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))}
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, env=env)


def run_successfully(*command: str | Path) -> str:
    """Run a command that has to succeed, and return its output."""
    done = run_command(*command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tidegate_command(*arguments: str | Path) -> str:
    """Run the `tidegate` command of this environment, and return its output."""
    return run_successfully(
        sys.executable, "-c", "import sys; from tidegate.cli import main; sys.exit(main())", *arguments
    )


def lines_of(prefix: Path) -> list[str]:
    """The lines of all files whose names begin with `prefix`."""
    paths = sorted(prefix.parent.glob(f"{prefix.name}*"))
    assert paths, f"nothing was written to {prefix}*"
    return [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]

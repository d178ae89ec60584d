"""What earlier versions have kept is gone on with: checkpoints, savepoints and compiled pipelines.

`fixtures/make.py` has made each archive, with the version it is of.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.streaming.child_processes import TIMEOUT
from tidegate.runners.streaming.state import task_state
from tidegate.sdk import moved

FIXTURES = Path(__file__).parents[1] / "fixtures"
VERSIONS = {"format-2": 2}
"""Each archive, with the format of the states of tasks in it."""

# Compiled code is of one version of Python.
TARGET = "../pipeline.json" if sys.version_info[:2] == (3, 11) else f"{FIXTURES}/make.py:build"


@pytest.fixture(params=VERSIONS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of an unpacked archive."""
    shutil.unpack_archive(FIXTURES / f"{request.param}.tar.xz", tmp_path, filter="data")
    return tmp_path


def run(folder: Path, *flags: str) -> list[str]:
    """Run the pipeline to its end in one of the folders beside it; all output that is there then."""
    root = Path(__file__).parents[3]
    paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
    call = "import sys; from tidegate.cli import main; sys.exit(main())"
    own = ["--runner=streaming", "--workers=2", "--temp_dir=.", *flags]
    done = subprocess.run(
        [sys.executable, "-c", call, "run", TARGET, *own],
        cwd=folder,  # where the pipeline's output goes
        env={**os.environ, "PYTHONPATH": paths, "TIDEGATE_GATE": "open"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob("out/.tidegate-*"))
    return lines(folder)


def lines(folder: Path) -> list[str]:
    return sorted(line for path in folder.glob("out/part*") for line in path.read_text().splitlines())


KEPT = {"checkpoint": ["--checkpoint_dir=checkpoints"], "savepoint": ["--from_savepoint=savepoint"]}


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_job_goes_on_from_what_an_earlier_version_has_kept(kept: Path, backend: str, kind: str) -> None:
    early = lines(kept / backend)
    (kept / "at once").mkdir()
    whole = run(kept / "at once")
    assert 0 < len(early) < len(whole)
    assert Counter(line.split()[0] for line in whole) == {
        "cells": 5,
        "later": 5,
        "clock": 5,
        "sum": 10,
        "group": 10,
        "session": 4,
        "beside": 120,
    }
    assert run(kept / backend, f"--state_backend={backend}", *KEPT[kind]) == whole


def test_the_archives_have_the_formats_that_are_older_than_todays(kept: Path, request: pytest.FixtureRequest) -> None:
    states = [path for path in kept.rglob("*.state") if path.is_file()]
    assert states
    (format_,) = {moved.loads(path.read_bytes())[0] for path in states}
    assert format_ == VERSIONS[request.node.callspec.params["kept"]] < task_state.FORMAT

"""Jobs resume from checkpoints, savepoints and compiled pipelines of earlier versions.

`fixtures/make.py` made each archive, with the version in question.
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
from tidegate.runners.checkpoint import task_state
from tidegate.sdk import moved

FIXTURES = Path(__file__).parents[1] / "fixtures"
VERSIONS = {"format-2": 2}
"""The archives, with the format of the task states in each."""

# Compiled code is tied to one version of Python.
TARGET = "../pipeline.json" if sys.version_info[:2] == (3, 11) else f"{FIXTURES}/make.py:build"


@pytest.fixture(params=VERSIONS)
def unpacked(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of an unpacked archive."""
    shutil.unpack_archive(FIXTURES / f"{request.param}.tar.xz", tmp_path, filter="data")
    return tmp_path


def run(folder: Path, *flags: str) -> list[str]:
    """Run the pipeline to its end in one of the folders beside it, and return all output there."""
    root = Path(__file__).parents[3]
    paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
    call = "import sys; from tidegate.cli import main; sys.exit(main())"
    arguments = ["--runner=streaming", "--workers=2", "--temp_dir=.", *flags]
    done = subprocess.run(
        [sys.executable, "-c", call, "run", TARGET, *arguments],
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


FROM = {"checkpoint": ["--checkpoint_dir=checkpoints"], "savepoint": ["--from_savepoint=savepoint"]}


@pytest.mark.parametrize("kind", FROM)
@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_job_resumes_from_state_of_an_earlier_version(unpacked: Path, backend: str, kind: str) -> None:
    early = lines(unpacked / backend)
    (unpacked / "at once").mkdir()
    complete = run(unpacked / "at once")
    assert 0 < len(early) < len(complete)
    assert Counter(line.split()[0] for line in complete) == {
        "cells": 5,
        "later": 5,
        "clock": 5,
        "sum": 10,
        "group": 10,
        "session": 4,
        "beside": 120,
    }
    assert run(unpacked / backend, f"--state_backend={backend}", *FROM[kind]) == complete


def test_the_formats_of_the_archives_are_older_than_the_current_one(
    unpacked: Path, request: pytest.FixtureRequest
) -> None:
    states = [path for path in unpacked.rglob("*.state") if path.is_file()]
    assert states
    (format_,) = {moved.loads(path.read_bytes())[0] for path in states}
    assert format_ == VERSIONS[request.node.callspec.params["unpacked"]] < task_state.FORMAT

"""The directories into which tasks spill: one for each task and attempt, within the directory of the run.

Workers are forked from one process and choose the same file names, so two tasks in one directory would overwrite each
other's files; and a later attempt of a task would find the files of an earlier one that was killed.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.memory.spill_file import spilling

_PREFIX: Final = "spill-"
_STORE: Final = "state-"


def spill_directory(run: Path, task: TaskId, attempt: int) -> Path:
    """The spill directory of a task's attempt, created if needed. RunError if the disk has no room for it."""
    directory = run / f"{_PREFIX}{task}.{attempt}"
    with spilling(directory):
        directory.mkdir(exist_ok=True)
    return directory


def store_directory(run: Path, task: TaskId, attempt: int) -> Path:
    """The directory of the store that holds the keyed state of a task's attempt, created if needed."""
    directory = run / f"{_STORE}{task}.{attempt}"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def clear_spilled(run: Path) -> None:
    """Remove all spilled files, and the stores of killed tasks, once no worker is alive."""
    for prefix in (_PREFIX, _STORE):
        for directory in run.glob(f"{prefix}*"):
            shutil.rmtree(directory, ignore_errors=True)

"""The commit log: the driver records what it is about to commit, so that the next run can complete a failed commit.

An entry is a file with the committables of all sinks of a run. The driver writes it before it commits the first sink,
keeps it locked, and removes it after the last. Once the entry exists, the output will be complete: if a commit fails or
the driver dies, the next run commits the entry. Commits are idempotent, so repeating a part that succeeded is harmless.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from tidegate.runners.spark.driver.sinks import SinkCommit
from tidegate.runners.spark.task_io.staging import sync_folder
from tidegate.sdk import moved
from tidegate.sdk.errors import RunError
from tidegate.sdk.private_files import owner_only

_SUFFIX: Final = ".commit"
_FORMAT: Final = 1


@contextlib.contextmanager
def logged_commit(directory: Path | None, run_id: str, sinks: Sequence[SinkCommit]) -> Iterator[None]:
    """Write a log entry for the commit that the body performs. If the body fails or this process dies, a later run
    completes the commit with `finish_interrupted`."""
    if directory is None or not any(sink.committables for sink in sinks):
        yield
        return
    path = directory / f"{run_id}{_SUFFIX}"
    for sink in sinks:
        if sink.staging is not None:
            sync_folder(sink.staging)
    with _locked_file(path, pickle.dumps((_FORMAT, list(sinks)), 5)):
        for sink in sinks:
            sink.noted = True
        try:
            yield
        except BaseException as error:
            error.add_note(f"The commit is logged in {path}: the next run with this --spark_commit_dir finishes it.")
            raise
        path.unlink()


def finish_interrupted(directory: Path | None) -> int:
    """Complete the commits that drivers began before they died. Returns the number of these commits."""
    if directory is None:
        return 0
    directory.mkdir(parents=True, exist_ok=True)
    finished = 0
    for path in sorted(directory.glob(f"*{_SUFFIX}")):
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(path.open("rb"))
            except FileNotFoundError:
                continue
            if not _lock(file):
                continue
            for sink in _load_sinks(path, file):
                try:
                    sink.commit()
                except Exception as error:
                    error.add_note(f"An earlier run began this commit; it is logged in {path}.")
                    raise
                sink.abort()
            path.unlink(missing_ok=True)
            finished += 1
    return finished


def _load_sinks(path: Path, file: BinaryIO) -> list[SinkCommit]:
    entry: Any = None
    with contextlib.suppress(Exception):
        entry = moved.load(file)
    match entry:
        case (int(format), list() as sinks) if format == _FORMAT:
            return sinks
    raise RunError(
        f"{path} is the log of an unfinished commit, and can't be read: another version wrote it, or the modules "
        "of its sinks can't be imported here. Run the pipeline that wrote it, or remove the file"
    )


@contextlib.contextmanager
def _locked_file(path: Path, data: bytes) -> Iterator[None]:
    """Write a file, which appears complete under its name, and keep it locked during the body."""
    partial = path.with_suffix(".part")
    with open(partial, "wb", opener=owner_only) as file:
        _lock(file)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        partial.rename(path)
        yield


def _lock(file: BinaryIO) -> bool:
    """Lock a file until it is closed; False if another process has locked it."""
    try:
        import fcntl
    except ImportError:  # not a Unix: whether a driver still uses the file is unknown
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

"""What the driver is about to commit, noted in a file, so that a commit that was cut off is finished by the next run.

A manifest is written before the first sink is committed, held locked while its driver lives, and removed at the end.
From the moment it is there the run's output will be whole: a commit that fails is left to the next run, as is one in
which the driver dies. Commits may be repeated: whatever of them had been done has no further effect.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from tidegate.runners.spark.driver.sinks import SinkCommit
from tidegate.sdk import moved
from tidegate.sdk.errors import RunError
from tidegate.sdk.private_files import owner_only

_SUFFIX: Final = ".commit"
_FORMAT: Final = 1


@contextlib.contextmanager
def noted(directory: Path | None, run_id: str, sinks: Sequence[SinkCommit]) -> Iterator[None]:
    """A context in which the sinks commit. If that fails or this process dies, `finish_interrupted` of a later run
    commits them."""
    if directory is None or not any(committing.committables for committing in sinks):
        yield
        return
    path = directory / f"{run_id}{_SUFFIX}"
    with _written(path, pickle.dumps((_FORMAT, list(sinks)), 5)):
        for committing in sinks:
            committing.noted = True
        try:
            yield
        except BaseException as error:
            error.add_note(f"The commit is noted in {path}: the next run with this --spark_commit_dir finishes it.")
            raise
        path.unlink()


def finish_interrupted(directory: Path | None) -> int:
    """Finish the commits that drivers which are gone had begun; how many there were."""
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
            for committing in _sinks(path, file):
                try:
                    committing.commit()
                except Exception as error:
                    error.add_note(f"That is a commit which an earlier run began, noted in {path}.")
                    raise
                committing.abort()
            path.unlink(missing_ok=True)
            finished += 1
    return finished


def _sinks(path: Path, file: BinaryIO) -> list[SinkCommit]:
    found: Any = None
    with contextlib.suppress(Exception):
        found = moved.load(file)
    match found:
        case (int(format), list() as sinks) if format == _FORMAT:
            return sinks
    raise RunError(
        f"{path} notes a commit that was not finished, and can't be read: it was written by another version, or the "
        "modules of its sinks can't be imported here. Run the pipeline it belongs to, or remove the file"
    )


@contextlib.contextmanager
def _written(path: Path, data: bytes) -> Iterator[None]:
    """The file, complete from the moment it has its name, and locked."""
    partly = path.with_suffix(".part")
    with open(partly, "wb", opener=owner_only) as file:
        _lock(file)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        partly.rename(path)
        yield


def _lock(file: BinaryIO) -> bool:
    """Lock a file as long as it is open; False if another process has."""
    try:
        import fcntl
    except ImportError:  # not a Unix: nobody is known to be at work
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

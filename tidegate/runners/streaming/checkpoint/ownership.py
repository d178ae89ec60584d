"""Changes a checkpoint directory only while this process is known to own it.

Another process of the job may claim the directory at any time, and resumes from the files it finds there. No file that
it may have found is overwritten or removed, and while ownership can't be checked nothing is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from tidegate.runners.checkpoint.state_files import STORED
from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.runners.streaming.checkpoint.epoch_fencing import Opened
from tidegate.runners.streaming.checkpoint.job_record import RECORDED
from tidegate.runners.streaming.checkpoint.savepoint_copy import copy_savepoint
from tidegate.runners.streaming.protocol.coordinator_io import Delete, Fenced, Store, Stored, Unreachable
from tidegate.runners.streaming.state.staging import STAGED, attempt_of
from tidegate.runners.streaming.storage.background import Steps
from tidegate.sdk.errors import access_failure, write_failure


class Ownership:
    """Access to the checkpoint directory of an `opened` job. `place` opens the store that a savepoint is copied to."""

    def __init__(self, opened: Opened, place: Callable[[str], Storage]) -> None:
        self._opened = opened
        self._place = place
        self._withdrawn: set[str] = set()

    def lost(self) -> Fenced | Unreachable | None:
        """Why this process may have lost the directory; None if it owns it. Checked before anything is committed or
        removed. Withdrawn manifests are removed first."""
        storage = self._opened.storage
        try:
            reason = self._opened.fenced()
            if reason:
                return Fenced(reason)
            while storage is not None and self._withdrawn:
                storage.delete(min(self._withdrawn))
                self._withdrawn.remove(min(self._withdrawn))
        except Exception as error:  # of a remote store, whatever its client raises
            return Unreachable(access_failure(error))
        return None

    def store(self, action: Store) -> Steps[Fenced | Stored]:
        """Write a manifest, or the record that the job is over; returns the outcome. A savepoint is copied file by
        file."""
        storage = self._opened.storage
        if storage is None:
            return Stored(action.checkpoint, "this job keeps no checkpoints", in_place=False)
        in_place = False
        try:
            storage.sync(action.new_files)
            if action.directory is not None:
                yield from copy_savepoint(storage, self._place(action.directory), action.name, action.data)
                return Stored(action.checkpoint)
            if action.checkpoint == RECORDED:  # replaces the record that is there
                if (lost := self.lost()) is not None:
                    return lost if isinstance(lost, Fenced) else Stored(action.checkpoint, lost.error)
                storage.write(action.name, action.data)
            else:
                in_place = True  # possibly, even if the store raises an error
                if not storage.create(action.name, action.data) and storage.read(action.name) != action.data:
                    # Written by a process that has taken over, or by one that did not know yet that it was fenced off.
                    lost = self.lost()
                    error = f"another process of the job has written {action.name}"
                    return lost if isinstance(lost, Fenced) else Stored(action.checkpoint, error, in_place=False)
        except Exception as raised:  # of a remote store, whatever its client raises
            if isinstance(lost := self.lost(), Fenced):
                return lost  # the process that has taken over may have removed files that were being read
            elsewhere = "another --checkpoint_dir" if action.directory is None else "another folder"
            error = write_failure(raised, elsewhere) if isinstance(raised, OSError) else access_failure(raised)
            return Stored(action.checkpoint, error, in_place)
        match self.lost():
            case None:
                return Stored(action.checkpoint)
            case Fenced() as fenced:
                return fenced
            case Unreachable(error=error):
                return Stored(action.checkpoint, f"whether it is still this run's is not known: {error}", in_place)

    def withdraw(self, name: str) -> None:
        """Remove a manifest of this process: now if possible, otherwise before anything depends on it."""
        self._withdrawn.add(name)
        self.lost()

    def delete(self, action: Delete) -> Steps[None]:
        """Remove files that no checkpoint needs, one by one. Files that can't be removed are left to the next process.

        The folders are listed before ownership is checked. Another process of the job may use the same folder names,
        but none of the listed files can belong to it if it has not taken over by then.
        """
        storage = self._opened.storage
        if storage is None:
            return
        unneeded = list(action.names)
        if action.staged_before is not None:
            with contextlib.suppress(Exception):  # of a remote store, whatever its client raises
                names = (*storage.list(STAGED), *storage.unfinished(STAGED))
                unneeded += (name for name in names if _is_staged_before(name, action.staged_before, action))
            yield
        for folder in action.folders:
            with contextlib.suppress(Exception):  # of a remote store, whatever its client raises
                names = (*storage.list(folder), *storage.unfinished(folder))
                unneeded += (name for name in names if not _is_excepted(name, action))
            yield
        if self.lost() is not None:
            return
        for name in unneeded:
            with contextlib.suppress(Exception):
                storage.delete(name)
            yield


def _is_staged_before(name: str, attempt: int, action: Delete) -> bool:
    staged = attempt_of(name)
    return staged is not None and staged < attempt and name not in action.except_for


def _is_excepted(name: str, action: Delete) -> bool:
    return name in action.except_for or (action.keep_store_files and STORED in name)

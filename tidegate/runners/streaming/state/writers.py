"""How captured state is written to a file: by a forked child, or here a little at a time.

A forked child writes the state as it was at the instant of the fork, while the parent goes on. The child closes every
descriptor but the file it writes, takes no lock, and exits without running any cleanup of the parent's. Where a fork is
not safe, or costs more than it saves, the worker writes the state itself in small steps.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from time import perf_counter
from typing import Any, Final, TypeAlias
from zlib import crc32

from tidegate.runners.checkpoint.state_files import (
    END_SIZE,
    PIECE,
    StateFile,
    UnpicklableState,
    Written,
    frames,
    read_end,
    snapshots_of,
    write_to,
)
from tidegate.runners.engine.memory.spill_file import keep_removed_files
from tidegate.runners.engine.operator import Operator
from tidegate.runners.engine.state.keyed_state import Touched, distinct
from tidegate.runners.streaming.model.exit_status import describe_exit
from tidegate.runners.streaming.state.uploads import PendingFile, StateFileStore
from tidegate.sdk.private_files import owner_only
from tidegate.sdk.user_code.redefined_classes import dumps

Keys: TypeAlias = Mapping[str, Touched | None]
"""The keys whose state is to be written, by operator; None: all keys."""


def worth_a_fork(operators: Mapping[str, Operator], keys: Keys) -> bool:
    """Whether writing these keys in the worker would take longer than a fork costs.

    A fork costs the copies of all pages that change while the child runs, and half of them again afterwards.
    """
    seconds = 0.0
    for name, runs in keys.items():
        if runs is None:
            return True
        count = sum(map(len, runs))
        if count > _MANY:
            return True
        if count > _FEW:
            seconds += count / _SAMPLE * _time_of(operators[name], list(islice(chain.from_iterable(runs), _SAMPLE)))
    return seconds > _LONG


def _time_of(operator: Operator, keys: list[Any]) -> float:
    """The time it takes to write these keys (s)."""
    began = perf_counter()
    with contextlib.suppress(Exception):  # reported by the capture
        dumps(operator.snapshot(keys))
    return perf_counter() - began


def looked_up(keys: Keys) -> dict[str, Any]:
    """The keys by operator, each key once."""
    return {name: None if runs is None else distinct(runs) for name, runs in keys.items()}


class EmptyCapture:
    """A capture of no state, which writes no file."""

    uploading = False

    def poll(self) -> tuple[StateFile, ...]:
        return ()

    def abandon(self) -> None:
        return


class FailedCapture:
    """A capture that failed when it was begun."""

    uploading = False

    def __init__(self, error: OSError) -> None:
        self._error = error

    def poll(self) -> tuple[StateFile, ...] | None:
        raise self._error

    def abandon(self) -> None:
        return


class IncrementalWriter:
    """Writes a few frames at each `poll`. A long file is written to disk as it grows."""

    def __init__(
        self,
        parts: Iterator[tuple[bytes, int]],
        name: str,
        files: StateFileStore,
        abandoned: Callable[[], None] | None = None,
    ) -> None:
        self._abandoned = abandoned
        self._frames: Iterator[tuple[bytes, int]] | None = parts
        self._name = name
        self._files = files
        self._data = bytearray()
        self._entries = 0
        self._path: Path | None = None
        self._storing: PendingFile | None = None
        self._size = self._check = 0
        """The size and checksum of the data on disk."""

    def poll(self) -> tuple[StateFile, ...] | None:
        if self._storing is None:
            try:
                self._storing = self._write_some()
            except OSError:
                self._delete_file()
                raise
        file = None if self._storing is None else self._storing.poll()
        return None if file is None else (file,)

    @property
    def uploading(self) -> bool:
        return self._storing is not None

    def _write_some(self) -> PendingFile | None:
        """Write up to PIECE entries. Returns the file that is being stored, once all are written."""
        written = 0
        for data, entries in self._frames or ():
            self._data += data
            self._entries += entries
            written += entries if data else PIECE  # finding no state takes time, too
            if written >= PIECE:
                if len(self._data) >= _LONG_FILE:
                    self._spill()
                return None
        self._data += Written(crc32(self._data, self._check), self._entries).packed()
        if self._path is None:
            data = bytes(self._data)
            self._data.clear()
            return self._files.put(self._name, data)
        self._spill()
        storing = self._files.move(self._name, self._path, self._size, self._check)
        self._path = None
        return storing

    def _spill(self) -> None:
        """Append the data in memory to the file on disk, if files can be written locally."""
        if self._path is None:
            self._path = self._files.begin(self._name)
            if self._path is None:
                return
            self._path.unlink(missing_ok=True)
        try:
            with open(self._path, "ab", opener=owner_only) as file:
                if file.tell() != self._size:
                    raise OSError(errno.ENOENT, "the part already written is gone")
                file.write(self._data)
        except OSError as error:
            error.filename = str(self._path)
            raise
        self._size += len(self._data)
        self._check = crc32(self._data, self._check)
        self._data.clear()

    def abandon(self) -> None:
        if self._abandoned is not None:
            self._abandoned()
        self._frames = None
        self._data.clear()
        if self._storing is not None:
            self._storing.abandon()
        self._delete_file()

    def _delete_file(self) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):  # a leftover file does no harm
                self._path.unlink()


class ForkedWriter:
    """Has a forked child write the state as it was at the fork."""

    def __init__(
        self, operators: Mapping[str, Operator], keys: Keys, path: Path, name: str, files: StateFileStore
    ) -> None:
        self._path = path
        self._name = name
        self._files = files
        self._child_ended = False
        self._storing: PendingFile | None = None
        file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._release_spilled = keep_removed_files()
        """Allows the deletion of spilled files, which the child may have to read."""
        try:
            self._child = os.fork()
            if self._child == 0:
                _write_and_exit(file, operators, keys)
        except OSError:  # the system can't start another process
            self._release_spilled()
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)

    def poll(self) -> tuple[StateFile, ...] | None:
        if self._storing is None:
            child, status = os.waitpid(self._child, os.WNOHANG)
            if child == 0:
                return None
            self._child_ended = True
            self._release_spilled()
            self._storing = self._store(status)
        file = self._storing.poll()
        return None if file is None else (file,)

    @property
    def uploading(self) -> bool:
        return self._storing is not None

    def _store(self, status: int) -> PendingFile:
        """Store the file of the child, which has ended; raise the child's error if it failed."""
        code = os.waitstatus_to_exitcode(status)
        try:
            if code == _UNPICKLABLE:
                raise UnpicklableState(*pickle.loads(self._path.read_bytes()))
            if code >= _ERRNO:
                raise OSError(code - _ERRNO, os.strerror(code - _ERRNO), str(self._path))
            if code != 0:
                raise OSError(f"the process writing {self._path} failed: {describe_exit(status)}")
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - END_SIZE))
                end = file.read()
            return self._files.move(self._name, self._path, size, crc32(end, read_end(end).check))
        except BaseException:
            self._delete_file()
            raise

    def abandon(self) -> None:
        if not self._child_ended:
            import signal

            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            self._child_ended = True
            self._release_spilled()
        if self._storing is None:
            self._delete_file()
        else:
            self._storing.abandon()

    def _delete_file(self) -> None:
        with contextlib.suppress(OSError):  # a leftover file does no harm; the cause is reported with the capture
            self._path.unlink()


def _write_and_exit(file: int, operators: Mapping[str, Operator], keys: Keys) -> None:
    """Everything that the child does. It takes no lock that a thread of the parent may hold, closes every other
    descriptor, and exits without cleanup."""
    code = 1
    try:
        gc.disable()
        os.nice(_NICE)
        os.closerange(0, file)
        os.closerange(file + 1, os.sysconf("SC_OPEN_MAX"))

        def write(data: bytes) -> None:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]

        try:
            write_to(write, frames(snapshots_of(operators, looked_up(keys)), list(operators)))
            written = 0
        except UnpicklableState as error:
            os.ftruncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)
            write(pickle.dumps(error.args))
            written = _UNPICKLABLE
        os.fsync(file)
        code = written
    except OSError as error:  # as exit code, since the disk may be full
        if error.errno is not None:
            code = _ERRNO + error.errno
    finally:
        os._exit(code)


_FEW: Final = 4_096
"""Up to so many keys are always written by the worker itself."""
_MANY: Final = 200_000
"""More keys are always written by a child, because the stream would wait while the worker looks them up."""
_SAMPLE: Final = 256
"""The number of keys that are written to measure how long it takes."""
_LONG: Final = 0.1
"""The cost of a fork (s): if writing the keys takes no longer, the worker does it itself."""
_LONG_FILE: Final = 1 << 20
"""Data of a file that is collected in memory before it is written to disk (bytes). To write the file only at the end
would block the stream for longer."""
_NICE: Final = 10
"""The niceness of a child, so that the stream has priority on a busy processor."""
_UNPICKLABLE: Final = 3
"""The exit code of a child that found unpicklable state; its file has the arguments of the `UnpicklableState`."""
_ERRNO: Final = 100
"""The exit code of a child that could not write is this plus the errno."""

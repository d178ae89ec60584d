"""Where operators keep their state, and how it gets into checkpoints: the interface, and state in memory.

In memory, a checkpoint has what changed since the last one that was completed, and every so often everything. A forked
child writes it, as state is at that instant, while the parent goes on: it closes all but the file it writes, takes
no lock, and leaves without a word. Where that is not safe, or not worth it, the same is done here, a little at a time.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Protocol, TypeAlias
from zlib import crc32

from tidegate.runners.engine.operator import KeyedOperator, Operator, keeps_state
from tidegate.runners.engine.rescale import Keeps, rescaled
from tidegate.runners.engine.state.keyed_state import Touched, distinct
from tidegate.runners.streaming.model.exit_status import how_ended
from tidegate.runners.streaming.process.fork import can_fork
from tidegate.runners.streaming.state.files import (
    END_SIZE,
    PIECE,
    Read,
    StateFile,
    UnpicklableState,
    Written,
    frames,
    read_end,
    read_states,
    snapshots_of,
    write_to,
)
from tidegate.runners.streaming.state.uploads import Files
from tidegate.runners.streaming.worker.environment import Storing
from tidegate.sdk.private_files import owner_only
from tidegate.sdk.user_code.redefined_classes import dumps

Operators: TypeAlias = Callable[[], Mapping[str, Operator]]
"""The operators of a task that have not ended, by the name their state is kept under."""


class Capture(Protocol):
    """The state of one task at one instant, on its way to where it is kept."""

    @property
    def uploading(self) -> bool:
        """Whether all that is missing is said by others to be done: until then it need not be asked."""

    def poll(self) -> tuple[StateFile, ...] | None:
        """Do a little, never waiting: the files that have the state, the latest first; None: not done yet.

        Raises OSError (or RunError) when it can't be kept; then no more is to be asked.
        """

    def abandon(self) -> None:
        """It is not wanted any more."""


class StateBackend(Protocol):
    """Keeps the state of one task's operators. Built before they are, and asked for nothing until they are opened."""

    @property
    def paged(self) -> Callable[[str, KeyedOperator], Operator] | None:
        """What puts an operator's keys elsewhere than in memory (see `Context`); None: they stay there."""

    def restore(self, parts: Sequence[Sequence[StateFile]], read: Read, keeps: Keeps | None) -> None:
        """Go on from what tasks stored: each the files that a capture gave. `keeps` None: from the one part, whole."""

    def capture(self, checkpoint: int, name: str, *, whole: bool) -> Capture:
        """Take the state as it is now, between events and at the end of bundles; into a file of that name.

        `whole`: a savepoint, all in one file that every backend reads, on which nothing later builds.
        """

    def completed(self, checkpoint: int) -> None:
        """A checkpoint is complete: later ones may build on it. Any other that has been taken since may be gone."""

    def close(self) -> None:
        """After the last event."""


class MemoryBackend:
    """State in the operators' own tables. `full_every`: as of `Changes`. `forks`: whether a child may write; not in a
    process of others' threads.
    """

    def __init__(self, operators: Operators, files: Files, *, forks: bool, full_every: int) -> None:
        self._operators = operators
        self._files = files
        self._forks = forks
        self._changes = Changes(full_every)
        self.paged = None

    def restore(self, parts: Sequence[Sequence[StateFile]], read: Read, keeps: Keeps | None) -> None:
        states = [read_states(files, read) for files in parts]
        for name, operator in self._operators().items():
            found = [state[name] for state in states if name in state]
            snapshot = rescaled(found, keeps) if keeps is not None else next(iter(found), None)
            if snapshot is not None:
                operator.restore(snapshot)

    def capture(self, checkpoint: int, name: str, *, whole: bool) -> Capture:
        operators = self._operators()
        keys, base = self._changes.since(checkpoint, operators, whole=whole)
        forks = self._forks and worth_a_child(operators, keys) and can_fork()
        if forks and (path := self._files.begin(name)) is not None:
            written: Capture = Forked(operators, keys, path, name, self._files)
        else:
            snapshots = list(snapshots_of(operators, looked_up(keys)))
            if not snapshots and not base:
                return Nothing()
            written = InSlices(frames(snapshots, list(operators)), name, self._files)
        return written if whole else Chained(written, checkpoint, base, self._changes)

    def completed(self, checkpoint: int) -> None:
        self._changes.completed(checkpoint)

    def close(self) -> None:
        """Nothing is left behind."""


Keys: TypeAlias = Mapping[str, Touched | None]
"""Of each operator, runs of the keys whose state is to be written; None: all."""


@dataclass(slots=True)
class Changes:
    """What has been touched since which checkpoint, and on which files the next one builds.

    That a checkpoint is complete may be heard after later ones have been taken here: their barriers overtake it. What
    is taken meanwhile builds on what all of these build on, for the files of each of them may be gone by then. So only
    the completion of the latest one counts, and only its files are remembered.

    Everything is written again when a state is built from `full_every` files or more, and those laid over the first
    weigh four times as much as that: where little changes, most of what is written would otherwise be the same again.
    From four times as many files on it is written in any case, for each is opened when state is restored; and so it
    is when many checkpoints in a row have not been completed, since what has changed must be remembered from each.
    """

    full_every: int
    _chain: tuple[StateFile, ...] = ()
    """The files to build on; none: everything is written."""
    _open: list[Keys] = field(default_factory=list)
    """What changed before each checkpoint that was taken since the one in `_chain`."""
    _latest: int = 0
    _stored: tuple[StateFile, ...] | None = None
    """The files of the latest checkpoint, once they are in place."""

    def since(
        self, checkpoint: int, operators: Mapping[str, Operator], *, whole: bool
    ) -> tuple[Keys, tuple[StateFile, ...]]:
        """The keys that a checkpoint has to write, and the files it builds on."""
        everything: Keys = {name: None if keeps_state(operator) else [] for name, operator in operators.items()}
        if whole:
            return everything, ()
        self._latest, self._stored = checkpoint, None
        self._open.append({name: operator.touched() for name, operator in operators.items()})
        if self._builds_anew():
            self._chain = ()
            self._open.clear()
            return everything, ()
        return {name: _union(changed.get(name) for changed in self._open) for name in operators}, self._chain

    def _builds_anew(self) -> bool:
        """Whether everything is to be written again."""
        if not self._chain or len(self._open) > _INCOMPLETE:
            return True
        if len(self._chain) < self.full_every:
            return False
        *laid_over, (_, base, _) = self._chain
        return len(self._chain) >= _LONGEST * self.full_every or sum(size for _, size, _ in laid_over) >= _HEAVY * base

    def stored(self, checkpoint: int, chain: tuple[StateFile, ...]) -> None:
        """A checkpoint's files are in place."""
        if checkpoint == self._latest:
            self._stored = chain

    def completed(self, checkpoint: int) -> None:
        """Build on a checkpoint, if none has been taken since."""
        if checkpoint == self._latest and self._stored is not None:
            self._chain, self._stored = self._stored, None
            self._open.clear()


def _union(parts: Iterator[Touched | None]) -> Touched | None:
    runs: Touched = []
    for part in parts:
        if part is None:
            return None
        runs += part
    return runs


def worth_a_child(operators: Mapping[str, Operator], keys: Keys) -> bool:
    """Whether it would take longer to write these here than a fork costs: that is the copies of all pages that change
    while the child is there, and half of them again afterwards."""
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
    """How long it takes to write these keys (s)."""
    began = perf_counter()
    with contextlib.suppress(Exception):  # whoever writes them says what can't be pickled
        dumps(operator.snapshot(keys))
    return perf_counter() - began


def looked_up(keys: Keys) -> dict[str, Any]:
    """The keys, each once."""
    return {name: None if runs is None else distinct(runs) for name, runs in keys.items()}


@dataclass(slots=True)
class Chained:
    """A capture that builds on others' files."""

    own: Capture
    checkpoint: int
    base: tuple[StateFile, ...]
    changes: Changes

    def poll(self) -> tuple[StateFile, ...] | None:
        files = self.own.poll()
        if files is None:
            return None
        chain = (*files, *self.base)
        self.changes.stored(self.checkpoint, chain)
        return chain

    def abandon(self) -> None:
        self.own.abandon()

    @property
    def uploading(self) -> bool:
        return self.own.uploading


class Nothing:
    """No state at all."""

    uploading = False

    def poll(self) -> tuple[StateFile, ...]:
        return ()

    def abandon(self) -> None:
        return


class Unkept:
    """What could not even be begun to be written."""

    uploading = False

    def __init__(self, error: OSError) -> None:
        self._error = error

    def poll(self) -> tuple[StateFile, ...] | None:
        raise self._error

    def abandon(self) -> None:
        return


class InSlices:
    """Frames written a little at a time by whoever asks whether it is done; a long file goes to disk as it grows."""

    def __init__(
        self,
        parts: Iterator[tuple[bytes, int]],
        name: str,
        files: Files,
        abandoned: Callable[[], None] | None = None,
    ) -> None:
        self._abandoned = abandoned
        self._frames: Iterator[tuple[bytes, int]] | None = parts
        self._name = name
        self._files = files
        self._data = bytearray()
        self._entries = 0
        self._path: Path | None = None
        self._storing: Storing | None = None
        self._size = self._check = 0
        """Size and checksum of what is on disk so far."""

    def poll(self) -> tuple[StateFile, ...] | None:
        if self._storing is None:
            try:
                self._storing = self._go_on()
            except OSError:
                self._clear_up()
                raise
        file = None if self._storing is None else self._storing.poll()
        return None if file is None else (file,)

    @property
    def uploading(self) -> bool:
        return self._storing is not None

    def _go_on(self) -> Storing | None:
        looked_at = 0
        for data, entries in self._frames or ():
            self._data += data
            self._entries += entries
            looked_at += entries if data else PIECE
            if looked_at >= PIECE:
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
        """What is in memory goes to disk, if there is a place."""
        if self._path is None:
            self._path = self._files.begin(self._name)
            if self._path is None:
                return
            self._path.unlink(missing_ok=True)
        try:
            with open(self._path, "ab", opener=owner_only) as file:
                if file.tell() != self._size:
                    raise OSError(errno.ENOENT, "what had been written of it is gone")
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
        self._clear_up()

    def _clear_up(self) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):  # what stays is in nobody's way
                self._path.unlink()


class Forked:
    """A child that writes the state as it was when it began."""

    def __init__(self, operators: Mapping[str, Operator], keys: Keys, path: Path, name: str, files: Files) -> None:
        self._path = path
        self._name = name
        self._files = files
        self._over = False
        self._storing: Storing | None = None
        file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self._child = os.fork()
            if self._child == 0:
                _write_and_leave(file, operators, keys)
        except OSError:  # no room for another process
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)

    def poll(self) -> tuple[StateFile, ...] | None:
        if self._storing is None:
            child, status = os.waitpid(self._child, os.WNOHANG)
            if child == 0:
                return None
            self._over = True
            self._storing = self._written(status)
        file = self._storing.poll()
        return None if file is None else (file,)

    @property
    def uploading(self) -> bool:
        return self._storing is not None

    def _written(self, status: int) -> Storing:
        """The child has ended: what it has written is to be stored."""
        code = os.waitstatus_to_exitcode(status)
        try:
            if code == _UNPICKLABLE:
                raise UnpicklableState(*pickle.loads(self._path.read_bytes()))
            if code >= _ERRNO:
                raise OSError(code - _ERRNO, os.strerror(code - _ERRNO), str(self._path))
            if code != 0:
                raise OSError(f"who was to write {self._path} did not: {how_ended(status)}")
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - END_SIZE))
                end = file.read()
            return self._files.move(self._name, self._path, size, crc32(end, read_end(end).check))
        except BaseException:
            self._clear_up()
            raise

    def abandon(self) -> None:
        if not self._over:
            import signal

            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            self._over = True
        if self._storing is None:
            self._clear_up()
        else:
            self._storing.abandon()

    def _clear_up(self) -> None:
        with contextlib.suppress(OSError):  # what stays is in nobody's way; why it can't be written is told elsewhere
            self._path.unlink()


def _write_and_leave(file: int, operators: Mapping[str, Operator], keys: Keys) -> None:
    """The child's life: no lock that another thread of the parent may hold, no descriptor but this one, no goodbye."""
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
    except OSError as error:  # what the parent says of it needs no room on a disk that is full
        if error.errno is not None:
            code = _ERRNO + error.errno
    finally:
        os._exit(code)


_LONGEST: Final = 4
"""So many times `full_every` files a state is built from at most."""
_HEAVY: Final = 4
"""When what is laid over a file that has everything weighs so many times as much, there is another: unless `_LONGEST`
makes it come sooner, a fifth at most of all bytes is written only to keep chains short."""
_INCOMPLETE: Final = 8
"""After so many checkpoints in a row that were not completed, the next one writes everything."""
_FEW: Final = 4_096
"""How many keys are always written here rather than by a child."""
_MANY: Final = 200_000
"""How many keys a child writes in any case: the stream waits while they are looked up here."""
_SAMPLE: Final = 256
"""How many keys are written to see how long it takes."""
_LONG: Final = 0.1
"""What a child may cost (s)."""
_LONG_FILE: Final = 1 << 20
"""So much of a file is in memory before it goes to disk (bytes): to write it whole, at the end, would take longer."""
_NICE: Final = 10
"""What a child yields: where there is no processor to spare, the stream comes first."""
_UNPICKLABLE: Final = 3
"""The exit code of a child that has written what it could not pickle."""
_ERRNO: Final = 100
"""The exit code of a child that could not write, less the error's number."""

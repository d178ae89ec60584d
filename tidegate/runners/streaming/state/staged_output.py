"""The output that the sinks of a task have prepared, while the files that it stages are being stored.

Output that is prepared for a checkpoint which is then aborted belongs to a later one. So prepared output stays here
until its files are stored and the task reports it, whatever becomes of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidegate.runners.checkpoint.state_files import StateFile
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.sinks.staged_files import remove_local_files, stored_as
from tidegate.runners.streaming.protocol.worker_messages import Prepared
from tidegate.runners.streaming.state.staging import StagedFiles, staged_name
from tidegate.runners.streaming.state.uploads import PendingFile
from tidegate.sdk.connectors.sinks import StagedFile


@dataclass(slots=True)
class _Staging:
    """A staged file that is being stored. `pending` is None if it has yet to begin, or has to begin again; `error` is
    why it could not begin."""

    file: StagedFile
    name: str
    pending: PendingFile | None = None
    stored: StateFile | None = None
    error: OSError | None = None

    def begin(self, files: StagedFiles) -> None:
        """Begin to store the file, unless that has happened."""
        if self.stored is None and self.pending is None:
            try:
                self.pending, self.error = files.put(self.name, self.file), None
            except OSError as error:
                self.error = error

    def poll(self) -> bool:
        """Whether the file is stored. OSError if it can't be."""
        if self.error is not None:
            raise self.error
        if self.stored is None and self.pending is not None:
            try:
                self.stored = self.pending.poll()
            except OSError:
                self.pending = None
                raise
        return self.stored is not None


@dataclass(slots=True)
class _Output:
    """Prepared output, and its staged files in the order of its committables."""

    prepared: Prepared
    files: tuple[_Staging, ...]

    @property
    def stored(self) -> bool:
        return all(file.stored is not None for file in self.files)

    def with_stored_files(self) -> Prepared:
        stored = iter([file.stored for file in self.files if file.stored is not None])
        committables = (
            stored_as(each, [next(stored) for _ in each.files]) if each.files else each
            for each in self.prepared.committables
        )
        return replace(self.prepared, committables=tuple(committables))


class StagedOutput:
    """The prepared output of one task that it has not reported yet."""

    def __init__(self, files: StagedFiles, attempt: int, task: TaskId) -> None:
        self._store = files
        self._attempt = attempt
        self._task = task
        self._output: list[_Output] = []
        self._serial = 0

    def add(self, prepared: Iterable[Prepared]) -> None:
        """Add output, and store its files, as well as those whose storing has failed before."""
        for part in prepared:
            files = tuple(_Staging(file, self._name()) for each in part.committables for file in each.files)
            self._output.append(_Output(part, files))
        for file in self._files():
            file.begin(self._store)

    def poll(self) -> bool:
        """Whether all files are stored. Never waits. OSError if one can't be stored; the next `add` tries it again."""
        return all(file.poll() for file in self._files())

    def take(self) -> tuple[Prepared, ...]:
        """Remove and return the output whose files are all stored."""
        stored = tuple(output.with_stored_files() for output in self._output if output.stored)
        self._output = [output for output in self._output if not output.stored]
        return stored

    def abandon(self) -> None:
        """The task has failed or is closed: what it has not reported is never committed."""
        for file in self._files():
            if file.pending is not None and file.stored is None:
                file.pending.abandon()
        for output in self._output:
            remove_local_files(output.prepared.committables)
        self._output = []

    def _files(self) -> list[_Staging]:
        return [file for output in self._output for file in output.files]

    def _name(self) -> str:
        self._serial += 1
        return staged_name(self._attempt, self._task, self._serial)

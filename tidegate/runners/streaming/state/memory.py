"""The state backend that keeps all state in the worker's memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from tidegate.runners.engine.event_loop import suspended_loop
from tidegate.runners.engine.rescale import KeyFilter, rescaled
from tidegate.runners.streaming.model.fork_safety import can_fork
from tidegate.runners.streaming.state.backend import Capture, Operators
from tidegate.runners.streaming.state.files import Read, StateFile, frames, read_states, snapshots_of
from tidegate.runners.streaming.state.incremental import IncrementalCapture, IncrementalChain
from tidegate.runners.streaming.state.uploads import StateFileStore
from tidegate.runners.streaming.state.writers import (
    EmptyCapture,
    ForkedWriter,
    IncrementalWriter,
    looked_up,
    worth_a_fork,
)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A context in which the cycle collector doesn't run. A snapshot of a million keys may copy as many lists: none of
    them is garbage, and the collector would take several times as long as the copies."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class MemoryBackend:
    """Keeps the state in the operators' tables. Checkpoints are incremental, see `IncrementalChain` for `full_every`.

    `forks`: whether a forked child may write the state; a process with threads that are not Tidegate's must not fork.
    """

    def __init__(self, operators: Operators, files: StateFileStore, *, forks: bool, full_every: int) -> None:
        self._operators = operators
        self._files = files
        self._forks = forks
        self._changes = IncrementalChain(full_every)
        self.wrap_keyed = None

    def restore(self, parts: Sequence[Sequence[StateFile]], read: Read, keeps: KeyFilter | None) -> None:
        states = [read_states(files, read) for files in parts]
        for name, operator in self._operators().items():
            found = [state[name] for state in states if name in state]
            snapshot = rescaled(found, keeps) if keeps is not None else next(iter(found), None)
            if snapshot is not None:
                operator.restore(snapshot)

    def capture(self, checkpoint: int, name: str, *, whole: bool) -> Capture:
        operators = self._operators()
        writer: Capture | None = None
        with suspended_loop() if self._forks else nullcontext():
            forks = self._forks and can_fork()
            # While a thread commits or uploads, the worker has to write the state itself: let that be the changes
            # alone.
            keys, base = self._changes.since(checkpoint, operators, whole=whole, postpone=self._forks and not forks)
            if forks and worth_a_fork(operators, keys) and (path := self._files.begin(name)) is not None:
                writer = ForkedWriter(operators, keys, path, name, self._files)
        if writer is None:
            with _no_garbage_collection():
                snapshots = list(snapshots_of(operators, looked_up(keys)))
            if not snapshots and not base:
                return EmptyCapture()
            writer = IncrementalWriter(frames(snapshots, list(operators)), name, self._files)
        return writer if whole else IncrementalCapture(writer, checkpoint, base, self._changes)

    def completed(self, checkpoint: int) -> None:
        self._changes.completed(checkpoint)

    def close(self) -> None:
        """Does nothing: the state is freed with the operators."""

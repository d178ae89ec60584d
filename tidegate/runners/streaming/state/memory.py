"""The state backend that keeps all state in the worker's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any, Final

from tidegate.runners.checkpoint.restoring import operator_states
from tidegate.runners.checkpoint.state_files import Read, StateFile, frames, snapshots_of
from tidegate.runners.engine.event_loop import suspended_loop
from tidegate.runners.engine.operator import DeferredCopies, Operator
from tidegate.runners.engine.rescale import KeyFilter
from tidegate.runners.streaming.model.fork_safety import can_fork
from tidegate.runners.streaming.state.backend import Capture, Operators
from tidegate.runners.streaming.state.incremental import IncrementalCapture, IncrementalChain
from tidegate.runners.streaming.state.uploads import StateFileStore
from tidegate.runners.streaming.state.writers import (
    EmptyCapture,
    ForkedWriter,
    IncrementalWriter,
    Keys,
    looked_up,
    worth_a_fork,
)
from tidegate.sdk.data.garbage_collection import no_garbage_collection


class MemoryBackend:
    """Keeps the state in the operators' tables. Checkpoints are incremental, see `IncrementalChain` for `full_every`.

    `forks`: whether a forked child may write the state; a process with threads that are not Tidegate's must not fork.
    Where the worker writes the state itself, operators that can (`Operator.copies`) copy most of it as it is written,
    or before it changes; others copy all of theirs at once.
    """

    def __init__(self, operators: Operators, files: StateFileStore, *, forks: bool, full_every: int) -> None:
        self._operators = operators
        self._files = files
        self._forks = forks
        self._changes = IncrementalChain(full_every)
        self._copies: list[DeferredCopies] = []
        """Those of the operators whose state is being written."""
        self.wrap_keyed = None

    def restore(self, parts: Sequence[Sequence[StateFile]], read: Read, keeps: KeyFilter | None) -> None:
        operators = self._operators()
        for name, snapshot in operator_states(parts, read, keeps, operators).items():
            operators[name].restore(snapshot)

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
            snapshots = self._snapshots(operators, keys)
            if not snapshots and not base:
                return EmptyCapture()
            writer = IncrementalWriter(frames(snapshots, list(operators)), name, self._files, self._stop_copying)
        return writer if whole else IncrementalCapture(writer, checkpoint, base, self._changes)

    def _snapshots(self, operators: Mapping[str, Operator], keys: Keys) -> list[tuple[str, Any]]:
        """The operators' snapshots of these keys; values are copied later if there are many."""
        # A snapshot of a million keys may copy as many lists.
        with ExitStack() as deferred, no_garbage_collection():
            self._copies = [each.copies for each in operators.values() if each.copies is not None]
            for copies in self._copies:
                deferred.enter_context(copies.deferred(AT_ONCE))
            return list(snapshots_of(operators, looked_up(keys)))

    def _stop_copying(self) -> None:
        for copies in self._copies:
            copies.stop()

    def completed(self, checkpoint: int) -> None:
        self._changes.completed(checkpoint)

    def close(self) -> None:
        """Does nothing: the state is freed with the operators."""


AT_ONCE: Final = 8_192
"""The number of values that each operator copies at the barrier. Others are copied as they are written."""

"""Incremental checkpoints: the keys that a checkpoint writes, and the files of earlier checkpoints it builds on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.runners.checkpoint.state_files import StateFile
from tidegate.runners.engine.operator import Operator, keeps_state
from tidegate.runners.engine.state.keyed_state import Touched
from tidegate.runners.streaming.state.backend import Capture
from tidegate.runners.streaming.state.writers import Keys


@dataclass(slots=True)
class IncrementalChain:
    """The keys changed since each checkpoint, and the files on which the next checkpoint builds.

    The completion notice of a checkpoint may arrive after later snapshots were taken. The files of any of these may be
    deleted, so they all build on the same base as the first, and only the completion of the latest one moves the base.

    A checkpoint writes all state once the chain has `full_every` files and those after the first have four times its
    size, so that a state that hardly changes is seldom written in full. It does so in any case at four times as many
    files, because each is opened on restore; and after many consecutive checkpoints that did not complete, because the
    changes since each of them are kept in memory.
    """

    full_every: int
    _chain: tuple[StateFile, ...] = ()
    """The files to build on, the latest first; if there are none, the next checkpoint writes all state."""
    _open: list[Keys] = field(default_factory=list)
    """For each checkpoint captured since the one in `_chain`, the keys that changed before it."""
    _latest: int = 0
    _stored: tuple[StateFile, ...] | None = None
    """The files of the latest checkpoint, once they are stored."""

    def since(
        self, checkpoint: int, operators: Mapping[str, Operator], *, whole: bool, postpone: bool = False
    ) -> tuple[Keys, tuple[StateFile, ...]]:
        """The keys that a checkpoint has to write, and the files it builds on. `whole`: see `StateBackend.capture`.
        `postpone`: write only the changes if possible, because it would stop the stream for long to write all state
        now."""
        everything: Keys = {name: None if keeps_state(operator) else [] for name, operator in operators.items()}
        if whole:
            return everything, ()
        self._latest, self._stored = checkpoint, None
        self._open.append({name: operator.touched() for name, operator in operators.items()})
        if self._writes_all(postpone=postpone):
            self._chain = ()
            self._open.clear()
            return everything, ()
        return {name: _union(changed.get(name) for changed in self._open) for name in operators}, self._chain

    def _writes_all(self, *, postpone: bool) -> bool:
        """Whether the next checkpoint writes all state."""
        if not self._chain or len(self._open) > _INCOMPLETE:
            return True
        if len(self._chain) < self.full_every * (_LONGEST if postpone else 1):
            return False
        *changes, (_, full_size, _) = self._chain
        changes_size = sum(size for _, size, _ in changes)
        return len(self._chain) >= _LONGEST * self.full_every or changes_size >= _HEAVY * full_size

    def stored(self, checkpoint: int, chain: tuple[StateFile, ...]) -> None:
        """The files of a checkpoint are stored; `chain` are these and the files it builds on, the latest first."""
        if checkpoint == self._latest:
            self._stored = chain

    def completed(self, checkpoint: int) -> None:
        """A checkpoint is complete: the next one builds on it, unless another has been captured since."""
        if checkpoint == self._latest and self._stored is not None:
            self._chain, self._stored = self._stored, None
            self._open.clear()


def _union(changes: Iterator[Touched | None]) -> Touched | None:
    """All keys that changed; None (all keys) if any part is None."""
    union: Touched = []
    for touched in changes:
        if touched is None:
            return None
        union += touched
    return union


@dataclass(slots=True)
class IncrementalCapture:
    """A capture of the changes in `inner`, which builds on the files of earlier checkpoints."""

    inner: Capture
    checkpoint: int
    base: tuple[StateFile, ...]
    changes: IncrementalChain

    def poll(self) -> tuple[StateFile, ...] | None:
        files = self.inner.poll()
        if files is None:
            return None
        chain = (*files, *self.base)
        self.changes.stored(self.checkpoint, chain)
        return chain

    def abandon(self) -> None:
        self.inner.abandon()

    @property
    def uploading(self) -> bool:
        return self.inner.uploading


_LONGEST: Final = 4
"""A chain has at most this many times `full_every` files."""
_HEAVY: Final = 4
"""All state is written again once the changes have this many times the size of the full file. Full files are thus at
most a fifth of all bytes written, unless `_LONGEST` applies first."""
_INCOMPLETE: Final = 8
"""After this many consecutive checkpoints that did not complete, the next one writes all state."""

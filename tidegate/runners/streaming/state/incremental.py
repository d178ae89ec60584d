"""Incremental checkpoints: what a checkpoint writes again, and which files of earlier ones it builds on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.runners.engine.operator import Operator, keeps_state
from tidegate.runners.engine.state.keyed_state import Touched
from tidegate.runners.streaming.state.backend import Capture
from tidegate.runners.streaming.state.files import StateFile
from tidegate.runners.streaming.state.writers import Keys


@dataclass(slots=True)
class IncrementalChain:
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


@dataclass(slots=True)
class IncrementalCapture:
    """A capture that builds on others' files."""

    own: Capture
    checkpoint: int
    base: tuple[StateFile, ...]
    changes: IncrementalChain

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


_LONGEST: Final = 4
"""So many times `full_every` files a state is built from at most."""
_HEAVY: Final = 4
"""When what is laid over a file that has everything weighs so many times as much, there is another: unless `_LONGEST`
makes it come sooner, a fifth at most of all bytes is written only to keep chains short."""
_INCOMPLETE: Final = 8
"""After so many checkpoints in a row that were not completed, the next one writes everything."""

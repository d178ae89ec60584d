"""A source that pauses in the middle of each split, so that a check can interrupt a run at a known point.

The check and the processes of the run communicate by files in a folder: a reader creates `PAUSED` when it pauses, and
goes on while `OPEN` exists. Where `FAIL` exists, the next element makes the run fail, once; the gate is closed then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.connectors.sources import (
    AsyncReader,
    Batch,
    Discovery,
    Position,
    Reader,
    Source,
    Split,
    SplitEnumerator,
)
from tidegate.sdk.data.block import Block

PAUSED: Final = "paused"
OPEN: Final = "open"
FAIL: Final = "fail"

_WAIT: Final = 0.005
"""How long a paused reader asks to wait (s)."""


@dataclass(frozen=True)
class GatedSource(Source[Any]):
    """Another source, whose readers pause after `pace` elements, and at the end of a split, unless the gate is open.

    It is unbounded even if the other source is bounded, so that a run of it can be stopped; its splits end as before.
    """

    inner: Source[Any]
    folder: str
    pace: int
    bounded = False

    @property
    def forks_safely(self) -> bool:  # type: ignore[override]
        return self.inner.forks_safely

    @property
    def replayable(self) -> bool:  # type: ignore[override]
        return self.inner.replayable

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def element_type(self) -> Any:
        return self.inner.element_type

    def check(self) -> None:
        self.inner.check()

    def local_files(self) -> Sequence[str]:
        return self.inner.local_files()

    def splits(self, desired: int) -> list[Split]:
        return self._explicit(self.inner.splits(desired))

    def enumerator(self, state: Position = None) -> SplitEnumerator | None:
        inner = self.inner.enumerator(state)
        return None if inner is None else _Enumerator(inner, self._explicit)

    def split_again(self, split: Split, position: Position, desired: int) -> list[Split] | None:
        parts = self.inner.split_again(split, position, desired)
        return None if parts is None else self._explicit(parts)

    def reader(self, split: Split, position: Position = None) -> Reader[Any] | AsyncReader[Any]:
        reader = self.inner.reader(split, position)
        gate = _Gate(Path(self.folder), self.pace)
        return _GatedAsyncReader(reader, gate) if isinstance(reader, AsyncReader) else _GatedReader(reader, gate)

    def _explicit(self, splits: Sequence[Split]) -> list[Split]:
        """The splits, each of which says whether it has an end."""
        return [replace(each, bounded=self.inner.bounded) if each.bounded is None else each for each in splits]


class _Enumerator(SplitEnumerator):
    def __init__(self, inner: SplitEnumerator, explicit: Callable[[Sequence[Split]], list[Split]]) -> None:
        self._inner = inner
        self._explicit = explicit

    def discover(self, limit: int) -> Discovery:
        found = self._inner.discover(limit)
        return replace(found, splits=self._explicit(found.splits))

    def state(self) -> Position:
        return self._inner.state()

    def close(self) -> None:
        self._inner.close()


class _Gate:
    """Decides for one reader when it pauses."""

    def __init__(self, folder: Path, pace: int) -> None:
        self._folder = folder
        self._remaining = pace
        self._withheld: Batch | None = None
        """The end of the split, while the reader pauses before it."""
        self._open = False

    def limit(self, limit: int) -> int:
        """How many elements to read; 0: pause."""
        if not self._open:
            self._open = (self._folder / OPEN).exists()
        if self._open:
            return limit
        if self._remaining <= 0 or self._withheld is not None:
            (self._folder / PAUSED).touch()
            return 0
        return min(limit, self._remaining)

    def pause(self) -> Batch:
        return Batch(Block.of([]), wait=_WAIT)

    def ended(self) -> Batch | None:
        """The end of the split that was withheld, once the gate is open."""
        return self._withheld if self._open else None

    def passed(self, batch: Batch) -> Batch:
        """A batch that has been read, without its end if the gate is closed."""
        self._remaining -= len(batch.block)
        if self._open or not batch.end:
            return batch
        self._withheld = Batch(Block.of([]), batch.watermark, end=True)
        return replace(batch, end=False, wait=_WAIT)


class _GatedReader(Reader[Any]):
    def __init__(self, inner: Reader[Any], gate: _Gate) -> None:
        self._inner = inner
        self._gate = gate

    def read(self, limit: int) -> Batch:
        self._inner.now = self.now
        allowed = self._gate.limit(limit)
        if not allowed:
            return self._gate.pause()
        return self._gate.ended() or self._gate.passed(self._inner.read(allowed))

    def position(self) -> Position:
        return self._inner.position()

    def close(self) -> None:
        self._inner.close()


class _GatedAsyncReader(AsyncReader[Any]):
    def __init__(self, inner: AsyncReader[Any], gate: _Gate) -> None:
        self._inner = inner
        self._gate = gate

    async def read(self, limit: int) -> Batch:
        self._inner.now = self.now
        allowed = self._gate.limit(limit)
        if not allowed:
            return self._gate.pause()
        return self._gate.ended() or self._gate.passed(await self._inner.read(allowed))

    def position(self) -> Position:
        return self._inner.position()

    async def close(self) -> None:
        await self._inner.close()


class FailOnce(DoFn):
    """Passes elements on, and raises once: for the first element for which it finds the file `FAIL`."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def process(self, element: Any) -> Any:
        if (self.folder / FAIL).exists():
            (self.folder / OPEN).unlink(missing_ok=True)
            try:
                os.unlink(self.folder / FAIL)
            except FileNotFoundError:
                pass  # another process fails
            else:
                raise RuntimeError("the conformance suite makes the run fail here")
        yield element

"""Discovers the splits of a source step through its author's `SplitEnumerator`: guarded calls and checked answers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from tidegate.runners.engine.errors.attribution import guarded, located, quietly
from tidegate.runners.engine.sources.enumerator_state import packed, unpacked
from tidegate.runners.engine.sources.source_step import SourceStep
from tidegate.sdk.connectors.sources import Discovery, Split, SplitEnumerator
from tidegate.sdk.errors import ReadError, shorten
from tidegate.sdk.metrics import in_step

DISCOVERY_LIMIT: Final = 500
"""How many splits an enumerator may return from one look."""


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one look: new splits, the enumerator's state after them as `packed` returns it, and the seconds
    until the next look.

    `full`: the look found as many splits as it may, so there may be more now. `end`: no split will follow.
    """

    splits: tuple[Split, ...]
    state: Any
    wait: float
    full: bool
    end: bool


class SplitDiscovery:
    """The enumerator of a source step. Errors name the step and the author's line.

    >>> from tidegate.sdk.user_code.frames import Where
    >>> class Letters(SplitEnumerator):
    ...     def __init__(self, left):
    ...         self.left = left
    ...     def discover(self, limit):
    ...         found, self.left = self.left[:limit], self.left[limit:]
    ...         return Discovery([Split(letter) for letter in found], end=not self.left)
    ...     def state(self):
    ...         return self.left
    >>> step = SourceStep("letters", Where("page.py", 1), source=None)
    >>> look = SplitDiscovery(step, Letters("abc")).look(limit=2)
    >>> [split.id for split in look.splits], look.state, look.full, look.end
    (['a', 'b'], 'c', True, False)
    """

    def __init__(self, step: SourceStep, enumerator: SplitEnumerator) -> None:
        self._step = step
        self._enumerator = enumerator

    def look(self, limit: int = DISCOVERY_LIMIT) -> Look:
        """Look for new splits once."""
        step = self._step
        with in_step(step.label):
            found = guarded(self._enumerator.discover, limit, step=step.label, where=step.where, method="discover")
        if not isinstance(found, Discovery):
            raise self._refused(f"discover returned {shorten(found)}, not a tg.io.Discovery")
        splits = tuple(found.splits)
        self._check(splits, limit)
        state = guarded(self._enumerator.state, step=step.label, where=step.where, method="state")
        try:
            state = packed(state)
        except (TypeError, ValueError) as error:
            raise self._refused(
                f"the enumerator's state can't be stored: {error}; it consists of numbers, strings, lists and dicts"
            ) from None
        full = len(splits) >= limit and not found.end
        return Look(splits, state, 0.0 if full else max(0.0, found.wait), full, found.end)

    def close(self) -> None:
        """Release the author's enumerator."""
        guarded(self._enumerator.close, step=self._step.label, where=self._step.where, method="close")

    def _check(self, splits: tuple[Split, ...], limit: int) -> None:
        seen: set[str] = set()
        for split in splits:
            if not isinstance(split, Split):
                raise self._refused(f"discover returned {shorten(split)} among its splits, not a tg.io.Split")
            if split.id in seen:
                raise self._refused(f"discover returned two splits with the id {split.id!r}")
            seen.add(split.id)
        if len(splits) > limit:
            raise self._refused(f"discover returned {len(splits)} splits, but its limit was {limit}")

    def _refused(self, why: str) -> Exception:
        return located(ReadError(why), self._step.label, self._step.where)


def split_discovery(step: SourceStep, state: Any = None) -> SplitDiscovery | None:
    """The discovery of a step's splits, from the `state` of a look on; None if the source lists all its splits at the
    start."""
    if not step.discovers:
        return None
    state = unpacked(state)
    enumerator: Any = guarded(step.source.enumerator, state, step=step.label, where=step.where, method="enumerator")
    return None if enumerator is None else SplitDiscovery(step, enumerator)


def all_splits(step: SourceStep, desired: int) -> list[Split]:
    """All splits of a bounded source, listed or discovered. Waits until its enumerator has ended."""
    discovery = split_discovery(step)
    if discovery is None:
        return step.splits(desired)
    splits: list[Split] = []
    try:
        while True:
            look = discovery.look()
            splits += look.splits
            if look.end:
                break
            time.sleep(look.wait)
    except BaseException:
        quietly(discovery.close)
        raise
    discovery.close()
    return splits

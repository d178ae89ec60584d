"""What the direct runner checks because other runners need it: elements that can travel, and are left unchanged."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from tidegate.runners.engine.spill import dumps_within_run
from tidegate.sdk.coders import explain_unpicklable
from tidegate.sdk.errors import CheckError, shorten

_IMMUTABLE: Final = frozenset({int, float, str, bytes, bool, type(None), complex})

FIRST: Final = 1_000
THIN_EVERY: Final = 64
THIN: Final = 4


@dataclass(frozen=True, slots=True)
class Checks:
    """How much is checked: `sample` is the first 1,000 elements of each step, then 4 of every 64th block."""

    mode: Literal["sample", "all"] = "sample"

    def share(self, seen: int, blocks: int, size: int) -> int:
        """How many leading elements of a step's next block are checked."""
        if self.mode == "all":
            return size
        if seen < FIRST:
            return min(size, FIRST - seen)
        return min(size, THIN) if blocks % THIN_EVERY == 0 else 0


def snapshot(value: Any) -> bytes | None:
    """What `value` is now; None where it can't change, or can't be pickled."""
    if type(value) in _IMMUTABLE:
        return None
    try:
        return dumps_within_run(value)
    except Exception:
        return None


def changed(before: bytes | None, value: Any) -> bool:
    """Whether `value` is no longer what its snapshot says."""
    if before is None:
        return False
    try:
        now = dumps_within_run(value)
    except Exception:
        return True
    if now == before:
        return False
    old = pickle.loads(before)
    # The same object may be pickled in two ways (what is shared, and what is merely equal): compare copies.
    return bool(dumps_within_run(old) != dumps_within_run(pickle.loads(now))) and not _equal(old, value)


def mutated(before: bytes | None, value: Any, what: str) -> CheckError:
    """The error for an element, or a state value, that was changed in place."""
    old = "" if before is None else f" from {shorten(pickle.loads(before), 60)}"
    return CheckError(
        f"{what} changed{old} to {shorten(value, 60)}: elements are shared between steps, so they must not be changed "
        "in place. Make a new value instead"
    )


def watched(results: Iterable[Any], before: bytes | None, value: Any) -> Iterator[Any]:
    """The results, and a CheckError at their end if making them changed the element."""
    yield from results
    if changed(before, value):
        raise mutated(before, value, "the element was")


def check_travels(value: Any) -> None:
    """Raise CheckError if an element that crosses an exchange can't be encoded, or comes back as something else."""
    if type(value) in _IMMUTABLE:
        return
    try:
        data = dumps_within_run(value)
        copy = pickle.loads(data)
    except Exception as error:
        raise CheckError(
            f"the element {shorten(value, 60)} can't travel to another worker: {explain_unpicklable(value)}"
        ) from error
    if not defines_equality(type(value)) or _equal(copy, value) or not _equal(value, value):
        return
    # A NaN, or an object that compares by identity, equals nothing but itself: then two copies differ as well.
    if _equal(copy, pickle.loads(data)):
        raise CheckError(
            f"the element {shorten(value, 60)} comes back as {shorten(copy, 60)} after pickling: "
            "it does not survive an exchange"
        )


def defines_equality(kind: Any) -> bool:
    """Whether instances compare by what they hold, not by identity."""
    return kind.__eq__ is not object.__eq__


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:
        return True

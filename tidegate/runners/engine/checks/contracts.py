"""The checks of `--checks`: elements must survive an exchange, and functions must not change elements they share."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal

from tidegate.runners.engine.memory.spill import dumps_within_run
from tidegate.sdk.data.coders import explain_unpicklable
from tidegate.sdk.data.values import SPECIAL
from tidegate.sdk.errors import CheckError, shorten

_IMMUTABLE: Final = frozenset({int, float, str, bytes, bool, type(None), complex})

FIRST: Final = 1_000
THIN_EVERY: Final = 64
THIN: Final = 4

MOST_GIVEN: Final = 100
MOST_BYTES: Final = 1 << 20


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
    try:
        return None if _immutable(value) else dumps_within_run(value)
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


class EmittedElements:
    """What one step has given lately, each as it was then: neither it nor whoever got it may change it any more.

    It holds at most 100 values beside those of the latest element, and about a megabyte of pickles; what makes room is
    compared as it goes.
    """

    __slots__ = ("_fresh", "_held", "_size")

    def __init__(self) -> None:
        self._held: dict[int, tuple[Any, bytes]] = {}
        self._fresh: dict[int, None] = {}
        self._size = 0

    def hold(self, results: Iterable[Any], taken: Any) -> Iterator[Any]:
        """The results of an element, a hundred of them held until `settle` at least; but not what was `taken`."""
        iterator = iter(results)
        for made in islice(iterator, MOST_GIVEN):
            if made is not taken and self._size <= MOST_BYTES:
                key = self._hold(made)
                if key is not None:
                    self._fresh[key] = None
            yield made
        yield from iterator

    def settle(self) -> None:
        """All results of an element are there: raise CheckError if one has been changed since it was given."""
        fresh, self._fresh = self._fresh, {}
        for key in fresh:
            self._compare(key)
        self._make_room()

    def one(self, made: Any) -> None:
        """An element's only result: raise CheckError if it is the same object as one before, and has been changed."""
        known = len(self._held)
        key = self._hold(made)
        if key is not None:
            if len(self._held) == known:
                self._compare(key)
            self._make_room()

    def verify(self) -> None:
        """The bundle is over: raise CheckError if anything held has been changed. Nothing is held any more."""
        self._fresh.clear()
        while self._held:
            self._release()

    def _hold(self, made: Any) -> int | None:
        while type(made) in SPECIAL:
            made = made.value
        key = id(made)
        if key in self._held:
            return key
        before = snapshot(made)
        if before is None:
            return None
        self._held[key] = made, before
        self._size += len(before)
        return key

    def _make_room(self) -> None:
        while len(self._held) > MOST_GIVEN or self._size > MOST_BYTES:
            self._release()

    def _release(self) -> None:
        oldest = next(iter(self._held))
        self._compare(oldest)
        self._size -= len(self._held.pop(oldest)[1])

    def _compare(self, key: int) -> None:
        made, before = self._held[key]
        if changed(before, made):
            raise CheckError(
                f"an element it gave was changed afterwards from {shorten(pickle.loads(before), 60)} to "
                f"{shorten(made, 60)}, by this step or by one that got it: elements are shared between steps, so they "
                "must not be changed once they are given. Give a copy, or go on with a new value"
            )


def check_pair(element: Any) -> None:
    """Raise TypeError for what can be unpacked into two without being a pair."""
    if isinstance(element, (str, bytes, Set, Mapping)):
        raise TypeError(f"{type(element).__name__} is no pair")


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


def _immutable(value: Any) -> bool:
    kind = type(value)
    return kind in _IMMUTABLE or ((kind is tuple or kind is frozenset) and all(map(_immutable, value)))


def defines_equality(kind: Any) -> bool:
    """Whether instances compare by what they hold, not by identity."""
    return kind.__eq__ is not object.__eq__


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:
        return True

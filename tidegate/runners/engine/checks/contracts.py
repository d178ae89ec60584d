"""The checks of `--checks`: elements must survive an exchange, and functions must not change elements in place."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import islice
from typing import Any, Final, Literal
from uuid import UUID

from tidegate.runners.engine.memory.spill import dumps_within_run
from tidegate.sdk.data.coders import explain_unpicklable
from tidegate.sdk.data.values import SPECIAL
from tidegate.sdk.errors import CheckError, shorten
from tidegate.sdk.time import Duration, Timestamp

_IMMUTABLE: Final = frozenset({int, float, str, bytes, bool, type(None), complex})
_SCALARS: Final = _IMMUTABLE | {date, datetime, time, timedelta, UUID, Timestamp, Duration}

FIRST: Final = 1_000
SAMPLE_EVERY: Final = 64
SAMPLE: Final = 4

MAX_TRACKED: Final = 100
MAX_TRACKED_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Checks:
    """How many elements are checked: `sample` means the first 1,000 of each step, then 4 of every 64th block."""

    mode: Literal["sample", "all"] = "sample"

    def elements_to_check(self, seen: int, blocks: int, size: int) -> int:
        """How many leading elements of a step's next block to check."""
        if self.mode == "all":
            return size
        if seen < FIRST:
            return min(size, FIRST - seen)
        return min(size, SAMPLE) if blocks % SAMPLE_EVERY == 0 else 0


def snapshot(value: Any) -> bytes | None:
    """The pickle of `value`, for comparison with a later one; None if the value is immutable or can't be pickled."""
    try:
        return None if _immutable(value) else dumps_within_run(value)
    except Exception:
        return None


def changed(before: bytes | None, value: Any) -> bool:
    """Whether `value` has changed since its snapshot was taken."""
    if before is None:
        return False
    try:
        now = dumps_within_run(value)
    except Exception:
        return True
    if now == before:
        return False
    old = pickle.loads(before)
    # Equal values can have different pickles, depending on which parts are shared: compare the pickles of copies.
    return bool(dumps_within_run(old) != dumps_within_run(pickle.loads(now))) and not _equal(old, value)


def mutated(before: bytes | None, value: Any, what: str) -> CheckError:
    """The error for an element, or a state value, that was changed in place."""
    old = "" if before is None else f" from {shorten(pickle.loads(before), 60)}"
    return CheckError(
        f"{what} changed{old} to {shorten(value, 60)}: elements are shared between steps, so they must not be changed "
        "in place. Make a new value instead"
    )


class EmittedElements:
    """Tracks the elements that one step has emitted recently: no step may change them in place any more.

    Tracks at most 100 elements beside the results of the latest input, and about a megabyte of pickles. The oldest are
    checked as they are dropped.

    >>> emitted = EmittedElements()
    >>> for element in emitted.track([[1], [2]], source=None):
    ...     element.append(3)
    >>> emitted.verify()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    tidegate.sdk.errors.CheckError: the step emitted an element that was changed afterwards from [1] to [1, 3], ...
    """

    __slots__ = ("_new", "_size", "_tracked")

    def __init__(self) -> None:
        self._tracked: dict[int, tuple[Any, bytes]] = {}
        self._new: dict[int, None] = {}
        self._size = 0

    def track(self, results: Iterable[Any], source: Any) -> Iterator[Any]:
        """Yield the results of the input element `source`, and track the first hundred of them until `verify_new`.

        `source` itself, if it is emitted again, is not tracked here.
        """
        iterator = iter(results)
        for number, element in enumerate(islice(iterator, MAX_TRACKED), start=1):
            self.track_next(number, element, source)
            yield element
        yield from iterator

    def track_next(self, number: int, element: Any, source: Any) -> None:
        """Track one of the results of the input element `source`, numbered from 1, as `track` does."""
        if number <= MAX_TRACKED and element is not source and self._size <= MAX_TRACKED_BYTES:
            key = self._add(element)
            if key is not None:
                self._new[key] = None

    def verify_new(self) -> None:
        """Check the results of the latest input element, once all of them have been emitted. Raises CheckError."""
        new, self._new = self._new, {}
        for key in new:
            self._compare(key)
        self._make_room()

    def track_only(self, element: Any) -> None:
        """Track the only result of an input element. Raises CheckError if it was emitted before and has changed."""
        if type(element) in _IMMUTABLE:
            return
        known = len(self._tracked)
        key = self._add(element)
        if key is not None:
            if len(self._tracked) == known:
                self._compare(key)
            self._make_room()

    def verify(self) -> None:
        """Check and drop all tracked elements, at the end of a bundle. Raises CheckError."""
        self._new.clear()
        while self._tracked:
            self._drop_oldest()

    def _add(self, element: Any) -> int | None:
        while type(element) in SPECIAL:
            element = element.value
        key = id(element)
        if key in self._tracked:
            return key
        before = snapshot(element)
        if before is None:
            return None
        self._tracked[key] = element, before
        self._size += len(before)
        return key

    def _make_room(self) -> None:
        while len(self._tracked) > MAX_TRACKED or self._size > MAX_TRACKED_BYTES:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = next(iter(self._tracked))
        self._compare(oldest)
        self._size -= len(self._tracked.pop(oldest)[1])

    def _compare(self, key: int) -> None:
        element, before = self._tracked[key]
        if changed(before, element):
            raise CheckError(
                f"the step emitted an element that was changed afterwards from {shorten(pickle.loads(before), 60)} to "
                f"{shorten(element, 60)}, by this step or by one that received it: elements are shared between steps, "
                "so they must not be changed once they are emitted. Emit a copy, or build a new value instead"
            )


def check_pair(element: Any) -> None:
    """Raise TypeError for an element that unpacks into two items but is not a pair."""
    if type(element) is not tuple and isinstance(element, (str, bytes, Set, Mapping)):
        raise TypeError(f"{type(element).__name__} is not a pair")


def check_travels(value: Any) -> None:
    """Raise CheckError if an element that crosses an exchange can't be pickled, or is unpickled as another value."""
    if type(value) in _IMMUTABLE or (type(value) is tuple and _IMMUTABLE.issuperset(map(type, value))):
        return
    try:
        data = dumps_within_run(value)
        copy = pickle.loads(data)
    except Exception as error:
        raise CheckError(
            f"the element {shorten(value, 60)} can't be sent to another worker: {explain_unpicklable(value)}"
        ) from error
    if not defines_equality(type(value)) or _equal(copy, value) or not _equal(value, value):
        return
    # A NaN, or an object that compares by identity, equals only itself; then two copies differ from one another, too.
    if _equal(copy, pickle.loads(data)):
        raise CheckError(
            f"the element {shorten(value, 60)} comes back as {shorten(copy, 60)} after pickling: "
            "it does not survive an exchange"
        )


def _immutable(value: Any) -> bool:
    """Whether a value can't be changed in place: a scalar, or a tuple of such, also one with names for its items."""
    kind = type(value)
    if kind in _SCALARS or _is_decimal(kind):
        return True
    if kind is frozenset or (issubclass(kind, tuple) and not kind.__dictoffset__):
        return all(map(_immutable, value))
    return False


def _is_decimal(kind: type) -> bool:
    """Whether a type is Decimal, whose module takes long to import: without it there are no values of the type."""
    module = sys.modules.get("decimal")
    return module is not None and kind is module.Decimal


def defines_equality(kind: Any) -> bool:
    """Whether the class defines `__eq__`, so that instances don't compare by identity."""
    return kind.__eq__ is not object.__eq__


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:
        return True

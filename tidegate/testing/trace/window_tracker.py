"""The keys and windows of a traced step: which windows an element enters, how they merge, and when they expire."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from tidegate.sdk.errors import shorten
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS
from tidegate.sdk.windowing.assigners import is_merging
from tidegate.sdk.windowing.strategy import WindowingStrategy
from tidegate.sdk.windowing.window import window_end
from tidegate.sdk.windowing.window_merging import merge_windows
from tidegate.testing.trace.model import Arrival, Moment
from tidegate.testing.trace.sampling import Sample

MOST_KEYS: Final = 60
"""Further keys are counted, but not shown."""
MOST_PER_KEY: Final = 400
MOST_MARKED: Final = 200
"""For late and dropped elements, which are sampled separately, so that thinning doesn't lose them."""
MOST_WINDOWS: Final = 1500
MOST_OPEN: Final = 20_000
VALUE_LENGTH: Final = 100


@dataclass(slots=True, eq=False)
class TrackedWindow:
    """A window of a key: when it was opened and closed, and the window it has merged into."""

    key: TrackedKey
    window: Any
    opened: Moment
    expiry: int
    closed: Moment | None = None
    into: TrackedWindow | None = None


class TrackedKey:
    """A key: its open windows, and samples of its elements."""

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text
        self.windows: dict[Any, TrackedWindow] = {}
        self.plain: Sample[Arrival] = Sample(MOST_PER_KEY)
        self.marked: Sample[Arrival] = Sample(MOST_MARKED)


class WindowTracker:
    """The keys seen so far, and their open windows at the current watermark."""

    def __init__(self, strategy: WindowingStrategy) -> None:
        self.watermark = MIN_MICROS
        self.keys: dict[Any, TrackedKey] = {}
        self.unkeyed = TrackedKey(-1, "")
        self.windows: Sample[TrackedWindow] = Sample(MOST_WINDOWS)
        self._lateness = strategy.allowed_lateness.micros
        self._merge = merge_windows(strategy.assigner) if is_merging(strategy.assigner) else None
        self._unlisted: set[Any] = set()
        self._expiries: list[tuple[int, int, TrackedWindow]] = []
        self._serial = count()

    @property
    def merges(self) -> bool:
        """Whether the windows of a key may merge."""
        return self._merge is not None

    @property
    def key_count(self) -> int:
        """The number of distinct keys; beyond about 20,000 no more are counted."""
        return len(self.keys) + len(self._unlisted)

    def key(self, key: Any, *, new: bool = True) -> TrackedKey | None:
        """The record of a key, created for a new key if `new`. None for a key that is counted but not shown."""
        try:
            found = self.keys.get(key)
        except TypeError:
            return self.unkeyed
        if found is not None or not new:
            return found
        if len(self.keys) < MOST_KEYS:
            found = self.keys[key] = TrackedKey(len(self.keys), text_of(key))
        elif len(self._unlisted) < MOST_OPEN:
            self._unlisted.add(key)
        return found

    def enter(self, key: TrackedKey | None, windows: Iterable[Any], at: Moment) -> list[TrackedWindow]:
        """Add an element to its windows, merging them first if windows merge; return those that have not expired."""
        if key is None:
            live = [(window, expiry) for window in windows if (expiry := self._expiry(window)) > self.watermark]
            return [TrackedWindow(self.unkeyed, window, at, expiry) for window, expiry in live]
        if self._merge is not None:
            windows = self._merged(key, tuple(windows), at)
        found = (key.windows.get(window) or self._opened(key, window, at) for window in windows)
        return [opened for opened in found if opened is not None]

    def _merged(self, key: TrackedKey, windows: tuple[Any, ...], at: Moment) -> Iterable[Any]:
        assert self._merge is not None
        try:
            merges = self._merge([*key.windows, *windows])
        except Exception:  # in the author's code: the operator reports it
            return windows
        placed = {}
        for united, parts in merges:
            placed.update(dict.fromkeys(parts, united))
            olds = [key.windows[part] for part in parts if part in key.windows and part != united]
            into = key.windows.get(united) or self._opened(key, united, at)
            for old in olds:
                if into is not None:
                    del key.windows[old.window]
                    old.closed, old.into = at, into
        return dict.fromkeys(placed.get(window, window) for window in windows)

    def _expiry(self, window: Any) -> int:
        return min(window_end(window) + self._lateness, MAX_MICROS)

    def _opened(self, key: TrackedKey, window: Any, at: Moment) -> TrackedWindow | None:
        expiry = self._expiry(window)
        if expiry <= self.watermark:
            return None
        opened = TrackedWindow(key, window, at, expiry)
        if len(self._expiries) < MOST_OPEN:
            key.windows[window] = opened
            heappush(self._expiries, (expiry, next(self._serial), opened))
            self.windows.offer(lambda: opened)
        return opened

    def expire(self, at: Moment) -> None:
        """Close the windows whose expiry the watermark has reached."""
        while self._expiries and self._expiries[0][0] <= self.watermark:
            opened = heappop(self._expiries)[2]
            if opened.closed is None:
                opened.closed = at
                opened.key.windows.pop(opened.window, None)


def text_of(value: Any) -> str:
    """A key or a value as text, shortened for a trace."""
    return shorten(value, VALUE_LENGTH)

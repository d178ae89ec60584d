"""The elements whose calls have not been emitted yet, divided into segments by the watermarks between them.

A watermark waits for the elements before it, and no result is emitted before a watermark that preceded its element.
Within a segment, results are emitted in the order of the elements, or as they arrive.

>>> from tidegate.sdk.data.panes import NO_PANE
>>> queue = CallQueue(ordered=False)
>>> first, second, third = (Entry(name, 0, (), NO_PANE) for name in ("first", "second", "third"))
>>> queue.add(first); queue.add(second)
>>> queue.advance(5)
>>> queue.add(third)
>>> queue.complete(third, Outcome("3")); queue.complete(second, Outcome("2"))
>>> [entry.value for entry in queue.take()], queue.hold() == MIN_MICROS
(['second'], True)
>>> queue.complete(first, Outcome("1"))
>>> [entry.value for entry in queue.take()], queue.hold(), [entry.value for entry in queue.take()]
(['first'], 5, ['third'])
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from tidegate.runners.engine.asynchronous.outcomes import Outcome
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS


class Entry:
    """An element: its value, timestamp (µs), windows and pane, and the outcome of its call (None: not known yet)."""

    __slots__ = ("micros", "outcome", "pane", "segment", "value", "windows")

    def __init__(self, value: Any, micros: int, windows: tuple[Any, ...], pane: PaneInfo) -> None:
        self.value = value
        self.micros = micros
        self.windows = windows
        self.pane = pane
        self.outcome: Outcome | None = None
        self.segment: _Segment | None = None


class _Segment:
    """The elements between two watermarks; `watermark` is the one before them. `done`: in an unordered queue, the
    elements with an outcome, in the order in which these arrived."""

    __slots__ = ("done", "entries", "watermark")

    def __init__(self, watermark: int) -> None:
        self.watermark = watermark
        self.entries: dict[Entry, None] = {}
        self.done: deque[Entry] = deque()


class CallQueue:
    """The queue of one operator."""

    def __init__(self, *, ordered: bool) -> None:
        self._ordered = ordered
        self._segments: deque[_Segment] = deque([_Segment(MIN_MICROS)])
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def first(self) -> object:
        """The first segment, whose results `take` returns."""
        return self._segments[0]

    def add(self, entry: Entry) -> None:
        """Append an element."""
        entry.segment = self._segments[-1]
        entry.segment.entries[entry] = None
        self._size += 1

    def advance(self, watermark: int) -> None:
        """Append a watermark."""
        last = self._segments[-1]
        if last.entries:
            self._segments.append(_Segment(watermark))
        else:
            last.watermark = watermark

    def complete(self, entry: Entry, outcome: Outcome) -> None:
        """Record the outcome of an element's call."""
        entry.outcome = outcome
        if not self._ordered:
            assert entry.segment is not None
            entry.segment.done.append(entry)

    @property
    def ready(self) -> bool:
        """Whether `take` would return any element."""
        segment = self._segments[0]
        if not self._ordered:
            return bool(segment.done)
        return bool(segment.entries) and next(iter(segment.entries)).outcome is not None

    def take(self) -> list[Entry]:
        """Remove and return the elements of the first segment that can be emitted."""
        segment = self._segments[0]
        if self._ordered:
            taken = []
            for entry in segment.entries:
                if entry.outcome is None:
                    break
                taken.append(entry)
        else:
            taken = list(segment.done)
            segment.done.clear()
        for entry in taken:
            del segment.entries[entry]
        self._size -= len(taken)
        if not segment.entries and len(self._segments) > 1:
            self._segments.popleft()
        return taken

    @property
    def watermark(self) -> int:
        """The last watermark."""
        return self._segments[-1].watermark

    def hold(self) -> int:
        """The watermark before the first element; MAX_MICROS if there is none."""
        return self._segments[0].watermark if self._size else MAX_MICROS

    def low(self) -> int:
        """The least timestamp of an element; MAX_MICROS if there is none."""
        return min((entry.micros for _, entry in self.entries()), default=MAX_MICROS)

    def entries(self) -> Iterator[tuple[int, Entry]]:
        """Each element, with the watermark before it."""
        for segment in self._segments:
            for entry in segment.entries:
                yield segment.watermark, entry

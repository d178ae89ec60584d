"""The sessions of one key: disjoint intervals in ascending order. A session that overlaps others merges with them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, TypeAlias

Session: TypeAlias = tuple[int, int, Any]
"""Start and end (µs, the end is exclusive), and contents: a count, an accumulator, or (arrival number, value) pairs."""

_start: Final = itemgetter(0)
_end: Final = itemgetter(1)


class KeySessions:
    """The sessions of the key that was the `number`-th to arrive.

    `start`, `end` and `contents` are those of the newest session, to which most elements belong: operators add to it
    directly. `older` has the other sessions.

    >>> from operator import add
    >>> sessions = KeySessions(10, 20, 1, number=0)
    >>> sessions.add(40, 50, 1, add), sessions.to_list()
    (1, [(10, 20, 1), (40, 50, 1)])
    >>> sessions.add(15, 45, 1, add), sessions.to_list()
    (-1, [(10, 50, 3)])
    """

    __slots__ = ("contents", "end", "number", "older", "start")

    def __init__(self, start: int, end: int, contents: Any, number: int) -> None:
        self.start = start
        self.end = end
        self.contents = contents
        self.older: list[Session] = []
        self.number = number

    @staticmethod
    def of(sessions: list[Session], number: int) -> KeySessions:
        """From sessions as `to_list` returns them."""
        *older, (start, end, contents) = sessions
        result = KeySessions(start, end, contents, number)
        result.older = older
        return result

    def to_list(self) -> list[Session]:
        """All sessions, ascending."""
        return [*self.older, (self.start, self.end, self.contents)]

    @property
    def first_end(self) -> int:
        """The end of the earliest session."""
        return self.older[0][1] if self.older else self.end

    def overlaps(self, start: int, end: int) -> bool:
        """True if [start, end) overlaps a session."""
        if start >= self.end:
            return False
        if end > self.start:
            return True
        older = self.older
        at = bisect_right(older, start, key=_start)
        return (at > 0 and older[at - 1][1] > start) or (at < len(older) and older[at][0] < end)

    def add(self, start: int, end: int, contents: Any, merge: Callable[[Any, Any], Any]) -> int:
        """Add a session, merged with those it overlaps. Returns by how many sessions the key now has more."""
        older = self.older
        if start >= self.end:
            older.append((self.start, self.end, self.contents))
            self.start, self.end, self.contents = start, end, contents
            return 1
        before = len(older)
        if end > self.start:
            start, self.end = min(start, self.start), max(end, self.end)
            contents = merge(self.contents, contents)
            while older and older[-1][1] > start:
                earlier, _, theirs = older.pop()
                start = min(earlier, start)
                contents = merge(theirs, contents)
            self.start, self.contents = start, contents
            return len(older) - before
        at = bisect_right(older, start, key=_start)  # the first session that starts after this one
        low = at - 1 if at and older[at - 1][1] > start else at
        high = at
        while high < len(older) and older[high][0] < end:
            high += 1
        for other_start, other_end, theirs in older[low:high]:
            start, end = min(start, other_start), max(end, other_end)
            contents = merge(theirs, contents)
        older[low:high] = [(start, end, contents)]
        return len(older) - before

    def pop_older(self, watermark: int) -> list[Session]:
        """Remove and return those of the older sessions that end at the watermark or before."""
        n = bisect_right(self.older, watermark, key=_end)
        ended = self.older[:n]
        del self.older[:n]
        return ended

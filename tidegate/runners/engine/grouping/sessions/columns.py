"""Sessions of many keys as columns, to be sorted and emitted."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, count, islice
from operator import eq, itemgetter
from typing import Any, Final, NamedTuple

_EXACT_FLOATS: Final = 1 << 53


class SessionColumns(NamedTuple):
    """Sessions: the ends come first, because that is what they are sorted by. Times are µs.

    >>> columns = SessionColumns([30, 20, 30], [5, 0, 0], ["a", "b", "a"], [1, 2, 3])
    >>> [list(map(list, part)) for part in columns.in_order(2)]
    [[[20, 30], [0, 0], ['b', 'a'], [2, 3]], [[30], [5], ['a'], [1]]]
    """

    ends: Sequence[int] = ()
    starts: Sequence[int] = ()
    keys: Sequence[Any] = ()
    contents: Sequence[Any] = ()

    def in_order(self, size: int) -> Iterator[SessionColumns]:
        """The sessions by (end, start), and those with equal bounds in their present order, `size` at a time."""
        order, ends = _order(self.ends, self.starts)
        for at in range(0, len(order), size):
            pick = _picking(order[at : at + size])
            yield SessionColumns(ends[at : at + size], pick(self.starts), pick(self.keys), pick(self.contents))


def _order(ends: Sequence[int], starts: Sequence[int]) -> tuple[list[int], list[int]]:
    """The positions of the sessions by (end, start, position), and the ends in that order."""
    order = list(range(len(ends)))
    # Floats compare faster than large ints, but represent only those below 2**53 exactly.
    order.sort(key=list(map(float, ends)).__getitem__)
    if order and not -_EXACT_FLOATS < ends[order[0]] <= ends[order[-1]] < _EXACT_FLOATS:
        order.sort(key=ends.__getitem__)
    ordered = list(map(ends.__getitem__, order))
    # Few sessions share an end: only those are sorted by start.
    for at in compress(count(), map(eq, ordered, islice(ordered, 1, None))):
        first = bisect_left(ordered, ordered[at])
        if first == at:
            past = bisect_right(ordered, ordered[at])
            order[first:past] = sorted(order[first:past], key=starts.__getitem__)
    return order, ordered


def _picking(index: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that returns a column's entries at `index`, in that order."""
    if len(index) > 1:
        return itemgetter(*index)
    return lambda column: [column[i] for i in index]

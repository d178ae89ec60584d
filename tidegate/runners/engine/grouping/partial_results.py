"""Partial results that let the merge count late elements one by one, although it drops whole partial results.

A combine before the exchange usually knows which elements may be late: the merge's watermark is the minimum over all
tasks. But an idle task is left out of the minimum, so from then on the merge may be ahead of it, and may drop results
that this task took to be on time. Such a task counts the elements of each partial result; the number travels in the
result's pane, which no other step sees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from tidegate.runners.engine.grouping.batch_table import ONLY_PANE
from tidegate.runners.engine.grouping.lateness_gate import LatenessGate
from tidegate.sdk.data.block import Block, Each, in_several
from tidegate.sdk.data.panes import PaneInfo, Timing


@lru_cache(1024)
def partial_pane(elements: int) -> PaneInfo:
    """The pane of a partial result that combines so many elements: its indexes are those of the last of them.

    >>> elements_in(partial_pane(3))
    3
    """
    return PaneInfo(True, True, Timing.ON_TIME, elements - 1, elements - 1)


def elements_in(pane: PaneInfo) -> int:
    """How many elements a partial result with this pane combines, if it may be late."""
    return pane.index + 1


def to_merge(block: Block, gate: LatenessGate, copied: Callable[[Any], Any]) -> Block:
    """The partial results of a block that are not late, each in one window only. Counts the elements in the others.

    A result in several windows becomes one for each: `copied` returns a copy, since merging may change accumulators.
    """
    if block.panes == ONLY_PANE and not in_several(block.windows):
        return block  # each has one element, or can't be late: they are treated like elements
    values: list[Any] = []
    windows_column: list[tuple[Any, ...]] = []
    for value, windows, pane in zip(block.values, block.window_list(), block.pane_list(), strict=True):
        still_open = [window for window in windows if gate.is_open(window)]
        if windows and not still_open:
            gate.late += elements_in(pane)
        for number, window in enumerate(still_open):
            values.append(copied(value) if number else value)
            windows_column.append((window,))
    return Block(values, windows=Each(windows_column), panes=ONLY_PANE)


class CountedTable(Counter[Any]):
    """A table that counts the elements of each entry. The loop gets an entry once for each element that it adds."""

    def __init__(self) -> None:
        super().__init__()
        self.added: dict[Any, int] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        self.added[key] = self.added.get(key, 0) + 1
        return dict.get(self, key, default)


class UncombinedElements:
    """Elements that a combine before the exchange does not combine: each is an accumulator with all its windows.

    The merge after the exchange may have another watermark, so it decides which elements are late. It counts elements
    (SEMANTICS, Lateness), which it could not if an element were in several accumulators.
    """

    __slots__ = ("_diverting", "_rows", "may_be_behind")

    def __init__(self) -> None:
        self.may_be_behind = False
        """Whether the merge may be ahead: then only elements in one window are combined, and are counted."""
        self._rows: list[tuple[tuple[Any, ...], Any]] = []
        self._diverting = False

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, windows: tuple[Any, ...], row: Any) -> None:
        """Add one element, as the input of the merge."""
        self._rows.append((windows, row))

    def diverts(self, windows: tuple[Any, ...], gate: LatenessGate) -> bool:
        """Return whether to leave an element, whose windows are ascending, uncombined.

        True from the first that may be late until the next `drain`: values of a key and window keep their order.
        """
        if not windows:
            return False
        alone = (self.may_be_behind and len(windows) > 1) or not gate.is_open(windows[0])
        self._diverting = self._diverting or alone
        return self._diverting

    def drain(self, size: int) -> Iterator[tuple[tuple[Any, ...], list[Any]]]:
        """Remove all elements, and return them in order: at most `size` at a time, and with the same windows."""
        drained, self._rows, self._diverting = self._rows, [], False
        for windows, run in groupby(drained, key=itemgetter(0)):
            rows = [row for _, row in run]
            yield from ((windows, rows[at : at + size]) for at in range(0, len(rows), size))


class AllWindows:
    """The only item of the loop over the windows of an uncombined element: stands for all of them."""

    __slots__ = ("windows",)

    def __init__(self, windows: tuple[Any, ...]) -> None:
        self.windows = windows


class UncombinedTable(dict[Any, Any]):
    """The table to which the loop adds an uncombined element. It stays empty, so that each begins an accumulator."""

    __slots__ = ("uncombined", "windows")

    def __init__(self, uncombined: UncombinedElements, windows: tuple[Any, ...]) -> None:
        super().__init__()
        self.uncombined = uncombined
        self.windows = windows

    def __setitem__(self, key: Any, value: Any) -> None:
        self.uncombined.add(self.windows, (key, value))

    def update(self, elements: Any) -> None:  # type: ignore[override]  # as a Counter
        for element in elements:
            hash(element)
            self.uncombined.add(self.windows, (element, 1))

"""Block: the unit of work, consecutive elements stored as columns.

A column whose entries are all equal is stored as one entry. The windows column is the `Same` for all elements, an entry
for `Each`, or `DerivedFrom` an assigner: computed when needed, and valid only for the timestamps that were assigned.

>>> block = Block(["a", "b", "c"], [1, 2, 3])
>>> block.slice(1, 3).values, block.slice(1, 3).timestamps
(['b', 'c'], [2, 3])
>>> block.window_list() == [(GlobalWindow(),)] * 3
True
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import Any, Final, TypeAlias, overload

from tidegate.sdk.data.panes import NO_PANE, PaneInfo
from tidegate.sdk.data.values import TimestampedValue
from tidegate.sdk.time import MIN_MICROS
from tidegate.sdk.windowing.assigners import BuiltinAssigner, may_give_several
from tidegate.sdk.windowing.assignment import assign_windows
from tidegate.sdk.windowing.window import GlobalWindow

BLOCK_SIZE: Final = 4096
"""The default of the greatest number of elements in a block."""


@dataclass(frozen=True, slots=True)
class Same:
    """The same windows for all elements."""

    windows: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Each:
    """A tuple of windows for each element."""

    windows: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class DerivedFrom:
    """The windows that an assigner assigns to each element's timestamp."""

    assigner: BuiltinAssigner


class Pairs(Sequence[tuple[Any, Any]]):
    """Pairs stored as two columns, as groupings emit them and exchanges send them, which avoids creating tuples."""

    __slots__ = ("firsts", "seconds")  # not "keys": `dict(pairs)` would treat an object with `keys` as a mapping

    def __init__(self, firsts: Sequence[Any], seconds: Sequence[Any]) -> None:
        self.firsts = firsts
        self.seconds = seconds

    def __len__(self) -> int:
        return len(self.firsts)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return zip(self.firsts, self.seconds, strict=True)

    @overload
    def __getitem__(self, at: int) -> tuple[Any, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> Pairs: ...
    def __getitem__(self, at: int | slice) -> tuple[Any, Any] | Pairs:
        if isinstance(at, slice):
            return Pairs(self.firsts[at], self.seconds[at])
        return self.firsts[at], self.seconds[at]


def as_pairs(values: Sequence[Any]) -> Pairs | None:
    """The values as two columns if all of them are pairs, else None."""
    if type(values) is Pairs:
        return values
    if set(map(type, values)) == {tuple} and set(map(len, values)) == {2}:
        return Pairs([k for k, _ in values], [v for _, v in values])
    return None


def keys_of(values: Sequence[Any]) -> Sequence[Any]:
    """The keys of pairs. TypeError or ValueError if a value is not a pair."""
    return values.firsts if type(values) is Pairs else [k for k, _ in values]


WindowsColumn: TypeAlias = Same | Each | DerivedFrom
TimestampsColumn: TypeAlias = int | Sequence[int]
PanesColumn: TypeAlias = PaneInfo | list[PaneInfo]

GLOBAL: Final = Same((GlobalWindow(),))


class Block:
    """Consecutive elements: their `values`, `timestamps` (µs), `windows` and `panes`, as columns.

    Timestamps that differ are a list, or an `array` if they were computed together. `span` is a lower and an upper
    bound of the timestamps; None if unknown.
    """

    __slots__ = ("panes", "span", "timestamps", "values", "windows")

    def __init__(
        self,
        values: Sequence[Any],
        timestamps: TimestampsColumn = MIN_MICROS,
        windows: WindowsColumn = GLOBAL,
        panes: PanesColumn = NO_PANE,
        span: tuple[int, int] | None = None,
    ) -> None:
        self.values = values
        self.timestamps = timestamps
        self.windows = windows
        self.panes = panes
        self.span = span

    @staticmethod
    def of(values: Sequence[Any], timestamps: TimestampsColumn = MIN_MICROS) -> Block:
        """A block as readers return it: in the global window, without panes."""
        return Block(values, timestamps)

    @staticmethod
    def of_elements(elements: Sequence[Any]) -> Block:
        """A block of elements, with the timestamps of those that are `TimestampedValue`s.

        >>> block = Block.of_elements([TimestampedValue("a", 5), TimestampedValue("b", 7)])
        >>> block.values, block.timestamps
        (['a', 'b'], [5000000, 7000000])
        """
        if isinstance(elements, range):
            return Block(elements)
        kinds = {kind for kind, _ in islice(groupby(elements, type), 2)}  # faster than a set of all types
        if len(kinds) > 1:
            kinds = set(map(type, elements))
        if TimestampedValue not in kinds:
            return Block(elements)
        if len(kinds) == 1:
            return Block([e.value for e in elements], [e.micros for e in elements])
        values = [e.value if type(e) is TimestampedValue else e for e in elements]
        return Block(values, [e.micros if type(e) is TimestampedValue else MIN_MICROS for e in elements])

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, stop: int) -> Block:
        """The elements from `start` up to, but not including, `stop`."""
        timestamps = self.timestamps if isinstance(self.timestamps, int) else self.timestamps[start:stop]
        windows = Each(self.windows.windows[start:stop]) if isinstance(self.windows, Each) else self.windows
        panes = self.panes if isinstance(self.panes, PaneInfo) else self.panes[start:stop]
        return Block(self.values[start:stop], timestamps, windows, panes, self.span)

    def split(self, limit: int) -> Iterator[Block]:
        """The same elements in blocks of at most `limit` elements."""
        if len(self.values) <= limit:
            yield self
            return
        for start in range(0, len(self.values), limit):
            yield self.slice(start, start + limit)

    def timestamp_column(self) -> Sequence[int]:
        """A timestamp (µs) for each element."""
        return [self.timestamps] * len(self.values) if isinstance(self.timestamps, int) else self.timestamps

    def window_list(self) -> list[tuple[Any, ...]]:
        """A tuple of windows for each element."""
        match self.windows:
            case Same(windows):
                return [windows] * len(self.values)
            case Each(windows):
                return windows
            case DerivedFrom(assigner):
                assign = assign_windows(assigner)
                if isinstance(self.timestamps, int):
                    return [assign(self.timestamps)] * len(self.values)
                return [assign(t) for t in self.timestamps]

    def pane_list(self) -> list[PaneInfo]:
        """A pane for each element."""
        return [self.panes] * len(self.values) if isinstance(self.panes, PaneInfo) else self.panes

    def __repr__(self) -> str:
        return f"Block({len(self.values)} elements)"


class RawBlock(Block):
    """A block of `elements` that nothing has looked at yet: some may be `TimestampedValue`s.

    Its values and timestamps are those of `of_elements`, found when either is first asked for. A loop that can't take a
    `TimestampedValue` for a value may read the elements instead, and saves looking at the type of each.

    >>> block = RawBlock([TimestampedValue("a", 5), "b"])
    >>> block.values, block.timestamps[0]
    (['a', 'b'], 5000000)
    """

    __slots__ = ("elements",)

    def __init__(self, elements: Sequence[Any]) -> None:
        self.elements = elements
        self.windows = GLOBAL
        self.panes = NO_PANE
        self.span = None

    def __getattr__(self, name: str) -> Any:
        """Look at the elements: a slot that is not set yet has been asked for."""
        if name not in ("values", "timestamps"):
            raise AttributeError(name)
        block = Block.of_elements(self.elements)
        self.values, self.timestamps = block.values, block.timestamps
        return getattr(self, name)

    def __len__(self) -> int:
        return len(self.elements)


def in_several(column: WindowsColumn) -> bool:
    """Whether an element may be in more than one window, or in none."""
    match column:
        case Same(windows):
            return len(windows) != 1
        case Each(windows):
            return set(map(len, windows)) != {1}
        case DerivedFrom(assigner):
            return may_give_several(assigner)


def take_timestamps(column: TimestampsColumn, index: list[int]) -> TimestampsColumn:
    """The column's entries at `index`, in that order."""
    return column if isinstance(column, int) else [column[i] for i in index]


def take_windows(column: WindowsColumn, index: list[int]) -> WindowsColumn:
    """The column's entries at `index`, in that order."""
    match column:
        case Each(windows):
            return Each([windows[i] for i in index])
        case _:
            return column


def take_panes(column: PanesColumn, index: list[int]) -> PanesColumn:
    """The column's entries at `index`, in that order."""
    return column if isinstance(column, PaneInfo) else [column[i] for i in index]


def joined(blocks: Sequence[Block]) -> Block:
    """The elements of all blocks, in order, as one block; a column whose entries are all equal stays one entry."""
    if len(blocks) == 1:
        return blocks[0]
    first, others = blocks[0], blocks[1:]
    values = list(chain.from_iterable([block.values for block in blocks]))
    timestamps: TimestampsColumn = first.timestamps
    if not isinstance(timestamps, int) or any(block.timestamps != timestamps for block in others):
        timestamps = list(chain.from_iterable([block.timestamp_column() for block in blocks]))
    windows: WindowsColumn = first.windows
    if isinstance(windows, Each) or any(block.windows != windows for block in others):
        windows = Each(list(chain.from_iterable([block.window_list() for block in blocks])))
    panes: PanesColumn = first.panes
    if not isinstance(panes, PaneInfo) or any(block.panes != panes for block in others):
        panes = list(chain.from_iterable([block.pane_list() for block in blocks]))
    return Block(values, timestamps, windows, panes)

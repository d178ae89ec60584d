"""Solution: the part of a loop's state that stays where it is, one value for each key and window.

>>> from tidegate.sdk.data.block import Block
>>> solution = Solution(merge=min)
>>> solution.fill([Block([("a", 3), ("b", 1)])])
>>> [list(block.values) for block in (*solution.update(Block([("a", 2), ("b", 5)])), *solution)]
[[('a', 2)], [('a', 2), ('b', 1)]]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import fields, is_dataclass
from itertools import compress, islice, repeat
from operator import is_
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.errors.attribution import rethrow
from tidegate.runners.engine.grouping.batch_table import ONLY_PANE
from tidegate.sdk.authoring.combine import CombineFn, MaxFn, MinFn
from tidegate.sdk.data.block import BLOCK_SIZE, Block, Pairs, Same, as_pairs, take_panes, take_timestamps
from tidegate.sdk.errors import RunError
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.windowing.window import window_end, window_order

_NOTHING: Final = object()


def merging_function(combiner: UserFn | None) -> Callable[[list[Any]], Any] | None:
    """What a loop's combiner makes of a value and a new one: the function itself if it is one that `Merging` knows."""
    if combiner is None:
        return None
    loaded: CombineFn[Any, Any, Any] = combiner.load()
    known = _FUNCTIONS.get(type(loaded))
    return loaded.apply if known is None else known


class Merging:
    """How pairs are merged into the values of a solution.

    `merge` makes one value of a list of two, the old one first; without it, a new value takes the place of the old.
    Plain numbers and texts are merged by `min` and `max` without a call for each. `changed` says whether a value
    differs from the one before it (the default: `differ`). `attributed` makes of what one of them raises for a key the
    error for the author.
    """

    def __init__(
        self,
        merge: Callable[[list[Any]], Any] | None,
        changed: Callable[[Any, Any], Any] | None,
        attributed: Callable[[BaseException, Any], BaseException] | None,
    ) -> None:
        self._merge = merge
        self._changed = differ if changed is None else changed
        self._attributed = attributed
        self._changes = None if changed is not None else _CHANGES.get(merge)

    def into(self, new: dict[Any, Any], table: dict[Any, Any], block: Block) -> Pairs:
        """Merge pairs with the values of a table, and put the values that are not the same objects into `new`, which
        may be the table; return the pairs whose values have changed, with the new values."""
        plain = None if self._changes is None else _merged_plain(self._changes, table, block.values)
        if plain is not None:
            new.update(plain)
            return plain
        merge, changed, get = self._merge, self._changed, table.get
        keys: list[Any] = []
        values: list[Any] = []
        key = None
        try:
            for key, value in block.values:
                old = get(key, _NOTHING)
                merged = value if merge is None or old is _NOTHING else merge([_own(old), value])
                if old is _NOTHING or changed(old, merged):
                    keys.append(key)
                    values.append(merged)
                if merged is not old:
                    new[key] = merged
        except Exception as error:
            rethrow(error if self._attributed is None else self._attributed(error, key))
        return Pairs(keys, values)


class Solution:
    """Tables of values, `[window][key]`, in memory. The arguments are those of `Merging`."""

    def __init__(
        self,
        merge: Callable[[list[Any]], Any] | None = None,
        changed: Callable[[Any, Any], Any] | None = None,
        attributed: Callable[[BaseException, Any], BaseException] | None = None,
    ) -> None:
        self.tables: dict[Any, dict[Any, Any]] = {}
        self._merging = Merging(merge, changed, attributed)

    @property
    def elements(self) -> int:
        """How many values there are."""
        return sum(map(len, self.tables.values()))

    def fill(self, blocks: Iterable[Block]) -> None:
        """Add pairs with different keys or windows."""
        for block in blocks:
            for window, part in by_window(block):
                self.tables.setdefault(window, {}).update(part.values)

    def update(self, block: Block) -> Iterator[Block]:
        """Merge pairs into the solution; return those whose values have changed, with their new values."""
        for window, part in by_window(block):
            table = self.tables.setdefault(window, {})
            changed = self._merging.into(table, table, part)
            if len(changed):
                yield in_window(changed, window)

    def __iter__(self) -> Iterator[Block]:
        return blocks_of(self.tables)

    def clear(self) -> None:
        """Drop all values."""
        self.tables.clear()

    def snapshot(self) -> list[tuple[Any, ...]]:
        """The columns of blocks with all values."""
        return [(block.values, block.timestamps, block.windows, block.panes, block.span) for block in self]

    def restore(self, blocks: list[tuple[Any, ...]]) -> None:
        """Add what `snapshot` returned."""
        self.fill(Block(*columns) for columns in blocks)


def blocks_of(tables: Mapping[Any, Mapping[Any, Any]]) -> Iterator[Block]:
    """The pairs of all tables, in the order of their windows."""
    for window in sorted(tables, key=window_order):
        keys, values = iter(tables[window]), iter(tables[window].values())
        while some := list(islice(keys, BLOCK_SIZE)):
            yield in_window(Pairs(some, list(islice(values, BLOCK_SIZE))), window)


def in_window(pairs: Pairs, window: Any) -> Block:
    """Pairs of a solution as a block: their timestamps are the end of their window."""
    return Block(pairs, window_end(window) - 1, Same((window,)), ONLY_PANE)


Olds: TypeAlias = Sequence[Any]
"""The values that keys have had before; _NOTHING for one that had none."""


def _lesser(values: Sequence[Any], olds: Olds) -> list[Any]:
    return [old is _NOTHING or value < old for value, old in zip(values, olds, strict=True)]


def _greater(values: Sequence[Any], olds: Olds) -> list[Any]:
    return [old is _NOTHING or value > old for value, old in zip(values, olds, strict=True)]


_CHANGES: Final[Mapping[Any, Callable[[Sequence[Any], Olds], list[Any]]]] = {min: _lesser, max: _greater}
"""By `merge`, the function that says which values take the place of the old ones. The others change nothing."""

_FUNCTIONS: Final[Mapping[type, Callable[[list[Any]], Any]]] = {MinFn: min, MaxFn: max}
"""The functions of combiners."""

_ORDERED: Final = frozenset((bool, int, float, str, bytes))
"""Types whose values differ if one is less than the other."""


def _merged_plain(
    changes: Callable[[Sequence[Any], Olds], list[Any]], table: dict[Any, Any], values: Sequence[Any]
) -> Pairs | None:
    """The pairs that change a table. None if one of the values is not of one of the ordered types, or can't be compared
    with the one before."""
    pairs = as_pairs(values)
    if pairs is None:
        return None
    keys, news = pairs.firsts, pairs.seconds
    olds = list(map(table.get, keys, repeat(_NOTHING)))
    if not _ORDERED.issuperset(map(type, news)) or not (_ORDERED | {object}).issuperset(map(type, olds)):
        return None
    try:
        changed = changes(news, olds)
    except TypeError:
        return None
    return Pairs(list(compress(keys, changed)), list(compress(news, changed)))


_UNCHANGING: Final = frozenset((bool, int, float, complex, str, bytes, frozenset, type(None)))


def _own(value: Any) -> Any:
    """A value that a merge may change: a copy, or what it returns could not be told from the value before.

    What a value holds is copied as well, except what is equal to itself alone, since it would differ from its copy, and
    what is hashed: elements of sets, and keys.
    """
    return value if type(value) in _UNCHANGING else _copied(value, {})


def _copied(value: Any, copies: dict[int, Any]) -> Any:
    """A copy of a value, in which what was one object is one; `copies` are those made already, by `id`."""
    kind: Any = type(value)
    if kind in _UNCHANGING or kind.__eq__ is object.__eq__:
        return value
    if id(value) in copies:
        return copies[id(value)]
    if isinstance(value, tuple):
        if _UNCHANGING.issuperset(map(type, value)):
            return value
        items = [_copied(each, copies) for each in value]
        return value if all(map(is_, items, value)) else tuple.__new__(kind, items)
    try:
        new = copies[id(value)] = copy(value)
    except TypeError:  # such as a view of a dict, which a merge can't change either
        return value
    if new is value or (hasattr(kind, "__copy__") and not isinstance(value, (dict, list))):
        return new
    if isinstance(new, dict):
        if not _UNCHANGING.issuperset(map(type, new.values())):
            for key, each in value.items():
                new[key] = _copied(each, copies)
    elif isinstance(new, list):
        if not _UNCHANGING.issuperset(map(type, new)):
            new[:] = [_copied(each, copies) for each in new]
    elif hasattr(new, "__dict__"):
        if (held := vars(new)) is not vars(value):  # a bound method shows the one of its function
            for name, each in list(held.items()):
                held[name] = _copied(each, copies)
    elif is_dataclass(new):
        for name in (field.name for field in fields(new) if hasattr(new, field.name)):
            object.__setattr__(new, name, _copied(getattr(new, name), copies))
    return new


def by_window(block: Block) -> Iterator[tuple[Any, Block]]:
    """The elements of a block by window; an element in several windows once for each."""
    match block.windows:
        case Same((window,)):
            yield window, block
            return
    places: dict[Any, list[int]] = {}
    for at, windows in enumerate(block.window_list()):
        for window in windows:
            places.setdefault(window, []).append(at)
    for window, chosen in places.items():
        values = [block.values[at] for at in chosen]
        timestamps, panes = take_timestamps(block.timestamps, chosen), take_panes(block.panes, chosen)
        yield window, Block(values, timestamps, Same((window,)), panes)


def differ(old: Any, new: Any) -> bool:
    """Whether values differ. NaN equals NaN, and arrays are equal if their elements are.

    >>> differ(1, 1.0), differ((1, float("nan")), (1, float("nan"))), differ([1], [2])
    (False, False, True)
    """
    if old is new:
        return False
    match old, new:
        case ((tuple() | list()), (tuple() | list())) if type(old) is type(new):
            return len(old) != len(new) or any(map(differ, old, new))
        case (dict(), dict()):
            return old.keys() != new.keys() or any(differ(value, new[key]) for key, value in old.items())
    try:
        if getattr(old, "shape", ()) or getattr(new, "shape", ()):  # numbers of numpy have the shape ()
            return _shaped_differ(old, new)
        return bool(old != new) and not (bool(old != old) and bool(new != new))
    except (AttributeError, TypeError, ValueError) as error:
        raise RunError(
            f"whether a value of type {type(old).__name__} has changed can't be said by != ({error}): "
            "give changed=, a function of the old and the new value"
        ) from error


def _shaped_differ(old: Any, new: Any) -> bool:
    """Whether arrays, or tables and columns of pandas, differ; those differ from whatever has no shape or another."""
    if getattr(old, "shape", ()) != getattr(new, "shape", ()):
        return True
    if hasattr(old, "equals") or hasattr(new, "equals"):
        return not (type(old) is type(new) and old.equals(new))
    kinds = {getattr(getattr(each, "dtype", None), "kind", "") for each in (old, new)}
    if kinds <= set("biufc"):
        import numpy as np

        return not np.array_equal(old, new, equal_nan=kinds <= set("fc"))
    return differ(old.ravel().tolist(), new.ravel().tolist())

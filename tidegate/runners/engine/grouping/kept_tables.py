"""CoGroupByKey in a loop: what is the same in all rounds is grouped once, and each round adds a table of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tidegate.runners.engine.elementwise.shape import Fold, FoldedWindows
from tidegate.runners.engine.grouping.batch_table import ONLY_PANE, Grouping
from tidegate.runners.engine.grouping.fold_codegen import APPEND
from tidegate.runners.engine.grouping.spillable_tables import SpillableTables
from tidegate.runners.engine.loop_tables import Group, Groups, JoinTables, Kept, KeptTables
from tidegate.runners.engine.memory.spill import chunks
from tidegate.runners.engine.operator import Context, Emitted
from tidegate.sdk.authoring.combine import CoGroupFn, ListFn
from tidegate.sdk.data.block import Block, Same
from tidegate.sdk.portable.model import CombinePerKey
from tidegate.sdk.windowing.window import window_end


def kept_tables(grouping: Grouping, collections: int) -> Kept | None:
    """The tables of a grouping to which the elements of so many collections have been added; None if they exceed its
    memory budget.

    If the groups are only read for pairs of a changing value and a kept one, or none, only the kept values are kept.
    The reader is a Join then, which gets the same pairs from each changing value alone. It changes no list.
    """
    tables, combiner, node = grouping.tables, grouping.combiner, grouping.node
    assert isinstance(combiner, CoGroupFn)
    assert isinstance(node, CombinePerKey)
    if tables.spilled:
        for _ in tables.drain():  # removes the files
            pass
        return None
    for table in tables.by_window.values():
        tables.check_keys(table)
    filled = [
        at
        for at in range(combiner.size)
        if any(group[at] for table in tables.by_window.values() for group in table.values())
    ]
    others = [at for at in range(combiner.size) if at not in filled]
    changing = others[0] if len(filled) == collections == combiner.size - 1 else None
    if changing is None or changing not in node.needs:
        return KeptTables(tables.by_window, tuple(filled), changing)
    for table in tables.by_window.values():
        for key, group in table.items():
            table[key] = group[1 - changing]
    return JoinTables(tables.by_window, changing)


def kept_grouping(node: CombinePerKey, context: Context, main: str, kept: KeptTables) -> Grouping:
    """The grouping of one round."""
    if kept.changing is None:
        return KeptGrouping(node, context, main, kept)
    return OneChanging(node, context, main, kept, kept.changing)


class KeptGrouping(Grouping):
    """The grouping of one round: of what changes, joined with the tables that are kept."""

    def __init__(self, node: CombinePerKey, context: Context, main: str, kept: KeptTables) -> None:
        super().__init__(node, "whole", context, main)
        self._needs = node.needs
        self._kept = kept

    def _drain_tables(self) -> Iterator[tuple[Any, Groups]]:
        unmet = self._kept.emitted_alone(self._needs)
        for window, table in super()._drain_tables():
            kept = self._kept.by_window.get(window, {})
            met = self._add_kept(table, kept)
            if window in unmet and met:
                unmet[window] = {} if met == len(kept) else _without(unmet[window], table)
            yield window, self._needed(table)
        for window, groups in unmet.items():
            yield window, self._needed({key: tuple([values[:] for values in group]) for key, group in groups.items()})

    def _add_kept(self, table: Groups, kept: Groups) -> int:
        """Add copies of what is kept to a round's groups; return how many of their keys are kept."""
        get, met = kept.get, 0
        for at in self._kept.filled:
            met = 0
            for key, group in table.items():
                known = get(key)
                if known is not None:
                    group[at].extend(known[at])
                    met += 1
        return met

    def _needed(self, table: Groups) -> Groups:
        if not self._needs:
            return table
        return {key: group for key, group in table.items() if all(group[at] for at in self._needs)}


class OneChanging(Grouping):
    """The grouping of one round of which one collection changes: the table has a list of the values of each key, and
    the groups are made as they are emitted."""

    def __init__(self, node: CombinePerKey, context: Context, main: str, kept: KeptTables, changing: int) -> None:
        super().__init__(node, "whole", context, main)
        assert isinstance(self.combiner, CoGroupFn)
        self._needs = node.needs
        self._kept = kept
        self._changing = changing
        self._size, self._tags = self.combiner.size, self.combiner.tags
        self.tables = SpillableTables(node, ListFn(), context, lists=True)

    def fold(self, windows: FoldedWindows) -> Fold:
        return replace(super().fold(windows), body=APPEND)

    def drain(self) -> Iterator[Emitted]:
        unmet = self._kept.emitted_alone(self._needs)
        for window, table in self.tables.drain():
            kept, met = self._kept.by_window.get(window, {}), 0
            for chunk in chunks(table, self.context.block_size):
                known = [kept.get(key) for key, _ in chunk]
                met += len(chunk) - known.count(None)
                yield self._emitted(window, chunk, known)
            if window in unmet and met:
                unmet[window] = {} if met == len(kept) else _without(unmet[window], table)
        for window, groups in unmet.items():
            for chunk in chunks(groups, self.context.block_size):
                yield self._emitted(window, [(key, []) for key, _ in chunk], [group for _, group in chunk])

    def _emitted(self, window: Any, chunk: list[tuple[Any, list[Any]]], known: Sequence[Group | None]) -> Emitted:
        """A block of the groups of some keys, with copies of what is kept."""
        if self.tables.spilled:
            chunk = [(key, list(values)) for key, values in chunk]
        values = self._of_two(chunk, known) if self._size == 2 and not self._needs else self._of_all(chunk, known)
        if self._tags is not None:
            values = [(key, dict(zip(self._tags, group, strict=True))) for key, group in values]
        self.context.count(self.label, "elements_out", len(values))
        return self.main, Block(values, window_end(window) - 1, Same((window,)), ONLY_PANE)

    def _of_two(self, chunk: list[tuple[Any, list[Any]]], known: Sequence[Group | None]) -> list[tuple[Any, Any]]:
        if self._changing:
            return [
                (key, ([] if group is None else group[0][:], values))
                for (key, values), group in zip(chunk, known, strict=True)
            ]
        return [
            (key, (values, [] if group is None else group[1][:]))
            for (key, values), group in zip(chunk, known, strict=True)
        ]

    def _of_all(self, chunk: list[tuple[Any, list[Any]]], known: Sequence[Group | None]) -> list[tuple[Any, Any]]:
        found = []
        for (key, values), group in zip(chunk, known, strict=True):
            whole = [[] for _ in range(self._size)] if group is None else [each[:] for each in group]
            whole[self._changing] = values
            if all(whole[at] for at in self._needs):
                found.append((key, tuple(whole)))
        return found

    def _copied(self, entry: Any) -> Any:
        return entry[:]


def _without(groups: Groups, keys: Collection[Any]) -> Groups:
    return {key: group for key, group in groups.items() if key not in keys}

"""CoGroupByKey in a loop: what is the same in all rounds is grouped once, and each round adds a table of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from tidegate.runners.engine.grouping.batch_table import Grouping
from tidegate.runners.engine.loop_tables import Groups, KeptTables
from tidegate.runners.engine.operator import Context
from tidegate.sdk.portable.model import CombinePerKey


def kept_tables(grouping: Grouping) -> KeptTables | None:
    """The tables of a grouping to which the elements have been added; None if they exceed its memory budget."""
    tables = grouping.tables
    if tables.spilled:
        for _ in tables.drain():  # removes the files
            pass
        return None
    for table in tables.by_window.values():
        tables.check_keys(table)
    groups = [group for table in tables.by_window.values() for group in table.values()]
    filled = {at for group in groups for at, values in enumerate(group) if values}
    return KeptTables(tables.by_window, tuple(sorted(filled)))


class KeptGrouping(Grouping):
    """The grouping of one round: of what changes, joined with the tables that are kept."""

    def __init__(self, node: CombinePerKey, context: Context, main: str, kept: KeptTables) -> None:
        super().__init__(node, "whole", context, main)
        self._needs = node.needs
        self._kept = kept

    def _drain_tables(self) -> Iterator[tuple[Any, Groups]]:
        unmet = dict(self._kept.by_window) if set(self._needs) <= set(self._kept.filled) else {}
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


def _without(groups: Groups, keys: Collection[Any]) -> Groups:
    return {key: group for key, group in groups.items() if key not in keys}

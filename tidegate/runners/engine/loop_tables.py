"""The tables that outlive the rounds of a loop, for the operators of its body."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Group: TypeAlias = tuple[list[Any], ...]
"""The values of a key, a list for each collection."""

Groups: TypeAlias = dict[Any, Group]
"""For each key its values."""


@dataclass(frozen=True, slots=True)
class KeptTables:
    """The groups of the inputs of a CoGroupByKey that are the same in all rounds, by window. `filled` are the numbers
    of those inputs that have elements; `changing` is that of the only other input, if there is one. Nothing changes the
    tables: the groups of a round get copies of their lists."""

    by_window: Mapping[Any, Groups]
    filled: tuple[int, ...]
    changing: int | None = None

    def emitted_alone(self, needs: Collection[int]) -> dict[Any, Groups]:
        """The groups that a round emits for keys that have no values in it, if a group needs the inputs `needs`."""
        return dict(self.by_window) if set(needs) <= set(self.filled) else {}


@dataclass(frozen=True, slots=True)
class LoopTables:
    """What is kept for the steps of a body, by label; and the solutions that they look up, by collection, each with the
    value of every key by window. `parts` has, instead, the task's parts of the solutions that all tasks keep together:
    an `iteration.kept_solution.KeptSolution` each."""

    kept: Mapping[str, KeptTables] = field(default_factory=dict)
    solutions: Mapping[str, Mapping[Any, Mapping[Any, Any]]] = field(default_factory=dict)
    parts: Mapping[str, object] = field(default_factory=dict)

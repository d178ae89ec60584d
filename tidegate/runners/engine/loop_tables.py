"""The tables that outlive the rounds of a loop, for the operators of its body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Groups: TypeAlias = dict[Any, tuple[list[Any], ...]]
"""For each key its values, a list for each collection."""


@dataclass(frozen=True, slots=True)
class KeptTables:
    """The groups of the inputs of a CoGroupByKey that are the same in all rounds, by window. `filled` are the numbers
    of those inputs. Nothing changes the tables: the groups of a round get copies of their lists."""

    by_window: Mapping[Any, Groups]
    filled: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoopTables:
    """What is kept for the steps of a body, by label; and the solutions that they look up, by collection, each with the
    value of every key by window."""

    kept: Mapping[str, KeptTables] = field(default_factory=dict)
    solutions: Mapping[str, Mapping[Any, Mapping[Any, Any]]] = field(default_factory=dict)

"""What is known of a SELECT while it is planned: its columns, tables, conditions and names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.sdk.relational.expressions import Tree
from tidegate.sql.planning.context import Context
from tidegate.sql.planning.scope import Scope
from tidegate.sql.planning.sources import Source
from tidegate.sql.planning.subquery_joins import Existence
from tidegate.sql.steps.relation import Named
from tidegate.sql.steps.user_functions import Computed


@dataclass(slots=True)
class Item:
    """A column that a SELECT emits: its name in SQL, the field of its rows, and its node or the column it copies."""

    name: str
    field: str
    node: Any
    column: Named | None = None
    tree: Tree | None = None

    @property
    def value(self) -> Tree:
        """The tree, once it is known."""
        assert self.tree is not None
        return self.tree


@dataclass(slots=True)
class Body:
    """The tables, conditions and names of a SELECT, before it is aggregated or projected.

    `correlated` are the conditions of WHERE that read columns of the query around.
    """

    node: Any
    context: Context
    scope: Scope
    sources: Sequence[Source]
    conditions: list[Tree] = field(default_factory=list)
    late_conditions: list[Tree] = field(default_factory=list)
    ons: dict[int, list[Tree]] = field(default_factory=dict)
    existences: list[Existence] = field(default_factory=list)
    correlated: list[Tree] = field(default_factory=list)
    calls: list[Computed] = field(default_factory=list)

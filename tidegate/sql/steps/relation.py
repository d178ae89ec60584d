"""Relations: collections with named columns, in windows or in none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from tidegate.sdk.data.columns import TIMESTAMP, Field, Schema
from tidegate.sdk.data.schema import schema_of
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.relational.expressions import Tree

Role: TypeAlias = Literal["window_start", "window_end", "window_time"]
ROLES: Final[tuple[Role, ...]] = ("window_start", "window_end", "window_time")
"""The columns that a window table function adds, each the start, the end, or the last instant of the row's window."""

Windows: TypeAlias = Literal["none", "author", "function", "session"]
"""Whether rows are in the global window, in windows of the author's, in those of a table function, or in sessions."""


@dataclass(frozen=True, slots=True)
class Named:
    """A column of a relation: its name, that of its table, and the field of the rows that has its value.

    `role`: it is a bound of the row's window. `virtual`: it is not a field of the rows yet, but computed from the
    window when it is needed. `hidden`: `*` doesn't stand for it.
    """

    table: str
    name: str
    field: str
    role: Role | None = None
    virtual: bool = False
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """A collection as a table. `partition` has the fields by which sessions are divided.

    `times` are fields that are never before the timestamps of the rows, beside the ends of their windows. It is None if
    the author stamped the rows, who answers for their fields.
    """

    rows: PCollection[Any]
    columns: tuple[Named, ...]
    windows: Windows = "none"
    partition: tuple[str, ...] = ()
    times: frozenset[str] | None = frozenset()

    @property
    def schema(self) -> Schema:
        """The fields of the rows, and those of window columns that they don't have yet."""
        known = schema_of(self.rows.element_type)
        virtual = tuple(Field(each.field, TIMESTAMP, False) for each in self.columns if each.virtual)
        return Schema((() if known is None else known.fields) + virtual)

    def can_be_time(self, field: str) -> bool:
        """Whether a field may become the timestamp: on a stream, an earlier one would be behind the watermark."""
        if self.times is None or self.rows.is_bounded:
            return True
        ends = {each.field for each in self.columns if each.role in ("window_end", "window_time")}
        return field in self.times | ends

    def called(self, alias: str) -> Relation:
        """The relation as a table with this name."""
        return replace(self, columns=tuple(replace(each, table=alias) for each in self.columns))


@dataclass(frozen=True, slots=True)
class Scalar:
    """A query used as a value: its relation has the value in the field `value`; `type` is the field of the outer rows.

    `keys` are pairs of an expression of the outer query and a field of the relation; without keys it has at most one
    row. `if_none` is the value where there is no row, instead of NULL.
    """

    relation: Relation
    value: str
    type: Field
    keys: tuple[tuple[Tree, str], ...] = ()
    if_none: Tree | None = None

    @property
    def field(self) -> str:
        """The field of the outer rows that has the value."""
        return self.type.name

"""Sources of a join, the tables of FROM: their fields in the joined rows, their types, and what they name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.sdk.data.columns import UNKNOWN, Field
from tidegate.sdk.relational.relations import JoinKind as Kind
from tidegate.sql.planning.context import field_name
from tidegate.sql.steps.relation import Named, Relation


@dataclass(slots=True)
class Source:
    """A table of FROM. `relation` has its columns under its alias; `fields` gives the field in the joined rows, by its
    own field. `on` are the conditions of its join, and `using` the columns that it names."""

    node: Any
    relation: Relation
    kind: Kind
    on: Any = None
    using: tuple[str, ...] = ()
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def alias(self) -> str:
        """The name of the table in the query."""
        return self.relation.columns[0].table if self.relation.columns else ""

    @property
    def own(self) -> frozenset[str]:
        """The fields of the joined rows that are from here."""
        return frozenset(self.fields.values())


def name_fields(sources: Sequence[Source]) -> None:
    """Give every column a field of its own in the joined rows; a single table keeps its fields."""
    if len(sources) == 1:
        sources[0].fields = {each.field: each.field for each in sources[0].relation.columns}
        return
    names = [each.field for source in sources for each in source.relation.columns]
    taken: set[str] = set()
    for source in sources:
        for column in source.relation.columns:
            if column.field in source.fields:
                continue
            wanted = column.field if names.count(column.field) == 1 else f"{source.alias}_{column.field}"
            found = field_name(wanted, taken)
            taken.add(found)
            source.fields[column.field] = found


def visible_columns(sources: Sequence[Source]) -> list[Named]:
    """The columns that expressions of the query can name. A column that joins with USING is that of the first table."""
    found: list[Named] = []
    for source in sources:
        merged = {name.lower() for name in source.using}
        for each in source.relation.columns:
            named = replace(each, field=source.fields[each.field])
            if each.name.lower() in merged:
                continue
            found.append(named)
    return found


def types_of(sources: Sequence[Source]) -> dict[str, Field]:
    """The types of the fields of the joined rows."""
    found: dict[str, Field] = {}
    for source in sources:
        if source.kind in ("right", "full"):
            found = {name: replace(each, nullable=True) for name, each in found.items()}
        padded = source.kind in ("left", "full")
        schema = source.relation.schema
        for own, name in source.fields.items():
            known = schema.field(own) or Field(own, UNKNOWN)
            found[name] = Field(name, known.type, known.nullable or padded)
    return found


def last_that_pads_all(sources: Sequence[Source]) -> int:
    """The number of the last RIGHT or FULL JOIN, 0 without one: WHERE is applied from there on."""
    return max((k for k, each in enumerate(sources) if each.kind in ("right", "full")), default=0)


def streams_first(sources: Sequence[Source]) -> list[Source]:
    """The tables in an order in which bounded ones are looked up for a stream's rows, where the query begins with them.

    Inner joins may be made in any order, and `t RIGHT JOIN stream` is `stream LEFT JOIN t`. The numbers of other joins
    stay.
    """
    at = next((k for k, each in enumerate(sources) if not each.relation.rows.is_bounded), 0)
    before, stream, after = sources[:at], sources[at], sources[at + 1 :]
    pads_all = last_that_pads_all(sources)
    if any(each.kind != "inner" or each.relation.windows != "none" for each in before):
        return list(sources)
    match stream.kind:
        case "inner" if not pads_all:
            return [stream, *before, *after]
        case "right" if pads_all == at == 1:
            return [replace(stream, kind="inner"), replace(sources[0], kind="left"), *after]
    return list(sources)

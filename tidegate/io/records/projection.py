"""From the columns of a file to those of the elements: which to read, which to cast, and which are missing.

A `Selection` is what the author asked for; `project` applies it to the columns of one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from tidegate.io.records.predicate import Condition, conditions_of
from tidegate.io.records.problems import BadRecords, SchemaMismatch, check_bad_records
from tidegate.io.records.schema import Field, RecordSchema, SchemaLike, schema_of
from tidegate.io.records.shapes import Shape, shape_of
from tidegate.io.records.types import check_same, fit_for_python, kind_of, resolve
from tidegate.sdk.errors import BuildError

SchemaEvolution: TypeAlias = Literal["refuse", "union"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records and columns a reader selects, and what it makes of them. `schema` None: that of the files."""

    shape: Shape
    schema: RecordSchema | None = None
    columns: tuple[str, ...] | None = None
    where: tuple[Condition, ...] = ()
    timezone: str | None = None
    evolution: SchemaEvolution = "refuse"
    bad_records: BadRecords = "fail"

    @property
    def names(self) -> tuple[str, ...] | None:
        """The columns of the elements; None if they depend on the files."""
        if self.columns is not None:
            return self.columns
        return self.schema.names if self.schema is not None else None


def selection_of(
    of: str,
    *,
    as_: Any,
    schema: SchemaLike = None,
    columns: Iterable[str] | None = None,
    where: Iterable[Sequence[Any]] | None = None,
    timezone: str | None = None,
    schema_evolution: str = "refuse",
    bad_records: str = "fail",
) -> Selection:
    """The selection that an author's arguments describe. Raises BuildError for wrong or contradictory ones."""
    shape = shape_of(as_, of)
    if schema is not None and shape.schema is not None and schema is not shape.schema:
        raise BuildError(f"{of}: the schema is {shape.cls.__name__}'s annotations: leave schema= out, or read dicts")
    given = schema_of(schema if shape.schema is None else shape.schema, of)
    if columns is not None:
        columns = _names(columns, of)
    if given is not None and columns is not None:
        for name in columns:
            if given.field(name) is None:
                raise BuildError(f"{of}: columns has {name!r}, which is not in the schema: {', '.join(given.names)}")
        if shape.schema is not None:
            lacking = [field.name for field in given.fields if field.required and field.name not in columns]
            if lacking:
                raise BuildError(f"{of}: {shape.cls.__name__} needs {lacking[0]!r}, which columns leaves out")
    if schema_evolution not in ("refuse", "union"):
        raise BuildError(f"{of}: schema_evolution is 'refuse' or 'union', not {schema_evolution!r}")
    check_bad_records(bad_records, of)
    if timezone is not None:
        check_zone(timezone, of)
    selection = Selection(
        shape,
        given,
        columns,
        conditions_of(where, of),
        timezone,
        schema_evolution,  # type: ignore[arg-type]
        bad_records,  # type: ignore[arg-type]
    )
    if selection.names is not None:
        shape.check_names(selection.names, of)
    return selection


def _names(columns: Iterable[str], of: str) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if isinstance(columns, str) or not names or not all(isinstance(name, str) for name in names):
        raise BuildError(f"{of}: columns is a list of names, such as ['city', 'people'], not {columns!r}")
    return names


def check_zone(timezone: str, of: str) -> None:
    """Raise BuildError for the name of a time zone that doesn't exist."""
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, TypeError, OSError):
        raise BuildError(f"{of}: there is no time zone {timezone!r}; 'UTC' and 'Europe/Berlin' are some") from None


@dataclass(frozen=True, slots=True)
class Projected:
    """A column to read: its name, the type to cast it to, whether it may be null, and whether the file has it.
    `default` makes the value for records that lack the column, if the author's class has one."""

    name: str
    type: Any
    nullable: bool
    in_file: bool
    default: Callable[[], Any] | None = None


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns to read from one file: those of the elements, then those that only conditions need."""

    columns: tuple[Projected, ...]
    for_conditions: tuple[Projected, ...]

    @property
    def to_read(self) -> tuple[str, ...]:
        """The names of those that the file has."""
        return tuple(column.name for column in (*self.columns, *self.for_conditions) if column.in_file)


def target_fields(selection: Selection, reference: RecordSchema) -> tuple[Field, ...]:
    """The columns of the elements, where `reference` are those of the files. Raises SchemaMismatch for a column that
    no file has."""
    if selection.schema is not None:
        names = selection.columns or selection.schema.names
        return selection.schema.select(names).fields
    for name in selection.columns or ():
        if reference.field(name) is None:
            raise SchemaMismatch(name, f"there is no such column; there are {_listed(reference.names)}")
    return tuple(
        Field(field.name, field.type) for field in reference.select(selection.columns or reference.names).fields
    )


def declared(selection: Selection) -> tuple[Projected, ...] | None:
    """The columns of the elements, if the author's schema tells all of them; None if it takes a file to know them.

    Decimals have to be exact for it, since the type in the file is kept where it only resembles the schema's, and
    nested types depend on the files in any case.
    """
    if selection.schema is None:
        return None
    fields = target_fields(selection, selection.schema)
    if not all(each.type is not None and _is_told(kind_of(each.type), each.exact) for each in fields):
        return None
    zone = selection.timezone or "UTC"
    return tuple(
        Projected(each.name, fit_for_python(each.type, each.name, zone), each.nullable, in_file=False)
        for each in fields
    )


def _is_told(kind: str, exact: bool) -> bool:
    """Whether a type of the schema tells the column type, of which all types of most kinds have the same."""
    return kind in ("boolean", "integer", "float", "string", "binary", "timestamp", "date") or (
        kind == "decimal" and exact
    )


def project(
    found: RecordSchema, selection: Selection, reference: RecordSchema, of_reference: str, *, may_lack: bool = False
) -> Projection:
    """How a file with the columns `found` is read. `reference` are the columns of the first file, or of all of them
    together. Raises SchemaMismatch if the file's columns don't fit. `may_lack`: records of this format may leave out
    columns."""
    targets = target_fields(selection, reference)
    if selection.schema is None and selection.evolution == "refuse":
        names = {field.name for field in targets}
        if selection.columns is None:
            check_same(found, reference, of_reference)
        else:
            check_same(
                RecordSchema(tuple(field for field in found.fields if field.name in names)),
                reference.select(field.name for field in reference.fields if field.name in names),
                of_reference,
            )
    columns = []
    for target in targets:
        column = found.field(target.name)
        if column is not None:
            default = selection.shape.default(target.name) if may_lack and not target.nullable else None
            columns.append(Projected(target.name, _type(column, target, selection), target.nullable, True, default))
        elif not target.required and selection.shape.schema is not None:
            continue
        elif target.nullable and (may_lack or selection.evolution == "union"):
            columns.append(Projected(target.name, _type_of_missing(target, selection), True, False))
        else:
            raise SchemaMismatch(target.name, _missing(target, found))
    names = {column.name for column in columns}
    return Projection(tuple(columns), tuple(_for_conditions(found, selection, reference, names, may_lack)))


def _for_conditions(
    found: RecordSchema, selection: Selection, reference: RecordSchema, known: set[str], may_lack: bool
) -> Iterable[Projected]:
    for name in dict.fromkeys(condition.column for condition in selection.where if condition.column not in known):
        column = found.field(name)
        target = reference.field(name) or (selection.schema.field(name) if selection.schema else None)
        if column is not None:
            target = Field(name, target.type if target else None)
            yield Projected(name, _type(column, target, selection), True, True)
        elif target is not None and (may_lack or selection.evolution == "union"):
            yield Projected(name, _type_of_missing(Field(name, target.type), selection), True, False)
        else:
            raise SchemaMismatch(name, f"where names it, and there is no such column, but {_listed(found.names)}")


def _type(found: Field, target: Field, selection: Selection) -> Any:
    if found.type is None:
        return None
    if target.type is not None and selection.schema is None and selection.evolution == "union":
        target = Field(target.name, target.type, exact=True)
    try:
        return resolve(found.type, target, selection.timezone)
    except SchemaMismatch:
        if selection.shape.kind != "pydantic":
            raise
        return resolve(found.type, Field(target.name), selection.timezone)  # the model's validators decide


def _type_of_missing(target: Field, selection: Selection) -> Any:
    import pyarrow as pa

    return pa.null() if target.type is None else resolve(target.type, Field(target.name), selection.timezone)


def _missing(target: Field, found: RecordSchema) -> str:
    there = f"the file has {_listed(found.names) or 'no columns'}"
    if target.nullable:
        return f"it is missing: {there}; schema_evolution='union' puts None in its place"
    return f"it is missing, and the schema doesn't allow it to be null: {there}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


_SHOWN: Final = 30
"""How many of a file's columns a message names."""

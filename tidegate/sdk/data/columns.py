"""The types of columns, whose values expressions compute with, and schemas, the typed fields of elements.

A type has the name that it has in SQL. Its values are those of one Python type: `bigint` is an `int` of 64 bits,
`timestamp` an aware `datetime` in UTC, `interval` a `timedelta`, and NULL is None.

>>> print(Schema((Field("user", STRING), Field("price", DOUBLE, nullable=False))))
user string, price double not null
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


class ColumnType:
    """The type of a column's values; `str` gives its name in SQL."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ScalarType(ColumnType):
    """A type without parameters."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DecimalType(ColumnType):
    """Decimal numbers of `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class ArrayType(ColumnType):
    """Lists whose items have one type."""

    element: ColumnType
    nullable: bool = True

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapType(ColumnType):
    """Dicts whose keys have one type, and whose values have one type."""

    key: ColumnType
    value: ColumnType

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True, slots=True)
class Field:
    """A named column; `nullable` if its values may be NULL."""

    name: str
    type: ColumnType
    nullable: bool = True

    def __str__(self) -> str:
        return f"{self.name} {self.type}{'' if self.nullable else ' not null'}"


@dataclass(frozen=True, slots=True)
class StructType(ColumnType):
    """Records inside a column."""

    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"struct<{','.join(f'{field.name}:{field.type}' for field in self.fields)}>"


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of elements, in order."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(field.name for field in self.fields)

    def field(self, name: str) -> Field | None:
        """The field of this name, if there is one."""
        return next((field for field in self.fields if field.name == name), None)

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))


BOOLEAN: Final = ScalarType("boolean")
BIGINT: Final = ScalarType("bigint")
DOUBLE: Final = ScalarType("double")
STRING: Final = ScalarType("string")
BINARY: Final = ScalarType("binary")
TIMESTAMP: Final = ScalarType("timestamp")
DATE: Final = ScalarType("date")
INTERVAL: Final = ScalarType("interval")
VOID: Final = ScalarType("void")
"""The type of the literal NULL, which fits every type."""
UNKNOWN: Final = ScalarType("unknown")
"""The type of a field that no annotation gives a type: it can be passed on, but not computed with."""

SCALARS: Final[dict[str, ScalarType]] = {
    type.name: type for type in (BOOLEAN, BIGINT, DOUBLE, STRING, BINARY, TIMESTAMP, DATE, INTERVAL)
}
"""The types without parameters, by name."""

"""The types of columns, whose values expressions compute with, and schemas, the typed fields of elements.

A type has the name that it has in SQL. Its values are those of one Python type: `bigint` is an `int` of 64 bits,
`timestamp` an aware `datetime` in UTC, `interval` a `timedelta`, and NULL is None.

>>> print(Schema((Field("user", STRING), Field("price", DOUBLE, nullable=False))))
user string, price double not null
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

Access: TypeAlias = Literal["attribute", "item", "either"]
"""How a field of an element is read: as an attribute, as an item, or as what each element turns out to have."""


class ColumnType:
    """The type of a column's values; `str` gives its name in SQL, of which `type_named` makes it again."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """The name without parameters: `decimal`, `array`."""
        return str(self).partition("(")[0].partition("<")[0]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """In JSON: its name."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            stored_type, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )


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

    @property
    def whole_digits(self) -> int:
        """The number of digits before the point."""
        return self.precision - self.scale

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class ArrayType(ColumnType):
    """Lists whose items have one type."""

    element: ColumnType
    nullable: bool = True

    def __str__(self) -> str:
        return f"array<{self.element}{'' if self.nullable else ' not null'}>"


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
        return f"struct<{','.join(map(_member, self.fields))}>"


def _member(field: Field) -> str:
    name = field.name if field.name.isidentifier() else f"`{field.name.replace('`', '``')}`"
    return f"{name}:{field.type}{'' if field.nullable else ' not null'}"


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


MAX_PRECISION: Final = 38
"""The greatest number of digits of a decimal."""

PLAIN_DECIMAL: Final = DecimalType(MAX_PRECISION, 18)
"""The type of decimals of which nothing says how many digits they have."""

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


def is_scalar(type: ColumnType) -> bool:
    """Whether a type's values have no parts: one of `SCALARS`, or decimals."""
    return isinstance(type, DecimalType) or str(type) in SCALARS


# -- types by name

_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)*`|\w+|[<>(),:])")


def type_named(name: str) -> ColumnType:
    """The type of a name in SQL, such as `bigint` or `array<decimal(10,2)>`. Raises ValueError if there is none."""
    if not isinstance(name, str):
        raise ValueError(f"{name!r} is not the type of a column")
    tokens: list[str] = []
    at = 0
    while at < len(name.rstrip()):
        found = _TOKEN.match(name, at)
        if found is None:
            break
        tokens.append(found[1])
        at = found.end()
    reader = iter((*tokens, "", ""))
    try:
        type, after = _type(reader)
    except (StopIteration, ValueError):
        type, after = UNKNOWN, "…"
    if after or at < len(name.rstrip()):
        raise ValueError(f"{name!r} is not the type of a column")
    return type


_DECIMAL: Final = re.compile(r"`(?:[^`]|``)*`|decimal\((\d+),(\d+)\)")


def stored_type(name: str) -> ColumnType:
    """The type of a name in a stored pipeline: as `type_named`, but decimals of files that SQL has not are unknown."""

    def known(found: re.Match[str]) -> str:
        fits = found[1] is None or (1 <= int(found[1]) <= MAX_PRECISION and int(found[2]) <= int(found[1]))
        return found[0] if fits else str(UNKNOWN)

    return type_named(_DECIMAL.sub(known, name) if isinstance(name, str) else name)


def _type(tokens: Iterator[str]) -> tuple[ColumnType, str]:
    """The type that begins with the next token, and the token after it."""
    word = next(tokens).lower()
    match word:
        case "decimal":
            precision, scale = (int(next(tokens)) for _ in range(2) if next(tokens) in "(,")
            _expect(")", next(tokens))
            if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
                _refuse(word)
            return DecimalType(precision, scale), next(tokens)
        case "array":
            _expect("<", next(tokens))
            element, after = _type(tokens)
            nullable, after = _nullable(tokens, after)
            _expect(">", after)
            return ArrayType(element, nullable), next(tokens)
        case "map":
            _expect("<", next(tokens))
            key, after = _type(tokens)
            _expect(",", after)
            value, after = _type(tokens)
            _expect(">", after)
            return MapType(key, value), next(tokens)
        case "struct":
            _expect("<", next(tokens))
            return StructType(tuple(_members(tokens))), next(tokens)
    return {**SCALARS, "void": VOID, "unknown": UNKNOWN}.get(word) or _refuse(word), next(tokens)


def _members(tokens: Iterator[str]) -> Iterator[Field]:
    after = ","
    while after == ",":
        name = next(tokens)
        if name == ">":
            return
        _expect(":", next(tokens))
        type, after = _type(tokens)
        nullable, after = _nullable(tokens, after)
        yield Field(name[1:-1].replace("``", "`") if name.startswith("`") else name, type, nullable)
    _expect(">", after)


def _nullable(tokens: Iterator[str], after: str) -> tuple[bool, str]:
    if after != "not":
        return True, after
    _expect("null", next(tokens))
    return False, next(tokens)


def _expect(wanted: str, found: str) -> None:
    if found != wanted:
        _refuse(found)


def _refuse(found: str) -> Any:
    raise ValueError(found)

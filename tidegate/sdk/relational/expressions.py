"""The tree of an expression: columns, literals, calls of operations, CASE and CAST, as frozen dataclasses.

Authors build trees without types; `binding` gives each node the type and nullability that follow from a schema, and
inserts the implicit casts. Only a bound tree is given to a back end. A tree holds no code.
"""

from __future__ import annotations

import base64
import datetime
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, TypeAlias

from tidegate.sdk import moved
from tidegate.sdk.data.columns import UNKNOWN, VOID, ColumnType, DecimalType, stored_type, type_named


class _InJson:
    """Marks a tree in the fields of a dataclass: pydantic writes and reads it by `to_json` and `from_json`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            from_json, serialization=core_schema.plain_serializer_function_ser_schema(to_json)
        )


@dataclass(frozen=True, slots=True)
class Column:
    """A field of the element. A join has two inputs: 0 is the left one, 1 the right one."""

    name: str
    type: ColumnType = UNKNOWN
    nullable: bool = True
    input: int = 0

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; None is NULL."""

    value: Any
    type: ColumnType

    @property
    def nullable(self) -> bool:
        """Whether it is NULL."""
        return self.value is None


@dataclass(frozen=True, slots=True)
class Call:
    """An operation of the table (`operations`) applied to arguments."""

    operation: str
    arguments: tuple[Tree, ...]
    type: ColumnType = UNKNOWN
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch `(condition, value)` whose condition is true, else `otherwise`."""

    branches: tuple[tuple[Tree, Tree], ...]
    otherwise: Tree
    type: ColumnType = UNKNOWN
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Cast:
    """The operand converted to another type; an error if its value can't be converted."""

    operand: Tree
    type: ColumnType
    nullable: bool = True


Tree: TypeAlias = Annotated[Column | Literal | Call | Case | Cast, _InJson()]


def parts(tree: Tree) -> tuple[Tree, ...]:
    """The trees that a tree directly consists of, in the order in which they are evaluated."""
    match tree:
        case Call(arguments=arguments):
            return arguments
        case Case(branches=branches, otherwise=otherwise):
            return (*(part for branch in branches for part in branch), otherwise)
        case Cast(operand=operand):
            return (operand,)
        case _:
            return ()


def walk(tree: Tree) -> Iterator[Tree]:
    """The tree and all trees inside it."""
    yield tree
    for part in parts(tree):
        yield from walk(part)


def column_names(tree: Tree) -> dict[str, None]:
    """The names of the columns that a tree reads, each once, in their order."""
    return {each.name: None for each in walk(tree) if isinstance(each, Column)}


def mapped(tree: Tree, change: Callable[[Tree], Tree | None]) -> Tree:
    """The tree with each part replaced by what `change` returns for it, from the outside in; None keeps a part."""
    changed = change(tree)
    if changed is not None:
        return changed
    match tree:
        case Call(arguments=arguments):
            return replace(tree, arguments=tuple(mapped(each, change) for each in arguments))
        case Case(branches=branches, otherwise=otherwise):
            pairs = tuple((mapped(condition, change), mapped(value, change)) for condition, value in branches)
            return replace(tree, branches=pairs, otherwise=mapped(otherwise, change))
        case Cast(operand=operand):
            return replace(tree, operand=mapped(operand, change))
        case _:
            return tree


INFIX: Final = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "remainder": "%",
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_or_equal": "<=",
    "greater": ">",
    "greater_or_equal": ">=",
    "and": "&",
    "or": "|",
}
"""The operators that authors write for operations of two arguments."""


def text(tree: Tree) -> str:
    """The tree as authors write it, without `tg.col` and `tg.lit`: `price * qty > 10`."""
    match tree:
        case Column(name=name):
            return name
        case Literal(value=value):
            return "NULL" if value is None else repr(value)
        case Call(operation=operation, arguments=(one, two)) if operation in INFIX:
            return f"{_inner(one)} {INFIX[operation]} {_inner(two)}"
        case Call(operation="part", arguments=(one, two)):
            return f"{_inner(one)}[{text(two)}]"
        case Call(operation="negate", arguments=(one,)):
            return f"-{_inner(one)}"
        case Call(operation="not", arguments=(one,)):
            return f"~{_inner(one)}"
        case Call(operation=operation, arguments=arguments):
            return f"{operation}({', '.join(map(text, arguments))})"
        case Case(branches=branches, otherwise=otherwise):
            whens = "".join(f".when({text(condition)}, {text(value)})" for condition, value in branches)
            return f"{whens[1:]}.otherwise({text(otherwise)})"
        case Cast(operand=operand, type=type):
            return f"{_inner(operand)}.cast({str(type)!r})"


def _inner(tree: Tree) -> str:
    """The text of a part, in parentheses if it has an operator of its own."""
    match tree:
        case Call(operation=operation) if operation in INFIX or operation in ("negate", "not"):
            return f"({text(tree)})"
        case _:
            return text(tree)


# -- JSON


def to_json(tree: Tree) -> dict[str, Any]:
    """The tree as a value of JSON: an object with the fields of its class."""
    typed = {"type": str(tree.type), "nullable": tree.nullable}
    match tree:
        case Column(name=name, input=input):
            return {"name": name, **typed, "input": input}
        case Literal(value=value):
            return {"value": _plain(value), "type": typed["type"]}
        case Call(operation=operation, arguments=arguments):
            return {"operation": operation, "arguments": list(map(to_json, arguments)), **typed}
        case Case(branches=branches, otherwise=otherwise):
            pairs = [[to_json(condition), to_json(value)] for condition, value in branches]
            return {"branches": pairs, "otherwise": to_json(otherwise), **typed}
        case Cast(operand=operand):
            return {"operand": to_json(operand), **typed}


def from_json(plain: Any) -> Tree:
    """The tree of a value that `to_json` returned. Raises ValueError for another one."""
    if not isinstance(plain, dict):
        raise ValueError("this is not an expression")
    match plain:
        case {"name": str(name)}:
            return Column(name, *_typed(plain, "name", "input"), plain.get("input", 0))
        case {"value": value, "type": str(type)} if len(plain) == 2:
            return Literal(_of_plain(value, type_named(type)), type_named(type))
        case {"operation": str(operation), "arguments": list(arguments)}:
            return Call(operation, tuple(map(from_json, arguments)), *_typed(plain, "operation", "arguments"))
        case {"branches": list(branches), "otherwise": otherwise}:
            pairs = tuple((from_json(condition), from_json(value)) for condition, value in branches)
            return Case(pairs, from_json(otherwise), *_typed(plain, "branches", "otherwise"))
        case {"operand": operand, "type": str()}:
            return Cast(from_json(operand), *_typed(plain, "operand"))
    raise ValueError("this is not an expression")


def _typed(plain: Mapping[str, Any], *others: str) -> tuple[ColumnType, bool]:
    """The type and the nullability among the fields of an object, which has no other fields than those and `others`."""
    nullable, input = plain.get("nullable", True), plain.get("input", 0)
    if not plain.keys() <= {"type", "nullable", *others} or not isinstance(nullable, bool):
        raise ValueError("this is not an expression")
    if type(input) is not int or input not in (0, 1):
        raise ValueError("this is not an expression")
    return (stored_type(str(plain["type"])) if "type" in plain else UNKNOWN), nullable


def _plain(value: Any) -> Any:
    from decimal import Decimal  # not with the module, which every pipeline imports

    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.datetime() | datetime.date():
            return value.isoformat()
        case datetime.timedelta():
            return value // datetime.timedelta(microseconds=1)
        case Decimal():
            return str(value)
    return value


def _decimal(text: str) -> object:
    from decimal import Decimal

    return Decimal(text)


def _of_plain(value: Any, type: ColumnType) -> Any:
    """The value of a literal of a type. Raises ValueError if it is none."""
    if value is None or type == VOID:
        return None
    kind, read = _READERS.get(str(type).partition("(")[0], (object, None))
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{value!r} is not a literal of type {type}")
    try:
        found = value if read is None else read(value)
    except ArithmeticError:
        raise ValueError(f"{value!r} is not a literal of type {type}") from None
    if isinstance(type, DecimalType) and not _is_of(found, type):
        raise ValueError(f"{value!r} is not a literal of type {type}")
    return found


def _is_of(value: Any, type: DecimalType) -> bool:
    """Whether a Decimal is a value of the type: zero has no sign, and there are as many digits as the scale says."""
    negative, digits, exponent = value.as_tuple()
    return exponent == -type.scale and len(digits) <= type.precision and not (negative and not value)


_READERS: Final[dict[str, tuple[Any, Callable[[Any], Any] | None]]] = {
    "boolean": (bool, None),
    "bigint": (int, None),
    "double": ((float, int, str), float),
    "string": (str, None),
    "binary": (str, base64.b64decode),
    "date": (str, datetime.date.fromisoformat),
    "timestamp": (str, datetime.datetime.fromisoformat),
    "interval": (int, lambda micros: datetime.timedelta(microseconds=micros)),
    "decimal": (str, _decimal),
}
"""By type, what JSON has for a value, and the function that makes the value of it."""

"""Matching of arguments with the signatures of operations: which types they ask for, and the implicit casts to them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

from tidegate.sdk.data.columns import (
    BIGINT,
    DOUBLE,
    SCALARS,
    TIMESTAMP,
    UNKNOWN,
    VOID,
    ArrayType,
    ColumnType,
    DecimalType,
    MapType,
)
from tidegate.sdk.relational.decimal_types import as_decimal_type, common_decimal
from tidegate.sdk.relational.expressions import Cast, Literal, Tree
from tidegate.sdk.relational.operations import COMPARABLE, IMPLICIT, Parameter, Signature


def is_comparable(type: ColumnType) -> bool:
    """Whether values of a type can be compared."""
    return type.kind in COMPARABLE


@dataclass(frozen=True, slots=True)
class Types:
    """The types that a signature asks for, by argument, and the type that its `T` stands for."""

    parameters: tuple[ColumnType, ...]
    variable: ColumnType


def match_signature(signature: Signature, arguments: Sequence[Tree], *, exactly: bool) -> Types | None:
    """The types that a signature asks for; None if it doesn't take the arguments, with `exactly` also not by casts."""
    parameters = _stretched(signature.parameters, len(arguments))
    if parameters is None:
        return None
    variable = common_type([argument for argument, each in zip(arguments, parameters) if each.type == "T"])
    if variable is None or (not is_comparable(variable) and any(each.type == "T" for each in parameters)):
        return None
    decimals = [argument.type for argument, each in zip(arguments, parameters) if each.type == "decimal"]
    decimal = next((type for type in decimals if isinstance(type, DecimalType)), None)
    if decimals and decimal is None:
        return None
    found: list[ColumnType] = []
    for argument, parameter in zip(arguments, parameters):
        if parameter.literal and not isinstance(argument, Literal):
            return None
        match parameter.type:
            case "any":
                type: ColumnType = argument.type
            case "T":
                type = variable
            case "decimal":
                converted = decimal if argument.type == VOID else as_decimal_type(argument.type)
                if converted is None:
                    return None
                type = converted
            case "array" | "map" | "struct":
                if argument.type.kind != parameter.type:
                    return None
                type = argument.type
            case "item" | "key":
                type = _inner_type(found[0])
                if not is_comparable(type) or _loses_digits(argument, type):
                    return None
            case name:
                type = SCALARS[name]
        if argument.type != type and (exactly or fitted_to(argument, type) is None):
            return None
        found.append(type)
    return Types(tuple(found), variable)


def _loses_digits(argument: Tree, type: ColumnType) -> bool:
    """Whether converting a number to a type of decimals could change it."""
    given = as_decimal_type(argument.type)
    if given is None or not isinstance(type, DecimalType):
        return False
    match argument, fitted_to(argument, type):
        case Literal(value=before), Literal(value=after):
            return bool(before != after)
    return common_decimal(given, type) != type


def _inner_type(type: ColumnType) -> ColumnType:
    """The type of an array's items, or of a map's keys."""
    match type:
        case ArrayType(element=inner) | MapType(key=inner):
            return inner
    return UNKNOWN


def _stretched(parameters: tuple[Parameter, ...], count: int) -> tuple[Parameter, ...] | None:
    """As many parameters as there are arguments; None if the signature doesn't take so many."""
    if parameters and parameters[-1].repeated:
        fixed = parameters[:-1]
        return (*fixed, *[parameters[-1]] * (count - len(fixed))) if count >= len(fixed) else None
    return parameters if len(parameters) == count else None


def common_type(trees: Sequence[Tree]) -> ColumnType | None:
    """The type that all of these can be cast to implicitly; VOID for none or only NULLs, None if there is none.

    Beside decimals, a literal of 32 bits has the ten digits that Spark gives its type INT.
    """
    decimals = any(isinstance(tree.type, DecimalType) for tree in trees)
    found: ColumnType = VOID
    for tree in trees:
        type = _OF_INT if decimals and _is_int(tree) else tree.type
        one, two = as_decimal_type(found), as_decimal_type(type)
        if type in (found, VOID):
            continue
        if one is not None and two is not None and "decimal" in (found.kind, type.kind):
            found = common_decimal(one, two)
        elif found == VOID or (found.kind, type.kind) in IMPLICIT:
            found = type
        elif (type.kind, found.kind) not in IMPLICIT:
            return None
    return found


_OF_INT: Final = DecimalType(10, 0)


def _is_int(tree: Tree) -> bool:
    match tree:
        case Literal(value=int(value)):
            return tree.type == BIGINT and -(2**31) <= value < 2**31
    return False


def fitted_to(tree: Tree, type: ColumnType) -> Tree | None:
    """The tree as a value of a type, by an implicit cast if needed; None if there is none."""
    if tree.type == type:
        return tree
    if tree.type == VOID:
        return Literal(None, type)
    match tree, type if tree.type.kind in ("bigint", "decimal", "date") else UNKNOWN:  # True is an int, but no number
        case Literal(value=int() | Decimal() as number), DecimalType() as to:
            rounded = Decimal(number).quantize(Decimal(1).scaleb(-to.scale), context=_WIDE)
            if rounded.adjusted() < to.whole_digits:
                return Literal(rounded, to)
        case Literal(value=int() | Decimal() as number), to if to == DOUBLE:
            return Literal(float(number), type)
        case Literal(value=datetime.date() as day), to if to == TIMESTAMP:
            return Literal(datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.UTC), type)
    kinds = (tree.type.kind, type.kind)
    if kinds not in IMPLICIT and kinds != ("decimal", "decimal"):
        return None
    return Cast(tree, type, tree.nullable)


_WIDE: Final = Context(100, ROUND_HALF_UP)
"""Rounds as a cast does."""


def implicitly(tree: Tree, type: ColumnType) -> Tree:
    """The tree as a value of a type, by an implicit cast if there is one, else as it is."""
    fitted = fitted_to(tree, type)
    return tree if fitted is None else fitted

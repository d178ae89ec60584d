"""Binding: gives each node of an expression its type, from a schema and the table of operations.

Errors are BuildErrors: an unknown column names those there are, a call with the wrong types names the types it takes.
They show the part of the expression that is refused; the step and its line are added by the pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeGuard

from tidegate.sdk.data.columns import (
    BIGINT,
    BOOLEAN,
    SCALARS,
    UNKNOWN,
    VOID,
    ArrayType,
    ColumnType,
    DecimalType,
    Field,
    MapType,
    Schema,
    StructType,
)
from tidegate.sdk.errors import BuildError, TypeCheckError
from tidegate.sdk.relational.date_patterns import format_of
from tidegate.sdk.relational.decimal_types import (
    decimal_cast_fails,
    decimal_of,
    result_type,
)
from tidegate.sdk.relational.expressions import INFIX, Call, Case, Cast, Column, Literal, Tree, mapped, text, walk
from tidegate.sdk.relational.operations import (
    CASTS,
    NULLING,
    OPERATIONS,
    TRUNCATING,
    Operation,
    Signature,
)
from tidegate.sdk.relational.regular_expressions import PatternError, translated
from tidegate.sdk.relational.signatures import Types, common_type, fitted_to, implicitly, match_signature


@dataclass(frozen=True, slots=True)
class Input:
    """What is known of the elements that an expression reads: their schema, or None if they declare no fields.

    `right` is the schema of the right input of a join; elements of the inputs whose numbers are in `optional` may be
    missing, which makes all their columns NULL.
    """

    schema: Schema | None
    right: Schema | None = None
    optional: frozenset[int] = frozenset()

    def column(self, column: Column) -> Column:
        """The column with its type. A type given by the author is used for a field that has none."""
        schema = self.right if column.input else self.schema
        field = None if schema is None else schema.field(column.name)
        if field is None and schema is not None:
            raise BuildError(_no_column(column.name, schema))
        if field is None or field.type == UNKNOWN:
            return column
        if column.type != UNKNOWN and column.type != field.type:
            raise TypeCheckError(
                f"the column {column.name!r} is of type {field.type}, not {column.type}: to convert it, write "
                f"tg.col({column.name!r}).cast({str(column.type)!r})"
            )
        return Column(column.name, field.type, field.nullable or column.input in self.optional, column.input)


def bound(tree: Tree, input: Input) -> Tree:
    """The tree with types, and with the implicit casts. Raises BuildError for an aggregate."""
    for each in walk(tree):
        if is_aggregate(each):
            raise BuildError(
                f"{text(each)} is an aggregate, which has a value only for a group: write tg.GroupBy(...).agg(name=...)"
            )
    return _bound(tree, input)


def bound_aggregate(tree: Tree, input: Input, keys: Mapping[str, Tree]) -> Tree:
    """The tree of an aggregated column, bound. Outside aggregates it has only columns of `keys`, which are bound."""
    aggregates: list[Call] = []

    def split(tree: Tree) -> Tree:
        match tree:
            case Call() if is_aggregate(tree):
                for inner in tree.arguments:
                    for each in walk(inner):
                        if is_aggregate(each):
                            raise BuildError(f"{text(tree)}: an aggregate can't contain another aggregate")
                call = _bound(tree, input)
                assert isinstance(call, Call)
                if call not in aggregates:
                    aggregates.append(call)
                return Column(f"${aggregates.index(call)}", call.type, call.nullable)
            case Call(arguments=arguments):
                return replace(tree, arguments=tuple(map(split, arguments)))
            case Case(branches=branches, otherwise=otherwise):
                split_branches = tuple((split(condition), split(value)) for condition, value in branches)
                return replace(tree, branches=split_branches, otherwise=split(otherwise))
            case Cast(operand=operand):
                return replace(tree, operand=split(operand))
            case Column(name=name) if name not in keys:
                raise BuildError(
                    f"the column {name!r} has many values in a group: aggregate it, as in tg.fn.max({name!r}), or "
                    "group by it"
                )
            case _:
                return tree

    outer = split(tree)
    if not any(is_aggregate(each) or is_of_window(each) for each in walk(tree)):
        raise BuildError(f"{text(tree)} has no aggregate in it, such as tg.fn.sum(...) or tg.fn.count()")
    results = [Field(f"${k}", call.type, call.nullable) for k, call in enumerate(aggregates)]
    grouped = [Field(name, key.type, key.nullable) for name, key in keys.items()]
    found = _bound(outer, Input(Schema((*grouped, *results))))
    return mapped(found, lambda each: aggregates[int(each.name[1:])] if _is_result(each) else None)


def _is_result(tree: Tree) -> TypeGuard[Column]:
    return isinstance(tree, Column) and tree.name.startswith("$")


def split_aggregates(trees: Sequence[Tree]) -> tuple[tuple[Tree, ...], tuple[Call, ...]]:
    """Bound columns with a column `$n` in place of each aggregate, and the aggregates, each once."""
    calls: dict[Call, Column] = {}

    def replaced(tree: Tree) -> Tree | None:
        if not isinstance(tree, Call) or not is_aggregate(tree):
            return None
        return calls.setdefault(tree, Column(f"${len(calls)}", tree.type, tree.nullable))

    return tuple(mapped(tree, replaced) for tree in trees), tuple(calls)


def is_of_window(tree: Tree) -> bool:
    """Whether a tree is a call of an operation on the element's window."""
    return isinstance(tree, Call) and OPERATIONS[tree.operation].of_window


def refuse_window(trees: Iterable[Tree], why: str) -> None:
    """Raise BuildError, which says `why`, if one of the trees depends on the element's window."""
    for tree in trees:
        for each in walk(tree):
            if is_of_window(each):
                raise BuildError(f"{text(each)}: {why}")


def bound_alike(trees: Sequence[Tree], what: str) -> list[Tree]:
    """Bound trees, with implicit casts to one type. Raises TypeCheckError, naming `what`, if there is none."""
    type = common_type(trees)
    if type is None:
        shown = " and ".join(f"{text(tree)} of type {tree.type}" for tree in trees)
        raise TypeCheckError(f"{what} have no common type: {shown}. Cast some of them")
    return [implicitly(tree, type) for tree in trees]


def is_aggregate(tree: Tree) -> bool:
    """Whether a tree is a call of an aggregate."""
    return isinstance(tree, Call) and OPERATIONS[tree.operation].aggregate


def may_fail(tree: Tree) -> bool:
    """Whether evaluating a bound tree may raise an ExpressionError."""
    return any(map(_may_fail_itself, walk(tree)))


def _may_fail_itself(tree: Tree) -> bool:
    """Whether evaluating a bound tree may raise an ExpressionError that none of its parts raises."""
    match tree:
        case Call(operation="part", arguments=(of, _)):
            return not isinstance(of.type, MapType | StructType)  # an index may be outside an array
        case Call(operation=operation):
            return OPERATIONS[operation].fails
        case Cast(operand=operand, type=DecimalType() as type):
            return decimal_cast_fails(operand.type, type)
        case Cast(operand=operand, type=type):
            return CASTS.get((operand.type.kind, type.kind), False)
        case _:
            return False


def _bound(tree: Tree, input: Input) -> Tree:
    match tree:
        case Column():
            return input.column(tree)
        case Literal():
            return tree
        case Cast(operand=operand, type=type):
            return _cast(_bound(operand, input), type, tree)
        case Case(branches=branches, otherwise=otherwise):
            return _case([(_bound(c, input), _bound(v, input)) for c, v in branches], _bound(otherwise, input), tree)
        case Call(operation=operation, arguments=arguments):
            return _call(OPERATIONS[operation], [_bound(each, input) for each in arguments], tree)


def _case(branches: list[tuple[Tree, Tree]], otherwise: Tree, tree: Tree) -> Tree:
    conditions = []
    for condition, _ in branches:
        fitted = fitted_to(condition, BOOLEAN)
        if fitted is None:
            raise TypeCheckError(f"the condition {text(condition)} is of type {condition.type}, not boolean")
        conditions.append(fitted)
    values = [value for _, value in branches]
    type = common_type([*values, otherwise])
    if type is None:
        kinds = ", ".join(dict.fromkeys(str(value.type) for value in (*values, otherwise)))
        raise TypeCheckError(f"the branches of {text(tree)} have no common type: they are {kinds}. Cast some of them")
    fitted_values = [implicitly(value, type) for value in (*values, otherwise)]
    nullable = any(value.nullable for value in fitted_values)
    return Case(tuple(zip(conditions, fitted_values[:-1], strict=True)), fitted_values[-1], type, nullable)


def _cast(operand: Tree, type: ColumnType, tree: Tree) -> Tree:
    if operand.type == type:
        return operand
    if operand.type == VOID:
        return Literal(None, type)
    kinds = (operand.type.kind, type.kind)
    if kinds not in CASTS:
        allowed = [to for given, to in CASTS if given == kinds[0]]
        advice = f"; it can be cast to {', '.join(allowed)}" if allowed else ""
        raise TypeCheckError(f"{text(tree)}: a value of type {operand.type} can't be cast to {type}{advice}")
    return Cast(operand, type, operand.nullable or kinds in NULLING)


def _call(operation: Operation, arguments: list[Tree], tree: Tree) -> Tree:
    if operation.name in INFIX or operation.name == "not_distinct":
        arguments = _with_decimal_literals(arguments)
    for signature in operation.signatures:
        if (types := match_signature(signature, arguments, exactly=True)) is not None:
            return _typed_call(operation, signature, arguments, types)
    for signature in operation.signatures:
        if (types := match_signature(signature, arguments, exactly=False)) is not None:
            return _typed_call(operation, signature, arguments, types)
    raise TypeCheckError(_wrong_types(operation, arguments, tree))


def _with_decimal_literals(arguments: list[Tree]) -> list[Tree]:
    """The operands, with whole numbers beside decimals as decimals of the digits that they are written with."""
    if not any(isinstance(each.type, DecimalType) for each in arguments):
        return arguments
    return [
        implicitly(each, decimal_of(each.value) or each.type)
        if isinstance(each, Literal) and each.type == BIGINT
        else each
        for each in arguments
    ]


def _typed_call(operation: Operation, signature: Signature, arguments: list[Tree], types: Types) -> Tree:
    _check_literals(operation, signature, arguments)
    fitted = tuple(implicitly(argument, type) for argument, type in zip(arguments, types.parameters, strict=True))
    match signature.result:
        case "T":
            result = types.variable
        case "decimal":
            result = result_type(operation.name, types.parameters, _digits(fitted))
        case "item" | "value" | "field":
            result = _part_of(fitted).type
        case name:
            result = SCALARS[name]
    match operation.nulls:
        case "never":
            nullable = False
        case "strict":
            nullable = any(argument.nullable for argument in fitted)
        case "own":
            nullable = _nullable_by_own_rule(operation, fitted)
    return Call(operation.name, fitted, result, nullable)


def _part_of(arguments: Sequence[Tree]) -> Field:
    """What a call of `part` gives, as a field. Raises BuildError if a struct doesn't have the field."""
    match arguments[0].type:
        case ArrayType(element=element, nullable=nullable):
            return Field("item", element, nullable)
        case MapType(value=value):
            return Field("value", value)
        case StructType(fields=fields):
            name = arguments[1].value if isinstance(arguments[1], Literal) else None
            found = next((each for each in fields if each.name == name), None)
            if found is None:
                raise BuildError(f"{text(arguments[0])} has no field {name!r}{_instead(str(name), fields)}")
            return found
    raise AssertionError(f"{arguments[0].type} has no parts")


def _digits(arguments: Sequence[Tree]) -> int:
    """The number of digits that a call of `round` gives as a literal."""
    match arguments:
        case [_, Literal(value=int(digits))]:
            return digits
    return 0


_PATTERN: Final = re.compile(r"(?:[^\\]|\\[%_\\])*")
"""What is a LIKE pattern."""


def _check_literals(operation: Operation, signature: Signature, arguments: Sequence[Tree]) -> None:
    """Raises BuildError for a NULL where a literal decides what is computed, and for a bad LIKE pattern."""
    for argument, parameter in zip(arguments, signature.parameters):
        if parameter.literal and not parameter.repeated and isinstance(argument, Literal) and argument.value is None:
            raise BuildError(f"in {text(Call(operation.name, tuple(arguments)))}, the literal is NULL: give a value")
    match operation.name, arguments:
        case "date_trunc", (Literal(value=unit), _) if unit not in TRUNCATING:
            raise BuildError(f"the unit of date_trunc is one of {', '.join(TRUNCATING)}, not {unit!r}")
        case "date_format", (_, Literal(value=str(pattern))):
            try:
                format_of(pattern)
            except ValueError as error:
                raise BuildError(f"the pattern {pattern!r} of date_format: {error}") from None
        case "regexp_extract", (_, Literal(value=str(pattern)), Literal(value=int(group))):
            try:
                groups = translated(pattern).groups
            except PatternError as error:
                raise BuildError(f"the regular expression {pattern!r}: {error}") from None
            if not 0 <= group <= groups:
                raise BuildError(f"the regular expression {pattern!r} has the groups 0 to {groups}, and not {group}")
        case "like", (_, Literal(value=str(pattern))) if not _PATTERN.fullmatch(pattern):
            raise BuildError(
                f"in {text(Call(operation.name, tuple(arguments)))}, a backslash of the pattern escapes neither %, _ "
                "nor a backslash: double it to match a backslash"
            )


def _nullable_by_own_rule(operation: Operation, arguments: Sequence[Tree]) -> bool:
    match operation.name:
        case "and" | "or" | "is_in":
            return any(argument.nullable for argument in arguments)
        case "coalesce" | "greatest" | "least":
            return all(argument.nullable for argument in arguments)
        case "part":
            return any(argument.nullable for argument in arguments) or _part_of(arguments).nullable
        case "array_contains":
            of = arguments[0].type
            return any(argument.nullable for argument in arguments) or (isinstance(of, ArrayType) and of.nullable)
        case _:
            return True


# -- messages


def _no_column(name: str, schema: Schema) -> str:
    first, dot, field = name.partition(".")
    if dot and (found := schema.field(first)) is not None and isinstance(found.type, StructType):
        return f"the input has no column {name!r}: the field of {first!r} is tg.col({first!r})[{field!r}]"
    return f"the input has no column {name!r}{_instead(name, schema.fields)}"


def _instead(name: str, fields: Sequence[Field]) -> str:
    """The names that there are, and the one that may be meant."""
    from tidegate.sdk.user_code.keywords import near

    names = [each.name for each in fields]
    meant = near(name, names)
    return f"; it has {', '.join(names)}" + (f". Did you mean {meant!r}?" if meant else "")


def _wrong_types(operation: Operation, arguments: Sequence[Tree], tree: Tree) -> str:
    unknown: list[Any] = [each for each in arguments if each.type == UNKNOWN]
    shown = f"in {text(tree)}, " if arguments else ""
    if unknown:
        name = unknown[0].name if isinstance(unknown[0], Column) else "name"
        return (
            f"{shown}the type of {text(unknown[0])} is not known: give the elements a type with fields "
            f"(.with_output_types(...)), or the column one, as in tg.col({name!r}, int)"
        )
    name = "[…]" if operation.name == "part" else INFIX.get(operation.name, operation.name)
    given = ", ".join(str(each.type) for each in arguments) or "no arguments"
    takes = "; ".join(signature.takes for signature in operation.signatures)
    generic = any(each.type == "T" for signature in operation.signatures for each in signature.parameters)
    where = ", T being one comparable type" if generic else ""
    return f"{shown}{name} takes ({takes}){where}, not ({given}). To convert a value, write .cast(...)"

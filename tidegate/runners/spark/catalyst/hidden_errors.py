"""Expressions that Spark's optimiser would change: it drops operands that may fail, and takes both zeros for one.

It makes `x + NULL` NULL and `x AND FALSE` FALSE without computing `x`, takes `x <=> x` for TRUE and `p AND (p OR x)`
for `p`, and drops a condition before a value that is the default, too. It moves a constant operand into the branches
of a conditional beside it, and a row that takes a branch of NULL never computes the constant. A condition compares
`x` as a double with a constant that no bigint is, and it is false for all. Where it knows that `x` is not NULL, it
takes `x IS NULL` for FALSE, COUNT(x) for COUNT(*), `x * 0` for 0, `x = x` for TRUE, `p AND NOT p` for FALSE, and then
leaves out what is beside them. Python, which evaluates operands in their order, fails where one of them does.

Where it looks whether parts of an expression are the same, 0.0 and -0.0 are the same constant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from tidegate.sdk.data.columns import BIGINT, BOOLEAN, DOUBLE
from tidegate.sdk.relational.binding import is_aggregate, is_of_window, may_fail
from tidegate.sdk.relational.expressions import Call, Case, Cast, Column, Literal, Tree, parts, walk
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.operations import CASTS, OPERATIONS
from tidegate.sdk.relational.python.row_function import RowCode, row_function


def hides_errors(tree: Tree) -> bool:
    """Whether Spark might compute a value of a bound tree where Python fails."""
    return settles_parts(tree) or _hides_errors(tree)


def _hides_errors(tree: Tree) -> bool:
    match tree:
        case Column() | Literal():
            return False
        case _ if _is_constant(tree):
            return _fails(tree)
        case Call(operation=name, arguments=arguments) if OPERATIONS[name].nulls == "strict":
            if any(map(may_fail, arguments)) and any(_is_always(each, None) for each in arguments):
                return True
    return drops_operand(tree) or any(map(_hides_errors, parts(tree)))


def settles_parts(tree: Tree) -> bool:
    """Whether Spark might make a constant of a part that isn't NULL, in a bound tree of which some part may fail."""
    return may_fail(tree) and any(_is_settled(each) for each in walk(tree) if not _is_constant(each))


def _is_settled(tree: Tree) -> bool:
    match tree:
        case Call(operation="is_null", arguments=(operand,)):
            return not operand.nullable
        case Call(operation="multiply", arguments=arguments):
            return any(_is_number(each, 0) for each in arguments)
        case Call(operation="and" | "or"):
            seen: dict[str, bool] = {}
            return any(seen.setdefault(text, positive) != positive for text, positive in _conditions(tree, True))
        case Call(operation=name, arguments=(one, other)) if name in _COMPARISONS:
            return _is_same(_simplified(one), _simplified(other))
        case _:
            return False


def _conditions(tree: Tree, positive: bool) -> Iterator[tuple[str, bool]]:
    """What AND, OR and NOT connect: a text of each condition, the same for its opposite, and which of both it is."""
    match tree:
        case Call(operation="and" | "or", arguments=arguments):
            for each in arguments:
                yield from _conditions(each, positive)
        case Call(operation="not", arguments=(operand,)):
            yield from _conditions(operand, not positive)
        case _:
            match found := _simplified(tree):
                case Call(operation="less_or_equal", arguments=(left, right)):
                    yield repr(replace(found, operation="less", arguments=(right, left))), not positive
                case Call(operation="not_equal"):
                    yield repr(replace(found, operation="equal")), not positive
                case _:
                    yield repr(found), positive


def _is_number(tree: Tree, number: int) -> bool:
    """Whether a tree is a constant bigint of this value."""
    return tree.type == BIGINT and _is_constant(tree) and not _fails(tree) and _value(tree) == number


def merges_zeros(tree: Tree) -> bool:
    """Whether a bound tree has constants of both zeros, so that Spark might take one of its parts for another."""
    return len({math.copysign(1.0, value) for value in _doubles(tree) if value == 0}) == 2


def _doubles(tree: Tree) -> Iterator[float]:
    """The values of a tree's constants of the type double, without those that fail or are NULL."""
    match tree:
        case Literal(value=float() as value):
            yield value
        case _ if not _is_constant(tree):
            for part in parts(tree):
                yield from _doubles(part)
        case _ if tree.type == DOUBLE and not _fails(tree):
            if isinstance(computed := _value(tree), float):
                yield computed


def drops_operand(tree: Tree) -> bool:
    """Whether an operand in a bound tree, not in its parts, may fail and doesn't matter for the value otherwise."""
    match tree:
        case Case():
            _, idle, _ = _reduced(tree)
            return any(map(may_fail, idle))
        case Call(operation="and" | "or" as name, arguments=arguments):
            if any(_is_always(each, name == "or") or _is_always(each, None) for each in arguments):
                return any(map(may_fail, arguments))
            return _absorbs(tree, name)
        case Call(operation="is_null" | "count", arguments=arguments) if any(map(may_fail, arguments)):
            return True
        case Call(operation="not_distinct", arguments=arguments) if any(_is_always(each, None) for each in arguments):
            return any(map(may_fail, arguments))
        case Call(operation=name, arguments=(one, other)) if (
            name in _COMPARISONS and may_fail(one) and _is_same(_simplified(one), _simplified(other))
        ):
            return True  # that of a value with itself
        case Call(operation=name, arguments=arguments) if name in _COMPARISONS:
            casts = [each for each in arguments if isinstance(each, Cast) and may_fail(each.operand)]
            constants = [each for each in arguments if _is_constant(each)]
            return any(_is_beyond(constant, cast, name) for cast in casts for constant in constants)
        case _:
            return False


def _absorbs(tree: Call, name: str) -> bool:
    """Whether AND has operands `p` and `p OR q`, or OR `p` and `p AND q`, the longer of which Spark leaves out, and `q`
    may fail."""
    inner = "or" if name == "and" else "and"
    operands = [_operands(each, inner) for each in _operands(tree, name)]
    return any(
        all(any(_is_same(_simplified(each), _simplified(part)) for part in longer) for each in shorter)
        for shorter, longer in itertools.permutations(operands, 2)
        if len(shorter) < len(longer) and any(map(may_fail, longer))
    )


def _operands(tree: Tree, operation: str) -> list[Tree]:
    """The operands of nested calls of AND or OR; a tree of another kind is its only one."""
    match tree:
        case Call(operation=name, arguments=arguments) if name == operation:
            return [part for each in arguments for part in _operands(each, operation)]
        case _:
            return [tree]


_COMPARISONS: Final = (
    "not_distinct",
    "equal",
    "not_equal",
    "less",
    "less_or_equal",
    "greater",
    "greater_or_equal",
    "is_in",
)
_ORDERED: Final = ("bigint", "double", "decimal", "date", "timestamp")


def _is_beyond(constant: Tree, cast: Cast, comparison: str) -> bool:
    """Whether a comparison of a constant with a value that is cast is that with none of the type before the cast.

    Spark compares before it casts (UnwrapCastInBinaryComparison): with no value greater than the greatest of a type,
    and none equal to a constant between two.
    """
    wide, narrow = cast.type, cast.operand.type
    if wide.kind not in _ORDERED or narrow.kind not in _ORDERED or (wide.kind, narrow.kind) not in CASTS:
        return False
    try:
        value = _value(constant)
    except ExpressionError:
        return False  # a constant that fails is looked at where it stands
    if value is None:
        return False
    try:
        nearest = _value(Cast(Cast(Literal(value, wide), narrow), wide))
        return nearest is None or (comparison in ("equal", "not_equal", "is_in") and nearest != value)
    except ExpressionError:
        return True


_Branches: TypeAlias = list[tuple[Tree, Tree]]


def _reduced(tree: Case) -> tuple[_Branches, list[Tree], Tree]:
    """What Spark makes of a conditional: its branches without those that are never taken and the last ones that are the
    default, the conditions of these last ones, and the default."""
    branches, otherwise = _Branches(), tree.otherwise
    for condition, value in tree.branches:
        if _is_always(condition, True):
            otherwise = value
            break
        if not (_is_always(condition, False) or _is_always(condition, None)):
            branches.append((condition, _simplified(value)))
    otherwise = _simplified(otherwise)
    idle = []
    while branches and _is_same(branches[-1][1], otherwise):
        idle.append(branches.pop()[0])
    return branches, idle, otherwise


def _is_same(one: Tree, other: Tree) -> bool:
    """Whether Spark takes two simplified values for one. To a condition, FALSE and NULL are the same."""
    if one == other or repr(one) == repr(other):  # a NaN is equal to none
        return True
    return all(isinstance(each, Literal) and each.type == BOOLEAN and not each.value for each in (one, other))


def _simplified(tree: Tree) -> Tree:
    """The tree as Spark compares it with another: its constants computed, operands that change no value left out, and
    those whose order doesn't matter in one of its own."""
    match tree:
        case Column() | Literal():
            return tree
        case _ if _is_constant(tree):
            return tree if _fails(tree) else Literal(_value(tree), tree.type)
        case Case():
            branches, _, otherwise = _reduced(tree)
            return replace(tree, branches=tuple(branches), otherwise=otherwise) if branches else otherwise
        case Cast(operand=operand):
            return replace(tree, operand=_simplified(operand))
        case Call(operation="and" | "or" as name, arguments=arguments):
            kept = [_simplified(each) for each in arguments if not _is_always(each, name == "and")]
            return kept[0] if len(kept) == 1 else replace(tree, arguments=tuple(sorted(kept, key=repr)))
        case Call(operation="not", arguments=(Call(operation="not", arguments=(operand,)),)):
            return _simplified(operand)
        case Call(operation="greater" | "greater_or_equal" as name, arguments=(left, right)):
            turned = name.replace("greater", "less")
            return replace(tree, operation=turned, arguments=(_simplified(right), _simplified(left)))
        case Call(operation="add" | "multiply" as name, arguments=(left, right)) if any(
            _is_number(each, name == "multiply") for each in (left, right)
        ):
            return _simplified(right if _is_number(left, name == "multiply") else left)
        case Call(operation=name, arguments=arguments):
            found = tuple(map(_simplified, arguments))
            return replace(tree, arguments=tuple(sorted(found, key=repr)) if name in _COMMUTATIVE else found)


_COMMUTATIVE: Final = ("add", "multiply", "equal", "not_equal", "greatest", "least")


def _is_constant(tree: Tree) -> bool:
    return not any(isinstance(each, Column) or is_of_window(each) or is_aggregate(each) for each in walk(tree))


def _fails(constant: Tree) -> bool:
    try:
        _value(constant)
    except ExpressionError:
        return True
    return False


def _is_always(tree: Tree, value: bool | None) -> bool:
    match tree:
        case Literal(value=found):
            return found is value
        case _:
            return _is_constant(tree) and not _fails(tree) and _value(tree) is value


def _value(constant: Tree) -> object:
    return row_function(RowCode((constant,), "item", single=True))({})

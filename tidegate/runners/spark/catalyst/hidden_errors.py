"""Expressions that Spark's optimiser would change: it drops operands that may fail, and takes both zeros for one.

It makes `x + NULL` NULL and `x AND FALSE` FALSE without computing `x`, takes `x <=> x` for TRUE and `p AND (p OR x)`
for `p`, and drops a condition before a value that is the default, too. It moves a constant operand into the branches
of a conditional beside it, and a row that takes a branch of NULL never computes the constant. A condition compares
`x` as a double with a constant that no bigint is, and it is false for all. Where it knows that `x` is not NULL, it
takes `x IS NULL` for FALSE, COUNT(x) for COUNT(*), `x * 0` for 0, `x = x` for TRUE, `p AND NOT p` for FALSE, and then
leaves out what is beside them. `p AND q OR NOT p` is `q OR NOT p` for it, in which `q` has no guard any more. Python,
which evaluates operands in their order, fails where one of them does.

Where it looks whether parts of an expression are the same, 0.0 and -0.0 are the same constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from tidegate.sdk.data.columns import BIGINT, BOOLEAN, DOUBLE
from tidegate.sdk.relational.binding import is_aggregate, is_of_window, may_fail
from tidegate.sdk.relational.expressions import Call, Case, Cast, Column, Literal, Tree, parts
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.operations import CASTS, OPERATIONS
from tidegate.sdk.relational.python.row_function import RowCode, row_function


def hides_errors(tree: Tree) -> bool:
    """Whether Spark might compute a value of a bound tree where Python fails, or fail where Python doesn't."""
    if not may_fail(tree):
        return False
    return rearranges(tree) or _hides_errors(tree) or _hides_errors(settled(tree))


def _hides_errors(tree: Tree) -> bool:
    match tree:
        case Column() | Literal():
            return False
        case _ if _is_constant(tree):
            return _fails(tree)
        case Call(operation=name, arguments=arguments) if OPERATIONS[name].nulls == "strict":
            if any(map(may_fail, arguments)) and any(_is_always(each, None) for each in arguments):
                return True
        case Call(operation="and" | "or" as name):
            return drops_operand(tree) or any(map(_hides_errors, _terms(tree, name)))
    return drops_operand(tree) or any(map(_hides_errors, parts(tree)))


def rearranges(tree: Tree) -> bool:
    """Whether Spark might evaluate parts of a bound tree that may fail in another order.

    It adds up the constants of `x + 1 + y + 2`, and takes `p AND q OR NOT p` for `q OR NOT p`, where q has no guard.
    """
    match tree:
        case Column() | Literal():
            return False
        case _ if _is_constant(tree):
            return False
        case Call(operation="and" | "or" | "not"):
            conditions = list(_conditions(tree, True))
            seen: dict[str, bool] = {}
            opposite = any(seen.setdefault(name, positive) != positive for _, name, positive in conditions)
            return (opposite and may_fail(tree)) or any(rearranges(each) for each, *_ in conditions)
        case Call(operation="add" | "multiply" as name, type=type) if type == BIGINT:
            terms = list(_terms(tree, name))
            return sum(map(_is_constant, terms)) > 1 or any(map(rearranges, terms))
        case _:
            return any(map(rearranges, parts(tree)))


def _conditions(tree: Tree, positive: bool) -> Iterator[tuple[Tree, str, bool]]:
    """What AND, OR and NOT connect: each condition, a name that its opposite has too, and which of both it is."""
    match tree:
        case Call(operation="and" | "or", arguments=arguments):
            for each in arguments:
                yield from _conditions(each, positive)
        case Call(operation="not", arguments=(operand,)):
            yield from _conditions(operand, not positive)
        case _:
            found = _simplified(tree)
            match found:
                case Call(operation="less_or_equal" | "not_equal"):
                    yield tree, repr(_opposite(found)), not positive
                case _:
                    yield tree, repr(found), positive


def _opposite(tree: Tree) -> Tree:
    """The condition that is true where a comparison is false; a NOT of what is no comparison."""
    match tree:
        case Call(operation="less" | "less_or_equal" as name, arguments=(left, right)):
            opposite = {"less": "less_or_equal", "less_or_equal": "less"}[name]
            return replace(tree, operation=opposite, arguments=(right, left))
        case Call(operation="equal" | "not_equal" as name):
            return replace(tree, operation={"equal": "not_equal", "not_equal": "equal"}[name])
        case _:
            return Call("not", (tree,), BOOLEAN, tree.nullable)


def _terms(tree: Tree, operation: str) -> Iterator[Tree]:
    """The operands of nested calls of an operation; a constant is one."""
    match tree:
        case Call(operation=name, arguments=arguments) if name == operation and not _is_constant(tree):
            for each in arguments:
                yield from _terms(each, operation)
        case _:
            yield tree


def settled(tree: Tree) -> Tree:
    """The tree with constants for what Spark might know without computing it: an operand is always NULL, or never."""
    match tree:
        case Column() | Literal():
            return tree
        case _ if _is_constant(tree):
            return tree
        case Call(arguments=arguments):
            found: Call | Cast = replace(tree, arguments=tuple(map(settled, arguments)))
        case Cast(operand=operand):
            found = replace(tree, operand=settled(operand))
        case Case(branches=branches, otherwise=otherwise):
            conditions, values = map(settled, [one for one, _ in branches]), map(settled, [two for _, two in branches])
            return replace(tree, branches=tuple(zip(conditions, values, strict=True)), otherwise=settled(otherwise))
    known = _known(found)
    if known is not None and not any(map(may_fail, parts(found))):
        return known
    return _in_branches(found) or found


def _in_branches(tree: Call | Cast) -> Case | None:
    """The conditional whose values are an operation on those of another one and constants, into which Spark moves it
    (PushFoldableIntoBranches): branches that were different may be the same there. None for another operation."""
    cases = [each for each in parts(tree) if isinstance(each, Case)]
    if len(cases) != 1 or is_aggregate(tree) or not all(each is cases[0] or _is_constant(each) for each in parts(tree)):
        return None

    def of(value: Tree) -> Tree:
        match tree:
            case Cast():
                return replace(tree, operand=value)
            case Call(arguments=arguments):
                return replace(tree, arguments=tuple(value if each is cases[0] else each for each in arguments))

    branches = tuple((condition, settled(of(value))) for condition, value in cases[0].branches)
    return Case(branches, settled(of(cases[0].otherwise)), tree.type, tree.nullable)


def _known(tree: Tree) -> Literal | None:
    """The value that a tree has whatever most of its parts are."""
    match tree:
        case Call(operation="is_null", arguments=(operand,)) if not operand.nullable:
            return Literal(False, BOOLEAN)
        case Call(operation="not_distinct", arguments=(one, other)) if any(
            _is_always(value, None) and not beside.nullable for value, beside in ((one, other), (other, one))
        ):
            return Literal(False, BOOLEAN)
        case Call(operation="multiply", arguments=arguments) if any(_is_number(each, 0) for each in arguments):
            return Literal(0, BIGINT)
        case Call(operation=name, arguments=(one, other)) if name in _COMPARISONS and _is_same(
            _simplified(one), _simplified(other)
        ):
            return Literal(name not in ("not_equal", "less", "greater"), BOOLEAN)
        case Call(operation=name) if OPERATIONS[name].nulls == "strict":
            return Literal(None, tree.type) if any(_is_always(each, None) for each in parts(tree)) else None
        case Cast(operand=operand) if _is_always(operand, None):
            return Literal(None, tree.type)
        case _:
            return None


def _is_number(tree: Tree, number: int) -> bool:
    """Whether a tree is a constant bigint of this value."""
    match tree:
        case Literal(value=value, type=type):
            return type == BIGINT and value == number
        case _:
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
        case Call(operation="and" | "or" as name):
            operands = list(_terms(tree, name))
            if any(_is_always(each, name == "or") or _is_always(each, None) for each in operands):
                return any(map(may_fail, operands))
            return _absorbs(operands, "or" if name == "and" else "and")
        case Call(operation="is_null" | "count", arguments=arguments) if any(map(may_fail, arguments)):
            return True
        case Call(operation="multiply", arguments=arguments) if any(_is_number(each, 0) for each in arguments):
            return any(map(may_fail, arguments))
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


def _absorbs(operands: Sequence[Tree], inner: str) -> bool:
    """Whether operands of AND are `p` and `p OR q`, or those of OR `p` and `p AND q`, the longer of which Spark leaves
    out, and `q` may fail."""
    groups = [list(_terms(each, inner)) for each in operands]
    least = min(map(len, groups))
    if not any(len(group) > least and any(map(may_fail, group)) for group in groups):
        return False
    known = [(len(group), {repr(_simplified(each)) for each in group}, any(map(may_fail, group))) for group in groups]
    return any(fails and few < many and shorter <= longer for few, shorter, _ in known for many, longer, fails in known)


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
        case Call(operation="not", arguments=(operand,)):
            match simple := _simplified(operand):
                case Call(operation="not", arguments=(inner,)):
                    return inner
                case _:
                    return _opposite(simple)
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
    match tree:
        case Literal():
            return True
        case Column():
            return False
        case _ if is_of_window(tree) or is_aggregate(tree):
            return False
        case _:  # the last part first: that of a long chain of operations is short
            return all(map(_is_constant, reversed(parts(tree))))


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

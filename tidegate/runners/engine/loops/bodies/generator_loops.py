"""Generator expressions as loops that yield their items, and where an error in such a loop is in the expression.

Python gives the iterators and tests of a generator expression other positions than those of a loop, and the positions
differ between its versions: both are compiled, and their instructions compared.
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Final, TypeAlias

from tidegate.sdk.user_code.body import COMPILED_AGAIN, Function, silence_warnings

Span: TypeAlias = tuple[int, int, int, int]
"""The first and the last line of some code, and the columns of its beginning and its end."""

GENEXPR: Final = "<genexpr>"
"""The name of the frame in which a generator expression is evaluated, but for its first iterable."""


@dataclass(frozen=True, slots=True, eq=False)
class LoopedGenerator:
    """A generator expression for which a loop stands.

    `places` says, by operation and position of instructions of the loop, where those of the expression are, if that
    does not follow from the position: whether they are inside of it, and their positions.
    """

    node: ast.GeneratorExp
    places: Mapping[tuple[str, Span], tuple[bool, Span]]

    def place(self, operation: str, span: Span) -> tuple[bool, Span]:
        """Whether what an instruction of the loop does is done in the expression, not around it; and its position
        there."""
        return self.places.get((operation, span)) or (_is_inside(self.node, span[0], span[2]), span)

    def is_around(self, node: ast.expr) -> bool:
        """Whether the generator expression evaluates an expression, and not the function that it is in."""
        return _is_inside(self.node, node.lineno, node.col_offset)


@dataclass(frozen=True, slots=True)
class Looping:
    """A function with a loop that yields what the function has a generator expression of."""

    node: ast.FunctionDef
    generator: LoopedGenerator


def with_loop(node: Function) -> Looping | None:
    """The function as one that yields its results, if they are a generator expression; else None.

    A list comprehension stays one: its list is complete before the steps that follow take its first item.

    >>> (function,) = ast.parse("def f(n, ends): return ((end, n) for end in ends if end > n)").body
    >>> print(ast.unparse(with_loop(function).node))
    def f(n, ends):
        for end in ends:
            if end > n:
                yield (end, n)
    """
    body = [ast.copy_location(ast.Return(node.body), node.body)] if isinstance(node, ast.Lambda) else node.body
    match body:
        case [*first, ast.Return(value=ast.GeneratorExp() as made)]:
            pass
        case _:
            return None
    if any(isinstance(each, (ast.Return, ast.Yield, ast.YieldFrom)) for part in first for each in ast.walk(part)):
        return None
    if not _is_alone(made, node):
        return None
    loop = _loop(made)
    places = _places(made, loop)
    if places is None:
        return None
    name = node.name if isinstance(node, ast.FunctionDef) else "made"
    function = ast.FunctionDef(name, node.args, [*first, loop], [])
    return Looping(ast.copy_location(function, node), LoopedGenerator(made, places))


def _loop(made: ast.GeneratorExp) -> ast.stmt:
    """The statement that yields the items of a generator expression.

    Its loops and tests have positions that nothing in them has, so that their instructions can be told apart.
    """
    inner: list[ast.stmt] = [ast.copy_location(ast.Expr(ast.copy_location(ast.Yield(made.elt), made.elt)), made.elt)]
    for generator in reversed(made.generators):
        for condition in reversed(generator.ifs):
            inner = [_beginning(ast.If(condition, inner, []), condition)]
        item = None if generator is made.generators[0] else _only_item(generator.iter)
        if item is not None:
            inner.insert(0, ast.copy_location(ast.Assign([generator.target], item), item))
        else:
            inner = [_beginning(ast.For(generator.target, generator.iter, inner, []), generator.iter)]
    (loop,) = inner
    return ast.copy_location(loop, made)  # the lines of all that is in it


def _only_item(iterable: ast.expr) -> ast.expr | None:
    """The item to which Python sets the variable of an inner `for` without iterating."""
    match iterable:
        case ast.List(elts=[item]) | ast.Tuple(elts=[item]) if not isinstance(item, ast.Starred):
            return item
    return None


def _beginning(statement: ast.stmt, of: ast.expr) -> ast.stmt:
    """A statement at the empty position before an expression."""
    statement.lineno = statement.end_lineno = of.lineno
    statement.col_offset = statement.end_col_offset = of.col_offset
    return statement


def _is_alone(made: ast.GeneratorExp, function: Function) -> bool:
    """Whether the variables of a generator expression could be those of the function around it."""
    own = set(_assigned(made))
    if any(generator.is_async for generator in made.generators):
        return False
    if any(isinstance(each, ast.NamedExpr) for each in ast.walk(made)):
        return False
    inside = {id(each) for each in ast.walk(made)} - {id(each) for each in ast.walk(made.generators[0].iter)}
    others = {
        each.arg if isinstance(each, ast.arg) else each.id
        for each in ast.walk(function)
        if isinstance(each, (ast.Name, ast.arg)) and id(each) not in inside
    }
    return own.isdisjoint(others)


def _assigned(made: ast.GeneratorExp) -> Iterator[str]:
    for generator in made.generators:
        for each in ast.walk(generator.target):
            if isinstance(each, ast.Name):
                yield each.id


def operation(code: CodeType, offset: int) -> str:
    """What the instruction at an offset does, if an error in it may be one of a generator expression itself: iterate,
    or test a condition; "" for any other. Python 3.12 may give the offset of the cache after an instruction."""
    instructions = code.co_code
    while instructions[offset] == _CACHE:
        offset -= 2
    return _operation(dis.opname[instructions[offset]])


_CACHE: Final = dis.opmap["CACHE"]


def _operation(name: str) -> str:
    if name in ("GET_ITER", "FOR_ITER", "TO_BOOL"):
        return name
    return "TO_BOOL" if "JUMP" in name and "_IF_" in name and not _JUMPS_TAKE_BOOLS else ""


_JUMPS_TAKE_BOOLS: Final = "TO_BOOL" in dis.opmap
"""Whether an instruction before a jump makes a bool of its condition, since Python 3.13."""


def _places(made: ast.GeneratorExp, loop: ast.stmt) -> dict[tuple[str, Span], tuple[bool, Span]] | None:
    """`LoopedGenerator.places`; None if the instructions of the loop are not those of the expression."""
    arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    function = _beginning(ast.FunctionDef("made", arguments, [loop], []), made)
    silence_warnings()
    try:
        around = compile(ast.Expression(made), COMPILED_AGAIN, "eval", dont_inherit=True)
        module = compile(ast.Module([function], []), COMPILED_AGAIN, "exec", dont_inherit=True)
    except SyntaxError:  # loops that are nested too deeply, which generator expressions may be
        return None
    expected = [(code is not around, *each) for code in (around, _first_code(around)) for each in _instructions(code)]
    found = list(_instructions(_first_code(module)))
    if [each[1] for each in expected] != [each[0] for each in found]:
        return None
    places: dict[tuple[str, Span], tuple[bool, Span]] = {}
    for (inside, _, span), there in zip(expected, found, strict=True):
        if places.setdefault(there, (inside, span)) != (inside, span):
            return None
    return places


def _first_code(code: CodeType) -> CodeType:
    """The first function in other code. That of a generator expression is made before its first iterable is."""
    return next(const for const in code.co_consts if isinstance(const, CodeType))


def _instructions(code: CodeType) -> Iterator[tuple[str, Span]]:
    for each in dis.get_instructions(code):
        if (name := _operation(each.opname)) and (at := each.positions) is not None:
            yield name, (at.lineno or 0, at.end_lineno or 0, at.col_offset or 0, at.end_col_offset or 0)


def _is_inside(made: ast.GeneratorExp, line: int, column: int) -> bool:
    """Whether a position is in a generator expression, and not in its first iterable, which is evaluated around it."""
    return _covers(made, line, column) and not _covers(made.generators[0].iter, line, column)


def _covers(node: ast.expr, line: int, column: int) -> bool:
    end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return (node.lineno, node.col_offset) <= (line, column) < end

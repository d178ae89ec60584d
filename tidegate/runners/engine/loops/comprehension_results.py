"""Makes loops of the comprehensions that are a function's results, which then need not be collected before the steps
that follow take them.

>>> (function,) = ast.parse("def f(n, ends): return [(end, n) for end in ends if end > n]").body
>>> made = with_loop(function, lists=True)
>>> print(ast.unparse(made.node))
def f(n, ends):
    for end in ends:
        if end > n:
            yield (end, n)
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidegate.sdk.user_code.body import Function

Comprehension: TypeAlias = ast.ListComp | ast.GeneratorExp

_LISTS_HAVE_FRAMES: Final = sys.version_info < (3, 12)


@dataclass(frozen=True, slots=True)
class Looping:
    """A function with a loop that yields what the function has a comprehension of."""

    node: ast.FunctionDef
    comprehension: Comprehension


def with_loop(node: Function, *, lists: bool) -> Looping | None:
    """The function as one that yields its results, if they are a generator expression, or a list comprehension where
    `lists` are allowed; else None.

    A list is complete before the steps that follow take its first item. Where these are no functions of the author's,
    nobody can tell the difference.
    """
    body = [ast.copy_location(ast.Return(node.body), node.body)] if isinstance(node, ast.Lambda) else node.body
    match body:
        case [*first, ast.Return(value=ast.GeneratorExp() as made)]:
            pass
        case [*first, ast.Return(value=ast.ListComp() as made)] if lists:
            pass
        case _:
            return None
    if any(isinstance(each, (ast.Return, ast.Yield, ast.YieldFrom)) for part in first for each in ast.walk(part)):
        return None
    if not _is_alone(made, node):
        return None
    arguments = node.args
    function = ast.FunctionDef("made", arguments, [*first, _loops(made)], [])
    return Looping(ast.copy_location(function, node), made)


def frame_name(made: Comprehension) -> str:
    """The name of the frame in which a comprehension is evaluated, if it has one of its own."""
    if isinstance(made, ast.GeneratorExp):
        return "<genexpr>"
    return "<listcomp>" if _LISTS_HAVE_FRAMES else ""


def is_inside(made: Comprehension, place: Mapping[str, int]) -> bool:
    """Whether a position is in a comprehension, and not that of its beginning: its first iterable is evaluated, and
    iterated over, around it."""
    line, column = place["lineno"], place["col_offset"]
    if (line, column, place["end_col_offset"]) == (made.lineno, made.col_offset, made.end_col_offset):
        return False
    return _covers(made, line, column) and not _covers(made.generators[0].iter, line, column)


def _covers(node: ast.expr, line: int, column: int) -> bool:
    end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return (node.lineno, node.col_offset) <= (line, column) < end


def _loops(made: Comprehension) -> ast.stmt:
    """The statements that yield the items of a comprehension."""
    inner: ast.stmt = ast.copy_location(ast.Expr(ast.copy_location(ast.Yield(made.elt), made.elt)), made.elt)
    for generator in reversed(made.generators):
        for condition in reversed(generator.ifs):
            inner = ast.copy_location(ast.If(condition, [inner], []), condition)
        like = made if generator is made.generators[0] else generator.iter
        inner = ast.copy_location(ast.For(generator.target, generator.iter, [inner], []), like)
    return inner


def _is_alone(made: Comprehension, function: Function) -> bool:
    """Whether the variables of a comprehension could be those of the function around it."""
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


def _assigned(made: Comprehension) -> Iterator[str]:
    for generator in made.generators:
        for each in ast.walk(generator.target):
            if isinstance(each, ast.Name):
                yield each.id

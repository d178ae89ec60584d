"""Generator expressions and lambdas in inlined bodies, which are made from the code that the author's function has.

Python makes a new function each time it evaluates one. A loop makes it once, which nothing can show if the function
captures nothing that differs between elements, and if no object but a generator, or a builtin that calls it, gets it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Final

from tidegate.sdk.user_code.body import Function

ITER: Final = "<iter>"
"""The name that stands for the builtin `iter` in a body; no name of the author's has such characters."""

_CALLS_ONLY: Final[dict[str, Any]] = {each.__name__: each for each in (sorted, min, max, map, filter)}
"""Builtins that do nothing with a function but call it."""

_ITERABLES_HAVE_PLACES: Final = sys.version_info >= (3, 13)
"""Whether an error shows the iterable that a generator expression can't iterate over, and not the whole expression."""


@dataclass(slots=True)
class InnerFunctions(ast.NodeTransformer):
    """Replaces the generator expressions and lambdas of a body that don't capture a variable of `own`.

    `made` has the functions, by the names that stand for them. `builtins` are the global names which have to be those
    of builtins.
    """

    fn: FunctionType
    own: frozenset[str]
    made: dict[str, FunctionType] = field(default_factory=dict)
    builtins: dict[str, Any] = field(default_factory=dict)

    def replace_in(self, node: Function) -> None:
        """Replace them in the body of a function."""
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            node.body = [self.visit(statement) for statement in node.body]

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        """`(y for y in x)` becomes a call of a function with the iterator of `x`, which it is to Python as well."""
        name = None if any(each.is_async for each in node.generators) else self._name(node, "<genexpr>")
        if name is None:
            return node
        iterable = self.visit(node.generators[0].iter)
        like = iterable if _ITERABLES_HAVE_PLACES else node
        iterator = ast.copy_location(ast.Call(_name(ITER, like), [iterable], []), like)
        return ast.copy_location(ast.Call(_name(name, node), [iterator], []), node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """A lambda stays as it is, unless a builtin is called with it."""
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node.func:
            case ast.Name(id=name) if name in _CALLS_ONLY and name not in self.own:
                node.args = [self._passed(name, each) for each in node.args]
                for keyword in node.keywords:
                    keyword.value = self._passed(name, keyword.value)
        return self.generic_visit(node)

    def _passed(self, to: str, node: ast.expr) -> ast.expr:
        """An argument of a builtin."""
        if not isinstance(node, ast.Lambda) or _has_defaults(node):
            return node
        name = self._name(node, "<lambda>")
        if name is None:
            return node
        self.builtins[to] = _CALLS_ONLY[to]
        return _name(name, node)

    def _name(self, node: ast.expr, kind: str) -> str | None:
        """The name for a function that is made from the code of a node; None if there is no such code."""
        code = next(_codes_of(self.fn.__code__, kind, node), None)
        captured = dict(zip(self.fn.__code__.co_freevars, self.fn.__closure__ or (), strict=True))
        if code is None or not captured.keys() - self.own >= set(code.co_freevars):
            return None
        name = f"<{len(self.made)}>"
        cells = tuple(captured[each] for each in code.co_freevars)
        self.made[name] = FunctionType(code, self.fn.__globals__, None, None, cells)
        return name


def _name(name: str, like: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Name(name, ast.Load()), like)


def _has_defaults(node: ast.Lambda) -> bool:
    return bool(node.args.defaults) or any(node.args.kw_defaults)


def _codes_of(code: CodeType, kind: str, node: ast.expr) -> Iterator[CodeType]:
    """The code inside of other code that a node was compiled to: the outermost of its kind with the node's place."""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            if const.co_name == kind and _lies_in(const, node):
                yield const
            else:
                yield from _codes_of(const, kind, node)


def _lies_in(code: CodeType, node: ast.expr) -> bool:
    """Whether all instructions were compiled from a node, but for those that Python adds."""
    begin, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    places = [
        ((line, column), (end_line, end_column))
        for line, end_line, column, end_column in code.co_positions()
        if line is not None and end_line is not None and column is not None and end_column is not None
        if (line, column) != (end_line, end_column)
    ]
    return bool(places) and all(begin <= first and last <= end for first, last in places)

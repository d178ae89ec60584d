"""Recognizes `TaggedOutput("tag", value)` where a function returns it, so that a loop need not make one."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidegate.runners.engine.loops.bodies.statements import Parts, TaggedReturn


@dataclass(slots=True)
class TaggedResults:
    """Replaces the returns of a body that make TaggedOutputs.

    `makes_tagged` says whether the function of a call is TaggedOutput; `functions` are those for which it has said so.
    """

    makes_tagged: Callable[[ast.expr], bool]
    functions: list[ast.expr] = field(default_factory=list)

    def replaced(self, body: Parts) -> Parts:
        """The body of a function that is no generator, with other returns."""
        expression = body.expression
        if expression is None or not isinstance(expression, (ast.Call, ast.IfExp)):
            return Parts(tuple(self._statements(body.first)), expression)
        returned = self._returned(ast.copy_location(ast.Return(expression), expression))
        return Parts((*body.first, returned), None) if self.functions else body

    def _statements(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        done: list[ast.stmt] = []
        for statement in statements:
            match statement:
                case ast.Return(value=ast.Call() | ast.IfExp()):
                    done.append(self._returned(statement))
                    continue
                case ast.If() | ast.For() | ast.While():
                    statement.body = self._statements(statement.body)
                    statement.orelse = self._statements(statement.orelse)
            done.append(statement)
        return done

    def _returned(self, statement: ast.Return) -> ast.stmt:
        """`return` of a conditional expression becomes an `if` with two of them."""
        match statement.value:
            case ast.Call(func=function, args=[ast.Constant(value=str(tag)), value], keywords=[]) if not isinstance(
                value, ast.Starred
            ) and self.makes_tagged(function):
                self.functions.append(function)
                return ast.copy_location(TaggedReturn(value=value, tag=tag), statement)
            case ast.IfExp(test=test, body=body, orelse=orelse) as choice:
                known = len(self.functions)
                both = [self._returned(ast.copy_location(ast.Return(each), each)) for each in (body, orelse)]
                if len(self.functions) > known:
                    return ast.copy_location(ast.If(test, [both[0]], [both[1]]), choice)
        return statement

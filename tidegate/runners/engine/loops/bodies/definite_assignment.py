"""Finds local variables of a function that may be read before they are assigned.

Such a read raises UnboundLocalError in a call, but in a loop it could find the value of an element before. The analysis
follows control flow as Java's definite assignment does: it may reject a function that never fails, and accepts none
that may.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

State: TypeAlias = frozenset[str] | None
"""The variables that have been assigned wherever control has come from; None where control never gets."""


def may_be_unset(nodes: Sequence[ast.stmt | ast.expr], local: frozenset[str]) -> str:
    """A variable of `local` that these statements and expressions may read unset; "" if there is none."""
    flow = _Flow(local)
    state: State = frozenset()
    for node in nodes:
        state = flow.statement(node, state) if isinstance(node, ast.stmt) else flow.read(node, state)
    return flow.unset


@dataclass(slots=True)
class _Flow:
    local: frozenset[str]
    unset: str = ""
    breaks: list[State] = field(default_factory=list)
    """The states of the `break`s of the loop around the current statement."""

    def block(self, statements: Iterable[ast.stmt], state: State) -> State:
        for statement in statements:
            state = self.statement(statement, state)
        return state

    def statement(self, node: ast.stmt, state: State) -> State:
        """The state after a statement."""
        match node:
            case ast.Assign(targets=targets, value=value):
                return self.stored(targets, self.read(value, state))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                return self.stored([target], self.read(value, state))
            case ast.AugAssign(target=ast.Name(id=name) as target, value=value):
                self.reads(name, state)
                return self.stored([target], self.read(value, state))
            case ast.AugAssign(target=target, value=value):
                return self.read(value, self.read(target, state))
            case ast.If(test=test, body=body, orelse=orelse):
                true, false = self.test(test, state)
                return _both(self.block(body, true), self.block(orelse, false))
            case ast.For(target=target, iter=iterable, body=body, orelse=orelse):
                state = self.read(iterable, state)
                broken = self.loop(body, self.stored([target], state))
                return _both(self.block(orelse, state), broken)
            case ast.While(test=test, body=body, orelse=orelse):
                true, false = self.test(test, state)
                broken = self.loop(body, true)
                return _both(self.block(orelse, false), broken)
            case ast.Break():
                self.breaks.append(state)
                return None
            case ast.Continue():
                return None
            case ast.Return(value=value):
                self.read(value, state)
                return None
            case ast.Raise(exc=exc, cause=cause):
                self.read(cause, self.read(exc, state))
                return None
            case ast.Assert(test=test, msg=message):
                self.read(message, self.test(test, state)[1])
                return state  # `python -O` leaves out what an assertion assigns
            case ast.Expr(value=ast.Yield(value=value)):
                return self.read(value, state)
            case ast.Expr(value=value):
                return self.read(value, state)
            case _:
                return state

    def loop(self, body: Sequence[ast.stmt], state: State) -> State:
        """The state after the `break`s of a loop. Each time around, at least the variables of `state` are assigned."""
        around, self.breaks = self.breaks, []
        self.block(body, state)
        after: State = None
        for broken in self.breaks:
            after = _both(after, broken)
        self.breaks = around
        return after

    def test(self, node: ast.expr, state: State) -> tuple[State, State]:
        """The states after a condition that is true, and after one that is false."""
        match node:
            case ast.BoolOp(op=ast.And(), values=values):
                fails: State = None
                for value in values:
                    state, false = self.test(value, state)
                    fails = _both(fails, false)
                return state, fails
            case ast.BoolOp(op=ast.Or(), values=values):
                holds: State = None
                for value in values:
                    true, state = self.test(value, state)
                    holds = _both(holds, true)
                return holds, state
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                true, false = self.test(operand, state)
                return false, true
            case ast.Constant(value=value) if value:
                return state, None
        state = self.read(node, state)
        return state, state

    def read(self, node: ast.expr | None, state: State) -> State:
        """The state after the evaluation of an expression."""
        match node:
            case None:
                return state
            case ast.Name(id=name):
                self.reads(name, state)
                return state
            case ast.NamedExpr(target=target, value=value):
                return self.stored([target], self.read(value, state))
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return _both(*self.test(node, state))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                true, false = self.test(test, state)
                return _both(self.read(body, true), self.read(orelse, false))
            case ast.Compare(left=left, comparators=[first, *others]):
                state = after = self.read(first, self.read(left, state))
                for other in others:
                    after = self.read(other, after)
                return state
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    state = self.read(value, self.read(key, state))
                return state
            case ast.ListComp() | ast.SetComp() | ast.DictComp():
                return self.comprehension(node, state)
            case _:
                return self.parts(node, state)

    def parts(self, node: ast.AST, state: State) -> State:
        for part in ast.iter_child_nodes(node):
            state = self.read(part, state) if isinstance(part, ast.expr) else self.parts(part, state)
        return state

    def comprehension(self, node: Any, state: State) -> State:
        """The state after a comprehension: whatever it assigns, it may have had no items."""
        after = inner = self.read(node.generators[0].iter, state)
        for number, generator in enumerate(node.generators):
            if number:
                inner = self.read(generator.iter, inner)
            inner = self.stored([generator.target], inner)
            for condition in generator.ifs:
                inner = self.test(condition, inner)[0]
        for result in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            inner = self.read(result, inner)
        return after

    def stored(self, targets: Iterable[ast.expr], state: State) -> State:
        """The state after an assignment to targets, whose own expressions are evaluated from left to right."""
        for target in targets:
            match target:
                case ast.Name(id=name):
                    state = None if state is None else state | {name}
                case ast.Tuple(elts=parts) | ast.List(elts=parts):
                    state = self.stored(parts, state)
                case ast.Starred(value=value):
                    state = self.stored([value], state)
                case _:
                    state = self.parts(target, state)
        return state

    def reads(self, name: str, state: State) -> None:
        """Note a read of a variable."""
        if state is not None and name in self.local and name not in state:
            self.unset = self.unset or name


def _both(one: State, other: State) -> State:
    """The state where control comes from two places."""
    if one is None or other is None:
        return one if other is None else other
    return one & other

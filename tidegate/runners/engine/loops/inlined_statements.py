"""The statements of a loop that stand for the call of an inlined function: its arguments, statements and result."""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TypeAlias, TypeVar

from tidegate.runners.engine.loops.bodies.plain_syntax import targets_inside
from tidegate.runners.engine.loops.form import Assign, At, Bodies, Statement, Statements, Test, body_names
from tidegate.runners.engine.loops.inlined_body import InlinedBody
from tidegate.sdk.authoring.dofn import Param

T = TypeVar("T")
Before: TypeAlias = Generator[Statement, None, T]
"""Statements that come before something, which is returned."""


def arguments(
    at: At, body: InlinedBody, argument: Callable[[Param], str], *, fits: bool = False
) -> Before[dict[str, str]]:
    """Assign the arguments of a body, each evaluated once. The variables for what it reads.

    `argument` returns the expression of an argument. `fits`: the element is a tuple that has an item for each of the
    body's parameters for items.
    """
    k, element = at
    names = body_names(k, body)
    taken = ", ".join(names[name] for name in body.items) + ("," if len(body.items) == 1 else "")
    if fits:
        yield Assign(taken, element, at)
    elif body.items:
        others = ((name if param.keyword else "", argument(param)) for name, param in body.arguments.items())
        given = [f"*{element}", *(f"{name}={expression}" if name else expression for name, expression in others)]
        test = f"type({element}) is tuple and len({element}) == {len(body.items)}"
        refused = Assign(taken, f"taking{k}({', '.join(given)})", at)
        yield Test(test, (Assign(taken, element, at),), (refused,), at)
    for name, param in body.arguments.items():
        expression = argument(param)
        if name in body.local:
            yield Assign(names[name], expression, at)
        elif expression.isidentifier():
            names[name] = expression
        else:
            names[name] = f"a{k}_{name}"
            yield Assign(names[name], expression, at)
    yield from _defaults(at, body, names)
    return names


def _defaults(at: At, body: InlinedBody, names: Mapping[str, str]) -> Iterator[Statement]:
    for name in body.defaults:
        if name in body.local:
            yield Assign(names[name], f"d{at[0]}_{name}", at)


def result_of(bodies: Bodies, at: At, body: InlinedBody, names: dict[str, str], result: str) -> Before[str]:
    """The statements of a body. Returns the expression of its result, which may have been assigned to `result`.

    The expression can be evaluated once, in the next statement.
    """
    if body.first:
        yield bodies.statements(at, body, names, result)
    if body.expression is not None and not body.local:
        return bodies.expression(at, body, names, "", body.expression)
    if body.expression is not None:
        yield Assign(result, bodies.expression(at, body, names, "", body.expression), at)
    yield from forgetting(at[0], body)
    return result


def adding(bodies: Bodies, at: At, body: InlinedBody, *, pairwise: bool) -> Iterator[Statement]:
    """Add the input `x` to an accumulator. `pairwise`: the first input is the accumulator."""
    accumulator = f"a{at[0]}"
    stays = not pairwise and _returns_accumulator(body)
    added = tuple(_added(bodies, at, body, accumulator, stays=stays))
    new = f"{accumulator} is None and k not in table"
    yield Assign(accumulator, "get(k)")
    if pairwise:
        yield Test(new, (Assign("table[k]", "x"),), added)
    else:
        yield Test(new, (Assign(f"{accumulator} = table[k]" if stays else accumulator, "create()"),))
        yield from added


def _returns_accumulator(body: InlinedBody) -> bool:
    """Whether a body always returns the accumulator that it was given, which is in the table then."""
    accumulator = next(iter(body.arguments))
    match body.expression:
        case ast.Name(id=name):
            return name == accumulator and name not in body.local
    return False


def _added(bodies: Bodies, at: At, body: InlinedBody, accumulator: str, *, stays: bool) -> Iterator[Statement]:
    k, _ = at
    nodes = [*body.first, *([body.expression] if body.expression is not None else [])]
    value, names = "x", body_names(k, body)
    if "x" in targets_inside(nodes):  # a variable of a comprehension
        value = f"v{k + 1}"
        yield Assign(value, "x", at)
    for name, variable in zip(body.arguments, (accumulator, value), strict=True):
        if name in body.local:
            yield Assign(names[name], variable, at)
        else:
            names[name] = variable
    yield from _defaults(at, body, names)
    result = f"r{k}"
    if body.first:
        yield bodies.statements(at, body, names, result)
    if body.expression is not None and not stays:
        result = bodies.expression(at, body, names, "", body.expression)
    if not stays:
        yield Assign("table[k]", result, at)
    yield from forgetting(k, body)


def forgetting(k: int, body: InlinedBody, *others: str) -> Statements:
    """The statement that drops the values of a body's variables, as the end of a call does, if they need it; and those
    of other variables."""
    dropped = [*(f"l{k}_{name}" for name in body.dropped), *others]
    return (Assign(" = ".join(dropped), "None"),) if dropped else ()

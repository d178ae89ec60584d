"""Writes the lines of a loop that stand for the call of an inlined function: its arguments, statements and result."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from tidegate.runners.engine.loops.code_writer import CodeWriter, body_names
from tidegate.runners.engine.loops.inlining import InlinedBody
from tidegate.runners.engine.loops.plain_syntax import targets_inside
from tidegate.sdk.authoring.dofn import Param


def write_arguments(
    w: CodeWriter, k: int, body: InlinedBody, element: str, argument: Callable[[Param], str]
) -> dict[str, str]:
    """Write the lines that assign the arguments of a body, each evaluated once. The variables for what it reads.

    `argument` returns the expression of an argument.
    """
    names = body_names(k, body)
    if body.items:
        taken = ", ".join(names[name] for name in body.items) + ("," if len(body.items) == 1 else "")
        given = [f"*{element}"]
        for name, param in body.arguments.items():
            expression = argument(param)
            given.append(f"{name}={expression}" if param.keyword else expression)
        w.put(f"if type({element}) is tuple and len({element}) == {len(body.items)}: {taken} = {element}", k, element)
        w.put(f"else: {taken} = taking{k}({', '.join(given)})", k, element)
    for name, param in body.arguments.items():
        expression = argument(param)
        if name in body.local:
            w.put(f"{names[name]} = {expression}", k, element)
        elif expression.isidentifier():
            names[name] = expression
        else:
            names[name] = f"a{k}_{name}"
            w.put(f"{names[name]} = {expression}", k, element)
    _assign_defaults(w, k, body, names, element)
    return names


def _assign_defaults(w: CodeWriter, k: int, body: InlinedBody, names: Mapping[str, str], element: str) -> None:
    for name in body.defaults:
        if name in body.local:
            w.put(f"{names[name]} = d{k}_{name}", k, element)


def write_result(w: CodeWriter, k: int, body: InlinedBody, names: dict[str, str], element: str, result: str) -> str:
    """Write the statements of a body. Returns the expression of its result, which may have been assigned to `result`.

    The expression can be evaluated once, in the next line.
    """
    if body.first:
        w.put(w.place_first(k, body, names, element, result), k, element)
    if body.expression is not None and not body.local:
        return w.place(k, body, names, element)
    if body.expression is not None:
        w.put(f"{result} = {w.place(k, body, names, element)}", k, element)
    write_forgetting(w, k, body)
    return result


def write_only_item(
    w: CodeWriter, k: int, body: InlinedBody, item: ast.expr, names: dict[str, str], element: str, result: str
) -> None:
    """Write the statements of a body that returns a display of one item, of which nothing but the item is made."""
    if body.first:
        w.put(w.place_first(k, body, names, element, ""), k, element)
    w.put(f"{result} = {w.place(k, body, names, element, '_item', item)}", k, element)
    write_forgetting(w, k, body)


def write_adding(w: CodeWriter, k: int, body: InlinedBody, lines: Sequence[str], element: str) -> None:
    """Write the lines of a fold, with the body of the function that adds the input `x` in the line `{body}`."""
    nodes = [*body.first, *([body.expression] if body.expression is not None else [])]
    hidden = "x" in targets_inside(nodes)  # by a variable of a comprehension
    accumulator, value = f"a{k}", f"v{k + 1}" if hidden else "x"
    names = body_names(k, body)
    for line in lines:
        if line.strip() != "{body}":
            w.put(line.format(a=accumulator), k, element)
            continue
        depth = w.depth
        w.depth += line.startswith(" ")
        if hidden:
            w.put(f"{value} = x", k, element)
        for name, variable in zip(body.arguments, (accumulator, value), strict=True):
            if name in body.local:
                w.put(f"{names[name]} = {variable}", k, element)
            else:
                names[name] = variable
        _assign_defaults(w, k, body, names, element)
        w.put(f"table[k] = {write_result(w, k, body, names, element, f'r{k}')}", k, element)
        w.depth = depth


def forgetting(k: int, body: InlinedBody) -> str:
    """The line that drops the values of a body's variables, as the end of a call does; "" if it has none."""
    return " = ".join([*(f"l{k}_{name}" for name in body.local), "None"]) if body.local else ""


def write_forgetting(w: CodeWriter, k: int, body: InlinedBody) -> None:
    """Write the line that drops the values of a body's variables."""
    if body.local:
        w.put(forgetting(k, body))

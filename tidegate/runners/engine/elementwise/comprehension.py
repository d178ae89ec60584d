"""Generates the loop of a chain as one comprehension, which is faster than a loop that appends.

That is possible if nothing leaves the chain by a side exit, and if the number of elements that each link has emitted
follows from the number that the chain has: a link that returns displays of a fixed length emits that many for each.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.elementwise.shape import Shape
from tidegate.runners.engine.loops.code_writer import CodeWriter, Source, body_names, read_globals
from tidegate.runners.engine.loops.inlining import InlinedBody

_NEVER_NONE: Final = (ast.Tuple, ast.List, ast.ListComp)
"""Expressions with several results: neither None nor anything that a step refuses to iterate over."""

_HAVE_FRAMES: Final = sys.version_info < (3, 12)
"""Whether a comprehension has a frame, whose variables name the element of an error. Later versions of Python clear the
variables of a comprehension when an error leaves it."""


def comprehension(
    links: Sequence[Link], shape: Shape, bodies: Mapping[int, InlinedBody], counted: tuple[int, ...]
) -> Source | None:
    """The loop over `links`, of which those in `bodies` are inlined; None if it has to be a loop.

    `counted` are the links whose outputs the loop counts.
    """
    if not _HAVE_FRAMES or not _has_no_columns(links, shape):
        return None
    if not all(_fits(link, bodies.get(k)) for k, link in enumerate(links)):
        return None
    divisors = {k: _results_per_element(links, bodies, k) for k in counted}
    if None in divisors.values():
        return None
    w = CodeWriter()
    called = [k for k, link in enumerate(links) if link.fn is not None and k not in bodies]
    w.put(f"def run(values, t, block{''.join(f', f{k}=f{k}' for k in called)}):")
    with w.indented():
        for k, body in bodies.items():
            read_globals(w, k, body)
        w.put("out = [")
        with w.indented():
            _clauses(w, links, bodies)
        w.put("]")
        for k, divisor in divisors.items():
            w.put(f"counts[{k}] += len(out) // {divisor}")
        w.put("if out:")
        several = any(link.flat for link in links)
        w.put(f"    yield {'from pack_split' if several else 'pack'}(block, out, [], [], [])")
    return w.source(counted)


def _clauses(w: CodeWriter, links: Sequence[Link], bodies: Mapping[int, InlinedBody]) -> None:
    """Write the chain's result, and a clause for each link. The call of a last `map` is the result itself."""
    clauses: list[tuple[str, int | None, str]] = [("for v0 in values", None, "")]
    element = "v0"
    last: tuple[str, int | None, str] | None = None
    for k, link in enumerate(links):
        if link.form == "assign":
            continue
        call = _call(w, k, element, bodies.get(k))
        if link.form == "filter":
            clauses.append((f"if {call}", k, element))
        elif link.form == "map" and k == len(links) - 1:
            last = call, k, element
        else:
            clauses.append((f"for v{k + 1} in {call if link.flat else f'({call},)'}", k, element))
            element = f"v{k + 1}"
    for text, step, local in (last or (element, None, ""), *clauses):
        w.put(text, step, local)


def _call(w: CodeWriter, k: int, element: str, body: InlinedBody | None) -> str:
    if body is None:
        return f"f{k}({element})"
    names = body_names(k, body)
    for name, param in body.arguments.items():
        names[name] = element if param.kind == "element" else f"c{k}_{param.ref}"
    return w.place(k, body, names, element)


def _has_no_columns(links: Sequence[Link], shape: Shape) -> bool:
    """Whether the loop makes only a column of values: all others are those of the block."""
    if shape.checked or shape.typed or shape.indexed or shape.in_several or shape.stamps:
        return False
    return not shape.timed or not any(link.changes_count for link in links)


def _fits(link: Link, body: InlinedBody | None) -> bool:
    """Whether a link can be a clause of a comprehension."""
    if link.form == "assign":
        return not (link.looks_up_windows or link.may_drop or link.assigns_several)
    if link.form not in ("map", "filter", "flat_map") or link.guarded or link.catches or link.sees_window:
        return False
    if body is None:
        return not link.flat and [(param.kind, param.keyword) for param in link.params] == [("element", None)]
    passed = body.one_expression and all(param.kind in ("element", "const") for param in body.arguments.values())
    return passed and (not link.flat or isinstance(body.expression, _NEVER_NONE))


def _results_per_element(links: Sequence[Link], bodies: Mapping[int, InlinedBody], k: int) -> int | None:
    """How many elements the chain emits for each that link `k` does; None if that is not known."""
    product = 1
    for j in range(k + 1, len(links)):
        if links[j].changes_count:
            match bodies.get(j):
                case InlinedBody(expression=ast.Tuple(elts=parts) | ast.List(elts=parts)) if (
                    links[j].flat and parts and not any(isinstance(part, ast.Starred) for part in parts)
                ):
                    product *= len(parts)
                case _:
                    return None
    return product

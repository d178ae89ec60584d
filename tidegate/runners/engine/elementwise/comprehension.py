"""Builds the loop of a chain as one comprehension, which is faster than a loop that appends.

That is possible if nothing leaves the chain by a side exit, and if the number of elements that each link has emitted
follows from the number that the chain has: a link that returns displays of a fixed length emits that many for each.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.elementwise.loop_builder import LoopBuilder
from tidegate.runners.engine.elementwise.shape import Shape
from tidegate.runners.engine.loops.form import Assign, At, Bodies, Collect, Emit, Form, Test, body_names
from tidegate.runners.engine.loops.inlined_body import InlinedBody

_NEVER_NONE: Final = (ast.Tuple, ast.List, ast.ListComp)
"""Expressions with several results: neither None nor anything that a step refuses to iterate over."""

_HAVE_FRAMES: Final = sys.version_info < (3, 12)
"""Whether a comprehension has a frame, whose variables name the element of an error. Later versions of Python clear the
variables of a comprehension when an error leaves it."""


def comprehension(w: LoopBuilder) -> Form | None:
    """The loop over the links of a chain as a comprehension; None if it has to be a loop."""
    if not _HAVE_FRAMES or not _has_no_columns(w.links, w.shape):
        return None
    if not all(_fits(link, w.inlined.get(k)) for k, link in enumerate(w.links)):
        return None
    divisors = {k: _results_per_element(w.links, w.inlined, k) for k in w.counted}
    if None in divisors.values():
        return None
    several = any(link.flat for link in w.links)
    parts = _parts(w)
    # There is one filter at most: with two, the number of elements that leave the first could not be known.
    condition = next((at for _, at in parts if at is not None and w.links[at[0]].form == "filter"), None)
    body = (
        *w.globals(),
        Collect("out", parts, condition),
        *(Assign(f"counts[{k}]", f"len(out) // {divisor}", adds=True) for k, divisor in divisors.items()),
        Test("out", (Emit(f"{'pack_split' if several else 'pack'}(block, out, [], [], [])", several=several),)),
    )
    return Form(w.parameters(), body, tuple(w.bodies.placed), w.counted)


def _parts(w: LoopBuilder) -> tuple[tuple[str, At | None], ...]:
    """The chain's result, and a clause for each link. The call of a last `map` is the result itself."""
    clauses: list[tuple[str, At | None]] = [("for v0 in values", None)]
    element = "v0"
    last: tuple[str, At] | None = None
    for k, link in enumerate(w.links):
        if link.form == "assign":
            continue
        at = k, element
        call = _call(w.bodies, at, w.inlined.get(k))
        if link.form == "filter":
            clauses.append((f"if {_is_true(call, w.inlined.get(k))}", at))
        elif link.form == "map" and k == len(w.links) - 1:
            last = call, at
        else:
            element = f"v{k + 1}"
            clauses.append((f"for {element} in {call if link.flat else f'({call},)'}", at))
    return last or (element, None), *clauses


def _call(bodies: Bodies, at: At, body: InlinedBody | None) -> str:
    k, element = at
    if body is None:
        return f"f{k}({element})"
    given = {name: element if of.kind == "element" else f"c{k}_{of.ref}" for name, of in body.arguments.items()}
    return bodies.expression(at, body, body_names(k, body) | given, "", body.expression)


def _is_true(call: str, body: InlinedBody | None) -> str:
    """The condition that a result is true, whose evaluation does not depend on what is done with the result."""
    if body is None or body.testable:
        return call
    return f"{call} is True" if body.gives_bool else f"(not {call}) is False"


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

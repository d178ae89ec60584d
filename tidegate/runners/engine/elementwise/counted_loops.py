"""Adds the results of a step that has several per element to a table, and accounts for them.

Where a function does nothing but yield a pair for each item of a list, the items are counted at once, and the loop adds
them to the table without any other statement: `for target in items: table[target] = get(target, 0) + share`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.elementwise.loop_builder import LoopBuilder
from tidegate.runners.engine.elementwise.shape import Fold
from tidegate.runners.engine.elementwise.wrapped_results import needs_guard
from tidegate.runners.engine.loops.form import Assign, At, Do, Emit, Loop, Run, Statement, Statements, Test
from tidegate.runners.engine.loops.inlining import InlinedBody
from tidegate.runners.engine.loops.statements import YIELDED, only_yields_pairs


def accounted(w: LoopBuilder, fold: Fold, at: At) -> Statement:
    """Account for the elements that have been added, if they are many. The tables may be spilled then, so that others
    are in their place."""
    counted = f"n{w.counted[-1]}"
    added = Emit(f"added({counted} - full + block_size)", at), Assign("full", f"{counted} + block_size")
    return Test(f"{counted} >= full", (*added, *fold.first_table()))


def repeated(w: LoopBuilder, k: int, link: Link, body: InlinedBody, names: Mapping[str, str]) -> Statements:
    """What stands for the only loop of a body that does nothing but yield (see `statements.yielding`), if its results
    are added as they are to one table; () otherwise."""
    fold, loops = w.fold, [loop for part in body.first for loop in ast.walk(part) if isinstance(loop, ast.For)]
    pairs = [pair for loop in loops if (pair := only_yields_pairs(loop)) is not None]
    if fold is None or not fold.plain or fold.windows in ("single", "multi") or len(pairs) != 1:
        return ()
    if k < len(w.links) - 1 or w.shape.checked or w.shape.typed or needs_guard(w, k, link):
        return ()
    key, value = (names.get(part.id, part.id) if isinstance(part, ast.Name) else "" for part in pairs[0].elts)
    if not key:
        return ()
    at = k + 1, f"{key}, {value or 'x'}"
    taken = () if value else (Assign("x", YIELDED, (k, f"v{k}")),)
    added = tuple(_renamed(each, {"k": key, "x": value or "x"}) for each in fold.body)
    counted = Assign(f"n{k}", f"len(items{k})", adds=True)
    loop = Loop("_", f"items{k}", (*taken, Run(at, added)))
    return (
        Assign(f"items{k}", YIELDED, (k, f"v{k}")),
        Test(f"type(items{k}) in SIZED", (counted, loop, accounted(w, fold, at))),
    )


def _renamed(statement: Statement, names: Mapping[str, str]) -> Statement:
    """A statement of a fold with other names for the key and the value."""

    def text(of: str) -> str:
        return re.sub(r"\b[kx]\b", lambda found: names[found[0]], of)

    match statement:
        case Assign(target, value):
            return Assign(text(target), text(value))
        case Do(what):
            return Do(text(what))
        case Test(condition, then, otherwise):
            inside = tuple(_renamed(each, names) for each in then)
            return Test(text(condition), inside, tuple(_renamed(each, names) for each in otherwise))
        case _:
            raise AssertionError(f"a fold has no {type(statement).__name__}")

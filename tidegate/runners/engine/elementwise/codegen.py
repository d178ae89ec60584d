"""Builds the loop of a fused chain, in which each step has a statement and a local of its own.

Per element, the loop calls only the author's functions. When one raises, the line number in the traceback identifies
the step, and the local holds the element: precise errors cost nothing.

There is a variant of the loop for each shape of block: it handles timestamps and windows per element only if they
differ within the block, and has the statements for `--checks` only if the block is to be checked.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Final

from tidegate.runners.engine.elementwise.comprehension import comprehension
from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.elementwise.link_statements import accounted, emitting, no_types, run_link
from tidegate.runners.engine.elementwise.loop_builder import AT, EMPTY, NEXT, LoopBuilder
from tidegate.runners.engine.elementwise.shape import Fold, Shape, lookup
from tidegate.runners.engine.elementwise.wrapped_results import needs_guard
from tidegate.runners.engine.loops.form import (
    Assign,
    Block,
    Building,
    Do,
    Emit,
    Form,
    Loop,
    Run,
    Statements,
    Test,
    Try,
    built,
)
from tidegate.runners.engine.loops.inlined_body import InlinedBody
from tidegate.runners.engine.loops.inlined_statements import adding
from tidegate.sdk.windowing.assigners import element_dependent


def generate(
    links: Sequence[Link], shape: Shape, fold: Fold | None, bodies: Mapping[int, InlinedBody] | None = None
) -> Form:
    """The loop over `links`; it ends in blocks, or in a fold into tables. `bodies` has those of the inlined links."""
    counted = _counted(links, fold)
    inlined = {k: body for k, body in sorted((bodies or {}).items()) if k in shape.inlined}
    w = LoopBuilder(links, shape, fold, inlined, counted, in_several=shape.in_several)
    made = comprehension(w) if inlined and fold is None else None
    if made is not None:
        return made
    if shape.times_by_index:
        w.time = f"t[{AT}]"
    loop = w.each_element(built(_links(w, 0, w.element, _last_pair(w))))
    body = *built(_before(w)), _unwrapping(loop) if shape.raw else loop, *built(_after(w))
    return Form(w.parameters(), body, tuple(w.bodies.placed), counted)


def _counted(links: Sequence[Link], fold: Fold | None) -> tuple[int, ...]:
    """The links whose outputs the loop must count. The number of emitted elements gives that of the last such link."""
    changing = [k for k, link in enumerate(links) if link.changes_count]
    return tuple(changing if fold is not None else changing[:-1])


def _before(w: LoopBuilder) -> Building:
    """What is done before the loop over the elements."""
    shape = w.shape
    if w.fold is None:
        yield from EMPTY
    else:
        yield from w.fold.first_table()
        if w.fold.windows == "single":
            yield Assign("table = get = table_ = get_", "None")
    if shape.windows == "each":
        yield Assign("block_windows", "block.window_list()")
    yield w.panes()
    if shape.windows == "one" and any(link.sees_window for link in w.links):
        yield Assign("(only,)", "block.windows.windows")
    for k in w.counted:
        yield Assign(f"n{k}", "0")
    if w.adds_several:
        yield Assign("full", "block_size")
    yield from no_types(w)
    yield from w.globals()
    if w.needs_rest:
        yield Assign("rest", "iter(values)")
    if shape.raw:
        yield Assign("raw", "values")


def _unwrapping(loop: Loop) -> Block:
    """The loop over elements of which some may be TimestampedValues. It fails to unpack the first of these, before it
    has done anything with it, and goes on with the values of all that are left."""
    unwrapped = (
        Assign("left", "unwrapped(values, rest)"),
        Test("values is not raw or left is None", (Do("raise"),)),
        Assign("values, rest", "left, iter(left)"),
        Do("continue"),
    )
    return Block((Try((loop,), "TypeError", unwrapped),))


def _after(w: LoopBuilder) -> Building:
    """What is done after the loop over the elements."""
    for k in w.counted:
        yield Assign(f"counts[{k}]", f"n{k}", adds=True)
    if w.fold is not None:
        if w.adds_several:
            yield Do(f"added(n{w.counted[-1]} - full + block_size)")
        yield Do("return")
        yield Do("yield")
        return
    times: Statements = ()
    if w.shape.times_by_index:
        times = (Assign("out_t", "t if len(out) == len(values) else t[-len(out) :]"),)
    pack = f"{'pack_split' if w.few_results else 'pack'}(block, out, out_t, out_i, out_w)"
    yield Test("out", (*times, Emit(pack, several=w.few_results)))


def _links(w: LoopBuilder, k: int, element: str, pair: int) -> Building:
    """What links `k` and after do with an element."""
    if k == len(w.links):
        yield from emitting(w, element) if w.fold is None else _add(w, w.fold, element)
        return
    link = w.links[k]
    if link.form == "assign":
        yield _assign(w, k, element, pair)
        return
    result = element if link.form == "filter" else f"v{k + 1}"
    if w.fold is not None and k == pair:
        result = w.fold.key
    ran = run_link(w, k, element, result, lambda made: _links(w, k + 1, made, pair))
    if not link.sees_window:
        yield ran
    elif not w.windows and w.derived < 0 and w.shape.windows == "one":
        yield Assign(f"w{k}", "only")
        yield ran
    else:
        windows = w.element_windows()
        w.loops_over_windows, w.windows, w.in_several, w.skip = True, f"(w{k},)", False, NEXT
        yield Loop(f"w{k}", windows, built(ran), (k, element))


def _last_pair(w: LoopBuilder) -> int:
    """The last link if its result is a pair, of which the fold needs no more than its items; -1 otherwise."""
    if w.fold is None or w.shape.checked or w.shape.typed:
        return -1
    match ast.parse(w.fold.key).body:
        case [ast.Expr(value=ast.Tuple() as names)]:
            pass
        case _:
            return -1
    k = len(w.links) - 1
    while k >= 0 and w.links[k].form == "assign" and not element_dependent(w.links[k].windowing.assigner):
        k -= 1
    body = w.inlined.get(k)
    if body is None or not (w.links[k].form in ("map", "map_tuple") or body.yields):
        return -1
    if w.links[k].catches or needs_guard(w, k, w.links[k]):
        return -1
    made = body.yielded or (body.expression if body.stamped is None else body.stamped.value,)
    return k if all(_makes(names, each) for each in made) else -1


def _makes(names: ast.expr, made: ast.expr | None) -> bool:
    """Whether an expression makes a tuple for each tuple of names that it is assigned to."""
    match names, made:
        case ast.Tuple(elts=targets), ast.Tuple(elts=parts):
            return len(targets) == len(parts) and all(map(_makes, targets, parts))
        case ast.Name(), ast.expr():
            return not isinstance(made, ast.Starred)
    return False


def _assign(w: LoopBuilder, k: int, element: str, pair: int) -> Building:
    """Assign windows: look them up now, unless they can be derived from timestamps when they are needed.

    An element in several windows becomes one element per window, each of which is assigned windows.
    """
    if not w.in_several:
        yield _assigned(w, k, element, pair)
        return
    w.loops_over_windows = True
    yield Assign(f"windows{k}", w.element_windows(), (k, element))
    yield Assign(f"extra[{k}]", f"len(windows{k}) - 1", adds=True)
    w.skip = NEXT
    yield Loop("_", f"windows{k}", built(_assigned(w, k, element, pair)))


def _assigned(w: LoopBuilder, k: int, element: str, pair: int) -> Building:
    link = w.links[k]
    w.in_several = link.assigns_several
    if link.looks_up_windows:
        argument = f", {element}" if element_dependent(link.windowing.assigner) else ""
        yield Assign(f"w{k}", f"assign{k}({w.time}{argument})", (k, element))
        w.windows = f"w{k}"
        if link.may_drop:
            yield Test(f"not w{k}", w.skip)
    else:
        w.windows = ""
        w.derived = k
    if k in w.counted:
        yield Assign(f"n{k}", "1", adds=True)
    yield _links(w, k + 1, element, pair)


def _add(w: LoopBuilder, fold: Fold, result: str) -> Building:
    """Add a result of the last link to a table."""
    at = last, _ = len(w.links), result
    if w.shape.checked:
        yield Do(f"check_exchange({result})", at)
    inlined = last in w.shape.inlined
    statements = adding(w.bodies, at, w.inlined[last], pairwise=fold.pairwise) if inlined else fold.body
    assigned = () if w.unpacked or result == fold.key else (Assign(fold.key, result),)
    added = Run(at, (*assigned, *statements, *fold.also))
    match fold.windows:
        case "single":
            # Near the end of a window, elements of two windows alternate: the previous window and its table are cached.
            looked_up = *_LEFT, Assign("lo, hi, table", f"table_at({w.time})", at), Assign("get", "table.get", at)
            yield Test(f"not lo <= {w.time} < hi", (Test(f"lo_ <= {w.time} < hi_", _SWAPPED, looked_up),))
            yield added
        case "multi":
            windows = f"select_windows({w.element_windows()})" if fold.selects_windows else w.element_windows()
            yield Loop("window", windows, (*lookup("table_in(window)"), added), at)
        case _:
            yield added
    if w.adds_several:
        yield accounted(w, fold, at)


_SWAPPED: Final[Statements] = tuple(Assign(f"{one}, {one}_", f"{one}_, {one}") for one in ("lo", "hi", "table", "get"))
_LEFT: Final[Statements] = tuple(Assign(f"{one}_", one) for one in ("lo", "hi", "table", "get"))

"""Generates the source of a fused chain: one loop, in which each step has a line and a local of its own.

Per element, the loop calls only the author's functions. When one raises, the line number in the traceback identifies
the step, and the local holds the element: precise errors cost nothing.

There is a variant of the loop for each shape of block: it handles timestamps and windows per element only if they
differ within the block, and has the lines for `--checks` only if the block is to be checked.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Final

from tidegate.runners.engine.elementwise.comprehension import comprehension
from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.elementwise.link_lines import write_emitting, write_link
from tidegate.runners.engine.elementwise.loop_writer import AT, LoopWriter
from tidegate.runners.engine.elementwise.shape import Fold, Shape
from tidegate.runners.engine.elementwise.wrapped_results import sets_time, write_kinds
from tidegate.runners.engine.loops.code_writer import Source, read_globals
from tidegate.runners.engine.loops.inlined_lines import write_adding
from tidegate.runners.engine.loops.inlining import InlinedBody
from tidegate.sdk.windowing.assigners import element_dependent


def generate(
    links: Sequence[Link], shape: Shape, fold: Fold | None, bodies: Mapping[int, InlinedBody] | None = None
) -> Source:
    """The loop over `links`; it ends in blocks, or in a fold into tables. `bodies` has those of the inlined links."""
    counted = _counted(links, fold)
    inlined = {k: body for k, body in sorted((bodies or {}).items()) if k in shape.inlined}
    if inlined and fold is None:
        made = comprehension(links, shape, inlined, counted)
        if made is not None:
            return made
    w = LoopWriter(links, shape, fold, inlined, counted, in_several=shape.in_several)
    called = [k for k, link in enumerate(links) if link.fn is not None and k not in shape.inlined]
    functions = "".join(f", f{k}=f{k}" for k in called)  # locals are faster
    w.put(f"def run(values, t, block{functions}):")
    w.code.depth = 1
    if fold is None:
        w.put("out = []; out_t = []; out_i = []; out_w = []")
    elif fold.windows == "global":
        w.put("table = table_in(global_window); get = table.get")
    elif fold.windows == "same":
        w.put("table = table_in(block.windows.windows[0]); get = table.get")
    elif fold.windows == "inside":
        w.put("table = table_at(block.span[0])[2]; get = table.get")
    elif fold.windows == "single":
        w.put("lo = hi = lo_ = hi_ = 0; table = get = table_ = get_ = None")
    if shape.windows == "each":
        w.put("block_windows = block.window_list()")
    if shape.indexed:
        w.put("panes = block.pane_list()")
    else:
        w.put("pane = block.panes")
    if shape.windows == "one" and any(link.sees_window for link in links):
        w.put("(only,) = block.windows.windows")
    for k in counted:
        w.put(f"n{k} = 0")
    write_kinds(w)
    for k in sorted(shape.inlined):
        read_globals(w.code, k, w.bodies[k])
    match (shape.indexed, shape.timed):
        case (False, True) if shape.times_by_index:
            w.put("rest = iter(values)")
            w.put("for v0 in rest:")
            w.time = f"t[{AT}]"
        case (False, False):
            w.put("for v0 in values:")
        case (True, False):
            w.put("for i, v0 in enumerate(values):")
        case (False, True):
            w.put("for v0, t in zip(values, t):")
        case (True, True):
            w.put("for i, v0, t in zip(range(len(values)), values, t):")
    w.code.depth = 2
    _links(w)
    w.close_blocks()
    w.code.depth = 1
    for k in counted:
        w.put(f"counts[{k}] += n{k}")
    if fold is None:
        w.put("if out:")
        if shape.times_by_index:
            w.put("    out_t = t if len(out) == len(values) else t[-len(out) :]")
        w.put(f"    yield {'from pack_split' if w.few_results else 'pack'}(block, out, out_t, out_i, out_w)")
    else:
        w.put("return")
        w.put("yield")
    return w.code.source(counted)


def _counted(links: Sequence[Link], fold: Fold | None) -> tuple[int, ...]:
    """The links whose outputs the loop must count. The number of emitted elements gives that of the last such link."""
    changing = [k for k, link in enumerate(links) if link.changes_count]
    return tuple(changing if fold is not None else changing[:-1])


def _links(w: LoopWriter) -> None:
    result = "v0"
    pair = _last_pair(w)
    for k, link in enumerate(w.links):
        element = result
        if link.form == "assign":
            _assign(w, k, link, element)
            if k in w.counted:
                w.put(f"n{k} += 1")
            continue
        result = element if link.form == "filter" else _PAIR if k == pair else f"v{k + 1}"
        if link.sees_window and not w.windows and w.derived < 0 and w.shape.windows == "one":
            w.put(f"w{k} = only")
        elif link.sees_window:
            w.loops_over_windows = True
            w.open_loop(f"for w{k} in {w.element_windows()}:", k, element)
            w.windows = f"(w{k},)"
            w.in_several = False
        result = write_link(w, k, link, element, result)
        if not result:
            return
    if w.fold is None:
        write_emitting(w, result)
    else:
        _add(w, w.fold, result)


def _last_pair(w: LoopWriter) -> int:
    """The last link if its result is a pair, of which the fold needs no more than its items; -1 otherwise."""
    if w.fold is None or w.fold.key != f"{_PAIR} = {{v}}" or w.shape.checked or w.shape.typed:
        return -1
    k = len(w.links) - 1
    while k >= 0 and w.links[k].form == "assign" and not element_dependent(w.links[k].windowing.assigner):
        k -= 1
    if k not in w.bodies or w.links[k].form not in ("map", "map_tuple") or w.links[k].catches:
        return -1
    if w.links[k].guarded and not sets_time(w, k, w.links[k]):
        return -1
    body = w.bodies[k]
    match body.expression if body.stamped is None else body.stamped.value:
        case ast.Tuple(elts=[_, _] as parts) if not any(isinstance(part, ast.Starred) for part in parts):
            return k
    return -1


def _assign(w: LoopWriter, k: int, link: Link, element: str) -> None:
    """Assign windows: look them up now, unless they can be derived from timestamps when they are needed.

    An element in several windows becomes one element per window, each of which is assigned windows.
    """
    if w.in_several:
        w.loops_over_windows = True
        w.put(f"windows{k} = {w.element_windows()}", k, element)
        w.put(f"extra[{k}] += len(windows{k}) - 1")
        w.open_loop(f"for _ in windows{k}:")
    w.in_several = link.assigns_several
    if link.looks_up_windows:
        argument = f", {element}" if element_dependent(link.windowing.assigner) else ""
        w.put(f"w{k} = assign{k}({w.time}{argument})", k, element)
        w.windows = f"w{k}"
        if link.may_drop:
            w.put(f"if not w{k}: {w.skip}")
    else:
        w.windows = ""
        w.derived = k


def _add(w: LoopWriter, fold: Fold, result: str) -> None:
    """Write the lines that add a result of the last link to a table."""
    last = len(w.links)
    if w.shape.checked:
        w.put(f"check_exchange({result})", last, result)
    match fold.windows:
        case "single":
            # Near the end of a window, elements of two windows alternate: the previous window and its table are cached.
            w.put(f"if not lo <= {w.time} < hi:")
            w.put(f"    if lo_ <= {w.time} < hi_:")
            w.put("        lo, lo_ = lo_, lo; hi, hi_ = hi_, hi; table, table_ = table_, table; get, get_ = get_, get")
            w.put("    else:")
            w.put("        lo_ = lo; hi_ = hi; table_ = table; get_ = get")
            w.put(f"        lo, hi, table = table_at({w.time}); get = table.get", last, result)
        case "multi":
            windows = f"select_windows({w.element_windows()})" if fold.selects_windows else w.element_windows()
            w.put(f"for window in {windows}:", last, result)
            w.code.depth += 1
            w.put("table = table_in(window); get = table.get")
        case "global" | "same" | "inside":
            pass
    if result != _PAIR:
        w.put(fold.key.format(v=result), last, result)
    if last not in w.shape.inlined:
        for line in fold.body:
            w.put(line, last, result)
        return
    write_adding(w.code, last, w.bodies[last], fold.inlined, result)


_PAIR: Final = "k, x"
"""The variables of a pair that the last link of a fold emits."""

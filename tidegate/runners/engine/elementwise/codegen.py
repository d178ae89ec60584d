"""Generates the source of a fused chain: one loop, in which each step has a line and a local of its own.

Per element, the loop calls only the author's functions. When one raises, the line number in the traceback identifies
the step, and the local holds the element: precise errors cost nothing.

There is a variant of the loop for each shape of block: it handles timestamps and windows per element only if they
differ within the block, and has the lines for `--checks` only if the block is to be checked.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Final

from tidegate.runners.engine.elementwise.comprehension import comprehension
from tidegate.runners.engine.elementwise.fused_node import Link, argument
from tidegate.runners.engine.elementwise.inlined_lines import (
    forgetting,
    write_adding,
    write_arguments,
    write_forgetting,
    write_result,
)
from tidegate.runners.engine.elementwise.loop_writer import AT, LoopWriter
from tidegate.runners.engine.elementwise.shape import Fold, Shape
from tidegate.runners.engine.elementwise.wrapped_results import sets_time, write_guard, write_stamped, write_tagged
from tidegate.runners.engine.loops.code_writer import Source, read_globals
from tidegate.runners.engine.loops.inlining import InlinedBody
from tidegate.sdk.portable.model import ParDo
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
    w = LoopWriter(links, shape, fold, inlined, in_several=shape.in_several)
    carries_time = (shape.timed and not shape.times_by_index) or bool(shape.stamps)
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
    _links(w, counted, carries_time)
    for depth, line, link, local in reversed(w.endings):
        w.code.depth = depth
        w.put(line, link, local)
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


def _links(w: LoopWriter, counted: tuple[int, ...], carries_time: bool) -> None:
    result = "v0"
    pair = _last_pair(w)
    for k, link in enumerate(w.links):
        element = result
        if link.form == "assign":
            _assign(w, k, link, element)
            if k in counted:
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
        if w.shape.checked:
            w.put(f"s{k} = snapshot({element})")
        if link.catches:
            _caught(w, k, link, element, result)
        elif k in w.bodies and (w.bodies[k].yields or sets_time(w, k, link)):
            _inlined(w, k, link, w.bodies[k], element, result)
        elif link.form == "filter":
            call = _call(w, k, link, element, f"r{k}")
            if w.shape.checked:
                if call != f"r{k}":
                    w.put(f"r{k} = {call}", k, element)
                w.put(f"unchanged({k}, s{k}, {element})")
                w.put(f"if not r{k}: {w.skip}")
            else:
                w.put(f"if not {call}: {w.skip}", k, element)
        elif link.flat:
            call = _call(w, k, link, element, f"r{k}")
            if call != f"r{k}":
                w.put(f"r{k} = {call}", k, element)
            w.put(f"if r{k} is None: {w.skip}")
            if w.shape.first:
                w.put(f"if type(r{k}) in NOT_SEVERAL: refuse_results(r{k})", k, element)
            if w.shape.checked:
                w.put(f"r{k} = checked_results({k}, r{k}, s{k}, {element})")
            elif k == len(w.links) - 1 and _emits_all_directly(w, link, carries_time):
                w.put(f"out += r{k}", k, element)
                w.flush_when_full(split=True)
                return
            if not link.guarded and isinstance(link.fn, FunctionType):
                w.few_results = True
            elif not link.guarded:
                w.results_depth = w.code.depth
            w.open_loop(f"for {result} in r{k}:", k, element)
        else:
            call = _call(w, k, link, element, result)
            if k in w.bodies and w.bodies[k].tagging:
                write_tagged(w, k, link, result)
            if call != result and k == len(w.links) - 1 and k not in counted and _emits_directly(w, link):
                result, w.local = call, element
            elif call != result:
                w.put(f"{result} = {call}", k, element)
            _checked(w, k, element, result)
        if link.form != "filter" and link.guarded and not (sets_time(w, k, link) or _is_plain(w, k, link)):
            write_guard(w, k, link, element, result)
        if w.shape.typed and link.hint is not None:
            w.put(f"typed({k}, {result})")
        if k in counted:
            w.put(f"n{k} += 1")
    _terminal(w, result, carries_time)


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


def _is_plain(w: LoopWriter, k: int, link: Link) -> bool:
    """True if the link's function is inlined, and none of its results can be a value that needs unwrapping."""
    if k not in w.bodies or k in w.shape.stamps or (link.flat and not w.bodies[k].yields):
        return False
    return w.bodies[k].plain


def _emits_directly(w: LoopWriter, link: Link) -> bool:
    """True if the last link's result can go into the block without any check."""
    return w.fold is None and not (link.guarded or w.shape.checked or w.shape.typed)


def _emits_all_directly(w: LoopWriter, link: Link, carries_time: bool) -> bool:
    """True if the last link's results can go into the block all at once: they are plain values in memory."""
    columns = carries_time or w.windows or w.shape.indexed
    return not (link.guarded or w.shape.typed or w.fold or columns)


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


def _call(w: LoopWriter, k: int, link: Link, element: str, result: str) -> str:
    """The expression of a link's call, or `result` if lines have been written that assign it."""
    if k in w.bodies:
        return write_result(w.code, k, w.bodies[k], _arguments(w, k, element), element, result)
    star = "*" if link.form in ("map_tuple", "flat_map_tuple") else ""
    args = [star + element] if star else []
    for param in link.params:
        expression = argument(k, param, element, w.time, w.pane())
        args.append(f"{param.keyword}={expression}" if param.keyword else expression)
    return f"f{k}({', '.join(args)})"


def _arguments(w: LoopWriter, k: int, element: str) -> dict[str, str]:
    """Write the arguments of an inlined function. The variables for what its body reads."""
    return write_arguments(w.code, k, w.bodies[k], element, w.time, w.pane())


def _inlined(w: LoopWriter, k: int, link: Link, body: InlinedBody, element: str, result: str) -> None:
    """Write a body that yields, or that sets the timestamp of its result."""
    names = _arguments(w, k, element)
    if body.yields:
        depth = w.code.depth
        if w.shape.checked:
            w.put(f"m{k} = 0")
        w.put(f"if {w.code.place_first(k, body, names, element, '')}:", k, element)
        w.code.depth += 1
        w.put("while True:")
        w.code.depth += 1
        w.skip = "break"
        if w.shape.checked:
            w.endings.append((depth, f"verify_tracked({k})", k, element))
            w.endings.append((depth, f"unchanged({k}, s{k}, {element})", k, element))
        if body.local:
            w.endings.append((depth, forgetting(k, body), None, ""))
        w.endings.append((w.code.depth, "break", None, ""))
    elif body.first:
        w.put(w.code.place_first(k, body, names, element, ""), k, element)
    if sets_time(w, k, link):
        write_stamped(w, k, link, body, names, element, result)
    else:
        w.put(f"{result} = {w.code.place(k, body, names, element)}", k, element)
        if w.shape.checked:
            w.put(f"m{k} += 1")
            w.put(f"track_next({k}, m{k}, {result}, {element})")


def _caught(w: LoopWriter, k: int, link: Link, element: str, result: str) -> None:
    """Write a call whose exceptions become dead letters."""
    windows = w.windows or None
    at = f"at({k}, {w.time}, {windows}, {w.derived}, {w.index()}, block)"
    partial = isinstance(link.node, ParDo) and link.node.dead_letters is not None and link.node.dead_letters.partial
    w.put(f"calls[{k}] += 1")
    made = result if link.form in ("map", "map_tuple") else f"r{k}"
    if link.flat:
        w.put(f"r{k} = []")
    w.put("try:")
    with w.code.indented():
        call = _call(w, k, link, element, f"i{k}" if link.flat else made)
        if link.flat:
            results = f"none_as_empty({call})"
            if w.shape.first:
                results = f"note_results({results})"
            w.put(f"r{k}.extend({f'track({k}, {results}, {element})' if w.shape.checked else results})", k, element)
        elif call != made:
            w.put(f"{made} = {call}", k, element)
    w.put(f"except catch{k} as error{k}:")
    with w.code.indented():
        w.put(f"yield from dead_letter({element}, error{k}, {at})")
        if k in w.bodies:
            write_forgetting(w.code, k, w.bodies[k])
        if not (link.flat and partial):
            w.put(w.skip)
    if not link.flat:
        _checked(w, k, element, result if made == result else "")
        if link.form == "filter":
            w.put(f"if not r{k}: {w.skip}")
        return
    _checked(w, k, element)
    if w.shape.checked:
        w.put(f"verify_tracked({k})")
    if w.shape.first:
        w.put("refuse_noted()", k, element)
    w.open_loop(f"for {result} in r{k}:", k, element)


def _checked(w: LoopWriter, k: int, element: str, result: str = "") -> None:
    if w.shape.checked:
        w.put(f"unchanged({k}, s{k}, {element})")
        if result:
            w.put(f"track_result({k}, {result}, {element})")


def _terminal(w: LoopWriter, result: str, carries_time: bool) -> None:
    last = len(w.links)
    if w.fold is None:
        w.put(f"out.append({result})", last - 1 if w.local else None, w.local)
        if carries_time:
            w.put(f"out_t.append({w.time})")
        if w.windows:
            w.put(f"out_w.append({w.windows})")
        if w.shape.indexed:
            w.put("out_i.append(i)")
        if w.loops_over_windows or any(link.flat and (link.guarded or link.catches) for link in w.links):
            w.flush_when_full()
        elif w.results_depth:
            # A plain step's results are in memory already: it is enough to check the size after each of its inputs.
            w.code.depth = w.results_depth
            w.flush_when_full(split=True)
        return
    if w.shape.checked:
        w.put(f"check_exchange({result})", last, result)
    match w.fold.windows:
        case "single":
            # Near the end of a window, elements of two windows alternate: the previous window and its table are cached.
            w.put(f"if not lo <= {w.time} < hi:")
            w.put(f"    if lo_ <= {w.time} < hi_:")
            w.put("        lo, lo_ = lo_, lo; hi, hi_ = hi_, hi; table, table_ = table_, table; get, get_ = get_, get")
            w.put("    else:")
            w.put("        lo_ = lo; hi_ = hi; table_ = table; get_ = get")
            w.put(f"        lo, hi, table = table_at({w.time}); get = table.get", last, result)
        case "multi":
            windows = f"select_windows({w.element_windows()})" if w.fold.selects_windows else w.element_windows()
            w.put(f"for window in {windows}:", last, result)
            w.code.depth += 1
            w.put("table = table_in(window); get = table.get")
        case "global" | "same" | "inside":
            pass
    if result != _PAIR:
        w.put(w.fold.key.format(v=result), last, result)
    if last not in w.shape.inlined:
        for line in w.fold.body:
            w.put(line, last, result)
        return
    write_adding(w.code, last, w.bodies[last], w.fold.inlined, result)


_PAIR: Final = "k, x"
"""The variables of a pair that the last link of a fold emits."""

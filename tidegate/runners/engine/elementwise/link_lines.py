"""Writes the lines that run one step of a generated loop: the call or the text of its function, and its results."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Final

from tidegate.runners.engine.elementwise.fused_node import Link, call_arguments, in_position
from tidegate.runners.engine.elementwise.loop_writer import LoopWriter
from tidegate.runners.engine.elementwise.wrapped_results import (
    needs_guard,
    sets_time,
    write_guard,
    write_stamped,
    write_tagged,
)
from tidegate.runners.engine.loops.inlined_lines import (
    forgetting,
    write_arguments,
    write_forgetting,
    write_only_item,
    write_result,
)
from tidegate.runners.engine.loops.inlining import InlinedBody
from tidegate.sdk.portable.model import ParDo

_SEVERAL: Final = (ast.Tuple, ast.List, ast.ListComp)
"""Expressions of several results: neither None nor anything that a step refuses to iterate over."""


def write_link(w: LoopWriter, k: int, link: Link, element: str, result: str) -> str:
    """Write the lines that run link `k` on `element`; those that follow run for each of its results.

    Returns the expression of a result, which is `result` unless it can be evaluated once in the next line; "" if the
    results have been emitted.
    """
    last = k == len(w.links) - 1
    body = w.bodies.get(k)
    if w.shape.checked:
        w.put(f"s{k} = snapshot({element})")
    if link.catches:
        _caught(w, k, link, element, result)
    elif body is not None and (body.yields or sets_time(w, k, link)):
        _inlined(w, k, link, body, element, result)
    elif link.form == "filter":
        call = _call(w, k, link, element, f"r{k}")
        if w.shape.checked:
            if call != f"r{k}":
                w.put(f"r{k} = {call}", k, element)
            w.put(f"unchanged({k}, s{k}, {element})")
            w.put(f"if not r{k}: {w.skip}")
        else:
            w.put(f"if not {call}: {w.skip}", k, element)
    elif link.flat and body is not None and body.only_item is not None and not w.shape.checked:
        write_only_item(w.code, k, body, body.only_item, _arguments(w, k, element), element, result)
    elif link.flat:
        call = _call(w, k, link, element, f"r{k}")
        if call != f"r{k}":
            w.put(f"r{k} = {call}", k, element)
        if body is None or not isinstance(body.expression, _SEVERAL):
            w.put(f"if r{k} is None: {f'r{k} = ()' if w.shape.checked else w.skip}")
            if w.shape.first:
                w.put(f"if type(r{k}) in NOT_SEVERAL: refuse_results(r{k})", k, element)
        if w.shape.checked:
            w.put(f"r{k} = checked_results({k}, r{k}, s{k}, {element})")
        elif last and _emits_all_directly(w, link):
            w.put(f"out += r{k}", k, element)
            w.flush_when_full(split=True)
            return ""
        if not link.guarded and isinstance(link.fn, FunctionType):
            w.few_results = True
        elif not link.guarded:
            w.results_depth = w.code.depth
        w.open_loop(f"for {result} in r{k}:", k, element)
    else:
        call = _call(w, k, link, element, result)
        if body is not None and body.tagging:
            write_tagged(w, k, link, result)
        if call != result and last and k not in w.counted and _emits_directly(w, link):
            result, w.local = call, element
        elif call != result:
            w.put(f"{result} = {call}", k, element)
        _checked(w, k, element, result)
    if needs_guard(w, k, link):
        write_guard(w, k, link, element, result)
    if w.shape.typed and link.hint is not None:
        w.put(f"typed({k}, {result})")
    if k in w.counted:
        w.put(f"n{k} += 1")
    return result


def write_emitting(w: LoopWriter, result: str) -> None:
    """Write the lines that append a result of the last link to the columns of a block."""
    last = len(w.links) - 1
    w.put(f"out.append({result})", last if w.local else None, w.local)
    if w.carries_time:
        w.put(f"out_t.append({w.time})")
    if w.windows:
        w.put(f"out_w.append({w.windows})")
    if w.shape.indexed:
        w.put("out_i.append(i)")
    if w.loops_over_windows or any(_emits_several(w, k, link) for k, link in enumerate(w.links)):
        w.flush_when_full()
    elif w.results_depth:
        # A plain step's results are in memory already: it is enough to check the size after each of its inputs.
        w.code.depth = w.results_depth
        w.flush_when_full(split=True)


def _emits_several(w: LoopWriter, k: int, link: Link) -> bool:
    """True if a link may emit results one by one, and more than one for an element."""
    if not link.flat or not (link.guarded or link.catches):
        return False
    return link.catches or w.shape.checked or k not in w.bodies or w.bodies[k].only_item is None


def _emits_directly(w: LoopWriter, link: Link) -> bool:
    """True if the last link's result can go into the block without any check."""
    return w.fold is None and not (link.guarded or w.shape.checked or w.shape.typed)


def _emits_all_directly(w: LoopWriter, link: Link) -> bool:
    """True if the last link's results can go into the block all at once: they are plain values in memory."""
    columns = w.carries_time or w.windows or w.shape.indexed
    return not (link.guarded or w.shape.typed or w.fold or columns)


def _call(w: LoopWriter, k: int, link: Link, element: str, result: str) -> str:
    """The expression of a link's call, or `result` if lines have been written that assign it."""
    if k in w.bodies:
        return write_result(w.code, k, w.bodies[k], _arguments(w, k, element), element, result)
    items = [f"*{element}"] if link.form in ("map_tuple", "flat_map_tuple") else []
    params = link.params if items else in_position(link.fn, link.params)
    return f"f{k}({call_arguments(params, lambda param: w.argument(k, param, element), items)})"


def _arguments(w: LoopWriter, k: int, element: str) -> dict[str, str]:
    """Write the arguments of an inlined function. The variables for what its body reads."""
    return write_arguments(w.code, k, w.bodies[k], element, lambda param: w.argument(k, param, element))


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

"""Generates the code of a stateful step: a loop over a block, and a small generator for each callback.

As in the loops of a chain, only the author's function is called per element, and each line that calls it is recorded,
so that an error names the step and the element. Plain assignments point state cells and timers at the element's key;
they are pointed at a window only when it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.loops.code_writer import CodeWriter, Source
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.portable.model import Callback, ParDo

KEY_LINK = 1
"""The link number, in a Source, of the line that reads an element's key; the step itself is link 0."""


@dataclass(frozen=True, slots=True)
class StateShape:
    """The shape of the blocks that a variant of the loop processes.

    `windows`: the block is in `one` window; each element is in one that follows from its timestamp (`single`); or each
    element has a list of windows (`each`). `stamps`: the step has emitted TimestampedValues. `first`: as for a chain.
    """

    windows: Literal["one", "single", "each"]
    timed: bool = False
    indexed: bool = False
    stamps: bool = False
    checked: bool = False
    typed: bool = False
    first: bool = False


@dataclass(frozen=True, slots=True)
class Declarations:
    """A step's cells, of which `mortal` ones have a time-to-live, and timers; and whether its loop numbers the keys of
    each window by first arrival."""

    cells: tuple[str, ...]
    mortal: frozenset[str]
    timers: tuple[str, ...]
    arrivals: bool


def generate_process(link: Link, declared: Declarations, shape: StateShape) -> Source:
    """The source of `run(values, t, block)`, which yields the emitted blocks.

    It uses these names beside those of a chain's loop: `cell_<n>` (`watched_<n>` when checked), `timer_<n>`, `timers`,
    `overdue`, `enter`, `enter_by_time`, `arrivals_in`, `count_late`, `fire_overdue`, `verify`, `check_input`,
    `instant`, `processing_time`.
    """
    w = CodeWriter()
    w.put("def run(values, t, block):")
    w.depth = 1
    w.put("out = []; out_t = []; out_i = []; out_w = []; late = 0")
    match shape.windows:
        case "one":
            w.put("w = block.windows.windows[0]")
            w.put("if not enter(w):")
            w.put("    count_late(len(values))")
            w.put("    return")
            if declared.arrivals:
                w.put("seen = arrivals_in(w)")
            if finders := _finders(declared, shape):
                w.put(finders)
        case "single":
            w.put("lo = hi = 0; live = False")
        case "each":
            w.put("at_w = None; live = False; block_windows = block.window_list()")
    w.put("panes = block.pane_list()" if shape.indexed else "pane = block.panes")
    by_position = shape.indexed or shape.windows == "each"
    match (by_position, shape.timed):
        case (False, False):
            w.put("for v0 in values:")
        case (True, False):
            w.put("for i, v0 in enumerate(values):")
        case (False, True):
            w.put("for v0, t in zip(values, t):")
        case (True, True):
            w.put("for i, v0, t in zip(range(len(values)), values, t):")
    w.depth = 2
    if shape.checked:
        w.put("check_pair(v0)", KEY_LINK, "v0")
    w.put("k, _ = v0", KEY_LINK, "v0")
    if shape.checked:
        w.put("check_input(v0)", 0, "v0")
        w.put("s0 = snapshot(v0)")
    _enter_windows(w, declared, shape)
    for line in _pointing(declared, shape.checked, "find_{}"):
        w.put(line, 0, "v0")
    if declared.timers:
        w.put("timers.key = k; timers.time = t")
    _results(w, link, declared, shape)
    if declared.timers:
        w.put("if overdue:")
        with w.indented():
            _flush(w)
            w.put("yield from fire_overdue(w)")
    if shape.windows == "each":
        w.depth = 2
        w.put("if expired and expired == len(block_windows[i]): late += 1")
    w.depth = 1
    if shape.windows != "one":
        w.put("if late: count_late(late)")
    _flush(w)
    return w.source()


def _enter_windows(w: CodeWriter, declared: Declarations, shape: StateShape) -> None:
    """Point at the element's window, if it differs from the last one, and skip the element if that has expired."""
    entered = [finders] if (finders := _finders(declared, shape)) else []
    if declared.arrivals:
        entered.append("seen = arrivals_in(w)")
    match shape.windows:
        case "one":
            pass
        case "single":
            w.put("if not lo <= t < hi:")
            w.put("    lo, hi, w, live = enter_by_time(t)", 0, "v0")
            if entered:
                w.put(f"    if live: {'; '.join(entered)}")
            w.put("if not live:")
            w.put("    late += 1")
            w.put("    continue")
        case "each":
            w.put("expired = 0")
            w.put("for w in block_windows[i]:")
            w.depth += 1
            w.put("if w is not at_w and w != at_w:")
            w.put("    at_w = w; live = enter(w)", 0, "v0")
            if entered:
                w.put(f"    if live: {'; '.join(entered)}")
            w.put("if not live:")
            w.put("    expired += 1")
            w.put("    continue")
    if declared.arrivals:
        w.put("if k not in seen: seen[k] = len(seen)", 0, "v0")


def _pointing(declared: Declarations, watched: bool, find: str) -> list[str]:
    """The lines that point cells at a key. `find` is the lookup function of a cell, to be formatted with its number."""
    lines = []
    for n, name in enumerate(declared.cells):
        cell = _cell(n, watched)
        if name in declared.mortal:
            lines.append(f"{cell}.at(k)")
        else:
            lines.append(f"{cell}.key = k; {cell}.entry = {find.format(n)}(k)")
    return lines


def _finders(declared: Declarations, shape: StateShape) -> str:
    """The line that binds the lookups of each cell's entries in the current window to locals."""
    plain = [n for n, name in enumerate(declared.cells) if name not in declared.mortal]
    return "; ".join(f"find_{n} = {_cell(n, shape.checked)}.table.get" for n in plain)


def _cell(n: int, watched: bool) -> str:
    return f"watched_{n}" if watched else f"cell_{n}"


def _results(w: CodeWriter, link: Link, declared: Declarations, shape: StateShape) -> None:
    """Call the author's function and emit its results."""
    call = f"f0({_arguments(link, declared, shape)})"
    index = "i" if shape.indexed or shape.windows == "each" else "-1"
    depth = w.depth
    if link.flat:
        w.put("more = False")
    if link.catches:
        partial = isinstance(link.node, ParDo) and link.node.dead_letters is not None and link.node.dead_letters.partial
        w.put("calls[0] += 1; r0 = []")
        w.put("try:")
        w.put("    " + _collect(link, call, shape), 0, "v0")
        w.put("except catch0 as error0:")
        with w.indented():
            _flush(w)
            w.put(f"yield from dead_letter(v0, error0, at(0, t, (w,), -1, {index}, block))")
            if not partial:
                w.put("r0 = []")
        if link.flat and shape.first:
            w.put("refuse_noted()", 0, "v0")
        w.put("for result in r0:", 0, "v0")
    elif link.flat:
        w.put(f"r0 = {call}", 0, "v0")
        w.put("if r0 is not None:")
        w.depth += 1
        if shape.first:
            w.put("if type(r0) in NOT_SEVERAL: refuse_results(r0)", 0, "v0")
        w.put(f"for result in {_tracked('r0', shape)}:", 0, "v0")
    elif link.form == "filter":
        w.put(f"for result in (v0,) if {call} else ():", 0, "v0")
    else:
        w.put(f"for result in {_tracked(f'({call},)', shape)}:", 0, "v0")
    w.depth += 1
    if link.flat:
        # A block with one result per element never exceeds the block size: only further results need the check.
        w.put("if more and len(out) >= block_size:")
        w.put("    yield pack(block, out, out_t, out_i, out_w)")
        w.put("    out = []; out_t = []; out_i = []; out_w = []")
        w.put("more = True")
    _append(w, link, shape, index)
    w.depth = depth
    if shape.checked:
        w.put("verify()", 0, "v0")
        w.put("unchanged(0, s0, v0)", 0, "v0")
        w.put("verify_tracked(0)", 0, "v0")


def _collect(link: Link, call: str, shape: StateShape) -> str:
    if link.form == "filter":
        return f"if {call}: r0.append(v0)"
    results = f"none_as_empty({call})" if link.flat else f"({call},)"
    if link.flat and shape.first:
        results = f"note_results({results})"
    return f"r0.extend({_tracked(results, shape)})"


def _tracked(results: str, shape: StateShape) -> str:
    """The expression of the results; where everything is checked, they are tracked, to detect later changes of them."""
    return f"track(0, {results}, v0)" if shape.checked else results


def _append(w: CodeWriter, link: Link, shape: StateShape, index: str) -> None:
    """Unwrap a result unless it is a plain value, and append it to the columns."""
    if shape.typed and link.hint is not None and not link.guarded:
        w.put("typed(0, result)", 0, "v0")
    if shape.stamps:
        w.put("tm = t; wm = (w,)")
        w.put("if type(result) is TimestampedValue and type(result.value) not in SPECIAL:")
        w.put("    tm = result.micros; result = result.value; wm = restamped(0, tm, wm)")
        w.put("    if not wm: continue")
    if link.guarded:
        w.put("if type(result) in SPECIAL:")
        with w.indented():
            _flush(w)
            w.put(f"yield from special(result, at(0, t, (w,), -1, {index}, block))", 0, "v0")
            w.put("continue")
        if shape.typed and link.hint is not None:
            w.put("typed(0, result)", 0, "v0")
    w.put("out.append(result)")
    if shape.stamps:
        w.put("out_t.append(tm); out_w.append(wm)")
    else:
        if shape.timed:
            w.put("out_t.append(t)")
        if shape.windows == "each":
            w.put("out_w.append((w,))")
    if shape.indexed:
        w.put("out_i.append(i)")


def _flush(w: CodeWriter) -> None:
    w.put("if out:")
    w.put("    yield pack(block, out, out_t, out_i, out_w)")
    w.put("    out = []; out_t = []; out_i = []; out_w = []")


def _arguments(link: Link, declared: Declarations, shape: StateShape) -> str:
    pane = "panes[i]" if shape.indexed else "pane"
    star = ["*v0"] if link.form in ("map_tuple", "flat_map_tuple") else []
    params = link.params if star else in_position(link.fn, link.params)
    return _call(params, declared, shape.checked, {"element": "v0", "pane": pane}.get, star)


def generate_callback(callback: Callback, declared: Declarations, number: int, *, watched: bool) -> Source:
    """The source of `run(k, w, t, tag)`, which points state and timers at the key and yields the callback's results."""
    w = CodeWriter()
    w.put("def run(k, w, t, tag):")
    w.depth = 1
    for line in _pointing(declared, watched, "cell_{}.table.get"):
        w.put(line)
    if declared.timers:
        w.put("timers.key = k; timers.time = t")
    arguments = _call(callback.params, declared, watched, {"tag": "tag"}.get)
    w.put(f"r = callback_{number}({arguments})", 0, "k")
    w.put("if r is not None:")
    w.put("    yield from track(0, r, None)" if watched else "    yield from r", 0, "k")
    if watched:
        w.put("verify()", 0, "k")
        w.put("verify_tracked(0)", 0, "k")
    return w.source()


def in_position(fn: object, params: tuple[Param, ...]) -> tuple[Param, ...]:
    """The parameters, of which as many as the function's order allows are passed by position, which is faster."""
    method = getattr(fn, "__func__", None)
    code = getattr(method or fn, "__code__", None)
    if code is None:
        return params
    names = code.co_varnames[method is not None : code.co_argcount]
    placed = [param for param in params if param.keyword is None]
    by_name = {param.keyword: param for param in params if param.keyword is not None}
    while len(placed) < len(names) and names[len(placed)] in by_name:
        placed.append(replace(by_name.pop(names[len(placed)]), keyword=None))
    return (*placed, *by_name.values())


def _call(
    params: Sequence[Param],
    declared: Declarations,
    watched: bool,
    override: Callable[[str], str | None],
    first: Sequence[str] = (),
) -> str:
    args = list(first)
    for param in params:
        expression = override(param.kind) or _argument(param, declared, watched)
        args.append(f"{param.keyword}={expression}" if param.keyword else expression)
    return ", ".join(args)


def _argument(param: Param, declared: Declarations, watched: bool) -> str:
    match param.kind:
        case "key":
            return "k"
        case "timestamp":
            return "instant(t)"
        case "window":
            return "w"
        case "watermark":
            return "watermark()"
        case "clock":
            return "processing_time()"
        case "const":
            return f"c0_{param.ref}"
        case "side":
            return f"side0_{param.ref}(w)"
        case "state":
            return _cell(declared.cells.index(param.ref), watched)
        case "timer":
            return f"timer_{declared.timers.index(param.ref)}"
        case "element" | "pane" | "tag":
            raise AssertionError(f"a call of this kind has no {param.kind}")

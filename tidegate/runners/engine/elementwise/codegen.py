"""Generates the source of a fused chain: one loop, in which each step has a line and a local of its own.

Per element, the loop calls only the author's functions. When one raises, the line number in the traceback identifies
the step, and the local holds the element: precise errors cost nothing.

There is a variant of the loop for each shape of block: it handles timestamps and windows per element only if they
differ within the block, and has the lines for `--checks` only if the block is to be checked.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Final

from tidegate.runners.engine.elementwise.comprehension import comprehension
from tidegate.runners.engine.elementwise.fused_node import Link, argument
from tidegate.runners.engine.elementwise.shape import Fold, Shape
from tidegate.runners.engine.loops.code_writer import CodeWriter, Source, body_names, read_globals
from tidegate.runners.engine.loops.inlining import InlinedBody
from tidegate.sdk.portable.model import ParDo
from tidegate.sdk.windowing.assigners import element_dependent


@dataclass(slots=True)
class _Loop:
    """A loop that is being written, and what is known about the current element at the current line."""

    links: Sequence[Link]
    shape: Shape
    fold: Fold | None
    bodies: Mapping[int, InlinedBody]
    code: CodeWriter = field(default_factory=CodeWriter)
    time: str = "t"
    """The expression of the current element's timestamp (µs)."""
    windows: str = ""
    """The expression of the current element's windows; "" if they are those of the input block or of `derived`."""
    derived: int = -1
    """The last link that assigned windows by timestamp alone; -1 if there is none."""
    local: str = ""
    """The local with the last link's input, if its call is on the line that emits; "" otherwise."""
    in_several: bool = False
    """True if the current element may be in more than one window, or in none."""
    loops_over_windows: bool = False
    """True if a step is called once for each of an element's windows."""
    few_results: bool = False
    """True if a step is a plain function, which should have few results per element: they are split only at the end."""
    results_depth: int = 0
    """The depth of the innermost loop over the results of a plain step; 0 if there is none."""

    def put(self, line: str, link: int | None = None, local: str = "") -> None:
        """Write a line, which runs `link` on the element in `local`."""
        self.code.put(line, link, local)


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
    w = _Loop(links, shape, fold, inlined, in_several=shape.in_several)
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
            w.time = f"t[{_AT}]"
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


def _links(w: _Loop, counted: tuple[int, ...], carries_time: bool) -> None:
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
            w.put(f"for w{k} in {_windows(w)}:", k, element)
            w.code.depth += 1
            w.windows = f"(w{k},)"
            w.in_several = False
        if _sets_time(w, k, link):
            _stamped(w, k, link, w.bodies[k], element, result)
            if w.shape.typed and link.hint is not None:
                w.put(f"typed({k}, {result})")
            if k in counted:
                w.put(f"n{k} += 1")
            continue
        call = _call(w, k, link, element)
        if w.shape.checked:
            w.put(f"s{k} = snapshot({element})")
        if link.catches:
            _caught(w, k, link, call, element, result)
        elif link.form == "filter":
            if w.shape.checked:
                w.put(f"r{k} = {call}", k, element)
                w.put(f"unchanged({k}, s{k}, {element})")
                w.put(f"if not r{k}: continue")
            else:
                w.put(f"if not {call}: continue", k, element)
        elif link.flat:
            w.put(f"r{k} = {call}", k, element)
            w.put(f"if r{k} is None: continue")
            if w.shape.first:
                w.put(f"if type(r{k}) in NOT_SEVERAL: refuse_results(r{k})", k, element)
            if w.shape.checked:
                w.put(f"r{k} = checked_results({k}, r{k}, s{k}, {element})")
            elif k == len(w.links) - 1 and _emits_all_directly(w, link, carries_time):
                w.put(f"out += r{k}", k, element)
                _flush_when_full(w, split=True)
                return
            if not link.guarded and isinstance(link.fn, FunctionType):
                w.few_results = True
            elif not link.guarded:
                w.results_depth = w.code.depth
            w.put(f"for {result} in r{k}:", k, element)
            w.code.depth += 1
        elif k == len(w.links) - 1 and k not in counted and _emits_directly(w, link):
            result, w.local = call, element
        else:
            w.put(f"{result} = {call}", k, element)
            _checked(w, k, element, result)
        if link.form != "filter" and link.guarded:
            _guard(w, k, link, element, result)
        if w.shape.typed and link.hint is not None:
            w.put(f"typed({k}, {result})")
        if k in counted:
            w.put(f"n{k} += 1")
    _terminal(w, result, carries_time)


def _last_pair(w: _Loop) -> int:
    """The last link if its result is a pair, of which the fold needs no more than its items; -1 otherwise."""
    if w.fold is None or w.fold.key != f"{_PAIR} = {{v}}" or w.shape.checked or w.shape.typed:
        return -1
    k = len(w.links) - 1
    while k >= 0 and w.links[k].form == "assign" and not element_dependent(w.links[k].windowing.assigner):
        k -= 1
    if k not in w.shape.inlined or w.links[k].form != "map" or w.links[k].catches:
        return -1
    if w.links[k].guarded and not _sets_time(w, k, w.links[k]):
        return -1
    body = w.bodies[k]
    match body.expression if body.stamped is None else body.stamped.value:
        case ast.Tuple(elts=[_, _] as parts) if not any(isinstance(part, ast.Starred) for part in parts):
            return k
    return -1


def _emits_directly(w: _Loop, link: Link) -> bool:
    """True if the last link's result can go into the block without any check."""
    return w.fold is None and not (link.guarded or w.shape.checked or w.shape.typed)


def _emits_all_directly(w: _Loop, link: Link, carries_time: bool) -> bool:
    """True if the last link's results can go into the block all at once: they are plain values in memory."""
    columns = carries_time or w.windows or w.shape.indexed
    return not (link.guarded or w.shape.typed or w.fold or columns)


def _assign(w: _Loop, k: int, link: Link, element: str) -> None:
    """Assign windows: look them up now, unless they can be derived from timestamps when they are needed.

    An element in several windows becomes one element per window, each of which is assigned windows.
    """
    if w.in_several:
        w.loops_over_windows = True
        w.put(f"windows{k} = {_windows(w)}", k, element)
        w.put(f"extra[{k}] += len(windows{k}) - 1")
        w.put(f"for _ in windows{k}:")
        w.code.depth += 1
    w.in_several = link.assigns_several
    if link.looks_up_windows:
        argument = f", {element}" if element_dependent(link.windowing.assigner) else ""
        w.put(f"w{k} = assign{k}({w.time}{argument})", k, element)
        w.windows = f"w{k}"
        if link.may_drop:
            w.put(f"if not w{k}: continue")
    else:
        w.windows = ""
        w.derived = k


def _windows(w: _Loop) -> str:
    """The expression of the current element's windows."""
    if w.windows:
        return w.windows
    if w.derived >= 0:
        return f"assign{w.derived}({w.time})"
    match w.shape.windows:
        case "one" | "same":
            return "same_windows(block)"
        case "each":
            return "block_windows[i]"
        case "derived":
            return f"derived(block, {w.time})"


def _call(w: _Loop, k: int, link: Link, element: str) -> str:
    if k in w.shape.inlined:
        return _inlined(w, k, w.bodies[k], element)
    star = "*" if link.form in ("map_tuple", "flat_map_tuple") else ""
    args = [star + element] if star else []
    for param in link.params:
        expression = argument(k, param, element, w.time, "panes[i]" if w.shape.indexed else "pane")
        args.append(f"{param.keyword}={expression}" if param.keyword else expression)
    return f"f{k}({', '.join(args)})"


def _inlined(w: _Loop, k: int, body: InlinedBody, element: str) -> str:
    """The expression of the link's function."""
    return w.code.place(k, body, _names(w, k, body, element), element)


def _names(w: _Loop, k: int, body: InlinedBody, element: str) -> dict[str, str]:
    """The variables for what a body reads. Its arguments are in variables, each evaluated once."""
    names = body_names(k, body)
    for name, param in body.arguments.items():
        expression = argument(k, param, element, w.time, "panes[i]" if w.shape.indexed else "pane")
        if expression.isidentifier():
            names[name] = expression
        else:
            names[name] = f"a{k}_{name}"
            w.put(f"{names[name]} = {expression}", k, element)
    return names


def _caught(w: _Loop, k: int, link: Link, call: str, element: str, result: str) -> None:
    """Write a call whose exceptions become dead letters."""
    windows = w.windows or None
    at = f"at({k}, {w.time}, {windows}, {w.derived}, {_index(w)}, block)"
    letter = f"yield from dead_letter({element}, error{k}, {at})"
    partial = isinstance(link.node, ParDo) and link.node.dead_letters is not None and link.node.dead_letters.partial
    w.put(f"calls[{k}] += 1")
    if link.flat:
        results = f"none_as_empty({call})"
        if w.shape.first:
            results = f"note_results({results})"
        w.put(f"r{k} = []")
        w.put("try:")
        w.put(f"    r{k}.extend({f'track({k}, {results}, {element})' if w.shape.checked else results})", k, element)
        w.put(f"except catch{k} as error{k}:")
        w.put(f"    {letter}")
        if not partial:
            w.put("    continue")
        _checked(w, k, element)
        if w.shape.checked:
            w.put(f"verify_tracked({k})")
        if w.shape.first:
            w.put("refuse_noted()", k, element)
        w.put(f"for {result} in r{k}:", k, element)
        w.code.depth += 1
    elif link.form == "filter":
        w.put("try:")
        w.put(f"    r{k} = {call}", k, element)
        w.put(f"except catch{k} as error{k}:")
        w.put(f"    {letter}")
        w.put("    continue")
        _checked(w, k, element)
        w.put(f"if not r{k}: continue")
    else:
        w.put("try:")
        w.put(f"    {result} = {call}", k, element)
        w.put(f"except catch{k} as error{k}:")
        w.put(f"    {letter}")
        w.put("    continue")
        _checked(w, k, element, result)


def _checked(w: _Loop, k: int, element: str, result: str = "") -> None:
    if w.shape.checked:
        w.put(f"unchanged({k}, s{k}, {element})")
        if result:
            w.put(f"track_result({k}, {result}, {element})")


def _sets_time(w: _Loop, k: int, link: Link) -> bool:
    """True if the link's function is inlined, and makes a TimestampedValue, which the loop need not make."""
    if w.shape.checked or link.catches or link.form != "map" or k not in w.shape.stamps:
        return False
    return k in w.shape.inlined and w.bodies[k].stamped is not None


def _stamped(w: _Loop, k: int, link: Link, body: InlinedBody, element: str, result: str) -> None:
    """Write the value and the timestamp of a TimestampedValue. Its fast paths for plain numbers are in the loop."""
    made = body.stamped
    assert made is not None
    names = _names(w, k, body, element)
    w.put(f"{result} = {w.code.place(k, body, names, element, '_value', made.value)}", k, element)
    w.put(f"t{k} = {w.code.place(k, body, names, element, '_time', made.timestamp)}", k, element)
    w.put(f"if t{k}.__class__ is float and -9e12 < t{k} < 1e11: t{k} = (t{k} * 1e6).__round__()")
    w.put(f"elif t{k}.__class__ is int and -9e12 < t{k} < 1e11: t{k} = t{k} * 1_000_000")
    w.put(f"else: t{k} = micros{k}(t{k})", k, element)
    if not made.plain:
        at = f"at({k}, {w.time}, {w.windows or None}, {w.derived}, {_index(w)}, block)"
        w.put(f"if type({result}) in SPECIAL: yield from special(stamped({result}, t{k}), {at})", k, element)
    windows = _windows_before(w, link)
    w.time = f"t{k}"
    if windows:
        _restamp(w, k, link, windows)


def _windows_before(w: _Loop, link: Link) -> str:
    """The expression of the windows that an element has before it gets a new timestamp; "" if they are not needed."""
    looked_up = w.shape.windows == "each" or (w.shape.windows in ("one", "same") and link.reassigns)
    return _windows(w) if not w.windows and w.derived < 0 and looked_up else w.windows


def _restamp(w: _Loop, k: int, link: Link, windows: str, indent: str = "") -> None:
    """Write the windows that an element gets with its new timestamp."""
    w.in_several = w.in_several or link.assigns_several
    w.put(f"{indent}q{k} = restamped({k}, t{k}, {windows})")
    w.windows = f"q{k}"
    if link.may_drop:
        w.put(f"{indent}if not q{k}: continue")


def _guard(w: _Loop, k: int, link: Link, element: str, result: str) -> None:
    """Unwrap a result that is not a plain value. Rare kinds leave the loop by a side exit and come back."""
    last = k == len(w.links) - 1
    tagged = last and w.fold is None and isinstance(link.node, ParDo) and len(link.node.outputs) > 1
    time = w.time
    windows = w.windows
    if k in w.shape.stamps:
        windows = _windows_before(w, link)
        w.time = f"t{k}"
        w.put(f"if type({result}) is TimestampedValue and type({result}.value) not in SPECIAL:")
        w.put(f"    t{k} = {result}.micros; {result} = {result}.value")
        if windows:
            _restamp(w, k, link, windows, "    ")
        w.put(f"elif type({result}) in SPECIAL:")
    else:
        w.put(f"if type({result}) in SPECIAL:")
    if tagged and not (w.shape.timed or w.shape.indexed or w.shape.stamps or w.windows or w.derived >= 0):
        w.put(
            f"    if type({result}) is TaggedOutput and {result}.tag in tagged and type({result}.value) not in SPECIAL:"
        )
        w.put(f"        tagged[{result}.tag].append({result}.value)")
        w.put("        continue")
    if w.fold is None:
        w.put("    if out:")
        if w.shape.times_by_index:
            w.put(f"        out_t = t[{_AT} - len(out) : {_AT}]")
        w.put("        yield pack(block, out, out_t, out_i, out_w)")
        w.put("        out = []; out_t = []; out_i = []; out_w = []")
    special = f"special({result}, at({k}, {time}, {windows or None}, {w.derived}, {_index(w)}, block))"
    w.put(f"    yield from {special}", k, element)
    w.put("    continue")
    if k in w.shape.stamps:
        w.put("else:")
        w.put(f"    t{k} = {time}" + (f"; q{k} = {windows}" if windows else ""))


def _flush_when_full(w: _Loop, *, split: bool = False) -> None:
    w.put("if len(out) >= block_size:")
    if split:
        w.put("    yield from pack_split(block, out, out_t, out_i, out_w)")
    else:
        w.put("    yield pack(block, out, out_t, out_i, out_w)")
    w.put("    out = []; out_t = []; out_i = []; out_w = []")


def _index(w: _Loop) -> str:
    return "i" if w.shape.indexed else "-1"


def _terminal(w: _Loop, result: str, carries_time: bool) -> None:
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
            _flush_when_full(w)
        elif w.results_depth:
            # A plain step's results are in memory already: it is enough to check the size after each of its inputs.
            w.code.depth = w.results_depth
            _flush_when_full(w, split=True)
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
            windows = f"select_windows({_windows(w)})" if w.fold.selects_windows else _windows(w)
            w.put(f"for window in {windows}:", last, result)
            w.code.depth += 1
            w.put("table = table_in(window); get = table.get")
        case "global" | "same" | "inside":
            pass
    if result != _PAIR:
        w.put(w.fold.key.format(v=result), last, result)
    for line in w.fold.body:
        w.put(line, last, result)


_PAIR: Final = "k, x"
"""The variables of a pair that the last link of a fold emits."""

_AT: Final = "len(values) - rest.__length_hint__() - 1"
"""The index of the current element."""

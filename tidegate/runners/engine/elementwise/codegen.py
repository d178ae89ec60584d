"""The source of a fused chain: one loop, in which each step has its own line and its own local.

Nothing is called per element but the author's functions. Since a step's line and local are known, an exception's
line number names the step and its frame holds the element: errors are exact and cost nothing.

What a block looks like is known before its loop runs, so there is a variant of the loop for each shape: timestamps
and windows are carried per element only where they differ, and the checks of `--checks` are lines that most blocks'
variant does not have.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Final, Literal, TypeAlias

from tidegate.runners.engine.elementwise.code_writer import CodeWriter, Source
from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.portable.model import ParDo
from tidegate.sdk.windowing.assigners import element_dependent


@dataclass(frozen=True, slots=True)
class Shape:
    """What a variant of the loop is made for.

    `timed`: timestamps differ within the block; `rarely`: they do, but the loop does not ask for each
    (`asks_for_times`). `indexed`: windows or panes differ. `windows`: where an element's windows are found. `several`:
    a link assigns windows, and an element may be in more than one before, or in none. `stamps`: the links that have
    been seen to emit TimestampedValues. `first`: nothing has gone through before, so that what a step returns as its
    results is looked at.
    """

    timed: bool = False
    rarely: bool = False
    indexed: bool = False
    windows: Literal["one", "same", "each", "derived"] = "one"
    several: bool = False
    stamps: frozenset[int] = frozenset()
    checked: bool = False
    typed: bool = False
    first: bool = False


FoldedWindows: TypeAlias = Literal["global", "same", "inside", "single", "multi"]
"""Where a grouping finds an element's windows: all are in the global window; all are in the block's one window; all are
in one, told by the timestamp of any (`inside`); each is in one, told by its timestamp (`single`); or they must be
looked up (`multi`)."""


@dataclass(frozen=True, slots=True)
class Fold:
    """How a grouping takes in one element: the lines that do it, over `k`, `x`, `table` and `get`.

    `key` is the line that finds `k` and `x` in the element `v`. `selects_windows`: of an element's windows that must be
    looked up, it is added to those that `select_windows` returns.
    """

    key: str
    body: tuple[str, ...]
    windows: FoldedWindows
    selects_windows: bool = False


@dataclass(slots=True)
class _Loop:
    """A loop that is being written, and what is known of the element in hand at the current line."""

    links: Sequence[Link]
    shape: Shape
    fold: Fold | None
    code: CodeWriter = field(default_factory=CodeWriter)
    time: str = "t"
    """The expression of the current element's timestamp (µs)."""
    windows: str = ""
    """The expression of the current element's windows, or "" while the input column, or its assigner, tells."""
    derived: int = -1
    """The last link that assigned windows by timestamp alone, or -1."""
    local: str = ""
    """The local that holds the last link's input, where its call is made on the line that emits."""
    several: bool = False
    """Whether the current element may be in more than one window, or in none."""
    loops_windows: bool = False
    """Whether a step is called once for each of an element's windows."""
    few: bool = False
    """Whether a plain function's results are as many as are written in its code, so that nothing need count them."""
    bounded_at: int = 0
    """The depth of the innermost loop over a plain step's results, or 0."""

    def put(self, line: str, link: int | None = None, local: str = "") -> None:
        """One line, which runs `link` on the element in `local`."""
        self.code.put(line, link, local)


def asks_for_times(links: Sequence[Link], stamps: Collection[int], fold: Fold | None) -> bool:
    """Whether a loop needs the timestamp of each element in hand. Otherwise it is those that a step gives wrapped in
    something which need theirs: they are rare, and it is counted out then whose it is."""
    if stamps or (fold is not None and fold.windows in ("single", "multi")):
        return True
    several = False
    for link in links:
        if link.form == "assign" and several:
            return True
        several = several or (link.form == "assign" and link.gives_several)
        looks_up = link.form == "assign" and link.looks_up_windows
        tagged = isinstance(link.node, ParDo) and len(link.node.outputs) > 1
        if looks_up or tagged or link.sees_window or any(param.kind == "timestamp" for param in link.params):
            return True
        if link.catches or (fold is None and link.changes_count):
            return True
    return False


def generate(links: Sequence[Link], shape: Shape, fold: Fold | None) -> Source:
    """The loop over `links`, ending in blocks, or in a fold into a table."""
    w = _Loop(links, shape, fold, several=shape.several)
    carries_time = (shape.timed and not shape.rarely) or bool(shape.stamps)
    counted = _counted(links, fold)
    functions = "".join(f", f{k}=f{k}" for k, link in enumerate(links) if link.fn is not None)  # locals are faster
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
    match (shape.indexed, shape.timed):
        case (False, True) if shape.rarely:
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
        if shape.rarely:
            w.put("    out_t = t if len(out) == len(values) else t[-len(out) :]")
        w.put(f"    yield {'from packs' if w.few else 'pack'}(block, out, out_t, out_i, out_w)")
    else:
        w.put("return")
        w.put("yield")
    return w.code.source(counted)


def _counted(links: Sequence[Link], fold: Fold | None) -> tuple[int, ...]:
    """Links whose number of outputs nothing else tells: the last one that changes it is told by what is emitted."""
    changing = [k for k, link in enumerate(links) if link.changes_count]
    return tuple(changing if fold is not None else changing[:-1])


def _links(w: _Loop, counted: tuple[int, ...], carries_time: bool) -> None:
    made = "v0"
    for k, link in enumerate(w.links):
        taken = made
        if link.form == "assign":
            _assign(w, k, link, taken)
            if k in counted:
                w.put(f"n{k} += 1")
            continue
        made = taken if link.form == "filter" else f"v{k + 1}"
        if link.sees_window and not w.windows and w.derived < 0 and w.shape.windows == "one":
            w.put(f"w{k} = only")
        elif link.sees_window:
            w.loops_windows = True
            w.put(f"for w{k} in {_windows(w)}:", k, taken)
            w.code.depth += 1
            w.windows = f"(w{k},)"
            w.several = False
        call = _call(w, k, link, taken)
        if w.shape.checked:
            w.put(f"s{k} = snapshot({taken})")
        if link.catches:
            _caught(w, k, link, call, taken, made)
        elif link.form == "filter":
            if w.shape.checked:
                w.put(f"r{k} = {call}", k, taken)
                w.put(f"unchanged({k}, s{k}, {taken})")
                w.put(f"if not r{k}: continue")
            else:
                w.put(f"if not {call}: continue", k, taken)
        elif link.flat:
            w.put(f"r{k} = {call}", k, taken)
            w.put(f"if r{k} is None: continue")
            if w.shape.first:
                w.put(f"if type(r{k}) in NOT_SEVERAL: not_several(r{k})", k, taken)
            if w.shape.checked:
                w.put(f"r{k} = watched({k}, r{k}, s{k}, {taken})")
            elif k == len(w.links) - 1 and _extends(w, link, carries_time):
                w.put(f"out += r{k}", k, taken)
                _flush_when_full(w, split=True)
                return
            if not link.guarded and isinstance(link.fn, FunctionType):
                w.few = True
            elif not link.guarded:
                w.bounded_at = w.code.depth
            w.put(f"for {made} in r{k}:", k, taken)
            w.code.depth += 1
        elif k == len(w.links) - 1 and k not in counted and _gives_at_once(w, link):
            made, w.local = call, taken
        else:
            w.put(f"{made} = {call}", k, taken)
            _checked(w, k, taken, made)
        if link.form != "filter" and link.guarded:
            _guard(w, k, link, taken, made)
        if w.shape.typed and link.hint is not None:
            w.put(f"typed({k}, {made})")
        if k in counted:
            w.put(f"n{k} += 1")
    _terminal(w, made, carries_time)


def _gives_at_once(w: _Loop, link: Link) -> bool:
    """Whether nothing need look at what the last link gives before it is in the block."""
    return w.fold is None and not (link.guarded or w.shape.checked or w.shape.typed)


def _extends(w: _Loop, link: Link, carries_time: bool) -> bool:
    """Whether all results of the last link may go into the block at once: they are plain, and there in memory."""
    columns = carries_time or w.windows or w.shape.indexed
    return not (link.guarded or w.shape.typed or w.fold or columns)


def _assign(w: _Loop, k: int, link: Link, taken: str) -> None:
    """Windows by timestamp alone are derived where they are needed; others are found now. An element that is in several
    windows is one element in each, and gets windows anew for each."""
    if w.several:
        w.loops_windows = True
        w.put(f"held{k} = {_windows(w)}", k, taken)
        w.put(f"further[{k}] += len(held{k}) - 1")
        w.put(f"for _ in held{k}:")
        w.code.depth += 1
    w.several = link.gives_several
    if link.looks_up_windows:
        element = f", {taken}" if element_dependent(link.windowing.assigner) else ""
        w.put(f"w{k} = assign{k}({w.time}{element})", k, taken)
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


def _call(w: _Loop, k: int, link: Link, taken: str) -> str:
    star = "*" if link.form in ("map_tuple", "flat_map_tuple") else ""
    args = [star + taken] if star else []
    for param in link.params:
        expression = _argument(w, k, param, taken)
        args.append(f"{param.keyword}={expression}" if param.keyword else expression)
    return f"f{k}({', '.join(args)})"


def _argument(w: _Loop, k: int, param: Param, taken: str) -> str:
    match param.kind:
        case "element":
            return taken
        case "key":
            return f"{taken}[0]"
        case "timestamp":
            return f"timestamp({w.time})"
        case "window":
            return f"w{k}"
        case "pane":
            return "panes[i]" if w.shape.indexed else "pane"
        case "watermark":
            return "watermark()"
        case "clock":
            return "clock()"
        case "const":
            return f"c{k}_{param.ref}"
        case "side":
            return f"side{k}_{param.ref}(w{k})"
        case "state" | "timer" | "tag":
            raise AssertionError(f"a chain has no {param.kind} parameter")


def _caught(w: _Loop, k: int, link: Link, call: str, taken: str, made: str) -> None:
    """A call whose exceptions become dead letters."""
    windows = w.windows or None
    at = f"at({k}, {w.time}, {windows}, {w.derived}, {_index(w)}, block)"
    letter = f"yield from dead({taken}, error{k}, {at})"
    partial = isinstance(link.node, ParDo) and link.node.dead_letters is not None and link.node.dead_letters.partial
    w.put(f"calls[{k}] += 1")
    if link.flat:
        results = f"none_as_empty({call})"
        if w.shape.first:
            results = f"noted({results})"
        w.put(f"r{k} = []")
        w.put("try:")
        w.put(f"    r{k}.extend({f'held({k}, {results}, {taken})' if w.shape.checked else results})", k, taken)
        w.put(f"except catch{k} as error{k}:")
        w.put(f"    {letter}")
        if not partial:
            w.put("    continue")
        _checked(w, k, taken)
        if w.shape.checked:
            w.put(f"settled({k})")
        if w.shape.first:
            w.put("look_at_noted()", k, taken)
        w.put(f"for {made} in r{k}:", k, taken)
        w.code.depth += 1
    elif link.form == "filter":
        w.put("try:")
        w.put(f"    r{k} = {call}", k, taken)
        w.put(f"except catch{k} as error{k}:")
        w.put(f"    {letter}")
        w.put("    continue")
        _checked(w, k, taken)
        w.put(f"if not r{k}: continue")
    else:
        w.put("try:")
        w.put(f"    {made} = {call}", k, taken)
        w.put(f"except catch{k} as error{k}:")
        w.put(f"    {letter}")
        w.put("    continue")
        _checked(w, k, taken, made)


def _checked(w: _Loop, k: int, taken: str, made: str = "") -> None:
    if w.shape.checked:
        w.put(f"unchanged({k}, s{k}, {taken})")
        if made:
            w.put(f"gave({k}, {made}, {taken})")


def _guard(w: _Loop, k: int, link: Link, taken: str, made: str) -> None:
    """Unwrap what the step may have emitted instead of a plain value. What is rare leaves the loop and comes back."""
    last = k == len(w.links) - 1
    tagged = last and w.fold is None and isinstance(link.node, ParDo) and len(link.node.outputs) > 1
    before = w.time
    kept = w.windows
    if k in w.shape.stamps:
        looked_up = w.shape.windows == "each" or (w.shape.windows in ("one", "same") and link.reassigns)
        if not w.windows and w.derived < 0 and looked_up:
            kept = _windows(w)
        w.time = f"t{k}"
        w.put(f"if type({made}) is TimestampedValue and type({made}.value) not in SPECIAL:")
        w.put(f"    t{k} = {made}.micros; {made} = {made}.value")
        if kept:
            w.several = w.several or link.gives_several
            w.put(f"    q{k} = restamped({k}, t{k}, {kept})")
            w.windows = f"q{k}"
            if link.may_drop:
                w.put(f"    if not q{k}: continue")
        w.put(f"elif type({made}) in SPECIAL:")
    else:
        w.put(f"if type({made}) in SPECIAL:")
    if tagged and not (w.shape.timed or w.shape.indexed or w.shape.stamps or w.windows or w.derived >= 0):
        w.put(f"    if type({made}) is TaggedOutput and {made}.tag in tagged and type({made}.value) not in SPECIAL:")
        w.put(f"        tagged[{made}.tag].append({made}.value)")
        w.put("        continue")
    if w.fold is None:
        w.put("    if out:")
        if w.shape.rarely:
            w.put(f"        out_t = t[{_AT} - len(out) : {_AT}]")
        w.put("        yield pack(block, out, out_t, out_i, out_w)")
        w.put("        out = []; out_t = []; out_i = []; out_w = []")
    special = f"special({made}, at({k}, {before}, {kept or None}, {w.derived}, {_index(w)}, block))"
    w.put(f"    yield from {special}", k, taken)
    w.put("    continue")
    if k in w.shape.stamps:
        w.put("else:")
        w.put(f"    t{k} = {before}" + (f"; q{k} = {kept}" if kept else ""))


def _flush_when_full(w: _Loop, *, split: bool = False) -> None:
    w.put("if len(out) >= block_size:")
    if split:
        w.put("    yield from packs(block, out, out_t, out_i, out_w)")
    else:
        w.put("    yield pack(block, out, out_t, out_i, out_w)")
    w.put("    out = []; out_t = []; out_i = []; out_w = []")


def _index(w: _Loop) -> str:
    return "i" if w.shape.indexed else "-1"


def _terminal(w: _Loop, made: str, carries_time: bool) -> None:
    last = len(w.links)
    if w.fold is None:
        w.put(f"out.append({made})", last - 1 if w.local else None, w.local)
        if carries_time:
            w.put(f"out_t.append({w.time})")
        if w.windows:
            w.put(f"out_w.append({w.windows})")
        if w.shape.indexed:
            w.put("out_i.append(i)")
        if w.loops_windows or any(link.flat and (link.guarded or link.catches) for link in w.links):
            _flush_when_full(w)
        elif w.bounded_at:
            # What a plain step gives is in memory already: it is enough to look after each of its elements.
            w.code.depth = w.bounded_at
            _flush_when_full(w, split=True)
        return
    if w.shape.checked:
        w.put(f"check_exchange({made})", last, made)
    match w.fold.windows:
        case "single":
            # Around the end of a window elements of two take turns: the one before the one in hand is kept at hand.
            w.put(f"if not lo <= {w.time} < hi:")
            w.put(f"    if lo_ <= {w.time} < hi_:")
            w.put("        lo, lo_ = lo_, lo; hi, hi_ = hi_, hi; table, table_ = table_, table; get, get_ = get_, get")
            w.put("    else:")
            w.put("        lo_ = lo; hi_ = hi; table_ = table; get_ = get")
            w.put(f"        lo, hi, table = table_at({w.time}); get = table.get", last, made)
        case "multi":
            windows = f"select_windows({_windows(w)})" if w.fold.selects_windows else _windows(w)
            w.put(f"for window in {windows}:", last, made)
            w.code.depth += 1
            w.put("table = table_in(window); get = table.get")
        case "global" | "same" | "inside":
            pass
    w.put(w.fold.key.format(v=made), last, made)
    for line in w.fold.body:
        w.put(line, last, made)


_AT: Final = "len(values) - rest.__length_hint__() - 1"
"""Which of the values is in hand."""

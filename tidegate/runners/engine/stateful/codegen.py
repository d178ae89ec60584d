"""Generates the code of a stateful step: a loop over a block, and a small generator for each callback.

The lines that run the author's function are those of any step
(`tidegate/runners/engine/elementwise/link_lines.py`). Before them, plain assignments point state cells and timers at
the element's key; they are pointed at a window only when it changes. The operations of cells in an inlined body use the
table of the window, so that their cells are not pointed at keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.runners.engine.elementwise.fused_node import Link, argument, call_arguments
from tidegate.runners.engine.elementwise.link_lines import write_emitting, write_link
from tidegate.runners.engine.elementwise.loop_writer import LoopWriter
from tidegate.runners.engine.elementwise.shape import Shape
from tidegate.runners.engine.elementwise.wrapped_results import write_kinds
from tidegate.runners.engine.loops.code_writer import CodeWriter, Source, read_globals
from tidegate.runners.engine.loops.inlining import InlinedBody
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.portable.model import Callback

KEY_LINK = 1
"""The link number, in a Source, of the line that reads an element's key; the step itself is link 0."""


@dataclass(frozen=True, slots=True)
class Declarations:
    """A step's cells, of which `mortal` ones have a time-to-live, and timers; and whether its loop numbers the keys of
    each window by first arrival."""

    cells: tuple[str, ...]
    mortal: frozenset[str]
    timers: tuple[str, ...]
    arrivals: bool


def generate_process(link: Link, declared: Declarations, shape: Shape, body: InlinedBody | None = None) -> Source:
    """The source of `run(values, t, block)`, which yields the emitted blocks. `body`: that of the inlined function.

    The block is in `one` window; each element is in one that follows from its timestamp (`derived`); or each element
    has a list of windows (`each`). The code uses these names beside those of a chain's loop: `cell_<n>` (`watched_<n>`
    when checked), `timer_<n>`, `timers`, `overdue`, `enter`, `enter_by_time`, `arrivals_in`, `count_late`,
    `fire_overdue`, `verify`, `check_input`, `Entry`.
    """
    step = _Step(declared, shape.checked, frozenset() if body is None else body.tables)
    bodies = {} if body is None else {0: body}
    w = LoopWriter([link], shape, None, bodies, given=step.argument, buffers_tagged=not declared.timers)
    w.put(f"def run(values, t, block{'' if bodies else ', f0=f0'}):")
    w.code.depth = 1
    w.put("out = []; out_t = []; out_i = []; out_w = []; late = 0")
    for line in step.changes():
        w.put(line)
    write_kinds(w)
    if body is not None:
        read_globals(w.code, 0, body)
    match shape.windows:
        case "one":
            w.put("w0 = block.windows.windows[0]")
            w.put("if not enter(w0):")
            w.put("    count_late(len(values))")
            w.put("    return")
            for line in step.entering():
                w.put(line)
        case "derived":
            w.put("lo = hi = 0; live = False")
        case _:
            w.put("at_w = None; live = False; block_windows = block.window_list()")
    w.put("panes = block.pane_list()" if shape.indexed else "pane = block.panes")
    match (shape.indexed, shape.timed):
        case (False, False):
            w.put("for v0 in values:")
        case (True, False):
            w.put("for i, v0 in enumerate(values):")
        case (False, True):
            w.put("for v0, t in zip(values, t):")
        case (True, True):
            w.put("for i, v0, t in zip(range(len(values)), values, t):")
    w.code.depth = 2
    if shape.checked:
        w.put("check_pair(v0)", KEY_LINK, "v0")
    w.put("k0, _ = v0", KEY_LINK, "v0")
    if shape.checked:
        w.put("check_input(v0)", 0, "v0")
    _enter_windows(w, step)
    for line in step.pointing("find_{}"):
        w.put(line, 0, "v0")
    if declared.timers:
        w.put("timers.key = k0; timers.time = t")
    _process(w, link, declared)
    if shape.windows == "each":
        w.code.depth = 2
        w.put("if expired and expired == len(block_windows[i]): late += 1")
    w.code.depth = 1
    if shape.windows != "one":
        w.put("if late: count_late(late)")
    w.flush()
    return w.code.source()


def generate_callback(callback: Callback, declared: Declarations, number: int, *, watched: bool) -> Source:
    """The source of `run(k0, w0, t, tag)`, which points state and timers at the key and yields the callback's
    results."""
    step = _Step(declared, watched)
    w = CodeWriter()
    w.put("def run(k0, w0, t, tag):")
    w.depth = 1
    for line in step.pointing("cell_{}.table.get"):
        w.put(line)
    if declared.timers:
        w.put("timers.key = k0; timers.time = t")
    w.put(f"r = callback_{number}({call_arguments(callback.params, step.callback_argument)})", 0, "k0")
    w.put("if r is not None:")
    w.put("    yield from track(0, r, None)" if watched else "    yield from r", 0, "k0")
    if watched:
        w.put("verify()", 0, "k0")
        w.put("verify_tracked(0)", 0, "k0")
    return w.source()


def _process(w: LoopWriter, link: Link, declared: Declarations) -> None:
    """Write the lines that run the step on an element in a window, and what follows it."""
    depth = w.code.depth
    if w.shape.checked or declared.timers:
        w.put("while True:")
        w.code.depth += 1
        w.skip = "break"
        w.endings.append((w.code.depth, "break", None, ""))
    result = write_link(w, 0, link, "v0", "v0" if link.form == "filter" else "v1")
    if result:
        write_emitting(w, result)
    w.close_blocks()
    w.code.depth = depth
    if w.shape.checked:
        w.put("verify()", 0, "v0")
    if declared.timers:
        w.put("if overdue:")
        with w.code.indented():
            w.flush()
            w.put("yield from fire_overdue(w0)")


def _enter_windows(w: LoopWriter, step: _Step) -> None:
    """Point at the element's window, if it differs from the last one, and skip the element if that has expired."""
    entering = "; ".join(step.entering())
    match w.shape.windows:
        case "one":
            pass
        case "derived":
            w.put("if not lo <= t < hi:")
            w.put("    lo, hi, w0, live = enter_by_time(t)", 0, "v0")
            if entering:
                w.put(f"    if live: {entering}")
            w.put("if not live:")
            w.put("    late += 1")
            w.put("    continue")
        case _:
            w.loops_over_windows = True
            w.windows = "(w0,)"
            w.put("expired = 0")
            w.open_loop("for w0 in block_windows[i]:")
            w.put("if w0 is not at_w and w0 != at_w:")
            w.put("    at_w = w0; live = enter(w0)", 0, "v0")
            if entering:
                w.put(f"    if live: {entering}")
            w.put("if not live:")
            w.put("    expired += 1")
            w.put("    continue")
    if step.declared.arrivals:
        w.put("if k0 not in seen: seen[k0] = len(seen)", 0, "v0")


@dataclass(frozen=True, slots=True)
class _Step:
    """The cells and timers of a step in its generated code. `tables` are the cells of which a loop uses the tables."""

    declared: Declarations
    watched: bool
    tables: frozenset[int] = frozenset()

    def changes(self) -> list[str]:
        """The lines that begin a loop: how it notes the changes of cells."""
        return [
            f"epoch_{n} = cell_{n}.epoch; changed_{n} = cell_{n}.changed.append; "
            f"removed_{n} = cell_{n}.changes.removed.append"
            for n in sorted(self.tables)
        ]

    def entering(self) -> list[str]:
        """The lines that follow when cells have been pointed at a window: they bind lookups of entries to locals."""
        plain = [n for n, name in enumerate(self.declared.cells) if name not in self.declared.mortal]
        lines = [f"find_{n} = {self._cell(n)}.table.get" for n in plain]
        lines += [f"table_{n} = cell_{n}.table" for n in sorted(self.tables)]
        return [*lines, "seen = arrivals_in(w0)"] if self.declared.arrivals else lines

    def pointing(self, find: str) -> list[str]:
        """The lines that point cells at a key. `find` is the lookup function of a cell, to be formatted with its
        number."""
        lines = []
        for n, name in enumerate(self.declared.cells):
            cell = self._cell(n)
            if name in self.declared.mortal:
                lines.append(f"{cell}.at(k0)")
            elif n in self.tables:
                lines.append(f"entry_{n} = {find.format(n)}(k0)")
            else:
                lines.append(f"{cell}.key = k0; {cell}.entry = {find.format(n)}(k0)")
        return lines

    def argument(self, param: Param) -> str | None:
        """The expression of an argument that only stateful steps have, or that all have in another way."""
        match param.kind:
            case "key":
                return "k0"
            case "state":
                return self._cell(self.declared.cells.index(param.ref))
            case "timer":
                return f"timer_{self.declared.timers.index(param.ref)}"
        return None

    def callback_argument(self, param: Param) -> str:
        """The expression of an argument of a callback."""
        return "tag" if param.kind == "tag" else self.argument(param) or argument(0, param, "", "t", "")

    def _cell(self, n: int) -> str:
        return f"watched_{n}" if self.watched else f"cell_{n}"

"""Builds the loop of a stateful step over a block, and a small generator for each callback.

The statements that run the author's function are those of any step
(`tidegate/runners/engine/elementwise/link_statements.py`). Before them, plain assignments point state cells and timers
at the element's key; they are pointed at a window only when it changes. The operations of cells in an inlined body use
the table of the window, so that their cells are not pointed at keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.runners.engine.elementwise.fused_node import Link, argument, call_arguments
from tidegate.runners.engine.elementwise.link_statements import emitting, no_types, run_link
from tidegate.runners.engine.elementwise.loop_builder import BREAK, EMPTY, FLUSH, NEXT, LoopBuilder
from tidegate.runners.engine.elementwise.shape import Shape
from tidegate.runners.engine.loops.form import Assign, Block, Building, Do, Emit, Form, Loop, Run, Test, built
from tidegate.runners.engine.loops.inlined_body import InlinedBody
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.portable.model import Callback

KEY_LINK = 1
"""The link number, in a loop, of the statement that reads an element's key; the step itself is link 0."""


@dataclass(frozen=True, slots=True)
class Declarations:
    """A step's cells, of which `mortal` ones have a time-to-live, and timers; and whether its loop numbers the keys of
    each window by first arrival."""

    cells: tuple[str, ...]
    mortal: frozenset[str]
    timers: tuple[str, ...]
    arrivals: bool


def generate_process(link: Link, declared: Declarations, shape: Shape, body: InlinedBody | None = None) -> Form:
    """`run(values, t, block)`, which yields the emitted blocks. `body`: that of the inlined function.

    The block is in `one` window; each element is in one that follows from its timestamp (`derived`); or each element
    has a list of windows (`each`). The code uses these names beside those of a chain's loop: `cell_<n>` (`watched_<n>`
    when checked), `timer_<n>`, `timers`, `overdue`, `enter`, `enter_by_time`, `arrivals_in`, `count_late`,
    `fire_overdue`, `verify`, `check_input`, `Entry`.
    """
    step = _Step(declared, shape.checked, frozenset() if body is None else body.tables)
    inlined = {} if body is None else {0: body}
    w = LoopBuilder([link], shape, None, inlined, given=step.argument, buffers_tagged=not declared.timers)
    late = () if shape.windows == "one" else (Test("late", (Do("count_late(late)"),)),)
    element = built(_element(w, step))
    statements = *built(_before(w, step)), w.each_element(element), *late, FLUSH
    return Form(w.parameters(), statements, tuple(w.bodies.placed))


def generate_callback(callback: Callback, declared: Declarations, number: int, *, watched: bool) -> Form:
    """`run(k0, w0, t, tag)`, which points state and timers at the key and yields the callback's results."""
    step = _Step(declared, watched)
    called = Assign("r", f"callback_{number}({call_arguments(callback.params, step.callback_argument)})", _KEY)
    refused = Test("type(r) in NOT_SEVERAL", (Do("refuse_results(r)", _KEY),))
    results = Emit("track(0, r, None)" if watched else "r", _KEY, several=True)
    verified = (Run(_KEY, (Do("verify()"), Do("verify_tracked(0)"))),) if watched else ()
    pointing = built(step.pointing("cell_{}.table.get"))
    return Form("k0, w0, t, tag", (*pointing, called, Test("r is not None", (refused, results)), *verified))


def _before(w: LoopBuilder, step: _Step) -> Building:
    """What is done before the loop over the elements."""
    yield from EMPTY
    yield Assign("late", "0")
    yield from step.changes()
    yield from no_types(w)
    yield from w.globals()
    match w.shape.windows:
        case "one":
            yield Assign("w0", "block.windows.windows[0]")
            yield Test("not enter(w0)", (Do("count_late(len(values))"), Do("return")))
            yield from step.entering()
        case "derived":
            yield Assign("lo = hi", "0")
            yield Assign("live", "False")
        case _:
            yield Assign("at_w", "None")
            yield Assign("live", "False")
            yield Assign("block_windows", "block.window_list()")
    yield w.panes()


def _element(w: LoopBuilder, step: _Step) -> Building:
    """What is done with each element."""
    pair = KEY_LINK, "v0"
    entering = built(step.entering())
    live = (Test("live", entering),) if entering else ()
    if w.shape.checked:
        yield Do("check_pair(v0)", pair)
    yield Assign("k0, _", "v0", pair)
    if w.shape.checked:
        yield Do("check_input(v0)", _ELEMENT)
    match w.shape.windows:
        case "one":
            yield from _in_window(w, step)
        case "derived":
            entered = Assign("lo, hi, w0, live", "enter_by_time(t)", _ELEMENT)
            yield Test("not lo <= t < hi", (entered, *live))
            yield Test("not live", (Assign("late", "1", adds=True), *NEXT))
            yield from _in_window(w, step)
        case _:
            w.loops_over_windows = True
            w.windows = "(w0,)"
            entered = Assign("live", "enter(w0)", _ELEMENT)
            enters = Test("w0 is not at_w and w0 != at_w", (Assign("at_w", "w0"), entered, *live))
            expires = Test("not live", (Assign("expired", "1", adds=True), *NEXT))
            yield Assign("expired", "0")
            yield Loop("w0", "block_windows[i]", (enters, expires, *built(_in_window(w, step))))
            yield Test("expired and expired == len(block_windows[i])", (Assign("late", "1", adds=True),))


def _in_window(w: LoopBuilder, step: _Step) -> Building:
    """Run the step on an element in a window, and what follows it."""
    if step.declared.arrivals:
        yield Test("k0 not in seen", (Assign("seen[k0]", "len(seen)", _ELEMENT),), at=_ELEMENT)
    yield Run(_ELEMENT, built(step.pointing("find_{}")))
    in_block = w.shape.checked or step.declared.timers
    if in_block:
        w.skip = BREAK
    result = "v0" if w.links[0].form == "filter" else "v1"
    ran = built(run_link(w, 0, "v0", result, lambda made: emitting(w, made)))
    yield from (Block(ran),) if in_block else ran
    if w.shape.checked:
        yield Do("verify()", _ELEMENT)
    if step.declared.timers:
        yield Test("overdue", (FLUSH, Emit("fire_overdue(w0)", several=True)))


_ELEMENT = 0, "v0"
_KEY = 0, "k0"


@dataclass(frozen=True, slots=True)
class _Step:
    """The cells and timers of a step in its generated code. `tables` are the cells of which a loop uses the tables."""

    declared: Declarations
    watched: bool
    tables: frozenset[int] = frozenset()

    def changes(self) -> Building:
        """What begins a loop: how it notes the changes of cells."""
        for n in sorted(self.tables):
            yield Assign(f"epoch_{n}", f"cell_{n}.epoch")
            yield Assign(f"changed_{n}", f"cell_{n}.changed.append")
            yield Assign(f"removed_{n}", f"cell_{n}.changes.removed.append")

    def entering(self) -> Building:
        """What follows when cells have been pointed at a window: lookups of entries are bound to locals."""
        for n, name in enumerate(self.declared.cells):
            if name not in self.declared.mortal:
                yield Assign(f"find_{n}", f"{self._cell(n)}.table.get")
        for n in sorted(self.tables):
            yield Assign(f"table_{n}", f"cell_{n}.table")
        if self.declared.arrivals:
            yield Assign("seen", "arrivals_in(w0)")

    def pointing(self, find: str) -> Building:
        """Point cells and timers at a key. `find` is the lookup function of a cell, to be formatted with its number."""
        for n, name in enumerate(self.declared.cells):
            cell, entry = self._cell(n), f"{find.format(n)}(k0)"
            if name in self.declared.mortal:
                yield Do(f"{cell}.at(k0)")
            elif n in self.tables:
                yield Assign(f"entry_{n}", entry)
            else:
                yield Assign(f"{cell}.key", "k0")
                yield Assign(f"{cell}.entry", entry)
        if self.declared.timers:
            yield Assign("timers.key", "k0")
            yield Assign("timers.time", "t")

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

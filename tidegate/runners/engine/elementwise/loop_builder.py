"""A loop over a chain of links that is being built, and what is known at the statement that comes next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidegate.runners.engine.elementwise.fused_node import Link, argument
from tidegate.runners.engine.elementwise.shape import Fold, Shape, only_unpacks
from tidegate.runners.engine.loops.form import (
    Assign,
    At,
    Bodies,
    Do,
    Emit,
    Loop,
    Statement,
    Statements,
    Test,
    read_globals,
)
from tidegate.runners.engine.loops.inlined_body import InlinedBody
from tidegate.sdk.authoring.dofn import Param

AT: Final = "len(values) - rest.__length_hint__() - 1"
"""The index of the current element."""

NEXT: Final[Statements] = (Do("continue"),)
BREAK: Final[Statements] = (Do("break"),)

EMPTY: Final[Statements] = tuple(Assign(column, "[]") for column in ("out", "out_t", "out_i", "out_w"))
"""The statements that begin a block of output."""

FLUSHED: Final[Statements] = (Emit("pack(block, out, out_t, out_i, out_w)"), *EMPTY)
_FLUSHED_SPLIT: Final[Statements] = (Emit("pack_split(block, out, out_t, out_i, out_w)", several=True), *EMPTY)

FLUSH: Final = Test("out", FLUSHED)
FLUSH_WHEN_FULL: Final = Test("len(out) >= block_size", FLUSHED)
SPLIT_WHEN_FULL: Final = Test("len(out) >= block_size", _FLUSHED_SPLIT)
"""These emit the loop's output so far; the last one as blocks of bounded size."""


@dataclass(slots=True)
class LoopBuilder:
    """What is known about the current element at the statement that comes next, and of the loop built so far."""

    links: Sequence[Link]
    shape: Shape
    fold: Fold | None
    inlined: Mapping[int, InlinedBody]
    counted: tuple[int, ...] = ()
    """The links whose outputs the loop counts."""
    given: Callable[[Param], str | None] = lambda param: None
    """The expressions of arguments that only this loop has."""
    buffers_tagged: bool = True
    """True if nothing but the links emits tagged outputs."""
    bodies: Bodies = field(default_factory=Bodies)
    time: str = "t"
    """The expression of the current element's timestamp (µs)."""
    windows: str = ""
    """The expression of the current element's windows; "" if they are those of the input block or of `derived`."""
    derived: int = -1
    """The last link that assigned windows by timestamp alone; -1 if there is none."""
    emits: At | None = None
    """The position of the last link, if its call is in the statement that emits."""
    held: str = ""
    """The variable with the last link's result that a call of it would not be assigned to; "" if there is none."""
    in_several: bool = False
    """True if the current element may be in more than one window, or in none."""
    loops_over_windows: bool = False
    """True if a step is called once for each of an element's windows."""
    few_results: bool = False
    """True if a step is a plain function, which should have few results per element: they are split only at the end."""
    results_of: int = -1
    """The innermost link whose plain results the loop iterates over; -1 if there is none."""
    flushed_after: int = -1
    """The link after whose results the loop checks the size of its output; -1 if there is none."""
    skip: Statements = NEXT
    """What ends the work on the current element."""

    @property
    def adds_several(self) -> bool:
        """True if the loop adds to tables, and a step may have several results per element."""
        return self.fold is not None and any(link.flat for link in self.links)

    @property
    def carries_time(self) -> bool:
        """True if the loop appends the timestamp of each result to a column."""
        return (self.shape.timed and not self.shape.times_by_index) or bool(self.shape.stamps)

    def argument(self, k: int, param: Param, element: str) -> str:
        """The expression of an argument of link `k`."""
        return self.given(param) or argument(k, param, element, self.time, self.pane())

    def element_windows(self) -> str:
        """The expression of the current element's windows."""
        if self.windows:
            return self.windows
        if self.derived >= 0:
            return f"assign{self.derived}({self.time})"
        match self.shape.windows:
            case "one" | "same":
                return "same_windows(block)"
            case "each":
                return "block_windows[i]"
            case "derived":
                return f"derived(block, {self.time})"

    def pane(self) -> str:
        return "panes[i]" if self.shape.indexed else "pane"

    def context(self, k: int, windows: str = "", time: str = "") -> str:
        """The expression of the current element's context in link `k`, for results that leave the loop."""
        index = "i" if self.shape.indexed else "-1"
        return f"at({k}, {time or self.time}, {windows or self.windows or None}, {self.derived}, {index}, block)"

    def parameters(self) -> str:
        """The parameters of the loop. The functions that it calls are among them, since locals are faster."""
        called = [k for k, link in enumerate(self.links) if link.fn is not None and k not in self.inlined]
        return f"values, t, block{''.join(f', f{k}=f{k}' for k in called)}"

    def globals(self) -> Iterator[Statement]:
        """The statements that read the globals of the inlined bodies."""
        for k, body in self.inlined.items():
            yield from read_globals(k, body)

    def panes(self) -> Statement:
        """The statement that looks up the block's panes."""
        return Assign("panes", "block.pane_list()") if self.shape.indexed else Assign("pane", "block.panes")

    @property
    def unpacked(self) -> str:
        """The variables of the fold if nothing else reads the elements, so that the loop assigns elements to these and
        to no local of its own; "" otherwise."""
        shape = self.shape
        if self.fold is None or shape.checked or shape.indexed or shape.column == "any":
            return ""
        if shape.timed and not shape.times_by_index:
            return ""
        return self.fold.key if only_unpacks(self.links, self.fold) else ""

    @property
    def element(self) -> str:
        """The expression of a block's current element."""
        if not self.unpacked:
            return "v0"
        return f"values[{AT}]" if self.shape.column == "list" else self.unpacked

    @property
    def needs_rest(self) -> bool:
        """True if the loop, or an error, needs the index of the current element."""
        return self.shape.times_by_index or bool(self.unpacked)

    def each_element(self, body: Statements) -> Loop:
        """The loop over the elements of a block."""
        if self.unpacked:
            return Loop(self.unpacked, "rest", body, (len(self.links), self.element))
        match (self.shape.indexed, self.shape.timed):
            case (False, False):
                return Loop("v0", "values", body)
            case (True, False):
                return Loop("i, v0", "enumerate(values)", body)
            case (False, _) if self.shape.times_by_index:
                return Loop("v0", "rest", body)
            case (False, _):
                return Loop("v0, t", "zip(values, t)", body)
            case _:
                return Loop("i, v0, t", "zip(range(len(values)), values, t)", body)


def flushing(w: LoopBuilder, when_full: Test) -> Test:
    """The statement that emits the output so far. No variable keeps the last of it alive after that."""
    return Test(when_full.condition, (Assign(w.held, "None"), *when_full.then)) if w.held else when_full

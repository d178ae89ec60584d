"""A loop over a chain of links that is being written: its lines so far, and what is known at the current line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidegate.runners.engine.elementwise.fused_node import Link, argument
from tidegate.runners.engine.elementwise.shape import Fold, Shape
from tidegate.runners.engine.loops.code_writer import CodeWriter
from tidegate.runners.engine.loops.inlining import InlinedBody
from tidegate.sdk.authoring.dofn import Param

AT: Final = "len(values) - rest.__length_hint__() - 1"
"""The index of the current element."""


@dataclass(slots=True)
class LoopWriter:
    """A loop that is being written, and what is known about the current element at the current line."""

    links: Sequence[Link]
    shape: Shape
    fold: Fold | None
    bodies: Mapping[int, InlinedBody]
    counted: tuple[int, ...] = ()
    """The links whose outputs the loop counts."""
    given: Callable[[Param], str | None] = lambda param: None
    """The expressions of arguments that only this loop has."""
    buffers_tagged: bool = True
    """True if nothing but the links emits tagged outputs."""
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
    skip: str = "continue"
    """The statement that ends the work on the current element."""
    endings: list[tuple[int, str, int | None, str]] = field(default_factory=list)
    """The lines that end the blocks which have been opened, with their depths, links and locals, from the outermost."""

    @property
    def carries_time(self) -> bool:
        """True if the loop appends the timestamp of each result to a column."""
        return (self.shape.timed and not self.shape.times_by_index) or bool(self.shape.stamps)

    def put(self, line: str, link: int | None = None, local: str = "") -> None:
        """Write a line, which runs `link` on the element in `local`."""
        self.code.put(line, link, local)

    def open_loop(self, line: str, link: int | None = None, local: str = "") -> None:
        """Write the line that begins a loop, of which the following lines are the body."""
        self.put(line, link, local)
        self.code.depth += 1
        self.skip = "continue"

    def close_blocks(self) -> None:
        """Write the lines that end the blocks which have been opened."""
        for depth, line, link, local in reversed(self.endings):
            self.code.depth = depth
            self.put(line, link, local)
        self.endings.clear()

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

    def index(self) -> str:
        return "i" if self.shape.indexed else "-1"

    def flush(self) -> None:
        """Write the lines that emit the loop's output so far."""
        self.put("if out:")
        self.put("    yield pack(block, out, out_t, out_i, out_w)")
        self.put("    out = []; out_t = []; out_i = []; out_w = []")

    def flush_when_full(self, *, split: bool = False) -> None:
        self.put("if len(out) >= block_size:")
        if split:
            self.put("    yield from pack_split(block, out, out_t, out_i, out_w)")
        else:
            self.put("    yield pack(block, out, out_t, out_i, out_w)")
        self.put("    out = []; out_t = []; out_i = []; out_w = []")

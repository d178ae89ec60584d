"""What a loop is generated for: the shape of its blocks, and the fold that it ends in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.loops.form import Assign, Statements
from tidegate.sdk.portable.model import ParDo
from tidegate.sdk.windowing.assigners import element_dependent

Column: TypeAlias = Literal["list", "pairs", "any"]
"""What the column of values is. A list tells an error which element a loop is at; pairs are made when they are read."""


class Shape(NamedTuple):
    """The properties of blocks, and of the run so far, that a variant of the loop is generated for.

    `timed`: timestamps differ within the block. `times_by_index`: they do, but the loop looks them up by index (see
    `needs_each_time`). `indexed`: windows or panes differ. `windows`: the form of the block's column of windows.
    `in_several`: a link assigns windows, and an element may arrive in several windows, or in none. `stamps`: the links
    that have emitted TimestampedValues so far. `inlined`: the links whose functions are not called: the loop contains
    their text. The number after the last link is that of the grouping at the end, whose function adds an element.
    `column`: of the block's values, for a loop that `only_unpacks` them. `raw`: some of these may be TimestampedValues.

    It is a tuple because the loop for each block is looked up by it.
    """

    timed: bool = False
    times_by_index: bool = False
    indexed: bool = False
    windows: Literal["one", "same", "each", "derived"] = "one"
    in_several: bool = False
    stamps: frozenset[int] = frozenset()
    checked: bool = False
    typed: bool = False
    inlined: frozenset[int] = frozenset()
    column: Column = "any"
    raw: bool = False


FoldedWindows: TypeAlias = Literal["global", "same", "inside", "single", "multi"]
"""How a grouping finds the windows of a block's elements.

All are in the global window (`global`), in the block's one window (`same`), or in the one window of the block's first
timestamp (`inside`); or each is in the one window of its own timestamp (`single`); or the windows of each element must
be looked up (`multi`).
"""


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """How a grouping adds one element: `body` does it, with the locals `k`, `x`, `table` and `get`.

    `key` are the variables to which an element is assigned for that. `selects_windows`: it is added only to those of
    its windows that `select_windows` returns. `pairwise`: the first value of a key is its accumulator. `also` is done
    with what has been added. `plain`: `body` calls no function of the author's, and
    `key` are a key and a value.
    """

    key: str
    body: Statements
    windows: FoldedWindows
    selects_windows: bool
    pairwise: bool
    also: Statements = ()
    plain: bool = False

    @property
    def unpacks(self) -> bool:
        """Whether an element is assigned to several variables, so that it has to be a pair."""
        return "," in self.key

    def first_table(self) -> Statements:
        """The statements that look up the table before the first element of a block, and when tables have changed."""
        match self.windows:
            case "global":
                return lookup("table_in(global_window)")
            case "same":
                return lookup("table_in(block.windows.windows[0])")
            case "inside":
                return lookup("table_at(block.span[0])[2]")
            case "single":
                return (Assign("lo = hi = lo_ = hi_", "0"),)
            case "multi":
                return ()


def lookup(table: str) -> Statements:
    """The statements after which elements are added to a table."""
    return Assign("table", table), Assign("get", "table.get")


def only_unpacks(links: Sequence[Link], fold: Fold | None) -> bool:
    """Whether a loop does nothing with an element but unpack it and add it to a table: the links only assign windows,
    by its timestamp."""
    if fold is None or not fold.unpacks:
        return False
    return all(link.form == "assign" and not element_dependent(link.windowing.assigner) for link in links)


def needs_each_time(links: Sequence[Link], stamps: Collection[int], fold: Fold | None) -> bool:
    """True if a loop needs the timestamp of every element.

    Otherwise it needs only those of wrapped results, which are rare, and finds them by the element's index.
    """
    if stamps or (fold is not None and fold.windows in ("single", "multi")):
        return True
    in_several = False
    for link in links:
        if link.form == "assign" and in_several:
            return True
        in_several = in_several or (link.form == "assign" and link.assigns_several)
        looks_up = link.form == "assign" and link.looks_up_windows
        tagged = isinstance(link.node, ParDo) and len(link.node.outputs) > 1
        if looks_up or tagged or link.sees_window or any(param.kind == "timestamp" for param in link.params):
            return True
        if link.catches or (fold is None and link.changes_count):
            return True
    return False

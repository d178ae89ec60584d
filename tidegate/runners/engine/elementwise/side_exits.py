"""The side exits of a generated loop: for results that are not plain values, dead letters, and tagged outputs."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tidegate.runners.engine.elementwise.counters import OutputCounters
from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.errors.attribution import located
from tidegate.runners.engine.loops.inlined_body import as_called
from tidegate.runners.engine.operator import Context, Emitted
from tidegate.sdk.data.block import Block, DerivedFrom, Each, WindowsColumn, take_windows
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.data.values import SPECIAL, TaggedOutput, TimestampedValue, WindowedValue
from tidegate.sdk.errors import RunError, shorten
from tidegate.sdk.portable.model import ParDo
from tidegate.sdk.time import Timestamp
from tidegate.sdk.user_code.frames import author_frames
from tidegate.sdk.windowing.assigners import CustomAssigner, Merged, element_dependent
from tidegate.sdk.windowing.assignment import assign_windows


@dataclass(slots=True)
class ElementContext:
    """The link that runs, and the timestamp (µs), windows and pane of its input.

    `windows` is None if the loop has not looked them up: they derive from the timestamp by the assigner of the link
    `derived`, or, if that is -1, are those of the block's element `i`. `i` is -1 if all elements of the block have the
    same pane and windows.
    """

    link: int
    t: int
    windows: tuple[Any, ...] | None
    derived: int
    i: int
    block: Block

    @property
    def pane(self) -> PaneInfo:
        """The element's pane."""
        panes = self.block.panes
        return panes if isinstance(panes, PaneInfo) else panes[self.i]

    def windows_column(self, links: Sequence[Link]) -> WindowsColumn:
        """The element's windows, as a column of one."""
        if self.windows is not None:
            return Each([self.windows])
        if self.derived >= 0:
            return DerivedFrom(links[self.derived].windowing.assigner)  # type: ignore[arg-type]
        return take_windows(self.block.windows, [self.i]) if self.i >= 0 else self.block.windows


class SideExits:
    """The side exits of one chain of links.

    `exits` has the collections of other outputs than the main one that some step reads, by link label and output tag.
    `rest` runs the links after a link over a block that the link has emitted. `author_traceback` returns the traceback
    of an error of an author's function, whether it was called or inlined.
    """

    def __init__(
        self,
        links: tuple[Link, ...],
        context: Context,
        counters: OutputCounters,
        exits: Mapping[tuple[str, str], str],
        rest: Callable[[int, Block], Iterator[Emitted]],
        author_traceback: Callable[[BaseException], TracebackType | None],
        *,
        folds: bool,
    ) -> None:
        self._links = links
        self._context = context
        self._counters = counters
        self._exits = exits
        self._rest = rest
        self._author_traceback = author_traceback
        self.stamps: frozenset[int] = frozenset()
        """The links that have been seen to emit TimestampedValues."""
        self._tagged: dict[str, list[Any]] = {} if folds else {tag: [] for tag in _tags(links)}

    def environment(self) -> dict[str, Any]:
        """The names that generated code uses."""
        return {
            "SPECIAL": SPECIAL,
            "TimestampedValue": TimestampedValue,
            "TaggedOutput": TaggedOutput,
            "at": ElementContext,
            "dead_letter": self.dead_letter,
            "restamped": self.restamped,
            "special": self.special,
            "stamped": lambda value, micros: TimestampedValue(value, Timestamp.of_micros(micros)),
            "tagged": self._tagged,
        }

    def special(self, result: Any, at: ElementContext) -> Iterator[Emitted]:
        """Unwrap a result that is not a plain value, and run the rest of the chain over it."""
        k = at.link
        link = self._links[k]
        t, pane, column = at.t, at.pane, at.windows_column(self._links)
        collection = None
        if type(result) is TaggedOutput:
            collection = self._collection(link, result.tag)
            result = result.value
        if type(result) is TimestampedValue:
            self.stamps = self.stamps | {k}
            if not isinstance(column, DerivedFrom):
                column = Each([self.restamped(k, result.micros, Block([None], t, column).window_list()[0])])
            t, result = result.micros, result.value
        elif type(result) is WindowedValue:
            column, t, pane, result = Each([result.windows]), result.micros, result.pane, result.value
        if type(result) in SPECIAL:
            raise located(
                RunError(
                    f"this step emitted a {type(result).__name__} inside another wrapper: {shorten(result)}. "
                    "Put the tag outside"
                ),
                link.label,
                link.where,
            )
        if isinstance(column, Each) and not column.windows[0]:
            return  # the assigner has no window for the new timestamp
        self._counters.exited[k] += 1
        out = Block([result], t, column, pane)
        if collection is None:
            yield from self._rest(k, out)
        elif collection:
            yield collection, out

    def restamped(self, k: int, t: int, windows: tuple[Any, ...]) -> tuple[Any, ...]:
        """The windows of an element with a new timestamp: assigned again, if the timestamp alone determines them."""
        assigner = self._links[k].windowing.assigner
        match assigner:
            case Merged() | CustomAssigner():
                return windows
            case _ if element_dependent(assigner):
                return windows
            case _:
                return assign_windows(assigner)(t)

    def dead_letter(self, element: Any, error: BaseException, at: ElementContext) -> Iterator[Emitted]:
        """Emit the element and its exception as a dead letter."""
        self._counters.failures[at.link] += 1
        node = self._links[at.link].node
        assert isinstance(node, ParDo)
        assert node.dead_letters is not None
        self._context.count(node.label, "dead_letters")
        collection = self._exits.get((node.label, node.dead_letters.tag))
        if collection is not None:
            error = as_called(error)
            parts = traceback.format_exception(type(error), error, author_frames(self._author_traceback(error)))
            lines = [line for part in parts[1:] for line in part.rstrip("\n").split("\n")]
            letter = (element, (type(error).__name__, shorten(error, sys.maxsize), lines))
            yield collection, Block([letter], at.t, at.windows_column(self._links), at.pane)

    def plain(self, k: int, result: Any) -> Iterator[Emitted]:
        """Run the rest of the chain over a plain value that link `k` emitted outside the loop, in the global window."""
        self._counters.exited[k] += 1
        return self._rest(k, Block([result]))

    def flush_tagged(self, block: Block) -> Iterator[Emitted]:
        """Emit the tagged outputs that the loop over `block` has buffered."""
        for tag, values in self._tagged.items():
            if values:
                collection = self._exits.get((self._links[-1].label, tag))
                self._counters.exited[-1] += len(values)
                full = values[:]
                values.clear()
                if collection is not None:
                    tagged = Block(full, block.timestamps, block.windows, block.panes)
                    for part in tagged.split(self._context.block_size):
                        yield collection, part

    def _collection(self, link: Link, tag: str) -> str | None:
        """The collection of a tagged output: None for the main output, "" if no step reads it."""
        outputs = link.node.outputs
        if tag == outputs[0].tag:
            return None
        if any(output.tag == tag for output in outputs[1:]):
            return self._exits.get((link.label, tag), "")
        declared = ", ".join(repr(output.tag) for output in outputs[1:]) or "none"
        raise located(
            RunError(
                f"this step emitted an output tagged {tag!r}, but declares {declared}: add .with_outputs({tag!r})"
            ),
            link.label,
            link.where,
        )


def _tags(links: Sequence[Link]) -> list[str]:
    """The tags that the last link declares, without that of its dead letters."""
    node = links[-1].node if links else None
    if not isinstance(node, ParDo):
        return []
    dead = node.dead_letters.tag if node.dead_letters is not None else None
    return [output.tag for output in node.outputs[1:] if output.tag != dead]

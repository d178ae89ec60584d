"""Operators that group into tables: a fused chain of element-wise steps, whose loop fills the tables of a grouping.

The planner fuses a grouping with the only chain before it (`planner.cut`). Where a grouping reads several chains, such
as those of the collections of a CoGroupByKey, each remains an operator; the loops of those that it alone reads fill its
tables, too (`fused_inputs`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidegate.runners.engine.elementwise.chain import Chain
from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.errors.attribution import close_all
from tidegate.runners.engine.keyed_batch import KeyedBatch, only_window
from tidegate.runners.engine.operator import NEVER, Emitted, KeyedOperator, Operator, Wakeups
from tidegate.runners.engine.state.copy_on_write import CopyOnWrite
from tidegate.runners.engine.state.keyed_state import CELLS, KeyedState, Touched, TouchedKeys, first_of
from tidegate.runners.plan import Edge, Plan
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import CombinePerKey
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.window import window_end

if TYPE_CHECKING:
    from tidegate.runners.engine.grouping.batch_table import Grouping
    from tidegate.runners.engine.grouping.window_table import WindowGrouping

TABLE_PATHS: Final = frozenset({"table", "window_major"})
"""The paths of groupings whose tables are filled by the loop, which may contain the author's function. Elsewhere it is
called."""


class TableOperator(Operator):
    """Groups bounded input; emits results at the end of input."""

    def __init__(
        self, links: tuple[Link, ...], grouping: Grouping, *, sides: dict[str, Callable[[Any], Any]] | None
    ) -> None:
        self.grouping = grouping
        self.context = grouping.context
        self.links = links
        self._chain = Chain(links, grouping.context, grouping.main, grouping=grouping, sides=sides)

    def open(self) -> None:
        self._chain.open()
        self.grouping.open()

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        return self._chain.process(block, collection)

    def process_keyed(self, keyed: KeyedBatch, collection: str) -> Iterator[Emitted]:
        window = only_window(keyed.windows)
        if self.links or window is None or not self.grouping.lists:
            return super().process_keyed(keyed, collection)
        self.grouping.add_keyed_batch(window, keyed)
        return iter(())

    def finish_bundle(self) -> Iterator[Emitted]:
        yield from self._chain.finish_bundle()
        if self.grouping.phase == "parts":
            yield from self.grouping.drain()

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        return self._chain.on_watermark(micros)

    def finish(self) -> Iterator[Emitted]:
        yield from self._chain.finish()
        yield from self.grouping.drain()

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        return self.grouping.snapshot()

    def restore(self, state: KeyedState) -> None:
        self.grouping.restore(state)

    def close(self) -> None:
        close_all([self._chain.close, self.grouping.close])


def fused_inputs(
    operator: Operator, edges: Iterable[Edge], operators: Mapping[int, Operator], plan: Plan, outlets: Collection[str]
) -> dict[int, Operator]:
    """By step, the chains that take the place of those which an operator alone reads, if it groups bounded input.

    `edges` lead to it from the `operators` of its graph, and `outlets` are the collections that leave the graph. A
    chain before a count stays apart, since that counts whole blocks.
    """
    if not isinstance(operator, TableOperator) or operator.links:
        return {}
    node = operator.grouping.node
    if isinstance(node, CombinePerKey) and node.key == "element":
        return {}
    fused: dict[int, Operator] = {}
    for edge in edges:
        chain = operators.get(edge.source)
        leaves = edge.collection in outlets or edge.collection in plan.results
        if isinstance(chain, Chain) and chain.may_fold and not leaves and list(plan.outputs(edge.source)) == [edge]:
            fused[edge.source] = chain.into(operator.grouping)
    return fused


class WindowTableOperator(KeyedOperator):
    """Groups a stream; emits the results of a window when the watermark passes its end."""

    def __init__(
        self, links: tuple[Link, ...], grouping: WindowGrouping, *, sides: dict[str, Callable[[Any], Any]] | None
    ) -> None:
        self.grouping = grouping
        self.context = grouping.context
        self._links = links
        self._chain = Chain(links, grouping.context, grouping.main, grouping=grouping, sides=sides)
        self._touches = TouchedKeys()

    def open(self) -> None:
        self._chain.open()
        self.grouping.open()

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        block = self.grouping.to_add(block)
        if self.grouping.copies.active:
            self.grouping.copies.copy(self.keys_of(block))
        yield from self._chain.process(block, collection)
        if self._touches.on:
            self._touches.note(self.keys_of(block))
        if self.grouping.full:
            yield from self.grouping.drain()

    @property
    def copies(self) -> CopyOnWrite | None:
        # If there are other steps in the loop, the keys of its elements are unknown.
        return None if self._links else self.grouping.copies

    def keys_of(self, block: Block) -> Iterable[Any]:
        node = self.grouping.node
        if isinstance(node, CombinePerKey) and node.key == "element" and self.grouping.phase != "merge":
            return block.values
        return map(first_of, block.values)

    def finish_bundle(self) -> Iterator[Emitted]:
        yield from self._chain.finish_bundle()
        if self.grouping.phase == "parts":
            yield from self.grouping.drain()

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        yield from self._chain.on_watermark(micros)
        yield from self.grouping.fire(micros)

    def on_idle(self) -> None:
        self.grouping.on_idle()

    def finish(self) -> Iterator[Emitted]:
        yield from self._chain.finish()
        yield from self.grouping.fire(MAX_MICROS)

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        return self.grouping.snapshot(keys)

    def restore(self, state: KeyedState) -> None:
        self.grouping.restore(state)

    def touched(self) -> Touched | None:
        return None if self._links else self._touches.take()

    def next_event(self) -> int:
        return self.grouping.next_end

    def evict(self, keys: Collection[Any]) -> None:
        self.grouping.evict(keys)

    def wakeups(self, state: KeyedState) -> dict[Any, Wakeups]:
        ends: dict[Any, int] = {}
        for window, entries in state.tables[CELLS].items():
            end = window_end(window)
            for key in entries:
                ends[key] = min(end, ends.get(key, end))
        return {key: Wakeups(end, NEVER, MAX_MICROS) for key, end in ends.items()}

    def close(self) -> None:
        close_all([self._chain.close, self.grouping.close])

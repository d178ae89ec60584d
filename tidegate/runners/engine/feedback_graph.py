"""A graph of operators with feedback loops: what is fed back goes round until nothing is left, after each event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidegate.runners.engine.iteration.feedback import FeedbackHead
from tidegate.runners.engine.iteration.feedback_loop import feedback_loops
from tidegate.runners.engine.operator import AwaitingOperator, Context
from tidegate.runners.engine.operator_graph import Graph, Outlet, _Node
from tidegate.runners.plan import Edge, Plan, Step
from tidegate.sdk.time import MAX_MICROS


class FeedbackGraph(Graph):
    """A graph that has whole loops. After each event the runner calls `going_round`.

    So nothing enters a loop while anything goes round in it, and a loop is empty whenever the watermark advances.
    """

    def __init__(
        self,
        plan: Plan,
        steps: Iterable[Step],
        edges: Iterable[Edge],
        context: Context,
        outlets: Mapping[str, list[Outlet]],
    ) -> None:
        super().__init__(plan, steps, edges, context, outlets)
        self._heads: list[tuple[_Node, FeedbackHead]] = []
        self._settles = False
        """Whether nothing can go on before a call has returned that a step in a loop has made."""
        for loop in feedback_loops(plan):
            node = self._nodes[loop.head]
            head = node.operator
            assert isinstance(head, FeedbackHead)
            head.body = [self._nodes[step].operator for step in loop.body]
            head.keeps_elements = loop.keeps_elements
            self._heads.append((node, head))
            self._await_inputs(node, loop.entering(loop.body))

    @property
    def stuck(self) -> bool:
        return (self._settles and not self.has_results) or super().stuck

    @property
    def in_loops(self) -> bool:
        """Whether anything is under way in a loop whose input has ended."""
        return any(not node.ended for node, _ in self._heads)

    def going_round(self) -> Iterator[None]:
        """Let what has been fed back go round until nothing is left, and propagate the watermarks of the loops, which
        may cause more; yields after each turn and each block that leaves the graph, and while the graph is `stuck`."""
        going = bool(self._heads)
        while going:
            for node, head in self._heads:
                if not node.ended:
                    yield from self._emptying(node, head)
            for node, head in self._heads:
                if self._is_at_its_end(head):
                    head.over = True
                self._mark_dirty(node)
            yield from self._propagate()
            going = any(not node.ended and (head.backlog or self._is_at_its_end(head)) for node, head in self._heads)

    def _await_inputs(self, node: _Node, collections: Iterable[str]) -> None:
        """Have the watermark and the end of a loop wait for what enters its body beside its input."""
        for collection in collections:
            if collection not in node.inputs:
                node.inputs.append(collection)
                node.reads.append(collection)
                self._readers.setdefault(collection, []).append(node)

    def _is_at_its_end(self, head: FeedbackHead) -> bool:
        """Whether the loop's watermark is at the end of time, and all that this has caused has been handled."""
        return not head.over and not head.backlog and self.status(head.node.before).watermark >= MAX_MICROS

    def _emptying(self, node: _Node, head: FeedbackHead) -> Iterator[None]:
        """Let a loop's elements go round until nothing is left."""
        calls = [operator for operator in head.body if isinstance(operator, AwaitingOperator)]
        while True:
            yield from self._emitting(head.finish_bundle())
            while any(operator.pending for operator in calls):
                self._settles = True
                try:
                    yield
                finally:
                    self._settles = False
                yield from self.emitting_results()
            if not head.backlog:
                break
            self._mark_dirty(node)
            yield from self._emitting(head.again())
            yield
        head.rest()

"""The feedback loops of a plan: for each one its head, the steps of its body, and what enters the body from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from tidegate.runners.plan import Edge, Plan, Step
from tidegate.sdk.portable.model import CombinePerKey, Feedback, GroupByKey, Lookup, ParDo, Relate


@dataclass(frozen=True)
class FeedbackLoop:
    """A feedback loop. `head`: the step that emits what enters and what comes round; `body`: the steps between the head
    and what is fed back, in order."""

    plan: Plan
    head: int
    node: Feedback
    body: tuple[int, ...]

    @property
    def label(self) -> str:
        """The author's label of the loop."""
        return self.node.label.removesuffix("~head")

    @cached_property
    def steps(self) -> frozenset[int]:
        """The head and the steps of the body."""
        return frozenset((self.head, *self.body))

    @cached_property
    def input(self) -> tuple[str, ...]:
        """The collections that the head takes from outside."""
        edges = (edge for edge in self.plan.inputs(self.head) if not self.plan.feeds_back(edge))
        return tuple(dict.fromkeys(edge.received for edge in edges))

    @cached_property
    def keeps_elements(self) -> bool:
        """Whether a step of the body may emit something later that is made of an element of now: it groups, or has
        state."""
        return any(_keeps_elements(self.plan.steps[step]) for step in self.body)

    def has(self, edge: Edge) -> bool:
        """Whether elements go round along an edge."""
        return edge.side is None and edge.source in self.steps and edge.target in self.steps

    def entering(self, steps: Iterable[int]) -> list[str]:
        """The collections, but for side inputs, that these steps of the body receive from outside the loop."""
        edges = (edge for step in steps if step in self.body for edge in self.plan.inputs(step))
        return list(dict.fromkeys(edge.received for edge in edges if edge.side is None and not self.has(edge)))


def feedback_loops(plan: Plan) -> list[FeedbackLoop]:
    """The feedback loops of a plan."""
    return [
        FeedbackLoop(plan, step.id, step.head, _body(plan, step.id))
        for step in plan.steps
        if isinstance(step.head, Feedback)
    ]


def _body(plan: Plan, head: int) -> tuple[int, ...]:
    onward = _reached([head], lambda step: (edge.target for edge in plan.outputs(step) if not plan.feeds_back(edge)))
    tails = [edge.source for edge in plan.inputs(head) if plan.feeds_back(edge)]
    back = _reached(tails, lambda step: (edge.source for edge in plan.inputs(step) if not plan.feeds_back(edge)))
    return tuple(sorted((onward & back) - {head}))


def _keeps_elements(step: Step) -> bool:
    return any(
        isinstance(node, (GroupByKey, CombinePerKey, Relate, Lookup)) or (isinstance(node, ParDo) and node.stateful)
        for node in step.nodes
    )


def _reached(start: Iterable[int], following: Callable[[int], Iterable[int]]) -> set[int]:
    """The steps that can be reached from others, and these."""
    seen: set[int] = set()
    todo = list(start)
    while todo:
        if (step := todo.pop()) not in seen:
            seen.add(step)
            todo += following(step)
    return seen

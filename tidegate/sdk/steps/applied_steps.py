"""The steps that have been applied to a pipeline: their places in the code, their nodes and their collections."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tidegate.sdk.notebook import Execution
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.integrity import reads
from tidegate.sdk.user_code.frames import Where
from tidegate.sdk.user_code.source_lines import Instruction


@dataclass(frozen=True, slots=True, eq=False)
class AppliedStep:
    """A step under its full label. `outer` is the composite that applied it; None if the author's code did.

    In a notebook or at a prompt, `execution` is the cell or statement that applied it, and `at` the instruction.
    """

    path: str
    where: Where
    numbered: bool = False
    outer: AppliedStep | None = None
    execution: Execution | None = None
    at: Instruction | None = None

    @property
    def outermost(self) -> AppliedStep:
        """The step applied by the author's code that contains this one."""
        return self if self.outer is None else self.outer.outermost

    def is_within(self, other: AppliedStep) -> bool:
        """Whether this is the other step or nested inside it."""
        return self is other or (self.outer is not None and self.outer.is_within(other))


@dataclass(slots=True)
class AppliedSteps:
    """All steps of a pipeline, with the nodes, collections and results that they produced."""

    nodes: list[portable.Node] = field(default_factory=list)
    collections: dict[str, portable.Collection] = field(default_factory=dict)
    by_path: dict[str, AppliedStep] = field(default_factory=dict)
    claimed: dict[Hashable, AppliedStep] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    loop_of: dict[str, str] = field(default_factory=dict)
    """The label of the loop in whose body a collection exists, by the collection's id."""

    def leading_to(self, collection: str) -> list[portable.Node]:
        """The nodes upstream of a collection, in the order in which they were applied."""
        needed = {collection}
        found: list[portable.Node] = []
        for node in reversed(self.nodes):
            if any(out.collection in needed for out in node.outputs):
                found.append(node)
                needed.update(reads(node))
        return found[::-1]

    def unread(self) -> Iterator[tuple[portable.Output, portable.Collection]]:
        """The outputs that no step reads."""
        read = {id for node in self.nodes for id in reads(node)}
        for node in self.nodes:
            for out in node.outputs:
                if out.collection not in read:
                    yield out, self.collections[out.collection]

    def outermost(self, chosen: Callable[[AppliedStep], bool]) -> list[AppliedStep]:
        """The steps applied by the author's code for which `chosen` is true."""
        return [step for step in self.by_path.values() if step.outer is None and chosen(step)]

    def with_derived(self, steps: Iterable[AppliedStep]) -> list[AppliedStep]:
        """These outermost steps and every outermost step downstream of them."""
        found = set(steps)
        while True:
            made = {
                out.collection
                for node in self.nodes
                if self.by_path[node.label].outermost in found
                for out in node.outputs
            }
            more = {
                step
                for node in self.nodes
                if (step := self.by_path[node.label].outermost) not in found and any(id in made for id in reads(node))
            }
            if not more:
                return [step for step in self.by_path.values() if step in found]
            found |= more

    def nodes_of(self, steps: Iterable[AppliedStep]) -> list[portable.Node]:
        """The nodes that these steps and the steps inside them appended."""
        chosen = list(steps)
        return [node for node in self.nodes if any(self.by_path[node.label].is_within(step) for step in chosen)]

    def made_by(self, steps: Iterable[AppliedStep]) -> set[str]:
        """The ids of the collections that these steps and the steps inside them produced."""
        return {out.collection for node in self.nodes_of(steps) for out in node.outputs}

    def remove(self, steps: Iterable[AppliedStep]) -> list[Any]:
        """Remove steps with everything inside them, and return their results. No other step may read their outputs."""
        removed = set(steps)
        paths = {path for path, step in self.by_path.items() if any(step.is_within(one) for one in removed)}
        for id in self.made_by(removed):
            del self.collections[id]
        self.nodes[:] = [node for node in self.nodes if node.label not in paths]
        self.claimed = {output: step for output, step in self.claimed.items() if step.path not in paths}
        for path in paths:
            del self.by_path[path]
        return [self.results.pop(path) for path in paths if path in self.results]

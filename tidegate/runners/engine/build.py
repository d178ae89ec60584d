"""From a step of the plan to the operator that executes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tidegate.runners.engine.chain import Chain
from tidegate.runners.engine.links import load_link
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.engine.tables import Grouping
from tidegate.runners.engine.whole import CombineWhole
from tidegate.runners.plan import Plan, Step
from tidegate.sdk.block import Block
from tidegate.sdk.portable.pipeline import AssignWindows, CombinePerKey, GroupByKey, ParDo, Reshuffle


class Table(Chain):
    """A chain that ends in the tables of a grouping, fired when input ends."""

    grouping: Grouping

    def open(self) -> None:
        super().open()
        self.grouping.open()

    def finish(self) -> Iterator[Emitted]:
        yield from super().finish()
        yield from self.grouping.drain()

    def close(self) -> None:
        super().close()
        self.grouping.close()


class Pass(Operator):
    """Blocks as they are, under another collection's name."""

    def __init__(self, main: str) -> None:
        self.main = main

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        yield self.main, block


def build(step: Step, plan: Plan, context: Context, sides: dict[str, Callable[[Any], Any]] | None = None) -> Operator:
    """The operator of a step that is no source and no sink; its functions are unpickled here."""
    links = tuple(
        load_link(node, plan.pipeline) for node in step.nodes if isinstance(node, (ParDo, AssignWindows))
    )
    main = step.tail.output()
    match step.tail:
        case CombinePerKey(key="none") as node:
            assert step.phase is not None and not links
            return CombineWhole(node, step.phase, context, main)
        case GroupByKey() | CombinePerKey() as node:
            assert step.phase is not None
            grouping = Grouping(node, step.phase, context, main)
            return Table(links, context, main, grouping=grouping, sides=sides)
        case ParDo() | AssignWindows():
            return Chain(links, context, main, tags=_tags(step, plan), sides=sides)
        case Reshuffle():
            return Pass(main)
        case other:
            raise AssertionError(f"{other.kind} is driven by the runner")


def _tags(step: Step, plan: Plan) -> dict[str, str]:
    """The further outputs that somebody reads."""
    read = {edge.collection for edge in plan.outputs(step.id)}
    return {output.tag: output.collection for output in step.tail.outputs[1:] if output.collection in read}

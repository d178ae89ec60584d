"""The source of a step, the same for a `Read` and a `Create`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.runners.engine.errors.attribution import guarded
from tidegate.runners.engine.sources.created import Created
from tidegate.sdk.connectors.sources import Source, Split
from tidegate.sdk.portable.model import Create, Node, Read, Stamping
from tidegate.sdk.user_code.frames import Where


@dataclass(frozen=True, slots=True)
class SourceStep:
    """A source, how its elements are stamped, and the step that errors name. `rate_limit`: elements per second;
    `discovers`: the source may have an enumerator. `inline`: loops may contain the function for timestamps."""

    label: str
    where: Where
    source: Source[Any]
    bounded: bool = True
    stamping: Stamping | None = None
    rate_limit: float | None = None
    discovers: bool = False
    inline: bool = True

    def splits(self, desired: int) -> list[Split]:
        """The splits of the source, about `desired` of them."""
        return list(guarded(self.source.splits, desired, step=self.label, where=self.where, method="splits"))


def source_step(node: Node, *, inline: bool = True) -> SourceStep:
    """The source of a `Read`, or the elements of a `Create` as a source. `inline`: as for SourceStep."""
    match node:
        case Read():
            return SourceStep(
                node.label,
                node.where,
                _scanned(node),
                node.bounded,
                node.stamping,
                node.rate_limit,
                node.discovers,
                inline,
            )
        case Create():
            return SourceStep(node.label, node.where, Created(node.values.load()))
        case _:
            raise AssertionError(f"{node.kind} has no splits")


def _scanned(node: Read) -> Source[Any]:
    """The source, without what the planner has found that no step reads."""
    source: Source[Any] = node.source.load()
    if node.columns is None and not node.conditions:
        return source
    return source.scan(node.columns, node.conditions)

"""How many of its target's partitions a rebalancing exchange uses."""

from __future__ import annotations

from tidegate.runners.plan import Edge, Plan
from tidegate.sdk.portable.model import Write


def rebalance_width(plan: Plan, edge: Edge, partitions: int) -> int:
    """The number of the target's partitions to which a rebalancing exchange sends elements.

    A sink with fewer shards than there are partitions writes in as many tasks as it has shards.
    """
    tail = plan.steps[edge.target].tail
    return min(partitions, tail.shards) if isinstance(tail, Write) and tail.shards else partitions

"""Rules of partitioning that do not depend on how a runner carries elements."""

from __future__ import annotations

from tidegate.runners.plan import Edge, Plan
from tidegate.sdk.portable.model import Write


def rebalance_width(plan: Plan, edge: Edge, partitions: int) -> int:
    """Among how many of the target's partitions a rebalancing exchange distributes elements: a sink with fewer shards
    than partitions writes in as many tasks as it has shards."""
    tail = plan.steps[edge.target].tail
    return min(partitions, tail.shards) if isinstance(tail, Write) and tail.shards else partitions

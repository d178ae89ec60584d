"""A sink in one task: the attempts of this partition's shards."""

from __future__ import annotations

from tidegate.runners.engine.sinks.writer import SinkWriter
from tidegate.runners.plan import Step
from tidegate.sdk.portable.model import Write


def writing(step: Step, run_id: str, partition: int, partitions: int) -> SinkWriter:
    """One sink in one task: this partition's shards.

    Without a number of shards each partition that has elements writes one, and the first one always: nothing written
    is a result too.
    """
    node = step.tail
    assert isinstance(node, Write)
    shards = range(partition, node.shards, partitions) if node.shards else [partition]
    return SinkWriter(step, run_id, shards, always=bool(node.shards) or partition == 0)

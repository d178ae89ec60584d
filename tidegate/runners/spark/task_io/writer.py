"""The writer of a sink in one task."""

from __future__ import annotations

from tidegate.runners.engine.sinks.writer import SinkWriter
from tidegate.runners.plan import Step
from tidegate.sdk.portable.model import Write


def sink_writer(step: Step, run_id: str, partition: int, partitions: int) -> SinkWriter:
    """A writer for this partition's shards of a sink.

    If the number of shards is not given, each partition with elements writes one shard. Partition 0 always writes one,
    so that an empty output exists, too.
    """
    node = step.tail
    assert isinstance(node, Write)
    shards = range(partition, node.shards, partitions) if node.shards else [partition]
    return SinkWriter(step, run_id, shards, always=bool(node.shards) or partition == 0)

"""What unbounded pipelines on Spark can't have, refused by name before anything runs."""

from __future__ import annotations

from tidegate.runners.plan import Plan
from tidegate.runners.spark.task_io.frames import dataframe_sinks, dataframe_sources
from tidegate.sdk.errors import UnsupportedError
from tidegate.sdk.portable.model import Node, Pipeline, Read, TestStream
from tidegate.sdk.portable.seal import located


def is_stream(pipeline: Pipeline) -> bool:
    """Whether the pipeline has unbounded collections."""
    return not all(collection.bounded for collection in pipeline.collections)


def refuse_unsupported(pipeline: Pipeline) -> None:
    """Raise UnsupportedError, naming the step, for a node that can't run in an unbounded pipeline on Spark."""
    for node in pipeline.nodes:
        feature = _unsupported(node)
        if feature is not None:
            raise located(UnsupportedError(f"the spark runner does not run {feature}"), node.label, node.where)


def refuse_frames(plan: Plan) -> None:
    """Raise UnsupportedError, naming the step, for DataFrames and RDDs: they belong to bounded runs."""
    for id in (*dataframe_sources(plan), *dataframe_sinks(plan)):
        node = plan.steps[id].tail
        why = "the spark runner does not run DataFrames and RDDs in unbounded pipelines"
        raise located(UnsupportedError(why), node.label, node.where)


def _unsupported(node: Node) -> str | None:
    match node:
        case TestStream():
            return "TestStream"
        case Read(replayable=False):
            return (
                "unbounded pipelines with sources that can't be read a second time: any worker may read the next "
                "batch, and it opens the source anew. Use --runner streaming"
            )
        case Read(rate_limit=limit) if limit is not None:
            return "unbounded pipelines with a rate limit: it reads in batches. Use --spark_batch_elements"
        case _:
            return None

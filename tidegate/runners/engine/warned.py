"""What a run warns of when it is over: in the author's log, or on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Final

from tidegate.runners.engine.timers import DROPPED_TIMERS, FULL_KEYS
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey
from tidegate.sdk.portable import pipeline as portable
from tidegate.sdk.time import MIN_MICROS
from tidegate.sdk.windowing import is_global

LOGGER: Final = "tidegate"
"""The logger that an author may configure. Without a handler, warnings go to stderr."""


def warn_of(
    metrics: MetricCells,
    max_end_timers: int,
    pipeline: portable.Pipeline | None = None,
    watermarks: Mapping[str, int] | None = None,
) -> None:
    """Say once for each step whose timers went on after the end of input that some of them were dropped.

    Where the pipeline is given, and how far each step's watermark (µs) had come, say also which live source gave
    elements and no watermark, so that windows behind it never ended.
    """
    texts = [*warnings(metrics, max_end_timers)]
    if pipeline is not None and watermarks is not None:
        texts += without_watermark(pipeline, metrics, watermarks)
    for text in texts:
        logging = sys.modules.get("logging")
        if logging is not None and (logger := logging.getLogger(LOGGER)).hasHandlers():
            logger.warning("%s", text)
        else:
            print(f"tidegate: warning: {text}", file=sys.stderr, flush=True)


def warnings(metrics: MetricCells, max_end_timers: int) -> Iterator[str]:
    """The lines of `warn_of`."""
    for key, keys in sorted(metrics.counters.items(), key=lambda item: item[0].step):
        if (key.namespace, key.name) == (ENGINE, FULL_KEYS) and keys:
            dropped = metrics.counters.get(MetricKey(key.step, ENGINE, DROPPED_TIMERS), 0)
            yield (
                f"step {key.step!r} went on setting timers after the end of its input, for {keys:,} "
                f"{'key' if keys == 1 else 'keys'}: {max_end_timers:,} fired for each, and {dropped:,} were dropped "
                "(dropped_timers). Have its timers stop, put it into windows that end, or raise --max_end_timers"
            )


def without_watermark(
    pipeline: portable.Pipeline, metrics: MetricCells, watermarks: Mapping[str, int]
) -> Iterator[str]:
    """The lines about live sources that gave elements and no watermark, if a windowed grouping waits for one."""
    nodes = {node.label: node for node in pipeline.nodes}
    makers = {out.collection: node for node in pipeline.nodes for out in node.outputs}
    stuck = [node for label, node in nodes.items() if watermarks.get(label) == MIN_MICROS and _waits(pipeline, node)]
    behind = {node.label for node in stuck}
    while stuck:
        for used in stuck.pop().inputs:
            maker = makers[used]
            if maker.label not in behind:
                behind.add(maker.label)
                stuck.append(maker)
    for node in pipeline.nodes:
        if not isinstance(node, portable.Read) or node.bounded or node.label not in behind:
            continue
        count = metrics.counters.get(MetricKey(node.label, ENGINE, "elements_out"), 0)
        if count:
            yield (
                f"step {node.label!r} gave {count:,} elements and no watermark, so windows behind it never ended. Have "
                "it stamp what it reads, as in tg.Read(source, timestamp=…), or have its reader give watermarks: "
                "timestamps that a later step sets come too late for that"
            )


def _waits(pipeline: portable.Pipeline, node: portable.Node) -> bool:
    match node:
        case portable.GroupByKey() | portable.CombinePerKey():
            source = pipeline.collection(node.inputs[0])
            return not source.bounded and not is_global(source.windowing)
        case _:
            return False

"""What an author should know of a run as it starts or when it has finished, in the author's log or on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidegate.runners.engine.elementwise.unstamped import GROUPED_BEFORE, UNSTAMPED
from tidegate.runners.engine.sources.split_reader import WATERMARKED
from tidegate.runners.engine.state.timers import DROPPED_TIMERS, FULL_KEYS
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey
from tidegate.sdk.portable import model as portable
from tidegate.sdk.windowing.strategy import is_global

if TYPE_CHECKING:
    from tidegate.sdk.runner import RunOptions

LOGGER: Final = "tidegate"
"""The logger that an author may configure. Without a handler, warnings go to stderr."""


def tell_if_endless(pipeline: portable.Pipeline, options: RunOptions, *, looking: bool) -> None:
    """Say that a run goes on until it is stopped, where no terminal shows its progress. A look ends by itself."""
    if looking or options.run_for is not None or options.progress != "auto" or sys.stderr.isatty():
        return
    if all(collection.bounded for collection in pipeline.collections):
        return
    if any(isinstance(node, portable.TestStream) for node in pipeline.nodes):
        return
    text = f"the pipeline {pipeline.name!r} is running until it is stopped (Ctrl-C or SIGTERM); no --run_for"
    logging = sys.modules.get("logging")
    if logging is not None and (logger := logging.getLogger(LOGGER)).hasHandlers():
        logger.info("%s", text)
    else:
        print(f"tidegate: {text}", file=sys.stderr, flush=True)


def warn_of(metrics: MetricCells, max_end_timers: int, pipeline: portable.Pipeline) -> None:
    """Say once for each step what its author should know of a run that is over, by what it counted."""
    texts = [
        *endless_timers(metrics, max_end_timers),
        *without_watermark(pipeline, metrics),
        *without_timestamps(pipeline, metrics),
    ]
    for text in texts:
        logging = sys.modules.get("logging")
        if logging is not None and (logger := logging.getLogger(LOGGER)).hasHandlers():
            logger.warning("%s", text)
        else:
            print(f"tidegate: warning: {text}", file=sys.stderr, flush=True)


def endless_timers(metrics: MetricCells, max_end_timers: int) -> Iterator[str]:
    """Which steps went on setting timers after the end of input, until some of them were dropped."""
    for key, keys in sorted(metrics.counters.items(), key=lambda item: item[0].step):
        if (key.namespace, key.name) == (ENGINE, FULL_KEYS) and keys:
            dropped = metrics.counters.get(MetricKey(key.step, ENGINE, DROPPED_TIMERS), 0)
            yield (
                f"step {key.step!r} went on setting timers after the end of its input, for {keys:,} "
                f"{'key' if keys == 1 else 'keys'}: {max_end_timers:,} fired for each, and {dropped:,} were dropped "
                "(dropped_timers). Have its timers stop, put it into windows that end, or raise --max_end_timers"
            )


def without_watermark(pipeline: portable.Pipeline, metrics: MetricCells) -> Iterator[str]:
    """Which live sources gave elements and no watermark, where a step behind them waits for one."""
    makers = {out.collection: node for node in pipeline.nodes for out in node.outputs}
    pending = [node for node in pipeline.nodes if _waits(pipeline, node)]
    behind = {node.label for node in pending}
    while pending:
        for used in pending.pop().inputs:
            maker = makers[used]
            if maker.label not in behind:
                behind.add(maker.label)
                pending.append(maker)
    for node in pipeline.nodes:
        if not isinstance(node, portable.Read) or node.bounded or node.label not in behind:
            continue
        count, watermarked = (
            metrics.counters.get(MetricKey(node.label, ENGINE, name), 0) for name in ("elements_out", WATERMARKED)
        )
        if count and not watermarked:
            yield (
                f"step {node.label!r} ({node.where}) gave {count:,} elements and no watermark, so windows behind "
                "it could not end, nor event-time timers fire, while it ran. Have it stamp what it reads, as in "
                "tg.Read(source, timestamp=…), or have its reader give watermarks: timestamps that a later step sets "
                "come too late for that"
            )


def without_timestamps(pipeline: portable.Pipeline, metrics: MetricCells) -> Iterator[str]:
    """Which steps gave windows of event time to elements that have no time of their own."""
    for node in pipeline.nodes:
        if not isinstance(node, portable.AssignWindows):
            continue
        windows = type(node.windowing.assigner).__name__
        unstamped, grouped = (
            metrics.counters.get(MetricKey(node.label, ENGINE, name), 0) for name in (UNSTAMPED, GROUPED_BEFORE)
        )
        if unstamped:
            yield (
                f"step {node.label!r} ({node.where}) applied {windows} to {_elements(unstamped)} without a timestamp, "
                "so they share the windows at the beginning of time. Stamp them before this step: in the "
                "source, as in tg.Read(source, timestamp=…), or by tg.Map(lambda e: tg.TimestampedValue(e, …))"
            )
        if grouped:
            yield (
                f"step {node.label!r} ({node.where}) applied {windows} to {_elements(grouped)} that a grouping in the "
                "global window had put at the end of time, so they share the windows there. Apply it before "
                "that grouping, or stamp what the grouping gives by tg.Map(lambda e: tg.TimestampedValue(e, …))"
            )


def _waits(pipeline: portable.Pipeline, node: portable.Node) -> bool:
    """Whether a step gives results as the watermark of live input passes the ends of windows, or its timers."""
    if not node.inputs:
        return False
    source = pipeline.collection(node.inputs[0])
    match node:
        case portable.GroupByKey() | portable.CombinePerKey():
            return not source.bounded and not is_global(source.windowing)
        case portable.ParDo(timers=timers):
            return not source.bounded and any(timer.domain == "event" for timer in timers)
        case _:
            return False


def _elements(n: int) -> str:
    return f"{n:,} {'element' if n == 1 else 'elements'}"

"""Warnings to the author about a run, as it starts or after it has ended, in the author's log or on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidegate.runners.engine.elementwise.unstamped import GROUPED_BEFORE, UNSTAMPED
from tidegate.runners.engine.iteration.decision import CONVERGED, NOT_CONVERGED, ROUNDS
from tidegate.runners.engine.sources.split_reader import WATERMARKED
from tidegate.runners.engine.state.timers import DROPPED_TIMERS, FULL_KEYS
from tidegate.sdk.errors import counted
from tidegate.sdk.metrics import ENGINE, ROUND, MetricCells, MetricKey
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.integrity import with_bodies
from tidegate.sdk.windowing.strategy import is_global

if TYPE_CHECKING:
    from tidegate.sdk.runner import RunOptions

LOGGER: Final = "tidegate"
"""The logger that the author may configure. Without a handler, warnings go to stderr."""


def announce_endless_run(pipeline: portable.Pipeline, options: RunOptions, *, previewing: bool) -> None:
    """Log that an unbounded run won't end by itself, if no terminal shows its progress. A preview does end."""
    if previewing or options.run_for is not None or options.progress != "auto" or sys.stderr.isatty():
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


def announce_lossy_sources(pipeline: portable.Pipeline) -> None:
    """Warn of each source that can't be read a second time, as a run starts."""
    for node in pipeline.nodes:
        if isinstance(node, portable.Read) and not node.replayable:
            warn(f"{node.label!r} {node.delivery_note}")


def log_warnings(metrics: MetricCells, max_end_timers: int, pipeline: portable.Pipeline) -> None:
    """Log the warnings that follow from the counters of a finished run, at most one of each kind per step. `pipeline`
    is that of the plan, whose steps have the labels that metrics have."""
    texts = [
        *endless_timers(metrics, max_end_timers),
        *without_watermark(pipeline, metrics),
        *without_timestamps(pipeline, metrics),
        *not_converged(pipeline, metrics),
    ]
    for text in texts:
        warn(text)


def endless_timers(metrics: MetricCells, max_end_timers: int) -> Iterator[str]:
    """Warnings about steps that kept setting timers after the end of input until some were dropped."""
    for key, keys in sorted(metrics.counters.items(), key=lambda item: item[0].step):
        if (key.namespace, key.name) == (ENGINE, FULL_KEYS) and keys and ROUND not in key.step:
            dropped = metrics.counters.get(MetricKey(key.step, ENGINE, DROPPED_TIMERS), 0)
            yield (
                f"step {key.step!r} kept setting timers after the end of its input, for {keys:,} "
                f"{'key' if keys == 1 else 'keys'}: {max_end_timers:,} fired for each, and {dropped:,} were dropped "
                "(dropped_timers). Stop setting timers at some point, use windows that end, or raise --max_end_timers"
            )


def without_watermark(pipeline: portable.Pipeline, metrics: MetricCells) -> Iterator[str]:
    """Warnings about unbounded sources that emitted elements but no watermark, though a later step waits for one."""
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
                f"step {node.label!r} ({node.where}) emitted {counted(count, 'element')} but no watermark, so no "
                "window downstream could end and no event-time timer could fire while it ran. Assign timestamps as "
                "elements are read, with tg.Read(source, timestamp=…), or have the reader report watermarks; "
                "timestamps that a later step assigns come too late"
            )


def without_timestamps(pipeline: portable.Pipeline, metrics: MetricCells) -> Iterator[str]:
    """Warnings about steps that assigned event-time windows to elements without timestamps."""
    for node in with_bodies(pipeline.nodes):
        if not isinstance(node, portable.AssignWindows):
            continue
        windows = type(node.windowing.assigner).__name__
        unstamped, grouped = (
            metrics.counters.get(MetricKey(node.label, ENGINE, name), 0) for name in (UNSTAMPED, GROUPED_BEFORE)
        )
        if unstamped:
            yield (
                f"step {node.label!r} ({node.where}) applied {windows} to {_elements(unstamped)} without a timestamp, "
                "so they share the windows at the beginning of time. Assign timestamps before this step: in the "
                "source, with tg.Read(source, timestamp=…), or with tg.Map(lambda e: tg.TimestampedValue(e, …))"
            )
        if grouped:
            yield (
                f"step {node.label!r} ({node.where}) applied {windows} to {_elements(grouped)} that a grouping in the "
                "global window had stamped with the end of time, so they share the windows there. Apply it before "
                "that grouping, or assign timestamps after it, with tg.Map(lambda e: tg.TimestampedValue(e, …))"
            )


def not_converged(pipeline: portable.Pipeline, metrics: MetricCells) -> Iterator[str]:
    """Warnings about loops that were over because they had no more rounds, although their condition was not met."""
    loops = [node for node in with_bodies(pipeline.nodes) if isinstance(node, portable.Iterate)]
    for loop in sorted(loops, key=lambda loop: loop.label):
        total, met, unmet = (
            metrics.counters.get(MetricKey(loop.label, ENGINE, name), 0) for name in (ROUNDS, CONVERGED, NOT_CONVERGED)
        )
        if unmet:
            if met + unmet == 1:
                how_long = f"after {counted(total, 'round')}"
            else:  # it is in a loop that ran it so often, and the counter is that of the rounds of all runs
                how_long = f"after {counted(loop.rounds, 'round')} in {unmet:,} of its {counted(met + unmet, 'run')}"
            yield (
                f"the loop {loop.label!r} was over {how_long}, and its condition was not met: its result is what the "
                "last round gave. Give it more rounds or another condition; strict=True fails such a run"
            )


def warn(text: str) -> None:
    logging = sys.modules.get("logging")
    if logging is not None and (logger := logging.getLogger(LOGGER)).hasHandlers():
        logger.warning("%s", text)
    else:
        print(f"tidegate: warning: {text}", file=sys.stderr, flush=True)


def _waits(pipeline: portable.Pipeline, node: portable.Node) -> bool:
    """Whether a step with unbounded input waits for the watermark to fire windows or timers."""
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

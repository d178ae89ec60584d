"""Summarizes a finished run in a few lines for the terminal: elements read, files written, elements dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidegate.sdk.errors import counted, visible
from tidegate.sdk.metrics import ENGINE, FILES_WRITTEN, LAST_FILE, MetricResults
from tidegate.sdk.portable.model import Create, Node, Pipeline, Read, TestStream, Write
from tidegate.sdk.runner import PipelineState

MOST: Final = 8
"""The maximum number of lines about sinks, and of lines about elements that were dropped or became dead letters."""
LONGEST: Final = 120
"""The maximum length of a file's name; longer ones are abbreviated."""
_NOT_PROCESSED: Final = {
    "dead_letters": "dead letters",
    "dropped_late": "dropped, too late",
    "dropped_closed": "dropped, window closed",
}
_STATES: Final = {PipelineState.DONE: "done", PipelineState.CANCELLED: "stopped"}


def summary(pipeline: Pipeline, state: PipelineState, metrics: MetricResults, seconds: float) -> list[str]:
    """The lines for a run that took so many seconds."""
    counts = {result.key.step: result.value for result in metrics.query("elements_out", namespace=ENGINE)}
    sources = [node for node in pipeline.nodes if isinstance(node, (Read, Create, TestStream))]
    read = sum(counts.get(node.label, 0) for node in sources)
    ended = _STATES.get(state, state.name.lower())
    head = f"{pipeline.name}: {ended} in {_took(seconds)}, {counted(read, 'element')} in"
    return [
        visible(line) for line in (head, *_few(_written(pipeline, counts, metrics)), *_few(_not_processed(metrics)))
    ]


def _written(pipeline: Pipeline, counts: dict[str, int], metrics: MetricResults) -> Iterator[str]:
    makers = {output.collection: node for node in pipeline.nodes for output in node.outputs}
    for node in pipeline.nodes:
        if isinstance(node, Write):
            inputs = [_count(makers[collection], collection, counts) for collection in node.inputs]
            number = counted(sum(inputs), "element") if None not in inputs else "elements"  # type: ignore[arg-type]
            yield f"  wrote {number} to {_place(node, metrics)} ({node.label})"


def _place(node: Write, metrics: MetricResults) -> str:
    """The number of files that the sink has written, with an example; the sink's name if it reports no files."""
    (number, *_) = [found.value for found in metrics.query(FILES_WRITTEN, namespace=ENGINE, step=node.label)] or [0]
    (last, *_) = [found.value for found in metrics.query(LAST_FILE, namespace=ENGINE, step=node.label)] or [""]
    if not number or not last:
        return node.name
    shown = last if len(last) <= LONGEST else f"{last[: LONGEST // 2 - 1]}…{last[-LONGEST // 2 :]}"
    return shown if number == 1 else f"{number:,} files, such as {shown}"


def _count(maker: Node, collection: str, counts: dict[str, int]) -> int | None:
    """The number of elements of a collection. None if the step has several outputs: only their sum is counted."""
    dead_letters = getattr(maker, "dead_letters", None) is not None  # which have a counter of their own
    if len(maker.outputs) == 1 + dead_letters and maker.output() == collection:
        return counts.get(maker.label, 0)
    return None


def _not_processed(metrics: MetricResults) -> Iterator[str]:
    for name, words in _NOT_PROCESSED.items():
        for result in metrics.query(name, namespace=ENGINE):
            if result.value:
                yield f"  {words}: {result.value:,} ({result.key.step})"


def _few(lines: Iterator[str]) -> list[str]:
    every = list(lines)
    rest = len(every) - MOST
    return every if rest <= 0 else [*every[:MOST], f"  … and {rest} more"]


def _took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60} s"

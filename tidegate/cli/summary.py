"""How a run ended, in a few lines for the terminal: what went in, what was written where, and what was left aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidegate.sdk.errors import visible
from tidegate.sdk.metrics import ENGINE, MetricResults
from tidegate.sdk.portable.model import Create, Node, Pipeline, Read, TestStream, Write
from tidegate.sdk.runner import PipelineState

MOST: Final = 8
"""Lines about sinks and about what was left aside, each."""
_LEFT_ASIDE: Final = {
    "dead_letters": "dead letters",
    "dropped_late": "dropped, too late",
    "dropped_closed": "dropped, window closed",
}
_STATES: Final = {PipelineState.DONE: "done", PipelineState.CANCELLED: "stopped"}


def summary(pipeline: Pipeline, state: PipelineState, metrics: MetricResults, seconds: float) -> list[str]:
    """The lines, for a run that took so long."""
    counts = {result.key.step: result.value for result in metrics.query("elements_out", namespace=ENGINE)}
    sources = [node for node in pipeline.nodes if isinstance(node, (Read, Create, TestStream))]
    read = sum(counts.get(node.label, 0) for node in sources)
    ended = _STATES.get(state, state.name.lower())
    head = f"{pipeline.name}: {ended} in {_took(seconds)}, {read:,} elements in"
    return [visible(line) for line in (head, *_few(_written(pipeline, counts)), *_few(_left_aside(metrics)))]


def _written(pipeline: Pipeline, counts: dict[str, int]) -> Iterator[str]:
    makers = {output.collection: node for node in pipeline.nodes for output in node.outputs}
    for node in pipeline.nodes:
        if isinstance(node, Write):
            known = [_given(makers[collection], collection, counts) for collection in node.inputs]
            number = f"{sum(known):,} elements" if None not in known else "elements"  # type: ignore[arg-type]
            yield f"  wrote {number} to {node.name} ({node.label})"


def _given(maker: Node, collection: str, counts: dict[str, int]) -> int | None:
    """How many elements a collection held, if that was counted: of several outputs it is only the sum."""
    dead_letters = getattr(maker, "dead_letters", None) is not None  # which are counted for themselves
    if len(maker.outputs) == 1 + dead_letters and maker.output() == collection:
        return counts.get(maker.label, 0)
    return None


def _left_aside(metrics: MetricResults) -> Iterator[str]:
    for name, words in _LEFT_ASIDE.items():
        for result in metrics.query(name, namespace=ENGINE):
            if result.value:
                yield f"  {words}: {result.value:,} ({result.key.step})"


def _few(lines: Iterator[str]) -> list[str]:
    found = list(lines)
    rest = len(found) - MOST
    return found if rest <= 0 else [*found[:MOST], f"  … and {rest} more"]


def _took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60} s"

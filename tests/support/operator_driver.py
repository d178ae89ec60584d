"""Feeds events to an operator and reads its output; can save and restore its state between any two events."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import tidegate as tg
from tidegate.runners.engine.checks.contracts import Checks
from tidegate.runners.engine.factory import build
from tidegate.runners.engine.operator import Context, Operator
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.data.block import Block, Each
from tidegate.sdk.portable.model import Pipeline

SECOND = 1_000_000


@dataclass(frozen=True)
class Elements:
    """Elements in order, each (value, timestamp in µs, windows)."""

    items: tuple[tuple[Any, int, tuple[Any, ...]], ...]
    collection: str = "main"


@dataclass(frozen=True)
class Watermark:
    """Advances the watermark of the main input, or of the side input `side`, to `micros`."""

    micros: int
    side: str = ""


@dataclass(frozen=True)
class Clock:
    """Advances processing time to `micros`."""

    micros: int


Event: TypeAlias = Elements | Watermark | Clock
Out: TypeAlias = tuple[str, Any, int, tuple[Any, ...]]
"""(collection, value, timestamp in µs, windows)."""


def context(*, checks: str | None = None, block_size: int = 4096, max_end_timers: int = 1_000_000) -> Context:
    """An operator's context with plenty of memory."""
    directory = Path(tempfile.gettempdir())
    made = None if checks is None else Checks(checks)  # type: ignore[arg-type]
    return Context(
        memory_budget=1 << 26,
        temp_dir=lambda: directory,
        checks=made,
        block_size=block_size,
        max_end_timers=max_end_timers,
    )


def planned(make: Callable[[tg.Pipeline], Any], *, streaming: bool = True) -> Any:
    """The plan of a pipeline."""
    pipeline = tg.Pipeline()
    make(pipeline)
    portable: Pipeline = pipeline.portable()
    return plan(portable, Traits(parallel=False, streaming=streaming))


def operator(
    make: Callable[[tg.Pipeline], Any], label: str, *, streaming: bool = True, world: Context | None = None
) -> Operator:
    """The operator of the step that begins with the node `label` in the pipeline that `make` builds."""
    made = planned(make, streaming=streaming)
    step = next(step for step in made.steps if step.head.label == label)
    operator = build(step, made, world or context())
    operator.open()
    return operator


def read(emitted: Iterable[tuple[str, Block]]) -> Iterator[Out]:
    """Yield the emitted elements one by one."""
    for collection, block in emitted:
        for value, t, windows in zip(block.values, block.timestamp_column(), block.window_list(), strict=True):
            yield collection, value, t, tuple(windows)


def feed(operator: Operator, event: Event, *, cut: int = 4096) -> list[Out]:
    """Feed one event to an operator; elements go in blocks of at most `cut`."""
    match event:
        case Elements(items=items, collection=collection):
            out: list[Out] = []
            for start in range(0, len(items), cut):
                part = items[start : start + cut]
                block = Block([v for v, _, _ in part], [t for _, t, _ in part], Each([w for _, _, w in part]))
                out += read(operator.process(block, collection))
            return out
        case Watermark(micros=micros, side=""):
            return [*read(operator.finish_bundle()), *read(operator.on_watermark(micros))]
        case Watermark(micros=micros, side=side):
            return [*read(operator.finish_bundle()), *read(operator.on_side_watermark(side, micros))]
        case Clock(micros=micros):
            return [*read(operator.finish_bundle()), *read(operator.on_clock(micros))]


def run(operator: Operator, events: Iterable[Event], *, cut: int = 4096, end: bool = True) -> list[Out]:
    """Feed all events and, with `end`, the end of input; return the output."""
    out = [made for event in events for made in feed(operator, event, cut=cut)]
    if end:
        out += read(operator.finish_bundle())
        out += read(operator.on_watermark(tg.MAX_TIMESTAMP.micros))
        out += read(operator.finish())
    return out


def run_restored(make: Callable[[], Operator], events: list[Event], at: int) -> list[Out]:
    """Run with the state pickled after `at` events and restored in another operator."""
    first = make()
    out = run(first, events[:at], end=False)
    saved = pickle.dumps(first.snapshot())
    second = make()
    second.restore(pickle.loads(saved))
    return out + run(second, events[at:])


def operator_factory(make: Callable[[tg.Pipeline], Any], label: str, **kwargs: Any) -> Callable[[], Operator]:
    """A function that builds a new `operator(...)` on each call."""
    return partial(operator, make, label, **kwargs)

"""What an operator is: blocks, watermarks and the end of input go in, blocks come out, one bounded block at a time.

The runner pulls from the iterators that `process` and the other events return, and may leave one suspended while
its output has nowhere to go; it takes a snapshot only between iterators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from tidegate.sdk.block import BLOCK_SIZE, Block
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey
from tidegate.sdk.time import MAX_MICROS

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.runners.engine.checks import Checks
    from tidegate.runners.plan import Step

Emitted: TypeAlias = tuple[str, Block]
"""The id of a collection, and some of its elements."""


@dataclass(slots=True)
class Context:
    """What an operator is given of the world.

    `memory_budget` (bytes) is what all operators of this task may hold together; `temp_dir` makes the directory for
    spilled runs when it is first needed. `streaming`: bounded input is treated as a stream. `around` puts something
    around each operator of a graph that sees what passes, such as a tracer; None, as ever, costs nothing.
    """

    memory_budget: int
    temp_dir: Callable[[], Path]
    metrics: MetricCells = field(default_factory=MetricCells)
    block_size: int = BLOCK_SIZE
    checks: Checks | None = None
    runtime_types: bool = False
    around: Callable[[Step, Operator], Operator] | None = None

    def count(self, step: str, name: str, n: int = 1) -> None:
        """Add to one of the engine's own counters."""
        if n:
            self.metrics.count(MetricKey(step, ENGINE, name), n)


class Operator:
    """A step at work. Every event but `process` has a default: most operators only map blocks to blocks.

    Times are µs. A runner calls `finish_bundle` before any event that is no block; then `on_watermark` when the
    step's input watermark (the least over its inputs) has advanced, or `on_clock` when processing time has; at the
    end of input the watermark goes to MAX_MICROS and `finish` follows. The step's output watermark is the least of
    its input watermark and `hold()`.
    """

    def open(self) -> None:
        """Before the first event: the author's `setup` runs here."""

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        """A block of the input collection of that id."""
        raise NotImplementedError

    def finish_bundle(self) -> Iterator[Emitted]:
        """Before any watermark, barrier, timer or end is handled."""
        return iter(())

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        """The input watermark has advanced to `micros`; it never goes back."""
        return iter(())

    def on_side_watermark(self, collection: str, micros: int) -> Iterator[Emitted]:
        """The watermark of a side input's collection has advanced to `micros`."""
        return iter(())

    def on_clock(self, micros: int) -> Iterator[Emitted]:
        """Processing time has advanced to `micros`."""
        return iter(())

    def next_clock(self) -> int | None:
        """The processing time at which `on_clock` has something to do; None for never."""
        return None

    def hold(self) -> int:
        """The least timestamp that may still be emitted ahead of the watermark; MAX_MICROS for no hold."""
        return MAX_MICROS

    def finish(self) -> Iterator[Emitted]:
        """Input has ended, and the watermark is at the end of time."""
        return iter(())

    def snapshot(self) -> Any:
        """All state, as plain picklable data that shares nothing mutable with the operator; None if it keeps none."""
        return None

    def restore(self, state: Any) -> None:
        """Go on from what `snapshot` gave; called after `open`, before any event."""

    def close(self) -> None:
        """After the last event, also after an error: the author's `teardown` runs here."""

"""The operator interface: blocks, watermarks and the end of input go in; blocks come out, one bounded block at a time.

The runner pulls from the iterators that `process` and the other events return, and may leave one suspended while
its output has nowhere to go; it takes a snapshot only between iterators.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.engine.time.clock import SystemClock
from tidegate.sdk.data.block import BLOCK_SIZE, Block
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey
from tidegate.sdk.options.defaults import DEFAULTS
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.runners.plan import Step

Emitted: TypeAlias = tuple[str, Block]
"""The id of a collection, and some of its elements; of none, to hand back control before there are any."""


class Checks(Protocol):
    """How much of each step's input the checks of the author's code look at."""

    @property
    def mode(self) -> Literal["sample", "all"]: ...

    def share(self, seen: int, blocks: int, size: int) -> int:
        """How many leading elements to check of a step's next block, its `blocks`-th, which has `size` elements; the
        step has had `seen` elements before."""


def _never() -> bool:
    return False


@dataclass(slots=True)
class Context:
    """What an operator is given of the world.

    `memory_budget` (bytes) is what all operators of this task may hold together; `temp_dir` makes the directory for
    spilled runs when it is first needed. `around` puts something around each operator of a graph that sees what
    passes, such as a tracer; None, as ever, costs nothing. `now` is processing time for those whom nobody tells it by
    `on_clock`: steps with bounded input. `paged` is given each step, by its label, that keeps state of live input by
    key, for what keeps that where it does not all fit in memory. `max_end_timers`: how many event-time timers that were
    set after the end of input fire for a key in the global window. `pausing` is asked between two timers at the end of
    input, of which there may be very many, whether to leave the rest for later (`Operator.paused`).
    """

    memory_budget: int
    temp_dir: Callable[[], Path]
    metrics: MetricCells = field(default_factory=MetricCells)
    block_size: int = BLOCK_SIZE
    checks: Checks | None = None
    runtime_types: bool = False
    around: Callable[[Step, Operator], Operator] | None = None
    paged: Callable[[str, KeyedOperator], Operator] | None = None
    now: Callable[[], int] = SystemClock().now
    max_end_timers: int = DEFAULTS.max_end_timers
    pausing: Callable[[], bool] = _never

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

    def process_keyed(self, keyed: KeyedBatch, collection: str) -> Iterator[Emitted]:
        """Elements of the input collection of that id that come by key; unless a step knows better, as blocks."""
        for block in keyed.blocks(BLOCK_SIZE):
            yield from self.process(block, collection)

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

    @property
    def paused(self) -> bool:
        """Whether it has left some of what there is to do at the end of input for later, as `Context.pausing` asked. A
        snapshot can be taken then; `on_watermark`, called again, does the rest, and `finish` waits for that."""
        return False

    def snapshot(self, keys: Collection[Any] | None = None) -> Any:
        """All state, as plain picklable data that shares nothing mutable with the operator; None if it keeps none.

        Of state by key only that of `keys`, if they are given: what `touched` said, for a snapshot that builds on the
        one before (`rescale.overlaid`).
        """
        return None

    def restore(self, state: Any) -> None:
        """Go on from what `snapshot` gave; called after `open`, before any event."""

    def touched(self) -> list[Collection[Any]] | None:
        """Runs of keys, some more than once: all whose state may have changed since this was asked last; None: any.

        To ask is to have them noted from now on: until then that costs nothing.
        """
        return None if keeps_state(self) else []

    def close(self) -> None:
        """After the last event, also after an error: the author's `teardown` runs here."""


class Wakeups(NamedTuple):
    """When a key has work to do again: the watermark and the processing time (µs) at which the first of its timers,
    window ends or triggers is due (NEVER: none is), and the least timestamp at which the key holds the output watermark
    (MAX_MICROS: it holds nothing)."""

    event: int
    clock: int
    hold: int


NEVER: Final = MAX_MICROS + 1


class KeyedOperator(Operator):
    """An operator whose state is divided by key, so that single keys can be snapshotted, restored and evicted.

    Snapshots are `state.keyed_state.KeyedState`, which the floors above this one define.
    """

    def keys_of(self, block: Block) -> Iterable[Any]:
        """The key of each element of a block. Elements without a key raise TypeError, possibly only during iteration,
        or yield any value: `process` then reports what is wrong with them."""
        raise NotImplementedError

    def snapshot(self, keys: Collection[Any] | None = None) -> Any:
        """The state of all keys, or of `keys`; it shares nothing mutable with the operator."""
        raise NotImplementedError

    def restore(self, state: Any) -> None:
        """Load a snapshot of keys that the operator does not hold; `state` itself stays unchanged.

        State that is not keyed is replaced. Raises RunError for state that the step no longer declares.
        """
        raise NotImplementedError

    def touched(self) -> list[Collection[Any]] | None:
        raise NotImplementedError

    def next_event(self) -> int:
        """A watermark (µs) below which no key's state changes; MIN_MICROS: unknown."""
        return MIN_MICROS

    def evict(self, keys: Collection[Any]) -> None:
        """Drop these keys. Their state has been snapshotted and will be restored before their next event."""
        raise NotImplementedError

    def wakeups(self, state: Any) -> Mapping[Any, Wakeups]:
        """When each key of a snapshot has work to do again; keys that never do may be left out."""
        raise NotImplementedError


def keeps_state(operator: Operator) -> bool:
    """Whether there is ever anything to take a snapshot of."""
    return type(operator).snapshot is not Operator.snapshot

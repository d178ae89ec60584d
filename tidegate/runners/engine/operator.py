"""The interface of operators: blocks, watermarks, timers and the end of input go in, bounded blocks come out.

Every event returns an iterator of output blocks. The runner pulls from it, and may suspend it while there is no room
downstream (backpressure). It takes snapshots only when no iterator is suspended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.engine.life_cycle import LifeCycle
from tidegate.runners.engine.loop_tables import LoopTables
from tidegate.runners.engine.time.clock import SystemClock
from tidegate.sdk.data.block import BLOCK_SIZE, Block
from tidegate.sdk.metrics import MetricCells, engine_key
from tidegate.sdk.options.defaults import DEFAULTS
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.runners.plan import Step

Emitted: TypeAlias = tuple[str, Block]
"""The id of a collection, and some of its elements. An empty block only returns control to the runner."""


class Checks(Protocol):
    """How many of each step's elements `--checks` checks."""

    @property
    def mode(self) -> Literal["sample", "all"]: ...

    def elements_to_check(self, seen: int, blocks: int, size: int) -> int:
        """How many leading elements to check of a step's `blocks`-th block, which has `size` elements and follows
        `seen` elements in other blocks."""


def _never() -> bool:
    return False


@dataclass(slots=True)
class Context:
    """The environment of an operator.

    memory_budget: bytes that all operators of the task may use together.
    temp_dir: creates the directory for spilled data at the first call, and returns it.
    wrap: wraps each operator of a graph, for instance in a tracer.
    wrap_keyed: wraps each keyed operator with unbounded input, for a state backend that doesn't keep all of the state
    in memory; takes the step's label and the operator.
    now: processing time for steps with bounded input, which get no `on_clock`.
    max_end_timers: how many event-time timers set after the end of input fire per key in the global window.
    should_pause: asked between timers at the end of input, which may be very many: whether to pause the operator, so
    that a snapshot can be taken (`Operator.paused`).
    wake: called by another thread when an operator may have results (`AwaitingOperator.has_results`), to wake the
    runner's loop. None: the runner has no loop that could wait for them, so the operator waits itself.
    must_buffer: asked by a blocked operator: whether to buffer a block at once, because a snapshot is to be taken.
    inline: whether loops contain the text of the author's functions (`--inline`).
    life: when the author's `setup` and `teardown` run.
    tables: those that outlive the rounds of the loop in whose body the operator is.
    """

    memory_budget: int
    temp_dir: Callable[[], Path]
    metrics: MetricCells = field(default_factory=MetricCells)
    block_size: int = BLOCK_SIZE
    checks: Checks | None = None
    runtime_types: bool = False
    wrap: Callable[[Step, Operator], Operator] | None = None
    wrap_keyed: Callable[[str, KeyedOperator], Operator] | None = None
    now: Callable[[], int] = SystemClock().now
    max_end_timers: int = DEFAULTS.max_end_timers
    should_pause: Callable[[], bool] = _never
    wake: Callable[[], None] | None = None
    must_buffer: Callable[[], bool] = _never
    inline: Literal["on", "off", "always"] = DEFAULTS.inline
    life: LifeCycle = field(default_factory=LifeCycle)
    tables: LoopTables = field(default_factory=LoopTables)

    def count(self, step: str, name: str, n: int = 1) -> None:
        """Add `n` to one of the engine's counters."""
        if n:
            self.metrics.count(engine_key(step, name), n)


class DeferredCopies(Protocol):
    """Decides when an operator's snapshots copy values (`state.copy_on_write.CopyOnWrite`)."""

    def deferred(self, at_once: int) -> AbstractContextManager[None]:
        """A context in which the operator's snapshot copies at most `at_once` values. It copies the others when they
        are read from the snapshot, or before they change. Ends the snapshot before."""

    def stop(self) -> None:
        """Copy no more values, since the snapshot is not needed any more."""


class Operator:
    """Executes one step. Every event but `process` has a default, since most operators only map blocks to blocks.

    Times are µs. A runner calls `finish_bundle` before every event that is not a block. It calls `on_watermark` when
    the step's input watermark (the minimum over its inputs) has advanced, and `on_clock` when processing time has. At
    the end of input it advances the watermark to MAX_MICROS, then calls `finish`. The step's output watermark is the
    minimum of its input watermark and `hold()`.
    """

    def open(self) -> None:
        """Called before the first event; runs the author's `setup`."""

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        """Process a block of an input collection."""
        raise NotImplementedError

    def process_keyed(self, keyed: KeyedBatch, collection: str) -> Iterator[Emitted]:
        """Process a keyed batch of an input collection. The default processes it as blocks."""
        for block in keyed.blocks(BLOCK_SIZE):
            yield from self.process(block, collection)

    def finish_bundle(self) -> Iterator[Emitted]:
        """End the bundle; called before any watermark, barrier, timer or end of input is handled."""
        return iter(())

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        """The input watermark has advanced to `micros`; it never goes back."""
        return iter(())

    def on_idle(self) -> None:
        """The step's inputs have become idle, so that from now on the watermark downstream may be ahead of this step's.

        That stays so when elements follow. Therefore, this is also called after `restore` if it was before. A bundle
        has ended.
        """

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
        """The earliest timestamp that may still be emitted; holds the output watermark. MAX_MICROS for no hold."""
        return MAX_MICROS

    def under_way(self) -> int:
        """The earliest timestamp that may still be emitted without a further watermark, because of the clock or of
        calls; holds the watermark of a feedback loop around the step. MAX_MICROS for none."""
        return self.hold() if self.next_clock() is not None else MAX_MICROS

    @property
    def pending(self) -> bool:
        """Whether elements that were received wait for something else than the watermark. As long as they do, the
        step's outputs neither end nor become idle."""
        return False

    def finish(self) -> Iterator[Emitted]:
        """Input has ended, and the watermark is at the end of time."""
        return iter(())

    @property
    def paused(self) -> bool:
        """Whether the operator has interrupted its work at the end of input, as `Context.should_pause` asked.

        A snapshot can be taken then. The next call of `on_watermark` continues the work; `finish` is not called before
        it is done.
        """
        return False

    def snapshot(self, keys: Collection[Any] | None = None) -> Any:
        """All state, as plain picklable data that shares nothing mutable with the operator; None for a stateless one.

        For an incremental snapshot, `keys` are the keys returned by `touched`: only their keyed state is included, to
        be laid over the previous snapshot (`rescale.overlaid`).
        """
        return None

    def restore(self, state: Any) -> None:
        """Restore what `snapshot` returned; called after `open`, before any event."""

    def touched(self) -> list[Collection[Any]] | None:
        """All keys whose state may have changed since the last call, in one or more collections; None: any key.

        Keys may occur more than once. The first call starts the recording of touched keys; until then it costs nothing.
        """
        return None if keeps_state(self) else []

    @property
    def copies(self) -> DeferredCopies | None:
        """Defers the copying of values for snapshots; None: snapshots copy all values at once."""
        return None

    def close(self) -> None:
        """Called after the last event, even after an error; runs the author's `teardown`."""


class AwaitingOperator(Operator):
    """An operator with results that arrive beside the stream, from calls of the author's function in other threads.

    A runner with a loop passes `Context.wake`. When it has been woken and `has_results` is true, it calls `on_results`
    and then propagates watermarks, until `has_results` is false. It feeds no blocks to a `blocked` operator: in the
    middle of an event, the operator yields empty blocks while it is blocked, and the runner suspends the iterator until
    there are results. As long as calls are `pending`, the step's outputs neither end nor become idle.
    """

    @property
    def pending(self) -> bool:
        """Whether any element that was received has not been emitted yet."""
        raise NotImplementedError

    @property
    def blocked(self) -> bool:
        """Whether elements wait until there is room for another call."""
        raise NotImplementedError

    @property
    def has_results(self) -> bool:
        """Whether `on_results` has something to do now."""
        raise NotImplementedError

    def on_results(self) -> Iterator[Emitted]:
        """Emit the results that have arrived, up to the next watermark."""
        raise NotImplementedError


class Wakeups(NamedTuple):
    """When a key has work to do again: the watermark (`event`) and the processing time (`clock`, µs) at which its first
    timer, window end or trigger fires (NEVER: none does), and the key's watermark hold (MAX_MICROS: none)."""

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
    """Whether the operator is stateful: it defines `snapshot`."""
    return type(operator).snapshot is not Operator.snapshot

"""A step with side inputs: main elements are buffered until the side windows that they see are ready.

While a side window is not ready, the main elements that see it are buffered by main window, as state of the step, and
hold the watermark; elements of other windows are processed. With bounded input, the side inputs have ended before the
first main element arrives, so no element is ever buffered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from tidegate.runners.engine.memory.gauge import SAMPLE, mean_size
from tidegate.runners.engine.memory.spill_file import SpillFile, new_file
from tidegate.runners.engine.operator import Context, DeferredCopies, Emitted, Operator
from tidegate.runners.engine.side_inputs.view import SideView
from tidegate.runners.engine.state.keyed_state import Touched
from tidegate.sdk.data.block import Block, Each, PanesColumn, Same, TimestampsColumn, take_panes, take_timestamps
from tidegate.sdk.portable.model import KeyOf
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS
from tidegate.sdk.user_code.redefined_classes import dumps
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, window_end, window_order

Columns: TypeAlias = tuple[list[Any], TimestampsColumn, PanesColumn]
"""Values, timestamps and panes of elements of one window."""

Waits: TypeAlias = tuple[Any, int, list[Columns]]
"""A window, the timestamp (µs) at which its buffered elements hold the watermark, and these elements."""

Status: TypeAlias = Literal["ready", "wait", "late"]

_WAITING: Final = "waiting"


@dataclass(frozen=True, slots=True)
class Part:
    """Names a part of a step's state that is not divided by key, in a collection of touched keys."""

    name: str


@dataclass(slots=True)
class SidesSnapshot:
    """State of a step with side inputs, as plain data; `inner` is that of the step itself. Times are µs.

    `key` says where the key of a buffered element is; None: the input has no keys. In an incremental snapshot,
    `waiting` is None and side inputs are missing if they have not changed.
    """

    waiting: list[Waits] | None
    key: KeyOf | None
    sides: dict[str, Any]
    side_watermarks: dict[str, int]
    watermark: int
    inner_watermark: int
    inner: Any


class SideInputOperator(Operator):
    """Passes main elements to `inner` once the side inputs of their window are ready.

    `process` receives the blocks of a side input under `side_id(label, number)` as their collection, whatever
    collections feed it, and `on_side_watermark` their minimum watermark; `on_watermark` is for the main input alone.
    Any event may release buffered elements, whose results its iterator yields, and may change `hold`. `finish` is
    called once all inputs have ended.

    `lateness` (µs) is the main input's. `set_window` is called with the main window before each block, which then has
    only one: for a combiner whose arguments differ by window. `key` says where a main element's key is, if it has one.
    """

    def __init__(
        self,
        inner: Operator,
        sides: Sequence[SideView],
        context: Context,
        *,
        step: str,
        lateness: int,
        set_window: Callable[[Any], None] | None = None,
        key: KeyOf | None = None,
    ) -> None:
        self.inner = inner
        self.sides = {side.id: side for side in sides}
        self.context = context
        self._step = step
        self._lateness = lateness
        self._set_window = set_window
        self._key = key
        self._waiting_changed = self._tracks_touched = False
        self._waiting = WaitingElements(max(1, context.memory_budget // 4), lambda: context.temp_dir())
        self._watermark = MIN_MICROS
        self._inner_watermark = MIN_MICROS
        self._main = ""

    def open(self) -> None:
        for side in self.sides.values():
            side.grouping.open()
        self.inner.open()

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        side = self.sides.get(collection)
        if side is None:
            yield from self._process_main(block, collection)
        else:
            side.process(block)
            yield from self._release()

    def finish_bundle(self) -> Iterator[Emitted]:
        return self.inner.finish_bundle()

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        self._watermark = max(self._watermark, micros)
        yield from self._advance()
        self._collect()

    def on_idle(self) -> None:
        self.inner.on_idle()

    def on_side_watermark(self, collection: str, micros: int) -> Iterator[Emitted]:
        """The watermark of the side input of that id (`side_id`) has advanced to `micros`."""
        self.sides[collection].on_watermark(micros)
        yield from self._release()
        self._collect()

    def on_clock(self, micros: int) -> Iterator[Emitted]:
        for side in self.sides.values():
            side.on_clock(micros)
        yield from self._release()
        yield from self.inner.finish_bundle()
        yield from self.inner.on_clock(micros)

    @property
    def paused(self) -> bool:
        return self.inner.paused

    def next_clock(self) -> int | None:
        clocks = [self.inner.next_clock(), *(side.grouping.next_clock() for side in self.sides.values())]
        return min((at for at in clocks if at is not None), default=None)

    def hold(self) -> int:
        return min(self.inner.hold(), self._waiting.hold())

    def under_way(self) -> int:
        return min(self.inner.under_way(), self._waiting.hold())

    def finish(self) -> Iterator[Emitted]:
        for side in self.sides:
            yield from self.on_side_watermark(side, MAX_MICROS)
        if self._watermark < MAX_MICROS:
            yield from self.inner.finish_bundle()
            yield from self.on_watermark(MAX_MICROS)
        yield from self.inner.finish()

    def snapshot(self, keys: Collection[Any] | None = None) -> SidesSnapshot:
        of_inner = None if keys is None else [key for key in keys if type(key) is not Part]
        return SidesSnapshot(
            self._waiting.snapshot() if keys is None or Part(_WAITING) in keys else None,
            self._key,
            {id: side.snapshot() for id, side in self.sides.items() if keys is None or Part(id) in keys},
            {id: side.watermark for id, side in self.sides.items()},
            self._watermark,
            self._inner_watermark,
            self.inner.snapshot(of_inner),
        )

    def touched(self) -> Touched | None:
        """The keys that the inner operator has touched, and the changed parts of the state that is not by key."""
        inner = self.inner.touched()
        parts = [Part(id) for id, side in self.sides.items() if side.take_changed()]
        if self._waiting_changed:
            parts.append(Part(_WAITING))
        tracked, self._waiting_changed, self._tracks_touched = self._tracks_touched, False, True
        return [*inner, parts] if tracked and inner is not None else None

    @property
    def copies(self) -> DeferredCopies | None:
        return self.inner.copies

    def restore(self, state: SidesSnapshot) -> None:
        assert state.waiting is not None, "an incremental snapshot is first laid over the full one"
        self._waiting.restore(state.waiting)
        for id, side in self.sides.items():
            side.restore(state.sides[id], state.side_watermarks[id])
        self._watermark, self._inner_watermark = state.watermark, state.inner_watermark
        if state.inner is not None:
            self.inner.restore(state.inner)

    def close(self) -> None:
        try:
            self.inner.close()
        finally:
            for side in self.sides.values():
                side.grouping.close()

    # -- main elements

    def _process_main(self, block: Block, collection: str) -> Iterator[Emitted]:
        self._main = collection
        if self._set_window is None and self._all_ready():
            yield from self.inner.process(block, collection)
            return
        windows = block.windows
        if isinstance(windows, Same):
            if self._set_window is None and all(self._status(window) == "ready" for window in windows.windows):
                yield from self.inner.process(block, collection)
                return
        yield from self._process_by_status(block, collection)

    def _all_ready(self) -> bool:
        """Whether elements of any window are ready."""
        return all(
            side.ready(GLOBAL_WINDOW)
            if side.is_global
            else side.watermark == MAX_MICROS and self._inner_watermark == MIN_MICROS
            for side in self.sides.values()
        )

    def _status(self, window: Any) -> Status:
        """Whether elements of a main window are ready, must wait, or are late because a side window has expired."""
        status: Status = "ready"
        for side in self.sides.values():
            side_window = side.window_of(window)
            if self._expired(side, side_window):
                return "late"
            if not side.ready(side_window):
                status = "wait"
        return status

    def _process_by_status(self, block: Block, collection: str) -> Iterator[Emitted]:
        """Process, buffer or drop each element in each of its windows."""
        statuses: dict[Any, Status] = {}
        ready: list[int] = []
        ready_windows: list[tuple[Any, ...]] = []
        by_window: dict[Any, list[int]] = {}
        waiting: dict[Any, list[int]] = {}
        dropped = 0
        for i, windows in enumerate(block.window_list()):
            element_windows: list[Any] = []
            late = 0
            for window in windows:
                status = statuses.get(window)
                if status is None:
                    status = statuses[window] = self._status(window)
                if status == "late":
                    late += 1
                elif status == "wait":
                    waiting.setdefault(window, []).append(i)
                elif self._set_window is not None:
                    by_window.setdefault(window, []).append(i)
                else:
                    element_windows.append(window)
            if element_windows:
                ready.append(i)
                ready_windows.append(tuple(element_windows))
            dropped += late > 0 and late == len(windows)
        self.context.count(self._step, "dropped_late", dropped)
        if ready:
            values, timestamps, panes = _columns(block, ready)
            yield from self.inner.process(Block(values, timestamps, Each(ready_windows), panes), collection)
        for window, index in by_window.items():
            values, timestamps, panes = _columns(block, index)
            yield from self._run(Block(values, timestamps, Same((window,)), panes), window)
        self._waiting_changed = self._waiting_changed or bool(waiting)
        for window, index in waiting.items():
            columns = _columns(block, index)
            self._waiting.add(window, columns, self._hold_of(window, columns))

    def _hold_of(self, window: Any, columns: Columns) -> int:
        """The timestamp at which buffered elements hold the watermark: their own, or, if that is behind the watermark
        already, the last instant before their window expires.
        """
        timestamps = columns[1]
        before_expiry = min(window_end(window) + self._lateness, MAX_MICROS) - 1
        times = [timestamps] if isinstance(timestamps, int) else timestamps
        return min(t if t >= self._inner_watermark else max(t, before_expiry) for t in times)

    def _run(self, block: Block, window: Any) -> Iterator[Emitted]:
        if self._set_window is not None:
            self._set_window(window)
        return self.inner.process(block, self._main)

    # -- releasing elements and advancing the watermark

    def _release(self) -> Iterator[Emitted]:
        """Process the buffered elements that need not wait any more, windows by (end, start), and advance the watermark
        that they held."""
        ready = [window for window in self._waiting if self._status(window) != "wait"]
        self._waiting_changed = self._waiting_changed or bool(ready)
        for window in sorted(ready, key=window_order):
            for block in self._waiting.take(window):
                yield from self._run(block, window)
        if ready and min(self._watermark, self._waiting.hold()) > self._inner_watermark:
            yield from self.inner.finish_bundle()
            yield from self._advance()

    def _advance(self) -> Iterator[Emitted]:
        to = min(self._watermark, self._waiting.hold())
        if to > self._inner_watermark or self.inner.paused:
            self._inner_watermark = to
            yield from self.inner.on_watermark(to)

    def _expired(self, side: SideView, side_window: Any) -> bool:
        """Whether a side window and every main window that sees it have expired.

        Buffered elements hold the inner watermark, so the side windows that they see have not expired.
        """
        if not side.expired(side_window):
            return False
        return self._inner_watermark >= min(window_end(side_window) + self._lateness, MAX_MICROS)

    def _collect(self) -> None:
        """Drop the side windows that no main window sees any more. At the end of input all are kept, for `finish`."""
        if MIN_MICROS < self._inner_watermark < MAX_MICROS:
            for side in self.sides.values():
                side.collect(partial(self._expired, side))


def _columns(block: Block, index: list[int]) -> Columns:
    return (
        [block.values[i] for i in index],
        take_timestamps(block.timestamps, index),
        take_panes(block.panes, index),
    )


# -- buffered elements


@dataclass(slots=True)
class _Queue:
    """The buffered elements of one window: the older ones on disk, the newer ones in memory."""

    hold: int
    blocks: list[Columns] = field(default_factory=list)
    bytes: int = 0
    file: SpillFile | None = None

    def columns(self) -> Iterator[Columns]:
        if self.file is not None:
            import pickle

            with self.file.reader() as file:
                while file.tell() < self.file.size:
                    yield pickle.load(file)
        yield from self.blocks

    def spill(self, directory: Callable[[], Path]) -> None:
        if self.file is None:
            self.file = SpillFile(new_file(directory, "waiting"))
        self.file.append(dumps(columns) for columns in self.blocks)
        self.blocks, self.bytes = [], 0


class WaitingElements:
    """The buffered elements of a step. At most `budget` bytes of them are in memory, the others on disk."""

    def __init__(self, budget: int, directory: Callable[[], Path]) -> None:
        self._budget = budget
        self._directory = directory
        self._queues: dict[Any, _Queue] = {}
        self._bytes = 0

    def __len__(self) -> int:
        """The number of windows with buffered elements."""
        return len(self._queues)

    def __iter__(self) -> Iterator[Any]:
        """The windows with buffered elements."""
        return iter(self._queues)

    def add(self, window: Any, columns: Columns, hold: int) -> None:
        """Buffer elements of a window, which hold the watermark at `hold` (µs)."""
        queue = self._queues.get(window)
        if queue is None:
            queue = self._queues[window] = _Queue(hold)
        queue.hold = min(queue.hold, hold)
        queue.blocks.append(columns)
        values = columns[0]
        size = len(values) * (mean_size(values[:SAMPLE]) + 16)
        queue.bytes += size
        self._bytes += size
        while self._bytes > self._budget:
            largest = max(self._queues.values(), key=lambda queue: queue.bytes)
            self._bytes -= largest.bytes
            largest.spill(self._directory)

    def hold(self) -> int:
        """The timestamp at which the watermark is held; MAX_MICROS if no element is buffered."""
        return min((queue.hold for queue in self._queues.values()), default=MAX_MICROS)

    def take(self, window: Any) -> Iterator[Block]:
        """Remove and return the buffered elements of a window."""
        queue = self._queues.pop(window)
        self._bytes -= queue.bytes
        for values, timestamps, panes in queue.columns():
            yield Block(values, timestamps, Same((window,)), panes)
        if queue.file is not None:
            queue.file.remove()

    def snapshot(self) -> list[Waits]:
        """(window, hold, columns) for each window."""
        return [(window, queue.hold, list(queue.columns())) for window, queue in self._queues.items()]

    def restore(self, waiting: list[Waits]) -> None:
        """Load what `snapshot` returned."""
        for window, hold, blocks in waiting:
            for columns in blocks:
                self.add(window, columns, hold)

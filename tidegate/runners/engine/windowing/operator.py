"""The window operator: any assigner, trigger, evictor, accumulation and lateness (SEMANTICS, Windows to Combining).

State is window-major: per window a table of cells by key. An event is an element, a watermark advance or a clock
advance; it looks at the cells it concerns, windows by (end, start) and keys by first arrival, each once. Windows are
woken by two queues of instants for the whole operator, so that neither clock ever walks over what has nothing to do.
Windows that merge are in `merging`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import repeat
from typing import Any, Final

from tidegate.runners.engine.errors.attribution import UserCall, rethrow, user_error
from tidegate.runners.engine.grouping.base import GroupedByKey
from tidegate.runners.engine.grouping.batch_table import ONLY_PANE
from tidegate.runners.engine.operator import NEVER, Context, Emitted, KeyedOperator, Wakeups
from tidegate.runners.engine.state.keyed_state import CELLS, KeyedState, Tables, Touched, TouchedKeys, first_of, of_keys
from tidegate.runners.engine.triggers.base import DUE, FAR, ON_TIME, TriggerContext, copied
from tidegate.runners.engine.triggers.factory import trigger_state_machine
from tidegate.runners.engine.windowing.pane_state import (
    CLOSED,
    ActiveWindow,
    Opened,
    Output,
    PaneState,
    early_pane,
    retire,
    settled_pane,
)
from tidegate.runners.engine.windowing.watermark_holds import WatermarkHolds
from tidegate.runners.engine.windowing.window_wakeups import WindowWakeups
from tidegate.runners.plan import Phase
from tidegate.sdk.authoring.combine import NOTHING
from tidegate.sdk.data.block import Block, DerivedFrom, Each, Same
from tidegate.sdk.data.keys import check_key
from tidegate.sdk.metrics import in_step
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.assigners import GLOBAL_BOUNDS, GlobalWindows
from tidegate.sdk.windowing.assignment import assign_bounds, single_window
from tidegate.sdk.windowing.strategy import TimestampCombiner, WindowingStrategy
from tidegate.sdk.windowing.triggers import AfterProcessingTime, EveryEventTime, EveryProcessingTime, Trigger, parts_of
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, IntervalWindow, window_end

_EARLIEST: Final = 1
_LATEST: Final = 2


class WindowOperator(GroupedByKey, KeyedOperator):
    """Groups or combines per key and window as a trigger says.

    `late` is the collection for elements that every window refused as late; None: they are counted (`dropped_late`).
    A runner that has a processing-time clock calls `on_clock` before the first block; without that, triggers on
    processing time stay silent, as they must on bounded input.
    """

    def __init__(
        self,
        node: GroupByKey | CombinePerKey,
        phase: Phase,
        strategy: WindowingStrategy,
        context: Context,
        main: str,
        late: str | None = None,
    ) -> None:
        super().__init__(node, phase, strategy, context, main)
        self._shown = self.accumulation.untag
        # A combiner whose arguments are side inputs is told for which window it works.
        self._point: Callable[[Any], None] | None = getattr(self.combiner, "point", None)
        self.machine = trigger_state_machine(strategy.trigger)
        self.now = TriggerContext()
        self.lateness = strategy.allowed_lateness.micros
        self.windows: dict[Any, ActiveWindow] = {}
        self.events: WindowWakeups[ActiveWindow] = WindowWakeups()
        self.clocks: WindowWakeups[ActiveWindow] = WindowWakeups()
        self.out = Output(main)
        self._late = Output(late) if late is not None else None
        self._counts_late = node.late_tag is None
        self._by_event_time = _has(strategy.trigger, EveryEventTime)
        self._by_clock = _has(strategy.trigger, AfterProcessingTime, EveryProcessingTime)
        self._default = isinstance(node, CombinePerKey) and node.default and phase != "parts"
        self._any = False
        self._arrivals = 0
        self._by_start: dict[int, Opened] = {}
        self._first_wake: int | None = None
        self.holds = WatermarkHolds()
        self._touches = TouchedKeys()
        match strategy.timestamp_combiner:
            case TimestampCombiner.END_OF_WINDOW:
                self.stamps = 0
            case TimestampCombiner.EARLIEST:
                self.stamps = _EARLIEST
            case TimestampCombiner.LATEST:
                self.stamps = _LATEST

    # -- events

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        if not len(block):
            return
        self.exchange_check.check(block)
        yield from self._within(self.take_in(self.pairs(block), block))
        if self._touches.on:
            self._touches.note(self.keys_of(block))
        yield from self._flush()

    def take_in(self, pairs: Iterable[Any], block: Block) -> Iterator[Emitted]:
        """Every element into the cells of its windows; `pairs` are the elements as (key, what is grouped)."""
        accumulates = self.accumulation.kind == "accumulator"
        buffers = self.accumulation.kind == "buffer"
        add = self.accumulation.add
        stamps, watermark, size = self.stamps, self.now.watermark, self.context.block_size
        panes = self.out.panes
        closed = 0
        element: Any = None
        k: Any = NOTHING
        try:
            for element, t, opened in zip(pairs, block.timestamp_column(), self._opened(block), strict=False):
                k = NOTHING
                k, x = element
                if not opened:
                    if opened is None:
                        self.refuse(element, t)
                    continue
                for window in opened:
                    cell = window.cells.get(k)
                    if cell is None:
                        cell = self._new(window, k)
                    elif cell is CLOSED:
                        closed += 1
                        continue
                    cell.unfired = fresh = cell.unfired + 1
                    if accumulates:
                        cell.held = add(cell.held, x)
                    elif buffers:
                        self.buffer(cell, x, t)
                    else:
                        cell.held.append(x)
                    if stamps and t >= watermark:
                        self.stamp(window, cell, t)
                    if fresh >= cell.wake:
                        self.consult(window, k, cell, x)
                        if len(panes) >= size:
                            yield self._full()
        except Exception as error:
            rethrow(self._blamed(error, element, k))
        self.context.count(self.label, "dropped_closed", closed)

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        now = self.now
        if micros <= now.watermark:
            return
        now.watermark = micros
        woken = self.events.passed(micros)
        for window in sorted(woken, key=ActiveWindow.order):
            if not window.alive:
                continue
            now.end = window.end
            if micros >= window.expiry:
                yield from self._within(self._expire(window))
            else:
                keys = woken[window]
                yield from self._within(self._look(window, keys, by_watermark=True))
                if keys is None:
                    self._wake_at_end(window)
        if micros == MAX_MICROS and self._default and not self._any:
            self._any = True
            self._add_default()
        yield from self._flush()

    def on_clock(self, micros: int) -> Iterator[Emitted]:
        now = self.now
        if now.clock is None:
            self._first_wake = None
        now.clock = micros if now.clock is None else max(micros, now.clock)
        woken = self.clocks.passed(now.clock)
        for window in sorted(woken, key=ActiveWindow.order):
            if window.alive:
                now.end = window.end
                yield from self._within(self._look(window, woken[window], by_watermark=False))
        yield from self._flush()

    def next_clock(self) -> int | None:
        return self.clocks.next()

    def finish(self) -> Iterator[Emitted]:
        yield from self.on_watermark(MAX_MICROS)

    def finish_bundle(self) -> Iterator[Emitted]:
        """Parts leave before any snapshot: a key's may be in several tasks."""
        if self.accumulation.phase == "parts":
            for window in sorted(self._opens(), key=ActiveWindow.order):
                self.now.end = window.end
                yield from self._within(self._expire(window))
            yield from self._flush()

    def _opens(self) -> Iterable[ActiveWindow]:
        """All windows that have not expired."""
        return self.windows.values()

    # -- windows and cells

    def _opened(self, block: Block) -> Iterator[Opened]:
        """The windows of each element of a block, as far as they have not expired."""
        match block.windows:
            case Same(windows):
                return repeat(self._live(windows))
            case DerivedFrom(GlobalWindows()):
                return repeat(self._live((GLOBAL_WINDOW,)))
            case DerivedFrom(assigner) if (bounds := single_window(assigner)) is not None:
                return self._by_bounds(bounds, block)
            case DerivedFrom(assigner):
                return self._by_windows(map(assign_bounds(assigner), block.timestamp_column()), _of_bounds)
            case Each(windows):
                return self._by_windows(windows, _itself)

    def _by_bounds(self, bounds: Any, block: Block) -> Iterator[Opened]:
        low = high = 0
        opened: Opened = None
        known = self._by_start
        for t in block.timestamp_column():
            if not low <= t < high:
                low, high = bounds(t)
                opened = known.get(low)
                if opened is None:
                    opened = self._live((IntervalWindow.of_micros(low, high),))
                    if opened is not None:
                        known[low] = opened
            yield opened

    def _by_windows(self, column: Iterable[Any], objects: Callable[[Any], tuple[Any, ...]]) -> Iterator[Opened]:
        """Elements that follow one another are mostly in the same windows: the column has the same tuple for them."""
        last: Any = None
        opened: Opened = None
        for windows in column:
            if windows is not last:
                last, opened = windows, self._live(objects(windows))
            yield opened

    def _live(self, windows: tuple[Any, ...]) -> Opened:
        try:
            opened = tuple([window for window in map(self.window, windows) if window is not None])
        except Exception as error:
            # Not the element in hand raised, but the window of the next.
            rethrow(user_error(error, step=self.label, where=self.node.where, method="a window's methods"))
        return opened if opened or not windows else None

    def window(self, window: Any) -> ActiveWindow | None:
        """The table of a window; None if it has expired."""
        found = self.windows.get(window)
        if found is None:
            end = window_end(window)
            if self.now.watermark >= min(end + self.lateness, MAX_MICROS):
                return None
            start = window.start_micros if type(window) is IntervalWindow else 0
            found = self.windows[window] = ActiveWindow(window, start, end, self.lateness, self.now.watermark)
            self._wake_at_end(found)
            self._any = True
        return found

    def _wake_at_end(self, window: ActiveWindow) -> None:
        """Be woken when the window ends; when it has, when it expires."""
        self.events.set_all(window.expiry if window.ended else window.end, window)

    def _new(self, window: ActiveWindow, k: Any) -> PaneState:
        if self.context.checks is not None:
            check_key(k)
        cell = PaneState(self._arrivals, self._held(), self.machine.start(False))
        self._arrivals += 1
        if window.ended:
            cell.wake = 1
        else:
            if self._first_wake is None:
                self.now.end, self.now.pane = window.end, 0
                self._first_wake = 1 + self.machine.elements_until_recheck(cell.state, self.now)
            cell.wake = self._first_wake
        window.cells[k] = cell
        return cell

    def _held(self) -> Any:
        try:
            return self.accumulation.new()
        except Exception as error:
            raise UserCall(self.method_name("create_accumulator")) from error

    def buffer(self, cell: PaneState, x: Any, t: int) -> None:
        """Put an element where evictors will find it."""
        held = cell.held
        held.values.append(x)
        held.times.append(t)
        held.arrivals.append(self._arrivals)
        self._arrivals += 1

    def stamp(self, window: ActiveWindow, cell: PaneState, t: int) -> None:
        """An element that is not behind the watermark has a say in its pane's timestamp."""
        before = cell.stamp
        if before is None or (t < before if self.stamps == _EARLIEST else t > before):
            cell.stamp = t
            if t < cell.heaped:
                self.holds.add(window, cell, t)

    def hold(self) -> int:
        return self.holds.least()

    # -- the trigger

    def consult(self, window: ActiveWindow, k: Any, cell: PaneState, x: Any) -> None:
        """Tell the trigger what has arrived, `x` the last, and fire if it is due."""
        now, machine = self.now, self.machine
        if self._shown is not None and x is not None:
            x = self._shown(x)
        now.end = window.end
        now.pane = cell.unfired
        if cell.unfired > cell.synced:
            machine.on_elements(cell.state, cell.unfired - cell.synced, x, now)
        due = machine.should_fire(cell.state, now)
        if due and self._fire(window, k, cell, due, by_watermark=False):
            return
        self._reschedule(window, k, cell)

    def _look(self, window: ActiveWindow, keys: dict[Any, None] | None, *, by_watermark: bool) -> Iterator[Emitted]:
        """A clock has moved: ask the triggers of a window's keys."""
        now, machine = self.now, self.machine
        ends = not window.ended and now.watermark >= window.end
        window.ended = window.ended or ends
        entries = self._entries(window, keys)
        if self._touches.on:
            self._touches.note([k for k, _ in entries])
        for k, cell in entries:
            if by_watermark:
                cell.event_alarm = FAR
            else:
                cell.clock_alarm = FAR
            try:
                now.pane = cell.unfired
                if cell.unfired > cell.synced:
                    machine.on_elements(cell.state, cell.unfired - cell.synced, None, now)
                due = machine.should_fire(cell.state, now)
                if due and self._fire(window, k, cell, due, by_watermark=by_watermark):
                    continue
            except Exception as error:
                rethrow(self._blamed(error, NOTHING, k))
            if ends and cell.unfired:
                cell.holding = True
                self.holds.add(window, cell, window.last if cell.stamp is None else cell.stamp)
            self._reschedule(window, k, cell)
            if len(self.out.panes) >= self.context.block_size:
                yield self._full()

    def _reschedule(self, window: ActiveWindow, k: Any, cell: PaneState) -> None:
        """After an event: when the trigger must be asked again."""
        now, machine = self.now, self.machine
        now.pane = cell.synced = cell.unfired
        cell.wake = cell.unfired + 1 + machine.elements_until_recheck(cell.state, now)
        if self._by_clock:
            at = machine.clock_time(cell.state)
            if at < cell.clock_alarm:
                cell.clock_alarm = at
                self.clocks.set(at, window, k)
        if self._by_event_time:
            at = machine.event_time(cell.state)
            if at < cell.event_alarm:
                cell.event_alarm = at
                self.events.set(at, window, k)

    def _entries(self, window: ActiveWindow, keys: dict[Any, None] | None) -> list[tuple[Any, PaneState]]:
        """The cells of these keys (None: of all) that are not closed, keys by first arrival."""
        if keys is None:
            return [entry for entry in window.cells.items() if entry[1] is not CLOSED]
        cells = window.cells
        found = [(k, cells[k]) for k in keys if k in cells and cells[k] is not CLOSED]
        found.sort(key=_by_birth)
        return found

    def _fire(self, window: ActiveWindow, k: Any, cell: PaneState, due: int, *, by_watermark: bool) -> bool:
        """Emit a pane: whether the trigger has finished, which closes the window for this key."""
        finished = self.machine.on_fire(cell.state, self.now)
        self._emit(window, k, cell, due, by_watermark=by_watermark, last=finished)
        if finished:
            window.cells[k] = CLOSED
        return finished

    def _expire(self, window: ActiveWindow) -> Iterator[Emitted]:
        """The window's last pane, for what has arrived since the one before, and the end of its state."""
        machine, now = self.machine, self.now
        emits = self.strategy.partial == "emit"
        for k, cell in self._entries(window, None):
            try:
                due = DUE
                if not (emits and cell.unfired):
                    now.pane = cell.unfired
                    if cell.unfired > cell.synced:
                        machine.on_elements(cell.state, cell.unfired - cell.synced, None, now)
                    due = machine.should_fire(cell.state, now)
                if due:
                    self._emit(window, k, cell, due, by_watermark=True, last=True)
            except Exception as error:
                rethrow(self._blamed(error, NOTHING, k))
            if len(self.out.panes) >= self.context.block_size:
                yield self._full()
        self.forget(window)

    def forget(self, window: ActiveWindow) -> None:
        """Drop a window that has expired, and all its cells."""
        window.alive = False
        window.cells = {}
        del self.windows[window.window]
        self._by_start.pop(window.start, None)

    def _emit(self, window: ActiveWindow, k: Any, cell: PaneState, due: int, *, by_watermark: bool, last: bool) -> None:
        if cell.unfired or (due == ON_TIME and cell.index and not cell.settled):
            if self._point is not None:
                self._point(window.object())
            value = self._taken(cell)
            if value is not NOTHING:
                if self.now.watermark < window.end:
                    pane = early_pane(cell.index, last)
                else:
                    pane = settled_pane(by_watermark and not cell.settled, cell.index, cell.settled, last)
                    cell.settled += 1
                cell.index += 1
                timestamp = window.last if cell.stamp is None else cell.stamp
                self.out.add(value if self.key == "none" else (k, value), timestamp, window.object(), pane)
        cell.unfired = cell.synced = 0
        cell.stamp = None
        cell.holding = False

    def _taken(self, cell: PaneState) -> Any:
        try:
            value, cell.held = self.accumulation.fire(cell.held, cell.unfired)
        except UserCall:
            raise
        except Exception as error:
            raise UserCall(self.method_name("extract_output")) from error
        return value

    def _add_default(self) -> None:
        """The result of no input, of a global combine over bounded data."""
        try:
            assert self.combiner is not None
            value = self.combiner.extract_output(self.combiner.create_accumulator())
        except Exception as error:
            rethrow(self._blamed(error, NOTHING, NOTHING))
        self.out.add(value, MAX_MICROS - 1, GLOBAL_WINDOW, ONLY_PANE)

    # -- what goes in and out

    def refuse(self, element: Any, t: int) -> None:
        """All windows of the element have expired."""
        if self._counts_late:
            self.context.count(self.label, "dropped_late")
        elif self._late is not None:
            self._late.add(element if self.key == "first" else element[1], t, GLOBAL_WINDOW, None)

    def _within(self, blocks: Iterator[Emitted]) -> Iterator[Emitted]:
        """The same, where what the author's code counts belongs to this step."""
        while True:
            with in_step(self.label):
                block = next(blocks, None)
            if block is None:
                return
            yield block

    def _full(self) -> Emitted:
        self.context.count(self.label, "elements_out", len(self.out.panes))
        return self.out.block()

    def _flush(self) -> Iterator[Emitted]:
        if self.out.panes:
            yield self._full()
        if self._late is not None and self._late.panes:
            yield self._late.block()

    def _blamed(self, error: BaseException, element: Any, k: Any) -> BaseException:
        """The error for the author: which function raised, on which element and key."""
        if isinstance(error, UserCall) and error.__cause__ is not None:
            return self.with_context(error.__cause__, element, k, str(error))
        method = "merge_accumulators" if self.accumulation.phase == "merge" else "add_input"
        return self.attributed(error, element, k, self.method_name(method))

    # -- state by key

    def keys_of(self, block: Block) -> Iterable[Any]:
        return map(first_of, self.pairs(block))

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        return KeyedState(
            {CELLS: self._cells(keys)},
            self.now.watermark,
            self.now.clock,
            {"arrivals": self._arrivals},
            self._any,
            keys,
            None if keys is None else list(self.windows),
        )

    def restore(self, state: KeyedState) -> None:
        self.now.watermark = state.watermark
        self.now.clock = state.clock
        self._arrivals = max(self._arrivals, state.serials["arrivals"])
        self._any = self._any or state.any
        for window, cells in state.tables[CELLS].items():
            opened = self.window(window)
            assert opened is not None
            for k, saved in cells.items():
                opened.cells[k] = CLOSED if saved is None else self._loaded(opened, k, saved)

    def touched(self) -> Touched | None:
        return self._touches.take()

    def evict(self, keys: Collection[Any]) -> None:
        for window in list(self.windows.values()):
            for k in keys:
                retire(window.cells.pop(k, CLOSED))
            if not window.cells:
                self.forget(window)

    def wakeups(self, state: KeyedState) -> dict[Any, Wakeups]:
        found: dict[Any, Wakeups] = {}
        for window, k, saved in self._saved_cells(state):
            at = self._instants(window_end(window), saved)
            before = found.get(k)
            found[k] = at if before is None else Wakeups(*map(min, at, before))
        return found

    def _cells(self, keys: Collection[Any] | None) -> Tables:
        """Every cell, or those of these keys, as plain data."""
        return {window.object(): of_keys(window.cells, keys, self._saved) for window in self.windows.values()}

    def _saved_cells(self, state: KeyedState) -> Iterator[tuple[Any, Any, Any]]:
        """(window, key, cell) of all that is in a snapshot."""
        for window, cells in state.tables[CELLS].items():
            for k, saved in cells.items():
                yield window, k, saved

    def _instants(self, end: int, saved: Any) -> Wakeups:
        """When a cell is due: at its window's end, or expiry, and whenever its trigger may be."""
        expiry = min(end + self.lateness, MAX_MICROS)
        event = expiry if self.now.watermark >= end else end
        if saved is None:
            return Wakeups(event, NEVER, MAX_MICROS)
        _, _, state, _, stamp, holding = saved
        hold = stamp if stamp is not None else end - 1 if holding else MAX_MICROS
        event = min(event, self.machine.event_time(state)) if self._by_event_time else event
        clock = self.machine.clock_time(state) if self._by_clock else NEVER
        return Wakeups(event, min(clock, NEVER), hold)

    def _saved(self, cell: PaneState) -> tuple[Any, ...] | None:
        if cell is CLOSED:
            return None
        return (
            cell.born,
            self.accumulation.copy(cell.held),
            copied(cell.state),
            (cell.unfired, cell.synced, cell.index, cell.settled),
            cell.stamp,
            cell.holding,
        )

    def _loaded(self, window: ActiveWindow, k: Any, saved: tuple[Any, ...]) -> PaneState:
        born, held, state, counts, stamp, holding = saved
        cell = PaneState(born, self.accumulation.copy(held), copied(state))
        fresh, synced, cell.index, cell.settled = counts
        cell.stamp, cell.holding = stamp, holding
        self.now.end = window.end
        # What the trigger has not been told yet it is told when next asked: `settle` is for what it knows.
        cell.unfired = synced
        self._reschedule(window, k, cell)
        cell.unfired = fresh
        if stamp is not None or holding:
            self.holds.add(window, cell, window.last if stamp is None else stamp)
        return cell


def _of_bounds(bounds: tuple[tuple[int, int], ...]) -> tuple[Any, ...]:
    if bounds == (GLOBAL_BOUNDS,):
        return (GLOBAL_WINDOW,)
    return tuple([IntervalWindow.of_micros(start, end) for start, end in bounds])


def _itself(windows: tuple[Any, ...]) -> tuple[Any, ...]:
    return windows


def _has(trigger: Trigger, *kinds: type) -> bool:
    return isinstance(trigger, kinds) or any(_has(part, *kinds) for part in parts_of(trigger))


def _by_birth(entry: tuple[Any, PaneState]) -> int:
    return entry[1].born

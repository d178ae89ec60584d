"""The life of a pane: elements enter or are dropped as late; it fires with its index and timing, and expires."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from tidegate.runners.engine.errors.attribution import UserCall, rethrow
from tidegate.runners.engine.grouping.accumulation import Buffer
from tidegate.runners.engine.grouping.base import GroupedByKey
from tidegate.runners.engine.operator import Emitted
from tidegate.runners.engine.state.copy_on_write import CHUNK, CopyOnWrite
from tidegate.runners.engine.state.keyed_state import TouchedKeys
from tidegate.runners.engine.triggers.base import FAR
from tidegate.runners.engine.windowing.pane_output import PaneOutput, early_pane, nonspeculative_pane
from tidegate.runners.engine.windowing.pane_state import CLOSED, ActiveWindow, PaneState
from tidegate.runners.engine.windowing.pane_trigger import Firing, PaneTrigger
from tidegate.runners.engine.windowing.watermark_holds import WatermarkHolds
from tidegate.sdk.authoring.combine import NOTHING
from tidegate.sdk.data.keys import check_key
from tidegate.sdk.windowing.strategy import TimestampCombiner
from tidegate.sdk.windowing.window import GLOBAL_WINDOW

_AT_EXPIRY: Final = Firing(even_if_empty=False, finished=True)


class Panes:
    """Fills, fires and expires the panes of a grouping, whatever windows they belong to.

    `late` is the collection for elements whose windows have all expired; None: these are counted (`dropped_late`).
    Errors in the author's code are raised unattributed where an element is at hand, for the caller to `attribute`.
    """

    def __init__(self, grouping: GroupedByKey, late: str | None, *, counts_late: bool) -> None:
        strategy = grouping.strategy
        self.grouping: Final = grouping
        self.accumulation: Final = grouping.accumulation
        self.trigger: Final = PaneTrigger(strategy.trigger)
        self.context: Final = self.trigger.context
        self.holds: Final = WatermarkHolds()
        self.output: Final = PaneOutput(grouping.main)
        self.touched: Final = TouchedKeys()
        self.copies: Final = CopyOnWrite()
        self.lateness: Final = strategy.allowed_lateness.micros
        self.arrivals = 0
        """The number of the next arrival: of a key in a window, or of a buffered element."""
        self.stamps: Final = strategy.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW
        """Whether elements decide a pane's timestamp."""
        self._earliest: Final = strategy.timestamp_combiner is TimestampCombiner.EARLIEST
        self._emits_at_expiry: Final = strategy.partial == "emit"
        self._late: Final = PaneOutput(late) if late is not None else None
        self._counts_late: Final = counts_late
        # A combiner whose arguments are side inputs has to know which window its results are for.
        self._set_main_window: Final[Callable[[Any], None] | None] = getattr(grouping.combiner, "set_main_window", None)

    # -- elements

    def open(self, window: ActiveWindow, k: Any, serial: int | None = None) -> PaneState:
        """An empty pane for a key that is new in a window."""
        if self.grouping.context.checks is not None:
            check_key(k)
        try:
            contents = self.accumulation.new()
        except Exception as error:
            raise UserCall(self.grouping.method_name("create_accumulator")) from error
        pane = self.trigger.start_pane(window, self.arrivals if serial is None else serial, contents)
        self.arrivals += 1
        window.panes[k] = pane
        return pane

    def add(self, window: ActiveWindow, k: Any, pane: PaneState, x: Any, t: int) -> None:
        """Add an element to a pane, and evaluate the trigger if it may fire."""
        pane.unfired += 1
        if self.accumulation.kind == "accumulator":
            pane.contents = self.accumulation.add(pane.contents, x)
        else:
            self.buffer(pane.contents, x, t)
        if self.stamps and t >= self.context.watermark:
            self.combine_timestamp(window, pane, t)
        if pane.unfired >= pane.recheck_at:
            self.evaluate(window, k, pane, x)

    def buffer(self, contents: Buffer, x: Any, t: int) -> None:
        """Add an element to contents that are a buffer."""
        contents.values.append(x)
        contents.times.append(t)
        contents.arrivals.append(self.arrivals)
        self.arrivals += 1

    def combine_timestamp(self, window: ActiveWindow, pane: PaneState, t: int) -> None:
        """Combine a pane's timestamp with that of an element that is not behind the watermark."""
        before = pane.timestamp
        if before is None or (t < before if self._earliest else t > before):
            pane.timestamp = t
            if t < pane.queued_hold:
                self.holds.add(window, pane)

    def combine_timestamps(self, panes: Iterable[PaneState]) -> int | None:
        """The timestamp of panes that become one."""
        timestamps = [pane.timestamp for pane in panes if pane.timestamp is not None]
        return (min if self._earliest else max)(timestamps, default=None)

    def refuse(self, element: Any, t: int) -> None:
        """Drop an element whose windows have all expired, or emit it as late data."""
        if self._counts_late:
            self.grouping.context.count(self.grouping.label, "dropped_late")
        elif self._late is not None:
            self._late.add(element if self.grouping.key == "first" else element[1], t, GLOBAL_WINDOW, None)

    # -- firings

    def evaluate(self, window: ActiveWindow, k: Any, pane: PaneState, x: Any = None) -> None:
        """Evaluate the trigger of one pane, whose latest element is `x`, and fire the pane if it is due."""
        if x is not None and self.accumulation.untag is not None:
            x = self.accumulation.untag(x)
        firing = self.trigger.advance(window, pane, x)
        if firing is None or not self._fire(window, k, pane, firing, by_watermark=False):
            self.trigger.schedule(window, k, pane)

    def evaluate_window(
        self, window: ActiveWindow, keys: Iterable[Any] | None, *, by_watermark: bool
    ) -> Iterator[Emitted]:
        """Evaluate the triggers of a window's keys (None: of all), because the watermark or the clock has advanced."""
        ends = not window.ended and self.context.watermark >= window.end
        window.ended = window.ended or ends
        entries = _open_panes(window, keys)
        if self.touched.on:
            self.touched.note([k for k, _ in entries])
        for k, pane in self._copied_first(entries):
            if by_watermark:
                pane.event_wakeup = FAR
            else:
                pane.clock_wakeup = FAR
            try:
                firing = self.trigger.advance(window, pane)
                if firing is not None and self._fire(window, k, pane, firing, by_watermark=by_watermark):
                    continue
            except Exception as error:
                rethrow(self.attribute(error, NOTHING, k))
            if ends and pane.unfired:
                pane.holds_end = True
                self.holds.add(window, pane)
            self.trigger.schedule(window, k, pane)
            if self.full:
                yield self.take_output()

    def expire(self, window: ActiveWindow) -> Iterator[Emitted]:
        """Emit each key's last pane: the elements that no firing has emitted, unless the strategy drops them."""
        for k, pane in self._copied_first(_open_panes(window, None)):
            try:
                emits = self._emits_at_expiry and pane.unfired
                firing = _AT_EXPIRY if emits else self.trigger.advance(window, pane)
                if firing is not None:
                    self._emit(window, k, pane, firing, by_watermark=True, last=True)
            except Exception as error:
                rethrow(self.attribute(error, NOTHING, k))
            if self.full:
                yield self.take_output()

    def _copied_first(self, entries: list[tuple[Any, PaneState]]) -> Iterable[tuple[Any, PaneState]]:
        """The same panes, whose state is copied for a snapshot that is being written before they change."""
        if not self.copies.active:
            return entries
        return self._copied_in_chunks(entries)

    def _copied_in_chunks(self, entries: list[tuple[Any, PaneState]]) -> Iterator[tuple[Any, PaneState]]:
        for start in range(0, len(entries), CHUNK):
            chunk = entries[start : start + CHUNK]
            self.copies.copy([k for k, _ in chunk])
            yield from chunk

    def _fire(self, window: ActiveWindow, k: Any, pane: PaneState, firing: Firing, *, by_watermark: bool) -> bool:
        """Emit a pane, and close it if its trigger has finished; return whether it has."""
        self._emit(window, k, pane, firing, by_watermark=by_watermark, last=firing.finished)
        if firing.finished:
            window.panes[k] = CLOSED
        return firing.finished

    def _emit(
        self, window: ActiveWindow, k: Any, pane: PaneState, firing: Firing, *, by_watermark: bool, last: bool
    ) -> None:
        if pane.unfired or (firing.even_if_empty and pane.index and not pane.nonspeculative):
            if self._set_main_window is not None:
                self._set_main_window(window.to_window())
            value = self._extract(pane)
            if value is not NOTHING:
                if self.context.watermark < window.end:
                    info = early_pane(pane.index, last)
                else:
                    on_time = by_watermark and not pane.nonspeculative
                    info = nonspeculative_pane(on_time, pane.index, pane.nonspeculative, last)
                    pane.nonspeculative += 1
                pane.index += 1
                timestamp = window.last if pane.timestamp is None else pane.timestamp
                result = value if self.grouping.key == "none" else (k, value)
                self.output.add(result, timestamp, window.to_window(), info)
        pane.reset()

    def _extract(self, pane: PaneState) -> Any:
        """The value of a pane, NOTHING if it has none; the pane keeps what its next firing starts from."""
        try:
            value, pane.contents = self.accumulation.fire(pane.contents, pane.unfired)
        except UserCall:
            raise
        except Exception as error:
            raise UserCall(self.grouping.method_name("extract_output")) from error
        return value

    # -- output

    @property
    def full(self) -> bool:
        """Whether a block of output is complete."""
        return len(self.output) >= self.grouping.context.block_size

    def take_output(self) -> Emitted:
        """The panes that have fired, as a block."""
        self.grouping.context.count(self.grouping.label, "elements_out", len(self.output))
        return self.output.take()

    def flush(self) -> Iterator[Emitted]:
        """All output, late data included."""
        if len(self.output):
            yield self.take_output()
        if self._late is not None and len(self._late):
            yield self._late.take()

    def attribute(self, error: BaseException, element: Any, k: Any) -> BaseException:
        """The error for the author: which function raised, and for which element and key."""
        grouping = self.grouping
        if isinstance(error, UserCall) and error.__cause__ is not None:
            return grouping.with_context(error.__cause__, element, k, str(error))
        method = "merge_accumulators" if self.accumulation.phase == "merge" else "add_input"
        return grouping.attributed(error, element, k, grouping.method_name(method))


def _open_panes(window: ActiveWindow, keys: Iterable[Any] | None) -> list[tuple[Any, PaneState]]:
    """The panes of these keys (None: of all) that are not closed, keys by first arrival."""
    panes = window.panes
    if keys is None:
        return [entry for entry in panes.items() if entry[1] is not CLOSED]
    found = [(k, panes[k]) for k in keys if k in panes and panes[k] is not CLOSED]
    found.sort(key=_serial)
    return found


def _serial(entry: tuple[Any, PaneState]) -> int:
    return entry[1].serial

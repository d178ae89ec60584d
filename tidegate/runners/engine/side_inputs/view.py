"""Side inputs: views of whole collections by window.

A side input is a grouping of its collection on one key. Each firing replaces the contents of its window, or adds to
them. A main element sees the side window that contains the last instant of its own window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.errors.attribution import located, rethrow, user_error
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.engine.windowing.operator import WindowOperator
from tidegate.runners.plan import side_id
from tidegate.sdk.authoring.combine import CombineFn, ListFn, WithArguments
from tidegate.sdk.data.block import Block, Same
from tidegate.sdk.errors import RunError, shorten
from tidegate.sdk.portable.model import MAIN, CombinePerKey, Output, ParDo, Pipeline, SideInputRef
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS
from tidegate.sdk.user_code.frames import Where
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.windowing.assigners import CustomAssigner, GlobalWindows, Merged
from tidegate.sdk.windowing.assignment import assign, assign_windows
from tidegate.sdk.windowing.strategy import DISCARDING, WindowingStrategy
from tidegate.sdk.windowing.triggers import AfterWatermark, DefaultTrigger
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, window_end, window_order

ViewOf: TypeAlias = Callable[[Any], Any]
"""From a main window to the argument that the author's function receives."""

_NONE: Final = object()


class SideView:
    """One side input: the contents of each of its windows, and which windows are ready.

    `grouping` is an operator that emits panes: blocks of lists, one per firing. `view(window)` is the argument for a
    main window; it raises RunError, naming the step, if the contents do not make such an argument.
    """

    def __init__(
        self, id: str, ref: SideInputRef, windowing: WindowingStrategy, grouping: Operator, step: str, where: Where
    ) -> None:
        self.id = id
        self.ref = ref
        self.grouping = grouping
        self.watermark = MIN_MICROS
        self._step = step
        self._where = where
        self._replaces = windowing.accumulation is not DISCARDING
        self._lateness = windowing.allowed_lateness.micros
        self.is_global = isinstance(windowing.assigner, GlobalWindows)
        """All main windows see the one global window."""
        self._window_at = _window_at(windowing)
        self._shown: dict[Any, list[Any]] = {}
        self._pending: dict[Any, None] = {}
        self._views: dict[Any, Any] = {}
        self._last: tuple[Any, Any] = (_NONE, None)
        self._changed = True

    # -- views

    def view(self, window: Any) -> Any:
        """The argument for elements of a main window."""
        last, value = self._last
        if window is last:
            return value
        side_window = self.window_of(window)
        value = self._views.get(side_window, _NONE)
        if value is _NONE:
            value = self._views[side_window] = self.argument(side_window)
        self._last = (window, value)
        return value

    def window_of(self, window: Any) -> Any:
        """The side window that a main window sees; None if no side window contains its last instant."""
        try:
            return self._window_at(window_end(window) - 1)
        except Exception as error:
            rethrow(user_error(error, step=self._step, where=self._where, method="the side input's window assigner"))

    def ready(self, side_window: Any) -> bool:
        """Whether main elements that see a side window can be processed: it has fired, or no element can enter it."""
        if side_window is None or side_window in self._shown:
            return True
        end = window_end(side_window)
        if self.watermark >= end and side_window not in self._pending:
            return True
        return self.watermark >= min(end + self._lateness, MAX_MICROS)

    def expired(self, side_window: Any) -> bool:
        """Whether the side watermark has passed a side window's expiry."""
        return side_window is not None and self.watermark >= min(window_end(side_window) + self._lateness, MAX_MICROS)

    def argument(self, side_window: Any) -> Any:
        """The argument for elements that see this side window; RunError, naming the step, if there is none."""
        values = self._shown.get(side_window, [])
        try:
            match self.ref.view:
                case "singleton":
                    return self._single(values, side_window)
                case "iter":
                    return tuple(values)
                case "list":
                    return list(values)
                case "dict":
                    return _as_dict(values)
                case "multimap":
                    return _as_multimap(values)
        except RunError as error:
            raise located(
                RunError(f"side input {self.ref.collection!r} in window {side_window!r}: {error}"),
                self._step,
                self._where,
            ) from None

    def _single(self, values: list[Any], side_window: Any) -> Any:
        match values:
            case [value]:
                return value
            case []:
                if self.ref.default is None:
                    raise RunError("AsSingleton of nothing; give AsSingleton(…, default=…)")
                (default,) = self.ref.default.load()
                return default
        raise RunError(
            f"AsSingleton of {len(values)} values, {shorten(values[0], 40)} and {shorten(values[1], 40)} among them; "
            "combine them first, or use AsList"
        )

    # -- input

    def process(self, block: Block) -> None:
        """Process elements of the side collection."""
        self._changed = True
        for windows in [block.windows.windows] if isinstance(block.windows, Same) else set(block.window_list()):
            for window in windows:
                if window not in self._shown and not self.expired(window):
                    self._pending[window] = None
        self._fire(self.grouping.process(block, self.ref.collection))

    def on_watermark(self, micros: int) -> None:
        """Advance the side collection's watermark."""
        if micros <= self.watermark:
            return
        self.watermark = micros
        self._fire(self.grouping.finish_bundle())
        self._fire(self.grouping.on_watermark(micros))
        if micros == MAX_MICROS:
            self._fire(self.grouping.finish())

    def on_clock(self, micros: int) -> None:
        """Advance processing time."""
        self._fire(self.grouping.finish_bundle())
        self._fire(self.grouping.on_clock(micros))

    def _fire(self, panes: Iterable[Emitted]) -> None:
        for _, block in panes:
            for values, (window,) in zip(block.values, block.window_list(), strict=True):
                self._update(window, list(values))

    def _update(self, window: Any, values: list[Any]) -> None:
        self._changed = True
        self._pending.pop(window, None)
        shown = self._shown.get(window)
        if shown is None or self._replaces:
            self._shown[window] = values
        elif self.ref.view != "singleton":
            shown += values
        elif values:
            self._shown[window] = values
        self._views.pop(window, None)
        self._last = (_NONE, None)

    @property
    def shown(self) -> dict[Any, list[Any]]:
        """The current contents of each side window, as values."""
        return self._shown

    def use_shared(self, shown: dict[Any, list[Any]], views: dict[Any, Any]) -> None:
        """Use the complete contents that another process has collected, as values or as finished arguments by window.

        Other views may share both dicts. `shown` stays unchanged; arguments made from it are added to `views`.
        """
        self._shown, self._views, self.watermark = shown, views, MAX_MICROS

    def take_changed(self) -> bool:
        """Whether anything but the watermark has changed since the last call."""
        changed, self._changed = self._changed, False
        return changed

    def collect(self, expired: Callable[[Any], bool]) -> None:
        """Drop the side windows that have `expired`."""
        for window in [window for window in (*self._shown, *self._views) if window is not None and expired(window)]:
            self._changed = True
            self._shown.pop(window, None)
            self._views.pop(window, None)
            self._pending.pop(window, None)
        self._last = (_NONE, None)

    def snapshot(self) -> Any:
        """The contents, the pending windows and the grouping's state, as plain data; not the watermark."""
        shown = {window: values[:] for window, values in self._shown.items()}
        return shown, list(self._pending), self.grouping.snapshot()

    def restore(self, state: Any, watermark: int) -> None:
        """Load what `snapshot` returned, and advance to `watermark` (µs), which may be later than the snapshot's."""
        shown, pending, grouping = state
        self._shown = {window: values[:] for window, values in shown.items()}
        self._pending = dict.fromkeys(pending)
        if grouping is not None:
            self.grouping.restore(grouping)
        self.on_watermark(watermark)


def _window_at(windowing: WindowingStrategy) -> Callable[[int], Any]:
    """From an instant (µs) to the earliest window that contains it, or None."""
    assigner = windowing.assigner
    match assigner:
        case Merged():
            raise AssertionError("windows that merge are refused as side inputs when the pipeline is built")
        case CustomAssigner():
            by_element = assign(assigner)
            return lambda t: next(iter(by_element(t, None)), None)
        case _:
            by_time = assign_windows(assigner)
            return lambda t: min(by_time(t), key=window_order, default=None)


def _as_dict(values: list[Any]) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for key, value in _pairs(values, "AsDict"):
        if key in result:
            raise RunError(f"AsDict has the key {shorten(key, 60)} twice; combine per key first, or use AsMultiMap")
        result[key] = value
    return result


def _as_multimap(values: list[Any]) -> dict[Any, list[Any]]:
    result: dict[Any, list[Any]] = {}
    for key, value in _pairs(values, "AsMultiMap"):
        result.setdefault(key, []).append(value)
    return result


def _pairs(values: list[Any], view: str) -> Iterator[tuple[Any, Any]]:
    for element in values:
        try:
            key, value = element
            hash(key)
        except (TypeError, ValueError):
            raise RunError(f"{view} takes pairs (key, value) with hashable keys, not {shorten(element, 60)}") from None
        yield key, value


# -- the grouping of a side collection


class ByWindow(Operator):
    """The simplest grouping of a side collection: each window fires once, when the watermark passes its end."""

    def __init__(self, step: str, context: Context) -> None:
        self._step = step
        self._context = context
        self._watermark = MIN_MICROS
        self._tables: dict[Any, list[Any]] = {}

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        dropped = 0
        for value, windows in zip(block.values, block.window_list(), strict=True):
            open_windows = [window for window in windows if window_end(window) > self._watermark]
            for window in open_windows:
                self._tables.setdefault(window, []).append(value)
            dropped += bool(windows) and not open_windows
        self._context.count(self._step, "dropped_late", dropped)
        return iter(())

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        self._watermark = max(self._watermark, micros)
        ended = [window for window in self._tables if window_end(window) <= self._watermark]
        for window in sorted(ended, key=window_order):
            yield "", Block([self._tables.pop(window)], window_end(window) - 1, Same((window,)))

    def finish(self) -> Iterator[Emitted]:
        return self.on_watermark(MAX_MICROS)

    def snapshot(self, keys: Collection[Any] | None = None) -> Any:
        return self._watermark, {window: values[:] for window, values in self._tables.items()}

    def restore(self, state: Any) -> None:
        self._watermark, tables = state
        self._tables = {window: values[:] for window, values in tables.items()}


def side_views(node: ParDo | CombinePerKey, pipeline: Pipeline, context: Context) -> list[SideView]:
    """The side inputs of a node, each with the grouping that its collection's windowing requires."""
    views = []
    for number, ref in enumerate(node.side_inputs):
        windowing = pipeline.collection(ref.collection).windowing
        if _fires_once(windowing):
            grouping: Operator = ByWindow(node.label, context)
        else:
            grouping = WindowOperator(_list_node(node, ref), "whole", windowing, context, ref.collection)
        views.append(SideView(side_id(node.label, number), ref, windowing, grouping, node.label, node.where))
    return views


def _fires_once(windowing: WindowingStrategy) -> bool:
    """Whether each window of a side collection fires once, so that `ByWindow` suffices."""
    simple = windowing.evictor is None and windowing.trigger in (DefaultTrigger(), AfterWatermark())
    return simple and windowing.allowed_lateness.micros == 0


def _list_node(node: ParDo | CombinePerKey, ref: SideInputRef) -> CombinePerKey:
    """A node that combines a side collection to one list per pane, without keys."""
    return CombinePerKey(
        label=node.label,
        where=node.where,
        inputs=(ref.collection,),
        outputs=(Output(MAIN, ref.collection),),
        fn=UserFn.of(ListFn()),
        name="list",
        in_parts=True,
        has_identity=True,
        key="none",
    )


# -- combiners with side inputs among their arguments


class SideArguments(CombineFn[Any, Any, Any]):
    """A combiner with constants and side inputs as extra arguments.

    Their values depend on the main window, so an accumulator is stored with the window that it was created in; `window`
    is the current one.
    """

    def __init__(self, node: CombinePerKey, views: dict[str, ViewOf]) -> None:
        self.window: Any = GLOBAL_WINDOW
        self._inner: CombineFn[Any, Any, Any] = node.fn.load()
        self._params = node.params
        self._consts = node.consts.load() if node.consts is not None else ()
        self._views = {
            param.ref: views[side_id(node.label, param.ref)] for param in node.params if param.kind == "side"
        }
        self.has_identity = self._inner.has_identity  # type: ignore[misc]
        self.in_parts = self._inner.in_parts  # type: ignore[misc]

    def set_main_window(self, window: Any) -> None:
        """Set the main window of the calls that follow."""
        self.window = window

    def setup(self) -> None:
        self._inner.setup()

    def create_accumulator(self) -> Any:
        return [self.window, self._combiner_in(self.window).create_accumulator()]

    def add_input(self, accumulator: Any, element: Any) -> Any:
        accumulator[1] = self._combiner_in(accumulator[0]).add_input(accumulator[1], element)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        parts = list(accumulators)
        # A merged window ends with the last of its parts, so both see the same side window.
        window = max((part[0] for part in parts), key=window_order, default=self.window)
        return [window, self._combiner_in(window).merge_accumulators([part[1] for part in parts])]

    def compact(self, accumulator: Any) -> Any:
        return [accumulator[0], self._combiner_in(accumulator[0]).compact(accumulator[1])]

    def extract_output(self, accumulator: Any) -> Any:
        return self._combiner_in(accumulator[0]).extract_output(accumulator[1])

    def teardown(self) -> None:
        self._inner.teardown()

    def _combiner_in(self, window: Any) -> WithArguments:
        args, kwargs = [], {}
        for param in self._params:
            value = self._views[param.ref](window) if param.kind == "side" else self._consts[int(param.ref)]
            if param.keyword is None:
                args.append(value)
            else:
                kwargs[param.keyword] = value
        return WithArguments(self._inner, tuple(args), kwargs)

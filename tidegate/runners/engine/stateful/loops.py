"""Runs the author's functions of a stateful step: `process` by generated loops over blocks, and the callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from tidegate.runners.engine.checks.contracts import check_pair, check_travels
from tidegate.runners.engine.elementwise.fused_loop import FusedLoop
from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.elementwise.shape import Shape
from tidegate.runners.engine.elementwise.side_exits import ElementContext
from tidegate.runners.engine.errors.attribution import has_author_frames, not_pairs, rethrow, user_error
from tidegate.runners.engine.loops.bodies.cell_operations import OPERABLE, CellKind
from tidegate.runners.engine.loops.compiled import LoopPosition
from tidegate.runners.engine.loops.inlining import Inlining
from tidegate.runners.engine.operator import Context, Emitted
from tidegate.runners.engine.state.cells import Entry
from tidegate.runners.engine.state.tables import StateTables
from tidegate.runners.engine.state.timers import Timers
from tidegate.runners.engine.stateful.codegen import KEY_LINK, Declarations, generate_callback, generate_process
from tidegate.runners.engine.stateful.kept_cells import may_keep
from tidegate.runners.engine.stateful.windows import Placement, StatefulWindows
from tidegate.sdk.data.block import Block, DerivedFrom, Each, Same
from tidegate.sdk.data.keys import check_key
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.data.values import SPECIAL
from tidegate.sdk.portable.model import Callback, ParDo
from tidegate.sdk.time import Timestamp
from tidegate.sdk.windowing.assigners import Bounds, GlobalWindows
from tidegate.sdk.windowing.assignment import assign_windows, single_window
from tidegate.sdk.windowing.window import GLOBAL_WINDOW


@dataclass(frozen=True, slots=True)
class KeyedContext:
    """State, timers and windows, which are pointed at the key and window that a call is for. `fire_overdue` fires the
    timers of a window that a call has set for the past."""

    tables: StateTables
    timers: Timers
    windows: StatefulWindows
    fire_overdue: Callable[[Any], Iterator[Emitted]]
    processing_time: Callable[[], Timestamp]


class StatefulLoops:
    """The generated code of a stateful step, compiled on demand for each shape of block and for each callback.

    The results of callbacks are collected until `flush`.
    """

    def __init__(
        self,
        link: Link,
        context: Context,
        main: str,
        keyed: KeyedContext,
        *,
        exits: Mapping[tuple[str, str], str],
        sides: Mapping[str, Callable[[Any], Any]],
    ) -> None:
        node = link.node
        assert isinstance(node, ParDo)
        self.fused = FusedLoop(
            (link,),
            context,
            main,
            exits=exits,
            sides=sides,
            rest=self._after_side_exit,
            environment=self._environment,
            attribute=self._attribute_to_key,
            labels=[link.label] * (KEY_LINK + 1),
        )
        self._link = link
        self._node = node
        self._context = context
        self._main = main
        self._keyed = keyed
        self._declared = Declarations(
            tuple(spec.name for spec in node.states),
            frozenset(spec.name for spec in node.states if keyed.tables.expires(spec.name)),
            tuple(spec.name for spec in node.timers),
            keyed.windows.tracks_arrivals,
        )
        self._calls = 0
        self._assigner: Any = None
        self._bounds: Callable[[int], Bounds] | None = None
        """The assigner of the latest block whose windows are derived; its bounds, if it assigns one window each."""
        self._values: list[Any] = []
        self._times: list[int] = []
        self._windows: list[tuple[Any, ...]] = []

    def process(self, block: Block) -> Iterator[Emitted]:
        """Call the author's function for each element and window."""
        self.fused.start_bundle()
        for part, checked in self.fused.checks.sampled(block):
            shared = _with_shared_windows(part)
            self.fused.counters.received += len(shared)
            yield from self.fused.run(self._loop_for(shared, checked), shared)

    def call(self, callback: Callback, key: Any, window: Any, t: int, tag: str) -> Iterator[Emitted]:
        """Call a callback; its results have the timestamp `t` (µs) and `window`."""
        self._calls += 1
        checks = self._context.checks
        watched = checks is not None and checks.elements_to_check(self._calls - 1, self._calls, 1) > 0
        link = self._link
        try:
            for result in self._callback(callback, watched)(key, window, t, tag):
                if type(result) in SPECIAL:
                    yield from self.flush()
                    at = ElementContext(0, t, (window,), -1, -1, Block([None], t, Same((window,))))
                    yield from self.fused.exits.special(result, at)
                    continue
                if self._context.runtime_types and link.hint is not None:
                    self.fused.checks.typed(0, result)
                self._values.append(result)
                self._times.append(t)
                self._windows.append((window,))
                if len(self._values) >= self._context.block_size:
                    yield from self.flush()
        except GeneratorExit:
            raise
        except BaseException as error:
            rethrow(user_error(error, step=link.label, where=link.where, method=callback.method, key=key))

    def flush(self) -> Iterator[Emitted]:
        """The results of callbacks so far, as a block."""
        if self._values:
            values, times, windows = self._values, self._times, self._windows
            self._values, self._times, self._windows = [], [], []
            self.fused.counters.emitted += len(values)
            same = all(window == windows[0] for window in windows)
            yield self._main, Block(values, times, Same(windows[0]) if same else Each(windows))

    # -- generated code

    def _loop_for(self, block: Block, checked: bool) -> Callable[..., Iterator[Emitted]]:
        inlined = self.fused.inlined(lambda: self._inlining_for(checked), len(block), checked=checked)
        windows = self._windows_shape(block)
        shape = Shape(
            timed=not isinstance(block.timestamps, int),
            indexed=windows == "each" or not isinstance(block.panes, PaneInfo),
            windows=windows,
            stamps=self.fused.exits.stamps,
            checked=checked,
            typed=self._context.runtime_types,
            inlined=inlined,
        )
        body = self._inlining_for(checked).bodies[0] if inlined else None
        return self.fused.variant(shape, lambda: generate_process(self._link, self._declared, shape, body))

    def _inlining_for(self, checked: bool) -> Inlining:
        return self._inlining_checked if checked else self._inlining

    @cached_property
    def _inlining(self) -> Inlining:
        cells: dict[str, tuple[int, CellKind]] = {}
        for n, spec in enumerate(self._node.states):
            kind = next((each for each in OPERABLE if each == spec.cell), None)
            if kind and spec.name not in self._declared.mortal and not may_keep(self._link, spec.name):
                cells[spec.name] = n, kind
        return Inlining((self._link,), cells)

    @cached_property
    def _inlining_checked(self) -> Inlining:
        """The same for checked elements, whose cells record what is read."""
        return Inlining((self._link,))

    def _windows_shape(self, block: Block) -> Literal["one", "derived", "each"]:
        match block.windows:
            case Same((_,)):
                return "one"
            case DerivedFrom(assigner):
                if self._assigner is not assigner:
                    self._assigner, self._bounds = assigner, single_window(assigner)
                return "each" if self._bounds is None else "derived"
            case _:
                return "each"

    def _callback(self, callback: Callback, watched: bool) -> Callable[..., Iterator[Any]]:
        number = self._node.callbacks.index(callback)
        return self.fused.variant(
            (number, watched), lambda: generate_callback(callback, self._declared, number, watched=watched)
        )

    def _environment(self) -> dict[str, Any]:
        """The names that generated code uses beside those of every fused loop."""
        tables, timers, windows = self._keyed.tables, self._keyed.timers, self._keyed.windows
        env: dict[str, Any] = {f"cell_{n}": cell for n, cell in enumerate(tables.cells.values())}
        env |= {f"watched_{n}": cell for n, cell in enumerate(tables.watched.values())}
        env |= {f"timer_{n}": handle for n, handle in enumerate(timers.handles.values())}
        for number, callback in enumerate(self._node.callbacks):
            env[f"callback_{number}"] = getattr(self._link.dofn, callback.method)
        return env | {
            "timers": timers,
            "overdue": timers.overdue,
            "enter": windows.enter,
            "enter_by_time": self._enter_by_time,
            "arrivals_in": windows.arrivals_in,
            "count_late": self._count_late,
            "fire_overdue": self._keyed.fire_overdue,
            "verify": tables.verify,
            "check_input": _check_input,
            "check_pair": check_pair,
            "Entry": Entry,
            "watermark": lambda: Timestamp.of_micros(timers.watermark),
            "clock": self._keyed.processing_time,
        }

    def _enter_by_time(self, t: int) -> Placement:
        assert self._bounds is not None
        return self._keyed.windows.enter_by_time(self._bounds, t)

    def _count_late(self, n: int) -> None:
        self._context.count(self._link.label, "dropped_late", n)

    def _attribute_to_key(self, error: BaseException, place: LoopPosition) -> BaseException | None:
        """The error for an element that is no pair; None for any other error. A post-mortem finds the element's state
        in the cells."""
        for n, cell in enumerate(self._keyed.tables.cells.values()):
            if f"entry_{n}" in place.frame:
                cell.key, cell.entry = place.frame["k0"], place.frame[f"entry_{n}"]
        no_pair = isinstance(error, (TypeError, ValueError)) and not has_author_frames(error)
        if not (no_pair and place.link == KEY_LINK):
            return None
        return not_pairs(place.element, self._link.label, self._link.where)

    def _after_side_exit(self, k: int, block: Block) -> Iterator[Emitted]:
        """Results that left the loop by a side exit are output: no further link processes them."""
        yield self._main, block


def _with_shared_windows(block: Block) -> Block:
    """The block with an explicit list of windows, if its elements share one that can be derived once."""
    if isinstance(block.windows, DerivedFrom):
        assigner = block.windows.assigner
        if isinstance(assigner, GlobalWindows):
            return Block(block.values, block.timestamps, Same((GLOBAL_WINDOW,)), block.panes)
        if isinstance(block.timestamps, int):
            return Block(block.values, block.timestamps, Same(assign_windows(assigner)(block.timestamps)), block.panes)
    return block


def _check_input(element: Any) -> None:
    """Check that an element can be sent to another process, and that its key has an encoding."""
    check_travels(element)
    check_key(element[0])

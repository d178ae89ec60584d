"""How a grouping accumulates the elements of one key and window between firings.

There are three kinds of pane contents, chosen once per grouping: a list of values, an accumulator, or a `Buffer`. A
buffer also stores each element's timestamp and arrival number. Evictors need both; lists under merging windows need
the arrival numbers, because values stay in arrival order when windows merge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, Final, Literal

from tidegate.runners.engine.checks.combiners import Trial, Tried
from tidegate.runners.engine.errors.attribution import UserCall
from tidegate.runners.plan import Phase
from tidegate.sdk.authoring.combine import (
    NOTHING,
    AllFn,
    AnyFn,
    AssociativeFn,
    CallableFn,
    CoGroupFn,
    CombineFn,
    CountFn,
    ListFn,
    MaxFn,
    MinFn,
    SetFn,
    SumFn,
    TupleCombineFn,
    TupleFn,
    WithArguments,
)
from tidegate.sdk.windowing.assigners import is_merging
from tidegate.sdk.windowing.evictors import keep
from tidegate.sdk.windowing.strategy import AccumulationMode, WindowingStrategy

Kind = Literal["list", "buffer", "accumulator"]

_LISTS: Final = (ListFn, TupleFn, CallableFn)
_ATOMS: Final = frozenset({int, float, bool, str, bytes, complex, type(None), type(NOTHING)})


class Buffer:
    """Elements as columns: values, timestamps (µs), arrival numbers."""

    __slots__ = ("arrivals", "times", "values")

    def __init__(self, values: list[Any], times: list[int], arrivals: list[int]) -> None:
        self.values = values
        self.times = times
        self.arrivals = arrivals

    def retain(self, index: Sequence[int]) -> None:
        """Drop all elements but those at `index`, which is ascending."""
        if len(index) < len(self.values):
            self.values = [self.values[i] for i in index]
            self.times = [self.times[i] for i in index]
            self.arrivals = [self.arrivals[i] for i in index]

    def __reduce__(self) -> tuple[Any, ...]:
        return Buffer, (self.values, self.times, self.arrivals)


class Accumulation:
    """Creates, adds to, merges, fires and copies the contents of panes. `tried` is for `--checks all` (see `Tried`).

    >>> from tidegate.sdk.authoring.combine import SumFn
    >>> from tidegate.sdk.windowing.strategy import WindowingStrategy
    >>> sums = Accumulation(SumFn(), "whole", WindowingStrategy())
    >>> contents = sums.add(sums.add(sums.new(), 3), 4)
    >>> sums.fire(contents, 2)  # the pane's value, and the contents that the next pane starts from: it accumulates
    (7, 7)
    >>> sums.merge([contents, 5])
    12
    """

    def __init__(
        self,
        combiner: CombineFn[Any, Any, Any] | None,
        phase: Phase,
        strategy: WindowingStrategy,
        *,
        tried: bool = False,
    ) -> None:
        self.combiner = combiner = Tried(combiner) if tried and combiner is not None else combiner
        self.phase: Phase = phase
        self.accumulating = strategy.accumulation is AccumulationMode.ACCUMULATING
        self.evict = keep(strategy.evictor) if strategy.evictor is not None else None
        self.evicts_after = strategy.evictor is not None and strategy.evictor.when == "after"
        self.lists = phase == "whole" and (combiner is None or _is(combiner, *_LISTS))
        in_order = self.lists or (phase == "whole" and _is(combiner, CoGroupFn))
        self.kind: Kind
        if self.evict is not None or (in_order and is_merging(strategy.assigner)):
            self.kind = "buffer"
        else:
            self.kind = "list" if self.lists else "accumulator"
        # A co-grouped element is (input index, value); predicates, delta functions and evictors get the value.
        self.untag: Callable[[Any], Any] | None = itemgetter(1) if _is(combiner, CoGroupFn) else None
        self.add = _add_input(combiner, phase)
        self.extract = self._extract_output()
        match self.kind:
            case "list":
                self.fire = self._fire_list
            case "buffer":
                self.fire = self._fire_buffer
            case "accumulator":
                self.fire = self._fire_accumulator

    fire: Callable[[Any, int], tuple[Any, Any]]
    """`(contents, elements since the last firing) -> (value, contents afterwards)`; NOTHING as value emits no pane."""

    def new(self) -> Any:
        """The contents of an empty pane."""
        match self.kind:
            case "list":
                return []
            case "buffer":
                return Buffer([], [], [])
            case "accumulator":
                assert self.combiner is not None
                return NOTHING if self.phase == "merge" else self.combiner.create_accumulator()

    def _fire_list(self, values: list[Any], unfired: int) -> tuple[Any, Any]:
        if not values and self.combiner is not None and not self.combiner.has_identity:
            return NOTHING, values
        return (self.extract(values[:]), values) if self.accumulating else (self.extract(values), [])

    def _fire_accumulator(self, accumulator: Any, unfired: int) -> tuple[Any, Any]:
        assert self.combiner is not None
        if self.accumulating:
            return self.extract(copy_accumulator(self.combiner, accumulator)), accumulator
        if not unfired and not self.combiner.has_identity:
            return NOTHING, accumulator
        return self.extract(accumulator), self.new()

    def _fire_buffer(self, buffer: Buffer, unfired: int) -> tuple[Any, Any]:
        if self.evict is None:
            if not buffer.values and self.combiner is not None and not self.combiner.has_identity:
                return NOTHING, buffer
        else:
            if buffer.values and not self.evicts_after:
                buffer.retain(self._not_evicted(buffer))
            if not buffer.values:
                return NOTHING, buffer
        value = self.extract(buffer.values[:])
        if not self.accumulating:
            return value, self.new()
        if self.evict is not None and self.evicts_after:
            buffer.retain(self._not_evicted(buffer))
        return value, buffer

    def _not_evicted(self, buffer: Buffer) -> list[int]:
        """The positions that the evictor leaves in the buffer."""
        assert self.evict is not None
        values = buffer.values if self.untag is None else list(map(self.untag, buffer.values))
        try:
            return self.evict(values, buffer.times)
        except Exception as error:
            raise UserCall("the evictor") from error

    def _extract_output(self) -> Callable[[Any], Any]:
        """The function from a pane's values or accumulator to what is emitted. It may use up its argument."""
        combiner = self.combiner
        if combiner is None:
            return lambda values: values
        if self.phase == "parts":
            return combiner.compact
        if self.kind == "buffer" and not self.lists:
            return combiner.apply
        return combiner.extract_output

    def merge(self, parts: list[Any]) -> Any:
        """The contents of a merged window, from those of the windows that merge. It may use up `parts`."""
        if self.kind == "buffer":
            return _merge_buffers(parts)
        assert self.combiner is not None, "lists under merging windows are buffers"
        parts = [part for part in parts if part is not NOTHING]
        if len(parts) < 2:
            return parts[0] if parts else self.new()
        return self.combiner.merge_accumulators(parts)

    def copy(self, contents: Any) -> Any:
        """A copy for a snapshot; it shares nothing mutable with the original except the elements."""
        match self.kind:
            case "list":
                return contents[:]
            case "buffer":
                return Buffer(contents.values[:], contents.times[:], contents.arrivals[:])
            case "accumulator":
                assert self.combiner is not None
                return copy_accumulator(self.combiner, contents)


def copy_accumulator(combiner: CombineFn[Any, Any, Any], accumulator: Any) -> Any:
    """An independent copy: extracting from it does not change the original, nor does adding to the original change it.

    The accumulators of built-in combiners share their elements with the copy; others are copied deeply.
    """
    if type(accumulator) in _ATOMS:
        return accumulator
    if type(accumulator) is tuple and all(type(part) in _ATOMS for part in accumulator):
        return accumulator
    match combiner:
        case SumFn() | CountFn() | MinFn() | MaxFn() | AnyFn() | AllFn():
            return accumulator
        case ListFn() | TupleFn() | CallableFn() | AssociativeFn():
            return accumulator[:]
        case SetFn():
            return set(accumulator)
        case CoGroupFn():
            return tuple([part[:] for part in accumulator])
        case TupleCombineFn(combiners=combiners):
            return [copy_accumulator(inner, part) for inner, part in zip(combiners, accumulator, strict=True)]
        case WithArguments(inner=inner):
            return copy_accumulator(inner, accumulator)
        case Tried(inner=inner):
            return Trial(copy_accumulator(inner, accumulator.held), accumulator.inputs[:])
        case _:
            from copy import deepcopy

            return deepcopy(accumulator)


def _is(combiner: CombineFn[Any, Any, Any] | None, *kinds: type) -> bool:
    inner = combiner.inner if isinstance(combiner, WithArguments) else combiner
    return type(inner) in kinds


def _add_input(combiner: CombineFn[Any, Any, Any] | None, phase: Phase) -> Callable[[Any, Any], Any]:
    """`(accumulator, input) -> accumulator`."""
    if combiner is None:
        return lambda accumulator, x: accumulator
    if phase == "merge":
        merge = combiner.merge_accumulators
        return lambda accumulator, x: x if accumulator is NOTHING else merge([accumulator, x])
    if type(combiner) is SumFn:
        import operator

        return operator.add
    return combiner.add_input


def _merge_buffers(parts: list[Buffer]) -> Buffer:
    """One buffer of all elements, in arrival order."""
    parts = sorted((part for part in parts if part.values), key=lambda part: part.arrivals[0])
    if not parts:
        return Buffer([], [], [])
    disjoint = all(a.arrivals[-1] < b.arrivals[0] for a, b in pairwise(parts))
    values = list(chain.from_iterable(part.values for part in parts))
    times = list(chain.from_iterable(part.times for part in parts))
    arrivals = list(chain.from_iterable(part.arrivals for part in parts))
    if disjoint:
        return Buffer(values, times, arrivals)
    order = sorted(range(len(arrivals)), key=arrivals.__getitem__)
    return Buffer([values[i] for i in order], [times[i] for i in order], [arrivals[i] for i in order])

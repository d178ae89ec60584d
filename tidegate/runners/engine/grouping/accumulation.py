"""What one key and window holds between firings, and what a firing takes out of it.

Three ways, chosen once per grouping: a list of values; an accumulator; or a `Buffer` that also knows when each element
arrived and its timestamp, for evictors, and for lists under windows that merge, where values keep the order in which
they arrived.
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

How = Literal["list", "buffer", "accumulator"]

_LISTS: Final = (ListFn, TupleFn, CallableFn)
_ATOMS: Final = frozenset({int, float, bool, str, bytes, complex, type(None), type(NOTHING)})


class Buffer:
    """Elements as columns: values, timestamps (µs), arrival numbers."""

    __slots__ = ("arrivals", "times", "values")

    def __init__(self, values: list[Any], times: list[int], arrivals: list[int]) -> None:
        self.values = values
        self.times = times
        self.arrivals = arrivals

    def take(self, index: Sequence[int]) -> None:
        """Keep only the elements at `index`, ascending."""
        if len(index) < len(self.values):
            self.values = [self.values[i] for i in index]
            self.times = [self.times[i] for i in index]
            self.arrivals = [self.arrivals[i] for i in index]

    def __reduce__(self) -> tuple[Any, ...]:
        return Buffer, (self.values, self.times, self.arrivals)


class Contents:
    """How a grouping holds what has arrived. `how` tells the loop of the operator, which takes elements in itself.

    `tried`: the combiner is tried in other groupings too, whenever a result is asked for.
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
        self.how: How
        if self.evict is not None or (in_order and is_merging(strategy.assigner)):
            self.how = "buffer"
        else:
            self.how = "list" if self.lists else "accumulator"
        # The author's predicates, delta functions and evictors see values as the group will hold them.
        self.shown: Callable[[Any], Any] | None = itemgetter(1) if _is(combiner, CoGroupFn) else None
        self.add = _adding(combiner, phase)
        self.extract = self._extraction()
        match self.how:
            case "list":
                self.fired = self._fired_list
            case "buffer":
                self.fired = self._fired_buffer
            case "accumulator":
                self.fired = self._fired_accumulator

    fired: Callable[[Any, int], tuple[Any, Any]]
    """From what is held, and how many elements came since the last firing, to the value of the pane, NOTHING if it is
    not emitted, and what stays behind."""

    def new(self) -> Any:
        """What a pane starts from."""
        match self.how:
            case "list":
                return []
            case "buffer":
                return Buffer([], [], [])
            case "accumulator":
                assert self.combiner is not None
                return NOTHING if self.phase == "merge" else self.combiner.create_accumulator()

    def _fired_list(self, held: list[Any], pane: int) -> tuple[Any, Any]:
        if not held and self.combiner is not None and not self.combiner.has_identity:
            return NOTHING, held
        return (self.extract(held[:]), held) if self.accumulating else (self.extract(held), [])

    def _fired_accumulator(self, held: Any, pane: int) -> tuple[Any, Any]:
        assert self.combiner is not None
        if self.accumulating:
            return self.extract(detached(self.combiner, held)), held
        if not pane and not self.combiner.has_identity:
            return NOTHING, held
        return self.extract(held), self.new()

    def _fired_buffer(self, held: Buffer, pane: int) -> tuple[Any, Any]:
        if self.evict is None:
            if not held.values and self.combiner is not None and not self.combiner.has_identity:
                return NOTHING, held
        else:
            if held.values and not self.evicts_after:
                held.take(self._kept(held))
            if not held.values:
                return NOTHING, held
        value = self.extract(held.values[:])
        if not self.accumulating:
            return value, self.new()
        if self.evict is not None and self.evicts_after:
            held.take(self._kept(held))
        return value, held

    def _kept(self, held: Buffer) -> list[int]:
        assert self.evict is not None
        values = held.values if self.shown is None else list(map(self.shown, held.values))
        try:
            return self.evict(values, held.times)
        except Exception as error:
            raise UserCall("the evictor") from error

    def _extraction(self) -> Callable[[Any], Any]:
        """From what is held (a list of the pane's own, or an accumulator) to what is emitted."""
        combiner = self.combiner
        if combiner is None:
            return lambda values: values
        if self.phase == "parts":
            return combiner.compact
        if self.how == "buffer" and not self.lists:
            return combiner.apply
        return combiner.extract_output

    def merge(self, parts: list[Any]) -> Any:
        """What a merged window holds, from what its parts held; those may be used up."""
        if self.how == "buffer":
            return _merged_buffers(parts)
        assert self.combiner is not None, "lists under merging windows are buffers"
        parts = [part for part in parts if part is not NOTHING]
        if len(parts) < 2:
            return parts[0] if parts else self.new()
        return self.combiner.merge_accumulators(parts)

    def copied(self, held: Any) -> Any:
        """The same for a snapshot: nothing mutable is shared but the elements."""
        match self.how:
            case "list":
                return held[:]
            case "buffer":
                return Buffer(held.values[:], held.times[:], held.arrivals[:])
            case "accumulator":
                assert self.combiner is not None
                return detached(self.combiner, held)


def detached(combiner: CombineFn[Any, Any, Any], accumulator: Any) -> Any:
    """A copy of an accumulator that goes on: neither extracting from the copy nor adding to the original shows in both.

    Elements inside it are shared, where it is known which parts are elements.
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
            return [detached(inner, part) for inner, part in zip(combiners, accumulator, strict=True)]
        case WithArguments(inner=inner):
            return detached(inner, accumulator)
        case Tried(inner=inner):
            return Trial(detached(inner, accumulator.held), accumulator.inputs[:])
        case _:
            from copy import deepcopy

            return deepcopy(accumulator)


def _is(combiner: CombineFn[Any, Any, Any] | None, *kinds: type) -> bool:
    inner = combiner.inner if isinstance(combiner, WithArguments) else combiner
    return type(inner) in kinds


def _adding(combiner: CombineFn[Any, Any, Any] | None, phase: Phase) -> Callable[[Any, Any], Any]:
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


def _merged_buffers(parts: list[Buffer]) -> Buffer:
    """In order of arrival."""
    parts = sorted((part for part in parts if part.values), key=lambda part: part.arrivals[0])
    if not parts:
        return Buffer([], [], [])
    apart = all(a.arrivals[-1] < b.arrivals[0] for a, b in pairwise(parts))
    values = list(chain.from_iterable(part.values for part in parts))
    times = list(chain.from_iterable(part.times for part in parts))
    arrivals = list(chain.from_iterable(part.arrivals for part in parts))
    if apart:
        return Buffer(values, times, arrivals)
    order = sorted(range(len(arrivals)), key=arrivals.__getitem__)
    return Buffer([values[i] for i in order], [times[i] for i in order], [arrivals[i] for i in order])

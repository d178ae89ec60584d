"""How a grouping takes in one element: a few generated lines per combiner, so that the common ones cost no call."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from functools import reduce
from itertools import chain
from typing import Any, Final

from tidegate.runners.plan import Phase
from tidegate.sdk.authoring.combine import (
    NOTHING,
    CallableFn,
    CoGroupFn,
    CombineFn,
    CountFn,
    ListFn,
    MaxFn,
    MinFn,
    SumFn,
    TupleCombineFn,
    TupleFn,
)
from tidegate.sdk.portable.model import KeyOf

KEY_LINES: Final[dict[str, str]] = {"first": "k, x = {v}", "element": "k = x = {v}"}

_APPEND: Final = ("a = get(k)", "if a is None: table[k] = [x]", "else: a.append(x)")

_INLINE: Final[dict[Any, tuple[str, ...]]] = {
    SumFn: ("table[k] = get(k, 0) + x",),
    CountFn: ("table[k] = get(k, 0) + 1",),
    MinFn: ("a = get(k, NOTHING)", "if a is NOTHING or x < a: table[k] = x"),
    MaxFn: ("a = get(k, NOTHING)", "if a is NOTHING or x > a: table[k] = x"),
    ListFn: _APPEND,
    TupleFn: _APPEND,
    CallableFn: _APPEND,
}

_MERGED_AS_ADDED: Final = frozenset({SumFn, MinFn, MaxFn})
"""Combiners whose accumulators are taken in as inputs are."""

_GENERIC: Final = ("a = get(k, NOTHING)", "table[k] = add(create() if a is NOTHING else a, x)")
_MERGE: Final = ("a = get(k, NOTHING)", "table[k] = x if a is NOTHING else merge((a, x))")


def fold_lines(fn: CombineFn[Any, Any, Any] | None, phase: Phase) -> tuple[str, ...]:
    """The lines that take `x` into `table[k]`: for a grouping without a combiner, into its list."""
    if fn is None:
        return _APPEND
    if phase == "merge":
        match type(fn):
            case kind if kind is CountFn:
                return _INLINE[SumFn]
            case kind if kind in _MERGED_AS_ADDED:
                return _INLINE[kind]
            case _:
                return _MERGE
    if type(fn) is CoGroupFn:
        return "a = get(k)", f"if a is None: a = table[k] = ({'[], ' * fn.size})", "a[x[0]].append(x[1])"
    return _INLINE.get(type(fn), _GENERIC)


def key_line(key: KeyOf) -> str:
    """The line that finds `k` and `x` in an element."""
    return KEY_LINES[key]


def extracts(fn: CombineFn[Any, Any, Any] | None, phase: Phase) -> Callable[[Any], Any] | None:
    """What turns an accumulator into what is emitted; None where they are the same thing."""
    if fn is None:
        return None
    if phase == "parts":
        return None if type(fn).compact is CombineFn.compact else fn.compact
    return None if type(fn) in (SumFn, CountFn, MinFn, MaxFn, ListFn) else fn.extract_output


def fold_block(fn: CombineFn[Any, Any, Any], phase: Phase) -> Callable[[Any, Any], Any]:
    """`(accumulator, values) -> accumulator` for a whole run of inputs of one key and window."""
    if phase == "merge":
        merge = fn.merge_accumulators
        return lambda accumulator, values: merge([accumulator, *values])
    match type(fn):
        case kind if kind is SumFn:
            return _summed
        case kind if kind is CountFn:
            return lambda accumulator, values: accumulator + len(values)
        case kind if kind is MinFn:
            return lambda a, values: min(values) if a is NOTHING else min(chain((a,), values))
        case kind if kind is MaxFn:
            return lambda a, values: max(values) if a is NOTHING else max(chain((a,), values))
        case kind if kind in (ListFn, TupleFn, CallableFn):
            return _extended
    if isinstance(fn, TupleCombineFn) and not fn.on_fields:
        parts = [fold_block(part, phase) for part in fn.combiners]
        return lambda accumulators, values: [f(a, values) for f, a in zip(parts, accumulators, strict=True)]
    add = fn.add_input

    def fold(accumulator: Any, values: Any) -> Any:
        for value in values:
            accumulator = add(accumulator, value)
        return accumulator

    return fold


def element_in_hand(error: BaseException) -> tuple[Any, ...]:
    """The element that was being added when a fold of `fold_block` failed; () where that can't be told."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name == "fold" and frame.f_code.co_filename == __file__:
            return (frame.f_locals["value"],)
        trace = trace.tb_next
    return ()


def _summed(accumulator: Any, values: Any) -> Any:
    total = sum(values, accumulator)
    if type(total) in (float, complex) and sys.version_info >= (3, 12):
        # Since 3.12 `sum` keeps what rounding loses of floats, since 3.14 of complex numbers too, but only until it
        # returns: the result would depend on where blocks end.
        return reduce(operator.add, values, accumulator)
    return total


def _extended(accumulator: list[Any], values: Any) -> list[Any]:
    accumulator.extend(values)
    return accumulator

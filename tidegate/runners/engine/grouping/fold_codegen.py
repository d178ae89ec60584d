"""The statements of a loop that add an element to a table of a grouping; for common combiners they call no function.

>>> adds(SumFn(), "whole")
(Assign(target='table[k]', value='get(k, 0) + x', at=None, adds=False),)
>>> fold_block(SumFn(), "whole")(1, [2, 3])  # for a whole block
6
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from functools import reduce
from itertools import chain
from typing import Any, Final

from tidegate.runners.engine.loops.form import Assign, Do, Statements, Test
from tidegate.runners.engine.loops.inlining import CalledStep
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
    PairwiseFn,
    SumFn,
    TupleCombineFn,
    TupleFn,
)
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.portable.model import KeyOf
from tidegate.sdk.relational.python.generated_functions import GeneratedCombineFn, body_of_compiled
from tidegate.sdk.user_code.body import Body
from tidegate.sdk.user_code.user_fn import called_per_element

_KEYS: Final[dict[KeyOf, str]] = {"first": "k, x", "element": "k = x"}
"""The variables of the key and the input, to which an element is assigned."""
_NUMBERED: Final = "k, (n, x)"
"""As `_KEYS`, for a pair whose value has the number of its collection before it."""

_NEW: Final = "a is None and k not in table"
_KNOWN: Final = Assign("a", "get(k)")


def _set(value: str) -> Statements:
    return (Assign("table[k]", value),)


def _found(initial: str) -> Statements:
    return Assign("a", "get(k)"), Test("a is None", (Assign("a = table[k]", initial),))


APPEND: Final[Statements] = Assign("a", "get(k)"), Test("a is None", _set("[x]"), (Do("a.append(x)"),))

_INLINE: Final[dict[Any, Statements]] = {
    SumFn: _set("get(k, 0) + x"),
    CountFn: _set("get(k, 0) + 1"),
    MinFn: (_KNOWN, Test(f"({_NEW}) or x < a", _set("x"))),
    MaxFn: (_KNOWN, Test(f"({_NEW}) or x > a", _set("x"))),
    ListFn: APPEND,
    TupleFn: APPEND,
    CallableFn: APPEND,
}

_MERGED_AS_ADDED: Final = frozenset({SumFn, MinFn, MaxFn})
"""Combiners that add an accumulator in the same way as an input."""

_GENERIC: Final[Statements] = _KNOWN, *_set(f"add(create() if {_NEW} else a, x)")
_MERGE: Final[Statements] = _KNOWN, *_set(f"x if {_NEW} else merge((a, x))")


def variables(fn: CombineFn[Any, Any, Any] | None, phase: Phase, key: KeyOf) -> str:
    """The variables that an element is assigned to before the statements of `adds`."""
    if phase == "merge":
        return _KEYS["first"]
    return _NUMBERED if type(fn) is CoGroupFn else _KEYS[key]


def adds(fn: CombineFn[Any, Any, Any] | None, phase: Phase) -> Statements:
    """The statements that add `x` to `table[k]`, which is a list of values for a grouping without a combiner."""
    if fn is None:
        return APPEND
    if phase == "merge":
        match type(fn):
            case kind if kind is CountFn:
                return _INLINE[SumFn]
            case kind if kind in _MERGED_AS_ADDED:
                return _INLINE[kind]
            case _:
                return _MERGE
    if isinstance(fn, GeneratedCombineFn) and fn.adding is not None:
        return *_found(fn.initial), *map(Do, fn.adding)
    if type(fn) is CoGroupFn:
        return *_found(f"({'[], ' * fn.size})"), Do("a[n].append(x)")
    return _INLINE.get(type(fn), _GENERIC)


def is_plain(fn: CombineFn[Any, Any, Any] | None, phase: Phase) -> bool:
    """Whether the statements are those of a grouping into lists or of a built-in combiner."""
    return phase != "merge" and (fn is None or type(fn) in _INLINE)


def adding_function(fn: CombineFn[Any, Any, Any] | None, body: Body | None, phase: Phase) -> CalledStep | None:
    """The function of a combiner that adds an input; None if the loop calls none. `body` is its text."""
    if fn is None or adds(fn, phase) is not _GENERIC:
        return None
    called = called_per_element(fn)
    text = body or body_of_compiled(called)
    return None if text is None else CalledStep(called, text, params=(Param("element"), Param("element")))


def is_pairwise(fn: CombineFn[Any, Any, Any] | None) -> bool:
    """Whether the first input of a key is its accumulator."""
    return type(fn) is PairwiseFn


def extracts(fn: CombineFn[Any, Any, Any] | None, phase: Phase) -> Callable[[Any], Any] | None:
    """The function from an accumulator to the emitted value; None if the accumulator itself is emitted."""
    if fn is None:
        return None
    if phase == "parts":
        return None if type(fn).compact is CombineFn.compact else fn.compact
    if type(fn) is CoGroupFn and fn.tags is None:
        return None
    return None if type(fn) in (SumFn, CountFn, MinFn, MaxFn, ListFn) else fn.extract_output


def groups_by_tag(fn: CombineFn[Any, Any, Any] | None, chunk: list[tuple[Any, Any]]) -> list[tuple[Any, Any]] | None:
    """The results of the accumulators of a CoGroupByKey of a dict; None for any other combiner.

    >>> groups_by_tag(CoGroupFn(2, ("a", "b")), [("key", ([1], []))])
    [('key', {'a': [1], 'b': []})]
    """
    if type(fn) is not CoGroupFn or fn.tags is None:
        return None
    if fn.size == 2:
        first, second = fn.tags
        return [(k, {first: a, second: b}) for k, (a, b) in chunk]
    return [(k, dict(zip(fn.tags, lists, strict=True))) for k, lists in chunk]


def fold_block(fn: CombineFn[Any, Any, Any], phase: Phase) -> Callable[[Any, Any], Any]:
    """`(accumulator, values) -> accumulator` for many inputs of one key and window."""
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
    if isinstance(fn, GeneratedCombineFn):
        return fn.add_all
    if isinstance(fn, TupleCombineFn) and not fn.on_fields:
        parts = [fold_block(part, phase) for part in fn.combiners]
        return lambda accumulators, values: [f(a, values) for f, a in zip(parts, accumulators, strict=True)]
    add = fn.add_input

    def fold(accumulator: Any, values: Any) -> Any:
        for value in values:
            accumulator = add(accumulator, value)
        return accumulator

    return fold


def element_being_added(error: BaseException) -> tuple[Any, ...]:
    """The element that a function of `fold_block` was adding when it failed; () if unknown."""
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
        # `sum` compensates for rounding, of floats since 3.12 and of complex numbers since 3.14, but only within one
        # call: the result would depend on where blocks end.
        return reduce(operator.add, values, accumulator)
    return total


def _extended(accumulator: list[Any], values: Any) -> list[Any]:
    accumulator.extend(values)
    return accumulator

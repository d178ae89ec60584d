"""Aggregates as a combiner: the accumulator is a list of slots, and the code that adds a row to them is generated.

Loops of groupings contain that code as lines of their own (`AggregateFn.adding`), so that nothing is called for a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.sdk.authoring.combine import CombineFn, CountFn, MaxFn, MinFn, SumFn
from tidegate.sdk.data.columns import DecimalType
from tidegate.sdk.relational.decimal_types import result_type
from tidegate.sdk.relational.expressions import Call
from tidegate.sdk.relational.python import decimals, numbers
from tidegate.sdk.relational.python.generated_functions import GeneratedCombineFn, compiled
from tidegate.sdk.relational.python.values import GREATEST, LEAST


@dataclass(frozen=True, slots=True)
class _Fold:
    """An aggregate as Python. `{s0}`, `{s1}` are its slots, `{o0}`, `{o1}` those of another accumulator, `{v}` a value.

    `initial` creates the slots; `add` and `merge` are statements, `result` an expression. `names` are the functions
    that they call.
    """

    initial: tuple[str, ...]
    add: str
    merge: str
    result: str = "{s0}"
    names: Mapping[str, Any] = field(default_factory=dict)


def _best(test: str) -> _Fold:
    """The value for which the test of a new one against it fails."""
    return _Fold(
        ("None",),
        f"if {{s0}} is None or {test.format('{v}', '{s0}')}: {{s0}} = {{v}}",
        f"if {{o0}} is not None and ({{s0}} is None or {test.format('{o0}', '{s0}')}): {{s0}} = {{o0}}",
    )


def _decided(by: str) -> _Fold:
    """A boolean that one value decides."""
    undecided = f"{{s0}} is not {by}"
    return _Fold(
        ("None",),
        f"if {undecided}: {{s0}} = {{v}}",
        f"if {{o0}} is not None and {undecided}: {{s0}} = {{o0}}",
    )


def _sum(zero: str, result: str) -> _Fold:
    return _Fold(
        ("None",),
        f"{{s0}} = ({zero} if {{s0}} is None else {{s0}}) + {{v}}",
        "if {o0} is not None: {s0} = {o0} if {s0} is None else {s0} + {o0}",
        result,
    )


def _of_set(result: str, *, nan: bool = False, names: Mapping[str, Any] | None = None) -> _Fold:
    """An aggregate of the set of the values, in which None stands for NaN. `names`: the functions of `result`."""
    add = "{s0}.add({v} if {v} == {v} else None)" if nan else "{s0}.add({v})"
    return _Fold(("set()",), add, "{s0} |= {o0}", result, names or {})


def _if_any(result: str) -> str:
    """A result that is NULL if there are no values."""
    return f"({result} if {{s0}} else None)"


def _average(zero: str) -> _Fold:
    return _Fold(
        (zero, "0"),
        "{s0} += {v}; {s1} += 1",
        "{s0} += {o0}; {s1} += {o1}",
        "({s0} / {s1} if {s1} else None)",
    )


_FOLDS: Final[dict[str, dict[str, _Fold]]] = {
    "count": {"*": _Fold(("0",), "{s0} += 1", "{s0} += {o0}")},
    "count_distinct": {"double": _of_set("len({s0})", nan=True), "*": _of_set("len({s0})")},
    "sum": {"bigint": _sum("0", "checked_sum({s0})"), "double": _sum("0.0", "{s0}")},
    "avg": {"bigint": _average("0"), "double": _average("0.0")},
    "sum_distinct": {
        "bigint": _of_set(_if_any("checked_sum(sum({s0}))")),
        "double": _of_set(_if_any("sum_of_doubles({s0})"), nan=True),
    },
    "avg_distinct": {
        "bigint": _of_set(_if_any("sum({s0}) / len({s0})")),
        "double": _of_set(_if_any("sum_of_doubles({s0}) / len({s0})"), nan=True),
    },
    "min": {"double": _best("({0} < {1} or ({1} != {1} and {0} == {0}))"), "*": _best("{0} < {1}")},
    "max": {"double": _best("({1} < {0} or ({0} != {0} and {1} == {1}))"), "*": _best("{1} < {0}")},
    "bool_and": {"*": _decided("False")},
    "bool_or": {"*": _decided("True")},
}


_SUMS: Final = ("sum", "avg", "sum_distinct", "avg_distinct")
"""The aggregates that are computed otherwise of decimals."""


def sum_of_doubles(values: set[float | None]) -> float:
    """The sum of different doubles, the same whatever the order in which they came; None stands for NaN."""
    return math.nan if None in values else sum(sorted(value for value in values if value is not None))


def checked_sum(total: int | None) -> int | None:
    """A sum that bigint can represent; ExpressionError for another one, whatever the order of its addends."""
    if total is None or LEAST <= total <= GREATEST:
        return total
    return numbers.out_of_range(total)


class AggregateFn(GeneratedCombineFn):
    """Combines the arguments of aggregates to a tuple of their results.

    `calls` are bound aggregates. An input is a tuple with a value for each of them that has an argument, in their
    order, or with `bare` the value of the only one.
    """

    in_parts = True
    has_identity = True

    def __init__(self, calls: Sequence[Call], bare: bool = False) -> None:
        self.calls, self.bare = tuple(calls), bare
        folds, adding = _folds(self.calls, bare)
        self.adding = None if any(fold.names for fold in folds) else tuple(adding)
        self._create, self.add_input, self.add_all, self._merge, self._extract = _functions(folds, adding)  # type: ignore[method-assign,assignment]

    def create_accumulator(self) -> list[Any]:
        return self._create()

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        merged = self._create()
        for accumulator in accumulators:
            self._merge(merged, accumulator)
        return merged

    def extract_output(self, accumulator: list[Any]) -> tuple[Any, ...]:
        return self._extract(accumulator)

    @property
    def initial(self) -> str:
        folds, _ = _folds(self.calls, self.bare)
        return f"[{', '.join(each for fold in folds for each in fold.initial)}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return AggregateFn, (self.calls, self.bare)


def of_plain_values(call: Call) -> CombineFn[Any, Any, Any] | None:
    """The built-in combiner that computes an aggregate of values none of which is NULL, and of at least one of them;
    None if there is none. A sum may then be one that bigint can't represent."""
    if not call.arguments:
        return CountFn()
    (argument,) = call.arguments
    if argument.nullable:
        return None
    match call.operation, argument.type.kind:
        case "count", _:
            return CountFn()
        case "sum", "bigint" | "double":
            return SumFn()
        case "min" | "max", "double":
            return None  # NaN is greater than all other values
        case "min", _:
            return MinFn()
        case "max", _:
            return MaxFn()
    return None


def _folds(calls: Sequence[Call], bare: bool) -> tuple[list[_Fold], list[str]]:
    """The folds of aggregates, and the lines that add the input `x` to the accumulator `a`."""
    folds: list[_Fold] = []
    adding: list[str] = []
    slot = value = 0
    for call in calls:
        argument = call.arguments[0] if call.arguments else None
        fold = _fold_of(call)
        folds.append(fold)
        slots = {f"s{k}": f"a[{slot + k}]" for k in range(len(fold.initial))}
        slot += len(fold.initial)
        if argument is None:
            adding.append(fold.add.format(v="", **slots))
            continue
        name = "x" if bare else f"x[{value}]"
        value += 1
        if not bare and (argument.nullable or fold.add.count("{v}") > 1):
            adding.append(f"v = {name}")
            name = "v"
        statement = fold.add.format(v=name, **slots)
        adding += [f"if {name} is not None:", f"    {statement}"] if argument.nullable else [statement]
    return folds, adding


def _fold_of(call: Call) -> _Fold:
    """How an aggregate is computed."""
    folds = _FOLDS[call.operation]
    type = call.arguments[0].type if call.arguments else None
    if not isinstance(type, DecimalType) or call.operation not in _SUMS:
        return folds["*"] if type is None else folds.get(type.kind) or folds["*"]
    assert isinstance(call.type, DecimalType)
    result = f"{call.operation}_{type.precision}_{type.scale}"
    names: dict[str, Any] = {"decimal_add": decimals.EXACT.add}
    if call.operation == "sum_distinct":
        names = {"decimal_sum": decimals.exact_sum, result: decimals.sum_of(call.type)}
        return _of_set(f"{result}(decimal_sum({{s0}}))", names=names)
    if call.operation == "avg_distinct":
        names = {"decimal_sum": decimals.exact_sum, result: decimals.average_of(call.type, result_type("sum", [type]))}
        return _of_set(f"{result}(decimal_sum({{s0}}), len({{s0}}))", names=names)
    add = "{s0} = {v} if {s0} is None else decimal_add({s0}, {v})"
    merge = "if {o0} is not None: {s0} = {o0} if {s0} is None else decimal_add({s0}, {o0})"
    if call.operation == "sum":
        return _Fold(("None",), add, merge, f"{result}({{s0}})", names | {result: decimals.sum_of(call.type)})
    names[result] = decimals.average_of(call.type, result_type("sum", [type]))
    merge += "\n{s1} += {o1}"
    return _Fold(("None", "0"), f"{add}; {{s1}} += 1", merge, f"{result}({{s0}}, {{s1}})", names)


_CALLED: Final = {"checked_sum": checked_sum, "sum_of_doubles": sum_of_doubles}
"""The functions that results of any fold may call."""


def _functions(
    folds: Sequence[_Fold], adding: Sequence[str]
) -> tuple[
    Callable[[], list[Any]],
    Callable[[list[Any], Any], list[Any]],
    Callable[[list[Any], Iterable[Any]], list[Any]],
    Callable[[list[Any], list[Any]], None],
    Callable[[list[Any]], tuple[Any, ...]],
]:
    initial: list[str] = []
    results: list[str] = []
    merge: list[str] = []
    for fold in folds:
        slots = {f"s{k}": f"slots[{len(initial) + k}]" for k in range(len(fold.initial))}
        others = {f"o{k}": f"others[{len(initial) + k}]" for k in range(len(fold.initial))}
        merge += fold.merge.format(**slots, **others).splitlines()
        results.append(fold.result.format(**slots))
        initial += fold.initial
    names = {**_CALLED, **{name: call for fold in folds for name, call in fold.names.items()}}
    return (
        compiled("create", "", [f"return [{', '.join(initial)}]"], names),
        compiled("add", "a, x", [*adding, "return a"], names),
        compiled("add_all", "a, values", ["for x in values:", *(f"    {line}" for line in adding), "return a"], names),
        compiled("merge", "slots, others", merge, names),
        compiled("extract", "slots", [f"return ({''.join(f'{result}, ' for result in results)})"], names),
    )

"""GroupBy(...).agg(...): groups by columns, and rows of expressions over aggregates of their elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidegate.sdk.data.columns import DOUBLE, Field, Schema
from tidegate.sdk.data.schema import access_of, schema_of, with_schema
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.portable.model import MAIN
from tidegate.sdk.primitives import CombinePerKey, GroupByKey, Map, MultiOutput, pair_type
from tidegate.sdk.relational.authoring import Expression, col
from tidegate.sdk.relational.binding import Input, bound_aggregate
from tidegate.sdk.relational.expressions import Column, Tree
from tidegate.sdk.relational.python.aggregates import AggregateFn
from tidegate.sdk.relational.python.printing import printed
from tidegate.sdk.relational.python.row_function import RowCode, compiled, row_function
from tidegate.sdk.steps.transform import PTransform
from tidegate.transforms.elementwise import Values
from tidegate.transforms.functions import key_and_value, with_computed_key
from tidegate.transforms.grouping.of_elements import OfElements
from tidegate.transforms.rows.computed import Computed, bound_columns
from tidegate.transforms.rows.row import Row, row_maker


class AggregateColumns(PTransform[PCollection[Any], PCollection[Row]]):
    """A `GroupBy` with aggregated columns; `GroupBy(...).agg(...)` returns one."""

    def __init__(
        self,
        keys: Mapping[str, str | Expression | Callable[[Any], Any]],
        columns: Mapping[str, Expression],
        grouping: GroupByKey,
        label: str | None,
    ) -> None:
        self.keys = {name: _key(name, each) for name, each in keys.items()}
        self.columns = dict(columns)
        self.grouping = grouping
        self.label = label

    def default_label(self) -> str:
        return f"GroupBy({', '.join(self.keys)})"

    def with_late_data(self, tag: str) -> AggregateColumns:
        """Return `out.main` and `out.<tag>`: the elements, unchanged, that were too late for all their windows."""
        return AggregateColumns(self.keys, self.columns, self.grouping.with_late_data(tag), self.label)

    def expand(self, input: PCollection[Any]) -> Any:
        element = input.element_type
        keys = bound_columns(self.keys, element)
        outputs, calls = _bound_outputs(self.columns, keys, Input(schema_of(element)))
        arguments = tuple(call.arguments[0] for call in calls if call.arguments)
        key: Any = KeyOf(tuple(keys.values()), access_of(element))
        value = Computed(RowCode(arguments, access_of(element)))
        fields = [Field(name, tree.type, tree.nullable) for name, tree in (keys | outputs).items()]
        rows = GroupRow(tuple(keys.values()), tuple(keys), tuple(outputs.values()), tuple(outputs))
        row = Map(rows, name="Row").with_output_types(with_schema(Row, Schema(tuple(fields))))
        combiner = AggregateFn(calls)
        tag = self.grouping.late_tag
        if tag is None:
            pairs = Map(key_and_value, key, value, name="Key").with_output_types(pair_type(Any, tuple[Any, ...]))
            return input | pairs | CombinePerKey(combiner, name="Combine") | row
        keyed = Map(with_computed_key, key, name="Key").with_output_types(pair_type(Any, element))
        out: Any = input | keyed | CombinePerKey(OfElements(combiner, value), name="Combine").with_late_data(tag)
        late = out[tag] | Values(name="Late").with_output_types(element)
        return MultiOutput({MAIN: out[MAIN] | row, tag: late})


def _key(name: str, given: Any) -> Expression:
    match given:
        case str():
            return col(given)
        case Expression():
            return given
    raise BuildError(
        f"agg: the key {name!r} is a function, and aggregated columns have keys that are columns or expressions. For "
        "functions of elements, use aggregate_field"
    )


def _bound_outputs(
    columns: Mapping[str, Expression], keys: Mapping[str, Tree], input: Input
) -> tuple[dict[str, Tree], list[Any]]:
    """The columns over keys and aggregates `$0`, `$1`, …, and all aggregates."""
    outputs: dict[str, Tree] = {}
    calls: list[Any] = []
    for name, expression in columns.items():
        try:
            tree, own = bound_aggregate(expression.tree, input, keys, len(calls))
        except BuildError as error:
            error.args = (f"column {name!r}: {error}",)
            raise
        outputs[name] = tree
        calls += own
    return outputs, calls


# -- keys: equal values of SQL have to be equal keys of Python

_NAN = "NaN"
"""What a key has instead of NaN, which is no key since it doesn't equal itself."""


class KeyOf:
    """A function from an element to its key: the value of a single expression, else a tuple. NaN is one key, and so
    are the two zeros."""

    def __init__(self, trees: tuple[Tree, ...], access: Any) -> None:
        self.parts = trees, access
        self._call = key_function(trees, access)

    def __call__(self, element: Any) -> Any:
        return self._call(element)

    def __reduce__(self) -> tuple[Any, ...]:
        return key_function, self.parts


def key_function(trees: tuple[Tree, ...], access: Any) -> Callable[[Any], Any]:
    """The function of a `KeyOf`."""
    single = len(trees) == 1
    doubles = [k for k, tree in enumerate(trees) if tree.type == DOUBLE]
    values = row_function(RowCode(trees, access, single))
    if not doubles:
        return values
    if single:
        return lambda element: _as_key(values(element))

    def key(element: Any) -> tuple[Any, ...]:
        parts = list(values(element))
        for k in doubles:
            parts[k] = _as_key(parts[k])
        return tuple(parts)

    return key


def _as_key(value: float | None) -> Any:
    return value if value is None else _NAN if value != value else value + 0.0


class GroupRow:
    """A function from a key and the results of the aggregates to a Row: the keys, then the columns over both."""

    def __init__(
        self, keys: tuple[Tree, ...], key_names: tuple[str, ...], outputs: tuple[Tree, ...], names: tuple[str, ...]
    ) -> None:
        self.parts = keys, key_names, outputs, names
        self._call = group_row(*self.parts)

    def __call__(self, pair: tuple[Any, Any]) -> Row:
        row: Row = self._call(pair)
        return row

    def __reduce__(self) -> tuple[Any, ...]:
        return group_row, self.parts


def group_row(
    keys: tuple[Tree, ...], key_names: tuple[str, ...], outputs: tuple[Tree, ...], names: tuple[str, ...]
) -> Callable[[Any], Any]:
    """The function of a `GroupRow`."""
    single = len(keys) == 1
    sources = {}
    for k, (name, tree) in enumerate(zip(key_names, keys, strict=True)):
        part = "key" if single else f"key[{k}]"
        sources[name] = f"(nan if {part} == {_NAN!r} else {part})" if tree.type == DOUBLE else part
    grouped = [Column(name, tree.type, tree.nullable) for name, tree in zip(key_names, keys, strict=True)]

    def read(name: str) -> str:
        return sources[name] if name in sources else f"results[{int(name[1:])}]"

    made = printed((*grouped, *outputs), read, checked=False)
    lines = ["key, results = pair", *made.reads, f"return make(({', '.join(made.results)},))"]
    environment = {"make": row_maker((*key_names, *names)), "nan": float("nan")}
    return compiled("group_row", "pair", lines, environment | dict(made.names))

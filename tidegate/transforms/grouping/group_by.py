"""GroupBy: group elements by fields or functions of them, and aggregate the groups."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tidegate.sdk.authoring.combine import CombineFn, TupleCombineFn, combiner_name
from tidegate.sdk.data.row import Row, row_maker
from tidegate.sdk.data.schema import access_of
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.portable.model import MAIN
from tidegate.sdk.primitives import CombinePerKey, GroupByKey, Map, MultiOutput, checked_combiner, pair_type
from tidegate.sdk.steps.transform import PTransform
from tidegate.transforms.elementwise import Values
from tidegate.transforms.functions import key_and_value, with_computed_key
from tidegate.transforms.grouping.of_elements import OfElements
from tidegate.transforms.rows.fields import (
    Expression,
    add_field,
    expression_type,
    expressions_of,
    function_of,
    is_computation,
    label_of,
    values_function,
)

if TYPE_CHECKING:
    from tidegate.sdk.relational.authoring import Expression as Computation
    from tidegate.transforms.grouping.aggregate_columns import AggregateColumns


class GroupBy(PTransform[PCollection[Any], PCollection[tuple[Any, Iterable[Any]]]]):
    """Group elements by fields or functions of them: `GroupBy("user")`, `GroupBy(len)`, `GroupBy("user", day=day_of)`.

    A name is that of an attribute, or of an item if elements are dicts. Emits `(key, elements)`. For a single unnamed
    field or function the key is its value; else the key is a Row of all of them, in which a function without a name is
    the field `key0`, `key1`, … by its position.
    """

    def __init__(
        self, *fields: Expression | Computation, name: str | None = None, **named: Expression | Computation
    ) -> None:
        self.single = len(fields) == 1 and not named
        nameless = self.single and not isinstance(fields[0], str) and not is_computation(fields[0])
        self.keys = expressions_of(
            "GroupBy", "key", () if nameless else fields, {"key": fields[0]} if nameless else named
        )
        self.grouping = GroupByKey()
        self.label = label_of("GroupBy", name)

    def default_label(self) -> str:
        return f"GroupBy({', '.join(self.keys)})"

    def aggregate_field(self, field: Expression, combiner: Any, dest: str) -> Aggregate:
        """Combine a field of each group's elements: `.aggregate_field("price", sum, "revenue")`.

        May be called several times. Emits a Row for each group: the keys, then each aggregate as the field `dest`.
        """
        return Aggregate(self).aggregate_field(field, combiner, dest)

    def agg(self, **columns: Computation) -> AggregateColumns:
        """Aggregate the groups by expressions: `.agg(revenue=tg.fn.sum("price"), n=tg.fn.count())`.

        The keys are columns or expressions, not functions. Emits a Row for each group: the keys, then the columns,
        which may compute with aggregates and keys. NULL, NaN and zero are one key each. `GroupBy().agg(...)` makes one
        group of all elements of a window, and a row for a bounded input without elements.
        """
        from tidegate.transforms.grouping.aggregate_columns import AggregateColumns

        every: dict[str, Any] = dict(self.keys)
        for name, column in columns.items():
            if not is_computation(column):
                raise BuildError(f"agg: {name} is an expression such as tg.fn.count(), not {shorten(column)}")
            add_field("agg", every, name, column)
        if not columns:
            raise BuildError("agg takes at least one column, such as agg(n=tg.fn.count())")
        return AggregateColumns(self.keys, columns, self.grouping.late_tag, self.label)

    def with_late_data(self, tag: str) -> GroupBy:
        """Return `out.main` and `out.<tag>`: the elements, unchanged, that were too late for all their windows."""
        other = copy.copy(self)
        other.grouping = self.grouping.with_late_data(tag)
        return other

    def expand(self, input: PCollection[Any]) -> Any:
        self.require_keys()
        if any(map(is_computation, self.keys.values())):
            raise BuildError("GroupBy: groups by expressions are aggregated: write GroupBy(...).agg(name=...)")
        element = input.element_type
        key = expression_type(next(iter(self.keys.values())), element) if self.single else tuple[Any, ...]
        keyed = Map(with_computed_key, self.key_function(element), name="Key").with_output_types(
            pair_type(key, element)
        )
        grouped: Any = input | keyed | self.grouping
        tag = self.grouping.late_tag
        if tag is None:
            return self._named(grouped, element)
        late = grouped[tag] | Values(name="Late").with_output_types(element)
        return MultiOutput({MAIN: self._named(grouped[MAIN], element), tag: late})

    def _named(self, grouped: PCollection[Any], element: Any) -> PCollection[tuple[Any, Iterable[Any]]]:
        """The groups, with Rows as keys unless there is a single unnamed field."""
        if self.single:
            return grouped
        hint = pair_type(Row, Iterable[element])
        named = Map(RowKey(tuple(self.keys)), name="Name").with_output_types(hint)
        named.keeps_key = True
        return grouped | named

    def require_keys(self) -> None:
        """Raise BuildError unless there is a field to group by: only `agg` makes one group of all elements."""
        if not self.keys:
            raise BuildError('GroupBy takes at least one field or function, such as GroupBy("user")')

    def key_function(self, element_type: Any) -> Any:
        """A function from an element to its key: a single value, or a tuple, which is cheaper than the equal Row."""
        access = access_of(element_type)
        if self.single:
            return function_of(next(iter(self.keys.values())), access)
        return values_function(self.keys.values(), access)


class Aggregate(PTransform[PCollection[Any], PCollection[Row]]):
    """A `GroupBy` that combines fields of each group; `GroupBy(...).aggregate_field(...)` returns one."""

    def __init__(self, by: GroupBy) -> None:
        self.by = by
        self.label = by.label
        self.fields: dict[str, Expression] = {}
        self.combiners: tuple[CombineFn[Any, Any, Any], ...] = ()

    def default_label(self) -> str:
        return self.by.default_label()

    def aggregate_field(self, field: Expression, combiner: Any, dest: str) -> Aggregate:
        """Add another aggregate; see `GroupBy.aggregate_field`."""
        more = copy.copy(self)
        every = {**self.by.keys, **self.fields}
        add_field("aggregate_field", every, dest, field)
        more.fields = {**self.fields, dest: field}
        more.combiners = (*self.combiners, checked_combiner(combiner))
        return more

    def with_late_data(self, tag: str) -> Aggregate:
        """Return `out.main` and `out.<tag>`: the elements, unchanged, that were too late for all their windows.

        Trigger predicates, delta functions and evictors then get the elements rather than the combined fields.
        """
        other = copy.copy(self)
        other.by = self.by.with_late_data(tag)
        return other

    def expand(self, input: PCollection[Any]) -> Any:
        self.by.require_keys()
        element = input.element_type
        access = access_of(element)
        one = len(self.fields) == 1
        fields = tuple(self.fields.values())
        value = function_of(fields[0], access) if one else values_function(fields, access)
        combiner = self.combiners[0] if one else TupleCombineFn(*self.combiners)
        result = ResultRow((*self.by.keys, *self.fields), self.by.single, one)
        row = Map(result, name="Row").with_output_types(Row)
        tag = self.by.grouping.late_tag
        if tag is None:
            pairs = input | Map(key_and_value, self.by.key_function(element), value, name="Key")
            return pairs | CombinePerKey(combiner) | row
        keyed = Map(with_computed_key, self.by.key_function(element), name="Key").with_output_types(
            pair_type(Any, element)
        )
        combined = CombinePerKey(OfElements(combiner, value), name=f"CombinePerKey({combiner_name(combiner)})")
        out: Any = input | keyed | combined.with_late_data(tag)
        late = out[tag] | Values(name="Late").with_output_types(element)
        return MultiOutput({MAIN: out[MAIN] | row, tag: late})


class RowKey:
    """A function that converts the key of a pair, a tuple, to a Row."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._make = row_maker(names)

    def __call__(self, pair: tuple[Any, Any]) -> tuple[Row, Any]:
        key, group = pair
        return self._make(key), group

    def __reduce__(self) -> tuple[Any, ...]:
        return RowKey, (self.names,)


class ResultRow:
    """A function that converts a group's key and aggregates to one Row."""

    def __init__(self, names: tuple[str, ...], one_key: bool, one_value: bool) -> None:
        self.parts = names, one_key, one_value
        self._make = row_maker(names)
        self._one_key = one_key
        self._one_value = one_value

    def __call__(self, pair: tuple[Any, Any]) -> Row:
        key, value = pair
        keys = (key,) if self._one_key else key
        values = (value,) if self._one_value else value
        return self._make((*keys, *values))

    def __reduce__(self) -> tuple[Any, ...]:
        return ResultRow, self.parts
